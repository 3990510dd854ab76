"""Which route a delivery takes, by what is open and what its sender's registration allows (DE-40, DE-53)."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import pytest

from broker.deliveries import Delivery, Kind
from broker.routes import Reach, Unreachable, Wait
from broker.routes.choice import Routes
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
