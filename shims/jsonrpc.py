"""Requests of ours in a JSON-RPC stream that belongs to an editor. No I/O.

Owns their namespace, who waits for which answer, and the rule that such an answer never reaches the editor (SH-33). What
the answers mean is the agent's tracker's.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from shims.jsonline import parse_object
from shims.lines import DROP, HOLD, PASS, may_be_object

_OURS = "xagent-"
_QUOTED = b'"xagent-'


class OurRequest(NamedTuple):
    """What a request of ours was for; ``attempt`` empty: for no message. ``message``: it is what hands the message over."""

    method: str
    attempt: str
    session: str
    message: bool = False


class OurRequests:
    """Those without an answer.

    Args:
        envelope: members that this agent puts in front of every message's ``id``.
    """

    def __init__(self, envelope: dict[str, str]) -> None:
        self._envelope = envelope
        self._id = _opening({**envelope, "id": ""})
        self._method = _opening({**envelope, "method": ""})
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
        """The message of ``attempt`` was not written: no answer to it will come."""
        self._waiting = {r: ours for r, ours in self._waiting.items() if not (ours.message and ours.attempt == attempt)}

    def outstanding(self) -> bool:
        return bool(self._waiting)

    def judge(self, start: bytes, whole: bool) -> str:
        verdict = self._judge_beginning(start)
        if verdict == PASS or not whole:
            return verdict
        if _QUOTED not in start:
            return PASS
        message = parse_object(start)
        return DROP if is_answer(message) and identity(message["id"]) in self._waiting else PASS

    def _judge_beginning(self, start: bytes) -> str:
        """What can be said before the line has ended: `PASS` for good, `DROP` if it must be said now."""
        if start.startswith(self._method) or not may_be_object(start):
            return PASS
        if not start.startswith(self._id):
            return HOLD  # an error may name its id last, and nobody has promised any order
        identifier = start[len(self._id) :].lstrip()
        if not identifier.startswith(_QUOTED):
            return HOLD if _QUOTED.startswith(identifier) else PASS
        name, quote, _ = identifier[1:].partition(b'"')
        if not quote:
            return HOLD
        return DROP if identity(name.decode(errors="replace")) in self._waiting else PASS


def _opening(message: dict[str, str]) -> bytes:
    """How an agent begins a line whose last member here is the next to be told."""
    return json.dumps(message, separators=(",", ":")).encode()[: -len('""}')]


def is_answer(message: dict[str, Any]) -> bool:
    """Whether ``message`` answers a request, whoever's."""
    return "id" in message and message.get("method") is None and ("result" in message or "error" in message)


def identity(request_id: object) -> str:
    """A JSON-RPC id as a key: 1 and "1" are different requests."""
    return f"{type(request_id).__name__}:{request_id}"


def encoded(message: dict[str, Any]) -> bytes:
    """``message`` as a whole line."""
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"
