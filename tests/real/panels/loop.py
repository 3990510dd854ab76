"""An event loop in a thread of its own, for clients that are asynchronous while the tests are not.

Owns that thread and that loop; whatever runs in it belongs to the panel.
"""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any, TypeVar

from .record import WAIT

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

T = TypeVar("T")


class LoopThread:
    """Runs until ``stop``."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def call(self, work: Coroutine[Any, Any, T], timeout: float = WAIT) -> T:
        """What ``work`` returns or raises, as soon as it has."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout)

    def soon(self, work: Callable[..., object], *arguments: object) -> None:
        """Call ``work`` in the loop, without a wait."""
        self._loop.call_soon_threadsafe(work, *arguments)

    def stop(self, timeout: float) -> None:
        self.soon(self._loop.stop)
        self._thread.join(timeout)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()
