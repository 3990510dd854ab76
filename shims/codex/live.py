"""Codex's writer locks: which process holds which thread.

Owns the look at who holds the files of ``<store>/thread-writer-locks``; never takes a lock. The process that has a thread
loaded holds ``<thread>.lock`` with ``flock`` for as long as it has it loaded; the kernel frees it after a kill. Measured
with codex-cli 0.147.0 and 0.171.0 (protocols: codex.md, section 3).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from broker.processes import ProcessId, identify


def store(environment: Mapping[str, str]) -> str:
    """Codex's data directory as a process with ``environment`` sees it."""
    return environment.get("CODEX_HOME") or os.path.join(os.path.expanduser("~"), ".codex")


def holders(store: str, thread: str) -> list[ProcessId]:
    """The processes that have ``thread`` loaded, as far as the kernel tells (Linux: ``/proc/locks``)."""
    try:
        inode = os.stat(_lock(store, thread)).st_ino
    except OSError:
        return []
    return list(holding(store, {str(inode): thread}).get(thread, ()))


def holding(store: str, threads: Mapping[str, str]) -> dict[str, tuple[ProcessId, ...]]:
    """The same for many: ``threads`` by the inodes that their locks had. The kernel's list is read once."""
    pids: dict[str, set[int]] = {}
    for lock in _flocks() if threads else ():
        thread = threads.get(lock.inode)
        if thread is not None and _is_on(_lock(store, thread), lock):
            pids.setdefault(thread, set()).add(lock.pid)
    found = {thread: tuple(filter(None, map(identify, sorted(holders)))) for thread, holders in pids.items()}
    return {thread: holders for thread, holders in found.items() if holders}


class _Flock(NamedTuple):
    device: str
    inode: str
    pid: int


def _flocks() -> Iterator[_Flock]:
    """Each ``flock`` that is held now, as the kernel tells; those who wait for one are left out."""
    try:
        with open("/proc/locks", encoding="ascii") as file:
            for line in file:
                fields = line.split()
                if len(fields) > 5 and fields[1] == "FLOCK":
                    device, _, inode = fields[5].rpartition(":")
                    yield _Flock(device, inode, int(fields[4]))
    except OSError:
        return


def _is_on(path: str, lock: _Flock) -> bool:
    """Whether ``lock`` is on the file at ``path``: a freed inode is soon somebody else's, and each file system counts its own."""
    try:
        status = os.stat(path)
    except OSError:
        return False
    if str(status.st_ino) != lock.inode:
        return False
    if lock.device == f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}":
        return True
    return _has_open(lock.pid, status)


def _has_open(pid: int, status: os.stat_result) -> bool:
    """Where a file's device is not the one that the kernel counts its locks by (btrfs, overlays), its holder has it open."""
    try:
        descriptors = os.listdir(f"/proc/{pid}/fd")
    except OSError:
        return False
    for descriptor in descriptors:
        try:
            if os.path.samestat(os.stat(f"/proc/{pid}/fd/{descriptor}"), status):
                return True
        except OSError:
            continue
    return False


def _lock(store: str, thread: str) -> str:
    return os.path.join(store, "thread-writer-locks", f"{thread}.lock")
