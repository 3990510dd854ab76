"""What a sender is told with its receipt (DE-03), and which conversation a send belongs to (DE-50)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from broker import receipts
from broker.callers import SELF_SESSION, Caller
from broker.clock import wall_clock
from broker.deliveries import Attempt, Event, new_delivery_id
from broker.errors import Refusal
from broker.index.catalogue import Known
from broker.processes import ProcessId
from broker.resolve import Seen, Selected
from broker.routes import Held, Open
from broker.sends import SendCall, Sends
from broker.settings import CallerSettings, Grants
from broker.wire import SessionState
from shims.door import Door, Opening, Shut, Way
from tests.unit.engine import Engine, delivery, engine
from tests.unit.made_up import CLAUDE, World, caller_in

HOUR = 3600.0
ALONE = Caller("codex", "t1", "made up")
STARTED = Caller("codex", "t1", SELF_SESSION, headless=True)


def call(caller: Caller = ALONE, **fields: Any) -> SendCall:
    return SendCall("claude", "text", "key", "origin", caller, "/w", **fields)


def told(
    selected: Selected,
    *,
    caller: Caller = ALONE,
    opened: Open | None = None,
    live: bool = True,
    notes: tuple[str, ...] = (),
    changes: tuple[str, ...] = (),
) -> dict[str, str]:
    """The warnings of a receipt, by their code."""
    found = receipts.warnings(caller, selected, opened, returns=live, runs=False, notes=notes, changes=changes)
    assert all(warning["code"] and warning["text"] for warning in found)
    return {warning["code"]: warning["text"] for warning in found}


def in_panel(by: str = "caller", **state: Any) -> Selected:
    shown = SessionState("s1")._replace(**state)
    return Selected(CLAUDE, World().opens(shown), shown, None, by)


def on_disk(hours: float, by: str = "caller") -> Selected:
    known = Known("claude", "/h", "s1", "/w", "/w", "", "", wall_clock() - hours * HOUR, "")
    return Selected(CLAUDE, None, None, known, by)


# warnings


@pytest.mark.requirement("DE-03")
@pytest.mark.parametrize(
    ("selected", "codes"),
    [
        (lambda: in_panel(), set()),
        (lambda: in_panel("panel-focus"), {"unaddressed"}),
        (lambda: in_panel("pin"), {"unaddressed"}),
        (lambda: on_disk(1, "discovery"), {"unaddressed", "not_open"}),
        (lambda: in_panel(turn_since=5.0), {"peer_busy"}),
        (lambda: on_disk(23.9), {"not_open"}),
        (lambda: on_disk(24.1), {"peer_dormant", "not_open"}),
        (lambda: on_disk(9000, "pin"), {"peer_dormant", "unaddressed", "not_open"}),
    ],
    ids=["named", "focus", "pin", "discovery", "busy", "idle for a day", "idle for longer", "idle and pinned"],
)
def test_of_the_target(selected: Callable[[], Selected], codes: set[str]) -> None:
    assert told(selected()).keys() == codes


def behind_a_door(**state: Any) -> Open:
    door = Door("claude-inbox", lambda *_: Shut("", ""), lambda *_: None)  # type: ignore[arg-type]
    return Open(door, Opening(ProcessId(7, 7), Way.SOCKET), **state)


@pytest.mark.requirement("DE-03", "LD-01")
@pytest.mark.parametrize(
    ("opened", "codes"),
    [
        (behind_a_door(), set()),  # neither said to be closed nor to be dormant: somebody has it open
        (behind_a_door(busy=True), {"peer_busy"}),
        (behind_a_door(paused=True), {"peer_paused"}),
        (behind_a_door(busy=True, paused=True), {"peer_busy"}),
        (behind_a_door(busy=True, waits_for="permission prompt"), {"peer_busy", "peer_awaits_person"}),
        (behind_a_door(waits_for="\x1b[2Jinput"), {"peer_awaits_person"}),
    ],
)
def test_of_a_session_behind_a_door(opened: Open, codes: set[str]) -> None:
    warnings = told(on_disk(100), opened=opened)
    assert warnings.keys() == codes
    assert "\x1b" not in "".join(warnings.values())


@pytest.mark.requirement("DE-02", "LD-01", "LD-05")
@pytest.mark.parametrize("back", ["", "panel", "codex-queue"])
def test_a_receipt_names_the_doors_there_and_back(back: str) -> None:
    opened = behind_a_door(busy=True, waits_for="permission prompt")
    made = delivery(route=opened.door.name)
    receipt = receipts.receipt(made, on_disk(1), opened, [], returns=back, runs=False, warned=[])
    assert (receipt["route"], receipt["return_route"]) == ("claude-inbox", back or None)
    assert receipt["return_panel_available_now"] is bool(back)
    assert receipt["peer_queue"] == {
        "ahead": 0, "oldest_seconds": 0, "runs_turn": True, "awaits_approval": "permission prompt",
    }  # fmt: skip
    assert receipt["idle_limit_seconds"] is None, "no turn of ours that could be ended"


@pytest.mark.requirement("DE-03")
def test_a_session_that_is_open_is_not_dormant_however_long_nobody_spoke() -> None:
    open_now = replace(in_panel(last_human=1.0), known=on_disk(100).known)
    assert told(open_now) == {}


@pytest.mark.requirement("DE-03", "DE-41")
@pytest.mark.parametrize(
    ("caller", "live", "code"),
    [
        (ALONE, True, None),
        (ALONE, False, "no_return_route"),
        (Caller(), False, "unknown_caller"),
        (Caller("codex", "", "a panel with several sessions"), True, "unknown_caller"),
        (STARTED, False, "headless_caller"),
        (STARTED, True, "headless_caller"),
    ],
)
def test_of_the_way_back(caller: Caller, live: bool, code: str | None) -> None:
    warnings = told(in_panel(), caller=caller, live=live)
    assert list(warnings) == ([code] if code else [])
    assert all("bridge_status(delivery_id)" in text for text in warnings.values()), "where to read the answer"


@pytest.mark.requirement("DE-03")
def test_a_turn_of_the_bridges_is_told_that_its_end_stops_nothing() -> None:
    text = told(in_panel(), caller=STARTED)["headless_caller"]
    assert "Its end does not stop this delivery" in text
    assert "only be read from the record" in text


# what leads to it


class Ways:
    """What leads to sessions, as a test has it, and what was asked for."""

    def __init__(self, found: Open | Held | None = None) -> None:
        self.found = found
        self.asked: list[tuple[object, ...]] = []

    async def find(self, agent: str, store: str, session: str) -> Open | Held | None:
        self.asked.append((agent, store, session))
        return self.found

    async def way_back(self, agent: str, store: str, session: str, *, panels: bool, doors: bool) -> str:
        self.asked.append((agent, store, session, panels, doors))
        return "codex-queue" if doors else ""


def sending(ways: Ways) -> Sends:
    return Sends(None, None, None, Grants, ways, None)  # type: ignore[arg-type]


def seen(*held: str) -> Seen:
    world = World()
    return Seen(world.panels, world.stores["claude"], None, dict.fromkeys(held, (ProcessId(7, 7),)))


@pytest.mark.requirement("LD-01", "LD-07", "DE-53")
@pytest.mark.parametrize(
    ("selected", "settings", "asked"),
    [
        (lambda: on_disk(1), CallerSettings(), True),
        (lambda: in_panel(), CallerSettings(), False),
        (lambda: in_panel(), CallerSettings(use_panels=False), True),
        (lambda: Selected(CLAUDE, None, None, None, "new"), CallerSettings(), False),
        (lambda: on_disk(1), CallerSettings(use_doors=False), False),
        (lambda: in_panel(), CallerSettings(use_panels=False, use_doors=False), False),
    ],
)
def test_doors_are_looked_at_where_no_panel_is_used(
    selected: Callable[[], Selected], settings: CallerSettings, *, asked: bool
) -> None:
    ways = Ways(behind_a_door())
    found = asyncio.run(sending(ways)._found(selected(), seen(), settings))
    assert ways.asked == ([("claude", "/h/claude", "s1")] if asked else [])
    assert found == (ways.found if asked else None)


@pytest.mark.requirement("LD-07")
def test_who_has_switched_doors_off_is_told_that_they_are() -> None:
    ways = Ways(behind_a_door())
    found = asyncio.run(sending(ways)._found(on_disk(1), seen("s1", "s2"), CallerSettings(use_doors=False)))
    assert isinstance(found, Held)
    assert (found.process, ways.asked) == (ProcessId(7, 7), [])
    assert "switched off for this registration (CROSS_AGENT_LIVE_DOORS)" in found.reason
    assert "Remove CROSS_AGENT_LIVE_DOORS" in found.remedy


@pytest.mark.requirement("LD-05", "LD-07")
@pytest.mark.parametrize(
    ("caller", "doors", "back"),
    [
        (replace(ALONE, stores={"codex": "/own"}), True, "codex-queue"),
        (replace(ALONE, stores={"codex": "/own"}), False, ""),
        (STARTED, True, ""),
        (Caller(), True, ""),
    ],
)
def test_the_way_back_to_who_calls(caller: Caller, doors: bool, back: str) -> None:
    """A turn of ours ends with its process, and whoever is not known is nowhere."""
    ways = Ways()
    assert asyncio.run(sending(ways)._way_back(caller, CallerSettings(use_doors=doors))) == back
    assert ways.asked == ([("codex", "/own", "t1", True, doors)] if caller.stores else [])


# the conversation


async def belongs_to(made: Engine, asked: SendCall) -> tuple[str, int]:
    sends = Sends(made.book, made.carrier, None, Grants, None, None)  # type: ignore[arg-type]
    return sends._conversation(asked, CallerSettings(max_hops=4))


async def running(made: Engine, session: str, agent: str, instance: str, **fields: Any) -> Attempt:
    """A request whose turn runs in ``session``."""
    queued = await made.book.add_request(
        delivery(id=new_delivery_id(), agent=agent, session=session, max_hops=2, **fields), "text", lambda _: {}
    )
    attempt = Attempt(f"att_{queued.id}", queued.id, instance, "", "/h", session, 1)
    await made.book.apply(queued, Event.HAND_OVER, attempt=attempt)
    return attempt


def caller_at(session: str, attempt: str, **state: Any) -> Caller:
    return caller_in(World().opens(SessionState(session, running=attempt, **state), agent="codex"))


@pytest.mark.requirement("DE-50")
def test_a_send_out_of_a_turn_that_was_injected_belongs_to_its_conversation(tmp_path: Path) -> None:
    async def story() -> None:
        async with engine(tmp_path) as made:
            attempt = await running(made, "t1", "codex", "1@1", conversation="conv_1")
            caller = caller_at("t1", attempt.id)
            assert await belongs_to(made, call(caller)) == ("conv_1", 2)
            assert await belongs_to(made, call(caller_at("t1", ""))) == ("conv_1", 2), "its shim has not told of it yet"
            assert (await belongs_to(made, call(caller_at("t1", "", turn_since=1.0))))[1] == 4, "a person's, while it waits"
            other = caller_at("t2", "")
            assert (await belongs_to(made, call(other)))[1] == 4, "a turn of its person's begins a new one"
            await running(made, "t9", "codex", "1@1", conversation="conv_1")
            with pytest.raises(Refusal, match="conv_1 has spent its 2 hops"):
                await belongs_to(made, call(caller))
            with pytest.raises(Refusal, match="conv_1 has spent its 2 hops"):
                await belongs_to(made, call(other, conversation="conv_1"))

    asyncio.run(story())


@pytest.mark.requirement("DE-50", "EN-13")
def test_a_send_out_of_a_turn_that_was_started_belongs_to_its_conversation(tmp_path: Path) -> None:
    """By what is under way; by what the turn was told only where nothing of it is known, and only what exists."""

    async def story() -> None:
        async with engine(tmp_path) as made:
            told_so = replace(STARTED, conversation="conv_told")
            assert (await belongs_to(made, call(told_so)))[0] not in ("", "conv_told"), "nobody knows that conversation"
            await made.queued(conversation="conv_told", max_hops=2)
            assert await belongs_to(made, call(told_so)) == ("conv_told", 2)
            await running(made, "t1", "codex", "1@1", conversation="conv_1")
            assert await belongs_to(made, call(told_so)) == ("conv_1", 2)
            assert (await belongs_to(made, call(ALONE)))[1] == 4, "a terminal on that session is no turn of ours"
            await made.queued(conversation="conv_1")
            with pytest.raises(Refusal) as caught:
                await belongs_to(made, call(told_so))
            assert caught.value.code == "hop_limit"

    asyncio.run(story())


@pytest.mark.requirement("DE-50")
def test_an_agent_in_the_shell_of_a_turn_spends_the_hops_of_that_turn(tmp_path: Path) -> None:
    async def story() -> None:
        async with engine(tmp_path) as made:
            nested = Caller("grok", "g1", "made up", within=("codex", "t1"))
            assert (await belongs_to(made, call(nested)))[1] == 4
            await running(made, "t1", "codex", "", conversation="conv_1")
            assert await belongs_to(made, call(nested)) == ("conv_1", 2)

    asyncio.run(story())


@pytest.mark.requirement("DE-50")
def test_the_conversation_that_is_named_counts_before_all(tmp_path: Path) -> None:
    async def story() -> None:
        async with engine(tmp_path) as made:
            await made.queued(conversation="conv_named", max_hops=3)
            attempt = await running(made, "t1", "codex", "1@1", conversation="conv_1")
            caller = caller_at("t1", attempt.id)
            assert await belongs_to(made, call(caller, conversation="conv_named")) == ("conv_named", 3)
            with pytest.raises(Refusal) as caught:
                await belongs_to(made, call(caller, conversation="conv_nobodys"))
            assert caught.value.code == "unknown_conversation"

    asyncio.run(story())
