"""A stand-in for an editor: starts a shim as editors do, writes and reads its stdio, and waits for its end.

Owns one process and the editor's ends of its stdio. Every wait is bounded and on an event; whatever a test does, `close`
leaves no process behind. Knows no protocol.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import tempfile
import time
import tty
from collections.abc import Mapping, Sequence
from pathlib import Path

PATIENCE = 20.0
"""Seconds that anything may take at most; what is asserted to be quick names its own bound."""

STDIO = ("sockets", "socket", "pipes", "pty")
"""How stdio is handed over: a socket pair each, one for both, pipes, a terminal in raw mode."""


class Silence(AssertionError):
    """What was waited for has not come."""


class Editor:
    """Starts ``command`` with its own ends of the stdio.

    Args:
        stdio: one of `STDIO`.
    """

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str], *, stdio: str = "sockets", cwd: Path | None = None
    ) -> None:
        self._errors, name = tempfile.mkstemp()
        os.unlink(name)
        agent_in, agent_out, self._to_agent, self._from_agent = _ends(stdio)
        self._seen = bytearray()
        try:
            self.process = subprocess.Popen(
                command,
                stdin=agent_in,
                stdout=agent_out,
                stderr=self._errors,
                env=dict(environment),
                cwd=cwd,
                preexec_fn=os.setpgrp,
            )
        finally:
            for fd in {agent_in, agent_out}:
                os.close(fd)
        for fd in {self._to_agent, self._from_agent}:
            os.set_blocking(fd, False)

    @property
    def pid(self) -> int:
        return self.process.pid

    # to the agent

    def write(self, data: bytes, timeout: float = PATIENCE) -> None:
        """Writes all of ``data``; reads nothing meanwhile."""
        self._transfer(data, wanted=0, timeout=timeout)

    def fill(self, limit: int, quiet: float = 0.5) -> int:
        """Writes until nobody takes more for ``quiet`` seconds, or ``limit`` bytes. Returns how many were taken."""
        taken = 0
        block = b"x" * 65535 + b"\n"
        while taken < limit and select.select([], [self._to_agent], [], quiet)[1]:
            try:
                taken += os.write(self._to_agent, block)
            except BlockingIOError:
                continue
        return taken

    def close_input(self) -> None:
        """End-of-file for the agent."""
        if self._to_agent == self._from_agent:
            with socket.socket(fileno=os.dup(self._to_agent)) as end:
                end.shutdown(socket.SHUT_WR)
        elif self._to_agent >= 0:
            os.close(self._to_agent)
        self._to_agent = -1

    # from the agent

    def read(self, count: int, timeout: float = PATIENCE) -> bytes:
        """Exactly ``count`` bytes."""
        self._transfer(b"", wanted=count, timeout=timeout)
        return self._take(count)

    def read_line(self, timeout: float = PATIENCE) -> bytes:
        """One line without its newline."""
        deadline = time.monotonic() + timeout
        while b"\n" not in self._seen:
            self._transfer(b"", wanted=len(self._seen) + 1, timeout=deadline - time.monotonic())
        return self._take(self._seen.index(b"\n") + 1)[:-1]

    def read_rest(self, timeout: float = PATIENCE) -> bytes:
        """Everything up to end-of-file."""
        deadline = time.monotonic() + timeout
        while self._receive(deadline):
            pass
        return self._take(len(self._seen))

    def exchange(self, data: bytes, count: int | None = None, timeout: float = PATIENCE) -> bytes:
        """Writes ``data`` and reads ``count`` bytes (as many by default), whichever way there is room."""
        count = len(data) if count is None else count
        self._transfer(data, wanted=count, timeout=timeout)
        return self._take(count)

    def nothing_comes(self, seconds: float) -> bool:
        """Whether no byte arrives for ``seconds``."""
        return not self._seen and not select.select([self._from_agent], [], [], seconds)[0]

    def close_output(self) -> None:
        """The editor's reader goes away."""
        os.close(self._from_agent)
        self._from_agent = -1

    # the process

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def send_group_signal(self, number: int) -> None:
        os.killpg(self.pid, number)

    def wait(self, timeout: float = PATIENCE) -> int:
        """The exit status as `subprocess` has it: negative for a signal."""
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise Silence(f"the process did not end within {timeout} s") from None

    def errors(self) -> bytes:
        """What was written to stderr so far."""
        return os.pread(self._errors, 1 << 20, 0)

    def close(self) -> None:
        if self.process.poll() is None:
            for number in (signal.SIGCONT, signal.SIGTERM):
                os.kill(self.pid, number)
            try:
                self.process.wait(2)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        for fd in {self._to_agent, self._from_agent, self._errors} - {-1}:
            os.close(fd)

    # private

    def _take(self, count: int) -> bytes:
        taken = bytes(self._seen[:count])
        del self._seen[:count]
        return taken

    def _transfer(self, data: bytes, *, wanted: int, timeout: float) -> None:
        """Moves bytes until all of ``data`` is written and ``wanted`` bytes are here."""
        deadline = time.monotonic() + timeout
        left = memoryview(data)
        while left or len(self._seen) < wanted:
            readers = [self._from_agent] if len(self._seen) < wanted else []
            writers = [self._to_agent] if left else []
            readable, writable, _ = select.select(readers, writers, [], max(0.0, deadline - time.monotonic()))
            if not readable and not writable:
                raise Silence(f"{len(left)} bytes unwritten, {len(self._seen)} of {wanted} read after {timeout} s")
            if writable:
                left = left[self._write_some(left) :]
            if readable and not self._receive(deadline):
                raise Silence(f"end-of-file after {len(self._seen)} of {wanted} bytes")

    def _write_some(self, data: memoryview) -> int:
        try:
            return os.write(self._to_agent, data[: 1 << 20])
        except BlockingIOError:
            return 0

    def _receive(self, deadline: float) -> bool:
        """Takes in what is there, waiting for it. False: end-of-file."""
        if not select.select([self._from_agent], [], [], max(0.0, deadline - time.monotonic()))[0]:
            raise Silence("nothing more came, not even end-of-file")
        try:
            chunk = os.read(self._from_agent, 1 << 20)
        except BlockingIOError:
            return True
        except OSError:
            return False  # how the end of a terminal, or of a reset socket, shows
        self._seen += chunk
        return bool(chunk)


def _ends(stdio: str) -> tuple[int, int, int, int]:
    """The agent's stdin and stdout, the editor's writing and reading end."""
    if stdio == "sockets":
        agent_in, to_agent = (end.detach() for end in socket.socketpair())
        agent_out, from_agent = (end.detach() for end in socket.socketpair())
        return agent_in, agent_out, to_agent, from_agent
    if stdio == "socket":
        agent, editor = (end.detach() for end in socket.socketpair())
        return agent, agent, editor, editor
    if stdio == "pipes":
        agent_in, to_agent = os.pipe()
        from_agent, agent_out = os.pipe()
        return agent_in, agent_out, to_agent, from_agent
    master, slave = os.openpty()
    tty.setraw(slave)
    return slave, slave, master, os.dup(master)
