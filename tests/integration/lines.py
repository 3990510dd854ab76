"""A client of JSON lines: starts a program, writes objects, keeps every line it says, and waits for the one that matters.

Owns one process and its stdio. Every wait is bounded and on the arrival of a line or of the end. Knows no protocol.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

Json = dict[str, Any]

PATIENCE = 20.0
"""Seconds that anything may take at most; what is asserted to be quick names its own bound."""


ENDED = "the program has ended"


class Silence(AssertionError):
    """What was waited for has not come."""


class Lines:
    """A program on JSON lines; ``messages`` holds every object that it wrote, in order."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], cwd: Path | None = None) -> None:
        self.messages: list[Json] = []
        self.garbage: list[bytes] = []
        self.ended = False
        self._arrival = threading.Condition()
        self.process = subprocess.Popen(
            command, env=dict(environment), cwd=cwd, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        self.errors = bytearray()
        self._readers = [threading.Thread(target=read, daemon=True) for read in (self._read, self._read_errors)]
        for reader in self._readers:
            reader.start()

    @property
    def pid(self) -> int:
        return self.process.pid

    def send(self, message: Json) -> None:
        self.write(json.dumps(message).encode() + b"\n")

    def write(self, data: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def end_input(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()

    def wait(self, fits: Callable[[Json], bool], what: str = "a line", *, number: int = 1, timeout: float = PATIENCE) -> Json:
        """The ``number``-th object that fits, whenever it came."""
        found: list[Json] = []

        def there() -> bool:
            found[:] = [message for message in self.messages if fits(message)]
            return len(found) >= number

        self.until(there, what, timeout=timeout)
        return found[number - 1]

    def until(self, holds: Callable[[], bool], what: str, *, timeout: float = PATIENCE) -> None:
        """Waits until ``holds``; asked again at each arrival."""
        deadline = time.monotonic() + timeout
        with self._arrival:
            while not holds():
                left = deadline - time.monotonic()
                if self.ended or left <= 0:
                    last = [json.dumps(message)[:300] for message in self.messages[-8:]]
                    why = ENDED if self.ended else f"{timeout} s"
                    raise Silence(f"no {what}: {why}\n" + "\n".join(last) + bytes(self.errors[-2000:]).decode(errors="replace"))
                self._arrival.wait(left)

    def count(self, fits: Callable[[Json], bool]) -> int:
        with self._arrival:
            return sum(1 for message in self.messages if fits(message))

    def kill(self, number: int = signal.SIGKILL) -> None:
        os.kill(self.pid, number)

    def wait_end(self, timeout: float = PATIENCE) -> int:
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise Silence(f"{self.process.args!r} did not end within {timeout} s") from None

    def close(self) -> None:
        """Leaves no process behind: end of input, then SIGTERM, then SIGKILL."""
        if self.process.poll() is None:
            os.kill(self.pid, signal.SIGCONT)
            try:
                self.end_input()
            except OSError:
                pass  # what was still buffered has no reader any more
            for number in (signal.SIGTERM, signal.SIGKILL):
                try:
                    self.process.wait(3)
                    break
                except subprocess.TimeoutExpired:
                    os.kill(self.pid, number)
            self.process.wait(3)
        for reader in self._readers:
            reader.join(3)
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            try:
                if stream is not None:
                    stream.close()
            except OSError:
                pass  # as above

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            try:
                message = json.loads(line)
            except ValueError:
                message = None
            with self._arrival:
                if isinstance(message, dict):
                    self.messages.append(message)
                else:
                    self.garbage.append(line)
                self._arrival.notify_all()
        with self._arrival:
            self.ended = True
            self._arrival.notify_all()

    def _read_errors(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.errors += line
