"""What is shown of sessions and messages, and how a call of a tool is taken apart, without a process."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from broker import status
from broker.callers import Caller
from broker.errors import Refusal
from broker.logs import DEBUG, debugged
from broker.naming import identified
from broker.processes import ProcessId
from broker.resolve import Asked, Seen, resolve
from broker.service import Asking, Tools, directory_below
from broker.settings import CallerSettings
from broker.wire import McpOpen, SessionState
from tests.unit.engine import engine
from tests.unit.made_up import CLAUDE, CODEX, HERE, THERE, World, caller_in

S = SessionState


@pytest.fixture
def world() -> World:
    return World()


def view(world: World, caller: Caller, place: str = "/w", scope: str = "cwd") -> status.View:
    return status.View(world.panels, caller, place, scope, world.stores, {}, 60.0)


# lists


@pytest.mark.requirement("MC-03", "SE-21")
def test_a_session_that_two_panels_hold_is_listed_once_with_both(world: World) -> None:
    there = world.opens(S("twice"), window=THERE)
    here = world.opens(S("twice"), S("once"), S("", empty=True))
    caller = caller_in(here, "once")
    lines = {line["id"]: line for line in status.list_sessions(view(world, caller), limit=9)}
    assert sorted(lines) == ["once", "twice"]
    assert lines["twice"]["reached_by"] == "panel of this window"
    assert sorted((each["window"], each["pid"]) for each in lines["twice"]["open_in"]) == [
        ("other", there.process.pid),
        ("this", here.process.pid),
    ]
    assert lines["once"]["open_in"] == [{"window": "this", "pid": here.process.pid}]
    assert identified(CLAUDE, caller, world.panels, world.stores["claude"], "twice").panel is here


@pytest.mark.requirement("MC-03", "SE-10")
def test_a_session_that_is_open_in_two_directories_is_listed_where_either_is(world: World) -> None:
    here = world.opens(S("twice", cwd="/far"))
    world.opens(S("twice", cwd="/w"), window=THERE)
    assert [line["cwd"] for line in status.list_sessions(view(world, caller_in(here)), limit=9)] == ["/w"]


@pytest.mark.requirement("SE-10", "MC-03", "MC-04")
def test_the_directory_of_a_panel_is_compared_with_its_links_resolved(world: World, tmp_path: Path) -> None:
    real, link = tmp_path / "real", tmp_path / "link"
    real.mkdir()
    link.symlink_to(real)
    panel = world.opens(S("of the panel"), S("its own", cwd=f"{link}/below/.."), S("far", cwd="/far"), cwd=str(link))
    seen = view(world, caller_in(panel), str(real))
    assert {line["id"] for line in status.list_sessions(seen, limit=9)} == {"of the panel", "its own"}
    (line,) = status.overview(_nothing(), seen, ())["ide_panels"]
    assert {session["id"] for session in line["sessions"]} == {"of the panel", "its own"}


# the bridge


@pytest.mark.requirement("MC-04", "SE-21", "SE-22")
def test_the_panel_that_a_message_would_go_to_is_shown_and_what_other_windows_hold(world: World) -> None:
    me = world.opens(S("me"), agent="codex")
    world.opens(S("earlier", last_human=1.0))
    focused = world.opens(S("later", name="L", last_human=2.0), S("not in scope", cwd="/far", opened=1.0))
    world.opens(S("there", title="T"), S("later"), S("far", cwd="/far"), window=THERE)
    caller = caller_in(me)
    selected = resolve(Asked(CLAUDE, caller, place="/w"), Seen(world.panels, world.stores["claude"]))
    opening = resolve(Asked(CODEX, caller, new=True), Seen(world.panels, world.stores["codex"]))
    shown = status.overview(_nothing(), view(world, caller), [selected, opening])
    assert shown["caller"]["window_pid"] == HERE.pid
    assert [(line["agent"], line["window"], line["selection"]) for line in shown["ide_panels"]] == [
        ("codex", "this", {"session": None, "selected_by": "new"}),
        ("claude", "this", None),
        ("claude", "this", {"session": "later", "selected_by": "panel-focus"}),
        ("claude", "other", None),
    ]
    assert selected.panel is focused
    assert shown["other_window_sessions"] == [{"agent": "claude", "id": "there", "name": "T"}]
    nowhere = status.overview(_nothing(), view(world, Caller(), scope="any"), ())
    assert {line["id"] for line in nowhere["other_window_sessions"]} == {
        *("me", "earlier", "later", "not in scope", "there", "far"),
    }


@pytest.mark.requirement("MC-04")
def test_what_waits_is_shown_by_session_and_what_waits_for_the_caller_apart(world: World, tmp_path: Path) -> None:
    caller = caller_in(world.opens(S("s1")))

    async def story() -> dict[str, Any]:
        async with engine(tmp_path) as made:
            sent = [await made.queued(session=session, key=f"{session}{n}") for session in ("s1", "s2") for n in range(2)]
            await made.queued(agent="codex", session="s1", key="another agent's")
            await made.queued(session="", instance="7@7", key="new")
            shown = status.overview(made.book, view(world, caller), ())
            assert [line["delivery_id"] for line in shown["waiting_for_this_session"]] == [each.id for each in sent[:2]]
            assert status.overview(made.book, view(world, Caller()), ())["waiting_for_this_session"] == []
            return shown

    queues = asyncio.run(story())["queues"]
    assert all(line.pop("oldest_seconds") in (0, 1) for line in queues)
    assert queues == [
        {"agent": "claude", "session": "s1", "ahead": 2},
        {"agent": "claude", "session": "s2", "ahead": 2},
        {"agent": "codex", "session": "s1", "ahead": 1},
        {"agent": "claude", "session": None, "ahead": 1},
    ]


@pytest.mark.requirement("MC-04", "EN-21")
def test_every_setting_is_shown_by_its_name() -> None:
    settings = CallerSettings(max_hops=3, active=60.0, require_explicit_target=True, notes=("too many",))
    shown = status.settings_line(settings, "any")
    assert shown.keys() == {field.name for field in fields(CallerSettings)}
    assert (shown["max_hops"], shown["active"], shown["scope"], shown["notes"]) == (3, 60.0, "any", ["too many"])
    assert shown["require_explicit_target"] is True


def _nothing() -> Any:
    """A book in which nothing stands."""

    class Empty:
        store: Any

        def deliveries(self) -> list[Any]:
            return []

        def recent_deliveries(self, limit: int) -> list[Any]:
            del limit
            return []

    book = Empty()
    book.store = book
    return book


# a call


class Listens:
    """A service that notes what a call was taken for."""

    def __init__(self) -> None:
        self.asked: list[tuple[bool, Asking]] = []

    def settings(self, values: Mapping[str, str]) -> CallerSettings:
        return CallerSettings(scope=values.get("scope", "cwd"))

    async def caller(self, process: ProcessId, meta: Mapping[str, Any], opened: McpOpen) -> Caller:
        del process, meta, opened
        return Caller()

    async def sessions(self, asking: Asking, which: str, limit: int) -> dict[str, Any]:
        del which, limit
        self.asked.append((debugged.get(), asking))
        return {}


async def asked(settings: dict[str, str], **arguments: Any) -> tuple[bool, Asking]:
    service = Listens()
    opened = McpOpen("i", "1", "/w", "cross-agent", settings, {})
    tools = Tools(service, ProcessId(7, 7), opened)  # type: ignore[arg-type]
    await tools.call("list_agent_sessions", {"cwd": "", "agent": "all", "limit": 1, **arguments}, {}, "1")
    return service.asked[0]


@pytest.mark.requirement("EN-22")
def test_debug_lines_are_written_for_the_calls_of_who_wants_them_and_of_nobody_else() -> None:
    async def story() -> list[bool]:
        calls = [
            asyncio.create_task(asked(settings)) for settings in ({}, {DEBUG: ""}, {"CROSS_AGENT_SCOPE": "any"}, {DEBUG: "0"})
        ]
        return [debugs for debugs, _ in await asyncio.gather(*calls)]

    assert asyncio.run(story()) == [False, True, False, True]


@pytest.mark.requirement("SE-10", "SE-12")
def test_a_calls_own_scope_counts_more_than_the_registrations() -> None:
    assert asyncio.run(asked({"scope": "any"}))[1].scope == "any"
    assert asyncio.run(asked({"scope": "any"}, scope="tree"))[1].scope == "tree"


@pytest.mark.requirement("MC-05", "EN-25")
@pytest.mark.parametrize("wanted", ["\0", "/w\0", "~\0", "x" * 60_000, "/" * 5000, "~/" + "y/" * 2500])
def test_what_is_no_path_is_refused_before_the_system_is_asked(wanted: str) -> None:
    with pytest.raises(Refusal) as refused:
        directory_below("/w", wanted)
    assert refused.value.code == "bad_argument"
    assert len(str(refused.value)) < 200
    with pytest.raises(Refusal):
        asyncio.run(asked({}, cwd=wanted))


@pytest.mark.requirement("MC-02")
def test_a_directory_is_meant_from_where_the_call_comes_from() -> None:
    home = os.path.expanduser("~")
    for wanted, found in (("", "/w/"), ("x", "/w/x"), ("/x", "/x"), ("~/x", f"{home}/x"), ("\udcff", "/w/\udcff")):
        assert directory_below("/w", wanted) == found
