"""What becomes of a message that an agent has at its door when somebody dies, leaves, refuses, or was never to be asked."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import pytest

from broker.rendezvous import read_record
from tests.real.exchange import PREFACE, Occupation, assert_turns, is_message, is_reply, until
from tests.real.releases import newest_first
from tests.real.terminals import ALONE, ANSWER, CLAUDE, CODEX, GROK, OLDER, ClaudeTerminal

if TYPE_CHECKING:
    from pathlib import Path

    from tests.real.terminals import TerminalParty, TerminalWorld

DOWN: Final = "\x1b[B"
BYPASSING: Final = "--dangerously-skip-permissions"


# No door


def records(world: TerminalWorld) -> dict[Path, bytes]:
    """Every conversation of the person's; of Claude's without what it notes beside it, also when nothing happens."""
    kept = (".claude/projects", ".codex/sessions", ".grok/sessions")
    files = {path: path.read_bytes() for place in kept for path in (world.person / place).rglob("*.jsonl")}
    return {path: _conversation(text) if ".claude" in path.parts else text for path, text in files.items()}


def _conversation(text: bytes) -> bytes:
    return b"".join(line for line in text.splitlines(keepends=True) if b'"type":"user"' in line or b'"type":"assistant"' in line)


def refused(world: TerminalWorld, party: TerminalParty, **settings: str) -> dict[str, Any]:
    """What a sender is told; nothing has happened in the session, and nobody was started beside it."""
    before = records(world)
    caller = world.somebody(**settings)
    answer = caller.call(f"send_to_{party.agent}", message=f"beside it [[reply {ANSWER}]]", session_id=party.session)
    assert answer.get("code") == "session_held", answer
    assert records(world) == before
    assert world.requests() == []
    assert "beside it" not in world.seen(party.agent)
    return dict(answer)


@pytest.mark.requirement("LD-01", "SE-09", "DE-53")
@pytest.mark.parametrize("name", newest_first([GROK, "claude-2.1.197", "codex-0.147.0"]))
def test_a_terminal_without_a_door_is_refused_and_left_alone(terminals: TerminalWorld, name: str) -> None:
    """Grok's runs without a leader."""
    party = terminals.terminal(name)
    answer = refused(terminals, party)
    assert f"process {party.pid} holds it" in answer["error"]
    assert "close it" in answer["next_step"].lower()
    assert "panel" in answer["next_step"]


@pytest.mark.requirement("LD-01", "LD-07", "SE-09", "DE-53")
def test_doors_that_are_switched_off_are_not_used_and_nothing_is_started_beside(terminals: TerminalWorld) -> None:
    for name in (CLAUDE, CODEX, GROK):
        answer = refused(terminals, terminals.opened(name), CROSS_AGENT_LIVE_DOORS="off")
        assert "CROSS_AGENT_LIVE_DOORS" in answer["next_step"]


# What a text can't do


@pytest.mark.requirement("DE-14", "LD-02", "LD-03", "LD-04")
def test_a_text_reads_no_file_and_is_no_command_through_any_door(terminals: TerminalWorld) -> None:
    world = terminals
    parties = [world.opened(name) for name in (CLAUDE, CODEX, GROK)]
    secret = world.directory / "secret"
    secret.write_text("the words of the secret file", encoding="utf-8")
    for party in parties:
        session = party.session
        text = f"/clear\n@{secret}\n/clear @{secret} [[reply {ANSWER}]]"
        receipt = world.send(party.agent, text, session, raw=True)
        assert world.ended(receipt["delivery_id"])["reply_preview"] == ANSWER
        assert (party.session, len(party.turns())) == (session, 1)
        assert "secret" in world.seen(party.agent)
        assert "the words of" not in world.seen(party.agent)


# A Claude that asks nobody


