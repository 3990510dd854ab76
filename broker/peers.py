"""The broker's side of the wire: who is connected, proven by the kernel, and sending to them without ever blocking.

Owns the ROUTER socket. A peer is a connection whose uid and pid the kernel told (libzmq's ``Peer-Address``); what a
message claims of its sender counts for nothing (EN-05). A peer's death is told by the kernel as well. Messages that a peer
does not read wait in its outbox, bounded in bytes; over the bound the peer is dropped, with the reason in the log.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import zmq

from broker.connection import is_later
from broker.errors import CrossAgentError, ProtocolMismatch, WireError
from broker.processes import ProcessId, identify, open_death_watch
from broker.wire import MAX_MESSAGE, Bye, Failure, Message, decode, encode

_OUTBOX_BYTES = 64 * 1024 * 1024
"""Unsent bytes of one peer: one message of the greatest size."""

_RETRY = 0.05
"""Seconds until a full peer is tried again; libzmq tells nobody when one peer of a ROUTER has room."""

log = logging.getLogger("broker.peers")


@dataclass(eq=False, slots=True)
class Peer:
    """One connection. ``process`` is proven."""

    identity: bytes
    process: ProcessId
    watch: int
    outbox: deque[bytes] = field(default_factory=deque)
    outbox_bytes: int = 0
    role: str = ""


class Peers:
    """Every connection of one broker generation.

    Args:
        received: called in the loop with each message.
        gone: called once when a peer's process has ended or the peer was dropped.
    """

    def __init__(
        self, endpoint: str, generation: int, *, received: Callable[[Peer, Message], None], gone: Callable[[Peer], None]
    ) -> None:
        self._generation = generation
        self._received = received
        self._gone = gone
        self._loop = asyncio.get_running_loop()
        self._peers: dict[bytes, Peer] = {}
        self._refused: set[bytes] = set()
        self._retry: asyncio.TimerHandle | None = None
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._router = self._context.socket(zmq.ROUTER)
        self._router.setsockopt(zmq.ROUTER_MANDATORY, 1)
        self._router.setsockopt(zmq.MAXMSGSIZE, MAX_MESSAGE)
        self._router.setsockopt(zmq.LINGER, 200)
        self._router.setsockopt(zmq.BACKLOG, 4096)  # all shims and MCP processes may come at once, and try only once
        self._path = endpoint.removeprefix("ipc://")
        self._router.bind(endpoint)
        os.chmod(self._path, 0o600)
        self._fd = self._router.fileno()
        self._loop.add_reader(self._fd, self._drain)
        self._loop.call_soon(self._drain)

    @property
    def context(self) -> zmq.Context[zmq.Socket[bytes]]:
        return self._context

    def __len__(self) -> int:
        return len(self._peers)

    def all(self) -> tuple[Peer, ...]:
        return tuple(self._peers.values())

    def send(self, peer: Peer, message: Message) -> None:
        """Sends now or when the peer has room; a peer that is gone gets nothing, and its end is told elsewhere."""
        if peer.identity not in self._peers:
            return
        data = encode(message)
        if peer.outbox or not self._try(peer, data):
            peer.outbox.append(data)
            peer.outbox_bytes += len(data)
            if peer.outbox_bytes > _OUTBOX_BYTES:
                self.drop(peer, "it does not read")
            elif self._retry is None:
                self._retry = self._loop.call_later(_RETRY, self._flush)

    def supersede(self, peer: Peer, role: str) -> None:
        """The process behind ``peer`` plays ``role`` by a new connection: its earlier one in that role is over (case 56)."""
        peer.role = role
        for other in self.all():
            if other is not peer and (other.process, other.role) == (peer.process, role):
                self._forget(other)

    def drop(self, peer: Peer, reason: str) -> None:
        """Lets go of a peer."""
        log.warning("peer %s dropped: %s", peer.process, reason)
        self._try(peer, encode(Bye(self._generation, reason)))
        self._forget(peer)

    def close(self, reason: str) -> None:
        """Tells everybody and closes the socket; gives the last messages a moment to go out."""
        for peer in self.all():
            self._try(peer, encode(Bye(self._generation, reason)))
            self._unwatch(peer)
        self._peers.clear()
        if self._retry is not None:
            self._retry.cancel()
        self._loop.remove_reader(self._fd)
        self._router.close()
        self._context.term()
        try:
            os.unlink(self._path)
        except FileNotFoundError:
            pass

    # receiving

    def _drain(self) -> None:
        """The descriptor of a ZeroMQ socket tells only changes: everything that is there is read, also after a send."""
        if self._router.closed:
            return
        try:
            for _ in range(100):  # other events of the loop get their turn
                frames = self._router.recv_multipart(zmq.NOBLOCK, copy=False)
                if len(frames) == 2:
                    self._handle(bytes(frames[0].buffer), frames[1])
        except zmq.Again:
            return
        except Exception as error:  # a fault of ours at one message must not keep the others waiting
            log.error("a message could not be handled: %s", type(error).__name__, exc_info=error)
        self._loop.call_soon(self._drain)

    def _handle(self, identity: bytes, frame: zmq.Frame) -> None:
        peer = self._peers.get(identity) or self._meet(identity, frame)
        if peer is None:
            return
        try:
            message = decode(frame.buffer)
        except ProtocolMismatch as error:
            self._refuse(peer, error)
            return
        except WireError as error:
            self.send(peer, _failure(error))
            return
        self._received(peer, message)

    def _refuse(self, peer: Peer, error: CrossAgentError) -> None:
        """Answers in words that every version understands: the failure's fields have never changed."""
        log.warning("peer %s: %s", peer.process, error)
        self.send(peer, _failure(error))

    def _meet(self, identity: bytes, frame: zmq.Frame) -> Peer | None:
        if identity in self._refused:
            return None
        try:
            uid, _, pid = str(frame.get("Peer-Address")).rsplit(":", 3)[1:]
        except (zmq.ZMQError, ValueError):
            uid, pid = "", ""
        process = identify(int(pid)) if pid.isdigit() else None
        if any(other.process == process and is_later(other.identity, identity) for other in self._peers.values()):
            self._refused.add(identity)  # its client has given it up and said everything again; a ROUTER keeps no order
            return None
        try:
            watch = open_death_watch(process) if process is not None else None
        except OSError as error:
            log.error("no connection can be taken: %s", error.strerror)  # out of descriptors: it is tried at its next message
            return None
        if uid != str(os.getuid()) or process is None or watch is None:
            self._refused.add(identity)
            log.warning("connection refused: uid %s, pid %s", uid or "unknown", pid or "unknown")
            return None
        peer = Peer(identity, process, watch)
        self._peers[identity] = peer
        self._loop.add_reader(watch, self._died, peer)
        return peer

    # sending

    def _try(self, peer: Peer, data: bytes) -> bool:
        try:
            self._router.send_multipart((peer.identity, data), zmq.NOBLOCK)
        except zmq.Again:
            return False
        except zmq.ZMQError as error:
            if error.errno != zmq.EHOSTUNREACH:
                raise
            return True  # its end is on the way; a registration, not the socket, says who gets what next
        finally:
            self._loop.call_soon(self._drain)
        return True

    def _flush(self) -> None:
        self._retry = None
        for peer in self.all():
            while peer.outbox and self._try(peer, peer.outbox[0]):
                peer.outbox_bytes -= len(peer.outbox.popleft())
            if peer.outbox and self._retry is None:
                self._retry = self._loop.call_later(_RETRY, self._flush)

    # ends

    def _died(self, peer: Peer) -> None:
        self._drain()  # its last words first
        if peer.identity in self._peers:
            self._forget(peer)

    def _forget(self, peer: Peer) -> None:
        if self._peers.pop(peer.identity, None) is not None:
            self._unwatch(peer)
            self._gone(peer)

    def _unwatch(self, peer: Peer) -> None:
        self._loop.remove_reader(peer.watch)
        os.close(peer.watch)


def _failure(error: CrossAgentError) -> Failure:
    return Failure("", error.code, str(error), error.next_step, error.retry_safe)
