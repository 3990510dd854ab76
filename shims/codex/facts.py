"""What Codex's files tell of a session: the name of a rollout, its first line, its first message, its last record; renames.

No I/O. Measured with codex-cli 0.147.0, 0.154.0 and 0.171.0, by what ``thread/list`` says. Codex reads a session's description
from its first message that has words or a picture, in all its parts together; a rollout that does not begin with its own
``session_meta`` is none to Codex either, it neither lists nor resumes it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timezone
from typing import Any, NamedTuple

from shims.jsonline import as_list, as_object, parse_object
from shims.moved import moment
from shims.names import kept
from shims.shelf import LONGEST_DECODED, Card

ARCHIVED = "archived"

_ID = r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
_THREAD = re.compile(_ID)
_FILE = re.compile(rf"rollout-([0-9]{{4}})-([0-9]{{2}})-([0-9]{{2}})T([0-9]{{2}})-([0-9]{{2}})-([0-9]{{2}})-({_ID})\.jsonl")
_LOCK = re.compile(rf"({_ID})\.lock")

_MESSAGE_MARKS = (b'"UserMessage"', b'"user_message"')
"""Of ``item_completed`` in a paginated history, and of the event in the older kind, which 0.147 writes."""

_SAID = re.compile(rb'"thread_source":\s?"([^"\\]*)"')
_CLIENT = re.compile(rb'"source":\s?"[^"\\]*"')
_OF_OTHERS = re.compile(rb'"parent_thread_id":\s?"|"source":\s?\{|"thread_source":')
_DIRECTORY = re.compile(rb'"cwd":\s?("(?:[^"\\\x00-\x1f]|\\.)*")')
"""Of a ``session_meta``; inside of its texts quotes are escaped."""

_REQUEST = "## My request for Codex:"
"""Codex's editor extension puts what it knows of the editor before this line, and the person's words behind it."""

_PICTURE = "[Image]"
"""What Codex calls a first message without words."""


class Named(NamedTuple):
    """What the name of a rollout tells."""

    thread: str
    rank: float


def is_rollout(name: str) -> bool:
    """Whether a file that is called so is one; an eighth of what `named` costs."""
    return _FILE.fullmatch(name) is not None


def named(name: str) -> Named | None:
    """``name`` is that of a file without its directory; None when it is no rollout's. Its time is local: it only orders."""
    match = _FILE.fullmatch(name)
    if match is None:
        return None
    *time, thread = match.groups()
    try:
        return Named(thread, datetime(*map(int, time), tzinfo=timezone.utc).timestamp())  # type: ignore[misc, arg-type]
    except ValueError:
        return Named(thread, 0.0)


def is_thread(name: str) -> bool:
    """Whether ``name`` is a thread's id, as Codex writes it; what is none it takes for a name."""
    return _THREAD.fullmatch(name) is not None and name == name.lower()


def locked(name: str) -> str:
    """The thread whose writer's lock is called ``name``; empty when it is none."""
    match = _LOCK.fullmatch(name)
    return match.group(1) if match is not None else ""


def card(named: Named, first: bytes, *, archived: bool) -> Card | None:
    """The session whose rollout begins with the line ``first``; None when that is no ``session_meta``."""
    entry = parse_object(first)
    if entry.get("type") != "session_meta":
        return None
    meta = as_object(entry.get("payload"))
    thread = _text(meta.get("id"))
    return Card(
        thread if _THREAD.fullmatch(thread) else named.thread,
        cwd=_text(meta.get("cwd")),
        rank=named.rank,
        barred=_barred(meta) or (ARCHIVED if archived else ""),
    )


def glimpsed(named: Named, start: bytes, *, archived: bool) -> Card:
    """The session whose first line is too long to be decoded and begins with ``start``: it counts if that tells whose it is."""
    said = _SAID.search(start)
    text = _DIRECTORY.search(start)
    person = said is not None and said[1] == b"user"
    if said is None and not _OF_OTHERS.search(start):
        person = _CLIENT.search(start) is not None
    return Card(
        named.thread,
        cwd=_text(as_object(parse_object(b'{"cwd":%s}' % text[1])).get("cwd")) if text is not None else "",
        rank=named.rank,
        barred=(ARCHIVED if archived else "") if person else "its first record is too long to tell whose it is",
    )


def first_words(lines: Iterable[bytes]) -> str:
    """The description by the first message; empty when none is in ``lines``."""
    for line in lines:
        if len(line) <= LONGEST_DECODED and any(mark in line for mark in _MESSAGE_MARKS):
            words = _words(parse_object(line))
            if words:
                return kept(words)
    return ""


def last_moment(lines: Sequence[bytes]) -> float:
    """When the last record was written; 0 when none says."""
    return next(filter(None, (moment(parse_object(line)) for line in reversed(lines))), 0.0)


def renamed(line: bytes) -> tuple[str, str] | None:
    """(thread, name) of a line of the index of names; None when it is none. An empty name takes the name away."""
    entry = parse_object(line)
    thread = entry.get("id")
    if not isinstance(thread, str) or not _THREAD.fullmatch(thread):
        return None
    return thread, _text(entry.get("thread_name"))


def _barred(meta: Mapping[str, Any]) -> str:
    """Editor clients leave ``thread_source`` out; ``source`` says it as well, and alone did so in older releases."""
    said, source = meta.get("thread_source"), as_object(meta.get("source"))
    if said == "subagent" or "subagent" in source or (meta.get("parent_thread_id") and said != "user"):
        return "a sub-agent's thread"
    if said not in (None, "user") or "internal" in source:
        return "not a person's thread"
    return ""


def _words(entry: Mapping[str, Any]) -> str:
    """What a record's message of the user says; empty when it is no such record or says nothing."""
    event = as_object(entry.get("payload")) if entry.get("type") == "event_msg" else {}
    item = as_object(event.get("item"))
    if event.get("type") == "user_message":
        text, pictures = _text(event.get("message")), bool(event.get("images") or event.get("local_images"))
    elif event.get("type") == "item_completed" and item.get("type") == "UserMessage":
        parts = [as_object(part) for part in as_list(item.get("content"))]
        text = "".join(_text(part.get("text")) for part in parts if part.get("type") == "text")
        pictures = any(part.get("type") in ("image", "local_image") for part in parts)
    else:
        return ""
    _, request, own = text.partition(_REQUEST)
    return (own if request else text).strip() or (_PICTURE if pictures else "")


def _text(value: object) -> str:
    """``value`` if it is a string; half a pair of UTF-16, which no encoding of ours takes, is replaced."""
    if not isinstance(value, str):
        return ""
    return value if value.isascii() else value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
