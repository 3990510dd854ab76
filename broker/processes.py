"""Which process is which: identity by pid *and* start time, ancestors, and being told of a death by the kernel.

Owns every look into the process table. Never forks, never trusts a name: two processes are the same only when pid and
start time are. Start times are the kernel's own ticks where it has them (Linux: field 22 of ``/proc/<pid>/stat``), so a
record written before a suspend still compares equal after it.
"""

from __future__ import annotations

import os
import select
import sys
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import NamedTuple

_PROC = sys.platform == "linux"

_DOUBT = 2.0
"""Seconds by which a process may seem to have begun later than it did: two clocks, one of them set now and then."""


SHELLS = frozenset(("sh", "bash", "dash", "zsh", "fish", "ksh", "mksh", "tcsh", "csh", "busybox", "nu", "pwsh"))
"""How programs are called in which people, and agents' tools, run commands."""


class ProcessId(NamedTuple):
    """A process for ever: its pid and its start time (kernel ticks on Linux, milliseconds since the epoch elsewhere)."""

    pid: int
    start: int

    def alive(self) -> bool:
        """Whether this very process still runs; a zombie has ended."""
        return identify(self.pid) == self

    def __str__(self) -> str:
        return f"{self.pid}@{self.start}"


def parse_process_id(text: str) -> ProcessId | None:
    """The inverse of ``str()``; None when ``text`` is no process id."""
    pid, _, start = text.partition("@")
    return ProcessId(int(pid), int(start)) if pid.isdecimal() and start.isdecimal() else None


def identify(pid: int) -> ProcessId | None:
    """The process that has ``pid`` now, None if there is none (or only its zombie)."""
    stat = _stat(pid)
    return ProcessId(pid, stat.start) if stat is not None and stat.state not in "ZX" else None


def ancestors(pid: int) -> list[ProcessId]:
    """The process itself, its parent and so on up to (without) pid 1, nearest first.

    A process that ends while the walk goes on ends the list; no parent is listed that started after its child (a reused
    pid).
    """
    line: list[ProcessId] = []
    while pid > 1:
        stat = _stat(pid)
        if stat is None or (line and stat.start > line[-1].start):
            break
        line.append(ProcessId(pid, stat.start))
        pid = stat.parent
    return line


def had_begun(process: ProcessId, when: float) -> bool:
    """Whether ``process`` was there at ``when``, wall-clock seconds, as far as two clocks can tell."""
    return _began(process) <= when + _DOUBT


def all_pids() -> list[int]:
    """Every process there is."""
    if _PROC:
        return [int(name) for name in os.listdir("/proc") if name.isdecimal()]
    import psutil

    return psutil.pids()


def executable(pid: int) -> str | None:
    """The path of the file that ``pid`` executes, None where it cannot be told."""
    if _PROC:
        try:
            return os.readlink(f"/proc/{pid}/exe").removesuffix(" (deleted)")
        except OSError:
            return None
    import psutil

    try:
        return psutil.Process(pid).exe() or None
    except psutil.Error:
        return None


def argv(pid: int) -> list[str]:
    """The command line of ``pid``, empty where it cannot be told."""
    if _PROC:
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                return [os.fsdecode(part) for part in file.read().split(b"\0")[:-1]]
        except OSError:
            return []
    import psutil

    try:
        return psutil.Process(pid).cmdline()
    except psutil.Error:
        return []


def variables(pid: int, wanted: Collection[str] | Callable[[str], bool]) -> dict[str, str] | None:
    """Those names ``wanted`` that ``pid`` was started with, None where it cannot be told. Nothing else of it is kept."""
    is_wanted = wanted if callable(wanted) else wanted.__contains__
    if _PROC:
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                entries = [os.fsdecode(entry).partition("=") for entry in file.read().split(b"\0")]
        except OSError:
            return None
        return {name: value for name, _, value in reversed(entries) if is_wanted(name)}  # of two, the first counts
    import psutil

    try:
        return {name: value for name, value in psutil.Process(pid).environ().items() if is_wanted(name)}
    except psutil.Error:
        return None


def is_stopped(pid: int) -> bool:
    """Whether ``pid`` stands still until somebody lets it go on (SIGSTOP)."""
    if _PROC:
        try:
            with open(f"/proc/{pid}/stat", "rb") as file:
                return file.read().rpartition(b")")[2].split()[0] in (b"T", b"t")
        except (OSError, IndexError):
            return False
    import psutil

    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_STOPPED)
    except psutil.Error:
        return False


def open_files(pid: int) -> list[str]:
    """The paths of the files that ``pid`` has open, links resolved; empty where it cannot be told."""
    if _PROC:
        found = []
        try:
            for name in os.listdir(f"/proc/{pid}/fd"):
                with suppress(OSError):  # it was closed meanwhile
                    found.append(os.readlink(f"/proc/{pid}/fd/{name}"))
        except OSError:
            pass
        return found
    import psutil

    try:
        return [file.path for file in psutil.Process(pid).open_files()]
    except psutil.Error:
        return []


def working_directory(pid: int) -> str | None:
    """Where ``pid`` works now, None where it cannot be told."""
    if _PROC:
        try:
            return os.readlink(f"/proc/{pid}/cwd")
        except OSError:
            return None
    import psutil

    try:
        return psutil.Process(pid).cwd() or None
    except psutil.Error:
        return None


def open_death_watch(process: ProcessId) -> int | None:
    """A descriptor that becomes readable when ``process`` ends (pidfd on Linux, a kqueue elsewhere).

    None when it is already gone. The caller closes the descriptor.

    Raises:
        OSError: the kernel can't watch now (no descriptors left); says nothing of the process.
    """
    if sys.platform == "linux":
        try:
            watch = os.pidfd_open(process.pid)
        except ProcessLookupError:
            return None
    elif sys.platform == "darwin":
        queue = select.kqueue()
        watch = os.dup(queue.fileno())
        event = select.kevent(process.pid, select.KQ_FILTER_PROC, select.KQ_EV_ADD | select.KQ_EV_ONESHOT, select.KQ_NOTE_EXIT)
        try:
            queue.control([event], 0)
        except ProcessLookupError:
            os.close(watch)
            return None
        finally:
            queue.close()
    else:
        raise RuntimeError("this system tells nobody of the death of a process")
    if process.alive():
        return watch
    os.close(watch)
    return None


def _began(process: ProcessId) -> float:
    if not _PROC:
        return process.start / 1000
    age = time.clock_gettime(time.CLOCK_BOOTTIME) - process.start / os.sysconf("SC_CLK_TCK")
    return time.time() - age


class _Stat(NamedTuple):
    state: str
    parent: int
    start: int


def _stat(pid: int) -> _Stat | None:
    if _PROC:
        try:
            with open(f"/proc/{pid}/stat", "rb") as file:
                raw = file.read()
        except OSError:
            return None
        # The command name may hold spaces and brackets: fields count from its last closing one.
        fields = raw[raw.rindex(b")") + 2 :].split()
        return _Stat(fields[0].decode(), int(fields[1]), int(fields[19]))
    import psutil

    try:
        process = psutil.Process(pid)
        with process.oneshot():
            dead = process.status() == psutil.STATUS_ZOMBIE
            return _Stat("Z" if dead else "R", process.ppid(), int(process.create_time() * 1000))
    except psutil.Error:
        return None
