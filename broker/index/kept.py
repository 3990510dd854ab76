"""What leaves have told, on disk between two lives of the broker. Runs in the index process.

Owns the index's own database. It holds nothing that the files do not tell, so that no trouble with it is anybody else's: what
cannot be written is read again from the files in the next life, and a database that is broken, or of another form, is made anew.
Two processes may have it at once, while one broker follows another; each row is then the word of the one who read last.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, TypeVar

from broker.filesystems import is_network

log = logging.getLogger("broker.index")

T = TypeVar("T")

_FORM = 4
"""Counts up with every change of the schema, and of what a shelf tells."""

_SCHEMA = f"""
CREATE TABLE IF NOT EXISTS stores (number INTEGER PRIMARY KEY, agent TEXT NOT NULL, path BLOB NOT NULL, UNIQUE (agent, path));
CREATE TABLE IF NOT EXISTS leaves (
  number INTEGER PRIMARY KEY AUTOINCREMENT,
  store INTEGER NOT NULL,
  path BLOB NOT NULL,
  inode INTEGER NOT NULL,
  size INTEGER NOT NULL,
  changed INTEGER NOT NULL,
  told BLOB NOT NULL,
  sum INTEGER NOT NULL,
  cwd BLOB NOT NULL,
  place BLOB NOT NULL,
  UNIQUE (store, path)
);
CREATE INDEX IF NOT EXISTS leaves_of_a_store ON leaves (store, number);
PRAGMA user_version = {_FORM};
"""

_STORE = "(SELECT number FROM stores WHERE agent = ? AND path = ?)"

_KEEP = f"""
INSERT INTO leaves (store, path, inode, size, changed, told, sum, cwd, place) VALUES ({_STORE}, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (store, path) DO UPDATE
SET inode = excluded.inode, size = excluded.size, changed = excluded.changed, told = excluded.told, sum = excluded.sum,
  cwd = excluded.cwd, place = excluded.place
"""

_PATIENCE = 2.0
"""Seconds that a statement waits for the other process."""


class Row(NamedTuple):
    """What one file told when it had this status."""

    path: str
    inode: int
    size: int
    changed: int
    told: bytes
    cwd: str = ""
    place: str = ""
    """Of its card. Not filled in when a row is read: `Kept.places` tells."""


class Kept:
    """The database at ``path``."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._connection = _opened(path)

    def all(self, agent: str, store: str) -> Iterator[Row]:
        """Everything that was told of a store, oldest first; consumed before anything else is asked."""
        return self._rows(f"store = {_STORE}", (agent, os.fsencode(store)))

    def places(self, agent: str, store: str) -> list[tuple[str, str]]:
        """The directories of a store's cards, and what each of them was resolved to."""
        query = f"SELECT DISTINCT cwd, place FROM leaves WHERE store = {_STORE}"

        def pairs(connection: sqlite3.Connection) -> list[tuple[str, str]]:
            rows = connection.execute(query, (agent, os.fsencode(store))).fetchall()
            try:
                return [(_text(cwd), _text(place)) for cwd, place in rows]
            except UnicodeDecodeError as error:
                raise sqlite3.DatabaseError("a row is not what was written") from error

        return self._tried(pairs, [])

    def placed(self, agent: str, store: str, cwd: str, place: str) -> list[Row]:
        """Everything that was told of sessions in ``cwd`` while that was ``place``."""
        where = f"store = {_STORE} AND cwd = ? AND place = ?"
        return list(self._rows(where, (agent, os.fsencode(store), _blob(cwd), _blob(place))))

    def _rows(self, where: str, values: tuple[object, ...]) -> Iterator[Row]:
        query = f"SELECT path, inode, size, changed, told, sum FROM leaves WHERE {where} ORDER BY number"
        try:
            for found in self._connection.execute(query, values):
                yield _row(found)
        except sqlite3.DatabaseError as error:
            self._failed(error)

    def row(self, agent: str, store: str, path: str) -> Row | None:
        query = f"SELECT path, inode, size, changed, told, sum FROM leaves WHERE store = {_STORE} AND path = ?"

        def one(connection: sqlite3.Connection) -> Row | None:
            found = connection.execute(query, (agent, os.fsencode(store), os.fsencode(path))).fetchone()
            return _row(found) if found is not None else None

        return self._tried(one, None)

    def keep(self, agent: str, store: str, rows: Iterable[Row]) -> None:
        where = (agent, os.fsencode(store))
        values = [
            (
                *(*where, os.fsencode(row.path), row.inode, row.size, row.changed),
                *(row.told, zlib.crc32(row.told), _blob(row.cwd), _blob(row.place)),
            )
            for row in rows
        ]
        if values:
            self._tried(lambda connection: self._write(connection, where, _KEEP, values), None)

    def drop(self, agent: str, store: str, paths: Iterable[str]) -> None:
        where = (agent, os.fsencode(store))
        values = [(*where, os.fsencode(path)) for path in paths]
        if values:
            statement = f"DELETE FROM leaves WHERE store = {_STORE} AND path = ?"
            self._tried(lambda connection: self._write(connection, where, statement, values), None)

    def close(self) -> None:
        self._connection.close()

    def _write(
        self, connection: sqlite3.Connection, where: tuple[str, bytes], statement: str, values: Sequence[tuple[object, ...]]
    ) -> None:
        connection.execute("BEGIN IMMEDIATE")
        try:
            connection.execute("INSERT OR IGNORE INTO stores (agent, path) VALUES (?, ?)", where)
            connection.executemany(statement, values)
            connection.execute("COMMIT")
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")

    def _tried(self, work: Callable[[sqlite3.Connection], T], otherwise: T) -> T:
        try:
            return work(self._connection)
        except sqlite3.DatabaseError as error:
            self._failed(error)
            return otherwise

    def _failed(self, error: sqlite3.DatabaseError) -> None:
        """Busy, full or read-only is for a while; anything else means that what it holds is not to be believed."""
        log.warning("the index cannot be kept: %s", error)
        if not isinstance(error, sqlite3.OperationalError):
            self._connection.close()
            self._connection = _anew(self._path)


def _row(found: tuple[bytes, int, int, int, bytes, int]) -> Row:
    path, inode, size, changed, told, checksum = found
    if zlib.crc32(told) != checksum:  # SQLite has no sums of its own
        raise sqlite3.DatabaseError("a row is not what was written")
    return Row(os.fsdecode(path), inode, size, changed, told)


def _blob(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _text(blob: bytes) -> str:
    return blob.decode("utf-8", "surrogatepass")


def _opened(path: str) -> sqlite3.Connection:
    """The database at ``path``, made anew when it is none of this form; in memory when there can be none."""
    try:
        connection = _connected(path)
        form = connection.execute("PRAGMA user_version").fetchone()[0]
        if form == 0:
            connection.executescript(_SCHEMA)
        if form in (0, _FORM):
            return connection
        connection.close()
    except (sqlite3.OperationalError, OSError) as error:
        log.warning("the index cannot be kept: %s", error)
        return _in_memory()
    except sqlite3.DatabaseError:
        pass  # what it held is read again from the files
    return _anew(path)


def _anew(path: str) -> sqlite3.Connection:
    try:
        for name in (path, f"{path}-wal", f"{path}-shm", f"{path}-journal"):
            if os.path.lexists(name):
                os.unlink(name)
        connection = _connected(path)
        connection.executescript(_SCHEMA)
    except (sqlite3.DatabaseError, OSError) as error:
        log.warning("the index cannot be kept: %s", error)
        return _in_memory()
    return connection


def _in_memory() -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    connection.executescript(_SCHEMA)
    return connection


def _connected(path: str) -> sqlite3.Connection:
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    connection = sqlite3.connect(path, isolation_level=None, timeout=_PATIENCE)
    # Shared memory of two machines is none: a log of its own needs that of one.
    connection.execute(f"PRAGMA journal_mode = {'TRUNCATE' if is_network(path) else 'WAL'}")
    connection.execute("PRAGMA synchronous = OFF")  # all of it can be read again
    connection.execute("PRAGMA cache_size = -512")  # rows are read once, and one by one after that
    return connection
