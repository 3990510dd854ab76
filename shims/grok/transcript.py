"""Grok Build's ``updates.jsonl``: what became of a prompt, what a turn answered. No I/O.

Measured with 1.0.41 (protocols: grok.md, section 3, and what a kill leaves). A block of text is written when it ends, under
its turn's prompt id; the user's message has no id. A turn whose process was killed leaves at most that message, and at the
next load a ``turn_completed`` that says ``interrupted``; so does a prompt that only waited. That line proves nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, NamedTuple

from shims.agent import Found, Latest, Record
from shims.jsonline import as_object, parse_object
from shims.latest import Fold
from shims.stream import closes_with

_CUT_OFF = "interrupted"
"""A turn that its own process did not end. A second process that resumes the session writes it under a running turn, too."""


class Turn(NamedTuple):
    """One turn of a prompt: whether any update of it was seen, what it said after its last tool, and how it ended.

    ``earlier`` is what it said before that tool.
    """

    seen: bool = False
    words: str = ""
    ended: str = ""
    earlier: str = ""

    @property
    def answer(self) -> str:
        """What was said after the last tool, or all of it when nothing followed (SE-08)."""
        return self.words or self.earlier

    @property
    def runs(self) -> bool:
        return self.seen and not self.ended


def turn_of(lines: Iterable[bytes], key: str) -> Turn:
    """The turn of prompt ``key``, from the first line that names it on."""
    turn = Turn()
    for line in lines:
        turn = _further(turn, as_object(parse_object(line).get("params")), key)
    return turn


def record_of(lines: Iterable[bytes], key: str) -> Record:
    """What the lines say of prompt ``key``: UNKNOWN when they do not name it, or only its end."""
    turn = turn_of(lines, key)
    if not turn.seen:
        return Record(Found.UNKNOWN)
    if turn.ended == "end_turn":
        return Record(Found.ANSWERED, turn.answer, key)
    return Record(Found.OPEN if turn.ended in ("", _CUT_OFF) else Found.INTERRUPTED, turn=key)


def answer_naming(lines: Iterable[bytes], token: str) -> Record:
    """The finished turn whose closing line names ``token``."""
    turns: dict[str, Turn] = {}
    for line in lines:
        parameters = as_object(parse_object(line).get("params"))
        key = _key(parameters)
        if key:
            turns[key] = turn = _further(turns.get(key, Turn()), parameters, key)
            if turn.ended == "end_turn" and closes_with(turn.answer, token):
                return Record(Found.ANSWERED, turn.answer, key)
    return Record(Found.ABSENT)


def latest(lines: Iterable[bytes], after: float) -> Latest:
    """The last finished turn, whether one is open, and what was said ``after`` that instant.

    A user's message has no id: before a turn it begins the next, in the middle of one it is a word into it.
    """
    fold, key, turn = Fold(after), "", Turn()
    for line in lines:
        entry = parse_object(line)
        parameters = as_object(entry.get("params"))
        update = as_object(parameters.get("update"))
        named = _key(parameters)
        if update.get("sessionUpdate") == "user_message_chunk" and not turn.runs:
            key, turn = "", Turn()
            fold.begins()
        elif named and not _is_past(turn, key, named, update):
            if named != key:
                key, turn = named, Turn()
                fold.begins()
            turn = _further(turn, parameters, key)
            _tell(fold, turn, update, _written(entry, parameters))
    return fold.latest()


def _is_past(turn: Turn, key: str, named: str, update: dict[str, Any]) -> bool:
    """Whether a line tells nothing of what runs: it is of a turn that has ended, or of a prompt that only waited."""
    if named == key:
        return turn.ended not in ("", _CUT_OFF)
    return turn.seen and update.get("stop_reason") == _CUT_OFF


def _tell(fold: Fold, turn: Turn, update: dict[str, Any], when: float) -> None:
    """What ``update`` has brought to ``turn``. A turn that was cut off is over, unless more of it comes."""
    words = _words(update)
    if words:
        fold.says(words, when)
    if turn.ended == "end_turn":
        fold.ends(when, turn.answer)
    elif turn.ended:
        fold.breaks()
    else:
        fold.works()


def last_of_others(lines: Iterable[bytes], ours: Collection[str]) -> float:
    """When the newest line of a turn that is not ``ours`` was written, wall-clock seconds; 0 when there is none.

    A turn that is said to be cut off was written about when the session was opened again, by nobody's doing.
    """
    last = 0.0
    for line in lines:
        entry = parse_object(line)
        parameters = as_object(entry.get("params"))
        key = _key(parameters)
        if key and key not in ours and as_object(parameters.get("update")).get("stop_reason") != _CUT_OFF:
            last = _written(entry, parameters) or last
    return last


def _written(entry: dict[str, Any], parameters: dict[str, Any]) -> float:
    """When a line was written: its own time has whole seconds only."""
    exact, whole = as_object(parameters.get("_meta")).get("agentTimestampMs"), entry.get("timestamp")
    try:
        if isinstance(exact, (int, float)):
            return exact / 1000
        return float(whole) if isinstance(whole, (int, float)) else 0.0
    except OverflowError:  # a number of hundreds of digits is no time
        return 0.0


def _key(parameters: dict[str, Any]) -> str:
    tagged = as_object(parameters.get("_meta")).get("promptId") or as_object(parameters.get("update")).get("prompt_id")
    return tagged if isinstance(tagged, str) else ""


def _further(turn: Turn, parameters: dict[str, Any], key: str) -> Turn:
    """``turn`` after one more line."""
    if _key(parameters) != key:
        return turn
    update = as_object(parameters.get("update"))
    kind = update.get("sessionUpdate")
    if kind == "turn_completed":
        return turn._replace(ended=str(update.get("stop_reason")))
    if kind in ("tool_call", "tool_call_update"):
        return turn._replace(seen=True, words="", ended="", earlier=_joined(turn.earlier, turn.words))
    return turn._replace(seen=True, words=turn.words + _words(update), ended="")


def _words(update: dict[str, Any]) -> str:
    """What the agent says in it, for people to see; no thoughts."""
    text = as_object(update.get("content")).get("text")
    return text if update.get("sessionUpdate") == "agent_message_chunk" and isinstance(text, str) else ""


def _joined(earlier: str, words: str) -> str:
    return f"{earlier}\n\n{words}" if earlier and words else earlier or words
