"""Codex's session store: rollouts, the queue of waiting messages, the index of names. Read only.

Owns where they are. Of several rollouts for one thread the newest counts. The queue's database is opened read-only and its
schema taken as measured (0.154.0, 0.171.0); one that looks otherwise decides nothing.
"""

from __future__ import annotations

import glob
import os
import sqlite3
from contextlib import closing

from shims import tail
from shims.agent import Found, Names, Record
from shims.codex import transcript
from shims.jsonline import as_object, parse_object


def find(store: str, thread: str) -> str | None:
    """The newest rollout of ``thread``."""
    pattern = os.path.join(glob.escape(store), "sessions", "*", "*", "*", f"rollout-*-{glob.escape(thread)}.jsonl")
    return max(glob.glob(pattern), default=None)  # the name begins with its time


def record(store: str, thread: str, key: str) -> Record:
    """Turns first, then the queue: an item leaves the queue when its turn begins."""
    path = find(store, thread)
    try:
        waiting = _waits(store, thread, key)
        if path is None:
            return Record(Found.WAITING if waiting else Found.ABSENT)
        needle = key.encode()
        found = transcript.record_of(tail.lines_before_first(path, needle), tail.lines_from_first(path, needle), key)
    except (OSError, sqlite3.Error):
        return Record(Found.UNKNOWN)
    return Record(Found.WAITING) if found.found is Found.ABSENT and waiting else found


def answer_naming(store: str, thread: str, token: str) -> Record:
    path = find(store, thread)
    if path is None:
        return Record(Found.ABSENT)
    try:
        return transcript.answer_naming(tail.last_lines(path), token)
    except OSError:
        return Record(Found.UNKNOWN)


def names(store: str, thread: str) -> Names:
    """The last line of the index that names ``thread``: one is appended per rename."""
    try:
        line = tail.last_line_with(os.path.join(store, "session_index.jsonl"), f'"id":"{thread}"'.encode())
    except OSError:
        return Names()
    return Names(str(parse_object(line or b"").get("thread_name") or ""))


def _waits(store: str, thread: str, key: str) -> bool:
    """Whether the message waits in the thread's queue. Raises sqlite3.Error for a schema we do not know."""
    path = os.path.join(store, "queue_1.sqlite")
    if not os.path.exists(path):
        return False
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=2)) as database:
        rows = database.execute("SELECT payload_json FROM queued_items WHERE thread_id = ?", (thread,)).fetchall()
    return any(as_object(parse_object(row[0].encode()).get("UserInput")).get("client_id") == key for row in rows)
