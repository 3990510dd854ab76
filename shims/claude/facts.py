"""What the records of a Claude Code session tell of the session itself: where, what it is called, whether it counts. No I/O.

Owns the meaning of each record for the index, as a fold over lines in their order: stopped anywhere and continued later, it
comes to the same. What is no real message follows the product's own list of sessions (SDK 0.2.189, ``list_sessions``).
Measured with 2.1.197 and 2.1.332: a message is followed by 57 KB lines of prompts and tools, whose words are no records.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from shims.jsonline import as_list, as_object, parse_object
from shims.moved import moment
from shims.names import apart, kept
from shims.shelf import Card, Hold

SPOKEN_PART = b'"role":'
"""Every record of a message or an answer has it."""

TITLE_PART = b'-title"'
"""Of ``"type":"custom-title"`` and ``"type":"ai-title"``; inside of texts its quote is escaped."""

MOST_LOOKED_AT = 500
"""Records in which the first message of a person is looked for."""

_ASIDE, _NOT_ASIDE = b'"isSidechain":true', b'"isSidechain":false'
"""Inside of texts their quotes are escaped."""

_LONGEST_PID = 10
_WRITTEN = "written "
_NOISE = (
    "<local-command-stdout>",
    "<local-command-caveat>",
    "<session-start-hook>",
    "<tick>",
    "<goal>",
    "[Request interrupted by user",
)
"""How texts begin that stand in a user's record and are nobody's words."""
_BESIDE = ("ide_opened_file", "ide_selection")
"""What an editor puts beside a message, as a text of its own."""

_LONG_MESSAGE = re.compile(
    rb'"type":"user","message":\{"role":"user","content":'
    rb'(?:\[\{"type":"(?:image|document)"'
    rb'|(?:\[\{"type":"text","text":)?"((?:[^"\\\x00-\x1f]|\\u[0-9a-fA-F]{4}|\\[^u\x00-\x1f]){1,800}))'
)
"""The beginning of a message whose line is too long to be decoded; a tool's result begins in another way."""


class Facts(NamedTuple):
    """What the lines so far have told."""

    cwd: str = ""
    """Of the first record that has one: where it can be resumed, also after it was resumed elsewhere (2.1.332)."""
    words: str = ""
    command: str = ""
    summary: str = ""
    """Of before the first message; old releases begin a file so."""
    spoken: bool = False
    """Somebody wrote a message or was answered."""
    aside: bool = False
    """A sub-agent wrote into it."""
    looked: int = 0
    name: str = ""
    title: str = ""

    @property
    def settled(self) -> bool:
        """Whether the beginning tells no more."""
        return bool(self.cwd and self.words) or (self.looked >= MOST_LOOKED_AT and (self.spoken or not self.aside))

    def packed(self) -> str:
        return json.dumps(self, ensure_ascii=False, separators=(",", ":"))


def unpacked(memory: str) -> Facts | None:
    """The inverse of `Facts.packed`; None for what is none, as of another release."""
    try:
        values = json.loads(memory)
    except ValueError:
        return None
    known = isinstance(values, list) and [type(value) for value in values] == [type(value) for value in Facts()]
    return Facts(*values) if known else None


def begun(facts: Facts, line: bytes) -> Facts:
    """``facts`` and what one more line from the beginning tells; only before they are settled."""
    if SPOKEN_PART not in line and b'"summary"' not in line and (facts.cwd or b'"cwd"' not in line):
        return facts
    if facts.aside and facts.cwd and _ASIDE in line and _NOT_ASIDE not in line:
        return facts  # of these there may be thousands before the first one that counts
    entry = parse_object(line)
    facts = facts._replace(cwd=facts.cwd or _text(entry.get("cwd")), looked=facts.looked + 1)
    kind = entry.get("type")
    if kind == "summary":
        return facts._replace(summary=_short(entry.get("summary")))
    if kind not in ("user", "assistant"):
        return facts
    if entry.get("isSidechain") is True:
        return facts._replace(aside=True)
    if kind == "assistant":
        return facts._replace(spoken=True)
    return _said(facts, entry)


def glimpsed(facts: Facts, start: bytes) -> Facts:
    """``facts`` and what the ``start`` of a line tells that is too long to be decoded: a pasted file, a picture."""
    found = _LONG_MESSAGE.search(start)
    if found is None or facts.words:
        return facts
    if _ASIDE in start[: found.start()]:
        return facts._replace(aside=True)
    try:
        words = str(json.loads(b'"%b"' % (found[1] or b"").decode(errors="ignore").encode()))
    except ValueError:
        words = ""
    whole = start[found.end() : found.end() + 1] == b'"'
    facts = _spoke(facts, [words] if words else [])
    return facts if whole else facts._replace(words=apart(facts.words)[0], command=apart(facts.command)[0])


