"""Pins: the session that messages without an address go to, per agent, directory and store (SE-27, SE-31).

Owns who has set one, how long it holds and for whom: what a caller has pinned holds until it is taken away; what the broker has
pinned, a conversation that a message of its opened, holds while that is active. Whoever sees another store of that agent (SE-13)
does not see the pin either: the session is none of theirs.
"""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from typing import Any

from broker.clock import wall_clock
from broker.store import Store
from shims.agent import agents


@dataclass(frozen=True, slots=True)
class Pin:
    """One pin.

    Attributes:
        place: the directory, store: the agent's data directory; both resolved.
        by_caller: set with the tool, else by the broker.
        set: wall-clock seconds.
    """

    agent: str
    place: str
    store: str
    session: str
    by_caller: bool
    set: float


class Pins:
    """All pins, in memory as they are in the database: in the order of its commits, whether or not the caller still waits."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._pins: dict[tuple[str, str, str], Pin] = {}

    def load(self) -> None:
        self._store.adopt_pins({name: os.path.realpath(agent.store_in({})) for name, agent in agents().items()})
        for row in self._store.pins():
            pin = Pin(*row)
            self._pins[pin.agent, pin.place, pin.store] = pin

    def at(self, agent: str, place: str, store: str) -> Pin | None:
        return self._pins.get((agent, place, store))

    def all(self) -> list[Pin]:
        return list(self._pins.values())

    async def set(self, pin: Pin) -> None:
        """Durable before it counts. A broker's own pin never takes the place of a caller's."""
        written = self._store.write(
            lambda transaction: transaction.set_pin(pin.agent, pin.place, pin.store, pin.session, pin.by_caller, pin.set)
        )

        def know(written: asyncio.Future[bool]) -> None:
            if _is_done(written) and written.result():
                self._pins[pin.agent, pin.place, pin.store] = pin

        written.add_done_callback(know)
        await asyncio.shield(written)

    async def opened(self, agent: str, cwd: str, session: str, store: str) -> None:
        """A message from ``cwd`` has opened a conversation: what is sent from there next goes on with it (SE-40)."""
        if session:
            place, store = os.path.realpath(cwd), os.path.realpath(store)
            await self.set(Pin(agent, place, store, session, by_caller=False, set=wall_clock()))

    async def remove(self, agent: str, place: str, store: str) -> Pin | None:
        """Takes the pin away; what it was, None when there was none."""
        written = self._store.write(lambda transaction: transaction.remove_pin(agent, place, store))
        was: list[Pin] = []

        def know(written: asyncio.Future[None]) -> None:
            if _is_done(written) and (pin := self._pins.pop((agent, place, store), None)) is not None:
                was.append(pin)

        written.add_done_callback(know)
        await asyncio.shield(written)
        return was[0] if was else None


def _is_done(written: asyncio.Future[Any]) -> bool:
    return not written.cancelled() and written.exception() is None
