"""A Codex thread whose owner pressed stop keeps its queue waiting: what is sent there waits with it, and everybody is told."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.real.binaries import CODEX_VERSIONS
from tests.real.exchange import PREFACE, assert_turns, is_message, is_reply
from tests.real.party import CodexParty, Turn

if TYPE_CHECKING:
    from tests.real.exchange import World

QUEUING = [version for version in CODEX_VERSIONS if version != "0.147.0"]


@pytest.mark.requirement("SH-52", "SH-53", "DE-02", "DE-37")
@pytest.mark.parametrize("version", QUEUING)
@pytest.mark.parametrize("reopened", [False, True], ids=["same panel", "opened again"])
def test_message_to_a_thread_that_was_stopped_waits_for_its_owner(world: World, version: str, reopened: bool) -> None:
    target, sender, gate = world.codex(version), world.claude(), world.gate()
    target.say(f"own work [[slow {gate} never told]]")
    gate.reached()
    target.interrupt()
    stopped = target.wait_turn(lambda turn: not turn.completed)
    gate.release()
    if reopened:
        target.close()
        panel = world.codex_panel(version)
        target = CodexParty(panel, version, world.openai, panel.resume_thread(target.session))
    world.wait_session(target.session, lambda shown: shown["queue_paused"])

    receipt = sender.call(target.tool, message=f"{PREFACE}[[reply pong]]", session_id=target.session)
    assert [warning["code"] for warning in receipt["warnings"]] == ["peer_paused"]
    waiting = world.wait_state(receipt["delivery_id"], "awaiting-peer")
    assert waiting["peer_panel"] == {"turn_running": False, "awaiting_approval": None, "queue_paused": True}

    target.say("I am back [[say welcome]]")
    target.wait_turn(is_message)
    sender.wait_turn(lambda turn: is_reply(turn, "pong"))
    world.all_settled()
    welcome = Turn(("I am back [[say welcome]]",), "welcome", completed=True)
    before = [] if reopened else [lambda turn: turn == stopped]
    assert_turns(target, *before, welcome, lambda turn: is_message(turn) and turn.answered.startswith("pong"))
    assert not world.wait_hosted(target.session)["queue_paused"]
