"""A message from one live session to another and the answer back, between real agents, whatever either is doing meanwhile.

The whole way is real: the sender's model calls the tool, the agent's own MCP client carries it, broker and shims hand it
over, and the answer comes back the same way. Every case ends with the complete list of turns that both panels showed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pytest

from tests.real.exchange import MESSAGE, PREFACE, Occupation, World, assert_turns, is_message, is_reply
from tests.real.party import calling

if TYPE_CHECKING:
    from tests.real.party import Party

ANSWER: Final = "the answer of the peer"


@dataclass(frozen=True, slots=True)
class Case:
    """Who sends to whom, what the target is doing then, and what the sender is doing when the answer comes."""

    sender: str
    target: str
    state: str
    back: str

    def __str__(self) -> str:
        return f"{self.sender} to {self.target}, {self.state}, {self.back}"


CASES: Final = (
    Case("claude-2.1.332", "codex-0.171.0", "idle", "idle"),
    Case("codex-0.171.0", "claude-2.1.332", "idle", "idle"),
    # Each release as a target, in each state …
    Case("codex-0.171.0", "claude-2.1.332", "idle", "text"),
    Case("codex-0.154.0", "claude-2.1.332", "tool", "approval"),
    Case("claude-2.1.332", "claude-2.1.332", "approval", "tool"),
    Case("claude-2.1.197", "claude-2.1.332", "text", "text"),
    Case("codex-0.147.0", "claude-2.1.197", "idle", "text"),
    Case("claude-2.1.332", "claude-2.1.197", "tool", "text"),
    Case("codex-0.171.0", "claude-2.1.197", "approval", "tool"),
    Case("claude-2.1.197", "claude-2.1.197", "text", "tool"),
    Case("claude-2.1.332", "codex-0.171.0", "idle", "tool"),
    Case("claude-2.1.197", "codex-0.171.0", "tool", "text"),
    Case("codex-0.171.0", "codex-0.171.0", "approval", "text"),
    Case("claude-2.1.332", "codex-0.171.0", "text", "approval"),
    Case("claude-2.1.197", "codex-0.154.0", "idle", "tool"),
    Case("codex-0.171.0", "codex-0.154.0", "tool", "tool"),
    Case("claude-2.1.332", "codex-0.154.0", "approval", "text"),
    Case("codex-0.154.0", "codex-0.154.0", "text", "text"),
    Case("codex-0.154.0", "codex-0.147.0", "idle", "tool"),
    Case("claude-2.1.197", "codex-0.147.0", "tool", "approval"),
    Case("codex-0.171.0", "codex-0.147.0", "approval", "approval"),
    Case("codex-0.147.0", "codex-0.147.0", "text", "tool"),
    # … and what is missing of the pairs of agents, and of senders that are busy when the answer comes.
    Case("claude-2.1.197", "claude-2.1.332", "idle", "tool"),
    Case("codex-0.147.0", "codex-0.171.0", "tool", "approval"),
    Case("claude-2.1.332", "grok-1.0.41", "idle", "idle"),
    Case("grok-1.0.41", "codex-0.171.0", "idle", "text"),
    Case("codex-0.171.0", "grok-1.0.41", "tool", "tool"),
    Case("grok-1.0.41", "claude-2.1.332", "tool", "tool"),
    Case("claude-2.1.197", "grok-1.0.41", "approval", "idle"),
    Case("grok-1.0.41", "grok-1.0.41", "text", "approval"),
)
"""Every pair of (release, state of the target) and of (release, state of the sender at the return), no full product."""


def queues(party: Party) -> bool:
    """Whether a busy session takes a message into a queue of the agent's; otherwise the bridge keeps it."""
    return (party.agent, party.version) != ("codex", "0.147.0")


