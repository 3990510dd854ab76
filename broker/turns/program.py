"""The runner: one turn of one agent on its command line, from before its start until what came of it is on disk.

Owns the agent's process group, its output, and the clock of its inactivity. Needs no broker: it is told what to do by the
files of the turn (`broker.turns.files`, whose directory is its argument), and tells what happened there. SIGTERM ends the
turn. Runs isolated; it is the last one to look whether anybody holds the session, right before the agent is started (DE-52,
DE-53).
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from importlib import import_module

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

from broker.closing import closes_with
from broker.failpoints import fail_point
from broker.paths import find_home
from broker.processes import ProcessId
from broker.turns.files import DONE, FORBIDDEN, INACTIVE, TOLD, Ended, Run, TurnFiles
from broker.turns.group import below, kill
from shims.agent import Found
from shims.headless import Headless, Output, Said
from shims.presence import living

_ECHOED = "its turn failed; the agent's own words on that hold the message, and are left out"

_QUOTED = 24
"""Characters in a row that the words of an agent have in common with the message when they quote it (EN-24)."""


_LINGER = 5.0
"""Seconds that an agent gets to end by itself whose answer is there, closed as it was asked to be: Claude Code 2.1.332 stays for
as long as a command that it has left in the background does."""

_BLOCK = 1 << 16
_LONGEST_LINE = 64 << 20
_LONGEST_OUTPUT = 1 << 28
"""Bytes of output that are kept: what it says is known without them, unless the runner dies."""

_LEAVE = 5.0
"""Seconds for what is left of the output when the agent is gone: what it has left behind may write for ever."""

_LAST_WORDS = 1 << 16
_LOOK = 15.0
"""Seconds after which the session's records are looked at for a sign of life. No wait counts for more than it should have
taken: a machine that slept, or a runner that was stopped, has waited for nothing (DE-35)."""

_LOOKS = 8
"""How often one looks at least within the limit: a runner that was stopped once is not near it by that alone."""

_MERCY = ((signal.SIGTERM, 5.0), (signal.SIGKILL, 2.0))
"""What a group gets that does not end when it is interrupted, and the seconds that it gets before that."""


class Runner:
    """One turn."""

    def __init__(self, files: TurnFiles, run: Run, headless: Headless) -> None:
        self._files = files
        self._run = run
        self._headless = headless
        self._output: Output = headless.output(run.expected)
        self._pid = 0
        self._status: int | None = None
        self._buffer = bytearray()
        self._kept = 0
        self._words = b""
        self._begun = False
        self._linger = float("inf")
        """When it must have ended."""
        self._alive = False
        """Whether there was a sign of life since that was looked at last."""
        self._stopped = ""
        self._failure = ""
        self._told = False
        self._text = b""
        self._unsaid = memoryview(b"")
        """What the agent has not read yet of the text."""
        self._wake, wake_end = os.pipe()
        for descriptor in (self._wake, wake_end):
            os.set_blocking(descriptor, False)
        signal.set_wakeup_fd(wake_end, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, self._hear)

    def run(self) -> Ended:
        held = self._held()
        if held is not None:
            return Ended(held, None)
        before = self._newest(self._run.session)
        self._files.before(before)
        self._attend(*self._start())
        if self._failure == FORBIDDEN:
            return Ended(Said(code=FORBIDDEN, untouched=True), None)
        if self._failure:
            return Ended(Said(code="cannot_start", reason=self._failure, untouched=True), None)
        said = self._output.closed(self._status or 0, self._words.decode(errors="replace"))
        if said.reason and _quotes(said.reason, self._text):
            said = said._replace(reason=_ECHOED)
        return Ended(self._completed(said, before), self._status, self._stopped)

    def _newest(self, session: str) -> str | None:
        """The message that ``session`` accepted last, where the agent's records have such an id."""
        newest = self._headless.newest
        if newest is None:
            return None
        return newest(self._run.store, session) if session else ""

    def _completed(self, said: Said, before: str | None) -> Said:
        """With the turn's id, and the answer as the agent's records have it by that (`Said.turn`)."""
        newest = self._newest(said.session or self._run.expected)
        if newest and before is not None and newest != before:
            said = said._replace(turn=newest, untouched=False)  # whatever the output says, it got in
        elif self._run.session and before is not None and newest == before and not (said.begun or said.ended or self._stopped):
            said = said._replace(untouched=True)  # it was gone before the message got in, and has not said so
        if not said.turn or not said.ended or said.code:
            return said
        record = import_module(f"shims.{self._run.agent}.sessions").record(self._run.store, said.session, said.turn)
        return said._replace(text=record.text) if record.found is Found.ANSWERED and record.text.strip() else said

    # the start

    def _held(self) -> Said | None:
        run = self._run
        if not run.session:
            return None
        for process in _holders(run):
            return Said(code="session_held", reason=f"process {process.pid} holds the session", untouched=True)
        hindrance = self._headless.hindrance(run.store, run.session)
        return Said(code=hindrance.code, reason=hindrance.reason, untouched=True) if hindrance is not None else None

    def _start(self) -> tuple[int, int, int]:
        """The ends of the agent's input and output; `_failure` says why it could not be started."""
        with open(self._files.prompt, "rb") as prompt:
            self._text = prompt.read()
        in_end, text = os.pipe()
        out, out_end = os.pipe()
        err, err_end = os.pipe()
        failed, failed_end = os.pipe()
        if not self._run.by_file:
            self._unsaid = memoryview(self._text)
        fail_point("runner.start.before")
        self._pid = os.fork()
        if self._pid == 0:
            self._become_agent(in_end, out_end, err_end, failed_end)
        for descriptor in (in_end, out_end, err_end, failed_end):
            os.close(descriptor)
        self._failure = os.read(failed, _BLOCK).decode(errors="replace")  # ends when the agent runs
        os.close(failed)
        fail_point("runner.start.after")
        return text, out, err

    def _become_agent(self, text: int, out: int, err: int, failed: int) -> None:
        """In the child; never returns."""
        run = self._run
        place = run.argv[0]
        try:
            os.setsid()
            os.umask(run.umask)
            _forget_signals()
            for place_of, descriptor in enumerate((text, out, err)):
                os.dup2(descriptor, place_of)
            place = run.cwd
            os.chdir(run.cwd)
            place = run.argv[0]
            environment = {name: os.environ[name] for name in run.names if name in os.environ}
            fail_point("runner.exec.before")
            if not self._files.claim():
                os.write(failed, FORBIDDEN.encode())
                os._exit(127)
            fail_point("runner.exec.after")
            os.execve(run.argv[0], run.argv, environment)
        except OSError as error:
            os.write(failed, f"{place}: {error.strerror}".encode(errors="surrogateescape"))
        finally:
            os._exit(127)

    # while it runs

    def _attend(self, text: int, out: int, err: int) -> None:
        waiting = select.poll()
        for descriptor in (text, out, err):
            os.set_blocking(descriptor, False)
        for descriptor in (out, err, self._wake):
            waiting.register(descriptor, select.POLLIN)
        waiting.register(text, select.POLLOUT)
        step = max(0.01, min(_LOOK, self._run.idle / _LOOKS))
        idle, known = 0.0, self._growth()
        with open(self._files.out, "ab", opener=_private) as kept:
            while self._status is None:
                since = time.monotonic()
                ready = {descriptor for descriptor, _ in waiting.poll(max(0.0, min(step, self._linger - since)) * 1000)}
                if self._wake in ready:
                    _drain(self._wake)
                    self._reap()
                if out in ready and not self._read(out, kept.fileno()):
                    waiting.unregister(out)
                if err in ready and not self._read_words(err):
                    waiting.unregister(err)
                if text in ready and not self._say(text):
                    waiting.unregister(text)
                if self._told:
                    self._stop(TOLD)
                elif time.monotonic() >= self._linger:
                    self._stop(DONE)
                if self._alive:
                    idle, self._alive = 0.0, False
                    continue
                idle += min(step, time.monotonic() - since)
                grown = self._growth()
                if grown != known:
                    idle, known = 0.0, grown
                if idle >= self._run.idle:
                    self._stop(INACTIVE)
            leave = time.monotonic() + _LEAVE
            while self._read(out, kept.fileno()) and time.monotonic() < leave:
                pass
        while self._read_words(err) and time.monotonic() < leave:
            pass
        if self._buffer:
            self._feed(bytes(self._buffer))

    def _say(self, text: int) -> bool:
        """Gives the agent what it takes of the text; False: it has all of it, and its input is at its end."""
        try:
            while self._unsaid:
                self._unsaid = self._unsaid[os.write(text, self._unsaid) :]
        except BlockingIOError:
            return True
        except BrokenPipeError:
            pass  # it wants no more
        os.close(text)
        return False

    def _read(self, out: int, kept: int) -> bool:
        """Takes what there is; False: nothing."""
        data = _read_now(out)
        if not data:
            return False
        if self._kept < _LONGEST_OUTPUT:
            self._kept += os.write(kept, data)
        if b"\n" in data:
            *lines, data = (bytes(self._buffer) + data).split(b"\n")
            self._buffer.clear()
            for line in lines:
                self._alive |= not self._headless.noise(line)
                self._feed(line)
        self._alive |= bool(data)
        if len(self._buffer) < _LONGEST_LINE:
            self._buffer += data
        return True

    def _feed(self, line: bytes) -> None:
        self._output.feed(line)
        said = self._output.said()
        if said.ended and self._linger == float("inf") and self._is_finished(said):
            self._linger = time.monotonic() + _LINGER
        if not self._begun and said.begun:
            self._begun = True
            fail_point("runner.taken.before")
            self._files.taken(said.session)
            fail_point("runner.taken.after")

    def _is_finished(self, said: Said) -> bool:
        return bool(self._run.token) and any(closes_with(text, self._run.token) for text in (said.text, *said.later))

    def _read_words(self, err: int) -> bool:
        data = _read_now(err)
        if data:
            self._words = (self._words + data)[-_LAST_WORDS:]
        return bool(data)

    def _growth(self) -> tuple[str, int, int]:
        run = self._run
        session = run.expected or self._output.said().session  # the agent may have chosen it
        path = self._headless.transcript(run.store, session) if session else ""
        try:
            found = os.stat(path)
        except OSError:
            return path, 0, 0
        return path, found.st_size, found.st_mtime_ns

    def _reap(self) -> None:
        pid, status = os.waitpid(self._pid, os.WNOHANG)
        if pid:
            self._status = os.waitstatus_to_exitcode(status)

    # the end

    def _hear(self, *_: object) -> None:
        self._told = True

    def _stop(self, why: str) -> None:
        """Ends the whole group (EN-16): as a person would, then less kindly; with it whatever has left the group."""
        self._stopped = why
        descendants = below(self._pid)
        _signal(self._pid, self._headless.interrupt)
        for number, seconds in _MERCY:
            if self._gone_within(seconds):
                break
            _signal(self._pid, number)
        self._gone_within(60.0)
        _signal(self._pid, signal.SIGKILL)  # whoever of the group is left
        kill(descendants)

    def _gone_within(self, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while self._status is None and (left := deadline - time.monotonic()) > 0:
            select.select([self._wake], [], [], left)
            _drain(self._wake)
            self._reap()
        return self._status is not None


def _holders(run: Run) -> list[ProcessId]:
    """Who holds the session, by the agent's own word or a shim's."""
    held: list[ProcessId] = list(import_module(f"shims.{run.agent}.live").holders(run.store, run.session))
    held += [p.process for p in living(find_home().shims) if p.agent == run.agent and run.session in p.sessions]
    return held


def _forget_signals() -> None:
    """What is ignored or blocked here, by the interpreter or by whoever started the broker, is not for what runs next."""
    for number in signal.valid_signals():
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _quotes(words: str, text: bytes) -> bool:
    """Whether an agent's words on a failure hold a part of the message."""
    message = " ".join(text.decode(errors="replace").split())
    words = " ".join(words.split())
    return any(words[at : at + _QUOTED] in message for at in range(max(0, len(words) - _QUOTED) + 1) if len(words) >= _QUOTED)


def _signal(group: int, number: int) -> None:
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):  # the last one is a zombie (macOS says so)
        pass


def _read_now(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, _BLOCK)
    except BlockingIOError:
        return b""


def _drain(descriptor: int) -> None:
    while _read_now(descriptor):
        pass


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def main() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    files = TurnFiles(sys.argv[1])
    run = files.order()
    files.announce()
    headless: Headless = import_module(f"shims.{run.agent}.resume").HEADLESS
    ended = Runner(files, run, headless).run()
    fail_point("runner.end.before")
    files.end(ended)
    fail_point("runner.end.after")


if __name__ == "__main__":
    main()
