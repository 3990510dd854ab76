"""The clocks: one that stands still while the machine sleeps, for patience; one that goes on, for orders that must not be carried
out hours too late; and wall time for records.

The first two are the same in every process of the machine and are never set. Nothing expires because a laptop slept.
"""

from __future__ import annotations

import time

_BOOT: int = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)  # macOS: CLOCK_MONOTONIC counts suspend


def boot_clock() -> float:
    """Seconds since some moment of this boot, suspend included."""
    return time.clock_gettime(_BOOT)


_AWAKE: int = getattr(time, "CLOCK_UPTIME_RAW", time.CLOCK_MONOTONIC)  # Linux: CLOCK_MONOTONIC stands still during suspend


def awake_clock() -> float:
    """Seconds since some moment of this boot, suspend left out."""
    return time.clock_gettime(_AWAKE)


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
