"""Grok Build's store, and the editors' databases that name its sessions, as files for the index of sessions.

Owns which files there are, and reading them. What a summary or a registry says is `summary`, which processes still hold what
they registered for is `live`, the editors' databases are `tabs`. Reads only.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from urllib.parse import unquote

from broker.processes import ProcessId
from shims import blocks
from shims.grok import live, summary, tabs
from shims.shelf import ENDS, LONGEST_DECODED, Card, Folder, Hold, Listed, Told, directories, linked, listed, listed_or, unheeded

_SESSIONS = "sessions"
_SUMMARY = "summary.json"
_UPDATES = "updates.jsonl"
_REGISTRY = "active_sessions.json"
_PATH = ".cwd"
"""Where the name of a directory cannot hold its path."""

_LONGEST_PATH = 16 << 10


class GrokShelf:
    """See `shims.shelf.Shelf`. Every file is rewritten as a whole, so that none is read from where it was read last."""

    def folders(self, store: str) -> Iterable[Folder]:
        yield Folder(store)
        yield Folder(os.path.join(store, _SESSIONS), deep=True)
        yield from linked(os.path.join(store, _SESSIONS), 2)
        paths = [way for path in _databases() for way in (path, *([os.path.realpath(path)] if os.path.islink(path) else ()))]
        for folder in dict.fromkeys(map(os.path.dirname, paths)):
            yield Folder(folder)

    def files(self, store: str, unread: Callable[[str], None] = unheeded) -> Iterator[Listed]:
        yield from listed_or(unread, listed, os.path.join(store, _REGISTRY))
        for path in _databases():
            yield from listed_or(unread, tabs.listed_with_log, path)
        for directory in directories(os.path.join(store, _SESSIONS), unread):
            for session in directories(directory, unread):
                yield from listed_or(unread, listed, f"{session}/{_SUMMARY}")

    def concerns(self, store: str, path: str) -> str:
        folder, name = os.path.split(path)
        if name == _SUMMARY and os.path.dirname(os.path.dirname(folder)) == os.path.join(store, _SESSIONS):
            return path
        if path == os.path.join(store, _REGISTRY):
            return path
        return _database_of(store, path)

    def listed(self, store: str, path: str) -> Listed | None:  # noqa: ARG002
        return tabs.listed_with_log(path) if path in _databases() else listed(path)

    def read(self, store: str, file: Listed, before: Told | None) -> Told:
        del store, before
        name = os.path.basename(file.path)
        if name == _SUMMARY:
            card = _card(file.path)
            return Told(file.size, cards=() if card is None else (card,))
        if name == _REGISTRY:
            return Told(file.size, holds=summary.holds_of(_content(file.path, LONGEST_DECODED)))
        return Told(file.size, names=tabs.names_in(file.path))

    def holding(self, store: str, holds: Iterable[Hold]) -> Mapping[str, tuple[ProcessId, ...]]:
        found = dict(live.opened(store))
        for session, processes in live.holding(holds).items():
            found[session] = tuple(dict.fromkeys((*found.get(session, ()), *processes)))
        return found


SHELF = GrokShelf()


def _databases() -> list[str]:
    """The only look at the environment: it is the index process's own, which has it from whoever started the broker."""
    return tabs.databases(os.environ)


def _database_of(store: str, path: str) -> str:
    """The database that lies at ``path``, or whose log does: a name may reach the database hours after its log."""
    place = path.removesuffix(tabs.LOG)
    known = _databases()
    if place in known or path.startswith(os.path.join(store, "")):
        return place if place in known else ""
    return next((link for link in known if os.path.islink(link) and os.path.realpath(link) == place), "")


def _card(path: str) -> Card | None:
    folder = os.path.dirname(path)
    card = summary.card_of(_content(path, LONGEST_DECODED), os.path.basename(folder), _last_spoken(folder))
    if card is None or card.cwd:
        return card
    return card._replace(cwd=_path_of(os.path.dirname(folder)))


def _last_spoken(folder: str) -> float:
    """When somebody or the agent last spoke; 0 where the end of the updates does not tell."""
    try:
        with _opened(os.path.join(folder, _UPDATES)) as (descriptor, size):
            for span in (ENDS, LONGEST_DECODED):
                when = summary.last_spoken(blocks.tail_lines(descriptor, size, span))
                if when or span >= size:
                    return when
    except OSError:
        pass  # nobody has spoken yet, or it is not for us to read
    return 0.0


def _path_of(directory: str) -> str:
    """The path that the name of a directory stands for; the summaries of 1.0.5 and 1.0.41 have it themselves."""
    try:
        return _content(os.path.join(directory, _PATH), _LONGEST_PATH).decode("utf-8", "surrogateescape").strip("\n")
    except OSError:
        path = unquote(os.path.basename(directory), errors="surrogateescape")
        return path if os.path.isabs(path) else ""


def _content(path: str, longest: int) -> bytes:
    """The whole file; empty when it is longer. Raises OSError."""
    with _opened(path) as (descriptor, size):
        return os.pread(descriptor, size, 0) if size <= longest else b""


@contextmanager
def _opened(path: str) -> Iterator[tuple[int, int]]:
    """A file and its size. Raises OSError, also for what is no file: a FIFO would be waited for."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "no file", path)
        yield descriptor, status.st_size
    finally:
        os.close(descriptor)
