"""Codex's writer locks: which process holds which thread.

Owns the look at who holds the files of ``<store>/thread-writer-locks``; never takes a lock. The process that has a thread
loaded holds ``<thread>.lock`` with ``flock`` for as long as it has it loaded; the kernel frees it after a kill. Measured
with codex-cli 0.147.0 and 0.171.0 (protocols: codex.md, section 3).
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from broker.processes import ProcessId, identify


def store(environment: Mapping[str, str]) -> str:
    """Codex's data directory as a process with ``environment`` sees it."""
    return environment.get("CODEX_HOME") or os.path.join(os.path.expanduser("~"), ".codex")


def holders(store: str, thread: str) -> list[ProcessId]:
    """The processes that have ``thread`` loaded, as far as the kernel tells (Linux: ``/proc/locks``)."""
    try:
        inode = os.stat(_lock(store, thread)).st_ino
        with open("/proc/locks", encoding="ascii") as file:
            lines = [line.split() for line in file]
    except OSError:
        return []
    pids = {int(fields[4]) for fields in lines if len(fields) > 5 and fields[1] == "FLOCK" and fields[5].endswith(f":{inode}")}
    return [process for process in map(identify, sorted(pids)) if process is not None]


def _lock(store: str, thread: str) -> str:
    return os.path.join(store, "thread-writer-locks", f"{thread}.lock")
