"""Grok Build's session store: ``<store>/sessions/<directory>/<session>/``, read only.

Owns where a session's files are and what its summary adds to its updates; what those mean is `transcript`. The name of the
directory cannot always be turned back into a path, so a session is found by its id wherever it stands.
"""

from __future__ import annotations

import glob
import json
import os
from collections.abc import Collection
from typing import Any

from shims import tail
from shims.agent import Found, Latest, Record
from shims.grok import transcript
from shims.jsonline import as_object
from shims.moved import search_back

SUMMARY = "summary.json"
UPDATES = "updates.jsonl"

_TAIL = 8 << 20
"""Bytes of the end that hold the latest turns: tool output is in the same file (SE-08)."""


def find(store: str, session: str) -> str | None:
    """The directory of ``session``."""
    return next(glob.iglob(os.path.join(glob.escape(store), "sessions", "*", glob.escape(session))), None)


def record(store: str, session: str, key: str) -> Record:
    """What became of prompt ``key``.

    The summary names the prompt that was accepted last, at once. Prompts run in the order in which they are accepted. So a
    prompt that left no trace was never accepted when that last one is another and its turn has been run to its end.
    """
    folder = find(store, session)
    if folder is None:
        return Record(Found.UNKNOWN)
    updates = os.path.join(folder, UPDATES)
    try:
        lines = _from_first(updates, key)
        if lines:
            return transcript.record_of(lines, key)
        last = newest(store, session)
        if last is None:
            return Record(Found.UNKNOWN)
        if not last:
            return Record(Found.ABSENT)
        turn = transcript.turn_of(_from_first(updates, last), last)
    except (OSError, ValueError):
        return Record(Found.UNKNOWN)
    return Record(Found.ABSENT if last != key and turn.seen and turn.ended == "end_turn" else Found.UNKNOWN)


def answer_naming(store: str, session: str, token: str) -> Record:
    folder = find(store, session)
    if folder is None:
        return Record(Found.UNKNOWN)
    try:
        return transcript.answer_naming(tail.last_lines(os.path.join(folder, UPDATES), _TAIL), token)
    except OSError:
        return Record(Found.UNKNOWN)


def latest(store: str, session: str, after: float) -> Latest:
    folder = find(store, session)
    if folder is None:
        return Latest()
    try:
        return transcript.latest(tail.last_lines(os.path.join(folder, UPDATES), _TAIL), after)
    except OSError:
        return Latest()


def moved(store: str, session: str, ours: Collection[str]) -> float:
    """When somebody other than us last moved ``session``; 0 when its records do not say."""
    folder = find(store, session)
    if folder is None:
        return 0.0
    try:
        return search_back(os.path.join(folder, UPDATES), lambda lines: transcript.last_of_others(lines, ours))
    except OSError:
        return 0.0


def newest(store: str, session: str) -> str | None:
    """The id of the prompt that was accepted last: empty when there was none yet, None when that cannot be told."""
    folder = find(store, session)
    if folder is None:
        return ""
    try:
        return str(_summary(folder).get("request_id") or "")
    except (OSError, ValueError):
        return None


def _from_first(path: str, key: str) -> list[bytes]:
    """The lines from the first that names prompt ``key``; the file begins with the first prompt."""
    if not os.path.exists(path):
        return []
    return list(tail.lines_from_first(path, f'"{key}"'.encode()))


def _summary(folder: str) -> dict[str, Any]:
    with open(os.path.join(folder, SUMMARY), encoding="utf-8") as file:
        return as_object(json.load(file))
