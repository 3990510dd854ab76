"""The JSON-RPC lines of the Grok stub: responses, errors, notifications, and requests of its own.

Owns stdout and the ids of the agent's own requests, which count from 0 as the client's may; knows no method's meaning.
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

NOT_SIGNED_IN: Final = -32000
INVALID_REQUEST: Final = -32600
NO_METHOD: Final = -32601
INVALID_PARAMS: Final = -32602
INTERNAL: Final = -32603
_MESSAGES: Final = {
    NOT_SIGNED_IN: "Authentication required",
    INVALID_REQUEST: "Invalid request",
    NO_METHOD: "Method not found",
    INVALID_PARAMS: "Invalid params",
    INTERNAL: "Internal error",
}


class RpcError(Exception):
    """A request is refused: code, message and data of the error frame."""

    def __init__(self, code: int, data: Any = None, message: str = "") -> None:
        super().__init__(message or _MESSAGES[code])
        self.code = code
        self.message = message or _MESSAGES[code]
        self.data = data


class Asked:
    """A request of the agent's own; ``answer`` happens with the client's whole response."""

    __slots__ = ("answer", "number")

    def __init__(self, loop: Loop, number: int) -> None:
        self.number = number
        self.answer = Wait(loop)


class Wire:
    """One client on stdio."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self.muted = False
        self._next = 0
        self._asked: dict[int, Asked] = {}

    def respond(self, request_id: Any, result: dict[str, Any]) -> None:
        self._write({"id": request_id, "result": result})

    def refuse(self, request_id: Any, error: RpcError) -> None:
        inner: dict[str, Any] = {"code": error.code, "message": error.message}
        if error.data is not None:
            inner["data"] = error.data
        self._write({"id": request_id, "error": inner})

    def notify(self, method: str, params: dict[str, Any]) -> None:
        self._write({"method": method, "params": params})

    def ask(self, method: str, params: dict[str, Any]) -> Asked:
        """A request to the client."""
        asked = self._asked[self._next] = Asked(self._loop, self._next)
        self._next += 1
        self._write({"id": asked.number, "method": method, "params": params})
        return asked

    def take_answer(self, message: dict[str, Any]) -> None:
        """A response of the client; one that nobody waits for any more is noted."""
        number = message.get("id")
        asked = self._asked.pop(number, None) if isinstance(number, int) else None
        if asked is None:
            complain(f"ERROR received response for unknown request id: {number}")
        else:
            asked.answer.settle(message)

    def _write(self, message: dict[str, Any]) -> None:
        if self.muted:
            return
        line = json.dumps({"jsonrpc": "2.0", **message}, ensure_ascii=False, separators=(",", ":"))
        write_all(1, line.encode(errors="surrogatepass") + b"\n")


def milliseconds() -> int:
    return int(time.time() * 1000)
