"""The clocks: one that counts suspend, for deadlines that cross processes, and wall time for records.

`boot_clock` is the same in every process of the machine and never set; it goes on during suspend, so that a laptop that
slept does not hand over what is hours too late.
"""

from __future__ import annotations

import time

_BOOT: int = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)  # macOS: CLOCK_MONOTONIC counts suspend


def boot_clock() -> float:
    """Seconds since some moment of this boot, suspend included."""
    return time.clock_gettime(_BOOT)


def wall_clock() -> float:
    """Seconds since the epoch: for records and for people, never for waiting."""
    return time.time()


def boot_id() -> str:
    """Names this boot of the machine, as far as the system tells."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return str(round((wall_clock() - boot_clock()) / 60))  # to the minute: a set clock looks like a boot, which is harmless
