"""What every file of one store tells, and which of them have to be read. Runs in the index process.

Owns when a file is read: when its inode, size or time has changed, from where it was read last if it has only grown. Told
values stay on disk (`kept`), for most of them are never needed again: memory holds a file's path and status.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import count
from typing import NamedTuple

from broker.index.feed import Change, packed_told, unpacked_told
from broker.index.kept import Kept, Row
from shims.shelf import Listed, Shelf, Told, listed

log = logging.getLogger("broker.index")

_TOGETHER = 500
"""Changes that are written together."""

_GRAIN = 20_000_000
"""Nanoseconds within which a file may be written twice without its time telling: it moves by the kernel's ticks."""

_UNSETTLED = -1
"""In the place of such a time: the next look reads the file again, whatever it finds."""


class _Known(NamedTuple):
    number: int
    inode: int
    size: int
    changed: int

    def is_of(self, file: Listed | Row) -> bool:
        return (self.inode, self.size, self.changed) == (file.inode, file.size, file.changed)


class Leaves:
    """The files of one store."""

    def __init__(self, kept: Kept, shelf: Shelf, agent: str, store: str) -> None:
        self._kept = kept
        self._shelf = shelf
        self._agent = agent
        self._store = store
        self._known: dict[str, _Known] = {}
        self._numbers = count(1)

    def load(self) -> Iterator[Change]:
        """What was told in earlier lives; consumed before anything else is asked."""
        for row in self._kept.all(self._agent, self._store):
            number = next(self._numbers)
            self._known[row.path] = _Known(number, row.inode, row.size, row.changed)
            yield Change(number, row.told)

    def survey(self) -> Iterator[Change]:
        """Looks at every file, and tells what has changed since it was looked at last."""
        gone = set(self._known)

        def all_files() -> Iterator[Listed]:
            for file in self._shelf.files(self._store):
                gone.discard(file.path)
                yield file

        yield from self._read_all(all_files())
        yield from self._forget(gone)

    def touched(self, paths: Iterable[str]) -> Iterator[Change]:
        """Looks at these files only."""
        files = {path: listed(path) for path in paths if self._shelf.concerns(self._store, path)}
        yield from self._read_all(file for file in files.values() if file is not None)
        yield from self._forget({path for path, file in files.items() if file is None and path in self._known})

    def _read_all(self, files: Iterable[Listed]) -> Iterator[Change]:
        rows: list[Row] = []
        for file in files:
            known = self._known.get(file.path)
            if known is not None and known.is_of(file):
                continue
            row = self._kept.row(self._agent, self._store, file.path) if known is not None else None
            before = _before(row, file)
            changed = file.changed if abs(time.time_ns() - file.changed) > _GRAIN else _UNSETTLED
            try:
                told, data = self._read(file, before)
            except OSError:
                continue  # what was known of it stands
            number = known.number if known is not None else next(self._numbers)
            self._known[file.path] = _Known(number, file.inode, file.size, changed)
            rows.append(Row(file.path, file.inode, file.size, changed, data))
            if len(rows) >= _TOGETHER:
                self._kept.keep(self._agent, self._store, rows)
                rows = []
            # Another process may have kept what this one has not told yet.
            if before is None or told != before or row is None or known is None or not known.is_of(row):
                yield Change(number, data)
        self._kept.keep(self._agent, self._store, rows)

    def _read(self, file: Listed, before: Told | None) -> tuple[Told, bytes]:
        """What ``file`` tells, also packed. Raises OSError."""
        try:
            told = self._shelf.read(self._store, file, before)
            told = told._replace(cards=tuple(card._replace(place=_resolved(card.cwd)) for card in told.cards))
            return told, packed_told(told)
        except OSError:
            raise
        except Exception as error:
            log.error("%s, a file of %s, cannot be understood: %s", file.path, self._agent, type(error).__name__)
            return Told(), packed_told(Told())  # a defect of the shelf costs this file, not the others

    def _forget(self, paths: Iterable[str]) -> Iterator[Change]:
        gone = [(path, self._known.pop(path).number) for path in paths]
        self._kept.drop(self._agent, self._store, [path for path, _ in gone])
        for _, number in gone:
            yield Change(number, None)


def _before(row: Row | None, file: Listed) -> Told | None:
    """What ``file`` told when it was shorter; None when it is another file, or was cut."""
    if row is None or row.inode != file.inode:
        return None
    try:
        told = unpacked_told(row.told)
    except (TypeError, ValueError):
        return None
    return told if told.read <= file.size else None


@cache
def _resolved(directory: str) -> str:
    """Paths are compared resolved (SE-10), and the broker's loop must not wait for a disk."""
    try:
        return os.path.realpath(directory) if directory else ""
    except ValueError:  # a zero byte in it
        return directory
