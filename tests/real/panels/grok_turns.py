"""What a panel of Grok Build has seen of a session's turns, told from the messages of its agent.

Pure. A turn is named by its prompt id: that tags its queue entry, its updates and its end. Grok sends no prompt back, but the
queue says what runs; what is only replayed from the disk is no turn.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class GrokTurn:
    """One turn as the panel saw it end.

    ``asked``: what the agent took in; ``text``: its words after its last tool call; ``shown``: words in the same place that
    are not the agent's own, since each of those has a number.
    """

    prompt_id: str
    session_id: str
    stop_reason: str
    asked: tuple[str, ...]
    text: str
    shown: str
    error: str | None


@dataclass(slots=True)
class _Running:
    asked: list[str] = field(default_factory=list)
    words: list[str] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)


def ends_turn(message: Json, session_id: str) -> bool:
    """Whether a turn of the session ends with ``message``; the answer to the prompt may come before or after it."""
    if message.get("method") != "_x.ai/session_notification" or message["params"].get("sessionId") != session_id:
        return False
    return bool(message["params"]["update"]["sessionUpdate"] == "turn_completed")


def turns_of(messages: Iterable[Json], session_id: str) -> list[GrokTurn]:
    """Every turn of the session that ended, in order."""
    turns: list[GrokTurn] = []
    running: dict[str, _Running] = {}
    current = ""
    for message in messages:
        params = message.get("params") or {}
        if params.get("sessionId") != session_id:
            continue
        method = message.get("method")
        if method == "_x.ai/queue/changed" and params.get("runningPromptId"):
            current = params["runningPromptId"]
            running.setdefault(current, _Running([params["runningText"]]))
        elif method == "_x.ai/session/interjection":
            running.setdefault(current, _Running()).asked.append(params["text"])
        elif method == "session/update":
            _note(params, running)
        elif ends_turn(message, session_id):
            turns.append(_turn(params["update"], session_id, running))
    return turns


def _note(params: Json, running: dict[str, _Running]) -> None:
    update, meta = params["update"], params.get("_meta") or {}
    if meta.get("isReplay") or "promptId" not in meta:
        return
    turn = running.setdefault(meta["promptId"], _Running())
    if update["sessionUpdate"] == "agent_message_chunk":
        (turn.words if "eventId" in meta else turn.foreign).append(update["content"]["text"])
    elif update["sessionUpdate"] in ("tool_call", "tool_call_update"):
        turn.words.clear()


def _turn(update: Json, session_id: str, running: dict[str, _Running]) -> GrokTurn:
    seen = running.pop(update["prompt_id"], _Running())
    return GrokTurn(
        prompt_id=update["prompt_id"],
        session_id=session_id,
        stop_reason=update["stop_reason"],
        asked=tuple(seen.asked),
        text="".join(seen.words),
        shown="".join(seen.foreign),
        error=update.get("agent_result"),
    )
