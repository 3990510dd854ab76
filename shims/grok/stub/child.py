"""A sub-agent of the Grok stub, as a client sees one: a session that it never opened, in notifications alone.

Owns what is told of it; nothing runs in it. When it is done, the agent begins a turn of its own in the parent.
"""

from __future__ import annotations

from shims.grok.stub.session import Prompt
from shims.stub_values import uuid4, uuid7

TYPE_CHECKING = False
if TYPE_CHECKING:
    from shims.grok.stub.session import Session


def announce(parent: Session) -> None:
    """Its whole life, between two updates of the turn that called it."""
    child, prompt = uuid7(), uuid4()
    wire = parent.server.wire
    spawned = {"parent_session_id": parent.session_id, "child_session_id": child, "subagent_type": "general-purpose"}
    parent.notify_own({"sessionUpdate": "subagent_spawned", **spawned})
    running = {"runningPromptId": prompt, "runningText": "help", "runningKind": "prompt"}
    wire.notify("_x.ai/queue/changed", {"sessionId": child, "entries": [], **running})
    for kind, text in (("user_message_chunk", "help"), ("agent_message_chunk", "child done")):
        update = {"sessionUpdate": kind, "content": {"type": "text", "text": text}}
        wire.notify("session/update", {"sessionId": child, "update": update, "_meta": {"promptId": prompt}})
    wire.notify("_x.ai/queue/changed", {"sessionId": child, "entries": []})
    parent.notify_own({"sessionUpdate": "subagent_finished", "child_session_id": child, "will_wake": True})
    parent.server.loop.start(_wake(parent, Prompt(None, f"subagent-completed-{child}", ["A sub-agent is done."])))


async def _wake(parent: Session, prompt: Prompt) -> None:
    await parent.idle()
    parent.start_own(prompt)
