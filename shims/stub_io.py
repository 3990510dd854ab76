"""What the stub agents read and write: whole lines, a command's output, the gates of slow steps, stdout and stderr.

Owns no descriptor that it did not open itself, and leaves every inherited one as blocking as it is.
"""

from __future__ import annotations

import errno
import os
import select
import signal
import sys

from shims.stub_loop import Wait

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Final

    from shims.stub_loop import Child, Loop

READ_SIZE: Final = 1 << 16  # what a pipe holds


class Output:
    """Collects what a command prints."""

    __slots__ = ("_data", "_descriptor", "_loop")

    def __init__(self, loop: Loop, child: Child) -> None:
        self._loop = loop
        self._descriptor = child.output
        self._data = bytearray()
        os.set_blocking(child.output, False)
        loop.watch(child.output, self._read)

    def finish(self) -> str:
        """The output so far: a grandchild that keeps the pipe open is not waited for."""
        self._read()
        self._loop.unwatch(self._descriptor)
        os.close(self._descriptor)
        return self._data.decode(errors="replace")

    def _read(self) -> None:
        while True:
            try:
                data = os.read(self._descriptor, READ_SIZE)
            except BlockingIOError:
                return
            if not data:
                self._loop.unwatch(self._descriptor)
                return
            self._data += data


class Lines:
    """Whole lines from a descriptor: ``on_line`` per line, ``on_end`` with what is left at its end."""

    __slots__ = ("_buffer", "_closed", "_descriptor", "_loop", "_on_end", "_on_line", "_searched")

    def __init__(self, loop: Loop, descriptor: int, on_line: Callable[[bytes], None], on_end: Callable[[bytes], None]) -> None:
        self._loop = loop
        self._descriptor = descriptor
        self._on_line = on_line
        self._on_end = on_end
        self._buffer = bytearray()
        self._searched = 0
        self._closed = False
        loop.watch(descriptor, self._read)

    def close(self) -> None:
        """Reads no more; lines that have arrived already are dropped."""
        self._closed = True
        self._loop.unwatch(self._descriptor)

    def _read(self) -> None:
        try:
            data = os.read(self._descriptor, READ_SIZE)
        except OSError as error:
            if error.errno not in (errno.EIO, errno.ECONNRESET):
                raise
            data = b""
        if not data:
            self.close()
            self._on_end(bytes(self._buffer))
            return
        self._buffer += data
        while not self._closed:
            end = self._buffer.find(b"\n", self._searched)
            if end < 0:
                self._searched = len(self._buffer)
                return
            line = bytes(self._buffer[:end])
            del self._buffer[: end + 1]
            self._searched = 0
            self._on_line(line)


class Gate:
    """What a slow step waits for: a number of seconds, or a FIFO that somebody opens for writing and closes."""

    __slots__ = ("_descriptor", "_loop", "opened")

    def __init__(self, loop: Loop, spec: str) -> None:
        self._loop = loop
        self._descriptor = -1
        self.opened = Wait(loop)
        try:
            seconds = float(spec)
        except ValueError:
            # Without O_NONBLOCK this would block until a writer comes; with it, poll tells when the writer has left.
            self._descriptor = os.open(spec, os.O_RDONLY | os.O_NONBLOCK)
            loop.watch(self._descriptor, self._read)
        else:
            loop.after(seconds, self.opened.settle)

    def close(self) -> None:
        """Gives the gate up."""
        if self._descriptor >= 0:
            self._loop.unwatch(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = -1

    def _read(self) -> None:
        try:
            data = os.read(self._descriptor, READ_SIZE)
        except BlockingIOError:
            return
        if not data:
            self.close()
            self.opened.settle()


async def run_shell(loop: Loop, command: str, *, env: Mapping[str, str], cwd: str, interrupted: Wait) -> tuple[str, int]:
    """Runs a shell command in a process group of its own; returns what it printed and its exit code.

    ``interrupted`` kills the group.
    """
    child = loop.spawn(["/bin/sh", "-c", command], env=env, cwd=cwd, talk=False, own_group=True)
    output = Output(loop, child)
    await loop.first(child.exited, interrupted)
    if not child.exited.done:
        child.signal(signal.SIGKILL)
        await child.exited
    return output.finish(), child.exited.value


def write_all(descriptor: int, data: bytes) -> None:
    """Writes everything; the descriptor is somebody else's as well and stays as blocking as it is."""
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(descriptor, view) :]
        except BlockingIOError:
            ready = select.poll()
            ready.register(descriptor, select.POLLOUT)
            ready.poll()


def complain(text: str) -> None:
    """One line on stderr."""
    print(text, file=sys.stderr, flush=True)
