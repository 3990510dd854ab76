"""Codex's store as the index reads it: rollouts, archived ones, the index of names, the writers' locks. Read only.

Owns which files there are and which parts of them are read; what is in them, `shims.codex.facts` tells. The first line of a
rollout is final, so is the first message once it is there: of a rollout that grows only the end is read again. Codex appends to
the index of names, one line per rename, and puts another file in its place when a session is deleted.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum, auto

from broker.processes import ProcessId
from shims import blocks
from shims.codex import facts, live
from shims.shelf import (
    ENDS,
    LONGEST_DECODED,
    Card,
    Folder,
    Hold,
    Listed,
    Told,
    directories,
    files_in,
    linked,
    listed,
    listed_or,
    unheeded,
)

_SESSIONS, _ARCHIVED, _LOCKS, _NAMES = "sessions", "archived_sessions", "thread-writer-locks", "session_index.jsonl"

_DEPTH = 3
"""Directories from ``sessions`` down to a rollout: year, month, day."""

_SPANS = (8 << 10, ENDS)
"""Bytes of the end in which a moment is looked for, more of them only where the last records are that long."""

_LONGEST_FIRST = 8 << 20
"""Bytes of a first line that are searched, when it is too long to be decoded."""

MOST_NAMES = 1 << 15
"""Sessions whose names are kept, those renamed last: some megabytes."""

MOST_RENAMES = 32 << 20
"""Bytes of the end of the index of names that are read: some 200,000 renames."""


class _Kind(Enum):
    ROLLOUT = auto()
    ARCHIVED = auto()
    NAMES = auto()
    LOCK = auto()


class CodexShelf:
    """See `shims.shelf.Shelf`."""

    def folders(self, store: str) -> Iterable[Folder]:
        yield Folder(store)  # the index of names is replaced as a whole: only its directory tells
        yield Folder(os.path.join(store, _SESSIONS), deep=True)
        yield Folder(os.path.join(store, _ARCHIVED))
        yield Folder(os.path.join(store, _LOCKS))
        yield from linked(os.path.join(store, _SESSIONS), _DEPTH)

    def files(self, store: str, unread: Callable[[str], None] = unheeded) -> Iterator[Listed]:
        for year in directories(os.path.join(store, _SESSIONS), unread):
            for month in directories(year, unread):
                for day in directories(month, unread):
                    yield from files_in(day, facts.is_rollout, unread)
        yield from files_in(os.path.join(store, _ARCHIVED), facts.is_rollout, unread)
        yield from files_in(os.path.join(store, _LOCKS), facts.locked, unread)
        yield from listed_or(unread, listed, os.path.join(store, _NAMES))

    def concerns(self, store: str, path: str) -> str:
        return path if _kind(store, path) is not None else ""

    def listed(self, store: str, path: str) -> Listed | None:  # noqa: ARG002
        return listed(path)

    def read(self, store: str, file: Listed, before: Told | None) -> Told:
        if before is not None and before.read > file.size:
            before = None
        kind = _kind(store, file.path)
        if kind is _Kind.LOCK:  # nothing is in it: it is there, and somebody may hold it
            thread = facts.locked(os.path.basename(file.path))
            return Told(file.size, holds=(Hold(thread, evidence=str(file.inode)),))
        if kind is None:
            return Told(file.size)
        descriptor = os.open(file.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            if kind is _Kind.NAMES and before is not None and before.memory != blocks.trace(descriptor, before.read):
                before = None
            start = before.read if before is not None else 0
            end = blocks.end_of_lines(descriptor, start, file.size)
            if kind is _Kind.NAMES:
                names = _names(descriptor, start, end, before.names if before is not None else ())
                left_out = len(names) > MOST_NAMES or end - start > MOST_RENAMES or (before is not None and before.left_out)
                return Told(end, names=names[-MOST_NAMES:], memory=blocks.trace(descriptor, end), left_out=left_out)
            card = _card(descriptor, end, file, before, archived=kind is _Kind.ARCHIVED)
        finally:
            os.close(descriptor)
        return Told(end, (card,) if card is not None else ())

    def holding(self, store: str, holds: Iterable[Hold]) -> Mapping[str, tuple[ProcessId, ...]]:
        """By the kernel's list of locks (Linux alone), which is read once."""
        return live.holding(store, {hold.evidence: hold.session for hold in holds})


SHELF = CodexShelf()


def _kind(store: str, path: str) -> _Kind | None:
    top = store.rstrip(os.sep) + os.sep
    if not path.startswith(top):
        return None
    *folders, name = path[len(top) :].split(os.sep)
    if not folders:
        return _Kind.NAMES if name == _NAMES else None
    if folders == [_LOCKS]:
        return _Kind.LOCK if facts.locked(name) else None
    if not facts.is_rollout(name):
        return None
    if folders == [_ARCHIVED]:
        return _Kind.ARCHIVED
    return _Kind.ROLLOUT if folders[0] == _SESSIONS and len(folders) == 1 + _DEPTH else None


def _card(descriptor: int, end: int, file: Listed, before: Told | None, *, archived: bool) -> Card | None:
    """The session of a rollout of ``end`` whole bytes; None as long as its first line is not whole, and when it is wrong."""
    card = before.cards[0] if before is not None and before.cards else None
    read = before.read if before is not None else 0
    if read == 0 or (card is not None and not card.title and read < LONGEST_DECODED):
        card = _head(descriptor, end, file, archived=archived)
    if card is None:
        return None
    moments = (facts.last_moment(blocks.tail_lines(descriptor, end, span)) for span in _SPANS)
    return card._replace(moved=next(filter(None, moments), file.changed / 1e9))


def _head(descriptor: int, end: int, file: Listed, *, archived: bool) -> Card | None:
    """What the beginning tells; a second, longer look where long instructions or a long message need one."""
    named = facts.named(os.path.basename(file.path))
    if named is None or end == 0:
        return None
    card = None
    for span in (ENDS, LONGEST_DECODED):
        lines = blocks.head_lines(descriptor, end, span)
        if lines and card is None:
            card = facts.card(named, lines[0], archived=archived)
            if card is None:
                return None
        title = facts.first_words(lines)
        if card is not None and (title or end <= span):
            return card._replace(title=title)
    if card is None:
        line = os.pread(descriptor, min(end, _LONGEST_FIRST), 0).partition(b"\n")[0]
        return facts.glimpsed(named, line, archived=archived)
    return card


def _names(descriptor: int, start: int, end: int, known: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """The names of ``known`` with the renames from ``start`` on, in the order in which they were given."""
    names = dict(known)
    for line in _lines(descriptor, start, end):
        told = facts.renamed(line)
        if told is None:
            continue
        thread, name = told
        names.pop(thread, None)
        if name:
            names[thread] = name
    return tuple(names.items())


def _lines(descriptor: int, start: int, end: int) -> Iterator[bytes]:
    """Every line between the two, which are where lines begin; one that is too long is left out."""
    at, rest = max(start, end - MOST_RENAMES), b""
    first = at > start  # in the middle of a line
    while at < end:
        content = os.pread(descriptor, min(blocks.BLOCK, end - at), at)
        if not content:
            return
        at += len(content)
        *lines, rest = (rest + content).split(b"\n")
        for line in lines[1:] if first and lines else lines:
            if len(line) <= blocks.LONGEST_LINE:
                yield line
        first = first and not lines
        rest = rest if len(rest) <= blocks.BLOCK else rest[: blocks.LONGEST_LINE + 1]
