"""The two lines of Claude Code's stream-json that count for a message of ours: the one that carries it, and the result.

Owns their form, for panels and for turns without one. Imports nothing that the reader program has not got.
"""

from __future__ import annotations

import json
from typing import Any

_TYPE = b'{"type":"'
_RESULT = b'"type":"result"'  # 2.1.332 does not begin with it


def user_line(text: str, key: str, session: str = "") -> bytes:
    """A message of ours as a line of input, with its end."""
    return json_line({
        "type": "user",
        "message": {"role": "user", "content": text},
        "parent_tool_use_id": None,
        "session_id": session,
        "uuid": key,
        "priority": "later",
        "client_composed": True,  # 2.1.332: no slash commands, no @file; 2.1.197 ignores it and has the envelope
    })  # fmt: skip


def json_line(message: dict[str, Any]) -> bytes:
    """Any message as a line of input, with its end."""
    return json.dumps(message, ensure_ascii=True, separators=(",", ":")).encode() + b"\n"


def may_be_result(line: bytes) -> bool:
    """Whether a line, or its beginning, is a result's: to be asked of one that is too long to be decoded for nothing."""
    return _RESULT in line and (line.startswith(_TYPE + b'result"') or not line.startswith(_TYPE))
