"""The byte pump of a shim: starts the agent and passes every byte, both ways, for as long as either side lives.

Owns the descriptors 0 and 1, the two directions, and the signals that pass on (SH-05, SH-06, SH-09, SH-13, SH-14).
Knows no protocol: what passes is shown to a `Tap` after it was forwarded, and lines that others want written wait in a
pump's inbox until the editor's stream is between two lines. Imports only `os` and C modules; loaded before the agent runs.

Each direction is one thread with blocking reads and writes, so that a reader that stops stalls its own direction and
nothing else, and each descriptor has exactly one writer, so that no line can be cut by another.

    editor ──0──▶ Pump ──pipe──▶ agent            agent ──pipe──▶ Pump ──1──▶ editor
                   ▲ inbox (injections)                             │ sieve (answers to our own requests stay here)
"""

from __future__ import annotations

import _thread
import os
import select
import time

from shims.child import end_like, spawn

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal as _signal
    from collections.abc import Callable
    from typing import Protocol

    class Tap(Protocol):
        """Sees what passes. Must not raise and must not block.

        A chunk is announced before it is forwarded and looked at afterwards: whoever reads it can answer before this
        thread goes on, and an answer must not be seen before what it answers.
        """

        def arrived(self, chunk: bytes) -> None: ...

        def passed(self) -> None: ...

        def ended(self) -> None: ...

    class Sieve(Protocol):
        """Decides what of the agent's output the editor gets."""

        def filter(self, chunk: bytes) -> bytes: ...

        def rest(self) -> bytes: ...
else:
    import _signal  # `signal` itself imports enum

CHUNK = 65536
"""Bytes of one read: a pipe holds no more."""

_AT_GATE = 5.0
"""Seconds within which a thread that was started runs, unless it died of something."""

_SHORT_OF_MEMORY = 0.01
"""Seconds that a pump leaves to whoever gives memory back: nobody tells when there is some again."""

LAST_BYTES = 1 << 20
"""Bytes that are still passed on once the agent is gone: as much as a pipe can hold, and no more of what a grandchild writes."""

LAST_SECONDS = 1.0
"""How long an editor that has asked for the end may take to read the agent's last words."""

_FORWARDED = ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGWINCH", "SIGCONT", "SIGTSTP")
_ENDING = ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT")
_POLL_IN = select.POLLIN


class Line:
    """A whole line that somebody other than the stream's owner wants written.

    ``admit`` is asked at the last moment, in the pump's thread: False drops the line (too late, not idle any more).
    ``written`` is told when the last byte has been accepted by the descriptor; ``failed`` when it never can be.
    """

    __slots__ = ("admit", "data", "failed", "written")

    def __init__(
        self, data: bytes, *, admit: Callable[[], bool], written: Callable[[], None], failed: Callable[[], None]
    ) -> None:
        self.data = data
        self.admit = admit
        self.written = written
        self.failed = failed


class _Blind:
    """A tap that sees nothing."""

    def arrived(self, chunk: bytes) -> None:
        pass

    def passed(self) -> None:
        pass

    def ended(self) -> None:
        pass


_BLIND = _Blind()


