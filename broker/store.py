"""The database: deliveries, the calls that caused them, attempts, conversations, message bodies, pins, watches.

Owns the schema and every SQL statement that changes it; one writer thread, group commit. A change is durable (WAL,
``synchronous=FULL``) before the future of its `write` resolves, so nothing is visible outside that a crash could take back.
Every transaction checks the broker's generation: a broker that was replaced is fenced off here (crash table, row 13). Bodies
are kept until the agent has them, then overwritten (``secure_delete``) and taken out of the log by a truncating checkpoint
(DE-23).
"""

from __future__ import annotations

import asyncio
import json
import os
import queue
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields, replace
from typing import Any, TypeVar

from broker.clock import boot_id
from broker.deliveries import Attempt, Delivery, Evidence, Kind, State
from broker.errors import Fenced
from broker.failpoints import fail_point
from broker.watches import LateWatch

T = TypeVar("T")
Change = Callable[["Transaction"], T]

_SCHEMA = """
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
INSERT OR IGNORE INTO meta VALUES ('schema', '1'), ('generation', '0');
CREATE TABLE IF NOT EXISTS conversations (
  id TEXT PRIMARY KEY, max_hops INTEGER NOT NULL, hops INTEGER NOT NULL, created REAL NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS deliveries (
  sequence INTEGER PRIMARY KEY AUTOINCREMENT,
  id TEXT NOT NULL UNIQUE,
  kind TEXT NOT NULL,
  state TEXT NOT NULL,
  agent TEXT NOT NULL,
  session TEXT NOT NULL,
  conversation TEXT NOT NULL,
  parent TEXT,
  request_key TEXT UNIQUE,
  created REAL NOT NULL,
  record TEXT NOT NULL,
  UNIQUE (parent, kind)
);
CREATE INDEX IF NOT EXISTS deliveries_to ON deliveries (agent, session);
CREATE INDEX IF NOT EXISTS deliveries_open ON deliveries (state) WHERE state IN ('queued', 'delivering', 'awaiting-peer');
CREATE INDEX IF NOT EXISTS deliveries_between ON deliveries (
  agent, session, json_extract(record, '$.sender_agent'), json_extract(record, '$.sender_session'), created
) WHERE kind = 'request';
CREATE TABLE IF NOT EXISTS calls (
  delivery TEXT PRIMARY KEY, key TEXT NOT NULL UNIQUE, fingerprint TEXT NOT NULL, cancelled REAL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS calls_cancelled ON calls (fingerprint, cancelled) WHERE cancelled IS NOT NULL;
CREATE TABLE IF NOT EXISTS bodies (delivery TEXT PRIMARY KEY, text TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS attempts (
  id TEXT PRIMARY KEY, delivery TEXT NOT NULL, open INTEGER NOT NULL, evidence TEXT NOT NULL, record TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS attempts_of ON attempts (delivery);
CREATE TABLE IF NOT EXISTS pins (
  agent TEXT NOT NULL, place BLOB NOT NULL, session TEXT NOT NULL, by_caller INTEGER NOT NULL, created REAL NOT NULL,
  PRIMARY KEY (agent, place)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS late_watches (request TEXT PRIMARY KEY, record TEXT NOT NULL) WITHOUT ROWID;
"""

_SENDER_AGENT, _SENDER_SESSION = "json_extract(record, '$.sender_agent')", "json_extract(record, '$.sender_session')"
"""As the index `deliveries_between` has them."""

Session = tuple[str, str]
"""Agent and id."""

_COLUMNS = ("sequence", "id", "kind", "state", "agent", "session", "conversation", "parent", "request_key", "created")