def titled(facts: Facts, line: bytes) -> Facts:
    """``facts`` and what a line with `TITLE_PART` tells; the last one of each kind counts."""
    entry = parse_object(line)
    if entry.get("type") == "custom-title" and isinstance(entry.get("customTitle"), str):
        return facts._replace(name=_text(entry["customTitle"]))
    if entry.get("type") == "ai-title" and isinstance(entry.get("aiTitle"), str):
        return facts._replace(title=_short(entry["aiTitle"]))
    return facts


class Ending(NamedTuple):
    """What the last lines of a file tell: when the last record was written, 0 if none says, and a summary behind it."""

    moved: float = 0.0
    summary: str = ""


def ending(lines: Iterable[bytes]) -> Ending:
    """``lines`` from the last one backwards."""
    summary = ""
    for line in lines:
        if b'"timestamp"' not in line and b'"summary"' not in line:
            continue
        entry = parse_object(line)
        if entry.get("type") == "summary":
            summary = summary or _short(entry.get("summary"))
        moved = moment(entry)
        if moved > 0:
            return Ending(moved, summary)
    return Ending(0.0, summary)


def card(session: str, facts: Facts, end: Ending, changed: float) -> Card:
    """The session as its file shows it; ``changed`` is when the file was, and counts when no record says."""
    moved = end.moved or changed
    barred = "" if facts.spoken else "a sub-agent's transcript" if facts.aside else "no message yet"
    title = facts.title or end.summary or facts.summary or facts.words or facts.command
    return Card(session, cwd=facts.cwd, name=facts.name, title=title, moved=moved, rank=moved, barred=barred)


def hold(pid: str, content: bytes, written: float) -> Hold | None:
    """What a file of the live registry says; ``pid`` is what its name says, ``written`` when it was. None when it is none."""
    entry = parse_object(content)
    session = _text(entry.get("sessionId"))
    if not session or not is_pid(pid):
        return None
    name = _text(entry.get("name")) if entry.get("nameSource") == "user" else ""
    return Hold(session, int(pid), evidence(entry.get("procStart"), written), name)


def is_pid(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= _LONGEST_PID and 0 < int(text) < 1 << 31


def evidence(start: object, written: float) -> str:
    """By what the process of an entry is known again: its start time as the kernel counts it, else when the entry was written."""
    noted = str(start) if type(start) is int else start
    return noted if isinstance(noted, str) and noted.isdecimal() else f"{_WRITTEN}{written:.3f}"


def written(evidence: str) -> float:
    """When the entry was written; 0 where a start time says more."""
    try:
        return float(evidence.removeprefix(_WRITTEN)) if evidence.startswith(_WRITTEN) else 0.0
    except ValueError:
        return 0.0


def _said(facts: Facts, entry: Mapping[str, Any]) -> Facts:
    if entry.get("isMeta") is True or entry.get("isCompactSummary") is True:
        return facts
    content = as_object(entry.get("message")).get("content")
    if isinstance(content, str):
        return _spoke(facts, [content])
    blocks = [as_object(block) for block in as_list(content)]
    if not blocks or any(block.get("type") == "tool_result" for block in blocks):
        return facts
    return _spoke(facts, [_text(block.get("text")) for block in blocks if block.get("type") == "text"])


def _spoke(facts: Facts, texts: list[str]) -> Facts:
    """A message of ``texts``; of none: a picture alone."""
    heard = list(_heard(texts))
    for text in heard:
        command = text.partition("<command-name>")[2].partition("</command-name>")
        if not command[1]:
            return facts._replace(words=facts.words or _short(text), spoken=True)
        facts = facts._replace(command=facts.command or _short(command[0]))
    return facts._replace(spoken=facts.spoken or bool(heard) or not texts)


def _heard(texts: Iterable[str]) -> Iterator[str]:
    for text in texts:
        words = text.replace("\n", " ").strip()
        beside = any(words.startswith(f"<{tag}>") and words.endswith(f"</{tag}>") for tag in _BESIDE)
        if words and not beside and not words.startswith(_NOISE):
            yield words


def _short(value: object) -> str:
    return kept(_text(value))


def _text(value: object) -> str:
    """``value`` if it is text. Half a character, as a program leaves that cuts by units of UTF-16, can be sent to nobody."""
    if not isinstance(value, str):
        return ""
    try:
        value.encode()
    except UnicodeEncodeError:
        return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return value
