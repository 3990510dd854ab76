"""What every file of one store tells, and which of them have to be read. Runs in the index process.

Owns when a file is read: when its inode, size or time has changed, from where it was read last if it has only grown. Told
values stay on disk (`kept`), for most of them are never needed again: memory holds a file's path and status. What cannot be
looked at now is not gone: what was known of it stands, and `unread` says that it is to be looked at again.
"""

from __future__ import annotations

import logging
import os
import stat
import time
from collections.abc import Iterable, Iterator
from itertools import count
from typing import NamedTuple

from broker.index.feed import Change, packed_told, unpacked_told
from broker.index.kept import Kept, Row
from broker.index.pieces import Pieces
from shims.shelf import Card, Listed, Shelf, Told, is_gone

log = logging.getLogger("broker.index")

_TOGETHER = 500
"""Changes that are written together."""

_GRAIN = 20_000_000
"""Nanoseconds within which a file may be written twice without its time telling: it moves by the kernel's ticks."""

_UNSETTLED = -1
"""In the place of such a time: the next look reads the file again, whatever it finds."""


_NOBODY = Card("")


class _Known(NamedTuple):
    number: int
    inode: int
    size: int
    changed: int

    def is_of(self, file: Listed | Row) -> bool:
        return self.changed == file.changed and self.size == file.size and self.inode == file.inode


class Leaves:
    """The files of one store."""

    def __init__(self, kept: Kept, shelf: Shelf, agent: str, store: str) -> None:
        self._kept = kept
        self._shelf = shelf
        self._agent = agent
        self._store = store
        self._known: dict[str, _Known] = {}
        self._numbers = count(1)
        self._pieces = Pieces(self._numbers)
        self._places: dict[str, str] = {}
        """Where directories lead to at this look."""
        self.unread: set[str] = set()
        """Files and directories that were there and could not be looked at."""
        self.unsettled: set[str] = set()
        """Files that were being written when they were read: the event that told of them may have been the last one."""

    def load(self) -> Iterator[Change]:
        """What was told in earlier lives; consumed before anything else is asked."""
        for row in self._kept.all(self._agent, self._store):
            number = next(self._numbers)
            self._known[row.path] = _Known(number, row.inode, row.size, row.changed)
            yield from self._pieces.of(number, row.told)

    def survey(self) -> Iterator[Change]:
        """Looks at every file, and tells what has changed since it was looked at last."""
        self.unread.clear()
        gone = set(self._known)

        def all_files() -> Iterator[Listed]:
            for file in self._shelf.files(self._store, self.unread.add):
                gone.discard(file.path)
                yield file

        yield from self._read_all(all_files())
        if self.unread and gone:
            hidden = tuple(os.path.join(path, "") for path in self.unread)
            gone = {path for path in gone if path not in self.unread and not path.startswith(hidden)}
        yield from self._forget(gone)

    def touched(self, paths: Iterable[str]) -> Iterator[Change]:
        """Looks only at what these paths concern."""
        self._places.clear()
        found: list[Listed] = []
        gone: set[str] = set()
        for path in {self._shelf.concerns(self._store, path) for path in paths} - {""}:
            self.unread.discard(path)
            try:
                file = self._shelf.listed(self._store, path)
            except OSError:
                self.unread.add(path)
                continue
            if file is not None:
                found.append(file)
            elif path in self._known:
                gone.add(path)
        yield from self._read_all(found)
        yield from self._forget(gone)

    def readable_again(self) -> tuple[bool, set[str]]:
        """Whether a directory that could not be looked at can be now, or is gone; and which files."""
        kinds = {path: _readable(path) for path in self.unread}
        files = {path for path, kind in kinds.items() if kind and not stat.S_ISDIR(kind)}
        return any(stat.S_ISDIR(kind) for kind in kinds.values()), files

    def relocated(self) -> Iterator[Change]:
        """Looks where the directories of the sessions lead to now, and tells of those that lead elsewhere (SE-10)."""
        self._places.clear()
        for cwd, place in self._kept.places(self._agent, self._store):
            if self._resolved(cwd) == place:
                continue
            rows: list[Row] = []
            for row in self._kept.placed(self._agent, self._store, cwd, place):
                known = self._known.get(row.path)
                if known is None or not known.is_of(row):
                    continue  # another process has kept what this one reads by itself
                row = _row(row, self._placed(_unpacked(row.told) or Told()))
                rows.append(row)
                yield Change(known.number, row.told)
            self._kept.keep(self._agent, self._store, rows)

    def _read_all(self, files: Iterable[Listed]) -> Iterator[Change]:
        rows: list[Row] = []
        for file in files:
            known = self._known.get(file.path)
            if known is not None and known.is_of(file):
                continue
            row = self._kept.row(self._agent, self._store, file.path) if known is not None else None
            before = _before(row, file)
            changed = file.changed
            if abs(time.time_ns() - changed) <= _GRAIN:
                changed = _UNSETTLED
                self.unsettled.add(file.path)
            try:
                told, row_now = self._read(file._replace(changed=changed), before)
            except OSError:
                self.unread.add(file.path)
                continue
            number = known.number if known is not None else next(self._numbers)
            self._known[file.path] = _Known(number, file.inode, file.size, changed)
            rows.append(row_now)
            if len(rows) >= _TOGETHER:
                self._kept.keep(self._agent, self._store, rows)
                rows = []
            # Another process may have kept what this one has not told yet.
            if before is None or told != before or row is None or known is None or not known.is_of(row):
                yield from self._pieces.of(number, row_now.told)
        self._kept.keep(self._agent, self._store, rows)

    def _read(self, file: Listed, before: Told | None) -> tuple[Told, Row]:
        """What ``file`` tells, also as it is kept. Raises OSError."""
        try:
            told = self._placed(_not_later(self._shelf.read(self._store, file, before), file))
            return told, _row(file, told)
        except OSError:
            raise
        except Exception as error:
            log.error("%s, a file of %s, cannot be understood: %s", file.path, self._agent, type(error).__name__)
            return Told(), _row(file, Told())  # a defect of the shelf costs this file, not the others

    def _placed(self, told: Told) -> Told:
        return told._replace(cards=tuple([card._replace(place=self._resolved(card.cwd)) for card in told.cards]))

    def _resolved(self, directory: str) -> str:
        """Paths are compared resolved (SE-10), and the broker's loop must not wait for a disk."""
        place = self._places.get(directory)
        if place is None:
            place = self._places[directory] = _real(directory)
        return place

    def _forget(self, paths: Iterable[str]) -> Iterator[Change]:
        gone = [(path, self._known.pop(path).number) for path in paths]
        self._kept.drop(self._agent, self._store, [path for path, _ in gone])
        for _, number in gone:
            yield from self._pieces.of(number, None)


