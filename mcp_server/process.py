"""The thin MCP process: lines between the agent's stdio and the broker, and nothing that a session would miss.

Owns this process's descriptors and threads. The main thread reads the client and answers what needs no broker; a second
one loads ZeroMQ and keeps the connection. End-of-file and signals end it at once (MC-06). Nothing but protocol is ever
written to stdout (MC-07): what anything else prints goes to stderr.
"""

from __future__ import annotations

import _thread
import fcntl
import os
import select
import sys
import time

from mcp_server.handshake import read
from mcp_server.session import ThinSession

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal as _signal
    from typing import Any, NoReturn

    from mcp_server.connection import BrokerConnection
else:
    import _signal

_CHUNK = 65536

_PIECE = 4096
"""Bytes that a pipe with room takes without blocking (PIPE_BUF)."""

_LAST_READ = 500
"""Milliseconds in which a client that has closed our stdin must have read something of what it is still given."""

_HUNG_UP = getattr(select, "POLLRDHUP", 0)
"""Besides POLLHUP, which is told unasked: a socket whose other side writes no more."""

_USAGE = """\
Usage: cross-agent mcp [--surface NAME]

  The MCP server that agents start; speaks JSON-RPC on stdin and stdout.

Options:
  --surface NAME  Which tools to serve.  [default: cross-agent]
  -h, --help      Show this message and exit.
"""


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
        self._stdout = _claim_stdout()
        self._bell_read, self._bell_write = _bell()
        self._signal_read, signal_write = _bell()
        # The kernel may give a signal to the other thread: the wait of this one, which runs the handlers, would go on.
        _signal.set_wakeup_fd(signal_write, warn_on_full_buffer=False)

    def run(self) -> None:
        _thread.start_new_thread(self._connect, ())
        poll = select.poll()
        poll.register(0, select.POLLIN)
        poll.register(self._bell_read, select.POLLIN)
        poll.register(self._signal_read, select.POLLIN)
        parts: list[bytes] = []
        while True:
            ready = [fd for fd, _ in poll.poll(self._patience())]
            if not ready:
                self.write(self._overdue())
            if 0 not in ready:
                self._silence()
                continue
            try:
                chunk = os.read(0, _CHUNK)
            except BlockingIOError:
                continue
            except OSError:
                return
            if not chunk:
                return
            *lines, rest = chunk.split(b"\n")
            for line in lines:
                self._from_client(b"".join((*parts, line)))
                parts.clear()
            parts.append(rest)

    def answered(self) -> None:
        """Nothing is open any more: the main thread need not wake up at a deadline. From any thread."""
        try:
            os.write(self._bell_write, b"\n")
        except BlockingIOError:
            pass  # it has been told

    def _silence(self) -> None:
        try:
            os.read(self._bell_read, 4096)
        except BlockingIOError:
            pass

    def write(self, lines: list[bytes]) -> None:
        """Whole lines to the client; from any thread. A client that is gone, or has gone and reads no more, ends the process."""
        if not lines:
            return
        data = memoryview(b"".join(line + b"\n" for line in lines))
        with self._out:
            room = select.poll()
            room.register(self._stdout, select.POLLOUT)
            any_news = select.poll()
            any_news.register(self._stdout, select.POLLOUT)
            any_news.register(0, _HUNG_UP)
            any_news.register(self._signal_read, select.POLLIN)
            while data:
                if not any(fd == self._stdout for fd, _ in any_news.poll()) and not room.poll(_LAST_READ):
                    self.end()
                try:
                    data = data[os.write(self._stdout, data[:_PIECE]) :]
                except BlockingIOError:
                    continue  # somebody else writes to it as well, and has taken the room
                except OSError:
                    self.end()

    def end(self) -> NoReturn:
        """Ends the process, whatever its threads do; from any thread and from a signal."""
        if self._connection is not None:
            self._connection.vanish()
        os._exit(0)

    def give_up(self, trouble: dict[str, Any], *, for_good: bool = True) -> None:
        """No broker can be had: every open call is answered with the reason, and ``for_good`` those to come as well."""
        with self.lock:
            if for_good:
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
            "error": "no broker answered in time",
            "next_step": "See logs/broker.log in the state directory, or run `cross-agent broker start`.",
            "retry_safe": True,
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
            self.give_up(_broken(error))


def _bell() -> tuple[int, int]:
    """A pipe to be rung, which never blocks."""
    read, write = os.pipe()
    os.set_blocking(read, False)
    os.set_blocking(write, False)
    return read, write


def _claim_stdout() -> int:
    """The descriptor for protocol. What anything else prints goes to stderr from here on: case 51."""
    claimed = fcntl.fcntl(1, fcntl.F_DUPFD_CLOEXEC, 3)
    try:
        os.dup2(2, 1)
    except OSError:  # started without a stderr
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return claimed


def _broken(error: Exception) -> dict[str, Any]:
    """Why no broker can be had in this environment, in words of ours: a library's may quote anything."""
    if hasattr(error, "as_result"):  # CrossAgentError, where it could be loaded
        told: dict[str, Any] = error.as_result()
        return told
    module = getattr(error, "name", None) if isinstance(error, ImportError) else None
    what = f"the module {module} cannot be loaded" if module else f"loading its modules failed by {type(error).__name__}"
    return {
        "ok": False,
        "code": "environment_broken",
        "error": f"cross-agent's own environment is broken: {what}",
        "next_step": "Run `./bin/cross-agent broker status` in the checkout, which sets the environment up, or install it again.",
        "retry_safe": True,
    }


def main(arguments: list[str]) -> None:
    """Runs until the client goes. ``--surface NAME`` chooses the tools; only `cross-agent` exists so far."""
    surface = "cross-agent"
    rest = iter(arguments)
    for argument in rest:
        name, _, value = argument.partition("=")
        if argument in ("-h", "--help"):
            os.write(1, _USAGE.encode())
            os._exit(0)
        if name != "--surface" or not (value := value or next(rest, "")):
            os.write(2, f"cross-agent mcp: {argument} is not understood\n{_USAGE}".encode(errors="backslashreplace"))
            os._exit(2)
        surface = value
    process = Process(surface)
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        _signal.signal(getattr(_signal, name), lambda *_: process.end())
    try:
        process.run()
    finally:
        process.end()
