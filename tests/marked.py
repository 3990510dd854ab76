"""Processes that a run of tests caused: each carries ``CROSS_AGENT_TEST_MARK`` with the mark of the run.

Owns the finding of them by that mark, and their end: nobody else's process is ever touched.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from pathlib import Path
from typing import Final

MARK: Final = "CROSS_AGENT_TEST_MARK"


def end_left_behind(mark: str, grace: float) -> dict[int, str]:
    """Ends what is still there after ``grace`` seconds; the pids and the command lines of those processes."""
    left = _outlive(mark, time.monotonic() + grace)
    for pid in left:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue  # ended meanwhile, but too late all the same
    return left


def _outlive(mark: str, deadline: float) -> dict[int, str]:
    """Marked processes that are still there at ``deadline``, with their command lines."""
    while marked := _marked_processes(mark):
        left = deadline - time.monotonic()
        if left <= 0:
            break
        _wait_for_an_end(list(marked), left)
    return marked


def _wait_for_an_end(pids: list[int], seconds: float) -> None:
    watches = []
    try:
        for pid in pids:
            watches.append(os.pidfd_open(pid))
        select.select(watches, [], [], seconds)
    except ProcessLookupError:
        return
    finally:
        for watch in watches:
            os.close(watch)


def _marked_processes(mark: str) -> dict[int, str]:
    if sys.platform != "linux":
        return {}
    needle = f"{MARK}={mark}".encode()
    found = {}
    for entry in os.scandir("/proc"):
        if not entry.name.isdecimal() or int(entry.name) == os.getpid():
            continue
        try:
            environment = Path(entry.path, "environ").read_bytes()
            command = Path(entry.path, "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue  # gone, or somebody else's
        if needle in environment.split(b"\0"):
            found[int(entry.name)] = command.strip()
    return found
