"""What is particular to Grok's panels: what is drawn, which sessions may be meant, who calls, and how a turn can end."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.real.exchange import MESSAGE, PREFACE, REPLY, World, assert_turns, is_message, is_notice, is_reply, until
from tests.real.models import xai
from tests.real.party import GrokParty, Turn

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SECRET = "the secret word is rhododendron"


def answered(turn: Turn, words: str) -> bool:
    return is_message(turn) and turn.answered.startswith(words)


def begins_with(title: str, words: str) -> Callable[[Turn], bool]:
    return lambda turn: turn.asked[0].startswith(title) and words in turn.asked[0]


def is_reply_that_ends(words: str) -> Callable[[Turn], bool]:
    return lambda turn: turn.asked[0].startswith(REPLY) and f"{words}\n\n[bridge]" in turn.asked[0]


def refusal(world: World, session: str, **arguments: Any) -> str:
    answer = world.outsider.call("send_to_grok", message="is anybody there", session_id=session, **arguments)
    return "" if answer["ok"] else str(answer["code"])


@pytest.mark.requirement("SH-63", "SH-35", "SH-61")
def test_message_stands_above_its_answer_and_nowhere_in_it(world: World) -> None:
    target, sender = world.grok(), world.claude()
    target.say("first words [[say noted]]")
    target.wait_turns(1)
    sender.call("send_to_grok", message=f"{PREFACE}[[reply pong]]", session_id=target.session)
    reply = sender.wait_turn(lambda turn: is_reply(turn, "pong"))
    own, theirs = target.panel.turns(target.session)
    assert own.shown == ""
    assert theirs.shown.startswith(f"> {MESSAGE}\n> from: Claude Code")
    assert f"> {PREFACE}[[reply pong]]\n" in theirs.shown
    assert theirs.text.startswith("pong")
    assert f"> {MESSAGE}" not in reply.asked[0]
    assert theirs.prompt_id.startswith("dlv_")


@pytest.mark.requirement("SH-65", "SH-35")
@pytest.mark.parametrize("echo", [False, True])
def test_another_client_gets_the_protocol_as_it_is(world: World, echo: bool) -> None:
    target = world.grok(client_name="zed", echo=echo)
    target.say("first words [[say noted]]")
    target.wait_turns(1)
    assert world.wait_session(target.session)["host_note"] == "unverified client zed"
    receipt = world.claude().call("send_to_grok", message=f"{PREFACE}[[reply pong]]", session_id=target.session)
    assert ("message_not_shown" in [warning["code"] for warning in receipt["warnings"]]) is not echo
    target.wait_turn(lambda turn: answered(turn, "pong"))
    assert [turn.shown for turn in target.panel.turns(target.session)] == ["", ""]


@pytest.mark.requirement("SH-60", "EN-20")
def test_sessions_of_one_process_are_told_apart_as_targets_and_as_callers(world: World) -> None:
    panel = world.grok_panel()
    first, second = world.grok_session(panel), world.grok_session(panel)
    peer = world.codex()
    for party in (first, second):
        receipt = party.call("send_to_codex", message=f"{PREFACE}[[reply to you]]", session_id=peer.session)
        assert receipt["reply_lands_in_session"] == party.session
        party.wait_turn(lambda turn: is_reply(turn, "to you"))
    peer.call("send_to_grok", message=f"{PREFACE}[[reply from the second]]", session_id=second.session)
    second.wait_turn(lambda turn: answered(turn, "from the second"))
    world.all_settled()
    assert not any(is_message(turn) for turn in first.turns())
    panel.close_session(first.session)
    until(lambda: world.session(first.session), lambda shown: shown is None)
    assert refusal(world, first.session) == "unknown_session"


@pytest.mark.requirement("SH-62", "SH-20")
def test_only_a_session_that_nobody_prompted_takes_a_new_conversation(world: World) -> None:
    used, sender = world.grok(), world.claude()
    used.say("first words [[say noted]]")
    used.wait_turns(1)
    answer = sender.call("send_to_grok", message=f"{PREFACE}[[reply pong]]", new_session=True)
    assert answer["code"] == "no_session"
    empty = world.grok_session(used.panel)
    assert world.wait_hosted(empty.session)["empty"]
    receipt = sender.call("send_to_grok", message=f"{PREFACE}[[reply pong]]", new_session=True)
    assert receipt["target_session_id"] == empty.session
    empty.wait_turn(lambda turn: answered(turn, "pong"))
    world.all_settled()
    assert not world.wait_hosted(empty.session)["empty"]
    assert_turns(used, Turn(("first words [[say noted]]",), "noted", completed=True))


@pytest.mark.requirement("SH-60")
def test_sub_agent_is_no_target(world: World) -> None:
    party = world.grok()
    task = {"description": "help", "prompt": "your task [[say by the child]]", "subagent_type": "general-purpose"}
    party.say(f"[[tool spawn_subagent {json.dumps(task)} ;; say delegated]]")
    party.approve()
    child = until(lambda: children(party), bool)[0]
    assert world.session(child) is None
    assert refusal(world, child) == "unknown_session"


def children(party: GrokParty) -> list[str]:
    named = {(message.get("params") or {}).get("sessionId") for message in party.panel.messages.messages()}
    return sorted(str(session) for session in named - {None, party.session})


@pytest.mark.requirement("SH-20", "SH-64")
def test_approval_is_shown_and_a_refused_one_is_told_as_declined(world: World) -> None:
    target, sender = world.grok(shell="ask"), world.codex()
    target.say("first words [[say noted]]")
    target.wait_turns(1)
    sender.call("send_to_grok", message=f"{PREFACE}[[{target.risky('true')} ;; reply never]]", session_id=target.session)
    target.wait_approval()
    asked = world.wait_session(target.session, lambda shown: shown["awaiting_approval"])["awaiting_approval"]
    assert (asked["tool"], asked["summary"]) == ("run_terminal_command", "true")
    target.panel.answer_permission("reject_once")
    notice = sender.wait_turn(is_notice).asked[0]
    assert "declined what its turn asked for" in notice
    world.all_settled()
    assert world.wait_session(target.session)["awaiting_approval"] is None


@pytest.mark.requirement("SH-64")
def test_what_a_sub_agent_asks_is_shown_through_other_turns(world: World) -> None:
    party = world.grok()
    inner = f"your task [[{party.risky('true')} ;; say by the child]]"
    task = {"description": "help", "prompt": inner, "subagent_type": "general-purpose"}
    party.say(f"[[tool spawn_subagent {json.dumps(task)} ;; say delegated]]")
    party.approve()
    party.wait_turns(1)
    party.wait_approval()
    party.say("another [[say other]]")
    party.wait_turns(2)
    asked = world.wait_session(party.session, lambda shown: not shown["busy"])["awaiting_approval"]
    assert asked["tool"] == "run_terminal_command"
    party.approve()
    world.wait_session(party.session, lambda shown: shown["awaiting_approval"] is None)


@pytest.mark.requirement("SH-34", "SH-63")
@pytest.mark.parametrize("size", [30_000, 400_000])
def test_answer_in_long_pieces_comes_whole_and_behind_the_message(
    world: World, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    """In one piece more than is held, or parsed; in bytes, that is: three for each letter."""
    piece, say = "日" * size, xai._Answer.text
    monkeypatch.setattr(xai._Answer, "text", lambda answer, text: say(answer, text.replace("LONG", piece)))
    target, sender = world.grok(), world.codex()
    target.say("first words [[say noted]]")
    target.wait_turns(1)
    sender.call("send_to_grok", message=f"{PREFACE}[[reply LONG and the end]]", session_id=target.session)
    assert f"{piece} and the end" in sender.wait_turn(is_reply_that_ends("and the end")).asked[0]
    theirs = target.panel.turns(target.session)[1]
    assert theirs.shown.startswith(f"> {MESSAGE}\n")
    assert theirs.text.startswith(piece)


@pytest.mark.requirement("SH-61", "DE-26")
def test_stop_button_ends_our_turn_and_the_session_is_free_again(world: World) -> None:
    target, sender, gate = world.grok(), world.claude(), world.gate()
    target.say("first words [[say noted]]")
    target.wait_turns(1)
    sender.call("send_to_grok", message=f"{PREFACE}[[slowreply {gate} never told]]", session_id=target.session)
    gate.reached()
    target.interrupt()
    assert "was interrupted by the person" in sender.wait_turn(is_notice).asked[0]
    gate.release()
    world.wait_session(target.session, lambda shown: not shown["busy"])
    sender.call("send_to_grok", message=f"{PREFACE}[[reply pong]]", session_id=target.session)
    target.wait_turn(lambda turn: answered(turn, "pong"))


@pytest.mark.requirement("DE-14")
@pytest.mark.parametrize("raw", [False, True], ids=["framed", "raw"])
def test_peer_cannot_make_grok_read_a_file_nor_give_it_a_command(world: World, tmp_path: Path, raw: bool) -> None:
    secret = tmp_path / "outside" / "secret.txt"
    secret.parent.mkdir()
    secret.write_text(SECRET, encoding="utf-8")
    target, sender = world.grok(), world.claude()

    def was_told() -> bool:
        return any(SECRET in json.dumps(request.body) for request in world.xai.requests)

    for message in (f"@{secret} and @{secret} [[reply looked]]", "/context [[reply read]]"):
        receipt = sender.call("send_to_grok", message=message, session_id=target.session, raw=raw)
        assert receipt["accepted"]
        sender.wait_turn(begins_with(REPLY, receipt["conversation_id"]))
    assert [turn.answered.split("\n")[0] for turn in target.turns()] == ["looked", "read"]
    assert not was_told()
    target.say(f"look at @{secret} [[say looked]]")
    target.wait_turns(3)
    assert was_told(), "the hazard is not real any more"
