"""One panel without processes: the real tracker, observer, sieve, panel and ledger, and a hand on everything around them.

Owns the playing of one play to one such panel: what is forwarded and seen comes in the order of the real pumps, and lines
of ours are written where the pump would write them. Checks on the way what must hold at every moment.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import ModuleType
from typing import NoReturn, Protocol

from broker.wire import Ask, Forget, Inject, Message, Withdraw, decode, encode
from shims import observe
from shims.observe import Observer
from shims.panel import Panel
from shims.relay import Line
from shims.stream import Stream
from tests.fuzz import reference
from tests.fuzz.expected import Expected
from tests.fuzz.play import Act, Said

SMALL = {"LONGEST_PARSED": 600, "LONGEST_MESSAGE": 1200, "HEAD": 300, "LONGEST_UNDECIDED": 200}
"""Bounds that a fuzzer's lines reach."""


class Part(Protocol):
    """What a target says of its agent."""

    def stream(self, flags: bytes) -> Stream: ...

    def expected(self, flags: bytes) -> Expected: ...

    def order(self, number: int) -> Inject: ...

    def opening(self, flags: bytes) -> list[Said | Act]:
        """What happens before the play, so that there is a session to speak of."""
        ...


class Loud(Observer):
    """An observer that does not hide what a tracker does wrong."""

    def switch_off(self, reason: str) -> NoReturn:
        raise AssertionError(reason)


class _Clock:
    """Wall-clock time as `observe` sees it: one second an act of the play, however it is cut."""

    def __init__(self) -> None:
        self.now = 1000.0

    def time(self) -> float:
        return self.now


class Stage:
    """A panel to which a play is given, once.

    Args:
        cut: whether what is said comes in the pieces of the play, or each breath at once.
    """

    def __init__(self, part: Part, flags: bytes, *, cut: bool) -> None:
        self.told: list[Message | bytes] = []
        """What the broker was told, and what was written to the agent, in order."""
        self._part = part
        self._cut = cut
        self._stream = part.stream(flags)
        self._expected = part.expected(flags)
        self._observer = Loud()
        self._panel = Panel(self._stream, self._observer, write=self._submitted, wake=lambda: None, note=lambda _: None)
        self._panel.welcomed(1)
        self._attached = False
        self._out: list[bytes] = []
        self._waiting: list[Line] = []
        self._messages: set[bytes] = set()
        self._held = self._broken = False
        self._between_lines = True
        self._clock = _Clock()

    def play(self, steps: list[Said | Act], *, attach_late: bool) -> None:
        """Plays ``steps`` to the end of both streams, and compares what the editor got with what it must get."""
        with replaced(observe, {"time": self._clock}):
            if not attach_late:
                self._attach()
            for step in steps:
                self._clock.now += 1
                if isinstance(step, Said):
                    self._say(step)
                else:
                    self._attach()
                    self._act(step)
                self._settle()
            self._attach()
            self._end()
        reference.check(b"".join(self._out), self._expected.items)

    def _attach(self) -> None:
        """The tracker is loaded."""
        if not self._attached:
            self._attached = True
            self._observer.attach(self._stream, self._panel.observed)
            self._settle()
            self._expected.loaded()

    # what is said

    def _say(self, said: Said) -> None:
        side = self._observer.editor_side if said.side == "editor" else self._observer.agent_side
        for piece in said.pieces() if self._cut else (said.data,):
            if side is self._observer.agent_side:
                self._out.append(self._observer.sieve.filter(piece))
            side.arrived(piece)
            side.passed()
        if said.side == "editor":
            self._between_lines = said.data.endswith(b"\n")
            self._expected.editor_said(said.data)
        else:
            self._collect()
            self._expected.said(said.data)

    def _settle(self) -> None:
        """Between two steps: the link tells its news, the pump writes what it can."""
        self._collect()
        while self._waiting and self._between_lines and not self._held and not self._broken:
            self._write(self._waiting.pop(0))
            self._collect()
        assert self._waiting or not self._expected.quiet() or not self._stream.outstanding(), "waits for an answer to nothing"

    def _collect(self) -> None:
        for message in self._panel.outgoing():
            self.told.append(message)
            if self._cut:  # once is enough
                decode(encode(message))

    # what is written

    def _submitted(self, line: Line) -> None:
        assert line.data.endswith(b"\n")
        assert line.data.count(b"\n") == 1
        self._expected.made(line.data)
        if self._broken:
            line.failed()
        else:
            self._waiting.append(line)

    def _write(self, line: Line) -> None:
        if not line.admit():
            return
        assert line.data not in self._messages, f"written twice: {line.data!r}"
        if b'"_x.ai/queue/remove"' not in line.data:  # may be said again, it has no answer of its own
            self._messages.add(line.data)
        self.told.append(line.data)
        self._expected.written(line.data)
        line.written()

    # whatever else happens

    def _act(self, act: Act) -> None:
        attempt = f"a{act.number}"
        if act.kind == "i":
            self._panel.received(self._part.order(act.number))
        elif act.kind == "d":
            self._panel.received(Withdraw(attempt, 1))
        elif act.kind == "f":
            self._expected.forgotten(act.number)
            self._panel.received(Forget(attempt, 1))
        elif act.kind == "q":
            self._panel.received(Ask(attempt, 1))
        elif act.kind == "h":
            self._held = not self._held
        elif act.kind == "z":
            self._observer.editor_side.ended()
        elif act.kind == "x":
            self._break()

    def _break(self) -> None:
        self._broken = True
        left, self._waiting = self._waiting, []
        for line in left:
            line.failed()

    def _end(self) -> None:
        self._out.append(self._observer.sieve.rest())
        self._observer.agent_side.ended()
        self._expected.ended()
        self._break()
        self._panel.agent_ended(input_ended=False)
        self._collect()


@contextmanager
def replaced(module: ModuleType, values: Mapping[str, object]) -> Iterator[None]:
    """What ``module`` has by these names is as in ``values``, for as long as a play takes."""
    real = {name: getattr(module, name) for name in values}
    for name, value in values.items():
        setattr(module, name, value)
    try:
        yield
    finally:
        for name, value in real.items():
            setattr(module, name, value)
