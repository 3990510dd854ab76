"""An answer handed to a session by its own child: the MCP process that the session has started (LD-08).

Owns who of the MCP processes that are connected is whose child, and the orders to them. An agent may take from its own child
what it holds back from strangers; the words, and what proves the child, are the agent's folder's and the agent's.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from itertools import count

from broker.peers import Peer
from broker.processes import ProcessId, ancestors
from broker.wire import McpPost, McpPosted

_PATIENCE = 5.0


class Children:
    """The MCP processes that can post. ``send`` sends to one."""

    def __init__(self, send: Callable[[Peer, McpPost], None]) -> None:
        self._send = send
        self._peers: dict[Peer, ProcessId] = {}
        self._numbers = count(secrets.randbits(40))  # what was asked by an earlier broker may be answered to this one
        self._waiting: dict[int, tuple[Peer, asyncio.Future[bool]]] = {}

    def opened(self, peer: Peer) -> None:
        self._peers[peer] = peer.process

    def closed(self, peer: Peer) -> None:
        self._peers.pop(peer, None)
        for asked, done in list(self._waiting.values()):
            if asked is peer and not done.done():
                done.set_result(False)

    def posted(self, peer: Peer, message: McpPosted) -> None:
        asked, done = self._waiting.get(message.number, (None, None))
        if asked is peer and done is not None and not done.done():
            done.set_result(message.carried)

    async def of(self, parent: ProcessId) -> list[Peer]:
        """Those whose nearest ancestor is ``parent``, the newest first: a shell between them would show."""
        peers = list(reversed(self._peers.items()))
        above = await asyncio.gather(*(asyncio.to_thread(ancestors, process.pid) for _, process in peers))
        return [peer for (peer, _), line in zip(peers, above, strict=True) if parent in line[1:2]]

    async def post(self, peer: Peer, socket: str, data: bytes) -> bool | None:
        """Has ``peer`` write ``data`` to a socket. False: nothing left; None: nobody knows."""
        number = next(self._numbers)
        done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting[number] = (peer, done)
        try:
            self._send(peer, McpPost(number, socket, data))
            return await asyncio.wait_for(done, _PATIENCE)
        except asyncio.TimeoutError:
            return None
        finally:
            del self._waiting[number]
