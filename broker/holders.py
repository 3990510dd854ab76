"""The processes that hold a session, and when they let go of it.

Owns waiting for whoever could still write a session's records, and the one case in which an end is none: an agent whose
queue outlives its process (Codex) runs what waits there in the process that opens the session next. Judges nothing.
"""

from __future__ import annotations

import asyncio
import os

from broker.panels import Panels
from broker.processes import ProcessId, ancestors, open_death_watch
from shims.agent import agent

_WATCH_AGAIN = 1.0

_GONE = 900.0
"""Seconds that the holders of a session are waited for; a process that outlives its panel that long decides nothing. An
answer that it writes meanwhile is found by `watch` (DE-34)."""

_STILL = 2.0
"""Seconds without a turn after which nothing is about to begin. Codex takes a message out of its queue a moment before the
turn is told of, and writes it into the records up to 1 s after that (its MCP servers start first; 0.154.0, 0.171.0)."""

_LOOK_AGAIN = 30.0


class Holders:
    """Who holds which session. ``panels`` are those that a shim of ours attends."""

    def __init__(self, panels: Panels) -> None:
        self._panels = panels
        self._registration = asyncio.Event()
        """Set at the next registration, and then replaced."""

    def registered(self) -> None:
        """A shim has registered: a process that was a stranger may be attended now."""
        self._registration.set()
        self._registration = asyncio.Event()

    async def of(self, name: str, store: str, session: str) -> list[ProcessId]:
        """The processes that hold ``session`` of agent ``name`` now."""
        return await asyncio.get_running_loop().run_in_executor(None, agent(name).holders, store, session)

    async def gone(self, child: ProcessId | None, name: str, store: str, session: str) -> bool:
        """Waits until the agent ``child`` of a dead shim, and whoever else holds the session unseen by us, is gone.

        False: they stay. A living panel of ours is no obstacle: it began after the one that died, and has its own shim.
        """
        deadline = asyncio.get_running_loop().time() + _GONE
        if child is not None and not await gone(child, deadline):
            return False
        while session:
            strangers = [process for process in await self.of(name, store, session) if not self._attended(process)]
            if not strangers:
                return True
            if not await self._gone_or_attended(strangers[0], deadline):
                return False
        return True

    async def opened_again(self, name: str, store: str, session: str) -> bool:
        """Whether someone has opened the session since, who may be running what its last process left waiting."""
        return agent(name).queue_outlives and bool(await self.of(name, store, session))

    async def stands_still(self, name: str, session: str) -> None:
        """Waits until no turn is seen to run in a session, nor seen to begin for a moment."""
        loop = asyncio.get_running_loop()
        still = loop.time() + _STILL
        while loop.time() < still:
            if self._runs_turn(name, session):
                await self._panels.change(loop.time() + _LOOK_AGAIN)
                still = loop.time() + _STILL
            else:
                await self._panels.change(still)

    async def opened_and_closed(self, name: str, store: str, session: str) -> None:
        """Waits until a session that nobody holds has been opened by someone who is gone again; or for half a minute."""
        deadline = asyncio.get_running_loop().time() + _LOOK_AGAIN
        while not (held := await self.of(name, store, session)):
            if not await self._panels.change(deadline):
                return
        await gone(held[0], None)

    def _runs_turn(self, name: str, session: str) -> bool:
        states = (panel.session(session) for panel in self._panels.hosting(name, session))
        return any(state is not None and state.turn_since for state in states)

    async def _gone_or_attended(self, process: ProcessId, deadline: float) -> bool:
        """Waits for the end of ``process``, or for a shim to register, which may be the one behind it."""
        registered = asyncio.ensure_future(self._registration.wait())
        ended = asyncio.ensure_future(gone(process, deadline))
        try:
            await asyncio.wait((registered, ended), return_when=asyncio.FIRST_COMPLETED)
            return registered.done() or ended.result()
        finally:
            registered.cancel()
            ended.cancel()

    def _attended(self, process: ProcessId) -> bool:
        return any(self._panels.by_process(ancestor) is not None for ancestor in ancestors(process.pid))


async def gone(process: ProcessId, deadline: float | None) -> bool:
    """Waits for the end of ``process``; False when it outlives ``deadline`` (None: there is none)."""
    loop = asyncio.get_running_loop()
    while True:
        try:
            watch = open_death_watch(process)
            break
        except OSError:  # that it can't be watched does not mean that it is gone
            if deadline is not None and loop.time() > deadline:
                return False
            await asyncio.sleep(_WATCH_AGAIN)
    if watch is None:
        return True
    ended = loop.create_future()

    def resolve() -> None:
        if not ended.done():
            ended.set_result(None)

    loop.add_reader(watch, resolve)
    try:
        await asyncio.wait_for(ended, None if deadline is None else max(0.0, deadline - loop.time()))
    except asyncio.TimeoutError:
        return False
    finally:
        loop.remove_reader(watch)
        os.close(watch)
    return True
