"""Which route a delivery takes, by what is open and what its sender's registration allows (LD-01, DE-40, DE-53)."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path

import pytest

from broker.deliveries import Attempt, Delivery, Kind
from broker.processes import ProcessId
from broker.routes import Held, Open, Reach, Unreachable, Wait
from broker.routes.choice import Routes
from broker.routes.headless import HeadlessRoute
from broker.settings import Grants
from broker.turns.started import StartedTurns
from broker.turns.unwritten import Unwritten
from shims.door import Door, Opening, Shut, Way
from tests.unit.engine import delivery

Answer = Reach | Wait | Unreachable
HOLDER = ProcessId(7, 7)


@dataclass
class Told:
    """A route that answers what it is told, and whether it was asked."""

    name: str
    answer: Answer
    open_there: bool = False
    leads: Open | Held | None = None
    idle: bool = False
    asked: list[str] = field(default_factory=list)

    async def reach(self, delivery: Delivery, waited: float) -> Answer:
        del delivery, waited
        self.asked.append("reach")
        return self.answer

    def holds(self, agent: str, session: str) -> bool:
        del agent, session
        return self.open_there

    def is_live(self, agent: str, session: str) -> bool:
        return self.holds(agent, session)

    def is_idle(self, agent: str, session: str) -> bool:
        del agent, session
        return self.idle

    async def find(self, agent: str, store: str, session: str, *, start: bool = True) -> Open | Held | None:
        self.asked.append(f"{'find' if start else 'look'} {agent} {store} {session}")
        return self.leads

    def withdraw(self, attempt: Attempt) -> None:
        self.asked.append(f"withdraw {attempt.id}")

    def looked(self, attempt: Attempt | None) -> None:
        self.asked.append(f"looked {attempt.id if attempt else None}")

    def forget(self, attempt: Attempt) -> None:
        self.asked.append(f"forget {attempt.id}")

    def runs(self, attempt: Attempt) -> bool:
        self.asked.append(f"runs {attempt.id}")
        return self.open_there

    async def hand_over(self, delivery: Delivery, attempt: Attempt, reach: Reach, text: str) -> bool:
        del delivery, reach
        self.asked.append(f"{attempt.id} {text}")
        return True


PANEL: dict[str, Answer | None] = {
    "takes it": Reach("panel", "1@1", "2@2", "/h"),
    "is busy": Wait("a turn is running there", 0),
    "refuses": Unreachable("not_accepting", "its client pairs answers by order"),
    "just closed": Wait("its panel is closed", 5, "panel_closed"),
    "closed": Unreachable("panel_closed", "it has been closed"),
    "none": None,
}
DOOR: dict[str, Reach | Unreachable] = {
    "open": Reach("claude-inbox", "7@7", "7@7", "/h"),
    "shut": Unreachable("session_held", "process 7 holds it: it has no inbox"),
    "nobody there": Unreachable("not_held", "nobody has it open"),
}
COMMAND_LINE: dict[str, Answer] = {
    "starts": Reach("headless", "", "", "/h"),
    "waits": Wait("the broker is stopped", 0),
    "held so far": Wait("process 7 holds it", 3, "session_held"),
    "held": Unreachable("session_held", "process 7 holds it"),
    "refuses": Unreachable("headless_disabled", "this registration starts no turns"),
}
SETTINGS: dict[str, tuple[dict[str, str], str, str]] = {
    "nothing set": ({}, "", ""),
    "no panels": ({"CROSS_AGENT_UI_HOOK": "off"}, "none", ""),
    "no doors": ({"CROSS_AGENT_LIVE_DOORS": "off"}, "", "nobody there"),
    "neither": ({"CROSS_AGENT_UI_HOOK": "off", "CROSS_AGENT_LIVE_DOORS": "off"}, "none", "nobody there"),
}
"""With what is in the place of the panel, and of the door, for who has set it so."""

REQUEST, RETURN = "a request", "return traffic"
ANY = ""
ORDER = (
    # panel        door            of what   command line   whose answer counts
    ("takes it",    ANY,            ANY,     ANY,           "panel"),
    ("is busy",     ANY,            ANY,     ANY,           "panel"),
    ("refuses",     ANY,            ANY,     ANY,           "panel"),
    (ANY,           "open",         ANY,     ANY,           "door"),
    ("just closed", ANY,            ANY,     ANY,           "panel"),
    ("closed",      ANY,            RETURN,  ANY,           "panel"),
    ("none",        "shut",         RETURN,  ANY,           "door"),
    ("none",        "nobody there", RETURN,  ANY,           "nobody's"),
    (ANY,           ANY,            REQUEST, "starts",      "command line"),
    (ANY,           "shut",         REQUEST, "held",        "door"),
    (ANY,           "shut",         REQUEST, "refuses",     "door"),
    ("closed",      ANY,            REQUEST, "held",        "panel"),
    ("closed",      ANY,            REQUEST, "refuses",     "panel"),
    (ANY,           ANY,            REQUEST, ANY,           "command line"),
)  # fmt: skip
"""The first line that fits is what holds. A door that is shut says who holds the session, and why."""


def in_order(*found: str) -> str:
    return next(whose for *line, whose in ORDER if all(said in (ANY, seen) for said, seen in zip(line, found, strict=True)))


KINDS = {REQUEST: (Kind.REQUEST,), RETURN: tuple(kind for kind in Kind if kind is not Kind.REQUEST)}


@pytest.mark.requirement("LD-01", "LD-07", "DE-40", "DE-53")
@pytest.mark.parametrize("given", SETTINGS)
@pytest.mark.parametrize("of_what", KINDS)
def test_the_order_of_routes(of_what: str, given: str) -> None:
    values, no_panel, no_door = SETTINGS[given]
    for panel, door, command_line, kind in product(PANEL, DOOR, COMMAND_LINE, KINDS[of_what]):
        whose = in_order(no_panel or panel, no_door or door, of_what, command_line)
        found = PANEL[panel]
        by_panel = Told("panel", found or Unreachable("wrong", "it should not have been asked"), open_there=found is not None)
        by_door, started = Told("door", DOOR[door]), Told("headless", COMMAND_LINE[command_line])
        routes = Routes(by_panel, by_door, started)  # type: ignore[arg-type]
        made = delivery(kind=kind, settings=values, route="headless" if found is None else "panel")
        chosen = asyncio.run(routes.reach(made, 0.0))
        unused = found is not None and values.get("CROSS_AGENT_UI_HOOK") == "off"
        why = "it is open in a panel that this registration does not use" if unused else "nobody has the session open"
        nobodys = Unreachable("not_open", why) if unused or no_door else Wait(why, 3.0, "not_open")
        of_panel = by_panel.answer
        if isinstance(of_panel, Wait) and of_panel.code == "panel_closed" and not no_door:
            of_panel = replace(of_panel, seconds=3.0)  # nothing tells of a terminal that is opened instead
        answers = {"panel": of_panel, "door": by_door.answer, "command line": started.answer, "nobody's": nobodys}
        assert chosen == answers[whose], (panel, door, command_line, kind)
        assert not started.asked or of_what == REQUEST, "nothing is started for what goes back"
        assert not started.asked or (no_door or door) != "open", "never beside a session that is reached where it is open"
        assert by_panel.asked == ([] if no_panel or found is None else ["reach"])
        assert not by_door.asked or not no_door


@pytest.mark.requirement("DE-53")
@pytest.mark.parametrize("route", ["headless", "claude-inbox"])
def test_a_panel_that_has_opened_the_session_since_is_used(route: str) -> None:
    panel = Told("panel", Reach("panel", "1@1", "2@2", "/h"), open_there=True)
    routes = Routes(panel, Told("door", DOOR["open"]), Told("headless", COMMAND_LINE["starts"]))  # type: ignore[arg-type]
    assert asyncio.run(routes.reach(delivery(route=route), 0.0)) == panel.answer


@pytest.mark.requirement("LD-01")
@pytest.mark.parametrize("route", ["headless", "panel"])
def test_no_door_leads_to_a_conversation_that_is_yet_to_be_opened(route: str) -> None:
    panel, door, started = (
        Told("panel", PANEL["closed"] or DOOR["shut"]),
        Told("door", DOOR["open"]),
        Told("headless", DOOR["shut"]),
    )
    routes = Routes(panel, door, started)  # type: ignore[arg-type]
    found = asyncio.run(routes.reach(delivery(session="", route=route), 0.0))
    assert found == (panel.answer if route == "panel" else started.answer)
    assert door.asked == []


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


# the way back, and what is told of a session


def opened(*, busy: bool = False) -> Open:
    door = Door("claude-inbox", lambda *_: Shut("", ""), lambda *_: None)  # type: ignore[arg-type]
    return Open(door, Opening(HOLDER, Way.SOCKET), busy=busy)


HELD = Held(HOLDER, "it has no inbox", "Update it.")


@pytest.mark.requirement("LD-05", "LD-07", "DE-41")
@pytest.mark.parametrize(
    ("in_panel", "leads", "panels", "doors", "session", "back"),
    [
        (True, opened(), True, True, "s1", "panel"),
        (True, None, True, False, "s1", "panel"),
        (True, opened(), False, True, "s1", "claude-inbox"),
        (True, opened(), False, False, "s1", ""),
        (False, opened(), True, True, "s1", "claude-inbox"),
        (False, opened(), True, False, "s1", ""),
        (False, opened(), True, True, "", ""),
        (False, HELD, True, True, "s1", ""),
        (False, None, True, True, "s1", ""),
    ],
)
def test_the_way_back(in_panel: bool, leads: Open | Held | None, panels: bool, doors: bool, session: str, back: str) -> None:
    panel, door = Told("panel", DOOR["shut"], in_panel), Told("door", DOOR["shut"], leads=leads)
    routes = Routes(panel, door, Told("headless", COMMAND_LINE["starts"]))  # type: ignore[arg-type]
    assert asyncio.run(routes.way_back("claude", "/h", session, panels=panels, doors=doors)) == back
    assert door.asked in ([], ["find claude /h s1"])


@pytest.mark.requirement("DE-30", "LD-05")
@pytest.mark.parametrize(
    ("in_panel", "idle_there", "leads", "idle"),
    [
        (True, True, opened(busy=True), True),
        (True, False, opened(), False),
        (False, False, opened(), True),
        (False, True, opened(busy=True), False),
        (False, True, HELD, False),
        (False, True, None, False),
    ],
)
def test_whether_a_session_is_open_and_idle(in_panel: bool, idle_there: bool, leads: Open | Held | None, idle: bool) -> None:
    panel, door = Told("panel", DOOR["shut"], in_panel, idle=idle_there), Told("door", DOOR["shut"], leads=leads)
    routes = Routes(panel, door, Told("headless", COMMAND_LINE["starts"]))  # type: ignore[arg-type]
    assert asyncio.run(routes.is_idle("claude", "/h", "s1")) is idle


def test_what_leads_there_is_asked_with_a_program_of_the_agents_or_without() -> None:
    door = Told("door", DOOR["shut"], leads=HELD)
    routes = Routes(Told("panel", DOOR["shut"]), door, Told("headless", DOOR["shut"]))  # type: ignore[arg-type]
    assert asyncio.run(routes.find("claude", "/h", "s1")) == HELD
    assert asyncio.run(routes.look("claude", "/h", "s1")) == HELD
    assert door.asked == ["find claude /h s1", "look claude /h s1"]


@pytest.mark.parametrize("name", ["panel", "headless", "claude-inbox", "codex-queue", "grok-leader"])
def test_each_hand_over_is_its_own_routes(name: str) -> None:
    """Doors have names of their own."""
    panel, door, started = Told("panel", DOOR["shut"]), Told("door", DOOR["shut"]), Told("headless", DOOR["shut"])
    routes = Routes(panel, door, started)  # type: ignore[arg-type]
    own = {"panel": panel, "headless": started}.get(name, door)
    own.open_there = True
    attempt = Attempt("att_1", "dlv_1", "1@1", "", "/h", "s1", 1, route=name)

    async def story() -> None:
        assert await routes.hand_over(delivery(), attempt, replace(Reach("", "", "", ""), route=name), "text")

    asyncio.run(story())
    assert routes.runs(attempt)
    routes.withdraw(attempt)
    routes.looked(attempt)
    routes.looked(None)
    routes.forget(attempt)
    assert own.asked == ["att_1 text", "runs att_1", "withdraw att_1", "looked att_1", "forget att_1"]
    assert [other.asked for other in (panel, door, started) if other is not own] == [[], []]


@pytest.mark.requirement("DE-41", "LD-05")
def test_what_goes_back_waits_a_minute_for_a_terminal_that_is_opened_again() -> None:
    panel, door = Told("panel", Unreachable("wrong", "it should not have been asked")), Told("door", DOOR["nobody there"])
    routes = Routes(panel, door, Told("headless", COMMAND_LINE["starts"]))  # type: ignore[arg-type]
    reply = delivery(kind=Kind.REPLY, route="claude-inbox")
    looks = [asyncio.run(routes.reach(reply, waited)) for waited in (0.0, 59.0, 60.0)]
    assert [look.seconds if isinstance(look, Wait) else look.code for look in looks] == [3.0, 1.0, "not_open"]  # type: ignore[union-attr]
