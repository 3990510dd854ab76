"""Everything that a panel received, in order, with a way to wait for more.

Owns the list and its condition; never drops, reorders or interprets a message.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

WAIT: Final = 30.0
"""Default bound of every wait of a panel: agents answer within a second, a loaded machine within ten."""


class StreamEndedError(RuntimeError):
    """The agent's output ended before what was waited for came."""


@dataclass(frozen=True, slots=True)
class Received(Generic[T]):
    """One message and the monotonic time of its arrival."""

    at: float
    message: T


class Record(Generic[T]):
    """A growing list; positions in it never change."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._changed = threading.Condition()
        self._items: list[Received[T]] = []
        self._ended: str | None = None

    def __len__(self) -> int:
        with self._changed:
            return len(self._items)

    def snapshot(self) -> list[Received[T]]:
        with self._changed:
            return list(self._items)

    def messages(self) -> list[T]:
        return [item.message for item in self.snapshot()]

    def add(self, message: T) -> None:
        with self._changed:
            self._items.append(Received(time.monotonic(), message))
            self._changed.notify_all()

    def end(self, why: str) -> None:
        """Nothing will follow: everybody who waits is told now rather than at his deadline."""
        with self._changed:
            self._ended = self._ended or why
            self._changed.notify_all()

    def wait(self, predicate: Callable[[T], bool], timeout: float = WAIT, *, after: int = 0) -> T:
        """The first message at position ``after`` or later that satisfies ``predicate``.

        Raises:
            StreamEndedError: the stream ended without it.
            TimeoutError: it did not come in time; the text ends with the newest messages.
        """
        deadline = time.monotonic() + timeout
        at = after
        with self._changed:
            while True:
                while at < len(self._items):
                    if predicate(self._items[at].message):
                        return self._items[at].message
                    at += 1
                if self._ended is not None:
                    raise StreamEndedError(f"{self._name} ended: {self._ended}\n{self._tail()}")
                left = deadline - time.monotonic()
                if left <= 0:
                    raise TimeoutError(f"{self._name}: nothing matched within {timeout} s\n{self._tail()}")
                self._changed.wait(left)

    def _tail(self) -> str:
        return "\n".join(str(item.message)[:400] for item in self._items[-12:])