def bypassing(world: TerminalWorld, **settings: str) -> ClaudeTerminal:
    """A terminal that bypasses permissions, and has not started the broker: its own descendants are let in unasked."""
    world.outsider.call("bridge_status")
    state = world.person / ".claude.json"
    known = {**json.loads(state.read_text(encoding="utf-8")), "bypassPermissionsModeAccepted": True}
    state.write_text(json.dumps(known), encoding="utf-8")
    world.settle_claude(**settings)
    party = world.terminal(CLAUDE, BYPASSING, told={"IS_SANDBOX": "1"})
    assert isinstance(party, ClaudeTerminal)
    return party


def held(world: TerminalWorld, party: ClaudeTerminal) -> str:
    """A message about which the person is asked, and which counts as delivered nowhere."""
    receipt = world.tell(party, ANSWER)
    party.terminal.shows("Deny")
    shown = until(lambda: world.delivery(receipt["delivery_id"])["delivery"], lambda record: record["peer_note"])
    assert "crossSessionInbound" in shown["peer_note"]
    assert (shown["state"], shown["is_finished"]) == ("delivering", False)
    assert not any(map(is_message, party.turns()))
    return str(receipt["delivery_id"])


@pytest.mark.requirement("LD-02", "LD-06", "LD-09")
def test_what_a_claude_that_bypasses_permissions_holds_is_not_delivered_and_may_be_declined(terminals: TerminalWorld) -> None:
    party = bypassing(terminals)
    delivery = held(terminals, party)
    party.terminal.press("\r")
    ended = terminals.ended(delivery)
    assert (ended["state"], ended["code"]) == ("failed", "declined")
    assert_turns(party)


@pytest.mark.full
@pytest.mark.requirement("LD-02", "LD-06")
def test_what_was_held_runs_when_the_person_lets_it_in(terminals: TerminalWorld) -> None:
    party = bypassing(terminals)
    delivery = held(terminals, party)
    party.terminal.press(DOWN)
    party.terminal.press("\r")
    assert terminals.ended(delivery)["reply_preview"] == ANSWER
    assert_turns(party, is_message)


@pytest.mark.full
@pytest.mark.requirement("LD-02", "LD-09")
@pytest.mark.parametrize(("setting", "state", "code"), [("refuse", "failed", "refused"), ("accept", "delivered", None)])
def test_what_a_claude_was_told_about_messages_of_others_holds(
    terminals: TerminalWorld, setting: str, state: str, code: str | None
) -> None:
    party = bypassing(terminals, crossSessionInbound=setting)
    ended = terminals.ended(terminals.tell(party, ANSWER)["delivery_id"])
    assert (ended["state"], ended["code"]) == (state, code)
    if code:
        assert "crossSessionInbound" in ended["error"]
    assert len(party.turns()) == (0 if code else 1)


@pytest.mark.requirement("LD-08", "LD-05")
def test_an_answer_is_let_in_where_the_message_of_a_stranger_is_held(terminals: TerminalWorld) -> None:
    party, peer = bypassing(terminals), terminals.panel("codex")
    receipt = party.call("send_to_codex", message=f"{PREFACE}[[reply {ANSWER}]]", session_id=peer.session)
    assert receipt["return_route"] == "claude-inbox"
    party.wait_turn(lambda turn: is_reply(turn, ANSWER))
    origins = [json.loads(line).get("origin") or {} for line in party.transcript().read_text(encoding="utf-8").splitlines()]
    assert [origin["selfSent"] for origin in origins if origin.get("kind") == "peer"] == [True]
    held(terminals, party)


# Whoever has it dies, or goes on to something else


def waiting(world: TerminalWorld, party: TerminalParty, **more: Any) -> tuple[str, Occupation]:
    """A message behind a turn of the person's."""
    work = Occupation(party, world.gate(), "tool")
    work.begun()
    delivery = world.tell(party, ANSWER, **more)["delivery_id"]
    world.wait_handed_over(delivery)
    return str(delivery), work


