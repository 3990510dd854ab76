"""Requests of ours in a JSON-RPC stream that belongs to an editor. No I/O.

Owns their namespace, who waits for which answer, and the rule that such an answer never reaches the editor (SH-33). What
the answers mean is the agent's tracker's.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from shims.jsonline import parse_object
from shims.lines import DROP, HOLD, PASS

_OURS = "xagent-"
_ERROR = b'{"error"'


class OurRequest(NamedTuple):
    """What a request of ours was for; ``attempt`` empty: for no message."""

    method: str
    attempt: str
    session: str


class OurRequests:
    """Those without an answer.

    Args:
        envelope: members that this agent puts in front of every message's ``id``.
    """

    def __init__(self, envelope: dict[str, str]) -> None:
        self._envelope = envelope
        self._opening = json.dumps({**envelope, "id": ""}, separators=(",", ":")).encode()[: -len('"}')]
        self._ours = self._opening + _OURS.encode()
        self._waiting: dict[str, OurRequest] = {}
        self._number = 0

    def line(self, method: str, parameters: dict[str, Any], request: OurRequest) -> bytes:
        """The line of a new request, which from now on waits for its answer."""
        self._number += 1
        identifier = f"{_OURS}{self._number}"
        self._waiting[identity(identifier)] = request
        return encoded({**self._envelope, "id": identifier, "method": method, "params": parameters})

    def answered(self, identifier: object) -> OurRequest | None:
        """The request of ours that has been answered, None when it was not ours."""
        return self._waiting.pop(identity(identifier), None)

    def drop(self, attempt: str) -> None:
        """Nothing of ``attempt`` was written: no answer will come."""
        self._waiting = {request: ours for request, ours in self._waiting.items() if ours.attempt != attempt}

    def outstanding(self) -> bool:
        return bool(self._waiting)

    def judge(self, start: bytes, whole: bool) -> str:
        if start.startswith(self._ours):
            identifier, quote, _ = start[len(self._opening) :].partition(b'"')
            if quote:
                return DROP if identity(identifier.decode(errors="replace")) in self._waiting else PASS
        if not whole:
            # An error may name its id last.
            undecided = start.startswith((self._ours, _ERROR)) or self._ours.startswith(start) or _ERROR.startswith(start)
            return HOLD if undecided else PASS
        if _OURS.encode() not in start:
            return PASS
        message = parse_object(start)
        return DROP if "method" not in message and identity(message.get("id")) in self._waiting else PASS


def identity(request_id: object) -> str:
    """A JSON-RPC id as a key: 1 and "1" are different requests."""
    return f"{type(request_id).__name__}:{request_id}"


def encoded(message: dict[str, Any]) -> bytes:
    """``message`` as a whole line."""
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"
