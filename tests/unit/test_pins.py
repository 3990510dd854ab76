"""Pins: what they mean while they stand, and that they stand until they are taken away."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest

from broker.callers import Caller
from broker.errors import Refusal
from broker.guards import check_not_self
from broker.index.catalogue import Store as Records
from broker.pins import Pin, Pins
from broker.resolve import Asked, Seen, Selected, resolve
from broker.sight import Sight
from broker.store import Store
from broker.wire import SessionState
from tests.unit.made_up import CLAUDE, World, caller_in

S = SessionState

NOW = 1_800_000_000.0
HOUR = 3600.0
STORE = "/h/claude"


def pin(session: str, *, by_caller: bool = True, place: str = "/w", at: float = 0.0) -> Pin:
    return Pin("claude", place, STORE, session, by_caller, at)


def find(world: World, caller: Caller, standing: Pin | None, session: str = "", **more: Any) -> Selected:
    asked = Asked(CLAUDE, caller, session, **{"place": "/w", "now": NOW, **more})
    return resolve(asked, Seen(world.panels, world.stores["claude"], standing))


def refused(world: World, caller: Caller, standing: Pin | None, **more: Any) -> Refusal:
    with pytest.raises(Refusal) as caught:
        find(world, caller, standing, **more)
    assert caught.value.next_step
    return caught.value


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def caller(world: World) -> Caller:
    return caller_in(world.opens(S("me"), agent="codex"))


# what a pin means


@pytest.mark.requirement("SE-27", "SE-31", "SE-28")
def test_a_pinned_session_is_chosen_wherever_it_is(world: World, caller: Caller) -> None:
    world.knows("dormant", cwd="/elsewhere", moved=NOW - 1e8)
    there = world.opens(S("open"), window=None)
    world.opens(S("focus", last_human=NOW))
    for session, panel in (("dormant", None), ("open", there)):
        selected = find(world, caller, pin(session))
        assert (selected.session, selected.panel, selected.by) == (session, panel, "pin")
    named = find(world, caller, pin("dormant"), "focus")
    assert (named.session, named.by) == ("focus", "caller")


@pytest.mark.requirement("SE-31")
@pytest.mark.parametrize("barred", ["", "archived"])
def test_a_pin_whose_session_is_gone_is_named_and_nobody_takes_its_place(world: World, caller: Caller, barred: str) -> None:
    if barred:
        world.knows("gone", barred=barred)
    world.opens(S("focus", last_human=NOW), S("", empty=True))
    world.knows("active", moved=NOW)
    error = refused(world, caller, pin("gone", at=NOW))
    assert error.code == "pin_is_gone"
    assert "from /w are pinned to session gone" in str(error)
    assert barred in str(error)
    assert "empty session_id" in error.next_step


@pytest.mark.requirement("SE-31", "SE-24")
def test_a_session_that_is_called_like_a_pinned_one_does_not_inherit_its_pin(world: World, caller: Caller) -> None:
    world.opens(S("other", name="gone"))
    assert refused(world, caller, pin("gone")).code == "pin_is_gone"


@pytest.mark.requirement("SE-31", "SE-25")
def test_a_pinned_session_that_is_not_read_yet_is_not_gone(world: World, caller: Caller) -> None:
    world.stores["claude"].ready = False
    assert refused(world, caller, pin("a")).code == "index_not_ready"
    world.knows("a")
    assert find(world, caller, pin("a")).by == "pin"


@pytest.mark.requirement("SE-31")
def test_nothing_new_is_opened_while_a_pin_stands(world: World, caller: Caller) -> None:
    world.opens(S("", empty=True))
    world.knows("a")
    error = refused(world, caller, pin("a"), new=True)
    assert error.code == "pinned"
    assert "session a" in str(error) and "/w" in str(error)
    created = find(world, caller, pin("a", by_caller=False, at=NOW), new=True)
    assert created.by == "new"  # what the broker remembers by itself is in nobody's way


@pytest.mark.requirement("SE-30", "SE-31")
def test_a_pin_to_oneself_sends_nothing(world: World) -> None:
    me = caller_in(world.opens(S("me"), S("other")), "me")
    selected = find(world, me, pin("me"))
    with pytest.raises(Refusal) as caught:
        check_not_self(me, selected)
    assert caught.value.code == "own_session"


# what the broker remembers of a conversation that it opened


@pytest.mark.requirement("SE-27")
def test_a_conversation_that_was_opened_before_is_below_a_panel_and_ends_with_its_activity(world: World, caller: Caller) -> None:
    world.knows("made", moved=NOW - 3 * HOUR, cwd="/elsewhere")
    created = pin("made", by_caller=False, at=NOW - 30 * HOUR)
    assert find(world, caller, created).by == "pin"
    assert refused(world, caller, created, active=2 * HOUR).code == "no_session"
    assert find(world, caller, pin("made", by_caller=False, at=NOW - HOUR), active=2 * HOUR).by == "pin"
    world.opens(S("focus"))
    assert find(world, caller, created).session == "focus"
    assert find(world, caller, pin("made")).session == "made"


@pytest.mark.requirement("SE-27", "SE-31", "SE-40")
@pytest.mark.parametrize("barred", ["", "archived"])
def test_a_conversation_that_was_opened_before_and_is_gone_is_passed_over(world: World, caller: Caller, barred: str) -> None:
    """Nobody has asked for it, so it must not keep a message from whom it would go to otherwise."""
    if barred:
        world.knows("made", barred=barred)
    created = pin("made", by_caller=False, at=NOW)
    assert refused(world, caller, created).code == "no_session"
    world.opens(S("", empty=True))
    assert find(world, caller, created).by == "new"
    world.knows("active", moved=NOW)
    assert find(world, caller, created).session == "active"
    world.stores["claude"].ready = False
    assert refused(world, caller, created).code == "index_not_ready"  # it may be there


# that it stands


@asynccontextmanager
async def opened(path: Path) -> AsyncIterator[tuple[Pins, Store]]:
    """The pins of one broker life."""
    failures: list[BaseException] = []
    store = Store(str(path / "broker.sqlite"), failures.append)
    store.begin_generation()
    pins = Pins(store)
    pins.load()
    try:
        yield pins, store
    finally:
        store.close()
    assert failures == []


@pytest.mark.requirement("SE-27")
def test_pins_stand_until_they_are_taken_away(tmp_path: Path) -> None:
    place = "/w/\udcff half a name"

    async def story() -> None:
        async with opened(tmp_path) as (pins, _):
            await pins.set(pin("a"))
            await pins.set(pin("b", place=place, by_caller=False, at=5))
            await pins.set(Pin("codex", "/w", "/h/codex", "c", True, 1))
            await pins.set(pin("d", at=7))
        async with opened(tmp_path) as (pins, _):
            assert pins.at("claude", "/w", STORE) == pin("d", at=7)
            assert pins.at("claude", place, STORE) == pin("b", place=place, by_caller=False, at=5)
            assert pins.at("claude", "/w/below", STORE) is None
            assert len(pins.all()) == 3
            assert await pins.remove("claude", "/w", STORE) == pin("d", at=7)
            assert await pins.remove("claude", "/w", STORE) is None
        async with opened(tmp_path) as (pins, _):
            assert pins.at("claude", "/w", STORE) is None
            assert pins.at("codex", "/w", "/h/codex") == Pin("codex", "/w", "/h/codex", "c", True, 1)

    asyncio.run(story())


@pytest.mark.requirement("SE-27")
@pytest.mark.parametrize("at_once", [True, False])
def test_what_the_broker_remembers_takes_no_callers_pin_away(tmp_path: Path, *, at_once: bool) -> None:
    async def story() -> None:
        async with opened(tmp_path) as (pins, _):
            writes = [pins.set(pin("mine")), pins.set(pin("made", by_caller=False, at=NOW))]
            if at_once:
                await asyncio.gather(*writes)
            else:
                for write in writes:
                    await write
            assert pins.at("claude", "/w", STORE) == pin("mine")
        async with opened(tmp_path) as (pins, _):
            assert pins.at("claude", "/w", STORE) == pin("mine")
            await pins.remove("claude", "/w", STORE)
            for session in ("made", "made again"):
                await pins.set(pin(session, by_caller=False))
            await pins.set(pin("mine"))
            assert pins.at("claude", "/w", STORE) == pin("mine")

    asyncio.run(story())


@pytest.mark.requirement("SE-27", "SE-31", "SE-13")
def test_a_pin_counts_where_its_store_is_seen_and_nowhere_else(tmp_path: Path) -> None:
    mine, other = tmp_path / "mine", tmp_path / "other"
    mine.mkdir()
    (tmp_path / "link").symlink_to(mine)
    first = Pin("claude", "/w", str(mine), "a", by_caller=True, set=1)
    second = Pin("claude", "/w", str(other), "b", by_caller=True, set=2)

    async def story() -> None:
        async with opened(tmp_path) as (pins, _):
            sight = Sight(World().panels, None, pins, None, None)  # type: ignore[arg-type]

            def seen(store: str) -> Pin | None:
                return sight.pin(CLAUDE, "/w", Records("claude", str(tmp_path / store)))

            await pins.set(first)
            assert (seen("mine"), seen("link"), seen("other")) == (first, first, None)
            await pins.set(second)
            assert (seen("mine"), seen("other")) == (first, second)
            await pins.opened("claude", "/w", "made", str(tmp_path / "third"))
            assert seen("third") is not None
            assert await pins.remove("claude", "/w", str(other)) == second
        async with opened(tmp_path) as (pins, _):
            assert pins.at("claude", "/w", str(mine)) == first
            assert pins.at("claude", "/w", str(other)) is None

    asyncio.run(story())


@pytest.mark.requirement("SE-27")
def test_a_pin_from_before_pins_had_a_store_is_of_the_usual_one(tmp_path: Path) -> None:
    usual = os.path.realpath(os.path.expanduser("~/.claude"))

    async def story() -> None:
        async with opened(tmp_path) as (_, store):
            await store.write(lambda _: None)
        with closing(sqlite3.connect(tmp_path / "broker.sqlite")) as database, database:
            database.execute("INSERT INTO pins VALUES ('claude', ?, 'old', 1, 7)", (b"/w",))
        for _ in range(2):
            async with opened(tmp_path) as (pins, _):
                assert pins.all() == [Pin("claude", "/w", usual, "old", by_caller=True, set=7)]
        async with opened(tmp_path) as (pins, _):
            await pins.remove("claude", "/w", usual)
        async with opened(tmp_path) as (pins, _):
            assert pins.all() == []

    asyncio.run(story())


@pytest.mark.requirement("SE-27")
def test_memory_and_disk_agree_when_a_call_is_cancelled(tmp_path: Path) -> None:
    async def story() -> None:
        async with opened(tmp_path) as (pins, store):
            for change in (pins.set(pin("a")), pins.remove("claude", "/w", STORE), pins.set(pin("b"))):
                task = asyncio.ensure_future(change)
                await asyncio.sleep(0)
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
                assert task.cancelled()
                await store.write(lambda _: None)  # whatever was written before is on the disk by now
                on_disk = [Pin(*row) for row in store.pins()]
                assert pins.all() == on_disk
            assert on_disk == [pin("b")]

    asyncio.run(story())
