"""Reading a JSON line that somebody else wrote: objects or nothing, never an exception. No I/O."""

from __future__ import annotations

import json
from typing import Any


def parse_object(line: bytes) -> dict[str, Any]:
    """The object on ``line``; empty when it is no JSON object (noise is forwarded, not judged)."""
    try:
        return as_object(json.loads(line))
    except (ValueError, RecursionError):
        return {}


def as_object(value: object) -> dict[str, Any]:
    """``value`` if it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def as_list(value: object) -> list[Any]:
    """``value`` if it is a list, else an empty one."""
    return value if isinstance(value, list) else []


def summary_of(tool_input: object) -> str:
    """A few words on what a tool is asked to do; shown to people in a status, never logged."""
    for field in ("command", "file_path", "path", "url", "pattern", "reason", "message", "description"):
        value = as_object(tool_input).get(field)
        if isinstance(value, str) and value.strip():
            return " ".join(value.split())[:120]
    return ""
