"""Codex's rollout records: what became of a message, what a turn answered. No I/O.

Measured with codex-cli 0.147.0, 0.154.0 and 0.171.0. A message that ran is an ``item_completed`` of type ``UserMessage``
with our ``client_id`` (0.154 on) or a ``user_message`` event with it (0.147, whose turn is the last one started before);
a turn ends with ``task_complete`` or ``turn_aborted``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from shims.agent import Found, Latest, Record
from shims.jsonline import as_object, parse_object
from shims.latest import Fold
from shims.moved import moment
from shims.stream import closes_with


def record_of(before: Iterable[bytes], lines: Iterable[bytes], key: str) -> Record:
    """What the records say of the message with client id ``key``, or of the turn with that id.

    Args:
        before: lines that stand before its first mention (the turn that had begun), oldest first.
        lines: the lines from its first mention on.
    """
    turn, taken, words = "", False, ""
    for line in before:
        event = _event(line)
        if event.get("type") == "task_started":
            turn = str(event.get("turn_id"))
    for line in lines:
        event = _event(line)
        kind = event.get("type")
        if kind == "task_started":
            if taken:
                return Record(Found.INTERRUPTED, turn=turn)  # the next turn began: this one never ended
            turn = str(event.get("turn_id"))
            taken = turn == key
        elif not taken:
            taken = _client_id(event) == key
            turn = str(event.get("turn_id") or turn) if taken else turn
        elif kind == "task_complete" and event.get("turn_id") == turn:
            text = event.get("last_agent_message")
            if text is None and event.get("error"):
                return Record(Found.INTERRUPTED, turn=turn)
            return Record(Found.ANSWERED, str(text or words), turn)
        elif kind == "turn_aborted" and event.get("turn_id") == turn:
            return Record(Found.INTERRUPTED, turn=turn)
        else:
            words = _agent_words(event) or words
    return Record(Found.OPEN, turn=turn) if taken else Record(Found.ABSENT)


def answer_naming(lines: Iterable[bytes], token: str) -> Record:
    """The finished turn whose closing line names ``token``."""
    for line in lines:
        event = _event(line)
        text = event.get("last_agent_message")
        if event.get("type") == "task_complete" and isinstance(text, str) and closes_with(text, token):
            return Record(Found.ANSWERED, text, str(event.get("turn_id")))
    return Record(Found.ABSENT)


def latest(lines: Iterable[bytes], after: float) -> Latest:
    """The last finished turn, whether one is open, and what was said ``after`` that instant."""
    fold, turn = Fold(after), ""
    for line in lines:
        entry = parse_object(line)
        event = _event_of(entry)
        kind = event.get("type")
        if kind == "task_started":
            turn = str(event.get("turn_id"))
            fold.begins()
        elif kind in ("task_complete", "turn_aborted"):
            if turn in ("", event.get("turn_id")):
                _tell_end(fold, event, moment(entry))
        elif words := _agent_words(event):
            fold.says(words, moment(entry))
        elif kind == "item_completed" and not turn:
            fold.works()
    return fold.latest()


def _tell_end(fold: Fold, event: dict[str, Any], when: float) -> None:
    text = event.get("last_agent_message")
    if event.get("type") == "turn_aborted" or (text is None and event.get("error")):
        fold.breaks()
    else:
        fold.ends(when, str(text or ""))


def newest(lines: Iterable[bytes]) -> str:
    """The last turn in ``lines`` that has begun, which is known before the model sees its message; empty without any."""
    found = ""
    for line in lines:
        if b'"task_started"' in line and (event := _event(line)).get("type") == "task_started":
            found = str(event.get("turn_id"))
    return found


def sandbox(lines: Iterable[bytes]) -> str:
    """In which sandbox the last turn in ``lines`` ran, as Codex calls it; empty when they do not say.

    Each turn begins with a ``turn_context`` (0.147.0 to 0.171.0).
    """
    found = ""
    for line in lines:
        if b'"turn_context"' in line and (entry := parse_object(line)).get("type") == "turn_context":
            found = str(as_object(as_object(entry.get("payload")).get("sandbox_policy")).get("type") or "")
    return found


def last_of_others(lines: Iterable[bytes], ours: Collection[str]) -> float:
    """When the last record of a turn was written that no message of ours began; ``ours`` are the client ids of our messages.

    A turn that has begun is nobody's until its message says whose; so is what stands before the first message in sight.
    """
    theirs, last = False, 0.0
    for line in lines:
        entry = parse_object(line)
        event = _event_of(entry)
        if event.get("type") == "task_started":
            theirs = False
        elif (message := _user_message(event)) is not None:
            theirs = str(message.get("client_id")) not in ours  # a word of the person's into a turn of ours makes it theirs
        if theirs:
            last = max(last, moment(entry))
    return last


def _event(line: bytes) -> dict[str, Any]:
    return _event_of(parse_object(line))


def _event_of(entry: dict[str, Any]) -> dict[str, Any]:
    return as_object(entry.get("payload")) if entry.get("type") == "event_msg" else {}


def _user_message(event: dict[str, Any]) -> dict[str, Any] | None:
    """What of ``event`` holds a user's message; None: it is another event."""
    if event.get("type") == "user_message":
        return event
    item = as_object(event.get("item"))
    return item if event.get("type") == "item_completed" and item.get("type") == "UserMessage" else None


def _client_id(event: dict[str, Any]) -> object:
    message = _user_message(event)
    return message.get("client_id") if message is not None else None


def _agent_words(event: dict[str, Any]) -> str:
    if event.get("type") == "agent_message":
        return str(event.get("message") or "")
    item = as_object(event.get("item"))
    if event.get("type") != "item_completed" or item.get("type") != "AgentMessage":
        return ""
    content = item.get("content")
    return "".join(str(as_object(part).get("text") or "") for part in content) if isinstance(content, list) else ""
