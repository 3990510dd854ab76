"""Codex dies with a message of ours in its own queue, which outlives it: the message runs when its session is opened again.

Row 7 of the crash table. Whether it runs at once depends on how the turn before it ended: a kill leaves no end, and the
queue runs; an end of input is recorded as an interruption, and the queue waits until the person has spoken. A SIGTERM is
like the one before 0.171.0 and like the other since.
"""

from __future__ import annotations

import os
import signal

import pytest

from broker.rendezvous import BrokerRecord
from tests.integration.exchanges import assert_exchanged_once, assert_truthful, exchange, gate, open_gate, open_used, ping
from tests.integration.panels import Panel
from tests.integration.processes import gone_within
from tests.integration.world import World

pytestmark = pytest.mark.requirement("DE-22", "DE-35")


def busy(world: World, kind: str) -> tuple[Panel, Panel]:
    """A sender, and a target whose person's turn runs for ever."""
    sender, target = open_used(world, kind)
    target.say(f"[[slow {gate(world, 'busy')} never told]]")
    target.until(lambda: len(target.prompts()) == 2, "the person's turn")
    return sender, target


def awaited(world: World) -> bool:
    requests = world.requests()
    return bool(requests) and requests[0]["state"] == "awaiting-peer"


def waits_in_agent(world: World) -> None:
    """It is known where the message is: nobody hands it over again, and nobody is told that it was lost."""
    world.until(lambda: awaited(world) and "is_waiting_in_agent" in world.requests()[0]["flags"], "M1 waiting in the agent")
    assert len(world.deliveries()) == len(world.attempts()) == 1


def open_again(world: World, kind: str, panel: Panel) -> Panel:
    assert gone_within(panel.pid, 10)
    return world.open(kind, resume=panel.session)


def assert_ran_once(world: World, sender: Panel, target: Panel) -> None:
    assert_exchanged_once(world, sender, target, "M1")
    assert len(world.attempts()) == 2  # one of the request, one of the reply
    exchange(world, sender, target, "M2")


def stop_broker(world: World) -> BrokerRecord:
    """It is there and does nothing: no other one is started, and what it has on disk stays as it is."""
    broker = world.broker()
    os.kill(broker.pid, signal.SIGSTOP)
    return broker


def kill_stopped(broker: BrokerRecord) -> None:
    os.kill(broker.pid, signal.SIGKILL)
    assert gone_within(broker.pid, 10)


@pytest.mark.parametrize(
    ("kind", "number"), [("codex", signal.SIGKILL), ("codex154", signal.SIGKILL), ("codex154", signal.SIGTERM)]
)
def test_a_killed_agent_runs_it_when_it_is_opened_again(world: World, kind: str, number: signal.Signals) -> None:
    sender, target = busy(world, kind)
    sender.send_to(target, ping("M1"))
    world.until(lambda: awaited(world), "M1 in the queue")
    os.kill(target.child(), number)
    waits_in_agent(world)
    assert_ran_once(world, sender, open_again(world, kind, target))


@pytest.mark.parametrize(("kind", "how"), [("codex", "SIGTERM"), ("codex154", "EOF")])
def test_an_agent_that_was_told_to_end_runs_it_after_its_persons_next_turn(world: World, kind: str, how: str) -> None:
    sender, target = busy(world, kind)
    sender.send_to(target, ping("M1"))
    world.until(lambda: awaited(world), "M1 in the queue")
    if how == "EOF":
        target.end_input()
    else:
        os.kill(target.child(), signal.SIGTERM)
    waits_in_agent(world)
    target = open_again(world, kind, target)
    target.registered()
    target.say("I am back [[say welcome]]")
    assert_exchanged_once(world, sender, target, "M1")
    assert ["I am back" in prompt for prompt in target.prompts()[-2:]] == [True, False]


def test_its_broker_dies_with_it(world: World) -> None:
    sender, target = busy(world, "codex")
    sender.send_to(target, ping("M1"))
    world.until(lambda: awaited(world), "M1 in the queue")
    broker = stop_broker(world)
    os.kill(target.child(), signal.SIGKILL)
    assert gone_within(target.pid, 10)
    kill_stopped(broker)
    waits_in_agent(world)
    assert_ran_once(world, sender, open_again(world, "codex", target))


def test_it_runs_already_when_the_next_broker_looks(world: World) -> None:
    """A turn without an end in the records is a dead one only if nobody can be running it."""
    sender, target = busy(world, "codex")
    working = gate(world, "working")
    sender.send_to(target, ping("M1", f"slowreply {working} pong M1"))
    world.until(lambda: awaited(world), "M1 in the queue")
    broker = stop_broker(world)
    os.kill(target.child(), signal.SIGKILL)
    target = open_again(world, "codex", target)
    target.until(lambda: target.handed_over("M1") == 1, "M1 at work")
    kill_stopped(broker)
    other = world.open("codex")
    other.registered()
    sender.send_to(other, ping("M2"))
    sender.wait_reply("pong M2")  # by then the new broker has looked
    open_gate(working)
    assert_exchanged_once(world, sender, target, "M1")
    assert len(world.attempts()) == 4


def test_the_second_process_dies_in_its_turn(world: World) -> None:
    sender, target = busy(world, "codex")
    sender.send_to(target, ping("M1", f"slowreply {gate(world, 'working')} pong M1"))
    world.until(lambda: awaited(world), "M1 in the queue")
    os.kill(target.child(), signal.SIGKILL)
    waits_in_agent(world)
    target = open_again(world, "codex", target)
    target.registered()
    target.until(lambda: target.handed_over("M1") == 1, "M1 at work")
    os.kill(target.child(), signal.SIGKILL)
    assert "HANDED OVER, NO ANSWER" in sender.wait_notice()
    request = assert_truthful(world, sender, target, "M1")
    assert (request["state"], request["error_code"]) == ("failed", "interrupted")
    target = open_again(world, "codex", target)
    target.registered()
    exchange(world, sender, target, "M2")


def test_a_shim_that_dies_before_it_could_tell_that_it_waits(world: World) -> None:
    """The agent sees the end of its input, with the message behind the person's turn; nothing had been heard of it."""
    sender, target = busy(world, "codex")
    world.arm("shim.write.after")
    sender.send_to(target, ping("M1"))
    waits_in_agent(world)
    target = open_again(world, "codex", target)
    target.registered()
    target.say("I am back [[say welcome]]")
    assert_ran_once(world, sender, target)


def test_a_reply_waits_in_its_senders_queue(world: World) -> None:
    sender, target = world.open("codex"), world.open("claude")
    sender.registered()
    target.registered()
    working = gate(world, "working")
    sender.send_to(target, ping("M1", f"slowreply {working} pong M1"))
    sender.wait_ends(1)
    sender.say(f"[[slow {gate(world, 'busy')} never told]]")
    sender.until(lambda: len(sender.prompts()) == 2, "the person's turn")
    open_gate(working)
    world.until(lambda: [d["state"] for d in world.deliveries()] == ["delivered"] * 2, "the reply in the queue")
    os.kill(sender.child(), signal.SIGKILL)
    assert_exchanged_once(world, open_again(world, "codex", sender), target, "M1")