class Pump:
    """One direction. `run` is its thread; `submit` and `drain` may be called from any other.

    Args:
        broken: told why when something other than a descriptor fails; the bytes matter more (SH-07).
    """

    def __init__(self, source: int, sink: int, *, tap: Tap, broken: Callable[[str], None], sieve: Sieve | None = None) -> None:
        self.source = source
        self.sink = sink
        self._tap: Tap = tap
        self._broken = broken
        self._sieve = sieve
        self._chunk = b""
        """What was read and not yet sifted."""
        self._unwritten = b""
        self._written = 0
        """How much of `_unwritten` is written: whatever is interrupted, no byte is lost and none goes twice."""
        self._left = LAST_BYTES
        self._between_lines = True
        self._inbox: list[Line] = []
        self._inbox_lock = _thread.allocate_lock()
        self._closed = False
        self.source_ended = False
        """What the source's owner wrote has an end, and all of it was passed on."""
        self._draining = False
        self._bell_read, self._bell_write = _bell()

    def submit(self, line: Line) -> None:
        """Writes ``line`` as soon as the stream is between two lines of its owner; ``failed`` if that can't be any more."""
        with self._inbox_lock:
            if not self._closed:
                self._inbox.append(line)
                _ring(self._bell_write)
                return
        line.failed()

    def drain(self) -> None:
        """The source's process is gone: pass what is still there, then end instead of waiting for its grandchildren."""
        self._draining = True
        _ring(self._bell_write)

    def run(self) -> None:
        while True:
            try:
                self._pass_all()
                break
            except MemoryError:
                self._go_blind("no memory")
                time.sleep(_SHORT_OF_MEMORY)
            except Exception as error:
                if self._tap is _BLIND:  # this direction ends like a closed pipe; its traceback is not the editor's to read
                    self._broken(f"a pump failed: {type(error).__name__}")
                    break
                self._go_blind(f"a pump failed: {type(error).__name__}")
        with self._inbox_lock:
            self._closed = True
            left = self._inbox
            self._inbox = []
        for line in left:
            self._tell(line.failed)
        self._tap.ended()

    def _go_blind(self, reason: str) -> None:
        """From here on everything passes unseen and unsifted; what observation has kept is given back (SH-07)."""
        self._tap = _BLIND
        try:
            self._broken(reason)
        except MemoryError:
            pass  # it is a line in a log

    def _pass_all(self) -> None:
        poll = select.poll()
        poll.register(self.source, _POLL_IN)
        poll.register(self._bell_read, _POLL_IN)
        poll.register(self.sink, 0)  # errors only: a reader that is gone is told to the writer at once
        read, source, sink = os.read, self.source, self.sink
        if not self._flush():
            return
        while self._left > 0:
            try:
                ready = poll.poll(0 if self._draining else None)
            except InterruptedError:
                continue
            if not ready:
                break  # drained
            readable = False
            for fd, _ in ready:
                if fd == source:
                    readable = True
                elif fd == sink:
                    return
                else:
                    self._silence()
            if readable:
                try:
                    self._chunk = chunk = read(source, CHUNK)
                except BlockingIOError:
                    continue
                except OSError:
                    chunk = b""
                if not chunk:
                    self.source_ended = True
                    break
                if not self._forward(chunk):
                    return
                self._tap.passed()
                if self._draining:
                    self._left -= len(chunk)
            if self._inbox and self._between_lines and not self._write_inbox():
                return
        if self._sieve is not None:
            self._write(self._sieve.rest())

    def _forward(self, chunk: bytes) -> bool:
        self._unwritten = chunk if self._sieve is None else self._sieve.filter(chunk)  # before an answer is seen and done with
        self._chunk = b""
        self._between_lines = chunk.endswith(b"\n")
        self._tap.arrived(chunk)
        return self._go_on()

    def _flush(self) -> bool:
        """Writes what was on its way when this direction was interrupted; then what the sieve held back, whosever it is."""
        if not self._go_on():
            return False
        if self._tap is _BLIND and self._sieve is not None:
            self._unwritten, self._sieve = self._sieve.rest(), None
            if not self._go_on():
                return False
        return not self._chunk or self._forward(self._chunk)

    def _write_inbox(self) -> bool:
        while True:
            with self._inbox_lock:
                if not self._inbox:
                    return True
                line = self._inbox.pop(0)
            if not self._tell(line.admit):
                continue
            if not self._write(line.data):
                self._tell(line.failed)
                return False
            self._tell(line.written)

    def _tell(self, callback: Callable[[], bool | None]) -> bool:
        try:
            return bool(callback())
        except Exception as error:  # whoever wanted the line is broken, the stream is not
            self._broken(f"a line's owner failed: {type(error).__name__}")
            return False

    def _write(self, data: bytes) -> bool:
        """Writes all of ``data``, waiting as long as it takes. False: nobody will ever read it."""
        self._unwritten = data
        return self._go_on()

    def _go_on(self) -> bool:
        data = self._unwritten
        while self._written < len(data):
            try:
                self._written += os.write(self.sink, memoryview(data)[self._written :] if self._written else data)
            except BlockingIOError:
                self._wait_for_room()
            except OSError:
                return False
        self._unwritten = b""
        self._written = 0
        return True

    def _wait_for_room(self) -> None:
        """For a descriptor that came to us non-blocking: it stays so, it is the editor's as well (SH-06)."""
        poll = select.poll()
        poll.register(self.sink, select.POLLOUT)
        poll.poll()

    def _silence(self) -> None:
        try:
            os.read(self._bell_read, 4096)
        except BlockingIOError:
            pass


