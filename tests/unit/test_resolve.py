"""Stories of targets: who is meant, and who is never taken instead."""

from __future__ import annotations

import os
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker import status
from broker.callers import Caller
from broker.errors import Refusal
from broker.panels import Panel
from broker.pins import Pin
from broker.processes import ProcessId
from broker.resolve import Asked, Seen, Selected, resolve, tied
from broker.scope import within
from broker.wire import SessionState
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
    **more: Any,
) -> Selected:
    target = CODEX if codex else CLAUDE
    asked = Asked(target, caller, session, new, **{"place": "/w", "now": NOW, **more})
    holders = dict.fromkeys(held, (SOMEBODY,))
    return resolve(asked, Seen(world.panels, world.stores[target.name], pin, holders, moved or {}))


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
    assert len(error) < 400


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
