"""What the kernel says of a process: CPU, memory, wake-ups. Linux only."""

from __future__ import annotations

from pathlib import Path


def cpu_ms(pid: int) -> float:
    """CPU time of all threads so far, in milliseconds, as the scheduler accounts it."""
    total = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        total += int((task / "schedstat").read_text().split()[0])
    return total / 1e6


def rss_mib(pid: int) -> float:
    """Resident memory in MiB, shared pages included."""
    return _status(pid, "VmRSS") / 1024


def peak_mib(pid: int) -> float:
    """The most resident memory it ever had, in MiB."""
    return _status(pid, "VmHWM") / 1024


def wakeups(pid: int) -> int:
    """How often any thread has been put on a processor again after waiting."""
    return sum(
        int(line.split()[1])
        for task in Path(f"/proc/{pid}/task").iterdir()
        for line in (task / "status").read_text().splitlines()
        if line.startswith(("voluntary_ctxt_switches", "nonvoluntary_ctxt_switches"))
    )


def _status(pid: int, name: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1])
    raise LookupError(f"{name} of {pid}")