class Relay:
    """The agent's process and its two pumps.

    Args:
        argv: the real binary and its arguments.
        editor_tap, agent_tap: shown what has passed, each direction its own.
        sieve: between the agent and the editor.
        broken: told why when a pump fails of something other than its descriptors.
        entering: called in the new process before it becomes the agent.
    """

    def __init__(
        self,
        argv: list[str],
        *,
        editor_tap: Tap,
        agent_tap: Tap,
        sieve: Sieve,
        broken: Callable[[str], None],
        entering: Callable[[], None] = lambda: None,
    ) -> None:
        self._argv = argv
        self._entering = entering
        self._gate = _thread.allocate_lock()
        self._runs = False
        self._reaps = _signal.getsignal(_signal.SIGCHLD)
        self._pid = 0
        self._on_term: Callable[[], None] = lambda: None
        self._editor_tap = editor_tap
        self._agent_tap = agent_tap
        self._sieve = sieve
        self._broken = broken
        self._to_agent: Pump | None = None
        self._to_editor: Pump | None = None
        self._all_passed = False
        self._asked_to_end = False
        self._last_status: int | None = None
        """How the agent ended, while what it wrote last is still being passed on."""

    @property
    def pid(self) -> int:
        """The agent's pid; 0 before it runs and after it has ended."""
        return self._pid

    @property
    def input_ended(self) -> bool:
        """Whether the agent was there when the editor ended its input."""
        return self._to_agent is not None and self._to_agent.source_ended

    def start(self, on_term: Callable[[], None]) -> None:
        """Starts the agent and both directions.

        Args:
            on_term: told, in the main thread, that the editor wants the agent to end.

        Raises:
            Exception: the agent can't be started, or not be relayed; it does not run, nothing has been read from anybody, and
                signals are what they were.
        """
        to_child_read, to_child_write = os.pipe()
        from_child_read, from_child_write = os.pipe()
        self._null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        self._events_read, self._events_write = _bell(blocking_read=True)
        self._to_agent = Pump(0, to_child_write, tap=self._editor_tap, broken=self._broken)
        self._to_editor = Pump(from_child_read, 1, tap=self._agent_tap, broken=self._broken, sieve=self._sieve)
        self._on_term = on_term
        caught = _forwarded_signals()
        # Until the pid is known there is nobody to forward to: what comes once it is caught waits.
        mask = _signal.pthread_sigmask(_signal.SIG_BLOCK, caught)

        def as_they_were() -> None:
            for number in caught:
                _signal.signal(number, _signal.SIG_DFL)
            _signal.signal(_signal.SIGCHLD, self._reaps)
            _signal.pthread_sigmask(_signal.SIG_SETMASK, mask)

        self._gate.acquire()
        try:
            self._catch(caught)
            pid = spawn(self._argv, to_child_read, from_child_write, as_they_were, self._entering)
            try:
                self._start_pumps(self._to_agent, self._to_editor)
            except BaseException:  # no thread to be had: neither side's bytes were read yet, so it can be done without us
                os.kill(pid, _signal.SIGKILL)
                os.waitpid(pid, 0)
                raise
            os.close(to_child_read)
            os.close(from_child_write)
            self._pid = pid
            self._runs = True
        except BaseException:
            self._gate.release()
            _signal.set_wakeup_fd(-1)
            as_they_were()
            raise
        self._gate.release()
        _signal.pthread_sigmask(_signal.SIG_SETMASK, mask)

    def _start_pumps(self, to_agent: Pump, to_editor: Pump) -> None:
        """Starts both behind the gate. Raises an exception unless both wait there."""
        for run, pump in ((self._run_to_editor, to_editor), (self._run_to_agent, to_agent)):
            there = _thread.allocate_lock()
            there.acquire()
            _thread.start_new_thread(self._wait_at_gate, (there, run, pump))
            if not there.acquire(timeout=_AT_GATE):
                raise MemoryError  # a thread that has not even that much

    def _wait_at_gate(self, there: _thread.LockType, run: Callable[[Pump], None], pump: Pump) -> None:
        there.release()
        with self._gate:
            pass
        if self._runs:
            run(pump)

    def inject(self, line: Line) -> None:
        """Writes ``line`` into the agent's stdin, between two lines of the editor's."""
        assert self._to_agent is not None
        self._to_agent.submit(line)

    def wait(self) -> int:
        """Blocks until the agent has ended and everything it wrote has been passed on. Returns its wait status.

        Sleeps on one pipe that every signal and the last pump ring: a signal that the kernel gives to another thread would
        not end any other wait of this one, which alone runs handlers.
        """
        pid = self._pid
        while True:
            ended, status = os.waitpid(pid, os.WNOHANG)  # `waitid` is missing on macOS before Python 3.13
            if ended:
                break
            os.read(self._events_read, 4096)
        self._pid = 0
        assert self._to_editor is not None
        self._to_editor.drain()
        self._last_status = status
        deadline = time.monotonic() + LAST_SECONDS
        while not self._all_passed:
            left = deadline - time.monotonic() if self._asked_to_end else None
            if not select.select([self._events_read], [], [], left if left is None else max(0.0, left))[0]:
                break
            os.read(self._events_read, 4096)
        self._last_status = None
        return status

    def _run_to_agent(self, pump: Pump) -> None:
        pump.run()
        os.close(pump.sink)
        self._abandon(pump.source)

    def _run_to_editor(self, pump: Pump) -> None:
        pump.run()
        os.close(pump.source)
        if self._pid:
            self._abandon(pump.sink)
        self._all_passed = True
        _ring(self._events_write)

    def _abandon(self, fd: int) -> None:
        """Closes the editor's end without freeing its number for the next file that is opened."""
        os.dup2(self._null, fd)

    # signals

    def _catch(self, numbers: list[int]) -> None:
        _signal.set_wakeup_fd(self._events_write, warn_on_full_buffer=False)
        _signal.signal(_signal.SIGCHLD, lambda *_: None)  # also where it came to us ignored: no status then
        for number in numbers:
            _signal.signal(number, self._forward_signal)

    def _forward_signal(self, number: int, _frame: object) -> None:
        if not self._pid:
            if self._last_status is not None and number in [getattr(_signal, name) for name in _ENDING]:
                end_like(self._last_status)  # the agent is gone, and the editor neither reads its last words nor waits
            return
        if number == _signal.SIGTERM:
            self._asked_to_end = True
            self._on_term()
        try:
            os.kill(self._pid, number)
        except ProcessLookupError:
            return
        if number == _signal.SIGTSTP:
            os.kill(os.getpid(), _signal.SIGSTOP)


def _forwarded_signals() -> list[int]:
    """What the editor made us ignore, the agent ignores as well: there is nothing to forward."""
    numbers = [int(getattr(_signal, name)) for name in _FORWARDED if hasattr(_signal, name)]
    return [number for number in numbers if _signal.getsignal(number) != _signal.SIG_IGN]


def _bell(*, blocking_read: bool = False) -> tuple[int, int]:
    """A pipe to be rung by whoever has news; one that is full has been rung."""
    read, write = os.pipe()
    os.set_blocking(read, blocking_read)
    os.set_blocking(write, False)
    return read, write


def _ring(bell: int) -> None:
    try:
        os.write(bell, b"\n")
    except BlockingIOError:
        pass  # rung already
