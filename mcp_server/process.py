"""The thin MCP process: lines between the agent's stdio and the broker, and nothing that a session would miss.

Owns this process's descriptors and threads. The main thread reads the client and answers what needs no broker; a second
one loads ZeroMQ and keeps the connection. End-of-file and signals end it at once (MC-06). Nothing but protocol is ever
written to stdout (MC-07).
"""

from __future__ import annotations

import _thread
import os
import select
import sys
import time

from mcp_server.handshake import read
from mcp_server.session import ThinSession

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal as _signal
    from typing import Any

    from mcp_server.connection import BrokerConnection
else:
    import _signal

_CHUNK = 65536


class Process:
    """One client on stdio."""

    def __init__(self, surface: str) -> None:
        self.surface = surface
        self.lock = _thread.allocate_lock()
        self.session = ThinSession(read())
        self.trouble: dict[str, Any] | None = None
        """Why no broker can be had at all; None while one may be."""
        self._connection: BrokerConnection | None = None
        self._out = _thread.allocate_lock()

    def run(self) -> None:
        _thread.start_new_thread(self._connect, ())
        poll = select.poll()
        poll.register(0, select.POLLIN)
        parts: list[bytes] = []
        while True:
            if not poll.poll(self._patience()):
                self.write(self._overdue())
                continue
            try:
                chunk = os.read(0, _CHUNK)
            except OSError:
                return
            if not chunk:
                return
            *lines, rest = chunk.split(b"\n")
            for line in lines:
                self._from_client(b"".join((*parts, line)))
                parts.clear()
            parts.append(rest)

    def write(self, lines: list[bytes]) -> None:
        """Whole lines to the client; from any thread. A client that is gone ends the process."""
        if not lines:
            return
        data = memoryview(b"".join(line + b"\n" for line in lines))
        with self._out:
            try:
                while data:
                    data = data[os.write(1, data) :]
            except OSError:
                os._exit(0)

    def give_up(self, trouble: dict[str, Any]) -> None:
        """No broker can be had: every call, open or to come, is answered with the reason."""
        with self.lock:
            self.trouble = trouble
            answers = self.session.unavailable(trouble)
        self.write(answers)

    def _from_client(self, line: bytes) -> None:
        with self.lock:
            answers, forward = self.session.from_client(line, time.monotonic())
            if self.trouble is not None:
                answers += self.session.unavailable(self.trouble)
            waiting = self.session.next_deadline() is not None
        self.write(answers)
        if self._connection is not None:
            self._connection.send(forward, wanted=waiting)

    def _patience(self) -> float | None:
        """Milliseconds until a request is overdue."""
        with self.lock:
            deadline = self.session.next_deadline()
        return None if deadline is None else max(0.0, (deadline - time.monotonic()) * 1000 + 1)

    def _overdue(self) -> list[bytes]:
        why = {
            "ok": False,
            "code": "broker_unreachable",
            "error": "the broker did not answer in time; whether the call took effect is not known",
            "next_step": "Repeat the same call later: bridge_status shows whether it took effect. See logs/broker.log.",
            "retry_safe": False,
        }
        if self._connection is not None:
            why = self._connection.trouble() or why
        with self.lock:
            return self.session.overdue(time.monotonic(), why)

    def _connect(self) -> None:
        from shims.program import site_packages

        sys.path.append(site_packages())
        try:
            from mcp_server.connection import BrokerConnection

            self._connection = BrokerConnection(self)
            self._connection.run()
        except Exception as error:  # missing or broken packages: said in every call, and on no screen
            self.give_up(
                {
                    "ok": False,
                    "code": "environment_broken",
                    "error": f"cross-agent's own environment does not load: {type(error).__name__}: {error}",
                    "next_step": "Run `cross-agent check` in a terminal; in a checkout `./bin/cross-agent demo` sets it up.",
                    "retry_safe": True,
                }
            )


def main(arguments: list[str]) -> None:
    """Runs until the client goes. ``--surface NAME`` chooses the tools; only `cross-agent` exists so far."""
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        _signal.signal(getattr(_signal, name), lambda *_: os._exit(0))
    surface = arguments[arguments.index("--surface") + 1] if "--surface" in arguments[:-1] else "cross-agent"
    process = Process(surface)
    try:
        process.run()
    finally:
        os._exit(0)
