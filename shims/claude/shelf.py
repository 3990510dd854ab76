"""Claude Code's store for the index: ``<store>/projects/<slug>/<session>.jsonl`` and ``<store>/sessions/<pid>.json``, read only.

Owns which files there are, and how much of each is read; what is in them, `facts` says. A transcript's head tells who began
it and where, its tail when it moved; its names stand anywhere, so that each part is searched once. The transcripts of
sub-agents lie deeper (``<slug>/<session>/subagents/agent-*.jsonl``) and are no sessions.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping

from broker.processes import ProcessId
from shims.blocks import LONGEST_LINE, end_of_lines, lines_with, tail_lines, trace
from shims.claude import facts, live
from shims.claude.facts import Ending, Facts
from shims.shelf import ENDS, Folder, Hold, Listed, Told, directories, files_in, linked, listed, unheeded

_TRANSCRIPT = re.compile(r"([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\.jsonl", re.IGNORECASE)
_REGISTERED = re.compile(r"([0-9]{1,10})\.json")

_LONGEST_ENTRY = 64 << 10
"""Bytes of a file of the registry; it has one of some hundred."""

_SPANS = (8 << 10, ENDS, 1 << 20)
"""Bytes of the end in which a moment is looked for, more of them only where the lines are that long."""


class ClaudeShelf:
    """See `shims.shelf.Shelf`."""

    def folders(self, store: str) -> Iterable[Folder]:
        projects = os.path.join(store, "projects")
        yield Folder(store)  # that it is moved away, or replaced, is told where it lies
        yield Folder(projects, deep=True)
        yield Folder(os.path.join(store, "sessions"))
        yield from linked(projects, 1)

    def files(self, store: str, unread: Callable[[str], None] = unheeded) -> Iterator[Listed]:
        for project in directories(os.path.join(store, "projects"), unread):
            yield from files_in(project, _TRANSCRIPT.fullmatch, unread)
        yield from files_in(os.path.join(store, "sessions"), _REGISTERED.fullmatch, unread)

    def concerns(self, store: str, path: str) -> str:
        root = os.path.join(store, "")
        parts = path[len(root) :].split("/") if path.startswith(root) else []
        if len(parts) == 3:
            return path if parts[0] == "projects" and _TRANSCRIPT.fullmatch(parts[2]) else ""
        return path if len(parts) == 2 and parts[0] == "sessions" and _REGISTERED.fullmatch(parts[1]) else ""

    def listed(self, store: str, path: str) -> Listed | None:  # noqa: ARG002
        return listed(path)

    def read(self, store: str, file: Listed, before: Told | None) -> Told:  # noqa: ARG002
        descriptor = os.open(file.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
        try:
            name = os.path.basename(file.path)
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                return Told()
            if transcript := _TRANSCRIPT.fullmatch(name):
                return _read_transcript(descriptor, transcript[1], file, before)
            return _read_entry(descriptor, name.removesuffix(".json"), file)
        finally:
            os.close(descriptor)

    def holding(self, store: str, holds: Iterable[Hold]) -> Mapping[str, tuple[ProcessId, ...]]:  # noqa: ARG002
        found: dict[str, tuple[ProcessId, ...]] = {}
        for hold in holds:
            process = live.holder(hold.pid, hold.evidence)
            if process is not None:
                found[hold.session] = (*found.get(hold.session, ()), process)
        return found


SHELF = ClaudeShelf()


def _read_entry(descriptor: int, pid: str, file: Listed) -> Told:
    """It is written anew as a whole, whenever the state of its process changes."""
    content = os.pread(descriptor, _LONGEST_ENTRY, 0) if file.size <= _LONGEST_ENTRY else b""
    hold = facts.hold(pid, content, file.changed / 1e9)
    return Told(file.size, holds=(hold,) if hold is not None else ())


def _read_transcript(descriptor: int, session: str, file: Listed, before: Told | None) -> Told:
    known, start = _left_off(descriptor, file, before)
    end = end_of_lines(descriptor, start, file.size)
    if not known.settled:
        known = _read_beginning(descriptor, known, start, end)
    for line in lines_with(descriptor, facts.TITLE_PART, start, end):
        if len(line) < LONGEST_LINE:
            known = facts.titled(known, line)
    card = facts.card(session, known, _read_ending(descriptor, end), file.changed / 1e9)
    return Told(end, cards=(card,), memory=trace(descriptor, end) + known.packed())


def _left_off(descriptor: int, file: Listed, before: Told | None) -> tuple[Facts, int]:
    """What is known already, and from where on nothing is."""
    if before is None or not 0 < before.read <= file.size:
        return Facts(), 0
    read = trace(descriptor, before.read)
    known = facts.unpacked(before.memory.removeprefix(read)) if before.memory.startswith(read) else None
    return (known, before.read) if known is not None else (Facts(), 0)  # it did not only grow


def _read_beginning(descriptor: int, known: Facts, start: int, end: int) -> Facts:
    """A line counts by where in the file it stands, not by when it is read.

    Within the head every line does, behind it those of messages; of one that begins in the head and is too long its start.
    """
    if start < ENDS:
        content = os.pread(descriptor, min(end, ENDS) - start, start)
        *lines, rest = content.split(b"\n")
        for line in lines:
            known = facts.begun(known, line)
            if known.settled:
                return known
        start += len(content) - len(rest)
        if start < min(end, ENDS):
            long = os.pread(descriptor, LONGEST_LINE, start)
            known = facts.glimpsed(known, long) if b"\n" not in long else known
    for line in lines_with(descriptor, facts.SPOKEN_PART, start, end):
        if known.settled:
            break
        if len(line) < LONGEST_LINE:
            known = facts.begun(known, line)
    return known


def _read_ending(descriptor: int, end: int) -> Ending:
    found = Ending()
    for span in _SPANS:
        lines = reversed(tail_lines(descriptor, end, span))
        found = facts.ending(line for line in lines if len(line) < LONGEST_LINE)
        if found.moved or span >= end:
            break
    return found
