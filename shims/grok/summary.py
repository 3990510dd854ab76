"""What Grok Build's summary of a session means for the index, and which line of its updates tells of a prompt. No I/O.

Measured with 1.0.41 and 1.0.5. A summary exists from the moment a session is opened, and opening one again rewrites it:
1.0.41 moves ``last_active_at``, ``updated_at`` and ``num_messages`` with that, 1.0.5 ``updated_at``. ``request_id`` names the
newest prompt, and is there as soon as one was accepted. So when a session moved is told by its updates, and by the summary
only where those do not say.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from shims.blocks import LONGEST_LINE
from shims.jsonline import as_list, as_object, parse_object
from shims.names import kept
from shims.shelf import Card, Hold

_SUB_AGENT = "subagent"
"""Of ``session_kind``. Others seen: ``headless`` (1.0.41), ``fork`` (1.0.5), none for what a person opened."""

_OF_A_TURN = (b'"promptId"', b'"prompt_id"', b'"user_message_chunk"')

_STAMP = re.compile(r"([0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2})(\.[0-9]{1,9})?(Z|[+-][0-9]{2}:[0-9]{2})")

_LATEST = 1e11
"""Seconds since the epoch; what lies beyond is no time."""

_GREATEST_PID = 1 << 31


def card_of(raw: bytes, session: str, spoken: float) -> Card | None:
    """The session of the directory ``session``, by its summary; None when it is no summary, or of another session (a copy).

    Args:
        spoken: see `last_spoken`.
    """
    summary = parse_object(raw)
    info = as_object(summary.get("info"))
    if info.get("id") != session:
        return None
    title = _text(summary.get("generated_title"))
    named = title != "" and summary.get("title_is_manual") is True
    prompted = bool(spoken or summary.get("request_id") or summary.get("next_trace_turn"))
    return Card(
        id=session,
        cwd=_text(info.get("cwd")),
        name=title if named else "",
        title="" if named else kept(title or _text(summary.get("session_summary"))),
        moved=spoken or _first_moment(summary, ("last_active_at", "updated_at", "created_at")[0 if prompted else 2 :]),
        rank=_first_moment(summary, ("updated_at", "created_at")),
        barred=_why_barred(summary, prompted),
    )


def last_spoken(lines: Sequence[bytes]) -> float:
    """When the newest of ``lines`` that belongs to a turn was written, wall-clock seconds; 0 when none does."""
    from shims.grok import transcript  # half of what a second start would load, and it reads no updates

    for line in reversed(lines):
        if len(line) <= LONGEST_LINE and any(mark in line for mark in _OF_A_TURN):
            try:
                when = transcript.last_of_others((line,), ()) or _prompt_written(line)
            except OverflowError:  # a number that no float holds
                continue
            if 0 < when < _LATEST:
                return when
    return 0.0


def holds_of(raw: bytes) -> tuple[Hold, ...]:
    """What the registry of processes says; its entries outlive a kill."""
    try:
        entries = [as_object(entry) for entry in as_list(json.loads(raw))]
    except (ValueError, RecursionError):
        return ()
    return tuple(
        Hold(entry["session_id"], entry["pid"], entry["opened_at"])
        for entry in entries
        if isinstance(entry.get("session_id"), str)
        and type(entry.get("pid")) is int
        and 0 < entry["pid"] < _GREATEST_PID
        and isinstance(entry.get("opened_at"), str)
    )


def moment(stamp: object) -> float:
    """A time as Grok writes it, with nanoseconds, as wall-clock seconds; 0 when it is none."""
    found = _STAMP.fullmatch(stamp) if isinstance(stamp, str) else None
    if found is None:
        return 0.0
    whole, fraction, zone = found.groups()
    try:
        when = datetime.fromisoformat(whole + zone.replace("Z", "+00:00")).timestamp()
    except (ValueError, OverflowError):
        return 0.0
    return when + float(fraction or 0) if 0 < when < _LATEST else 0.0


def _why_barred(summary: dict[str, Any], prompted: bool) -> str:
    if _text(summary.get("session_kind")).startswith(_SUB_AGENT):
        return "a sub-agent's session"
    return "" if prompted else "no message yet"


def _first_moment(summary: dict[str, Any], fields: Sequence[str]) -> float:
    return next((when for when in (moment(summary.get(field)) for field in fields) if when), 0.0)


def _prompt_written(line: bytes) -> float:
    """When a person's words were written: the line does not name their turn. They stand there before anything answers."""
    entry = parse_object(line)
    parameters = as_object(entry.get("params"))
    if as_object(parameters.get("update")).get("sessionUpdate") != "user_message_chunk":
        return 0.0
    exact, whole = as_object(parameters.get("_meta")).get("agentTimestampMs"), entry.get("timestamp")
    if isinstance(exact, (int, float)):
        return exact / 1000
    return float(whole) if isinstance(whole, (int, float)) else 0.0


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
