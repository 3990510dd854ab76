"""What happens, as it happens: one numbered stream for monitors.

Owns the XPUB socket and the memory of recent events. An event carries the broker's generation and a sequence number, so
that a reader knows what it missed and asks for it; it never carries the text of a message, an approval or a tool input.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from typing import Any

import msgpack
import zmq

_REMEMBERED = 4096
"""Events kept for readers that missed some; a slow subscriber loses most of a burst."""


class Events:
    """The event stream of one broker generation."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], endpoint: str, generation: int) -> None:
        self._generation = generation
        self._sequence = 0
        self._next: asyncio.Future[None] | None = None
        self._recent: deque[dict[str, Any]] = deque(maxlen=_REMEMBERED)
        self._socket = context.socket(zmq.XPUB)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.setsockopt(zmq.SNDHWM, _REMEMBERED)
        self._socket.bind(endpoint)
        self._path = endpoint.removeprefix("ipc://")

    @property
    def sequence(self) -> int:
        """The number of the latest event: what a snapshot taken now includes."""
        return self._sequence

    def publish(self, kind: str, **facts: str | float | bool) -> None:
        self._sequence += 1
        event = {"generation": self._generation, "sequence": self._sequence, "kind": kind, **facts}
        self._recent.append(event)
        if self._next is not None:
            self._next.set_result(None)
            self._next = None
        try:
            self._socket.send(msgpack.packb(event, unicode_errors="surrogateescape"), zmq.NOBLOCK)
        except zmq.Again:
            pass  # the reader sees the gap in the numbers and asks

    async def next(self, after: int, patience: float) -> int:
        """Waits, at most ``patience`` seconds, for an event after number ``after``; returns the latest number."""
        if self._sequence <= after:
            if self._next is None:
                self._next = asyncio.get_running_loop().create_future()
            await asyncio.wait((self._next,), timeout=patience)
        return self._sequence

    def since(self, sequence: int) -> list[dict[str, Any]] | None:
        """The events after ``sequence``; None when some of them are forgotten: take a snapshot."""
        if self._recent and sequence < self._recent[0]["sequence"] - 1:
            return None
        return [event for event in self._recent if event["sequence"] > sequence]

    def close(self) -> None:
        self._socket.close()
        try:
            os.unlink(self._path)
        except FileNotFoundError:
            pass
