"""The event loop of the stub agents: one thread, one ``poll``, coroutines that wait for events.

Owns descriptors, timers, signals and child processes of a stub; knows no protocol. asyncio would do the same and costs a
tenth of a second and 15 MiB per process, which a hundred stubs on one machine pay a hundred times. An idle stub sleeps
in ``poll`` without a timeout: it never wakes up by itself.
"""

from __future__ import annotations

import heapq
import os
import select
import signal
import time
from collections import deque

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator, Mapping, Sequence
    from typing import Any, Final

STOP_SECONDS: Final = 2.0  # a child that ignores SIGTERM that long is killed


class Wait:
    """One event: settled once, with a value or with an error; awaited or watched through ``callbacks``."""

    __slots__ = ("_loop", "callbacks", "done", "error", "value")

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self.callbacks: list[Callable[[], None]] = []
        self.done = False
        self.error: BaseException | None = None
        self.value: Any = None

    def settle(self, value: Any = None) -> None:
        """Makes it happen; a second time changes nothing."""
        if not self.done:
            self.done, self.value = True, value
            self._loop.ready.extend(self.callbacks)
            self.callbacks.clear()

    def fail(self, error: BaseException) -> None:
        """Makes every waiter raise ``error``."""
        if not self.done:
            self.error = error
            self.settle()

    def __await__(self) -> Generator[Wait, None, Any]:
        if not self.done:
            yield self
        if self.error is not None:
            raise self.error
        return self.value


class Task:
    """A running coroutine; ``finished`` is settled with its result."""

    __slots__ = ("_cancelled", "_coroutine", "finished")

    def __init__(self, loop: Loop, coroutine: Coroutine[Wait, None, Any]) -> None:
        self._coroutine = coroutine
        self._cancelled = False
        self.finished = Wait(loop)
        loop.ready.append(self._step)

    def cancel(self) -> None:
        """Ends it where it stands; not from within itself."""
        self._cancelled = True
        self._coroutine.close()

    def _step(self) -> None:
        if self._cancelled:
            return
        try:
            wait = self._coroutine.send(None)
        except StopIteration as end:
            self.finished.settle(end.value)
            return
        if wait.done:
            wait._loop.ready.append(self._step)
        else:
            wait.callbacks.append(self._step)


