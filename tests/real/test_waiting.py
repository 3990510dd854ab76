"""A Codex that ends with a message of ours in its queue runs it when its session is opened again, once, and it is answered.

A kill leaves no end of the turn before it, and the queue runs at once; so does the SIGTERM of a panel that is closed, before
0.171.0, which records its turn as interrupted: then the queue waits until the person has spoken.
"""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import psutil
import pytest

from tests.real.exchange import PREFACE, assert_turns, is_message, is_reply, until
from tests.real.party import Turn
from tests.real.test_paused import QUEUING

if TYPE_CHECKING:
    from tests.real.exchange import World
    from tests.real.party import Party

BACK = Turn(("I am back [[say welcome]]",), "welcome", completed=True)


def kill(party: Party) -> None:
    """The agent dies of it where it stands, whichever of its processes that is; its shim ends with it."""
    for process in psutil.Process(party.pid).children(recursive=True):
        if os.path.basename(process.exe()) == "codex":
            process.send_signal(signal.SIGKILL)
    psutil.wait_procs([psutil.Process(party.pid)], timeout=10)


@pytest.mark.requirement("SH-52", "DE-22", "DE-35")
@pytest.mark.parametrize("version", [QUEUING[0], *(pytest.param(version, marks=pytest.mark.full) for version in QUEUING[1:])])
@pytest.mark.parametrize("how", ["killed", "closed"])
def test_message_that_waited_when_its_agent_ended_runs_when_its_session_is_opened(world: World, version: str, how: str) -> None:
    target: Party = world.codex(version)
    sender, gate = world.claude(), world.gate()
    target.say(f"own work [[slow {gate} never told]]")
    gate.reached()
    receipt = sender.call(target.tool, message=f"{PREFACE}[[reply pong]]", session_id=target.session)
    world.wait_state(receipt["delivery_id"], "awaiting-peer")
    if how == "killed":
        kill(target)
    target.close()
    gate.release()
    until(lambda: world.delivery(receipt["delivery_id"])["delivery"], lambda shown: shown.get("is_waiting_in_agent"))

    target = world.reopen(f"codex-{version}", target.session)
    paused = (how, version) == ("closed", "0.171.0")
    if paused:
        world.wait_session(target.session, lambda shown: shown["queue_paused"])
        target.say(BACK.asked[0])
    target.wait_turn(is_message)
    sender.wait_turn(lambda turn: is_reply(turn, "pong"))
    world.all_settled()
    before = [BACK] if paused else []
    assert_turns(target, *before, lambda turn: is_message(turn) and turn.answered.startswith("pong"))