class Store:
    """The broker's database, opened by one broker generation.

    Args:
        path: the database file; made owner-only.
        failed: called in the event loop when the writer can't go on: fenced, or the disk refuses.
    """

    def __init__(self, path: str, failed: Callable[[BaseException], None]) -> None:
        self._path = path
        self._failed = failed
        self._loop = asyncio.get_running_loop()
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        self._reader = _connect(path)
        self.generation = 0
        self.same_boot = True
        """Whether the last broker ran in this boot: its deadlines are on a clock that starts anew with each."""
        self._jobs: queue.SimpleQueue[tuple[Change[Any], asyncio.Future[Any]] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._write_all, name="store", daemon=True)

    def begin_generation(self) -> int:
        """Takes the next generation (under the broker lock), then starts to write. Returns it."""
        self._reader.executescript(_SCHEMA)
        boot = boot_id()
        with _immediate(self._reader):
            row = self._reader.execute("SELECT value FROM meta WHERE key = 'boot'").fetchone()
            self.same_boot = row is not None and row[0] == boot
            self._reader.execute("INSERT OR REPLACE INTO meta VALUES ('boot', ?)", (boot,))
            current = int(self._reader.execute("SELECT value FROM meta WHERE key = 'generation'").fetchone()[0])
            self.generation = current + 1
            self._reader.execute("UPDATE meta SET value = ? WHERE key = 'generation'", (str(self.generation),))
        self._thread.start()
        return self.generation

    def write(self, change: Change[T]) -> asyncio.Future[T]:
        """Runs ``change`` in the writer thread; the future resolves when it is on disk.

        Changes that wait together are committed together; one that raises is rolled back alone.
        """
        future: asyncio.Future[T] = self._loop.create_future()
        self._jobs.put((change, future))
        return future

    def checkpoint(self) -> asyncio.Future[None]:
        """Empties the write-ahead log, so that removed bodies are gone from the disk when the future resolves."""
        return self.write(_checkpoint)

    def close(self) -> None:
        """Finishes what is queued and closes the file."""
        if self._thread.is_alive():
            self._jobs.put(None)
            self._thread.join()
        self._reader.close()

    # reading: small indexed queries in the caller's thread

    def delivery(self, identifier: str) -> Delivery | None:
        row = self._reader.execute(f"{_SELECT} WHERE id = ?", (identifier,)).fetchone()
        return _delivery(row) if row else None

    def by_request_key(self, key: str) -> Delivery | None:
        """What the call named ``key`` has caused, or stands for since it repeated a cancelled one."""
        of_call = "request_key = ?1 OR id = (SELECT delivery FROM calls WHERE key = ?1)"
        row = self._reader.execute(f"{_SELECT} WHERE {of_call}", (key,)).fetchone()
        return _delivery(row) if row else None

    def cancelled_call(self, fingerprint: str, since: float) -> str | None:
        """The delivery of the first call that says this, was cancelled after ``since``, and has not been repeated yet."""
        query = "SELECT delivery FROM calls WHERE fingerprint = ? AND cancelled > ? ORDER BY cancelled LIMIT 1"
        row = self._reader.execute(query, (fingerprint, since)).fetchone()
        return str(row[0]) if row else None

    def open_deliveries(self) -> list[Delivery]:
        states = "('queued', 'delivering', 'awaiting-peer')"
        rows = self._reader.execute(f"{_SELECT} WHERE state IN {states} ORDER BY sequence").fetchall()
        return [_delivery(row) for row in rows]

    def recent_deliveries(self, limit: int) -> list[Delivery]:
        rows = self._reader.execute(f"{_SELECT} ORDER BY sequence DESC LIMIT ?", (limit,)).fetchall()
        return [_delivery(row) for row in rows]

    def keys_to(self, agent: str, session: str, limit: int) -> list[str]:
        """The agent-side keys of the newest messages to ``session``."""
        query = "SELECT json_extract(record, '$.key') FROM deliveries WHERE agent = ? AND session = ?"
        rows = self._reader.execute(f"{query} ORDER BY sequence DESC LIMIT ?", (agent, session, limit))
        return [str(row[0]) for row in rows]

    def request_named(self, agent: str, session: str, token: str) -> str | None:
        """The delivery of the request to ``session`` that has this id."""
        query = "SELECT id FROM deliveries WHERE agent = ? AND session = ? AND json_extract(record, '$.token') = ?"
        row = self._reader.execute(query, (agent, session, token)).fetchone()
        return str(row[0]) if row else None

    def late_watches(self) -> list[LateWatch]:
        rows = self._reader.execute("SELECT record FROM late_watches").fetchall()
        known = {f.name for f in fields(LateWatch)}
        records = (json.loads(row[0]) for row in rows)
        return [LateWatch(**{name: value for name, value in record.items() if name in known}) for record in records]

    def body(self, delivery: str) -> str | None:
        row = self._reader.execute("SELECT text FROM bodies WHERE delivery = ?", (delivery,)).fetchone()
        return str(row[0]) if row else None

    def open_attempts(self) -> list[Attempt]:
        return [_attempt(row) for row in self._reader.execute("SELECT record FROM attempts WHERE open = 1")]

    def attempts_of(self, delivery: str) -> list[Attempt]:
        rows = self._reader.execute("SELECT record FROM attempts WHERE delivery = ?", (delivery,)).fetchall()
        return sorted((_attempt(row) for row in rows), key=lambda attempt: attempt.created)

    def conversation(self, identifier: str) -> tuple[int, int] | None:
        """(hops spent, hops allowed), None when unknown."""
        row = self._reader.execute("SELECT hops, max_hops FROM conversations WHERE id = ?", (identifier,)).fetchone()
        return (row[0], row[1]) if row else None

    def pins(self) -> list[tuple[str, str, str, bool, float]]:
        """(agent, directory, session, set by a caller, when) of every pin."""
        rows = self._reader.execute("SELECT agent, place, session, by_caller, created FROM pins")
        return [(agent, os.fsdecode(place), session, bool(by), created) for agent, place, session, by, created in rows]

    # the writer thread

    def _write_all(self) -> None:
        connection = _connect(self._path)
        try:
            while (job := self._jobs.get()) is not None:
                batch = [job]
                while not self._jobs.empty():
                    following = self._jobs.get_nowait()
                    if following is None:
                        self._jobs.put(None)
                        break
                    batch.append(following)
                self._commit(connection, batch)
        except BaseException as error:
            self._loop.call_soon_threadsafe(self._failed, error)
        finally:
            connection.close()

    def _commit(self, connection: sqlite3.Connection, batch: list[tuple[Change[Any], asyncio.Future[Any]]]) -> None:
        transaction = Transaction(connection)
        results: list[tuple[asyncio.Future[Any], Any, BaseException | None]] = []
        try:
            with _immediate(connection):
                self._check_generation(connection)
                for change, future in batch:
                    connection.execute("SAVEPOINT one")
                    try:
                        results.append((future, change(transaction), None))
                    except Exception as error:  # the caller gets it; the others of the batch stand
                        connection.execute("ROLLBACK TO one")
                        results.append((future, None, error))
                    connection.execute("RELEASE one")
                fail_point("broker.commit.before")
        except BaseException as error:
            for _, future in batch:
                self._resolve(future, None, error)
            raise
        fail_point("broker.commit.after")
        checkpoints = [future for change, future in batch if change is _checkpoint]
        for future, value, failure in results:
            if future not in checkpoints:
                self._resolve(future, value, failure)
        if checkpoints:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            for future in checkpoints:
                self._resolve(future, None, None)

    def _check_generation(self, connection: sqlite3.Connection) -> None:
        row = connection.execute("SELECT value FROM meta WHERE key = 'generation'").fetchone()
        if int(row[0]) != self.generation:
            raise Fenced(f"generation {row[0]} has taken over from {self.generation}")

    def _resolve(self, future: asyncio.Future[Any], value: Any, error: BaseException | None) -> None:
        def resolve() -> None:
            if future.cancelled():
                return
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(value)

        self._loop.call_soon_threadsafe(resolve)


