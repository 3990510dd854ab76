"""Who is calling: an answer lands in the very session that asked, however that session came to be where it is."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.real.binaries import CLAUDE_VERSIONS, CODEX_VERSIONS
from tests.real.exchange import PREFACE, World, is_message, is_reply
from tests.real.party import calling

if TYPE_CHECKING:
    from tests.real.party import Party

claude_versions = pytest.mark.parametrize("version", CLAUDE_VERSIONS)
codex_versions = pytest.mark.parametrize("version", CODEX_VERSIONS)


def greet(party: Party) -> None:
    party.say("first words [[say noted]]")
    party.wait_turns(1)


def asks(party: Party, target: Party, answer: str) -> str:
    """``party`` sends a message that ``target`` answers with ``answer``; the session that the receipt names."""
    receipt = party.call(target.tool, message=f"{PREFACE}[[reply {answer}]]", session_id=target.session)
    party.wait_turn(lambda turn: is_reply(turn, answer))
    return str(receipt["reply_lands_in_session"])


@pytest.mark.requirement("EN-20", "DE-40", "DE-44")
@claude_versions
@pytest.mark.parametrize("way", ["clear", "resume", "fork", "continue"])
def test_answer_finds_a_claude_session_wherever_it_came_from(world: World, version: str, way: str) -> None:
    target, party = world.codex(), world.claude(version)
    greet(party)
    first = party.session
    if way == "clear":
        assert asks(party, target, "before") == first
        party.say("/clear")
        party.wait_turns(4)
    else:
        party.close()
        extra = {"fork": ["--fork-session"], "continue": ["--continue"]}.get(way, [])
        party = world.claude(version, resume=None if way == "continue" else first, extra_args=extra)
    lands = asks(party, target, "after")
    assert lands == party.session
    assert (lands == first) == (way in ("resume", "continue"))
    assert sum(is_reply(turn, "after") for turn in party.turns()) == 1


@pytest.mark.requirement("EN-20", "DE-40")
@claude_versions
def test_two_claude_panels_of_one_window_get_their_own_answers(world: World, version: str) -> None:
    target, first, second = world.codex(), world.claude(version), world.claude(version)
    for party, answer in ((first, "to the first"), (second, "to the second")):
        message = f"{PREFACE}[[reply {answer}]]"
        party.say(f"[[{calling('send_to_codex', message=message, session_id=target.session)} ;; say sent]]")
    first.wait_turn(lambda turn: is_reply(turn, "to the first"))
    second.wait_turn(lambda turn: is_reply(turn, "to the second"))
    world.all_settled()
    assert len(first.turns()) == len(second.turns()) == 2
    assert [is_message(turn) for turn in target.turns()] == [True, True]


@pytest.mark.requirement("EN-20", "DE-40", "SH-50")
@codex_versions
def test_two_threads_of_one_app_server_get_their_own_answers(world: World, version: str) -> None:
    panel, target = world.codex_panel(version), world.claude()
    first, second = world.thread(panel, version), world.thread(panel, version)
    greet(target)
    for party, answer in ((first, "to the first"), (second, "to the second")):
        message = f"{PREFACE}[[reply {answer}]]"
        party.say(f"[[{calling('send_to_claude', message=message, session_id=target.session)} ;; say sent]]")
    first.wait_turn(lambda turn: is_reply(turn, "to the first"))
    second.wait_turn(lambda turn: is_reply(turn, "to the second"))
    world.all_settled()
    assert len(first.turns()) == len(second.turns()) == 2
    assert [is_message(turn) for turn in target.turns()] == [False, True, True]


@pytest.mark.requirement("EN-20", "DE-51")
@codex_versions
def test_threads_of_one_app_server_write_to_each_other(world: World, version: str) -> None:
    panel = world.codex_panel(version)
    first, second = world.thread(panel, version), world.thread(panel, version)
    assert asks(first, second, "across") == first.session
    assert asks(second, first, "and back") == second.session
    assert [is_message(turn) for turn in second.turns()] == [True, False, False]
    assert first.call("send_to_codex", message="to whom")["code"] == "same_agent"
    refused = first.call("send_to_codex", message="to me", session_id=first.session)
    assert refused["code"] == "own_session"


@pytest.mark.requirement("EN-20", "DE-40")
def test_answer_to_a_sub_agent_lands_with_its_parent(world: World) -> None:
    target, parent = world.claude(), world.codex()
    greet(target)
    greet(parent)
    send = calling("send_to_claude", message=f"{PREFACE}[[reply for the parent]]", session_id=target.session)
    spawn = next(tool for tool in world.openai.requests[-1].tools if tool.endswith("spawn_agent"))
    parent.say(f"[[tool {spawn} {json.dumps({'message': f'[[{send} ;; say sent by the child]]'})} ;; say it is at work]]")
    parent.wait_turn(lambda turn: is_reply(turn, "for the parent"))
    world.all_settled()
    assert len(parent.turns()) == 3
