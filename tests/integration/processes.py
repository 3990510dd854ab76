"""Looking at processes that are not our children: gone or not, stopped or not, how large."""

from __future__ import annotations

import os
import select
import time
from pathlib import Path


def gone_within(pid: int, seconds: float) -> bool:
    """Waits for the end of ``pid``; a zombie has ended."""
    try:
        watch = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([watch], [], [], seconds)[0])
    finally:
        os.close(watch)


def state(pid: int) -> str:
    """The kernel's letter for what ``pid`` does: R, S, T, Z …"""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def reaches_state(pid: int, wanted: str, seconds: float) -> bool:
    """Whether ``pid`` gets to one of the ``wanted`` states. The kernel offers no event for it, so this looks again."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if state(pid) in wanted:
            return True
        os.sched_yield()
    return False


def appears(path: Path, pattern: str, seconds: float = 10.0) -> Path:
    """The first file below ``path`` that fits ``pattern``, once there is one."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = next(path.glob(pattern), None)
        if found is not None:
            return found
        select.select([], [], [], 0.005)
    raise AssertionError(f"no {pattern} in {path} after {seconds} s")


def resident_kib(pid: int) -> int:
    """Memory of ``pid`` now, the peak being what counts for a bound (VmHWM)."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1])
    return 0
