"""Whether the loop ever stood still: a debug mode that notes every gap (EN-25).

Owns a beat and the lines in the log about beats that came late. Time for which the machine gave this thread no processor is
told apart where the kernel tells it (Linux): that is nobody's fault here. Off, nothing beats.
"""

from __future__ import annotations

import asyncio
import logging
import threading

log = logging.getLogger("broker.gaps")

LONGEST = 0.05
"""Seconds that the loop may stand still."""

_BEAT = 0.01


class Gaps:
    """Watches the loop that it is made in."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._statistics = f"/proc/self/task/{threading.get_native_id()}/schedstat"
        self._waited = self._processor_waited()
        self._due = self._loop.time() + _BEAT
        self._timer = self._loop.call_at(self._due, self._beat)

    def close(self) -> None:
        self._timer.cancel()

    def _beat(self) -> None:
        now, waited = self._loop.time(), self._processor_waited()
        late, starved = now - self._due, waited - self._waited
        if late - starved > LONGEST:
            log.warning(
                "the loop stood still for %.0f ms, and %.0f ms for want of a processor", (late - starved) * 1e3, starved * 1e3
            )
        self._waited = waited
        self._due = now + _BEAT
        self._timer = self._loop.call_at(self._due, self._beat)

    def _processor_waited(self) -> float:
        """Seconds that this thread was ready to run and was not let."""
        try:
            with open(self._statistics, encoding="ascii") as file:
                return int(file.read().split()[1]) / 1e9
        except (OSError, ValueError, IndexError):
            return 0.0
