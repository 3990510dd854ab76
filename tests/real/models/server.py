"""The HTTP side of a scripted model: sockets, threads, the record of requests, gates.

Owns one listening socket on 127.0.0.1 and every thread behind it; ``close`` ends them all, also those that wait at a gate.
Knows no vendor's API: that is the dialect (``answer`` and ``look`` of the subclasses).
"""

from __future__ import annotations

import json
import os
import select
import socket
import threading
import time
from abc import ABC, abstractmethod
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable
    from email.message import Message
    from types import TracebackType

    from typing_extensions import Self

Json = dict[str, Any]

REQUEST_TIMEOUT: Final = 30.0
"""Default bound of ``wait_for_request``: an agent starts within 2 s, a loaded machine within ten times that."""


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What came back for one tool call."""

    call: str
    text: str
    is_error: bool = False


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """One request of an agent for a model answer.

    ``texts`` and ``results`` hold only what is new since the model's last answer. ``side`` marks requests beside the
    conversation (titles, quota checks), which are answered without touching a script. ``at`` is monotonic, ``wall`` is not.
    """

    at: float
    wall: float
    texts: tuple[str, ...]
    results: tuple[ToolResult, ...]
    tools: tuple[str, ...]
    side: bool
    body: Json = field(repr=False)


class ClientGoneError(ConnectionError):
    """The agent closed the connection, or the server is closing, while an answer was due."""


class Exchange:
    """One request being answered: the stream back to the agent, and the gates on the way."""

    def __init__(self, handler: _Handler, wake: int) -> None:
        self._handler = handler
        self._wake = wake

    def send_json(self, status: int, body: Json) -> None:
        payload = json.dumps(body).encode()
        self._handler.send_response(status)
        self._handler.send_header("content-type", "application/json")
        self._handler.send_header("content-length", str(len(payload)))
        self._handler.send_header("connection", "close")
        self._handler.end_headers()
        self._handler.wfile.write(payload)

    def start_events(self) -> None:
        self._handler.send_response(200)
        self._handler.send_header("content-type", "text/event-stream")
        self._handler.send_header("connection", "close")
        self._handler.end_headers()

    def event(self, kind: str, **data: Any) -> None:
        self._send(f"event: {kind}\ndata: {json.dumps({'type': kind, **data})}\n\n")

    def data(self, data: Json | str) -> None:
        """One event without a name: an object, or a word that is none (``[DONE]``)."""
        self._send(f"data: {data if isinstance(data, str) else json.dumps(data)}\n\n")

    def _send(self, event: str) -> None:
        self._handler.wfile.write(event.encode())
        self._handler.wfile.flush()

    def pass_gate(self, gate: str) -> None:
        """Wait for ``gate``: seconds, or a FIFO that somebody opens for writing and closes again.

        Raises:
            ClientGoneError: the agent hung up, or the server closes.
        """
        try:
            seconds = float(gate)
        except ValueError:
            self._pass_fifo(gate)
            return
        self._poll(time.monotonic() + seconds, None)

    def _pass_fifo(self, path: str) -> None:
        # Non-blocking, so that no thread is stuck in open(2): a FIFO that was never written reports no POLLHUP on Linux.
        fifo = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        try:
            self._poll(None, fifo)
        finally:
            os.close(fifo)

    def _poll(self, deadline: float | None, fifo: int | None) -> None:
        client = self._handler.connection
        poll = select.poll()
        poll.register(self._wake, select.POLLIN)
        poll.register(client, select.POLLIN)
        if fifo is not None:
            poll.register(fifo, select.POLLIN)
        while True:
            left = None if deadline is None else max(0.0, deadline - time.monotonic()) * 1000
            ready = dict(poll.poll(left))
            if self._wake in ready:
                raise ClientGoneError("the model server closes")
            if client.fileno() in ready:
                if not client.recv(1, socket.MSG_PEEK):
                    raise ClientGoneError("the agent hung up")
                poll.unregister(client)
            if fifo is not None and fifo in ready:
                while ready[fifo] & select.POLLIN and os.read(fifo, 65536):
                    pass
                if ready[fifo] & select.POLLHUP:
                    return
            if deadline is not None and time.monotonic() >= deadline:
                return


class ScriptedModel(ABC):
    """A model server that answers by script; a context manager.

    ``requests`` is a snapshot, oldest first.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._requests: list[ModelRequest] = []
        self._faults: list[BaseException] = []
        self._wake, self._wake_writer = os.pipe()
        self._server = _Server(self)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), name="model", daemon=True)
        self._closed = False
        self._thread.start()

    # What a dialect says

    @abstractmethod
    def look(self, path: str, headers: Message, body: Json) -> ModelRequest | None:
        """The record of a POST, None if it asks for no model answer."""

    @abstractmethod
    def answer(self, exchange: Exchange, request: ModelRequest) -> None:
        """Answer a recorded request."""

    @abstractmethod
    def answer_other(self, exchange: Exchange, path: str) -> None:
        """Answer anything else blandly."""

    # What a test sees

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def requests(self) -> list[ModelRequest]:
        with self._changed:
            return list(self._requests)

    def wait_for_request(
        self,
        predicate: Callable[[ModelRequest], bool] = lambda request: not request.side,
        timeout: float = REQUEST_TIMEOUT,
        *,
        after: int = 0,
    ) -> ModelRequest:
        """The first request that satisfies ``predicate``, from position ``after`` on.

        Raises:
            TimeoutError: none came in time; the text lists those that did.
        """
        deadline = time.monotonic() + timeout
        at = after
        with self._changed:
            while True:
                while at < len(self._requests):
                    if predicate(self._requests[at]):
                        return self._requests[at]
                    at += 1
                left = deadline - time.monotonic()
                if left <= 0:
                    raise TimeoutError(f"no such model request within {timeout} s; seen: {self._requests}")
                self._changed.wait(left)

    def close(self) -> None:
        """End the server and every thread of it.

        Raises:
            BaseException: the first fault of a handler thread, if one had any.
        """
        if self._closed:
            return
        self._closed = True
        os.close(self._wake_writer)
        self._server.shutdown()
        self._server.end_connections()
        self._server.server_close()
        self._thread.join()
        os.close(self._wake)
        if self._faults:
            raise self._faults[0]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    # What the handler threads call

    def handle_post(self, handler: _Handler, raw: bytes) -> None:
        exchange = Exchange(handler, self._wake)
        request = self.look(handler.path, handler.headers, json.loads(raw or b"{}"))
        if request is None:
            self.answer_other(exchange, handler.path)
            return
        with self._changed:
            self._requests.append(request)
            self._changed.notify_all()
        self.answer(exchange, request)

    def handle_get(self, handler: _Handler) -> None:
        self.answer_other(Exchange(handler, self._wake), handler.path)

    def fault(self, error: BaseException) -> None:
        with self._changed:
            self._faults.append(error)