class Transaction:
    """What a change may do, inside the writer thread's transaction."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def add_delivery(self, delivery: Delivery, body: str) -> Delivery:
        """Inserts; the result carries its place in the order. Raises sqlite3.IntegrityError on a repeated key."""
        cursor = self._connection.execute(
            "INSERT INTO deliveries (id, kind, state, agent, session, conversation, parent, request_key, created, record)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                delivery.id, delivery.kind.value, delivery.state.value, delivery.agent, delivery.session,
                delivery.conversation, delivery.parent or None, delivery.request_key or None, delivery.created,
                _record(delivery),
            ),
        )  # fmt: skip
        self._connection.execute("INSERT INTO bodies VALUES (?, ?)", (delivery.id, _whole(body)))
        return replace(delivery, sequence=cursor.lastrowid or 0)

    def add_call(self, delivery: str, key: str, fingerprint: str) -> None:
        """Notes which call a delivery is owed to, for its repetition (MC-09)."""
        self._connection.execute("INSERT INTO calls VALUES (?, ?, ?, NULL)", (delivery, key, fingerprint))

    def cancel_call(self, key: str, now: float) -> None:
        """The first cancellation counts; of a call that caused nothing there is nothing to note."""
        self._connection.execute("UPDATE calls SET cancelled = ? WHERE key = ? AND cancelled IS NULL", (now, key))

    def repeat_call(self, delivery: str, key: str) -> bool:
        """The call named ``key`` takes the place of a cancelled one; False: another repetition was faster."""
        change = "UPDATE calls SET key = ?, cancelled = NULL WHERE delivery = ? AND cancelled IS NOT NULL"
        return self._connection.execute(change, (key, delivery)).rowcount == 1

    def update_delivery(self, delivery: Delivery, expected: State) -> None:
        """Overwrites the row, which must still be in ``expected``. Raises LookupError when it is not."""
        cursor = self._connection.execute(
            "UPDATE deliveries SET state = ?, session = ?, record = ? WHERE id = ? AND state = ?",
            (delivery.state.value, delivery.session, _record(delivery), delivery.id, expected.value),
        )
        if cursor.rowcount != 1:
            raise LookupError(f"{delivery.id} is not {expected.value} any more")

    def amend_delivery(self, identifier: str, change: Callable[[Delivery], Delivery]) -> Delivery:
        """Changes a row as it is at this moment, its state excepted. Raises LookupError when it is not there any more."""
        row = self._connection.execute(f"{_SELECT} WHERE id = ?", (identifier,)).fetchone()
        if row is None:
            raise LookupError(f"{identifier} is forgotten")
        now = _delivery(row)
        changed = change(now)
        self.update_delivery(changed, now.state)
        return changed

    def add_watch(self, watch: LateWatch) -> None:
        self._connection.execute("INSERT INTO late_watches VALUES (?, ?)", (watch.request, _record(watch)))

    def update_watch(self, watch: LateWatch) -> None:
        """One that is over stays so."""
        self._connection.execute("UPDATE late_watches SET record = ? WHERE request = ?", (_record(watch), watch.request))

    def remove_watch(self, request: str) -> bool:
        """False: somebody else has."""
        return self._connection.execute("DELETE FROM late_watches WHERE request = ?", (request,)).rowcount == 1

    def remove_body(self, delivery: str) -> None:
        self._connection.execute("DELETE FROM bodies WHERE delivery = ?", (delivery,))

    def save_attempt(self, attempt: Attempt) -> None:
        self._connection.execute(
            "INSERT INTO attempts VALUES (?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET"
            " open = excluded.open, evidence = excluded.evidence, record = excluded.record",
            (attempt.id, attempt.delivery, int(attempt.open), attempt.evidence.value, _record(attempt)),
        )

    def spend_hop(self, conversation: str, max_hops: int, now: float) -> tuple[int, int]:
        """Spends a hop of ``conversation``, which begins with its first: (its number, how many there are).

        The limit is the one of the first request (DE-54). The caller rolls back by raising when the number is over it.
        """
        self._connection.execute("INSERT OR IGNORE INTO conversations VALUES (?, ?, 0, ?)", (conversation, max_hops, now))
        self._connection.execute("UPDATE conversations SET hops = hops + 1 WHERE id = ?", (conversation,))
        query = "SELECT hops, max_hops FROM conversations WHERE id = ?"
        hops, allowed = self._connection.execute(query, (conversation,)).fetchone()
        return int(hops), int(allowed)

    def requests_between(self, one: Session, other: Session, since: float, until: float, limit: int) -> list[float]:
        """When the newest ``limit`` requests between two sessions were made, either way, in that time; the newest first."""
        query = f"""
            SELECT created FROM deliveries INDEXED BY deliveries_between
            WHERE kind = 'request' AND agent = ? AND session = ? AND {_SENDER_AGENT} = ? AND {_SENDER_SESSION} = ?
            AND created > ? AND created < ? ORDER BY created DESC LIMIT ?
        """
        found: list[float] = []
        for target, sender in ((one, other), (other, one)):
            parameters = (*map(_whole, (*target, *sender)), since, until, limit)
            found += (row[0] for row in self._connection.execute(query, parameters))
        return sorted(found, reverse=True)[:limit]

    def set_pin(self, agent: str, place: str, session: str, by_caller: bool, now: float) -> bool:
        """False: a caller's pin stands there, and this one is none."""
        row = (agent, os.fsencode(place), session, int(by_caller), now)
        query = """
            INSERT INTO pins VALUES (?, ?, ?, ?, ?) ON CONFLICT (agent, place) DO UPDATE
            SET session = excluded.session, by_caller = excluded.by_caller, created = excluded.created
            WHERE excluded.by_caller OR NOT pins.by_caller
        """
        return self._connection.execute(query, row).rowcount == 1

    def remove_pin(self, agent: str, place: str) -> None:
        self._connection.execute("DELETE FROM pins WHERE agent = ? AND place = ?", (agent, os.fsencode(place)))

    def expire(self, before: float) -> int:
        """Forgets what was finished before ``before``, and conversations that nothing is left of; returns how many deliveries."""
        old = "state IN ('delivered', 'failed', 'uncertain', 'withdrawn') AND json_extract(record, '$.updated') < ?"
        for table in ("attempts", "bodies", "calls"):
            self._connection.execute(f"DELETE FROM {table} WHERE delivery IN (SELECT id FROM deliveries WHERE {old})", (before,))
        self._connection.execute(f"DELETE FROM late_watches WHERE request IN (SELECT id FROM deliveries WHERE {old})", (before,))
        forgotten = self._connection.execute(f"DELETE FROM deliveries WHERE {old}", (before,)).rowcount
        unused = "created < ? AND id NOT IN (SELECT conversation FROM deliveries)"
        self._connection.execute(f"DELETE FROM conversations WHERE {unused}", (before,))
        return forgotten


