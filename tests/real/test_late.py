"""Answers that come late: the person at the peer's session has it finish what a message had asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from shims.script import request_id
from tests.real.exchange import PREFACE, assert_turns, is_message, is_reply

if TYPE_CHECKING:
    from tests.real.exchange import World
    from tests.real.party import Turn

LATE: Final = "=== CROSS-AGENT BRIDGE LATE ANSWER ==="


def is_late(turn: Turn) -> bool:
    return len(turn.asked) == 1 and turn.asked[0].startswith(LATE)


@pytest.mark.requirement("DE-43", "DE-45", "DE-11", "MC-04")
@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("codex-0.171.0", "claude-2.1.332"),
        pytest.param("claude-2.1.332", "codex-0.171.0", marks=pytest.mark.full),
        pytest.param("codex-0.171.0", "grok-1.0.41", marks=pytest.mark.full),
    ],
)
def test_what_a_later_turn_finishes_is_told_as_a_late_answer(world: World, one: str, other: str) -> None:
    sender, target = world.open(one), world.open(other)
    receipt = sender.call(target.tool, message=f"{PREFACE}[[say I will look into it]]", session_id=target.session)
    asked = target.wait_turn(is_message)
    interim = sender.wait_turn(lambda turn: is_reply(turn, "I will look into it"))
    assert "possibly interim" in interim.asked[0]
    (watch,) = world.outsider.call("bridge_status")["deliveries"]["watching_for_late_answers"]
    assert (watch["delivery_id"], watch["session"]) == (receipt["delivery_id"], target.session)

    target.say("an aside [[say nothing of it]]")
    target.wait_turn(lambda turn: turn.answered == "nothing of it")
    target.say(f"now finish it\nrequest: {request_id(asked.asked[0])}\n[[reply all of it]]")
    late = sender.wait_turn(is_late)
    assert f"\nlate answer to: delivery {receipt['delivery_id']}\n" in late.asked[0]
    assert "\n\nall of it\n\n[bridge] Nobody waits for this turn." in late.asked[0]
    shown = world.delivery(receipt["delivery_id"])
    assert shown["delivery"]["late_reply_delivery_id"] == shown["late_reply_delivery"]["delivery_id"]
    assert shown["peer_transcript"]["answer"].startswith("all of it")
    world.all_settled()
    assert_turns(sender, lambda turn: turn.answered == "called", lambda turn: turn == interim, lambda turn: turn == late)
