"""Pieces of work in the loop, each a task of its own: one that fails is logged and takes no other with it (EN-25)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any


class Tasks:
    """The work of one part of the broker; ``log`` is where its failures go."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._running: set[asyncio.Task[None]] = set()

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._running.add(task)
        task.add_done_callback(self._done)

    def cancel(self) -> None:
        for task in self._running:
            task.cancel()

    async def gone(self, patience: float) -> None:
        """Waits, at most ``patience`` seconds, until what was cancelled has ended: in its last steps it lets go of processes."""
        if self._running:
            await asyncio.wait(self._running, timeout=patience)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._log.error("work failed: %s", type(error).__name__, exc_info=error)
