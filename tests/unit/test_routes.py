"""Which route a delivery takes, by what is open and what its sender's registration allows (DE-40, DE-53)."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from broker.deliveries import Delivery, Kind
from broker.routes import Reach, Unreachable, Wait
from broker.routes.choice import Routes
from broker.routes.headless import HeadlessRoute
from broker.settings import Grants
from broker.turns.started import StartedTurns
from broker.turns.unwritten import Unwritten
from tests.unit.engine import delivery

PANEL, STARTED = Reach("panel", "1@1", "", "/h"), Reach("headless", "", "", "/h")
CLOSED = Unreachable("panel_closed", "it has been closed")
OFF = {"CROSS_AGENT_UI_HOOK": "off"}


@dataclass
class Told:
    """A route that answers what it is told, and whether it was asked."""

    name: str
    answer: Reach | Wait | Unreachable
    open_there: bool = False
    asked: list[str] = field(default_factory=list)

    async def reach(self, delivery: Delivery, waited: float) -> Reach | Wait | Unreachable:
        del waited
        self.asked.append(delivery.id)
        return self.answer

    def holds(self, agent: str, session: str) -> bool:
        del agent, session
        return self.open_there


def chosen(panel: Told, headless: Told, made: Delivery) -> Reach | Wait | Unreachable:
    return asyncio.run(Routes(panel, headless).reach(made, 0.0))  # type: ignore[arg-type]


@pytest.mark.requirement("DE-53")
@pytest.mark.parametrize(
    ("route", "open_there", "answer", "settings", "taken"),
    [
        ("panel", True, PANEL, {}, PANEL),
        ("headless", False, PANEL, {}, STARTED),
        ("headless", True, PANEL, {}, PANEL),
        ("panel", False, CLOSED, {}, STARTED),
        ("panel", False, Wait("its panel is closed", 5), {}, Wait("its panel is closed", 5)),
        ("headless", True, PANEL, OFF, STARTED),
    ],
    ids=["open", "open nowhere", "opened since", "closed since", "just closed", "panels switched off"],
)
def test_a_request(
    route: str, open_there: bool, answer: Reach | Wait | Unreachable, settings: dict[str, str], taken: Reach | Wait
) -> None:
    made = delivery(route=route, settings=settings)
    assert chosen(Told("panel", answer, open_there), Told("headless", STARTED), made) == taken


@pytest.mark.requirement("DE-40")
@pytest.mark.parametrize("kind", [kind for kind in Kind if kind is not Kind.REQUEST])
def test_return_traffic_starts_nothing(kind: Kind) -> None:
    headless = Told("headless", STARTED)
    assert chosen(Told("panel", CLOSED), headless, delivery(kind=kind, route="headless", token="")) == CLOSED
    assert headless.asked == []


@pytest.mark.requirement("DE-41")
def test_what_can_be_reached_by_neither_route_is_refused_by_the_first() -> None:
    headless = Told("headless", Unreachable("headless_disabled", "no"))
    assert chosen(Told("panel", CLOSED), headless, delivery()) == CLOSED


@pytest.mark.requirement("DE-25", "DE-53")
def test_somebody_who_has_the_session_is_waited_for_but_not_for_ever(tmp_path: Path) -> None:
    made = delivery(route="headless", store=str(tmp_path))
    turns = StartedTurns(str(tmp_path), str(tmp_path), None, None)  # type: ignore[arg-type]
    route = HeadlessRoute(turns, lambda *_: True, Grants, Unwritten())

    def after(waited: float) -> Reach | Wait | Unreachable:
        return asyncio.run(route.reach(made, waited))

    for waited, pause in ((0.0, 3.0), (15.0, 3.0), (29.0, 1.0)):
        assert after(waited) == Wait("a panel holds it", pause, "session_held")
    assert after(30.0) == Unreachable("session_held", "a panel holds it")
