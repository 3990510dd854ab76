"""The thin session: what a per-session MCP process remembers of its client, so that brokers may come and go. No I/O.

Owns the client's handshake, the ids of its open requests, its open subscription and its latest cancellations, and nothing
else (MC-01). The handshake, `ping` and the tool list are answered here, from bytes made beforehand, whether or not a broker
is there (MC-08). To a new broker generation the handshake, the cancellations, the subscription and every unanswered request
are said again: a request keeps its id, so that the broker knows a repeated one by its key.
"""

from __future__ import annotations

import json
from collections import deque

from mcp_server import packing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

VERSION_KEY = "io.modelcontextprotocol/protocolVersion"
CALL_DEADLINE = 30.0
"""Seconds after which an unanswered request is answered with an error; the broker answers in milliseconds."""

CANCELLED_FOR = 60.0
"""Seconds after its cancellation in which a call may be repeated without sending twice (MC-09): then no broker need know."""

_CANCELLED_AT_MOST = 1000


class ThinSession:
    """One client's session.

    Args:
        answers: the handshake's answers, as `handshake.read` gives them.
    """

    def __init__(self, answers: dict[str, Any]) -> None:
        self._answers = answers
        self._handshake: list[bytes] = []
        self._handshake_id: object = None
        self._subscriptions: dict[str, bytes] = {}
        self._open: dict[str, _Request] = {}
        self._cancelled: deque[tuple[bytes, float]] = deque(maxlen=_CANCELLED_AT_MOST)
        """The lines of cancellations, and when they came."""
        self._read_only = {
            tool["name"]
            for tool in answers["tools"][max(answers["tools"])]["tools"]
            if tool.get("annotations", {}).get("readOnlyHint")
        }
        self._version = ""
        self._connected = False
        self._swallow: set[str] = set()
        self._acknowledged: set[str] = set()
        self._swallow_acknowledgement: set[str] = set()

    # from the client

    def from_client(self, line: bytes, now: float) -> tuple[list[bytes], list[bytes]]:
        """What ``line`` causes: (lines for the client, lines for the broker). Garbage causes nothing and ends nothing.

        Args:
            now: monotonic seconds.
        """
        message = _object(line)
        if not message and (identifier := _id_of_broken(line)) is not None:
            return [_fault(identifier, -32700, "Parse error")], []
        method = message.get("method")
        if not isinstance(method, str):  # an answer to a request of the server's, or nothing at all
            return [], self._forward(line) if len(line) <= packing.LONGEST_JSON else []
        if "id" not in message:
            return [], self._notification(method, message, line, now) if len(line) <= packing.LONGEST_JSON else []
        if not _names_a_request(message["id"]):
            return [], []
        tool = _tool(message) if method == "tools/call" else None
        try:
            line = packing.pack(line, message)
        except packing.TooLong as error:
            return [self._error(message["id"], tool, _TOO_LONG if error.text else _TOO_BIG, code=-32600)], []
        answer = self._beforehand(method, message, line)
        if answer is not None:
            return [answer], self._forward(line) if method == "initialize" else []
        if not _is_request(message):  # the SDK would drop it without a word
            return [_fault(message["id"], -32600, "Invalid Request")], []
        key = _key(message["id"])
        if method == "subscriptions/listen":
            self._subscriptions[key] = line
        else:
            self._open[key] = _Request(message["id"], line, now + CALL_DEADLINE, tool)
            self._open[key].passed_on = self._connected
        return [], self._forward(line)

    def _beforehand(self, method: str, message: dict[str, Any], line: bytes) -> bytes | None:
        """The answer that needs no broker, None when there is none."""
        parameters = message.get("params")
        parameters = parameters if isinstance(parameters, dict) else {}
        meta = parameters.get("_meta")
        modern = meta.get(VERSION_KEY) if isinstance(meta, dict) else None
        if modern is not None and not isinstance(modern, str):
            return None  # the SDK says what is wrong with it
        if method == "initialize" and modern is None:
            asked = parameters.get("protocolVersion")
            known = self._answers["initialize"]
            self._version = asked if isinstance(asked, str) and asked in known else max(known)
            self._handshake = [line]
            self._handshake_id = message["id"]
            self._swallow.add(_key(message["id"]))
            return _result(message["id"], known[self._version])
        if method == "ping" and modern is None:
            return _result(message["id"], {})
        if method == "server/discover" and modern in self._answers["discover"]["supportedVersions"]:
            return _result(message["id"], self._answers["discover"])
        version = modern or self._version
        if method == "tools/list" and version in self._answers["tools"]:
            return _result(message["id"], self._answers["tools"][version])
        return None

    def _notification(self, method: str, message: dict[str, Any], line: bytes, now: float) -> list[bytes]:
        if method == "notifications/initialized" and self._handshake:
            self._handshake = [*self._handshake[:1], line]
        if method == "notifications/cancelled":
            parameters = message.get("params")
            if isinstance(parameters, dict):
                key = _key(parameters.get("requestId"))
                self._open.pop(key, None)  # a cancelled request is owed no answer
                self._acknowledged.discard(key)
                if self._subscriptions.pop(key, None) is None:
                    self._cancelled.append((line, now))  # the broker that is told of it may be dead already
        return self._forward(line)

    def _forward(self, line: bytes) -> list[bytes]:
        return [line] if self._connected and line.strip() else []

    # from the broker

    def connected(self, now: float) -> list[bytes]:
        """A broker serves this session: the lines that bring it to where the last one was.

        Cancellations come before the calls that may be repetitions of what was cancelled.
        """
        self._connected = True
        if self._handshake:
            self._swallow.add(_key(self._handshake_id))
        self._swallow_acknowledgement = set(self._acknowledged)
        for request in self._open.values():
            request.passed_on = True
        cancelled = (line for line, at in self._cancelled if now - at < CANCELLED_FOR)
        requests = (request.line for request in self._open.values())
        return [*self._handshake, *cancelled, *self._subscriptions.values(), *requests]

    def disconnected(self) -> None:
        self._connected = False

    def from_broker(self, line: bytes) -> bytes | None:
        """What of the broker's line the client gets: None for what it has had already."""
        message = _object(line)
        if "method" in message:
            return self._pass_notification(message, line)
        key = _key(message.get("id"))
        if key in self._swallow:
            self._swallow.discard(key)
            return None
        if self._open.pop(key, None) is None and self._subscriptions.pop(key, None) is None:
            return None  # answered already, by us at its deadline or by an earlier broker
        self._acknowledged.discard(key)
        return line

    def _pass_notification(self, message: dict[str, Any], line: bytes) -> bytes | None:
        if message["method"] == "notifications/subscriptions/acknowledged":
            meta = (message.get("params") or {}).get("_meta") or {}
            key = _key(meta.get("io.modelcontextprotocol/subscriptionId"))
            if key in self._swallow_acknowledgement:
                self._swallow_acknowledgement.discard(key)
                return None
            self._acknowledged.add(key)
        return line

    # time

    def next_deadline(self) -> float | None:
        """When the earliest open request is overdue, in monotonic seconds."""
        return min((request.deadline for request in self._open.values()), default=None)

    def overdue(self, now: float, why: dict[str, Any]) -> list[bytes]:
        """Answers for the requests that are overdue; ``why`` is the error that a tool call reports."""
        late = [key for key, request in self._open.items() if request.deadline <= now]
        return [self._give_up(key, why) for key in late]

    def unavailable(self, why: dict[str, Any]) -> list[bytes]:
        """Answers for every open request: no broker can be had."""
        return [self._give_up(key, why) for key in tuple(self._open)]

    def _give_up(self, key: str, why: dict[str, Any]) -> bytes:
        request = self._open.pop(key)
        if request.passed_on and request.tool is not None and request.tool not in self._read_only:
            told = "a broker had the call already, and whether it took effect is not known"
            step = "Before you repeat the call, look with bridge_status whether it took effect."
            why = {**why, "error": f"{why['error']}; {told}", "next_step": f"{why['next_step']} {step}", "retry_safe": False}
        return self._error(request.identifier, request.tool, why)

    def _error(self, identifier: object, tool: str | None, why: dict[str, Any], code: int = -32603) -> bytes:
        if tool is None:
            return _fault(identifier, code, why["error"])
        text = json.dumps(why, ensure_ascii=False)
        result = {"content": [{"type": "text", "text": text}], "structuredContent": why, "isError": True}
        if not self._handshake:
            result["resultType"] = "complete"  # 2026-07-28
        return _result(identifier, result)