@pytest.mark.requirement("LD-02", "LD-06", "DE-25")
def test_what_waited_in_a_claude_that_was_killed_is_handed_over_again(terminals: TerminalWorld) -> None:
    """Its inbox died with it. Nobody has the session any more, so that the command line may."""
    world = terminals
    party = world.opened(CLAUDE)
    delivery, work = waiting(world, party)
    party.kill()
    work.let_go()
    assert world.ended(delivery)["reply_preview"] == ANSWER
    assert len(world.delivery(delivery)["attempts"]) == 2
    assert [turn.answered.split("\n")[0] for turn in party.turns() if is_message(turn)] == [ANSWER]


@pytest.mark.full
@pytest.mark.requirement("LD-02", "LD-06", "DE-25", "DE-53")
def test_what_waited_in_a_claude_that_was_killed_fails_where_nothing_may_be_started(terminals: TerminalWorld) -> None:
    world = terminals
    party = world.opened(CLAUDE)
    delivery, work = waiting(world, party, caller=world.somebody(CROSS_AGENT_DISABLE_HEADLESS="1"))
    party.kill()
    work.let_go()
    ended = world.ended(delivery)
    assert (ended["state"], ended["code"], ended["safe_to_resend"]) == ("failed", "headless_disabled", True)
    assert party.turns() == []


@pytest.mark.full
@pytest.mark.requirement("LD-03", "LD-06")
def test_a_codex_that_a_daemon_serves_outlives_its_window(terminals: TerminalWorld) -> None:
    world = terminals
    party = world.opened(CODEX)
    delivery, work = waiting(world, party)
    party.kill()
    work.let_go()
    assert world.ended(delivery)["reply_preview"] == ANSWER
    assert party.turns()[0] == work.turn
    assert [is_message(turn) for turn in party.turns()] == [False, True]


@pytest.mark.full
@pytest.mark.requirement("LD-03", "LD-06", "DE-25")
@pytest.mark.parametrize("name", [ALONE, OLDER])
def test_what_waited_in_a_codex_that_was_killed_runs_when_it_is_opened_next(terminals: TerminalWorld, name: str) -> None:
    world = terminals
    party = world.opened(name)
    delivery, work = waiting(world, party)
    party.kill()
    work.let_go()
    until(lambda: world.delivery(delivery)["delivery"]["state"], lambda state: state == "awaiting-peer")
    again = world.terminal(*name.split(), resume=party.session)
    assert world.ended(delivery)["reply_preview"] == ANSWER
    assert [turn.answered.split("\n")[0] for turn in again.turns() if is_message(turn)] == [ANSWER]


@pytest.mark.full
@pytest.mark.requirement("LD-02", "LD-06")
def test_what_waited_in_claude_goes_along_to_the_conversation_that_a_clear_opens(terminals: TerminalWorld) -> None:
    world = terminals
    party = world.opened(CLAUDE)
    before = party.session
    delivery, work = waiting(world, party)
    party.command_line("/clear")
    work.let_go()
    ended = world.ended(delivery)
    assert (ended["state"], ended["reply_preview"], ended["to_session"]) == ("delivered", ANSWER, party.session), ended
    assert party.session != before
    assert_turns(party, is_message)


# The broker dies


@pytest.mark.requirement("LD-06", "DE-20", "DE-21", "DE-22")
@pytest.mark.parametrize(
    ("side", "name"),
    newest_first([(side, name) for name in (CLAUDE, CODEX, GROK, ALONE) for side in ("after", "before")]),
)
def test_a_broker_that_dies_as_it_hands_in_loses_nothing_and_says_nothing_twice(
    terminals: TerminalWorld, side: str, name: str
) -> None:
    world = terminals
    party = world.opened(name)
    world.outsider.call("bridge_status")
    died = read_record(world.files)
    world.arm(f"broker.door.{side}")
    delivery = world.tell(party, ANSWER)["delivery_id"]
    until(lambda: read_record(world.files), lambda record: record != died)
    assert not (world.fail_points / f"broker.door.{side}").exists()
    ended = until(lambda: world.delivery(delivery)["delivery"], lambda record: record["is_finished"], 60)
    assert (ended["state"], ended["reply_preview"]) == ("delivered", ANSWER)
    assert_turns(party, lambda turn: is_message(turn) and turn.answered.startswith(ANSWER))
