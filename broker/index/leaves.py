"""What every file of one store has told so far, kept on disk between two lives of the broker. Runs in the index process.

Owns the index's own database, and when a file is read: when its inode, size or time has changed, from where it was read last
if it has only grown. The database holds nothing that the files do not tell; one that is unreadable, or of another form,
is made anew. Told values stay on disk, for most of them are never needed again: memory holds a file's path and status.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Iterator
from functools import cache
from typing import NamedTuple

from broker.index.feed import Change, packed_told, unpacked_told
from shims.shelf import Listed, Shelf, Told, listed

_FORM = 1
"""Counts up with every change of the schema, and of what a shelf tells."""

_SCHEMA = """
CREATE TABLE IF NOT EXISTS stores (number INTEGER PRIMARY KEY, agent TEXT NOT NULL, path BLOB NOT NULL, UNIQUE (agent, path));
CREATE TABLE IF NOT EXISTS leaves (
  number INTEGER PRIMARY KEY AUTOINCREMENT,
  store INTEGER NOT NULL,
  path BLOB NOT NULL,
  inode INTEGER NOT NULL,
  size INTEGER NOT NULL,
  changed INTEGER NOT NULL,
  told BLOB NOT NULL,
  UNIQUE (store, path)
);
"""

_TOGETHER = 500
"""Changes that are written together."""


def open_database(path: str) -> sqlite3.Connection:
    """The database at ``path``, made anew when it is none of this form. Raises sqlite3.Error, OSError."""
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    try:
        connection = _connect(path)
        if connection.execute("PRAGMA user_version").fetchone()[0] in (0, _FORM):
            connection.executescript(f"{_SCHEMA} PRAGMA user_version = {_FORM};")
            return connection
        connection.close()
    except sqlite3.DatabaseError:
        pass  # what it held is read again from the files
    for name in (path, f"{path}-wal", f"{path}-shm"):
        if os.path.exists(name):
            os.unlink(name)
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    connection = _connect(path)
    connection.executescript(f"{_SCHEMA} PRAGMA user_version = {_FORM};")
    return connection


def _connect(path: str) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None, timeout=10)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = OFF")  # all of it can be read again
    connection.execute("PRAGMA cache_size = -512")  # rows are read once, and one by one after that
    return connection


class _Known(NamedTuple):
    number: int
    inode: int
    size: int
    changed: int


class Leaves:
    """The files of one store."""

    def __init__(self, database: sqlite3.Connection, shelf: Shelf, agent: str, store: str) -> None:
        self._database = database
        self._shelf = shelf
        self._store = store
        key = (agent, os.fsencode(store))
        database.execute("INSERT OR IGNORE INTO stores (agent, path) VALUES (?, ?)", key)
        self._number = database.execute("SELECT number FROM stores WHERE agent = ? AND path = ?", key).fetchone()[0]
        self._known: dict[str, _Known] = {}

    def load(self) -> Iterator[Change]:
        """What was told in earlier lives; consumed before anything else is asked."""
        query = "SELECT number, path, inode, size, changed, told FROM leaves WHERE store = ?"
        for number, path, inode, size, changed, told in self._database.execute(query, (self._number,)):
            self._known[os.fsdecode(path)] = _Known(number, inode, size, changed)
            yield Change(number, told)

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
        rows: list[tuple[object, ...]] = []
        for file in files:
            known = self._known.get(file.path)
            if known is not None and known[1:] == file[1:]:
                continue
            before = self._told(known) if known is not None and known.inode == file.inode else None
            if before is not None and file.size < before.read:
                before = None
            try:
                told = self._shelf.read(self._store, file, before)
            except OSError:
                continue  # what was known of it stands
            told = told._replace(cards=tuple(card._replace(place=_resolved(card.cwd)) for card in told.cards))
            data = packed_told(told)
            number = known.number if known is not None else self._insert(file)
            self._known[file.path] = _Known(number, file.inode, file.size, file.changed)
            rows.append((file.inode, file.size, file.changed, data, number))
            if len(rows) >= _TOGETHER:
                self._write(rows)
                rows = []
            if before is None or told != before:
                yield Change(number, data)
        self._write(rows)

    def _insert(self, file: Listed) -> int:
        if not self._database.in_transaction:
            self._database.execute("BEGIN IMMEDIATE")
        cursor = self._database.execute(
            "INSERT INTO leaves (store, path, inode, size, changed, told) VALUES (?, ?, 0, 0, 0, x'')",
            (self._number, os.fsencode(file.path)),
        )
        assert cursor.lastrowid is not None
        return cursor.lastrowid

    def _write(self, rows: list[tuple[object, ...]]) -> None:
        if rows and not self._database.in_transaction:
            self._database.execute("BEGIN IMMEDIATE")
        self._database.executemany("UPDATE leaves SET inode = ?, size = ?, changed = ?, told = ? WHERE number = ?", rows)
        if self._database.in_transaction:
            self._database.execute("COMMIT")

    def _told(self, known: _Known) -> Told | None:
        row = self._database.execute("SELECT told FROM leaves WHERE number = ?", (known.number,)).fetchone()
        try:
            return unpacked_told(row[0]) if row is not None else None
        except (TypeError, ValueError):
            return None

    def _forget(self, paths: Iterable[str]) -> Iterator[Change]:
        numbers = [self._known.pop(path).number for path in paths]
        self._database.executemany("DELETE FROM leaves WHERE number = ?", [(number,) for number in numbers])
        for number in numbers:
            yield Change(number, None)


@cache
def _resolved(directory: str) -> str:
    """Paths are compared resolved (SE-10), and the broker's loop must not wait for a disk."""
    return os.path.realpath(directory) if directory else ""
