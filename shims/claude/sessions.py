"""Claude Code's session store: ``<store>/projects/<slug>/<session>.jsonl``, read only.

Owns where transcripts are; what their records mean is `transcript`. The slug of a directory is not reversible, so a
session is found by its id in whichever project it stands.

A missing transcript proves nothing. One is written from the first message on, but not with ``--no-session-persistence`` or
``CLAUDE_CODE_SKIP_PROMPT_HISTORY``, and it may have been deleted since (2.1.197, 2.1.332). Nothing else in the store tells a
session that never had a message from those.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Collection

from shims import tail
from shims.agent import Found, Latest, Record
from shims.claude import transcript
from shims.moved import search_back


def find(store: str, session: str) -> str | None:
    """The transcript of ``session``, the newest if two projects have one. Raises OSError."""
    pattern = os.path.join(glob.escape(store), "projects", "*", f"{glob.escape(session)}.jsonl")
    return max(glob.glob(pattern), key=os.path.getmtime, default=None)


def record(store: str, session: str, key: str) -> Record:
    try:
        path = find(store, session)
        if path is None:
            return Record(Found.UNKNOWN)
        return transcript.record_of(tail.lines_from_first(path, key.encode()), key)
    except OSError:
        return Record(Found.UNKNOWN)


def with_message(store: str, key: str, since: float) -> str:
    """The session whose transcript has the message with ``key``, of those that were written to after that wall-clock time."""
    for path in glob.glob(os.path.join(glob.escape(store), "projects", "*", "*.jsonl")):
        try:
            written = os.path.getmtime(path) >= since
            if written and transcript.record_of(tail.lines_from_first(path, key.encode()), key).found is not Found.ABSENT:
                return os.path.basename(path).removesuffix(".jsonl")
        except OSError:
            continue
    return ""


def answer_naming(store: str, session: str, token: str) -> Record:
    try:
        path = find(store, session)
        if path is None:
            return Record(Found.UNKNOWN)
        return transcript.answer_naming(tail.last_lines(path), token)
    except OSError:
        return Record(Found.UNKNOWN)


def latest(store: str, session: str, after: float) -> Latest:
    try:
        path = find(store, session)
        return transcript.latest(tail.last_lines(path), after) if path is not None else Latest()
    except OSError:
        return Latest()


def moved(store: str, session: str, ours: Collection[str]) -> float:
    """When somebody other than us last moved ``session``; 0 when its records do not say."""
    try:
        path = find(store, session)
        return search_back(path, lambda lines: transcript.last_of_others(lines, ours)) if path is not None else 0.0
    except OSError:
        return 0.0


def mode(store: str, session: str) -> str:
    """The permission mode of the last prompt in ``session``; empty when its records do not say."""
    try:
        path = find(store, session)
        return search_back(path, transcript.mode) if path is not None else ""
    except OSError:
        return ""
