"""Whether the loop ever stood still: a debug mode that notes every gap (EN-25).

Owns a beat and the lines in the log about beats that came late. Time for which the machine gave us no processor is told
apart where the kernel tells it (Linux): that is nobody's fault here. It counts for the loop's thread and for the one other
that was kept waiting longest, which may have held the interpreter meanwhile. Off, nothing beats.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading

log = logging.getLogger("broker.gaps")

LONGEST = 0.05
"""Seconds that the loop may stand still."""

_BEAT = 0.01

_THREADS = "/proc/self/task"


class Gaps:
    """Watches the loop that it is made in."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._thread = str(threading.get_native_id())
        self._files: dict[str, int] = {}
        self._waited = self._processor_waited()
        self._due = self._loop.time() + _BEAT
        self._timer = self._loop.call_at(self._due, self._beat)

    def close(self) -> None:
        self._timer.cancel()
        for file in self._files.values():
            os.close(file)
        self._files.clear()

    def _beat(self) -> None:
        before, now, after = self._processor_waited(), self._loop.time(), self._processor_waited()
        # From before the last beat to after this one: we may be kept waiting between looking at a clock and at the other.
        new = {thread: total - self._waited.get(thread, 0.0) for thread, total in after.items()}
        late, starved = now - self._due, new.pop(self._thread, 0.0) + max(new.values(), default=0.0)
        if late - starved > LONGEST:
            log.warning(
                "the loop stood still for %.0f ms, and %.0f ms for want of a processor", (late - starved) * 1e3, starved * 1e3
            )
        self._waited = before
        self._due = now + _BEAT
        self._timer = self._loop.call_at(self._due, self._beat)

    def _processor_waited(self) -> dict[str, float]:
        """Seconds that each of our threads was ready to run and was not let."""
        waited = {}
        for thread in os.listdir(_THREADS) if os.path.isdir(_THREADS) else ():
            try:
                if thread not in self._files:  # kept open: each call here hands the interpreter over, and waits for it again
                    self._files[thread] = os.open(f"{_THREADS}/{thread}/schedstat", os.O_RDONLY | os.O_CLOEXEC)
                waited[thread] = int(os.pread(self._files[thread], 100, 0).split()[1]) / 1e9
            except (OSError, ValueError, IndexError):
                continue  # it has ended meanwhile, or is not told of on this system
        for thread in self._files.keys() - waited.keys():
            os.close(self._files.pop(thread))
        return waited