def _not_later(told: Told, file: Listed) -> Told:
    """A record of a time that is still to come was written now at most (SE-07)."""
    now = time.time()
    if all(card.moved <= now for card in told.cards):
        return told
    written = min(now, abs(file.changed) / 1e9) if file.changed != _UNSETTLED else now
    return told._replace(cards=tuple([card._replace(moved=min(card.moved, written)) for card in told.cards]))


def _row(file: Listed | Row, told: Told) -> Row:
    card = told.cards[0] if told.cards else _NOBODY
    return Row(file.path, file.inode, file.size, file.changed, packed_told(told), card.cwd, card.place)


def _before(row: Row | None, file: Listed) -> Told | None:
    """What ``file`` told when it was shorter; None when it is another file, or was cut."""
    told = _unpacked(row.told) if row is not None and row.inode == file.inode else None
    return told if told is not None and told.read <= file.size else None


def _unpacked(data: bytes) -> Told | None:
    try:
        return unpacked_told(data)
    except (TypeError, ValueError):
        return None


def _readable(path: str) -> int:
    """The kind of what can be opened at ``path`` now, which is that of a directory if nothing is there; 0: none can be."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError as error:
        return stat.S_IFDIR if is_gone(error) else 0
    try:
        return os.fstat(descriptor).st_mode
    finally:
        os.close(descriptor)


def _real(directory: str) -> str:
    try:
        return os.path.realpath(directory) if directory else ""
    except ValueError:  # a zero byte in it
        return directory
