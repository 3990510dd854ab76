"""When a session was last moved by somebody other than the bridge, by its own records. Runs in the reader process.

Owns how far back is looked. Which records count, and whose turn they belong to, is the agent's to say (its `transcript`).
The time of the file tells neither: Claude Code sets it whenever a session is opened (2.1.197, 2.1.332), and a turn of ours
moves it as well.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any, TypeVar

from shims import tail

T = TypeVar("T")

_SPANS = (tail.TAIL, 32 << 20)
"""Bytes of the end that are looked at, the second only where the first tells nothing."""


def search_back(path: str, look: Callable[[Iterable[bytes]], T]) -> T:
    """What ``look`` finds in the end of the file ``path``, further back only where it finds nothing. Raises OSError."""
    size = os.path.getsize(path)
    for span in _SPANS:
        found = look(tail.last_lines(path, span))
        if found or span >= size:
            break
    return found


def moment(entry: dict[str, Any]) -> float:
    """When a record was written, wall-clock seconds; 0 when it does not say."""
    stamp = entry.get("timestamp")
    if not isinstance(stamp, str):
        return 0.0
    try:
        return datetime.fromisoformat(stamp.replace("Z", "+00:00")).timestamp()
    except (ValueError, OverflowError):
        return 0.0
