"""Claude Code's session store: ``<store>/projects/<slug>/<session>.jsonl``, read only.

Owns where transcripts are; what their records mean is `transcript`. The slug of a directory is not reversible, so a
session is found by its id in whichever project it stands.
"""

from __future__ import annotations

import glob
import os

from shims import tail
from shims.agent import Found, Names, Record
from shims.claude import transcript
from shims.jsonline import parse_object


def find(store: str, session: str) -> str | None:
    """The transcript of ``session``, the newest if two projects have one."""
    pattern = os.path.join(glob.escape(store), "projects", "*", f"{glob.escape(session)}.jsonl")
    return max(glob.glob(pattern), key=os.path.getmtime, default=None)


def record(store: str, session: str, key: str) -> Record:
    path = find(store, session)
    if path is None:
        return Record(Found.ABSENT)
    try:
        return transcript.record_of(tail.lines_from_first(path, key.encode()), key)
    except OSError:
        return Record(Found.UNKNOWN)


def answer_naming(store: str, session: str, token: str) -> Record:
    path = find(store, session)
    if path is None:
        return Record(Found.ABSENT)
    try:
        return transcript.answer_naming(tail.last_lines(path), token)
    except OSError:
        return Record(Found.UNKNOWN)


def names(store: str, session: str) -> Names:
    """The last ``custom-title``, wherever in the file it stands, and the last generated title."""
    path = find(store, session)
    if path is None:
        return Names()
    try:
        given = tail.last_line_with(path, b'"type":"custom-title"')
        generated = tail.last_line_with(path, b'"type":"ai-title"')
    except OSError:
        return Names()
    return Names(
        str(parse_object(given or b"").get("customTitle") or ""), str(parse_object(generated or b"").get("aiTitle") or "")
    )
