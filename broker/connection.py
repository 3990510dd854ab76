"""One connection to one broker generation: the client's end of the wire.

Owns the DEALER socket and its name. Nothing here blocks on a send, or uses a socket for two generations: a DEALER without its
broker would queue and deliver later, to the next one (ghost sends).
"""

from __future__ import annotations

import _thread
import mmap
import os
from collections import deque

import zmq

from broker.rendezvous import BrokerRecord
from broker.wire import MAX_MESSAGE, Message, decode, encode

CLIENT_BYTES = 9
"""Of a connection's identity: they name the client, and the rest numbers its connections."""

_LAST_WORDS = 100
"""Milliseconds that a message of a broker that has died may still take through our own end of the connection."""

_OUTBOX_BYTES = 64 * 1024 * 1024
"""Unsent bytes of one connection before it is given up; nobody needs a queue that never drains."""

_DESCRIPTORS = 16
_THREADS = 3
_ADDRESS_SPACE = 400 << 20
"""What the first connection takes at most, and some for whatever else goes on (measured with libzmq 4.3 and glibc: 12, 2, and
two stacks and arenas of 136 MiB, little of which is ever used)."""


def is_later(identity: bytes, other: bytes) -> bool:
    """Whether these are two connections of one client, and ``identity`` was opened after ``other``."""
    return identity[:CLIENT_BYTES] == other[:CLIENT_BYTES] and identity > other


def room_for_a_connection() -> bool:
    """Whether libzmq will get what it asks for: without, it does not fail, it ends the whole process, and the agent with it."""
    taken: list[int] = []
    gate = _thread.allocate_lock()
    with gate:
        try:
            for _ in range(_DESCRIPTORS):
                taken.append(os.dup(0))
            mmap.mmap(-1, _ADDRESS_SPACE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANON, prot=0).close()
            for _ in range(_THREADS):
                _thread.start_new_thread(_pass, (gate,))
        except (OSError, RuntimeError, MemoryError):
            return False
        finally:
            for fd in taken:
                os.close(fd)
    return True


def _pass(gate: _thread.LockType) -> None:
    with gate:
        pass


class Connection:
    """A DEALER socket to one broker. Not thread-safe.

    Args:
        identity: its name among all connections of the broker; the broker gives one if it is empty.
    """

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], record: BrokerRecord, death: int, identity: bytes = b"") -> None:
        self.record = record
        self.death = death
        self.answered = False
        """Whether the broker has said anything on it, which it does only to who has said something before."""
        self.socket = context.socket(zmq.DEALER)
        if identity:
            self.socket.setsockopt(zmq.ROUTING_ID, identity)
        # A connection that breaks is over: a new socket is made for whoever is there then.
        for option, value in (
            (zmq.IMMEDIATE, 1),
            (zmq.LINGER, 0),
            (zmq.RECONNECT_IVL, -1),
            (zmq.HANDSHAKE_IVL, 0),  # a broker that hangs may take it up for as long as it is open
            (zmq.MAXMSGSIZE, MAX_MESSAGE),
        ):
            self.socket.setsockopt(option, value)
        self.socket.connect(record.endpoint)
        self._outbox: deque[bytes] = deque()
        self._outbox_bytes = 0

    @property
    def wanted(self) -> int:
        """The poll events that this connection waits for now."""
        return zmq.POLLIN | zmq.POLLOUT if self._outbox else zmq.POLLIN

    def send(self, message: Message) -> bool:
        """Queues ``message`` and sends what can be sent. False: the outbox is over its bound, give the connection up."""
        data = encode(message)
        self._outbox.append(data)
        self._outbox_bytes += len(data)
        self.flush()
        return self._outbox_bytes <= _OUTBOX_BYTES

    def flush(self) -> None:
        while self._outbox:
            try:
                self.socket.send(self._outbox[0], zmq.NOBLOCK)
            except zmq.Again:
                return
            self._outbox_bytes -= len(self._outbox.popleft())

    def receive(self) -> list[Message]:
        """Every message that is here now.

        Raises:
            WireError: the broker speaks another protocol.
        """
        messages: list[Message] = []
        while True:
            try:
                data = self.socket.recv(zmq.NOBLOCK)
            except zmq.Again:
                return messages
            self.answered = True
            messages.append(decode(data))

    def last_words(self) -> bool:
        """The broker has died: whether something that it said before is still on its way to us."""
        return bool(self.socket.poll(_LAST_WORDS))

    def close(self) -> None:
        self.socket.close(0)
        os.close(self.death)
