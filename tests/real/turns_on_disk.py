"""The turns of a session as the agent's own records tell them: what a terminal shows can't be taken apart, its records can.

Pure. Reads the three formats on its own, without the product's readers: what those conclude is what the tests look at.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.real.party import Turn

if TYPE_CHECKING:
    from collections.abc import Iterable

Json = dict[str, Any]

_PEER = "Another Claude session sent a message:\n"
_PEER_END = "\n\nThis came from another Claude session"
_INTERRUPTED = "[Request interrupted by user"


@dataclass(slots=True)
class _Going:
    asked: list[str] = field(default_factory=list)
    words: str = ""
    ended: bool = False
    completed: bool = True

    def turn(self) -> Turn:
        return Turn(tuple(self.asked), self.words, self.completed)


def claude(records: Iterable[Json]) -> list[Turn]:
    """Each record hangs on its parent: what is noted late, as an interruption, is told by that and not by its place."""
    turns: dict[str, _Going] = {}
    roots: dict[str, str] = {}
    for record in records:
        identifier = record.get("uuid")
        if not identifier or record.get("isSidechain"):
            continue
        root = roots.get(record.get("parentUuid") or "", "")
        content = (record.get("message") or {}).get("content")
        text = _text(content)
        if record["type"] == "user" and text and _is_words(record, text):
            if text.startswith(_INTERRUPTED):
                turns[root].ended, turns[root].completed = True, False
                root = next(reversed(turns))  # what waited may have been noted before: then the answer to it hangs here
            else:
                root = identifier
                turns[root] = _Going([_own_words(text)])
        elif record["type"] == "assistant" and root in turns:
            # A turn that goes on with a tool has another record, with the call, as its last one.
            turns[root].words, turns[root].ended = text, bool(text) and not _calls(content)
        elif record["type"] == "attachment" and record["attachment"].get("type") == "queued_command" and root in turns:
            turns[root].asked.append(_own_words(_text(record["attachment"].get("prompt"))))
        roots[identifier] = root
    return [turn.turn() for turn in turns.values() if turn.ended]


def codex(records: Iterable[Json]) -> list[Turn]:
    turns: dict[str, _Going] = {}
    current = ""
    for record in records:
        payload = record.get("payload") or {}
        if record.get("type") != "event_msg":
            continue
        kind, item = payload.get("type"), payload.get("item") or {}
        if kind == "task_started":
            current = payload["turn_id"]
            turns[current] = _Going()
        elif kind == "user_message" and current in turns:
            turns[current].asked.append(payload["message"])
        elif kind == "item_completed" and item.get("type") == "UserMessage":
            turns[payload["turn_id"]].asked.append(_text(item["content"]))
        elif kind == "task_complete":
            turns[payload["turn_id"]].words = payload.get("last_agent_message") or ""
            turns[payload["turn_id"]].ended = True
        elif kind == "turn_aborted":
            aborted = turns[payload["turn_id"]]
            aborted.ended, aborted.completed = True, False
    return [turn.turn() for turn in turns.values() if turn.ended]


def grok(records: Iterable[Json]) -> list[Turn]:
    """One turn runs at a time, and what it took in stands before its end."""
    turns: list[Turn] = []
    going = _Going()
    for record in records:
        update = record["params"]["update"]
        kind = update["sessionUpdate"]
        if kind == "user_message_chunk":
            going.asked.append(update["content"]["text"])
        elif kind == "tool_call":
            going.words = ""
        elif kind == "agent_message_chunk":
            going.words += update["content"]["text"]
        elif kind == "turn_completed":
            going.completed = update["stop_reason"] == "end_turn"
            turns.append(going.turn())
            going = _Going()
    return turns


def _is_words(record: Json, text: str) -> bool:
    """Whether somebody said it; what a peer said is marked as what Claude Code itself puts in."""
    by_peer = (record.get("origin") or {}).get("kind") == "peer"
    return by_peer or not (record.get("isMeta") or text.startswith("<"))


def _text(content: object) -> str:
    if isinstance(content, str):
        return content
    blocks = content if isinstance(content, list) else []
    return "".join(block["text"] for block in blocks if block.get("type", "").lower() == "text")


def _calls(content: object) -> bool:
    blocks = content if isinstance(content, list) else []
    return any(block.get("type") == "tool_use" for block in blocks)


def _own_words(text: str) -> str:
    """A message of a peer without what Claude Code puts around it."""
    return text[len(_PEER) :].rpartition(_PEER_END)[0] if text.startswith(_PEER) else text
