"""What the agents' own lines look like where the shims must not let them pass: a second, slower reading of the protocols.

Owns, for each protocol, which request a line of ours makes and which request a line of the agent's answers. Reads whole
lines only, by parsing every one of them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, NamedTuple

OURS = "xagent-"


class Answer(NamedTuple):
    """A line that answers the request ``request`` of ours.

    ``plain``: every reader of JSON would say so, and the words that tell are written without escapes, as agents write them.
    Of others nothing is promised.
    """

    request: str
    plain: bool


class Dialect(NamedTuple):
    """How one agent's protocol tells what the reference needs to know."""

    asks: Callable[[bytes], str]
    """The id of the request that a line of ours makes; empty when it makes none."""
    answers: Callable[[bytes], Answer | None]
    begins_as: Callable[[bytes], str]
    """The request that a line too long to be held answers, by its beginning."""


def parse(line: bytes) -> tuple[dict[str, Any], bool]:
    """The object on ``line``, and whether no name stands twice in it; empty for anything else."""
    doubled = False

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        nonlocal doubled
        made = dict(pairs)
        doubled |= len(made) < len(pairs)
        return made

    try:
        value = json.loads(line, object_pairs_hook=unique)
    except (ValueError, RecursionError):
        return {}, True
    return (value if isinstance(value, dict) else {}), not doubled


def _has_words(line: bytes, *words: str) -> bool:
    return line[:1] in (b"{", b" ", b"\t") and all(f'"{word}"'.encode() in line for word in words)


# JSON-RPC: Codex, Grok


def _asks(line: bytes) -> str:
    return str(json.loads(line).get("id", ""))


def _answers(line: bytes) -> Answer | None:
    message, unique = parse(line)
    request = message.get("id")
    outcome = next((name for name in ("result", "error") if name in message), "")
    if message.get("method") is not None or not isinstance(request, str) or not request.startswith(OURS) or not outcome:
        return None
    return Answer(request, unique and _has_words(line, request, "id", outcome))


def json_rpc(envelope: bytes) -> Dialect:
    """The dialect of an agent that puts ``envelope`` before every ``"id"``."""
    opening = re.compile(re.escape(b"{" + envelope + b'"id":') + rb'\s*"(xagent-[^"]*)"')

    def begins_as(line: bytes) -> str:
        found = opening.match(line)
        return found[1].decode(errors="replace") if found else ""

    return Dialect(_asks, _answers, begins_as)


# Claude Code


def _claude_asks(line: bytes) -> str:
    message = json.loads(line)
    return str(message["request_id"]) if message["type"] == "control_request" else ""


def _claude_answers(line: bytes) -> Answer | None:
    message, unique = parse(line)
    response = message.get("response")
    request = response.get("request_id") if isinstance(response, dict) else None
    if message.get("type") != "control_response" or not isinstance(request, str) or not request.startswith(OURS):
        return None
    return Answer(request, unique and _has_words(line, request, "request_id", "control_response", "subtype", "type"))


CLAUDE = Dialect(_claude_asks, _claude_answers, lambda _: "")
CODEX = json_rpc(b"")
GROK = json_rpc(b'"jsonrpc":"2.0",')
