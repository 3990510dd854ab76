"""Hearing a runner: the FIFO by which it tells that there is something new in the files of its turn."""

from __future__ import annotations

import asyncio
import os


class Bell:
    """The FIFO by which a runner tells that there is something new."""

    def __init__(self, path: str) -> None:
        self._loop = asyncio.get_running_loop()
        self._news = asyncio.Event()
        self._ends: list[int] = []
        try:
            self._ends.append(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC))
            self._ends.append(os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC))  # else it ends with each ringing
            self._loop.add_reader(self._ends[0], self._ring)
        except OSError:
            pass  # the end of the process tells as well

    async def rung(self) -> None:
        await self._news.wait()
        self._news.clear()

    def close(self) -> None:
        if len(self._ends) == 2:
            self._loop.remove_reader(self._ends[0])
        for end in self._ends:
            os.close(end)
        self._ends.clear()

    def _ring(self) -> None:
        try:
            os.read(self._ends[0], 1 << 10)
        except BlockingIOError:
            return
        self._news.set()
