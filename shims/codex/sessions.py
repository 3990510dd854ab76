"""Codex's session store: rollouts, the queue of waiting messages, the index of threads, that of names. Read only.

Owns where they are. Of several rollouts for one thread the newest counts, also an archived one. Databases are opened
read-only and their schemas taken as measured (0.147.0, 0.154.0, 0.171.0); one that looks otherwise decides nothing.

A thread has a rollout from its first turn on, and soon after a row in the index. Where the rollout is missing, the thread
either never had a turn, or the file is gone, which proves nothing.
"""

from __future__ import annotations

import glob
import os
import sqlite3
from collections.abc import Collection
from contextlib import closing

from shims import tail
from shims.agent import Found, Latest, Record
from shims.codex import transcript
from shims.jsonline import as_object, parse_object
from shims.moved import search_back


def find(store: str, thread: str) -> str | None:
    """The newest rollout of ``thread``."""
    name = f"rollout-*-{glob.escape(thread)}.jsonl"
    folders = (("sessions", "*", "*", "*"), ("archived_sessions",))
    found = (path for folder in folders for path in glob.iglob(os.path.join(glob.escape(store), *folder, name)))
    return max(found, key=os.path.basename, default=None)  # the name begins with its time


def record(store: str, thread: str, key: str) -> Record:
    """The queue is read first, since an item leaves it when its turn begins; what the rollout says of it counts more."""
    try:
        waiting = _waits(store, thread, key)
        path = find(store, thread)
        if path is not None:
            needle = key.encode()
            found = transcript.record_of(tail.lines_before_first(path, needle), tail.lines_from_first(path, needle), key)
        else:
            found = Record(Found.ABSENT if waiting or _never_used(store, thread) else Found.UNKNOWN)
    except (OSError, sqlite3.Error):
        return Record(Found.UNKNOWN)
    return Record(Found.WAITING) if found.found is Found.ABSENT and waiting else found


def answer_naming(store: str, thread: str, token: str) -> Record:
    path = find(store, thread)
    if path is None:
        return Record(Found.UNKNOWN)
    try:
        return transcript.answer_naming(tail.last_lines(path), token)
    except OSError:
        return Record(Found.UNKNOWN)


def latest(store: str, thread: str, after: float) -> Latest:
    path = find(store, thread)
    try:
        return transcript.latest(tail.last_lines(path), after) if path is not None else Latest()
    except OSError:
        return Latest()


def moved(store: str, thread: str, ours: Collection[str]) -> float:
    """When somebody other than us last moved ``thread``; 0 when its records do not say."""
    try:
        path = find(store, thread)
        return search_back(path, lambda lines: transcript.last_of_others(lines, ours)) if path is not None else 0.0
    except OSError:
        return 0.0


def archived(path: str) -> bool:
    """Whether the rollout at ``path`` is one that was put away."""
    return os.path.basename(os.path.dirname(path)) == "archived_sessions"


def newest(store: str, thread: str) -> str | None:
    """The turn of ``thread`` that began last, by which `record` finds it; empty when there was none, None when nothing tells."""
    path = find(store, thread)
    try:
        if path is None:
            return "" if _never_used(store, thread) else None
        return search_back(path, transcript.newest) or ("" if os.path.getsize(path) <= tail.TAIL else None)
    except (OSError, sqlite3.Error):
        return None


def sandbox(store: str, thread: str) -> str:
    """In which sandbox the last turn of ``thread`` ran; empty when its records do not say."""
    path = find(store, thread)
    try:
        return search_back(path, transcript.sandbox) if path is not None else ""
    except OSError:
        return ""


def queued(store: str, thread: str) -> list[str]:
    """What waits in the thread's queue, as Codex wrote it. Raises sqlite3.Error for a schema we do not know."""
    path = _queue(store)
    if not os.path.exists(path):
        return []
    return [row[0] for row in _rows(path, "SELECT payload_json FROM queued_items WHERE thread_id = ?", thread)]


def _waits(store: str, thread: str, key: str) -> bool:
    """Whether the message waits in the thread's queue. Raises sqlite3.Error for a schema we do not know."""
    items = (as_object(parse_object(item.encode()).get("UserInput")) for item in queued(store, thread))
    return any(item.get("client_id") == key for item in items)


def _never_used(store: str, thread: str) -> bool:
    """Whether it is certain that the thread, which has no rollout, never had a turn. Raises sqlite3.Error.

    The index must be there and not know it. One that was deleted (``codex delete``) is in no index either, but it stays noted
    that its queue was used, which is our way in (0.154.0, 0.171.0; 0.147.0 has no queue and notes nothing).
    """
    indexes = glob.glob(os.path.join(glob.escape(store), "state_*.sqlite"))
    if not indexes or any(_rows(path, "SELECT 1 FROM threads WHERE id = ?", thread) for path in indexes):
        return False
    queue = _queue(store)
    revisions = "queued_thread_revisions"
    if not os.path.exists(queue) or not _rows(queue, "SELECT 1 FROM sqlite_master WHERE name = ?", revisions):
        return True
    return not _rows(queue, f"SELECT 1 FROM {revisions} WHERE thread_id = ?", thread)


def _queue(store: str) -> str:
    return os.path.join(store, "queue_1.sqlite")


def _rows(path: str, query: str, value: str) -> list[tuple[str]]:
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=2)) as database:
        return database.execute(query, (value,)).fetchall()