class _Request:
    """One that is owed an answer. ``tool``: what it calls, None if it calls none; ``passed_on``: a broker may have had it."""

    __slots__ = ("deadline", "identifier", "line", "passed_on", "tool")

    def __init__(self, identifier: object, line: bytes, deadline: float, tool: str | None) -> None:
        self.identifier = identifier
        self.line = line
        self.deadline = deadline
        self.tool = tool
        self.passed_on = False


_TOO_LONG = {
    "ok": False,
    "code": "message_too_long",
    "error": f"the message has over {packing.LONGEST_TEXT >> 20} MiB",
    "next_step": "Write the material to a file and send its path with a summary.",
    "retry_safe": True,
}

_TOO_BIG = {
    "ok": False,
    "code": "bad_argument",
    "error": f"the call has over {packing.LONGEST_JSON >> 10} KiB besides its message",
    "next_step": "Call again with what is long in the message.",
    "retry_safe": True,
}


def _object(line: bytes) -> dict[str, Any]:
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return message if isinstance(message, dict) else {}


def _names_a_request(identifier: object) -> bool:
    return isinstance(identifier, (str, int)) and not isinstance(identifier, bool)


def _is_request(message: dict[str, Any]) -> bool:
    """Whether ``message``, which has a method and an id, is a request of JSON-RPC 2.0."""
    parameters = message.get("params")
    said_right = message.get("jsonrpc") == "2.0" and (parameters is None or isinstance(parameters, dict))
    return said_right and "result" not in message and "error" not in message


def _id_of_broken(line: bytes) -> object:
    """The id of a request that is not in UTF-8, as of an agent that cuts bytes; None when it is no request at all."""
    message = _object(line.decode(errors="replace").encode())
    identifier = message.get("id") if isinstance(message.get("method"), str) else None
    return identifier if _names_a_request(identifier) else None


def _tool(message: dict[str, Any]) -> str:
    parameters = message.get("params")
    return str(parameters.get("name")) if isinstance(parameters, dict) else ""


def _key(identifier: object) -> str:
    return f"{type(identifier).__name__}:{identifier}"


def _fault(identifier: object, code: int, text: str) -> bytes:
    return _line({"jsonrpc": "2.0", "id": identifier, "error": {"code": code, "message": text}})


def _result(identifier: object, result: dict[str, Any]) -> bytes:
    return _line({"jsonrpc": "2.0", "id": identifier, "result": result})


def _line(message: dict[str, Any]) -> bytes:
    try:
        return json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:  # an id with half a surrogate pair goes back as it came: escaped
        return json.dumps(message, separators=(",", ":")).encode()
