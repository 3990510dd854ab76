"""What the index of sessions asks of an agent's store: which files there are, and what one of them tells.

Owns the interface between the two, and reading a file from where it was read last. What a record means is the agent's own
to say (its ``shelf`` module, sans-I/O); when files are read is the index's (`broker.index`). Everything here blocks and runs
in the index process, never in the broker's loop (SE-05).
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib import import_module
from typing import NamedTuple, Protocol

from broker.processes import ProcessId

LONGEST_DECODED = 1 << 20
"""Bytes of JSON that are decoded at once (SE-05)."""

ENDS = 64 << 10
"""Bytes at the head and the tail of a transcript that are decoded."""


class Card(NamedTuple):
    """One session as its files show it, whoever holds it."""

    id: str
    cwd: str = ""
    """The directory that it works in, as recorded; empty where that is not told."""
    name: str = ""
    """A name that somebody gave."""
    title: str = ""
    """A generated title, or its first words: a description; as `names.kept` gives it."""
    moved: float = 0.0
    """When its last record was written, wall-clock seconds."""
    rank: float = 0.0
    """Of several files of one session the one with the highest rank counts."""
    barred: str = ""
    """Why it is no target, in a few words (`a sub-agent's thread`, `archived`); empty when it is one."""
    place: str = ""
    """``cwd`` with its links resolved; the index's to fill in."""


class Hold(NamedTuple):
    """A registry's word that a process holds a session; whether it is true, `Shelf.holding` tells."""

    session: str
    pid: int = 0
    """0: the registry names no process."""
    evidence: str = ""
    """What the registry says of the process beside its pid: a start time, an inode, a moment."""
    name: str = ""
    """What the holder calls the session."""


class Told(NamedTuple):
    """What one file has told so far. Kept on disk between two broker lives: plain values only (`broker.index.feed`)."""

    read: int = 0
    """Bytes from its start that need not be read again: whole lines of a file that only grows; else its size."""
    cards: tuple[Card, ...] = ()
    names: tuple[tuple[str, str], ...] = ()
    """(session, name) for sessions that have their own files; they count more than the name on a card."""
    holds: tuple[Hold, ...] = ()
    memory: str = ""
    """What the agent's shelf needs to go on where it stopped."""
    left_out: bool = False
    """A bound was met: there are more names than these."""


class Listed(NamedTuple):
    """A file of a store, as the listing of its directory told it."""

    path: str
    inode: int
    size: int
    changed: int
    """Modification time, nanoseconds."""


class Folder(NamedTuple):
    """A directory whose changes are watched."""

    path: str
    deep: bool = False
    """With everything below it."""


def unheeded(path: str) -> None:
    """For who wants to know of nothing but what can be read."""
    del path


class Shelf(Protocol):
    """One agent's kind of store. ``store`` is its data directory; nothing is ever written."""

    def folders(self, store: str) -> Iterable[Folder]:
        """What is watched at this moment; directories that do not exist yet are named as well, and where links lead to."""
        ...

    def files(self, store: str, unread: Callable[[str], None] = unheeded) -> Iterator[Listed]:
        """Every file that tells something.

        Args:
            unread: called with each file or directory that is there and cannot be looked at now. It is left out, with what is
                below it, which does not mean that this is gone.
        """
        ...

    def concerns(self, store: str, path: str) -> str:
        """The one of `files` that may tell something else when ``path`` has changed; empty: none."""
        ...

    def listed(self, store: str, path: str) -> Listed | None:
        """One of `files` as they would tell it now; None when it is gone. Raises OSError when that cannot be known now."""
        ...

    def read(self, store: str, file: Listed, before: Told | None) -> Told:
        """What ``file`` tells; ``before`` is what it told when it was shorter, None when it is new or was replaced.

        A corrupt, truncated or half-written file tells less, never an error.

        Raises:
            OSError: it cannot be read now.
        """
        ...

    def holding(self, store: str, holds: Iterable[Hold]) -> Mapping[str, tuple[ProcessId, ...]]:
        """Which processes really hold which session at this moment, of those that registries name.

        It reads no stores, but may wait for the kernel.
        """
        ...


def shelf(agent: str) -> Shelf:
    """The shelf of the agent called ``agent``, and nothing else of it: the index process stays small."""
    found: Shelf = import_module(f"shims.{agent}.shelf").SHELF
    return found


_NOT_THERE = frozenset((errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG))
"""What the system says of a path that leads to nothing. Anything else (no right to, no descriptor left, a server that does
not answer) is for a while: what was there may be there."""


def is_gone(error: OSError) -> bool:
    return error.errno in _NOT_THERE


def listed(path: str) -> Listed | None:
    """``path`` as a listing tells it; None when it is no regular file, or gone. Raises OSError when that cannot be known now."""
    try:
        status = os.stat(path)
    except OSError as error:
        if is_gone(error):
            return None
        raise
    return Listed(path, status.st_ino, status.st_size, status.st_mtime_ns) if stat.S_ISREG(status.st_mode) else None


def listed_or(unread: Callable[[str], None], look: Callable[[str], Listed | None], path: str) -> Iterator[Listed]:
    """What ``look`` finds at ``path``, if anything."""
    try:
        found = look(path)
    except OSError:
        unread(path)
        return
    if found is not None:
        yield found


def directories(path: str, unread: Callable[[str], None]) -> list[str]:
    """The directories in ``path``, also by a link."""
    return [entry.path for entry in _entries(path, unread) if _is(os.DirEntry.is_dir, entry, unread)]


def files_in(folder: str, wanted: Callable[[str], object], unread: Callable[[str], None]) -> Iterator[Listed]:
    """The regular files in ``folder`` whose names are ``wanted``; a link counts as what it leads to."""
    regular = stat.S_ISREG
    for entry in _entries(folder, unread):
        if not wanted(entry.name):
            continue
        try:
            status = entry.stat()
        except OSError as error:
            if not is_gone(error):  # else it went meanwhile, or is a link to nothing
                unread(entry.path)
            continue
        if regular(status.st_mode):
            yield Listed(entry.path, status.st_ino, status.st_size, status.st_mtime_ns)


def linked(path: str, depth: int) -> Iterator[Folder]:
    """Links to directories, also to such as are not there now, in ``path`` and in the directories in it, ``depth`` in all.

    Whoever is told of everything below ``path`` is not told of what changes behind these.
    """
    for entry in _entries(path, unheeded):
        if _is(os.DirEntry.is_symlink, entry, unheeded) and not _is(os.DirEntry.is_file, entry, unheeded):
            yield Folder(entry.path, deep=depth > 1)
        if depth > 1 and _is(os.DirEntry.is_dir, entry, unheeded):
            yield from linked(entry.path, depth - 1)


def _entries(directory: str, unread: Callable[[str], None]) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(directory) as entries:
            return list(entries)
    except OSError as error:
        if not is_gone(error):
            unread(directory)
        return []


def _is(kind: Callable[[os.DirEntry[str]], bool], entry: os.DirEntry[str], unread: Callable[[str], None]) -> bool:
    try:
        return kind(entry)
    except OSError as error:  # a link in a circle: it must not hide the others
        if not is_gone(error):
            unread(entry.path)
        return False