class _Server(ThreadingHTTPServer):
    daemon_threads = False
    block_on_close = True
    request_queue_size = 64

    def __init__(self, model: ScriptedModel) -> None:
        self.model = model
        self._open: set[socket.socket] = set()
        self._guard = threading.Lock()
        super().__init__(("127.0.0.1", 0), _Handler)

    def get_request(self) -> tuple[socket.socket, Any]:
        connection, address = super().get_request()
        with self._guard:
            self._open.add(connection)
        return connection, address

    def shutdown_request(self, request: socket.socket | tuple[bytes, socket.socket]) -> None:
        if isinstance(request, socket.socket):
            with self._guard:
                self._open.discard(request)
        super().shutdown_request(request)

    def end_connections(self) -> None:
        """Wake every thread that reads from an agent which keeps its connection open."""
        with self._guard:
            for connection in self._open:
                with suppress(OSError):  # the agent was faster
                    connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Faults are kept for ``close``; the default would print them where nobody fails."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        pass

    def do_HEAD(self) -> None:
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def do_GET(self) -> None:
        self._guarded(lambda: self.server.model.handle_get(self))

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers.get("content-length") or 0))
        self._guarded(lambda: self.server.model.handle_post(self, raw))

    def _guarded(self, work: Callable[[], None]) -> None:
        self.close_connection = True
        try:
            work()
        except ConnectionError:
            return
        except BaseException as error:
            self.server.model.fault(error)
            raise