def _checkpoint(_: Transaction) -> None:
    """Changes nothing: the writer makes a checkpoint after the batch that holds this."""


_SELECT = "SELECT sequence, record FROM deliveries"


def _connect(path: str) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=10)
    for pragma in ("journal_mode = WAL", "synchronous = FULL", "secure_delete = ON", "foreign_keys = ON"):
        connection.execute(f"PRAGMA {pragma}")
    return connection


@contextmanager
def _immediate(connection: sqlite3.Connection) -> Iterator[None]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def _whole(text: str) -> str:
    """``text`` as a database can hold it: half a character (agents cut texts by UTF-16 units) becomes U+FFFD."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def _record(value: Delivery | Attempt | LateWatch) -> str:
    return json.dumps({f.name: getattr(value, f.name) for f in fields(value) if f.name != "sequence"})


_TUPLES = ("flags", "unwritten", "withheld", "denied")


def _delivery(row: tuple[int, str]) -> Delivery:
    record = json.loads(row[1])
    known = {f.name for f in fields(Delivery)}  # a field that a later version added is not ours to know
    record = {name: value for name, value in record.items() if name in known}
    record.update(kind=Kind(record["kind"]), state=State(record["state"]), sequence=row[0])
    record.update({name: tuple(record[name]) for name in _TUPLES if name in record})
    return Delivery(**record)


def _attempt(row: tuple[str]) -> Attempt:
    record = json.loads(row[0])
    record["evidence"] = Evidence(record["evidence"])
    return Attempt(**{f.name: record[f.name] for f in fields(Attempt) if f.name in record})
