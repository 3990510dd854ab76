"""The durable queue of a thread: messages that run later, each as a turn of its own.

Owns one small file per thread, rewritten whole at every change. Codex keeps the same in a SQLite database and polls it for
what another process has added; here the kernel tells (Linux), so that an idle stub never wakes up. The database is written
as well, for those who look into it from outside, and is what counts where a stub was killed between the two.
"""

from __future__ import annotations

import fcntl
import json
import os

from shims.stub_values import uuid7

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from shims.codex.stub.options import Options


class Submissions:
    """What waits for one thread, in order."""

    __slots__ = ("_database", "_part", "_path", "_thread")

    def __init__(self, options: Options, thread_id: str) -> None:
        self._path = os.path.join(folder(options), f"{thread_id}.json")
        self._part = self._path + ".tmp"
        self._database = os.path.join(options.codex_home, "queue_1.sqlite")
        self._thread = thread_id

    def waiting(self) -> list[dict[str, Any]]:
        """What the file holds now."""
        if os.path.exists(self._part):  # somebody writes, or died of it: what is outside to be seen is how it is
            return self._shown()
        try:
            with open(self._path, encoding="utf-8") as file:
                found: list[dict[str, Any]] = json.load(file)
        except FileNotFoundError:
            return []
        return found

    def add(self, client_id: str, content: list[dict[str, Any]]) -> dict[str, Any]:
        entry = _entry(uuid7(), {"content": content, "client_id": client_id})
        self._write([*self.waiting(), entry])
        return entry

    def remove(self, entry_id: str | None = None) -> dict[str, Any] | None:
        """Takes out one entry, or the first one; None if it isn't there."""
        waiting = self.waiting()
        entry = next((entry for entry in waiting if entry_id in (None, entry["id"])), None)
        if entry is not None:
            self._write([other for other in waiting if other is not entry])
        return entry

    def _write(self, entries: list[dict[str, Any]]) -> None:
        os.makedirs(os.path.dirname(self._path), mode=0o700, exist_ok=True)
        with open(self._part, "w", encoding="utf-8") as file:
            json.dump(entries, file)
        self._show(entries)
        os.replace(self._part, self._path)

    def _show(self, entries: list[dict[str, Any]]) -> None:
        """The same rows in ``queue_1.sqlite``, with the columns of 0.154.0 and 0.171.0."""
        import sqlite3  # only here: most stubs never queue anything

        database = sqlite3.connect(self._database, timeout=5, isolation_level=None)
        try:
            database.execute("PRAGMA synchronous = OFF")
            database.execute(
                "CREATE TABLE IF NOT EXISTS queued_items (id TEXT PRIMARY KEY, thread_id TEXT, payload_json TEXT,"
                " queue_order INTEGER, created_at_ms INTEGER, updated_at_ms INTEGER)"
            )
            database.execute("BEGIN IMMEDIATE")
            database.execute("DELETE FROM queued_items WHERE thread_id = ?", (self._thread,))
            for order, entry in enumerate(entries):
                payload = {"UserInput": {"content": entry["input"], "client_id": entry["clientUserMessageId"]}}
                row = (entry["id"], self._thread, json.dumps(payload), order)
                database.execute("INSERT INTO queued_items VALUES (?, ?, ?, ?, 0, 0)", row)
            database.execute("COMMIT")
        finally:
            database.close()

    def _shown(self) -> list[dict[str, Any]]:
        import sqlite3

        query = "SELECT id, payload_json FROM queued_items WHERE thread_id = ? ORDER BY queue_order"
        database = sqlite3.connect(self._database, timeout=5)
        try:
            rows = database.execute(query, (self._thread,)).fetchall()
        except sqlite3.OperationalError:
            return []  # its first writer has not come so far
        finally:
            database.close()
        return [_entry(identifier, json.loads(payload)["UserInput"]) for identifier, payload in rows]


def _entry(identifier: str, payload: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": identifier,
        "input": payload["content"],
        "clientUserMessageId": payload["client_id"],
        "responsesapiClientMetadata": None,
    }


def folder(options: Options) -> str:
    return os.path.join(options.codex_home, "queue_1.stub")


def watch(options: Options) -> bool:
    """Makes the kernel send SIGIO at every change of any thread's queue; False where it can't."""
    notify = getattr(fcntl, "F_NOTIFY", None)
    if notify is None:
        return False
    os.makedirs(folder(options), mode=0o700, exist_ok=True)
    # The descriptor stays open as long as the process: closing it would end the watch.
    descriptor = os.open(folder(options), os.O_RDONLY)
    try:
        fcntl.fcntl(descriptor, notify, fcntl.DN_RENAME | fcntl.DN_MULTISHOT)
    except OSError:
        os.close(descriptor)
        return False
    return True
