"""The JSON lines of the Codex stub: responses, errors, notifications, and requests of its own.

Owns stdout and the ids of the server's own requests; knows no method's meaning.
"""

from __future__ import annotations

import json
import time

from shims.stub_io import complain, write_all
from shims.stub_loop import Wait

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Final

    from shims.stub_loop import Loop

INVALID_REQUEST: Final = -32600
NOT_SUPPORTED: Final = -32601
INVALID_PARAMS: Final = -32602
INTERNAL: Final = -32603


class RpcError(Exception):
    """A request is refused: code, message and data of the error frame."""

    def __init__(self, message: str, code: int = INVALID_REQUEST, data: Any = None) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.data = data


class Asked:
    """A request of the server's own that the client has not answered; ``answer`` happens with its result or error."""

    __slots__ = ("answer", "number")

    def __init__(self, loop: Loop, number: int) -> None:
        self.number = number
        self.answer = Wait(loop)


class Wire:
    """One client on stdio."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._next = 0
        self._asked: dict[int, Asked] = {}
        self.muted: frozenset[str] = frozenset()

    def respond(self, request_id: Any, result: dict[str, Any]) -> None:
        self._write({"id": request_id, "result": result})

    def refuse(self, request_id: Any, error: RpcError) -> None:
        inner: dict[str, Any] = {"code": error.code, "message": error.message}
        if error.data is not None:
            inner["data"] = error.data
        self._write({"error": inner, "id": request_id})

    def notify(self, method: str, params: dict[str, Any]) -> None:
        """A notification, unless the client opted out of it."""
        if method not in self.muted:
            self._write({"method": method, "params": params, "emittedAtMs": milliseconds()})

    def ask(self, method: str, params: dict[str, Any]) -> Asked:
        """A request to the client; ids are counted in a space of the server's own."""
        asked = Asked(self._loop, self._next)
        self._asked[self._next] = asked
        self._write({"method": method, "id": self._next, "params": params})
        self._next += 1
        return asked

    def take_answer(self, message: dict[str, Any]) -> None:
        """A response of the client."""
        number = message.get("id")
        asked = self._asked.pop(number, None) if isinstance(number, int) else None
        if asked is None:
            complain(f"WARN codex_app_server: received a response to an unknown request {number}")
            return
        asked.answer.settle(message)

    def forget(self, asked: Asked) -> None:
        """Nobody waits for the answer any more."""
        self._asked.pop(asked.number, None)

    def _write(self, message: dict[str, Any]) -> None:
        write_all(1, json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode() + b"\n")


def milliseconds() -> int:
    return int(time.time() * 1000)
