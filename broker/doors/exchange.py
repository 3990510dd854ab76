"""One conversation through an agent's door: a socket, a WebSocket, or a program of the agent's own (`shims.door`).

Owns connections and their ends, who must be behind a socket, and the bounds in time; what is said is the agent's folder's. One
that fails tells whether the words had left by then: only what never left may be handed in again.
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from typing import Protocol

from broker.processes import ProcessId, identify
from shims.door import Opening, Outcome, Said, Talk, Way

PATIENCE = 10.0
"""Seconds that a conversation may take; a leader that loads its servers takes two."""

_LONGEST = 64 << 20
"""Bytes of one message of an agent's: it tells of other sessions as well, with all their words."""

_END = 2.0
"""Seconds that a program of the agent's gets to end by itself."""


class DoorError(Exception):
    """The conversation could not be held. ``carried``: the words may have left."""

    def __init__(self, reason: str, *, carried: bool) -> None:
        super().__init__(reason)
        self.reason = reason
        self.carried = carried


@dataclass(frozen=True, slots=True)
class Hooks:
    """What happens right before and after the words leave."""

    before: Callable[[], None] = lambda: None
    after: Callable[[], None] = lambda: None


class _Connection(Protocol):
    async def send(self, message: bytes) -> None: ...

    async def receive(self) -> bytes:
        """The next message. Raises OSError, EOFError, ValueError."""
        ...


async def converse(opening: Opening, talk: Talk, environment: Mapping[str, str], cwd: str, hooks: Hooks | None = None) -> Said:
    """How the conversation ended.

    Args:
        environment, cwd: of a program that is started for it.

    Raises:
        DoorError: it could not be held, or not in time.
    """
    carried = False
    concluded: Said | None = None

    async def say(connection: _Connection, said: Said) -> None:
        nonlocal carried
        for number, message in enumerate(said.messages, 1):
            last = said.carries and number == len(said.messages)
            if last and hooks is not None:
                hooks.before()
            carried = carried or last
            await connection.send(message)
            if last and hooks is not None:
                hooks.after()

    async def through() -> Said:
        nonlocal concluded
        async with _connection(opening, environment, cwd) as connection:
            said = talk.begin()
            await say(connection, said)
            while said.outcome is Outcome.OPEN:
                said = talk.heard(await connection.receive())
                await say(connection, said)
            concluded = said  # whatever the end of the connection comes to
            return said

    try:
        return await asyncio.wait_for(through(), PATIENCE)
    except asyncio.TimeoutError:
        reason = f"it gave no answer for {PATIENCE:.0f} s"
    except (OSError, EOFError, ValueError) as error:
        reason = f"the connection failed ({type(error).__name__})"
    if concluded is not None:
        return concluded
    raise DoorError(reason, carried=carried)


@asynccontextmanager
async def _connection(opening: Opening, environment: Mapping[str, str], cwd: str) -> AsyncIterator[_Connection]:
    if opening.way is Way.PROGRAM:
        async with _program(opening.argv, environment, cwd) as program:
            yield program
        return
    connected = await _connected(opening)
    if opening.way is Way.SOCKET:
        reader, writer = await asyncio.open_unix_connection(sock=connected, limit=_LONGEST)
        try:
            yield _Lines(reader, writer)
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()
        return
    async with _websocket(connected) as frames:
        yield frames


async def _connected(opening: Opening) -> socket.socket:
    """Raises OSError; PermissionError when somebody else listens there than should."""
    made = socket.socket(socket.AF_UNIX)
    try:
        made.setblocking(False)
        await asyncio.get_running_loop().sock_connect(made, opening.socket)
        if opening.listener is not None and behind(made) not in (None, opening.listener):
            raise PermissionError("another process listens there")
    except BaseException:  # raised again, also when nobody waits any more: no socket is left open
        made.close()
        raise
    return made


def behind(connected: socket.socket) -> ProcessId | None:
    """Who is at the other end, None where the kernel does not tell. Raises PermissionError for another user's."""
    if not hasattr(socket, "SO_PEERCRED"):
        return None
    pid, uid, _ = struct.unpack("3i", connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    if uid != os.getuid():
        raise PermissionError("another user is there")
    return identify(pid)


class _Lines:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def send(self, message: bytes) -> None:
        self._writer.write(message + b"\n")
        await self._writer.drain()

    async def receive(self) -> bytes:
        line = await self._reader.readline()
        if not line.endswith(b"\n"):
            raise EOFError
        return line[:-1]


@asynccontextmanager
async def _program(argv: tuple[str, ...], environment: Mapping[str, str], cwd: str) -> AsyncIterator[_Lines]:
    loop = asyncio.get_running_loop()
    transport, protocol = await loop.subprocess_exec(
        lambda: asyncio.subprocess.SubprocessStreamProtocol(_LONGEST, loop),
        *argv,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env=dict(environment),
        cwd=cwd or None,
        start_new_session=True,
    )
    process = asyncio.subprocess.Process(transport, protocol, loop)
    assert process.stdin is not None and process.stdout is not None
    try:
        yield _Lines(process.stdout, process.stdin)
    finally:
        process.stdin.close()
        try:
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(process.wait(), _END)
        finally:
            transport.close()  # kills it; and what it has started may keep its output open for ever
            await process.wait()


@asynccontextmanager
async def _websocket(connected: socket.socket) -> AsyncIterator[_Connection]:
    # Its import takes longer than the loop may stand still.
    client = await asyncio.to_thread(import_module, "websockets.asyncio.client")
    errors = await asyncio.to_thread(import_module, "websockets.exceptions")

    class Frames:
        async def send(self, message: bytes) -> None:
            await frames.send(message.decode())

        async def receive(self) -> bytes:
            received = await frames.recv()
            return received.encode() if isinstance(received, str) else received

    try:
        async with client.unix_connect(
            sock=connected, uri="ws://localhost/", max_size=_LONGEST, compression=None, open_timeout=PATIENCE, close_timeout=_END
        ) as frames:
            yield Frames()
    except errors.WebSocketException as error:
        raise EOFError from error
