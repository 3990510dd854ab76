"""What is particular to Grok's panels: one process with several sessions, a queue of its own, and a panel that has to be shown
the message it was sent.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from shims.lines import LONGEST_PARSED
from tests.integration.exchanges import assert_exchanged_once, assert_truthful, gate, open_gate, ping
from tests.integration.panels import GrokPanel, Panel
from tests.integration.panels.grok import live_update
from tests.integration.processes import gone_within
from tests.integration.world import World

RISKY = 'tool run_terminal_command {"command": "rm -rf nothing", "description": "d"}'


@pytest.fixture
def world(home: Path) -> Iterator[World]:
    built = World(home)
    try:
        yield built
    finally:
        built.close()


@pytest.fixture
def sender(world: World) -> Panel:
    panel = world.codex()
    panel.registered()
    return panel


@pytest.fixture
def target(world: World) -> GrokPanel:
    panel = world.grok()
    panel.registered()
    return panel


def texts(panel: GrokPanel, kind: str) -> list[str]:
    """What the panel was given of a kind of text, chunk by chunk."""
    updates = [update for _, update in map(live_update, panel.messages)]
    return [update["content"]["text"] for update in updates if update.get("sessionUpdate") == kind]


# what the person sees (SH-63, SH-65)


@pytest.mark.requirement("SH-63")
def test_the_message_is_quoted_before_its_answer_and_its_thoughts_are_held_back(sender: Panel, target: GrokPanel) -> None:
    target.say("a question of mine")
    target.wait_ends(1)
    assert len(texts(target, "agent_thought_chunk")) == 1
    sender.send_to(target, ping("M1"))
    sender.wait_reply("pong M1")
    assert {warning["code"] for warning in sender.wait_receipt()["warnings"]} == set()
    assert len(texts(target, "agent_thought_chunk")) == 1
    shown = target.answers()[1]
    quoted, _, answer = shown.partition("\n\n")
    assert all(line.startswith(">") for line in quoted.splitlines())
    assert "ping M1" in quoted
    assert answer.startswith("pong M1")
    assert not [m for m in target.messages if "xagent" in str(m.get("id"))]
    target.say("another question of mine")
    target.wait_ends(3)
    assert target.answers()[2] == "echo: another question of mine"


@pytest.mark.requirement("SH-65", "SH-63")
def test_another_client_gets_what_the_protocol_gives(world: World, sender: Panel) -> None:
    other, echoing = world.grok(client="somebody"), world.grok(client="somebody", echo=True)
    for panel, shows in ((other, False), (echoing, True)):
        panel.registered()
        sender.send_to(panel, ping("M1"))
        sender.wait_ends(1 if panel is other else 3)
        panel.wait_ends(1)
        assert panel.answers()[0].startswith("pong M1"), "nothing of ours stands before it"
        assert len(texts(panel, "agent_thought_chunk")) == 1
        echoed = [m for m in panel.messages if m.get("params", {}).get("update", {}).get("sessionUpdate") == "user_message_chunk"]
        assert bool(echoed) is shows
    warned = [{warning["code"] for warning in receipt["warnings"]} for receipt in sender.receipts()]
    assert ["message_not_shown" in codes for codes in warned] == [True, False]
    assert {session["host_note"] for session in _states(world, "grok")} == {"unverified client somebody"}


# sessions of one process (SH-60, SH-62)


@pytest.mark.requirement("SH-60")
def test_sessions_of_one_process_never_mix(world: World, sender: Panel) -> None:
    target = world.grok()
    one = target.session
    other = target.start_session()
    target.registered()
    held = gate(world, "g")
    target.say(f"[[slow {held} the person's own]]", one)
    sender.send_to(target, ping("M1"))
    sender.wait_reply("pong M1")
    assert target.handed_over("M1") == 1, "it ran beside the other session's turn"
    open_gate(held)
    target.wait_ends(2)
    assert "the person's own" in target.answers()
    target.request("session/close", {"sessionId": other})
    world.until(lambda: _sessions(world, "grok") == [one], "one session left")
    sender.send_to(target, ping("M2"))
    sender.wait_ends(3)
    assert sender.receipts()[1]["code"] == "unknown_session"


@pytest.mark.requirement("SH-60", "EN-20")
def test_each_session_calls_for_itself(world: World, sender: Panel) -> None:
    """The calls of both come from one process; the answers go to the session that asked."""
    caller = world.grok()
    one = caller.session
    other = caller.start_session()
    caller.registered()
    for session in (one, other):
        caller.say(caller.send_script(sender, ping(session)), session)
        caller.wait_ends(2 if session == one else 4)
        caller.session = session
        caller.wait_reply(f"pong {session}")
    assert [len(caller.replies("pong")) for caller.session in (one, other)] == [1, 1]


@pytest.mark.requirement("SH-60")
def test_a_sub_agent_is_no_session_and_leaves_none_busy(world: World, sender: Panel) -> None:
    target = world.grok(STUB_GROK_SUBAGENT="1")
    target.registered()
    target.say("call for help")
    ended = "subagent-completed-"
    target.wait(lambda m: m.get("params", {}).get("update", {}).get("prompt_id", "").startswith(ended), "the agent's own turn")
    sender.send_to(target, ping("M1"))
    sender.wait_reply("pong M1")
    assert "peer_busy" not in [warning["code"] for warning in sender.receipts()[0]["warnings"]]
    assert _sessions(world, "grok") == [target.session]


@pytest.mark.requirement("SH-62")
def test_a_new_conversation_takes_a_session_that_was_never_used(sender: Panel, target: GrokPanel) -> None:
    call = '{"message": "MESSAGE", "new_session": true}'
    for number in range(2):
        message = ping(f"M{number}")
        sender.say(f"[[tool mcp__cross-agent__send_to_grok {call.replace('MESSAGE', message)} ;; say sent]]")
        sender.wait_receipt(number + 1)
        sender.wait_reply("pong M0")
    assert sender.receipts()[0]["target_session_id"] == target.session
    assert not sender.receipts()[1]["ok"], "it has a conversation now"


@pytest.mark.requirement("SH-60", "SE-22")
def test_a_session_that_the_person_named_is_found_by_its_name(world: World, sender: Panel, target: GrokPanel) -> None:
    target.say("the first words of it")
    target.wait_ends(1)
    target.request("_x.ai/session/rename", {"sessionId": target.session, "title": "my parser"})
    named = [("my parser", target.session)]
    world.until(lambda: [(s["name"], s["id"]) for s in _states(world, "grok")] == named, "the name")
    sender.say(f'[[tool mcp__cross-agent__send_to_grok {{"message": "{ping("M1")}", "session_id": "my parser"}} ;; say sent]]')
    sender.wait_reply("pong M1")


# the queue and the person (SH-61, SH-64)


@pytest.mark.requirement("SH-61", "DE-04")
def test_messages_to_a_busy_session_run_in_order_as_turns_of_their_own(world: World, sender: Panel, target: GrokPanel) -> None:
    held = gate(world, "g")
    target.say(f"[[slow {held} the answer of the person's own turn]]")
    target.until(lambda: len(target.prompts()) == 1, "the person's turn")
    for number in range(2):
        sender.send_to(target, ping(f"M{number}"))
        sender.wait_ends(number + 1)
    target.say("typed ahead")
    assert [r["warnings"][0]["code"] for r in sender.receipts()] == ["peer_busy"] * 2
    assert target.handed_over("M") == 0
    open_gate(held)
    for number in range(2):
        sender.wait_reply(f"pong M{number}")
    target.wait_ends(4)
    markers = [p.partition("ping ")[2][:2] for p in target.prompts() if "BRIDGE MESSAGE" in p]
    assert markers == ["M0", "M1"]
    assert {"the answer of the person's own turn", "echo: typed ahead"} <= set(target.answers())


@pytest.mark.requirement("SH-64", "DE-35")
@pytest.mark.parametrize(
    ("decision", "told"),
    [("reject-once", "the person at that session declined"), ("stop", "its turn was interrupted by the person at that session")],
)
def test_the_person_ends_a_turn_of_ours(world: World, sender: Panel, target: GrokPanel, decision: str, told: str) -> None:
    sender.send_to(target, ping("M1", f"{RISKY} ;; reply pong M1"))
    asked = target.asked()
    world.until(lambda: [s["awaiting_approval"] is not None for s in _states(world, "grok")] == [True], "the approval shown")
    if decision == "stop":
        target.stop()
    else:
        target.decide(asked, decision)
    notice = sender.wait_notice()
    assert "HANDED OVER, NO ANSWER" in notice
    assert told in notice
    assert assert_truthful(world, sender, target, "M1")["state"] == "failed"
    world.until(lambda: [s["awaiting_approval"] for s in _states(world, "grok")] == [None], "the approval gone")
    sender.send_to(target, ping("M2"))
    sender.wait_reply("pong M2")


@pytest.mark.requirement("SH-64")
def test_the_person_allows_what_a_message_wants(world: World, sender: Panel, target: GrokPanel) -> None:
    sender.send_to(target, ping("M1", f"{RISKY} ;; reply pong M1"))
    target.decide(target.asked(), "allow-once")
    assert_exchanged_once(world, sender, target, "M1")


@pytest.mark.requirement("SH-61", "DE-22")
@pytest.mark.parametrize("how", ["ended", *(pytest.param(how, marks=pytest.mark.full) for how in ("killed", "told to end"))])
def test_its_agent_ends_with_our_turn_running(world: World, sender: Panel, target: GrokPanel, how: str) -> None:
    """What is left of it on disk says that it ran, or does not decide it: nobody hands it over again."""
    target.say("hello")
    target.wait_ends(1)
    sender.send_to(target, ping("M1", f"slowreply {gate(world, 'g')} pong M1"))
    world.until(lambda: bool((r := world.requests()) and r[0]["state"] == "awaiting-peer"), "M1 taken")
    if how == "ended":
        target.end_input()
    else:
        os.kill(target.child(), signal.SIGKILL if how == "killed" else signal.SIGTERM)
    assert "HANDED OVER, NO ANSWER" in sender.wait_notice()
    assert gone_within(target.pid, 10)
    again = world.grok(resume=target.session)
    again.registered()
    assert_truthful(world, sender, again, "M1")
    sender.send_to(again, ping("M2"))
    sender.wait_reply("pong M2")
    assert again.handed_over("M1") == 1


@pytest.mark.requirement("SH-61", "DE-22")
def test_a_message_that_waited_when_the_editor_ended_is_not_sent_again(world: World, sender: Panel, target: GrokPanel) -> None:
    """Its agent goes on with what waits after the end of its input, and tells nobody that it did."""
    target.say(f"[[slow {gate(world, 'g')} never told]]")
    target.until(lambda: len(target.prompts()) == 1, "the person's turn")
    sender.send_to(target, ping("M1"))
    world.until(lambda: bool((a := world.attempts()) and a[0]["evidence"] == "written"), "M1 written")
    target.end_input()
    assert "UNCERTAIN" in sender.wait_notice()
    assert gone_within(target.pid, 10)
    again = world.grok(resume=target.session)
    again.registered()
    sender.send_to(again, ping("M2"))
    sender.wait_reply("pong M2")
    assert again.handed_over("M1") == 0, "what it did with it is in no record, and it did not get it twice"


@pytest.mark.requirement("SH-61")
def test_a_session_closed_with_our_message_waiting(world: World, sender: Panel, target: GrokPanel) -> None:
    """It never ran, and is not kept for a session that the person has put away."""
    target.say(f"[[slow {gate(world, 'g')} never told]]")
    target.until(lambda: len(target.prompts()) == 1, "the person's turn")
    sender.send_to(target, ping("M1"))
    world.until(lambda: bool((a := world.attempts()) and a[0]["evidence"] == "written"), "M1 written")
    target.request("session/close", {"sessionId": target.session})
    notice = sender.wait_notice()
    assert "NOT DELIVERED" in notice
    assert "the session was closed before it could take the message" in notice
    target.load_session(target.session)
    assert_truthful(world, sender, target, "M1")
    assert target.handed_over("M1") == 0


@pytest.mark.requirement("SH-61", "DE-35")
def test_a_session_closed_with_our_turn_running(world: World, sender: Panel, target: GrokPanel) -> None:
    target.say("hello")
    target.wait_ends(1)
    sender.send_to(target, ping("M1", f"slowreply {gate(world, 'g')} pong M1"))
    world.until(lambda: bool((r := world.requests()) and r[0]["state"] == "awaiting-peer"), "M1 taken")
    target.request("session/close", {"sessionId": target.session})
    notice = sender.wait_notice()
    assert "HANDED OVER, NO ANSWER" in notice
    assert "the session was closed in the middle of its turn" in notice


@pytest.mark.requirement("SH-34", "SH-63")
def test_an_answer_in_pieces_too_long_to_read_comes_whole_and_behind_the_message(world: World, target: GrokPanel) -> None:
    sender = world.claude()
    sender.registered()
    words = "日" * (LONGEST_PARSED * 2 // 3 + 1000)  # the agent says it in halves
    sender.send_to(target, ping("M1", f"reply pong M1 {words}"))
    assert words in sender.wait_reply("pong M1")
    (shown,) = target.answers()
    quoted, _, answer = shown.partition("\n\n")
    assert "ping M1" in quoted and answer.startswith("pong M1")


def _states(world: World, agent: str) -> list[dict[str, object]]:
    panels = world.ask("overview")["ide_panels"]
    return [session for panel in panels if panel["agent"] == agent for session in panel["sessions"]]


def _sessions(world: World, agent: str) -> list[object]:
    return [session["id"] for session in _states(world, agent)]
