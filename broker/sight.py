"""What one call can see of an agent: its panels, its records, pins, and who holds what (SE-09, SE-13).

Owns which store a caller means, since callers of one broker may have different ones, and how long a call waits until that is
read. Everything is in memory; nobody waits for a disk here.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Awaitable, Callable, Mapping

from broker.callers import Caller
from broker.focus import Focus
from broker.index.catalogue import Store
from broker.index.indexer import Indexer
from broker.panels import Panels
from broker.pins import Pin, Pins
from broker.processes import ProcessId
from broker.resolve import Asked, Seen, focusable
from broker.routes import Held, Open
from shims.agent import Agent

_BEGUN = 1.0
"""Seconds that a session gets to be known that nobody knows and whose id is given: it may have begun a moment ago (SE-14)."""

_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")

Look = Callable[[str, str, str], Awaitable[Open | Held | None]]

_MOST_DOORS = 50
"""Sessions that are open without a shim, of which one call finds out how they are reached."""

_PATIENCE = 5.0
"""Seconds that a call waits for records that are read for the first time."""


class Sight:
    """Looks for one call at a time.

    Args:
        look: what leads to a session that a process holds without a shim: (agent, store, session).
    """

    def __init__(self, panels: Panels, indexer: Indexer, pins: Pins, focus: Focus, look: Look) -> None:
        self._panels = panels
        self._indexer = indexer
        self._pins = pins
        self._focus = focus
        self._look = look

    async def seen(self, asked: Asked, environment: Mapping[str, str]) -> Seen:
        """What there is to choose from; the records are waited for where a panel does not decide it."""
        target = asked.target
        store = self.store(target, asked.caller, environment)
        pin = self.pin(target, asked.place, store)
        addressed = bool(asked.session or asked.new)
        moved = {} if addressed or (pin is not None and pin.by_caller) else await self._focus.moved(target, asked.caller)
        held: Mapping[str, tuple[ProcessId, ...]] = {}
        if not self._decided_by_panels(asked, pin):
            await self._indexer.ready([store], _PATIENCE)
            for begun in {pin.session if pin is not None else "", asked.session if _ID.fullmatch(asked.session) else ""} - {""}:
                if not any(state.id == begun for _, state in self._panels.sessions(target.name)):
                    await self._indexer.known(store, begun, _BEGUN)
            held = await self.held(target, store)
        doors = await self.doors({target.name: store}, {target.name: held}) if asked.doors and not addressed else {}
        reached = frozenset(session for (_, session), door in doors.items() if isinstance(door, Open))
        return Seen(self._panels, store, pin, held, reached, moved)

    async def stores(self, wanted: list[Agent], caller: Caller, environment: Mapping[str, str]) -> dict[str, Store]:
        """The records of these agents, by name, as the caller sees them."""
        found = {agent.name: self.store(agent, caller, environment) for agent in wanted}
        await self._indexer.ready(list(found.values()), _PATIENCE)
        return found

    def store(self, agent: Agent, caller: Caller, environment: Mapping[str, str]) -> Store:
        """``environment``, of the call, tells where nothing is known of how the caller came to be."""
        return self._indexer.open(agent.name, caller.stores.get(agent.name) or agent.store_in(environment))

    def pin(self, agent: Agent, place: str, store: Store) -> Pin | None:
        """What stands for messages from ``place`` to the sessions in ``store``."""
        return self._pins.at(agent.name, place, os.path.realpath(store.path))

    async def held(self, agent: Agent, store: Store) -> Mapping[str, tuple[ProcessId, ...]]:
        """Which sessions living processes hold, by the agent's own registry.

        In a thread: the kernel may let whoever reads its table of locks wait for 16 ms (measured).
        """
        holds = store.holds()
        return await asyncio.to_thread(agent.shelf.holding, store.path, holds)

    async def doors(
        self, stores: Mapping[str, Store], held: Mapping[str, Mapping[str, tuple[ProcessId, ...]]]
    ) -> dict[tuple[str, str], Open | Held]:
        """What leads to the sessions that are ``held`` without a shim, by agent and id, as far as their agents' files tell."""
        wanted = [(name, one) for name, holds in held.items() for one in holds if not self._panels.hosting(name, one)]
        wanted = wanted[:_MOST_DOORS]
        found = await asyncio.gather(*(self._look(name, stores[name].path, session) for name, session in wanted))
        return {session: door for session, door in zip(wanted, found, strict=True) if door is not None}

    def _decided_by_panels(self, asked: Asked, pin: Pin | None) -> bool:
        """Whether the target is found without a record: by the id of a session that is open, or by the window's focus."""
        if asked.session:
            return any(state.id == asked.session for panel in self._panels for state in panel.sessions)
        if asked.new:
            return True
        return (pin is None or not pin.by_caller) and bool(focusable(asked.target, asked.caller, self._panels))
