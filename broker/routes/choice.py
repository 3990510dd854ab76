"""Which route a delivery takes, chosen when its turn has come: a session that is open is reached where it is open (DE-53).

Owns that order. A turn on the command line comes last, only for requests, and never beside somebody who holds the session;
return traffic never starts one (DE-40).
"""

from __future__ import annotations

from broker.deliveries import Attempt, Delivery, Kind
from broker.routes import Handing, Reach, Unreachable, Wait
from broker.routes.headless import HeadlessRoute
from broker.routes.panel import PanelRoute
from broker.settings import uses_panels

_CLOSED = ("panel_closed",)
"""Ends of the first route after which the second one is tried: nobody holds the session any more."""


class Routes:
    """All routes, as one."""

    name = "any"

    def __init__(self, panel: PanelRoute, headless: HeadlessRoute) -> None:
        self._panel = panel
        self._headless = headless
        self._by_name: dict[str, Handing] = {panel.name: panel, headless.name: headless}

    async def reach(self, delivery: Delivery, waited: float) -> Reach | Wait | Unreachable:
        if delivery.kind is not Kind.REQUEST:
            return await self._panel.reach(delivery, waited)
        if not uses_panels(delivery.settings):
            return await self._headless.reach(delivery, waited)  # which reaches no session that a panel holds
        if delivery.route == self._headless.name and not (
            delivery.session and self._panel.holds(delivery.agent, delivery.session)
        ):
            return await self._headless.reach(delivery, waited)
        reach = await self._panel.reach(delivery, waited)
        if isinstance(reach, Unreachable) and reach.code in _CLOSED and delivery.session:
            other = await self._headless.reach(delivery, waited)
            return reach if isinstance(other, Unreachable) else other
        return reach

    async def hand_over(self, delivery: Delivery, attempt: Attempt, reach: Reach, text: str) -> bool:
        return await self._by_name[reach.route].hand_over(delivery, attempt, reach, text)

    def withdraw(self, attempt: Attempt) -> None:
        self._by_name[attempt.route].withdraw(attempt)

    def is_live(self, agent: str, session: str) -> bool:
        return self._panel.is_live(agent, session)

    def is_idle(self, agent: str, session: str) -> bool:
        return self._panel.is_idle(agent, session)

    def runs(self, attempt: Attempt) -> bool:
        return self._by_name[attempt.route].runs(attempt)

    def forget(self, attempt: Attempt) -> None:
        self._by_name[attempt.route].forget(attempt)