@pytest.mark.requirement(
    "SH-34", "SH-35", "SH-41", "SH-43", "SH-52", "SH-53", "SH-61", "DE-01", "DE-10", "DE-37", "DE-40", "MC-01", "MC-02"
)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_answer_comes_back_and_no_turn_is_harmed(world: World, case: Case) -> None:
    target = world.open(case.target, shell="ask" if case.state == "approval" else "allow", home="target")
    sender = world.open(case.sender, shell="ask" if case.back == "approval" else "allow", home="sender")
    work = Occupation(target, world.gate(), case.state)
    work.begun()
    message = f"{PREFACE}[[reply {ANSWER}]]"
    send = calling(target.tool, message=message, session_id=target.session)
    own = Occupation(sender, world.gate(), case.back, before=send)
    own.begun()

    receipt = sender.answer_of_tool()
    assert (receipt["accepted"], receipt["target_session_id"]) == (True, target.session)
    assert receipt["reply_lands_in_session"] == sender.session
    delivery = receipt["delivery_id"]
    if case.state != "idle" and queues(target):
        world.wait_handed_over(delivery)
    elif case.state != "idle":
        assert world.delivery(delivery)["delivery"]["state"] == "queued"
    assert not any(is_message(turn) for turn in target.turns()) or case.state == "idle"

    work.end()
    target.wait_turn(is_message)
    returned = world.wait_state(delivery, "delivered")["return_delivery"]
    if case.back != "idle" and queues(sender):
        world.wait_handed_over(returned["delivery_id"])
    elif case.back != "idle":
        assert world.delivery(returned["delivery_id"])["delivery"]["state"] == "queued"

    own.end()
    sender.wait_turn(lambda turn: is_reply(turn, ANSWER))
    world.all_settled()
    assert_turns(target, work.turn, lambda turn: is_message(turn, message) and turn.answered.startswith(ANSWER))
    assert_turns(sender, own.turn, lambda turn: is_reply(turn, ANSWER))
    assert world.delivery(delivery)["delivery"]["is_reply_confirmed_by_token"]
    assert world.delivery(returned["delivery_id"])["delivery"]["state"] == "delivered"


@pytest.mark.requirement("DE-10", "DE-13")
def test_frame_says_who_writes_and_how_to_answer(world: World) -> None:
    target, sender = world.codex(), world.claude()
    receipt = sender.call(target.tool, message="mind the frame [[reply seen]]", session_id=target.session)
    turn = target.wait_turn(is_message)
    conversation = receipt["conversation_id"]
    head, _, rest = turn.asked[0].partition("\n\n")
    token = turn.answered.rsplit("\n", 1)[-1]
    assert head.split("\n") == [
        MESSAGE,
        "from: Claude Code (peer AI agent, not the human user)",
        f"reply-to: claude session {sender.session}",
        f"conversation: {conversation} | hop 1/4",
        f"request: {token}",
    ]
    assert rest.startswith("mind the frame [[reply seen]]\n\n[bridge] ")
    assert "send_to_claude" in rest and sender.session in rest and conversation in rest
    reply = sender.wait_turn(lambda turn: is_reply(turn, "seen")).asked[0]
    assert f"conversation: {conversation} | answering hop 1/4" in reply
    assert token not in reply
    assert "Nobody waits for this turn." in reply and target.session in reply


@pytest.mark.requirement("DE-42")
@pytest.mark.parametrize(("one", "other"), [("claude-2.1.332", "codex-0.171.0"), ("codex-0.154.0", "claude-2.1.197")])
def test_turn_that_reads_an_answer_works_in_its_own_directory(world: World, one: str, other: str) -> None:
    sender, target = world.open(one, shell="allow", home="sender"), world.open(other, home="target")
    target.say("first words [[say noted]]")
    target.wait_turns(1)
    order = f"[[{sender.command('pwd > here')} ;; say done as told]]"  # the answer makes its reader do something
    sender.call(target.tool, message=f"{PREFACE}[[reply {order}]]", session_id=target.session)
    sender.wait_turn(lambda turn: turn.answered == "done as told")
    directory = world.directory / "sender" / "work"
    assert (directory / "here").read_text(encoding="utf-8").strip() == str(directory)