class Loop:
    """What is ready, what is timed, and which descriptors are watched."""

    def __init__(self) -> None:
        self.ready: deque[Callable[[], None]] = deque()
        self._poll = select.poll()
        self._readers: dict[int, Callable[[], None]] = {}
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._timer_count = 0
        self._stopped = False
        self._wake_read = -1
        self._children: dict[int, Child] = {}

    # run

    def run(self) -> None:
        """Works until ``stop``."""
        while not self._stopped:
            if self.ready:
                self.ready.popleft()()
            else:
                self._wait()

    def stop(self) -> None:
        """Ends ``run`` after the callback that runs now."""
        self._stopped = True

    def start(self, coroutine: Coroutine[Wait, None, Any]) -> Task:
        """Runs ``coroutine`` beside the others."""
        return Task(self, coroutine)

    def _wait(self) -> None:
        timeout = None
        if self._timers:
            timeout = max(0, int((self._timers[0][0] - time.monotonic()) * 1000) + 1)
        for descriptor, _ in self._poll.poll(timeout):
            reader = self._readers.get(descriptor)
            if reader is not None:
                reader()
        now = time.monotonic()
        while self._timers and self._timers[0][0] <= now:
            self.ready.append(heapq.heappop(self._timers)[2])

    # events

    def after(self, seconds: float, callback: Callable[[], None]) -> None:
        """Calls ``callback`` once, ``seconds`` from now."""
        self._timer_count += 1
        heapq.heappush(self._timers, (time.monotonic() + seconds, self._timer_count, callback))

    def watch(self, descriptor: int, reader: Callable[[], None], *, writing: bool = False) -> None:
        """Calls ``reader`` whenever ``descriptor`` has bytes or came to its end (``writing``: or takes bytes)."""
        self._readers[descriptor] = reader
        self._poll.register(descriptor, select.POLLOUT if writing else select.POLLIN)

    def unwatch(self, descriptor: int) -> None:
        """Forgets a descriptor; one that isn't watched is fine."""
        if self._readers.pop(descriptor, None) is not None:
            self._poll.unregister(descriptor)

    async def first(self, *waits: Wait) -> None:
        """Returns when one of ``waits`` has happened; which one, and its error, is the caller's to look up."""
        if any(wait.done for wait in waits):
            return
        either = Wait(self)
        for wait in waits:
            wait.callbacks.append(either.settle)
        await either
        for wait in waits:
            if either.settle in wait.callbacks:
                wait.callbacks.remove(either.settle)

    # signals

    def on_signal(self, number: int, callback: Callable[[], None]) -> None:
        """Calls ``callback`` from the loop (never from the handler) when the signal arrives."""
        if self._wake_read < 0:
            self._wake_read, wake_write = os.pipe()
            os.set_blocking(self._wake_read, False)
            os.set_blocking(wake_write, False)
            signal.set_wakeup_fd(wake_write)
            self.watch(self._wake_read, self._drain)
        signal.signal(number, lambda _number, _frame: self.ready.append(callback))

    def _drain(self) -> None:
        try:
            os.read(self._wake_read, 4096)
        except BlockingIOError:
            pass

    # children

    def spawn(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: str,
        talk: bool,
        own_group: bool,
    ) -> Child:
        """Starts a program: ``talk`` gives it a pipe as stdin and hides its stderr, else stderr goes into its stdout."""
        if not self._children:
            self.on_signal(signal.SIGCHLD, self._reap)
        out_read, out_write = os.pipe()
        in_read, in_write = os.pipe() if talk else (os.open(os.devnull, os.O_RDONLY), -1)
        pid = os.fork()
        if pid == 0:
            try:
                if own_group:
                    os.setpgid(0, 0)
                os.chdir(cwd)
                os.dup2(in_read, 0)
                os.dup2(out_write, 1)
                os.dup2(os.open(os.devnull, os.O_WRONLY) if talk else out_write, 2)
                signal.signal(signal.SIGPIPE, signal.SIG_DFL)
                os.execvpe(argv[0], list(argv), dict(env))
            except OSError as error:
                os.write(2, f"{argv[0]}: {error.strerror}\n".encode())
            finally:
                os._exit(127)
        if own_group:
            # Here as well: a signal to the group must reach a child that hasn't come to its own setpgid yet.
            try:
                os.setpgid(pid, pid)
            except (PermissionError, ProcessLookupError):
                pass  # it has, and runs its program already
        os.close(in_read)
        os.close(out_write)
        if talk:
            os.set_blocking(in_write, False)
        child = self._children[pid] = Child(self, pid, in_write, out_read, own_group)
        return child

    def _reap(self) -> None:
        for pid in list(self._children):
            found, status = os.waitpid(pid, os.WNOHANG)
            if found:
                self._children.pop(pid).exited.settle(os.waitstatus_to_exitcode(status))

    def end_children(self) -> None:
        """Ends every child that is left, for a stub that exits: SIGTERM, then SIGKILL; returns when all are gone."""
        for child in self._children.values():
            child.end_input()
            child.signal(signal.SIGTERM)
        deadline = time.monotonic() + STOP_SECONDS
        while self._children:
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                for child in self._children.values():
                    child.signal(signal.SIGKILL)
                remaining = STOP_SECONDS
                deadline += STOP_SECONDS
            # SIGCHLD writes to the wake-up pipe, so this returns as soon as a child is gone.
            wakes = select.poll()
            wakes.register(self._wake_read, select.POLLIN)
            wakes.poll(int(remaining * 1000) + 1)
            self._drain()
            self._reap()


class Child:
    """A child process: what it says, what it is told, when it ended (``exited``: its exit code)."""

    __slots__ = ("_input", "_loop", "_unsent", "exited", "group", "output", "pid")

    def __init__(self, loop: Loop, pid: int, stdin: int, stdout: int, group: bool) -> None:
        self._loop = loop
        self._input = stdin
        self._unsent = bytearray()
        self.pid = pid
        self.group = group
        self.output = stdout
        self.exited = Wait(loop)

    def signal(self, number: int) -> None:
        """Signals the child, or its whole process group if it leads one."""
        try:
            if self.group:
                os.killpg(self.pid, number)
            else:
                os.kill(self.pid, number)
        except ProcessLookupError:
            pass

    def send(self, data: bytes) -> None:
        """Queues ``data`` for its stdin; never blocks."""
        if self._input < 0:
            return
        idle = not self._unsent
        self._unsent += data
        if idle:
            self._flush()

    def end_input(self) -> None:
        """Closes its stdin."""
        if self._input >= 0:
            self._loop.unwatch(self._input)
            os.close(self._input)
            self._input = -1

    def _flush(self) -> None:
        try:
            while self._unsent:
                del self._unsent[: os.write(self._input, self._unsent)]
        except BlockingIOError:
            self._loop.watch(self._input, self._flush, writing=True)
        except BrokenPipeError:
            self._unsent.clear()
            self.end_input()
        else:
            self._loop.unwatch(self._input)
