"""Wrong use, through the agents' own MCP clients: a stable code, a sentence, a next step; nothing queued, no hop spent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.real.exchange import PREFACE, REPLY, World, is_message, is_reply
from tests.real.party import CodexParty, Turn, calling
from tests.real.releases import newest_first

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.real.panels import CodexPanel
    from tests.real.party import Party

CLAUDE: Final = ("claude-2.1.332", "claude-2.1.197")
CODEX: Final = ("codex-0.171.0", "codex-0.147.0")
LIMIT: Final = 1_000_000

every_client = pytest.mark.parametrize("name", [*newest_first(CLAUDE), *newest_first(CODEX)])


def refused(answer: dict[str, Any], code: str) -> str:
    """The sentence of a refusal, once its form has been checked."""
    assert (answer["ok"], answer["code"], answer["retry_safe"]) == (False, code, True)
    assert len(answer["error"].split()) > 3
    assert answer["next_step"].endswith(".")
    return str(answer["error"])


def titled(panel: CodexPanel, thread: Party, name: str) -> None:
    panel.call("thread/name/set", {"threadId": thread.session, "name": name})


@pytest.mark.requirement("SE-23", "SE-24", "SE-26", "DE-05", "DE-51", "MC-05")
@every_client
def test_mistakes_are_named_and_cost_nothing(world: World, name: str) -> None:
    caller = world.open(name)
    panel = world.codex_panel(home="others")
    first, second, third = (world.thread(panel) for _ in range(3))
    for thread, title in ((first, "Tide"), (second, " tide "), (third, "Low tide")):
        titled(panel, thread, title)
        world.wait_session(thread.session, lambda session: session["name"])

    error = refused(caller.call("send_to_codex", message="hello", session_id="Low tyde"), "unknown_session")
    assert "“Low tyde”" in error and "Similar: “Low tide”" in error
    error = refused(caller.call("send_to_codex", message="hello", session_id="TIDE"), "ambiguous_name")
    assert first.session in error and second.session in error and third.session not in error
    refused(caller.call(caller.tool, message="hello", session_id=caller.session), "own_session")
    refused(caller.call(caller.tool, message="hello"), "same_agent")
    refused(caller.call("send_to_codex", message=" \n ", session_id=third.session), "empty_message")
    refused(caller.call("send_to_codex", message="hello", session_id="Tide", new_session=True), "contradictory_target")
    error = refused(
        caller.call("send_to_codex", message="hi", session_id="Low tide", conversation_id="conv_0"), "unknown_conversation"
    )
    assert "conv_0" in error
    status = caller.call("bridge_status")
    assert status["deliveries"] == {"pending": [], "earlier": [], "watching_for_late_answers": []}

    receipt = caller.call("send_to_codex", message=f"{PREFACE}[[reply by its name]]", session_id="low TIDE")
    assert (receipt["target_session_id"], receipt["hop"]) == (third.session, 1)
    caller.wait_turn(lambda turn: is_reply(turn, "by its name"))
    assert first.turns() == second.turns() == []


@pytest.mark.requirement("DE-05")
@every_client
def test_message_over_the_limit_is_refused_and_one_at_the_limit_arrives(world: World, name: str) -> None:
    caller = world.open(name)
    target = world.claude(home="target") if isinstance(caller, CodexParty) else world.codex(home="target")
    target.say("first words [[say noted]]")
    target.wait_turns(1)
    script = "[[reply read it all]]"
    error = refused(caller.call(target.tool, message="x" * (LIMIT + 1), session_id=target.session), "message_too_long")
    assert f"{LIMIT + 1:,}" in error and f"{LIMIT:,}" in error
    longest = script + "x" * (LIMIT - len(script))
    receipt = caller.call(target.tool, message=longest, session_id=target.session)
    assert receipt["accepted"]
    turn = target.wait_turn(is_message)
    assert longest in turn.asked[0]
    caller.wait_turn(lambda turn: "\n\nread it all\n\n" in turn.asked[0])


@pytest.mark.requirement("DE-50", "DE-45", "DE-10", "DE-13")
@pytest.mark.parametrize(
    ("one", "other"),
    newest_first([("claude-2.1.332", "codex-0.171.0"), ("codex-0.154.0", "claude-2.1.197"), ("codex-0.147.0", "codex-0.147.0")]),
)
def test_ping_pong_ends_when_the_hops_are_spent(world: World, one: str, other: str) -> None:
    a, b = world.open(one), world.open(other, home="other")
    for party in (a, b):
        party.say("first words [[say noted]]")
        party.wait_turns(1)
    # Each message makes its reader send the next one; nobody names the conversation.
    message = "the fifth is never sent"
    for hop in range(5, 0, -1):
        target = b if hop % 2 else a
        step = calling(target.tool, message=message, session_id=target.session)
        message = f"{PREFACE}[[{step} ;; reply answer {hop - 1}]]"
    a.say(message)
    for party, answers in ((a, (1, 3)), (b, (2, 4))):
        for answer in answers:
            party.wait_turn(is_answer(answer))
    world.all_settled()
    answers_of_a, answers_of_b = a.tool_answers(), b.tool_answers()
    assert [receipt["hops_remaining"] for receipt in (*answers_of_a[:2], *answers_of_b)] == [3, 1, 2, 0]
    error = refused(answers_of_a[2], "hop_limit")
    conversation = answers_of_a[0]["conversation_id"]
    assert conversation in error and "4 hops" in error
    assert {receipt["conversation_id"] for receipt in (*answers_of_a[:2], *answers_of_b)} == {conversation}
    first = Turn(("first words [[say noted]]",), "noted", completed=True)
    assert sorted(map(kind, a.turns())) == ["message", "message", "own", "own", "reply", "reply"]
    assert sorted(map(kind, b.turns())) == ["message", "message", "own", "reply", "reply"]
    assert a.turns()[0] == b.turns()[0] == first


def is_answer(number: int) -> Callable[[Turn], bool]:
    return lambda turn: is_reply(turn, f"answer {number}")


def kind(turn: Turn) -> str:
    if is_message(turn):
        return "message"
    return "reply" if turn.asked[0].startswith(REPLY) else "own"
