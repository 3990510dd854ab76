"""Fuzzing of a real pump: a thread, pipes, lines of ours in between.

Owns the two ends of one pump. In a play for this target every ``e`` and ``a`` is the source, ``i`` submits a line of ours
(every fourth is not admitted any more), ``h`` stops waiting until what was said has passed, or waits again. Flags: ``s`` a
sink of one page, ``n`` one that does not block, ``v`` a sieve that takes out lines that begin with ``-``.
"""

from __future__ import annotations

import fcntl
import os
import select
import sys
import threading
from collections.abc import Callable

from shims.lines import Sieve
from shims.relay import Line, Pump
from tests.fuzz.play import Act, Said, read
from tests.fuzz.splitting import judge

PATIENCE = 20.0
"""Seconds until a pump counts as stuck."""

_MARK = b"\x00of-ours-7d1c"


def fuzzed(data: bytes) -> None:
    flags, steps = read(data)
    run = _Run(flags)
    try:
        run.play(steps)
    finally:
        run.close()
    run.check(sieved=b"v" in flags)


class _Tap:
    """Notes what the pump says, and wakes who waits for it."""

    def __init__(self, bell: int) -> None:
        self.arrived_bytes = bytearray()
        self.passed_bytes = 0
        self.ends = 0
        self._bell = bell

    def arrived(self, chunk: bytes) -> None:
        assert chunk
        assert not self.ends
        assert self.passed_bytes == len(self.arrived_bytes)
        self.arrived_bytes += chunk

    def passed(self) -> None:
        self.passed_bytes = len(self.arrived_bytes)
        os.write(self._bell, b".")

    def ended(self) -> None:
        self.ends += 1
        os.write(self._bell, b".")


class _Run:
    """One pump and its play."""

    def __init__(self, flags: bytes) -> None:
        self._source, self._editor = os.pipe()
        self._out_end, self._sink = os.pipe()
        self._news, bell = os.pipe()
        self._descriptors = {self._source, self._editor, self._out_end, self._sink, self._news, bell}
        os.set_blocking(self._out_end, False)
        os.set_blocking(self._sink, b"n" not in flags)
        if b"s" in flags and sys.platform == "linux":
            fcntl.fcntl(self._sink, fcntl.F_SETPIPE_SZ, 4096)
        self._tap = _Tap(bell)
        self._broken: list[str] = []
        sieve = Sieve(lambda: True, judge) if b"v" in flags else None
        self._pump = Pump(self._source, self._sink, tap=self._tap, broken=self._broken.append, sieve=sieve)
        self._descriptors |= {self._pump._bell_read, self._pump._bell_write}
        self._thread = threading.Thread(target=self._pump.run)
        self._said = bytearray()
        self._out = bytearray()
        self._told: list[str] = []
        self._submitted: list[bytes] = []

    def play(self, steps: list[Said | Act]) -> None:
        self._thread.start()
        waits = True
        for step in steps:
            if isinstance(step, Said):
                for piece in step.pieces():
                    self._say(piece, waits)
            elif step.kind == "i":
                self._submit(step.number)
            elif step.kind == "h":
                waits = not waits
        self._forget(self._editor)
        self._wait(lambda: self._tap.ends > 0)
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()
        self._submit(1)
        self._read()

    def check(self, *, sieved: bool) -> None:
        """The source's bytes came out in their order, and every line of ours between two of its lines or not at all."""
        assert not self._broken, self._broken
        assert self._tap.arrived_bytes == self._said
        assert (self._tap.passed_bytes, self._tap.ends) == (len(self._said), 1)
        out = bytes(self._out)
        for number, (line, told) in enumerate(zip(self._submitted, self._told, strict=True)):
            assert told in ("refused", "asked written", "failed"), f"line {number}: {told!r}"
            assert out.count(line) == (told == "asked written")
            before, _, after = out.partition(line)
            assert line not in out or before[-1:] in (b"", b"\n")
            assert line not in out or not any(earlier in after for earlier in self._submitted[:number]), "order"
        for line in self._submitted:
            out = out.replace(line, b"")
        *ended, rest = bytes(self._said).split(b"\n")
        wanted = b"".join(line + b"\n" for line in ended if not sieved or judge(line, True) == "pass") + rest
        assert out == wanted

    def close(self) -> None:
        """Ends the pump, whatever happened, and frees every descriptor."""
        if self._editor in self._descriptors:
            self._forget(self._editor)
        if self._thread.is_alive():
            self._pump.drain()
            self._forget(self._out_end)
            self._thread.join(PATIENCE)
        for descriptor in list(self._descriptors):
            self._forget(descriptor)

    def _say(self, piece: bytes, waits: bool) -> None:
        for at in range(0, len(piece), select.PIPE_BUF):  # a write of no more than this is whole
            part = piece[at : at + select.PIPE_BUF]
            os.write(self._editor, part)
            self._said += part
            if waits:
                self._wait(lambda: self._tap.passed_bytes == len(self._said))
        self._read()

    def _submit(self, number: int) -> None:
        line = _MARK + str(len(self._submitted)).encode() + b"\n"
        at = len(self._told)
        self._told.append("")
        self._submitted.append(line)

        def tell(word: str) -> None:
            self._told[at] = f"{self._told[at]} {word}".strip()

        def admit() -> bool:
            tell("refused" if number % 4 == 3 else "asked")
            return number % 4 != 3

        self._pump.submit(Line(line, admit=admit, written=lambda: tell("written"), failed=lambda: tell("failed")))

    def _wait(self, reached: Callable[[], bool]) -> None:
        """Reads what comes out until ``reached``; the tap rings after every chunk."""
        while not reached():
            ready, _, _ = select.select([self._news, self._out_end], [], [], PATIENCE)
            assert ready, "the pump is stuck"
            if self._news in ready:
                os.read(self._news, 4096)
            self._read()

    def _read(self) -> None:
        while True:
            try:
                self._out += os.read(self._out_end, 65536)
            except BlockingIOError:
                return

    def _forget(self, descriptor: int) -> None:
        self._descriptors.remove(descriptor)
        os.close(descriptor)
