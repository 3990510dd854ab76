"""Stories of targets: who is meant, and who is never taken instead."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker import status
from broker.callers import Caller
from broker.clock import wall_clock
from broker.envelope import shown
from broker.errors import Refusal
from broker.guards import check_reachable
from broker.index.feed import Change
from broker.index.feed import packed_told as packed
from broker.panels import KnownName, Panel
from broker.pins import Pin
from broker.processes import ProcessId
from broker.resolve import Asked, Seen, Selected, resolve, tied
from broker.routes import Held
from broker.scope import within
from broker.settings import CallerSettings
from broker.wire import SessionState
from shims.shelf import Told
from tests.unit.made_up import CLAUDE, CODEX, HERE, THERE, World, caller_in

S = SessionState

NOW = 1_800_000_000.0
SOMEBODY = ProcessId(70_000_003, 1)


def refused(world: World, caller: Caller, **asked: Any) -> Refusal:
    with pytest.raises(Refusal) as caught:
        find(world, caller, **asked)
    assert caught.value.next_step
    return caught.value


def find(
    world: World,
    caller: Caller,
    session: str = "",
    *,
    new: bool = False,
    codex: bool = False,
    moved: dict[str, float] | None = None,
    pin: Pin | None = None,
    held: tuple[str, ...] = (),
    doors: tuple[str, ...] = (),
    **more: Any,
) -> Selected:
    target = CODEX if codex else CLAUDE
    asked = Asked(target, caller, session, new, **{"place": "/w", "now": NOW, **more})
    holders = dict.fromkeys(held, (SOMEBODY,))
    return resolve(asked, Seen(world.panels, world.stores[target.name], pin, holders, frozenset(doors), moved or {}))


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def caller(world: World) -> Caller:
    """A Codex session in a panel of this window."""
    return caller_in(world.opens(S("me"), agent="codex"))


# named


@pytest.mark.requirement("SE-20", "SE-28")
def test_a_session_is_found_by_its_id_in_this_window_and_in_others(world: World, caller: Caller) -> None:
    here, there = world.opens(S("a")), world.opens(S("b"), window=THERE)
    for wanted, panel in (("a", here), ("b", there)):
        selected = find(world, caller, wanted)
        assert (selected.panel, selected.session, selected.by) == (panel, wanted, "caller")


@pytest.mark.requirement("SE-20")
def test_a_named_session_is_found_by_who_has_no_window(world: World) -> None:
    world.opens(S("a", name="Tests"), window=None)
    for wanted in ("a", "Tests"):
        assert find(world, Caller(), wanted).session == "a"


@pytest.mark.requirement("SE-20", "SE-21")
def test_a_session_that_two_windows_hold_is_taken_in_this_one(world: World, caller: Caller) -> None:
    world.opens(S("a", name="Tests"), window=THERE)
    here = world.opens(S("a", name="Tests"))
    assert find(world, caller, "a").panel is here


@pytest.mark.requirement("SE-24")
def test_one_session_in_two_panels_is_not_two_sessions(world: World, caller: Caller) -> None:
    """A window that reloads has both its old and its new process for a moment (SH-15)."""
    world.opens(S("a", name="Tests"))
    world.opens(S("a", name="Tests"))
    assert find(world, caller, "tests").session == "a"


@pytest.mark.requirement("SE-24")
@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("Tests", "Tests"),
        ("Tests", "  tests\t"),
        (" Tests ", "TESTS"),
        ("Caf\u00e9", "cafe\u0301"),
        ("cafe\u0301", "CAF\u00c9"),
        ("Straße", "STRASSE"),
        ("修正 🎉", "修正 🎉"),
        ("a/b: c", "A/B: C"),
    ],
)
def test_a_name_is_the_same_in_whatever_form_it_is_written(world: World, caller: Caller, name: str, wanted: str) -> None:
    world.opens(S("a", name=name), S("b", title="Something else"))
    selected = find(world, caller, wanted)
    assert (selected.session, selected.by) == ("a", "caller")


@pytest.mark.requirement("SE-23", "SE-24")
@pytest.mark.parametrize("wanted", ["Tes", "ests", "Tests 2", "Te sts", "T.*", "Cafe", "café noir", "A", "a\u200b", "9"])
def test_a_part_of_a_name_or_id_is_nobody(world: World, caller: Caller, wanted: str) -> None:
    world.opens(S("a", name="Tests"), S("b", name="Café"), S("c9", title="Tests of the parser"))
    assert refused(world, caller, session=wanted).code == "unknown_session"


@pytest.mark.requirement("SE-24")
def test_a_generated_title_counts_when_it_is_complete(world: World, caller: Caller) -> None:
    world.opens(S("a", title="Tests of the parser"))
    assert find(world, caller, "tests of the PARSER").session == "a"
    assert refused(world, caller, session="Tests of the").code == "unknown_session"


@pytest.mark.requirement("SE-24")
def test_a_name_that_two_sessions_answer_to_is_nobody(world: World, caller: Caller) -> None:
    world.opens(S("a", name="Tests"), cwd="/w/one")
    world.opens(S("b", title="tests"), cwd="/w/two", window=THERE)
    error = refused(world, caller, session="TESTS")
    assert error.code == "ambiguous_name"
    assert "2 Claude Code sessions" in str(error)
    assert "a in /w/one, last active at an unknown time, name given, open" in str(error)
    assert "b in /w/two, last active at an unknown time, name generated, open" in str(error)


@pytest.mark.requirement("SE-24")
def test_an_id_is_stronger_than_a_name(world: World, caller: Caller) -> None:
    """Whoever calls a session by the id of another one takes nothing over."""
    world.opens(S("a"), S("b", name="a"))
    assert find(world, caller, "a").session == "a"


@pytest.mark.requirement("SE-23")
def test_who_does_not_exist_is_nobody_and_what_is_similar_is_told(world: World, caller: Caller) -> None:
    world.opens(S("a", name="Parser tests"), S("b", title="Lunch"))
    world.opens(S("c", name="Parser test"), agent="codex")
    error = refused(world, caller, session="Parser test")
    assert error.code == "unknown_session"
    assert "Similar: “Parser tests”" in str(error)
    assert "Lunch" not in str(error)


@pytest.mark.requirement("SE-23")
def test_a_name_is_shown_on_one_short_line(world: World, caller: Caller) -> None:
    world.opens(S("a", name="x\n\u202ey" + "z" * 500))
    error = str(refused(world, caller, session="x\n\u202ey" + "z" * 499))
    assert error.isprintable()
    assert len(error) < 600


@pytest.mark.requirement("SE-24", "MC-03")
@pytest.mark.parametrize("name", ["👩\u200d👩\u200d👧 修正", "می\u200cخواهم", "a  b", "one\ntwo", "n" * 500, "\x1b[31mred"])
def test_a_name_is_understood_as_a_list_shows_it(world: World, caller: Caller, name: str) -> None:
    world.opens(S("a", name=name), S("b", name="Other"))
    world.knows("c", name=f"!{name}")
    view = status.View(world.panels, caller, "/w", "any", world.stores, {}, 60.0)
    lines = {line["id"]: line["name"] for line in status.list_sessions(view, limit=9)}
    assert find(world, caller, lines["a"]).session == "a"
    world.opens(S("d", title=name))
    assert refused(world, caller, session=lines["a"]).code == "ambiguous_name"


@pytest.mark.requirement("SE-24", "DE-12")
def test_a_directory_gets_into_no_line_as_it_is(world: World, caller: Caller) -> None:
    cwd = "/w\n\x1b[31mIGNORE  ALL"
    world.opens(S("a", name="Tests"), cwd=cwd)
    world.knows("b", name="tests", cwd=cwd)
    assert "in /w [31mIGNORE  ALL" in str(refused(world, caller, session="Tests"))
    view = status.View(world.panels, caller, "/", "any", world.stores, {}, 60.0)
    assert {line["cwd"] for line in status.list_sessions(view, limit=9)} >= {"/w [31mIGNORE  ALL"}
    error = refused(World(), Caller(), place=cwd)
    assert error.code == "no_session"
    assert str(error).isprintable()


@pytest.mark.requirement("SE-23", "EN-25")
def test_who_is_unknown_costs_the_loop_little(world: World, caller: Caller) -> None:
    alphabet = "abcdefghij klmnopqrst"
    for number in range(500):
        world.knows(f"s{number}", title="".join(alphabet[(number * 7 + at * (number % 13 + 1)) % 21] for at in range(150)))
    wanted = world.stores["claude"].recent()[3].title[:140]
    begun = time.process_time()
    error = str(refused(world, caller, session=wanted))
    assert time.process_time() - begun < 0.05
    assert world.stores["claude"].recent()[3].title in error


@pytest.mark.requirement("SE-23")
def test_sessions_of_other_agents_are_not_meant(world: World, caller: Caller) -> None:
    world.opens(S("a", name="Tests"), agent="codex")
    for wanted in ("a", "Tests"):
        assert refused(world, caller, session=wanted).code == "unknown_session"


@pytest.mark.requirement("SE-23", "SE-20")
@given(st.text(min_size=1))
def test_a_name_that_does_not_exist_never_becomes_another_session(wanted: str) -> None:
    world = World()
    caller = caller_in(world.opens(S("me"), agent="codex"))
    world.opens(S("one id", name="one name"), S("", empty=True))
    try:
        selected = find(world, caller, wanted)
    except Refusal as error:
        assert error.code == "unknown_session"
    else:
        assert wanted.strip().casefold() in ("one id", "one name")
        assert selected.session == "one id"


@pytest.mark.requirement("SE-20")
def test_an_empty_panel_with_an_id_is_found_by_it(world: World, caller: Caller) -> None:
    world.opens(S("not yet", empty=True))
    assert find(world, caller, "not yet").session == "not yet"


@pytest.mark.requirement("SE-26")
@pytest.mark.parametrize("session", ["a", "nobody"])
def test_a_named_session_and_a_new_one_contradict_each_other(world: World, caller: Caller, session: str) -> None:
    world.opens(S("a"), S("", empty=True))
    assert refused(world, caller, session=session, new=True).code == "contradictory_target"


# by focus

FOCUS: dict[str, tuple[list[tuple[SessionState, bool]], str]] = {
    "the only one": ([(S("a"), True)], "a"),
    "where the person typed last": ([(S("a", last_human=10), True), (S("b", last_human=20), True)], "b"),
    "typing counts more than opening": ([(S("a", last_human=10, opened=1), True), (S("b", opened=99), True)], "a"),
    "opened last, while nobody typed": ([(S("a", opened=5), True), (S("b", opened=9), True), (S("c", opened=7), True)], "b"),
    "a turn that runs is no focus": ([(S("a", last_human=20), True), (S("b", last_human=10, turn_since=99), True)], "a"),
    "another window's never": ([(S("a", last_human=10), True), (S("b", last_human=99), False)], "a"),
    "one that takes nothing is passed over": ([(S("a", last_human=10), True), (S("b", last_human=99, accepts=False), True)], "a"),
    "an empty one is no conversation": ([(S("a", last_human=1), True), (S("b", empty=True, last_human=9), True)], "a"),
}


@pytest.mark.requirement("SE-20", "SE-21", "SE-22", "SE-28")
@pytest.mark.parametrize(("panels", "expected"), FOCUS.values(), ids=FOCUS)
@pytest.mark.parametrize("backwards", [False, True])
def test_unaddressed(
    world: World, caller: Caller, panels: list[tuple[SessionState, bool]], expected: str, *, backwards: bool
) -> None:
    for state, here in reversed(panels) if backwards else panels:
        world.opens(state, window=HERE if here else THERE)
    selected = find(world, caller)
    assert (selected.session, selected.by) == (expected, "panel-focus")


MOVED: dict[str, tuple[list[SessionState], dict[str, float], str]] = {
    "the one that moved last": ([S("a", opened=1), S("b", opened=9), S("c", opened=5)], {"a": 20, "b": 10}, "a"),
    "one that moved, and others of which nothing is known": ([S("a", opened=9), S("b", opened=5)], {"b": 1}, "b"),
    "of two that never moved the one opened last": ([S("a", opened=5), S("b", opened=9)], {"a": 0, "b": 0}, "b"),
    "nothing is known of any": ([S("a", opened=5), S("b", opened=9)], {}, "b"),
    "somebody typed while the records were read": ([S("a", last_human=1), S("b", opened=9)], {"a": 10, "b": 20}, "a"),
    "the one that moved last has been closed meanwhile": ([S("a", opened=5), S("b", opened=9)], {"c": 99, "a": 10}, "a"),
}


@pytest.mark.requirement("SE-22")
@pytest.mark.parametrize(("states", "moved", "expected"), MOVED.values(), ids=MOVED)
def test_unaddressed_while_nobody_typed(
    world: World, caller: Caller, states: list[SessionState], moved: dict[str, float], expected: str
) -> None:
    for state in states:
        world.opens(state)
    selected = find(world, caller, moved=moved)
    assert (selected.session, selected.by) == (expected, "panel-focus")


@pytest.mark.requirement("SE-22")
def test_records_are_asked_only_where_they_decide(world: World, caller: Caller) -> None:
    assert tied(CLAUDE, caller, world.panels) == {}
    panel = world.opens(S("a"))
    world.opens(S("other window"), window=THERE)
    world.opens(S("takes nothing", accepts=False), S("no conversation", empty=True))
    world.opens(S("closing"), closing=True)
    assert tied(CLAUDE, caller, world.panels) == {}
    other = world.opens(S("b"))
    assert tied(CLAUDE, caller, world.panels) == {"a": panel, "b": other}
    assert tied(CLAUDE, caller_in(panel), world.panels) == {}  # its own session is none
    world.panels.update(other.peer, (S("b", last_human=1),), False)
    assert tied(CLAUDE, caller, world.panels) == {}


@pytest.mark.requirement("SE-22", "EN-05")
def test_a_session_that_a_panel_only_claims_is_neither_chosen_nor_found(world: World, caller: Caller) -> None:
    panel = world.opens(S("a", last_human=10))
    world.panels.update(panel.peer, (S("a", last_human=10), S("b", name="Tests", last_human=20)), False)
    assert find(world, caller).session == "a"
    for wanted in ("b", "Tests"):
        assert refused(world, caller, session=wanted).code == "unknown_session"


@pytest.mark.requirement("SE-22")
def test_a_panel_that_is_closing_is_not_chosen(world: World, caller: Caller) -> None:
    world.opens(S("a", last_human=10))
    world.opens(S("b", last_human=20), closing=True)
    assert find(world, caller).session == "a"


@pytest.mark.requirement("SE-22")
def test_a_turn_that_was_injected_moves_no_focus(world: World, caller: Caller) -> None:
    typed, other = world.opens(S("a", last_human=20)), world.opens(S("b", last_human=10))
    world.panels.update(other.peer, (S("b", last_human=10, turn_since=500, running="att_1"),), False)
    world.panels.update(other.peer, (S("b", last_human=10),), False)
    assert find(world, caller).panel is typed


@pytest.mark.requirement("SE-22")
def test_the_callers_own_session_is_never_chosen(world: World) -> None:
    me = world.opens(S("me", last_human=99), S("other", last_human=1))
    assert find(world, caller_in(me, "me")).session == "other"


@pytest.mark.requirement("SE-21")
@pytest.mark.parametrize("known", [True, False])
def test_nothing_outside_the_callers_window_is_chosen(world: World, *, known: bool) -> None:
    world.opens(S("a"), S("b", empty=True), window=THERE)
    world.opens(S("c"), window=None)
    caller = caller_in(world.opens(S("me"), agent="codex")) if known else Caller()
    error = refused(world, caller)
    assert error.code == "no_session"
    assert "list_agent_sessions" in error.next_step
    assert ("in this window" in str(error)) is known


# new


def _empties(world: World) -> tuple[Panel, Panel]:
    return world.opens(S("a", last_human=1)), world.opens(S("", empty=True))


@pytest.mark.requirement("SE-40", "SE-20", "SE-28")
def test_a_new_conversation_opens_in_a_panel_that_has_none(world: World, caller: Caller) -> None:
    _, empty = _empties(world)
    selected = find(world, caller, new=True)
    assert (selected.panel, selected.session, selected.by) == (empty, "", "new")


@pytest.mark.requirement("SE-40", "SE-20")
def test_a_conversation_that_exists_wins_over_a_new_one(world: World, caller: Caller) -> None:
    _empties(world)
    assert find(world, caller).session == "a"


@pytest.mark.requirement("SE-40", "SE-20")
def test_unaddressed_with_nothing_but_an_empty_panel_begins_there(world: World, caller: Caller) -> None:
    world.opens(S("", empty=True))
    assert find(world, caller).by == "new"


@pytest.mark.requirement("SE-40")
def test_an_empty_session_that_has_its_id_already_keeps_it(world: World, caller: Caller) -> None:
    world.opens(S("id", empty=True))
    selected = find(world, caller, new=True)
    assert (selected.session, selected.by) == ("id", "new")


@pytest.mark.requirement("SE-40")
def test_where_any_panel_opens_conversations_a_used_one_serves(world: World) -> None:
    caller = caller_in(world.opens(S("me")))
    used = world.opens(S("t1"), agent="codex")
    selected = find(world, caller, new=True, codex=True)
    assert (selected.panel, selected.session, selected.by) == (used, "", "new")


@pytest.mark.requirement("SE-40", "SE-21")
@pytest.mark.parametrize(
    "elsewhere",
    [{"window": THERE}, {"closing": True}, {"agent": "codex"}],
    ids=["another window", "closing", "another agent"],
)
def test_a_new_conversation_opens_nowhere_else(world: World, caller: Caller, elsewhere: dict[str, Any]) -> None:
    world.opens(S("", empty=True), **elsewhere)
    world.opens(S("a"), S("", empty=True, accepts=False))
    assert refused(world, caller, new=True).code == "no_session"


# scope


@pytest.mark.requirement("SE-10")
@pytest.mark.parametrize(
    ("where", "scopes"),
    [
        ("/p/q", {"cwd", "tree", "any"}),
        ("/p/q/r/s", {"cwd", "tree", "any"}),
        ("/p", {"tree", "any"}),
        ("/", {"tree", "any"}),
        ("/p/qq", {"any"}),
        ("/p/r", {"any"}),
        ("/p/q/../r", {"any"}),
        ("/p/q/", {"cwd", "tree", "any"}),
    ],
)
def test_scope_is_the_directory_below_above_or_anything(where: str, scopes: set[str]) -> None:
    assert {scope for scope in ("cwd", "tree", "any") if within(os.path.normpath(where), "/p/q", scope)} == scopes


@pytest.mark.requirement("SE-10", "SE-21")
def test_a_list_shows_every_window_but_only_its_scope(world: World) -> None:
    me = world.opens(S("me", cwd="/p"), cwd="/p")
    world.opens(S("b", cwd="/p/q"), window=THERE, cwd="/p")
    world.opens(S("c"), cwd="/elsewhere")
    view = status.View(world.panels, caller_in(me), "/p", "cwd", {"claude": world.stores["claude"]}, {}, 1)
    listed = status.list_sessions(view, limit=9)
    assert [(line["id"], line["reached_by"], line["is_this_session"]) for line in listed] == [
        ("me", "panel of this window", True),
        ("b", "panel of another window", False),
    ]


@pytest.mark.requirement("SE-11", "SE-12", "MC-03")
def test_a_list_is_ordered_by_directory_and_then_by_what_moved_last_and_bounded(world: World) -> None:
    me = world.opens(S("me", cwd="/p", opened=1), cwd="/p")
    world.opens(S("open", cwd="/p/q", opened=5), cwd="/p")
    world.knows("open", cwd="/p/q", moved=NOW - 50)  # it moved after it was opened, as its records tell
    for place, identifier, moved in (
        ("/p", "old", NOW - 200),
        ("/p", "new", NOW - 100),
        ("/p/q", "below", NOW - 60),
        ("/p/q", "newest below", NOW - 1),
        ("/", "above", NOW),
        ("/x", "elsewhere", NOW),
    ):
        world.knows(identifier, cwd=place, moved=moved)
    world.knows("child", cwd="/p", moved=NOW, barred="a sub-agent's thread")

    def listed(scope: str, limit: int = 99) -> list[str]:
        world.stores["claude"].path = me.store
        view = status.View(world.panels, caller_in(me), "/p", scope, {"claude": world.stores["claude"]}, {}, 1)
        return [line["id"] for line in status.list_sessions(view, limit=limit)]

    cwd = ["new", "old", "me", "newest below", "open", "below"]
    assert listed("cwd") == cwd
    assert listed("tree") == [*cwd, "above"]
    assert listed("any") == [*cwd, "above", "elsewhere"]
    for limit in range(1, 9):
        assert listed("any", limit) == [*cwd, "above", "elsewhere"][:limit]


@pytest.mark.requirement("MC-03", "SE-09")
def test_every_line_of_a_list_has_the_same_fields(world: World) -> None:
    me = world.opens(S("me", name="\u202eopen\x1b[2J\none"))
    world.knows("dormant", title="what it was about", moved=NOW)
    world.knows("held", name="given", moved=NOW)
    held = {"claude": {"held": (SOMEBODY,)}}
    view = status.View(world.panels, caller_in(me), "/w", "cwd", {"claude": world.stores["claude"]}, held, 1e12)
    lines = {line["id"]: line for line in status.list_sessions(view, limit=9)}
    assert len({frozenset(line) for line in lines.values()}) == 1
    shown = {
        identifier: tuple(line[field] for field in ("name", "name_kind", "live", "reached_by", "held_by_pid", "accepts_messages"))
        for identifier, line in lines.items()
    }
    assert shown == {
        "me": ("open[2J one", "given", True, "panel of this window", None, True),
        "dormant": ("what it was about", "generated", False, None, None, False),
        "held": ("given", "given", True, None, SOMEBODY.pid, False),
    }
    assert {line["why_not"] for line in lines.values()} == {
        None,
        "it is not open in an editor panel",
        "a process holds it that no message reaches",
    }


# the records


@pytest.mark.requirement("SE-12", "SE-20", "SE-28")
@pytest.mark.parametrize("scope", ["cwd", "tree", "any"])
def test_ids_and_names_are_found_in_all_directories(world: World, caller: Caller, scope: str) -> None:
    world.knows("a", cwd="/far/away", name="Tests", moved=NOW - 1e8)
    for wanted in ("a", " tests "):
        selected = find(world, caller, wanted, scope=scope)
        assert (selected.session, selected.panel, selected.by) == ("a", None, "caller")


@pytest.mark.requirement("SE-24")
def test_open_and_stale_sessions_of_one_name_are_told_apart(world: World, caller: Caller) -> None:
    world.opens(S("live", name="Tests"), cwd="/w/one")
    world.knows("stale", cwd="/w/two", title="tests", moved=wall_clock() - 3 * 86400)
    error = refused(world, caller, session="Tests")
    assert error.code == "ambiguous_name"
    assert "live in /w/one, last active at an unknown time, name given, open" in str(error)
    assert "stale in /w/two, last active 3 days ago, name generated" in str(error)
    assert find(world, caller, "stale").session == "stale"


@pytest.mark.requirement("SE-24")
def test_an_open_session_is_called_what_its_panel_says_and_not_what_it_was_called(world: World, caller: Caller) -> None:
    """A rename reaches the panel before the records are read again."""
    world.opens(S("a", name="New"))
    world.knows("a", name="Old")
    assert find(world, caller, "new").session == "a"
    assert refused(world, caller, session="Old").code == "unknown_session"


@pytest.mark.requirement("SE-03", "SE-24")
def test_the_name_that_an_editor_gave_a_tab_counts_more_than_the_agents_own(world: World) -> None:
    panel = world.opens(S("a", name="Title"), S("b", title="Words"), agent="grok")
    for first, names in ((False, ("Title", "Tab")), (True, ("Tab", "Tab"))):
        for session in ("a", "b"):
            world.panels.name(panel.process, session, KnownName("Tab", "Other words", first))
        assert tuple(state.name for state in panel.sessions) == names
    world.panels.name(panel.process, "a", KnownName("", "Other words", True))
    assert panel.sessions[0] == S("a", name="Title")


NAMES = {
    "decomposed": ("Cafe\u0301", "CAF\u00c9"),
    "emoji": ("👩‍👩‍👧 修正", "👩‍👩‍👧 修正"),
    "right to left": ("a \u202e drow", "A \u202e drow"),
    "zero width": ("a\u200bb", "a\u200bB"),
    "long": ("n" * 500, "N" * 500),
    "two lines": ("one\ntwo", "one\ntwo\n"),
    "escape": ("\x1b[31mred", "\x1b[31mRED"),
}


@pytest.mark.requirement("SE-24")
@pytest.mark.parametrize(("name", "wanted"), NAMES.values(), ids=NAMES)
@pytest.mark.parametrize("recorded", [True, False])
def test_a_name_of_any_form_is_kept_as_it_is_and_shown_on_one_line(
    world: World, caller: Caller, name: str, wanted: str, *, recorded: bool
) -> None:
    world.knows("a", name=name) if recorded else world.opens(S("a", name=name))
    selected = find(world, caller, wanted)
    assert (selected.session, selected.name) == ("a", name)
    assert refused(world, caller, session=wanted.strip()[:-1]).code == "unknown_session"
    world.knows("b", name=name)
    error = str(refused(world, caller, session=wanted))
    assert error.isprintable() and len(error) < 400
    assert shown(name).isprintable()
    assert str(refused(world, caller, session=f"{wanted.strip()}!")).isprintable()


@pytest.mark.requirement("SE-23")
def test_what_is_similar_is_told_of_long_names_as_well(world: World, caller: Caller) -> None:
    world.knows("a", name="a long story of " + "x" * 400)
    world.knows("b", name="Parser tests", cwd="/far")
    world.knows("c", name="Parser tests, by a child", barred="a sub-agent's thread")
    assert "Similar: “a long story" in str(refused(world, caller, session="a long story of " + "x" * 380 + "y"))
    error = str(refused(world, caller, session="parser test"))
    assert "“Parser tests”" in error and "child" not in error


@pytest.mark.requirement("SE-23", "SE-20")
def test_a_name_that_nobody_has_opens_nothing(world: World, caller: Caller) -> None:
    world.opens(S("", empty=True))
    world.knows("a", moved=NOW)
    assert refused(world, caller, session="nobody").code == "unknown_session"


@pytest.mark.requirement("SE-02", "SE-20")
def test_who_takes_no_messages_is_refused_with_the_reason(world: World, caller: Caller) -> None:
    world.knows("a", name="Tests", barred="archived", moved=NOW)
    for wanted in ("a", "tests"):
        error = refused(world, caller, session=wanted)
        assert error.code == "not_a_target"
        assert "session a " in str(error) and "archived" in str(error)
    world.knows("b", name="Tests")
    assert find(world, caller, "Tests").session == "b"  # who is no target is nobody's namesake


@pytest.mark.requirement("SE-25")
def test_a_name_is_not_looked_up_in_records_that_are_read_in_part(world: World, caller: Caller) -> None:
    world.opens(S("open", name="Tests"))
    world.knows("a", name="Parser")
    store = world.stores["claude"]
    store.ready = False
    for wanted in ("Tests", "Parser", "nobody", "an id that is not read yet"):
        error = refused(world, caller, session=wanted)
        assert error.code == "index_not_ready"
        assert "1 sessions are known" in str(error)
        assert error.retry_safe
    for wanted in ("open", "a"):  # an id is an id
        assert find(world, caller, wanted).session == wanted
    store.ready = True
    assert [find(world, caller, wanted).session for wanted in ("Tests", "Parser")] == ["open", "a"]


@pytest.mark.requirement("SE-25", "SE-24")
def test_a_name_that_more_than_are_kept_may_have_is_not_provably_one(world: World, caller: Caller) -> None:
    world.knows("a", name="Dup")
    store = world.stores["claude"]
    store.apply([Change(99, packed(Told(names=(("b", "other"),), left_out=True)))])
    error = refused(world, caller, session="dup")
    assert (error.code, "1 sessions were reached" in str(error), " a," in str(error)) == ("ambiguous_name", True, True)
    assert find(world, caller, "a").session == "a"
    store.apply([Change(99, None)])
    assert find(world, caller, "dup").session == "a"


@pytest.mark.requirement("SE-25", "SE-20")
def test_nothing_new_is_opened_while_one_that_goes_on_may_be_there(world: World, caller: Caller) -> None:
    world.opens(S("", empty=True))
    world.stores["claude"].ready = False
    assert refused(world, caller).code == "index_not_ready"
    assert find(world, caller, new=True).by == "new"
    world.opens(S("a"))
    assert find(world, caller).by == "panel-focus"  # no record decides this


# discovery


@pytest.mark.requirement("SE-07", "SE-20", "SE-28")
def test_the_active_session_in_scope_is_discovered(world: World, caller: Caller) -> None:
    world.knows("a", moved=NOW - 239 * 60)
    selected = find(world, caller)
    assert (selected.session, selected.panel, selected.by) == ("a", None, "discovery")
    assert refused(world, caller, active=238 * 60.0).code == "no_session"
    assert find(world, caller, active=239 * 60.0).session == "a"


DISCOVERED: dict[str, tuple[dict[str, dict[str, Any]], str, str]] = {
    "the one that moved last": ({"a": {"moved": 1}, "b": {"moved": 2}}, "cwd", "b"),
    "its own directory before those below": ({"a": {"moved": 1}, "b": {"moved": 2, "cwd": "/w/below"}}, "cwd", "a"),
    "one below": ({"a": {"moved": 1, "cwd": "/w/below"}, "b": {"moved": 2, "cwd": "/"}}, "cwd", "a"),
    "a parent's after those below": ({"a": {"moved": 1, "cwd": "/w/below"}, "b": {"moved": 2, "cwd": "/"}}, "tree", "a"),
    "a parent's": ({"a": {"moved": 1, "cwd": "/"}, "b": {"moved": 2, "cwd": "/other"}}, "tree", "a"),
    "any": ({"a": {"moved": 1, "cwd": "/other"}}, "any", "a"),
    "not a sub-agent's": ({"a": {"moved": 1}, "b": {"moved": 2, "barred": "a sub-agent's thread"}}, "cwd", "a"),
    "not one that is held": ({"a": {"moved": 1}, "held": {"moved": 2}}, "cwd", "a"),
    "not one that another window has open": ({"a": {"moved": 1}, "there": {"moved": 2}}, "cwd", "a"),
    "nobody's directory is nowhere": ({"a": {"moved": 1}, "b": {"moved": 2, "cwd": ""}}, "cwd", "a"),
}


@pytest.mark.requirement("SE-10", "SE-11", "SE-20", "SE-21")
@pytest.mark.parametrize(("records", "scope", "expected"), DISCOVERED.values(), ids=DISCOVERED)
def test_discovered(world: World, caller: Caller, records: dict[str, dict[str, Any]], scope: str, expected: str) -> None:
    world.opens(S("there"), window=THERE)
    for identifier, facts in records.items():
        world.knows(identifier, **{**facts, "moved": NOW - 10 + facts["moved"]})
    assert find(world, caller, scope=scope, held=("held",)).session == expected


@pytest.mark.requirement("SE-30")
def test_the_callers_own_session_is_not_discovered(world: World) -> None:
    world.knows("me", moved=NOW)
    terminal = Caller("claude", "me", "made up")
    assert refused(world, terminal).code == "no_session"
    world.knows("other", moved=NOW - 5)
    assert find(world, terminal).session == "other"


@pytest.mark.requirement("SE-30", "SE-27")
def test_the_conversation_that_was_opened_does_not_choose_itself(world: World) -> None:
    world.knows("me", moved=NOW)
    world.knows("other", moved=NOW - 5)
    created = Pin("claude", "/w", "/h/claude", "me", by_caller=False, set=NOW)
    assert find(world, Caller("claude", "me", "made up"), pin=created).session == "other"
    assert find(world, Caller("claude", "another", "made up"), pin=created).by == "pin"


# the order

Step = tuple[str, str, Callable[[World], None], dict[str, Any]]

PINNED = Pin("claude", "/w", "/h/claude", "pinned", by_caller=True, set=0)
MADE = Pin("claude", "/w", "/h/claude", "made", by_caller=False, set=NOW)

STEPS: list[Step] = [
    ("named here", "wanted", lambda world: _opened(world, "wanted"), {"session": "wanted"}),
    ("named in another window", "wanted", lambda world: _opened(world, "wanted", THERE), {"session": "wanted"}),
    ("named in the records", "wanted", lambda world: world.knows("wanted", moved=NOW), {"session": "wanted"}),
    ("pinned", "pinned", lambda world: world.knows("pinned"), {"pin": PINNED}),
    ("focus", "focus", lambda world: _opened(world, "focus"), {}),
    ("opened before", "made", lambda world: world.knows("made"), {"pin": MADE}),
    ("discovered", "found", lambda world: world.knows("found", moved=NOW), {}),
    ("new", "", lambda world: _opened(world, "", empty=True), {}),
]


def _opened(world: World, identifier: str, window: ProcessId = HERE, *, empty: bool = False) -> None:
    world.opens(S(identifier, empty=empty, opened=NOW), window=window)


@pytest.mark.requirement("SE-20", "SE-27")
@pytest.mark.parametrize(
    ("earlier", "later"), list(itertools.combinations(STEPS, 2)), ids=lambda step: str(step[0]).replace(" ", "-")
)
def test_the_earlier_step_wins(world: World, caller: Caller, earlier: Step, later: Step) -> None:
    """Whatever an earlier step finds, a later one is not asked for; alone, each finds what it is there for."""
    for step in (earlier, later):
        alone = World()
        step[2](alone)
        selected = find(alone, caller_in(alone.opens(S("me"), agent="codex")), **step[3])
        assert selected.session == step[1]
    later[2](world)
    earlier[2](world)
    asked = {**later[3], **earlier[3]}
    selected = find(world, caller, **asked)
    assert selected.session == earlier[1]
    if "named" in earlier[0]:
        here, there = "here" in earlier[0], "window" in earlier[0]
        assert (selected.panel.window if selected.panel else None) == (HERE if here else THERE if there else None)


# what cannot be reached


@pytest.mark.requirement("SE-20", "SE-09")
def test_a_session_that_is_not_open_is_named_in_the_refusal(world: World, caller: Caller) -> None:
    world.knows("a", name="Parser\x1b[2J tests")
    selected = find(world, caller, "a")
    held = Held(SOMEBODY, "it has no inbox", "Update it.")
    with pytest.raises(Refusal) as caught:
        check_reachable(selected, None, CallerSettings(headless=False))
    assert caught.value.code == "headless_disabled"
    assert "session a (“Parser[2J tests”) is known, but not open" in str(caught.value)
    with pytest.raises(Refusal) as caught:
        check_reachable(selected, held, CallerSettings())
    assert caught.value.code == "session_held"
    assert f"process {SOMEBODY.pid} holds it, which no message reaches: it has no inbox" in str(caught.value)
    assert caught.value.next_step.startswith("Update it. Or name another session")
    world.opens(S("a"))
    check_reachable(find(world, caller, "a"), held, CallerSettings())


@pytest.mark.requirement("DE-53")
def test_a_session_that_is_open_is_never_reached_beside_its_panel(world: World, caller: Caller) -> None:
    world.opens(S("a"))
    with pytest.raises(Refusal) as caught:
        check_reachable(find(world, caller, "a"), None, CallerSettings(use_panels=False))
    assert caught.value.code == "session_held"


@pytest.mark.requirement("EN-20", "MC-04")
@pytest.mark.parametrize(
    ("moved", "cwd", "barred", "guess"),
    [(NOW - 5, "/w", "", "a"), (NOW - 5, "/w/below", "", None), (NOW - 500, "/w", "", None), (NOW - 5, "/w", "archived", None)],
)
def test_a_guess_at_the_caller_is_shown_as_one(
    world: World, monkeypatch: pytest.MonkeyPatch, moved: float, cwd: str, barred: str, guess: str | None
) -> None:
    monkeypatch.setattr(status, "wall_clock", lambda: NOW)
    world.knows("a", agent="codex", cwd=cwd, moved=moved, barred=barred)

    def line(caller: Caller) -> dict[str, Any]:
        return status.caller_line(status.View(world.panels, caller, "/w", "cwd", world.stores, {}, 60))

    assert line(Caller("codex", "", "made up")).get("guessed_session") == guess
    assert "guessed_session" not in line(Caller("codex", "t1", "made up"))
    assert "guessed_session" not in line(Caller())
