"""Where agents tell what became of a message that was handed in at a door (`shims.door.Notice`).

Owns one listening socket in each directory in which an agent looks for it, named by the state directory: the next broker is
found at the same place. Who says it is told with it: only the process that has a message can tell what became of it.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import socket
import stat
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from broker.doors.exchange import behind
from broker.processes import ProcessId
from shims.door import Door, Notice

log = logging.getLogger("broker.doors.ear")

_LONGEST = 1 << 20
_PATIENCE = 10.0
"""Seconds that somebody who has connected may take for a line."""

_LONGEST_PATH = 100
"""Bytes of a socket's path that every system takes (EN-04)."""


class Ear:
    """Listens until it is closed.

    Args:
        home: the state directory.
        heard: told of each notice, and of the process that gave it, None where the kernel does not tell.
    """

    def __init__(self, home: str, heard: Callable[[Notice, ProcessId | None], None]) -> None:
        self._name = f"cross-agent-{hashlib.sha256(home.encode()).hexdigest()[:8]}.sock"
        self._heard = heard
        self._servers: dict[str, asyncio.Server] = {}
        self._made: dict[str, tuple[int, int]] = {}
        """Device and inode of the sockets that are ours: the next broker may have made its own by the time we close."""
        self._opening = asyncio.Lock()

    async def at(self, directory: str, door: Door) -> str:
        """The path of the socket in ``directory``; empty where none can be had: then nothing is told."""
        path = os.path.join(directory, self._name)
        async with self._opening:
            if path in self._servers and os.path.exists(path):
                return path
            if len(os.fsencode(path)) > _LONGEST_PATH or not _is_private(directory):
                return ""
            try:
                await self._close(path)
                self._servers[path] = await self._listening(path, door)
            except OSError as error:
                log.warning("no socket for news of messages: %s", error.strerror)
                return ""
        return path

    def close(self) -> None:
        for path, server in self._servers.items():
            server.close()
            with suppress(OSError):
                if _identity(path) == self._made.get(path):
                    os.unlink(path)
        self._servers.clear()

    async def _close(self, path: str) -> None:
        """What stands at ``path``: ours, whose directory was emptied, or that of a broker that is gone."""
        if (server := self._servers.pop(path, None)) is not None:
            server.close()
        with suppress(FileNotFoundError):
            if stat.S_ISSOCK(os.lstat(path).st_mode):
                os.unlink(path)

    async def _listening(self, path: str, door: Door) -> asyncio.Server:
        made = socket.socket(socket.AF_UNIX)
        try:
            made.bind(path)
            os.chmod(path, 0o600)
            self._made[path] = _identity(path)
            return await asyncio.start_unix_server(partial(self._hear, door), sock=made, limit=_LONGEST)
        except BaseException:  # raised again: whatever it is, no socket is left open
            made.close()
            raise

    async def _hear(self, door: Door, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            teller = behind(writer.get_extra_info("socket"))
            while line := await asyncio.wait_for(reader.readline(), _PATIENCE):
                notice = door.notice(line.rstrip(b"\n"))
                if notice is not None:
                    self._heard(notice, teller)
        except (asyncio.TimeoutError, OSError, ValueError):
            pass  # whoever speaks there is owed nothing
        finally:
            writer.close()


def _identity(path: str) -> tuple[int, int]:
    status = os.lstat(path)
    return status.st_dev, status.st_ino


def _is_private(directory: str) -> bool:
    """Whether nobody but this user can put anything there."""
    try:
        status = os.stat(directory)
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o022
