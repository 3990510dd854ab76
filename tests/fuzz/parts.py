"""The agents in a play: their trackers, what they said before it begins, and the messages that the broker has for them.

Owns the ids that seeds and plays use. Flags of a play: ``r`` begins with the raw stream, before any handshake; the others
are named below.
"""

from __future__ import annotations

import json
from typing import Any

from broker.wire import Inject
from shims.claude.stream import ClaudeStream
from shims.codex.stream import CodexStream
from shims.grok.stream import GrokStream
from shims.stream import Stream
from tests.fuzz.dialects import CLAUDE, CODEX
from tests.fuzz.expected import Expected, GrokExpected
from tests.fuzz.play import Act, Said

TEXT = 'Some words — "quoted" \\ and\nа second line\u2028with 𝄞.\r\n> the end'


def _order(number: int, key: str, sessions: tuple[str, ...]) -> Inject:
    """Message ``number``: the tenth comes too late, the eleventh from a broker that is gone."""
    return Inject(
        delivery=f"dlv_{number}",
        attempt=f"a{number}",
        key=key,
        token=f"req_170000000000{number % 10}_abcdef",
        session=sessions[number % len(sessions)],
        text=f"{TEXT} {number}",
        generation=0 if number == 11 else 1,
        not_after=0.0 if number == 10 else 1e18,
        title="a title",
    )


def _said(side: str, *frames: dict[str, Any]) -> Said:
    return Said(side, b"".join(json.dumps(frame, separators=(",", ":")).encode() + b"\n" for frame in frames), ())


class Claude:
    """Flags: ``p`` its host pairs answers with queries, ``e`` asks for no echo, ``n`` nothing is resumed and no id known."""

    SESSIONS = ("5e551011-0000-4000-8000-000000000001", "5e551011-0000-4000-8000-000000000001", "")

    def stream(self, flags: bytes) -> Stream:
        new = b"n" in flags
        return ClaudeStream(
            session="" if new else self.SESSIONS[0],
            resumed=not new,
            cwd="/w",
            renders=b"p" not in flags,
            replays=b"e" not in flags,
            opened=1.0,
        )

    def expected(self, flags: bytes) -> Expected:
        del flags
        return Expected(CLAUDE)

    def order(self, number: int) -> Inject:
        return _order(number, f"0e1d0e1d-0000-4000-8000-{number:012}", self.SESSIONS)

    def opening(self, flags: bytes) -> list[Said | Act]:
        del flags
        return []


class Codex:
    """Flags: ``v`` version 0.147, which has no queue; ``e`` a client without experimentalApi."""

    SESSIONS = ("019a-t1", "019a-t1", "019a-t2", "")

    def stream(self, flags: bytes) -> Stream:
        del flags
        return CodexStream(cwd="/w")

    def expected(self, flags: bytes) -> Expected:
        del flags
        return Expected(CODEX)

    def order(self, number: int) -> Inject:
        return _order(number, f"dlv_{number}", self.SESSIONS)

    def opening(self, flags: bytes) -> list[Said | Act]:
        version = "0.147.0" if b"v" in flags else "0.171.0"
        capabilities = {"experimentalApi": b"e" not in flags}
        hello = {"clientInfo": {"name": "x"}, "capabilities": capabilities}
        record = {"id": self.SESSIONS[0], "parentThreadId": None, "preview": "", "ephemeral": False, "status": {"type": "idle"}}
        return [
            _said("editor", {"method": "initialize", "id": 1, "params": hello}),
            _said("agent", {"id": 1, "result": {"userAgent": f"x/{version} (Debian 12)"}}),
            _said("editor", {"method": "initialized"}, {"method": "thread/start", "id": 2, "params": {}}),
            _said("agent", {"id": 2, "result": {"thread": record, "model": "mock"}}),
        ]


class Grok:
    """Flags: ``n`` a client that is not the extension; ``e`` one that asks for the echo of messages."""

    SESSIONS = ("019b-s1", "019b-s1", "019b-s2")

    def stream(self, flags: bytes) -> Stream:
        del flags
        return GrokStream(cwd="/w")

    def expected(self, flags: bytes) -> Expected:
        del flags
        return GrokExpected()

    def order(self, number: int) -> Inject:
        return _order(number, f"dlv_{number}", self.SESSIONS)

    def opening(self, flags: bytes) -> list[Said | Act]:
        client = {"clientInfo": {"name": "zed", "version": "1"}} if b"n" in flags else {}
        capabilities = {"_meta": {"x.ai/userMessageEcho": True}} if b"e" in flags else {}
        hello = {"protocolVersion": 1, "clientCapabilities": capabilities, **client}
        new = {"cwd": "/w", "mcpServers": []}
        return [
            _rpc("editor", {"id": 0, "method": "initialize", "params": hello}),
            _rpc("agent", {"id": 0, "result": {"protocolVersion": 1}}),
            _rpc("editor", {"id": 1, "method": "session/new", "params": new}),
            _rpc("agent", {"id": 1, "result": {"sessionId": self.SESSIONS[0], "models": {"currentModelId": "grok-4.6"}}}),
        ]


def _rpc(side: str, frame: dict[str, Any]) -> Said:
    return _said(side, {"jsonrpc": "2.0", **frame})
