"""The story that the whole project is about, as real agents must play it: a message, an answer, and no turn harmed.

Owns what must be seen on the way. It is played by tests for the pinned releases and by the version matrix for all others.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tests.real.exchange import PREFACE, Occupation, assert_turns, is_message, is_reply
from tests.real.party import calling

if TYPE_CHECKING:
    from tests.real.exchange import World
    from tests.real.party import Party

ANSWER: Final = "the answer of the peer"

CODEX_QUEUE: Final = (0, 148)
"""The first release of Codex with ``thread/queue/add``."""


@dataclass(frozen=True, slots=True)
class Case:
    """Who sends to whom, what the target is doing then, and what the sender is doing when the answer comes."""

    sender: str
    target: str
    state: str
    back: str

    def __str__(self) -> str:
        return f"{self.sender} to {self.target}, {self.state}, {self.back}"


def numbers(version: str) -> tuple[int, ...]:
    """``0.154.0`` → (0, 154, 0)."""
    return tuple(map(int, version.split(".")))


def queues(party: Party) -> bool:
    """Whether a busy session takes a message into a queue of the agent's; otherwise the bridge keeps it."""
    return party.agent != "codex" or numbers(party.version) >= CODEX_QUEUE


def answer_comes_back_and_no_turn_is_harmed(world: World, case: Case) -> None:
    """Ends with the complete list of turns that both panels showed."""
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
    if case.state != "idle":
        assert_waits_for(world, target, delivery)
        assert not any(map(is_message, target.turns()))

    work.end()
    target.wait_turn(is_message)
    returned = world.wait_state(delivery, "delivered")["return_delivery"]
    if case.back != "idle":
        assert_waits_for(world, sender, returned["delivery_id"])

    own.end()
    sender.wait_turn(lambda turn: is_reply(turn, ANSWER))
    world.all_settled()
    assert_turns(target, work.turn, lambda turn: is_message(turn, message) and turn.answered.startswith(ANSWER))
    assert_turns(sender, own.turn, lambda turn: is_reply(turn, ANSWER))
    assert world.delivery(delivery)["delivery"]["is_reply_confirmed_by_token"]
    assert world.delivery(returned["delivery_id"])["delivery"]["state"] == "delivered"


def assert_waits_for(world: World, party: Party, delivery: str) -> None:
    """What was sent to a busy session waits: in the agent's queue where it has one, else in the bridge."""
    if queues(party):
        world.wait_handed_over(delivery)
    else:
        assert world.delivery(delivery)["delivery"]["state"] == "queued"
