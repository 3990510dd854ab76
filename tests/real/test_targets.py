"""Which session a message reaches when none is named, and what a panel opens for it: focus, windows, new conversations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.real.binaries import CLAUDE_VERSIONS, CODEX_VERSIONS
from tests.real.exchange import World, is_message, is_reply
from tests.real.party import CodexParty
from tests.real.releases import every

if TYPE_CHECKING:
    from tests.real.party import Party

claude_versions = pytest.mark.parametrize("version", CLAUDE_VERSIONS)

MESSAGE: Final = (
    "a message for whoever that is, longer than a summary that would hold its script; it goes on until here [[reply it is me]]"
)


def greet(party: Party, words: str = "hello") -> None:
    """The person types into the panel."""
    turns = len(party.turns())
    party.say(f"{words} [[say hello]]")
    party.wait_turns(turns + 1)


def codes(answer: dict[str, Any]) -> list[str]:
    return [warning["code"] for warning in answer["warnings"]]


# Focus


@pytest.mark.requirement("SE-22", "SH-20", "SH-21", "SE-28")
@pytest.mark.parametrize(("sender", "target"), [("claude-2.1.332", "codex-0.171.0"), ("codex-0.154.0", "claude-2.1.197")])
def test_panel_that_the_person_typed_into_last_is_chosen(world: World, sender: str, target: str) -> None:
    first, second, asking = world.open(target), world.open(target), world.open(sender)
    greet(second)
    greet(first)
    answer = asking.call(first.tool, message=MESSAGE)
    assert (answer["target_session_id"], answer["target_selected_by"]) == (first.session, "panel-focus")
    assert "unaddressed" in codes(answer)
    assert not answer["caller_supplied_session_id"]
    asking.wait_turn(lambda turn: is_reply(turn, "it is me"))

    # A message that comes in is no focus …
    answer = asking.call(first.tool, message=MESSAGE, session_id=second.session)
    assert (answer["target_session_id"], answer["target_selected_by"]) == (second.session, "caller")
    second.wait_turn(is_message)
    assert asking.call(first.tool, message=MESSAGE)["target_session_id"] == first.session
    # … and what a person types is.
    greet(second, "now here")
    assert asking.call(first.tool, message=MESSAGE)["target_session_id"] == second.session


# Windows


@pytest.mark.requirement("SE-21", "MC-03")
@pytest.mark.parametrize(("sender", "target"), [("claude-2.1.332", "codex-0.171.0"), ("codex-0.171.0", "claude-2.1.332")])
def test_only_a_named_session_is_reached_in_another_window(world: World, sender: str, target: str) -> None:
    there, here = world.open(target, window=True), world.open(sender)
    greet(there)
    refused = here.call(there.tool, message=MESSAGE)
    assert (refused["ok"], refused["code"]) == (False, "no_session")
    assert "in this window" in refused["error"] and "list_agent_sessions" in refused["next_step"]
    listed = here.call("list_agent_sessions", scope="any")["sessions"]
    shown = {session["id"]: session["reached_by"] for session in listed}
    assert shown == {there.session: "panel of another window", here.session: "panel of this window"}

    answer = here.call(there.tool, message=MESSAGE, session_id=there.session)
    assert answer["target_session_id"] == there.session
    here.wait_turn(lambda turn: is_reply(turn, "it is me"))
    windows = {panel["agent"]: panel["window"] for panel in there.call("bridge_status")["ide_panels"]}
    assert windows == {there.agent: "this", here.agent: "other"}


# New conversations


@pytest.mark.requirement("SH-46", "SE-40")
@claude_versions
@pytest.mark.parametrize("named", [False, True], ids=["unaddressed", "named"])
def test_empty_claude_panel_takes_a_first_message(world: World, version: str, named: bool) -> None:
    empty, asking = world.claude(version), world.codex()
    session = empty.session
    world.wait_hosted(session)
    answer = asking.call("send_to_claude", message=MESSAGE, **({"session_id": session} if named else {}))
    assert (answer["target_session_id"], answer["target_selected_by"]) == (session, "caller" if named else "new")
    asking.wait_turn(lambda turn: is_reply(turn, "it is me"))
    assert [is_message(turn, MESSAGE) for turn in empty.turns()] == [True]
    assert empty.session == session
    assert not world.wait_session(session)["empty"]


@pytest.mark.requirement("SH-46", "SE-40", "SE-26")
def test_claude_panel_with_a_conversation_opens_no_other(world: World) -> None:
    used, asking = world.claude(), world.codex()
    greet(used)
    refused = asking.call("send_to_claude", message=MESSAGE, new_session=True)
    assert (refused["ok"], refused["code"]) == (False, "no_session")
    refused = asking.call("send_to_claude", message=MESSAGE, new_session=True, session_id=used.session)
    assert (refused["ok"], refused["code"]) == (False, "contradictory_target")


@pytest.mark.requirement("SH-54", "SH-56", "SE-40", "DE-02")
@every(CODEX_VERSIONS)
@pytest.mark.parametrize("used", [False, True], ids=["first", "further"])
def test_codex_panel_opens_a_new_thread(world: World, version: str, used: bool) -> None:
    panel, asking = world.codex_panel(version), world.claude()
    others = []
    if used:
        party = world.thread(panel, version)
        greet(party)
        others.append(party.session)
    answer = asking.call("send_to_codex", message=MESSAGE, **({"new_session": True} if used else {}))
    assert (answer["target_selected_by"], answer["will_create_session"]) == ("new", True)
    assert (answer["target_session_id"], "new_conversation" in codes(answer)) == (None, True)
    reply = asking.wait_turn(lambda turn: is_reply(turn, "it is me"))

    started = panel.wait(
        lambda message: message.get("method") == "thread/started" and message["params"]["thread"]["id"] not in others
    )
    opened = started["params"]["thread"]["id"]
    assert f"session {opened}" in reply.asked[0]
    named = panel.wait_notification("thread/name/updated", opened)
    assert named["threadName"].startswith("Claude Code: a message for whoever that is")
    shown = world.wait_session(opened)
    assert (shown["name"], shown["name_kind"]) == (named["threadName"], "given")
    thread = CodexParty(panel, version, world.openai, opened)
    assert [is_message(turn, MESSAGE) for turn in thread.turns()] == [True]
    # It goes on as any other thread.
    greet(thread)
    answer = asking.call("send_to_codex", message=MESSAGE, session_id=opened)
    thread.wait_turns(3)
    world.all_settled()
    assert answer["target_session_id"] == opened
