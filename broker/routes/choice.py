"""Which route a delivery takes, chosen when its turn has come: a session that is open is reached where it is open (LD-01).

Owns that order: the panel's shim, the agent's own live door, a turn on the command line. The last is for requests alone, and
never beside somebody who holds the session; return traffic never starts one (DE-40). What a caller's settings leave out is not
there for its messages (DE-53, LD-07).
"""

from __future__ import annotations

from dataclasses import replace

from broker.deliveries import Attempt, Delivery, Kind
from broker.routes import Handing, Held, Open, Reach, Unreachable, Wait
from broker.routes.door import DoorRoute
from broker.routes.headless import HeadlessRoute
from broker.routes.panel import REOPENED, PanelRoute
from broker.settings import uses_doors, uses_panels

_CLOSED = ("panel_closed",)
"""Ends of the first route after which another one is tried: nobody holds the session there any more."""

_LOOK_AGAIN = 3.0
"""Seconds between two looks at a session that is closed: nothing tells of a terminal that is opened."""


class Routes:
    """All routes, as one."""

    name = "any"

    def __init__(self, panel: PanelRoute, door: DoorRoute, headless: HeadlessRoute) -> None:
        self._panel = panel
        self._door = door
        self._headless = headless

    async def reach(self, delivery: Delivery, waited: float) -> Reach | Wait | Unreachable:
        by_panel = await self._by_panel(delivery, waited)
        if isinstance(by_panel, Reach) or not delivery.session or (by_panel is not None and not _may_be_elsewhere(by_panel)):
            return by_panel or await self._headless.reach(delivery, waited)
        by_door = await self._by_door(delivery, waited)
        if isinstance(by_door, Reach):
            return by_door
        if isinstance(by_panel, Wait) and uses_doors(delivery.settings):
            by_panel = replace(by_panel, seconds=min(by_panel.seconds, _LOOK_AGAIN))
        if delivery.kind is not Kind.REQUEST:
            return by_panel or by_door or self._not_open(delivery, waited)
        if isinstance(by_panel, Wait):
            return by_panel
        started = await self._headless.reach(delivery, waited)
        # Who holds it, and why no door leads in, says more than that it cannot be gone on with.
        return (by_door or by_panel or started) if isinstance(started, Unreachable) else started

    def _not_open(self, delivery: Delivery, waited: float) -> Wait | Unreachable:
        """What goes back waits for a terminal that is opened again, as it does for a panel (DE-41)."""
        if self._panel.holds(delivery.agent, delivery.session):
            return Unreachable("not_open", "it is open in a panel that this registration does not use")
        if waited < REOPENED and uses_doors(delivery.settings):
            return Wait("nobody has the session open", min(_LOOK_AGAIN, REOPENED - waited), "not_open")
        return Unreachable("not_open", "nobody has the session open")

    async def _by_panel(self, delivery: Delivery, waited: float) -> Reach | Wait | Unreachable | None:
        """None: no panel has to do with it."""
        if not uses_panels(delivery.settings):
            return None
        if delivery.route != self._panel.name and not self._panel.holds(delivery.agent, delivery.session):
            return None
        return await self._panel.reach(delivery, waited)

    async def _by_door(self, delivery: Delivery, waited: float) -> Reach | Unreachable | None:
        """None: nobody holds it, or doors are not used."""
        if not uses_doors(delivery.settings):
            return None
        reach = await self._door.reach(delivery, waited)
        return None if isinstance(reach, Unreachable) and reach.code == "not_held" else reach

    async def way_back(self, agent: str, store: str, session: str, *, panels: bool, doors: bool) -> str:
        """The route by which a message could go out soon, without anything being started; empty: none."""
        if panels and self._panel.holds(agent, session):  # one that takes no messages takes none by a door either
            return self._panel.name if self._panel.is_live(agent, session) else ""
        found = await self._door.find(agent, store, session) if doors and session else None
        return found.door.name if isinstance(found, Open) else ""

    async def find(self, agent: str, store: str, session: str) -> Open | Held | None:
        """What leads to a session that no panel holds; None: nobody has it."""
        return await self._door.find(agent, store, session)

    async def look(self, agent: str, store: str, session: str) -> Open | Held | None:
        """The same as far as is seen without starting anything."""
        return await self._door.find(agent, store, session, start=False)

    async def is_idle(self, agent: str, store: str, session: str) -> bool:
        """Whether the session is open and runs no turn."""
        if self._panel.is_live(agent, session):
            return self._panel.is_idle(agent, session)
        found = await self._door.find(agent, store, session)
        return isinstance(found, Open) and not found.busy

    async def hand_over(self, delivery: Delivery, attempt: Attempt, reach: Reach, text: str) -> bool:
        return await self._named(reach.route).hand_over(delivery, attempt, reach, text)

    def withdraw(self, attempt: Attempt) -> None:
        self._named(attempt.route).withdraw(attempt)

    def runs(self, attempt: Attempt) -> bool:
        return self._named(attempt.route).runs(attempt)

    def looked(self, attempt: Attempt | None) -> None:
        if attempt is not None:
            self._named(attempt.route).looked(attempt)

    def forget(self, attempt: Attempt) -> None:
        self._named(attempt.route).forget(attempt)

    def _named(self, name: str) -> Handing:
        """Doors have names of their own."""
        by_name: dict[str, Handing] = {self._panel.name: self._panel, self._headless.name: self._headless}
        return by_name.get(name, self._door)


def _may_be_elsewhere(found: Wait | Unreachable) -> bool:
    """Whether a panel's route only says that its panel is closed."""
    return found.code in _CLOSED
