"""Prompts of ours on their way through one Grok process, and what the person in front of it is shown of them. No I/O.

Owns a message between its first byte and the end of its turn (`Prompt`), and the lines that make it visible: the extension
draws only prompts that it sent itself, so the text goes in front of the answer as a quoted block (SH-63).
"""

from __future__ import annotations

from typing import Any

from broker.wire import Inject
from shims.jsonrpc import encoded

_QUOTED = 4000
"""Characters of a message that the block shows."""


class Prompt:
    """A message of ours; its prompt id is the delivery's id and tags every update of its turn (measured with 1.0.41)."""

    __slots__ = ("_answer", "category", "order", "shown", "taken")

    def __init__(self, order: Inject) -> None:
        self.order = order
        self.taken = False
        self.shown = False
        """The block, or the agent's own echo, has reached the editor."""
        self.category = ""
        """Why it was cancelled, in the agent's words: `PermissionRejected`, `MidTurnAbort`, …"""
        self._answer: list[str] = []

    @property
    def mark(self) -> bytes:
        """What every update of its turn holds near its end."""
        return b'"promptId":"' + self.order.key.encode() + b'"'

    def updated(self, update: dict[str, Any]) -> None:
        """One update of its turn: the answer is what was said after the last tool."""
        kind = update.get("sessionUpdate")
        if kind in ("tool_call", "tool_call_update"):
            self._answer = []
        elif kind == "agent_message_chunk":
            content = update.get("content")
            text = content.get("text") if isinstance(content, dict) else None
            if isinstance(text, str):
                self._answer.append(text)

    def answer(self) -> str:
        return "".join(self._answer)

    def block(self) -> bytes:
        """The message as a quoted block, as if the agent had begun its answer with it."""
        text = self.order.text
        if len(text) > _QUOTED:
            text = f"{text[:_QUOTED]}\n… ({len(self.order.text) - _QUOTED} more characters)"
        quoted = "".join(f"> {line}\n" for line in text.splitlines())
        update = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": f"{quoted}\n"}}
        parameters = {"sessionId": self.order.session, "update": update, "_meta": {"promptId": self.order.key}}
        return encoded({"jsonrpc": "2.0", "method": "session/update", "params": parameters})
