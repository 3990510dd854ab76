"""Shims, agents, MCP processes and second brokers die or hang: every message ends truthfully, and never runs twice.

Rows 5 to 9, 13 and 14 of the crash table.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.integration.brokers import Brokers
from tests.integration.exchanges import assert_exchanged_once, assert_truthful, exchange, gate, open_gate, open_used, ping
from tests.integration.panels import Panel
from tests.integration.processes import gone_within
from tests.integration.world import ROOT, World

pytestmark = pytest.mark.requirement("DE-22", "DE-35")

AGENTS = ("claude", "codex", "grok")


def of_every_agent(*rows: str) -> list[Any]:
    """Each row for each agent; for Grok the first in every run, the others in a full one."""

    def marks(agent: str, row: str) -> tuple[pytest.MarkDecorator, ...]:
        return (pytest.mark.full,) if agent == "grok" and row != rows[0] else ()

    return [pytest.param(agent, row, marks=marks(agent, row)) for agent in AGENTS for row in rows]


def reopen(world: World, panel: Panel) -> Panel:
    """The person opens the session again, in a new panel."""
    assert gone_within(panel.pid, 10)
    again = world.open(panel.agent, resume=panel.session)
    again.registered()
    return again


@pytest.mark.parametrize("target_agent", AGENTS)
def test_a_shim_that_dies_before_the_write(world: World, target_agent: str) -> None:
    """Row 6: nothing was written, so the message goes out again when the session is open again."""
    sender, target = open_used(world, target_agent)
    world.arm("shim.write.before")
    sender.send_to(target, ping("M1"))
    target = reopen(world, target)
    assert_exchanged_once(world, sender, target, "M1")
    assert len(world.attempts()) == 3  # two of the request, one of the reply


@pytest.mark.parametrize(("target_agent", "point"), of_every_agent("shim.write.after", "shim.stage.before", "shim.stage.after"))
def test_a_shim_that_dies_with_the_message_written(world: World, target_agent: str, point: str) -> None:
    sender, target = open_used(world, target_agent)
    world.arm(point)
    sender.send_to(target, ping("M1", "slowreply 0.2 pong M1"))
    target = reopen(world, target)
    assert_truthful(world, sender, target, "M1")


@pytest.mark.parametrize(("target_agent", "who"), of_every_agent("shim", "agent"))
def test_a_panel_that_dies_in_our_turn(world: World, target_agent: str, who: str) -> None:
    """Row 8: the agent had it, and its answer will never come."""
    sender, target = open_used(world, target_agent)
    sender.send_to(target, ping("M1", f"slowreply {gate(world, 'g')} pong M1"))
    world.until(lambda: bool((r := world.requests()) and r[0]["state"] == "awaiting-peer"), "M1 taken")
    os.kill(target.pid if who == "shim" else target.child(), signal.SIGKILL)
    assert "HANDED OVER, NO ANSWER" in sender.wait_notice()
    target = reopen(world, target)
    request = assert_truthful(world, sender, target, "M1")
    assert (request["state"], request["error_code"]) == ("failed", "interrupted")


@pytest.mark.parametrize("target_agent", ["claude", "grok"])
def test_an_agent_that_dies_with_our_message_waiting(world: World, target_agent: str) -> None:
    """Row 7 for agents whose queue is in memory: what waits there is lost with it, and is handed over anew."""
    sender, target = open_used(world, target_agent)
    target.say(f"[[slow {gate(world, 'g')} busy]]")
    target.until(lambda: len(target.prompts()) == 2, "the person's turn")
    sender.send_to(target, ping("M1"))
    world.until(lambda: bool((a := world.attempts()) and a[0]["evidence"] == "written"), "M1 written")
    os.kill(target.child(), signal.SIGKILL)
    target = reopen(world, target)
    assert_exchanged_once(world, sender, target, "M1")


@pytest.mark.parametrize("target_agent", AGENTS)
def test_an_answer_given_and_its_shim_gone_while_no_broker_lives(world: World, target_agent: str) -> None:
    """Row 9: the agent's own record tells."""
    sender, target = open_used(world, target_agent)
    waiting = gate(world, "g")
    sender.send_to(target, ping("M1", f"slowreply {waiting} pong M1"))
    world.until(lambda: bool((r := world.requests()) and r[0]["state"] == "awaiting-peer"), "M1 taken")
    broker = world.broker()
    os.kill(broker.pid, signal.SIGSTOP)
    open_gate(waiting)
    target.wait_ends(2)
    for pid in (target.pid, broker.pid):
        os.kill(pid, signal.SIGKILL)
        assert gone_within(pid, 10)
    text = sender.wait_reply("pong M1")
    assert "recovered from transcript" in text
    request = assert_truthful(world, sender, target, "M1")
    assert "is_reply_recovered" in request["flags"]


def test_a_shim_that_hangs_refuses_what_is_too_late(home: Path, brokers: Brokers) -> None:
    """Row 5: nobody else gets the message meanwhile, and the shim itself keeps the deadline."""
    world = World(home, brokers, CROSS_AGENT_PANEL_PATIENCE="1")
    try:
        sender, target = open_used(world, "codex")
        os.kill(target.pid, signal.SIGSTOP)
        sender.send_to(target, ping("M1"), timeout=1)
        world.until(lambda: bool((r := world.requests()) and r[0]["state"] == "delivering"), "M1 on its way")
        order = world.attempts()[0]
        deadline = world.requests()[0]["deadline"]
        world.until(lambda: _boot_clock() > deadline, "the deadline")
        assert world.requests()[0]["state"] == "delivering"
        assert world.attempts() == [order]
        os.kill(target.pid, signal.SIGCONT)
        assert "NOT DELIVERED" in sender.wait_notice()
        request = assert_truthful(world, sender, target, "M1")
        assert target.handed_over("M1") == 0
        assert request["error_code"] == "peer_busy"
    finally:
        world.close()


@pytest.mark.parametrize("target_agent", ["claude", "codex", pytest.param("grok", marks=pytest.mark.full)])
def test_a_shim_that_hangs_through_a_change_of_brokers_and_dies(world: World, target_agent: str) -> None:
    """Rows 5 and 6 together: the new broker has never heard of the shim, and still hears of its end."""
    sender, target = open_used(world, target_agent)
    os.kill(target.pid, signal.SIGSTOP)
    sender.send_to(target, ping("M1"))
    world.until(lambda: bool((r := world.requests()) and r[0]["state"] == "delivering"), "M1 on its way")
    first = world.kill_broker()
    world.broker(other_than=first)
    other = world.open("codex")
    other.registered()
    sender.send_to(other, ping("M2"))
    sender.wait_reply("pong M2")  # so the new broker does not wait for shims to register any more
    os.kill(target.pid, signal.SIGKILL)
    target = reopen(world, target)
    assert_exchanged_once(world, sender, target, "M1")


def test_of_two_brokers_the_older_one_is_fenced(world: World) -> None:
    """Row 13: the generation has moved, so the next transaction of the old broker ends it, and loses nothing."""
    sender, target = open_used(world, "codex")
    old = world.broker()
    os.unlink(world.home.broker_lock)  # as a lock that a file system lost
    environment = {**os.environ, **world.settings}
    second = subprocess.Popen(
        [sys.executable, "-I", str(ROOT / "broker" / "__main__.py"), "run"], env=environment, stdin=subprocess.DEVNULL
    )
    try:
        new = world.broker(other_than=old)
        assert new.generation == old.generation + 1
        exchange(world, sender, target, "M1")
        assert gone_within(old.pid, 10)
        assert sender.wait_receipt()["ok"]
        assert "replaced by a newer broker" in world.log()
        assert world.broker() == new
        exchange(world, target, sender, "M2")
    finally:
        second.terminate()
        second.wait(10)


def test_an_mcp_process_that_dies_undoes_nothing(world: World) -> None:
    """Row 14: the delivery is the broker's."""
    sender, target = open_used(world, "codex")
    waiting = gate(world, "g")
    sender.send_to(target, ping("M1", f"slowreply {waiting} pong M1"))
    assert sender.wait_receipt()["ok"]
    mcp = sender.mcp_process()
    os.kill(mcp, signal.SIGKILL)
    assert gone_within(mcp, 10)
    open_gate(waiting)
    assert_exchanged_once(world, sender, target, "M1")


def test_an_mcp_process_that_dies_in_its_call(world: World) -> None:
    sender, target = open_used(world, "codex")
    broker = world.broker()
    os.kill(broker.pid, signal.SIGSTOP)
    sender.send_to(target, ping("M1"))
    sender.until(lambda: any(m.get("type") == "assistant" for m in sender.messages), "the call")
    mcp = sender.mcp_process()
    os.kill(mcp, signal.SIGKILL)
    assert gone_within(mcp, 10)
    os.kill(broker.pid, signal.SIGCONT)
    sender.wait_ends(1)
    other = world.open("claude")
    other.registered()
    exchange(world, other, target, "M2")
    assert target.handed_over("M1") == sum("M1" in request["summary"] for request in world.requests()) <= 1


def _boot_clock() -> float:
    from broker.clock import boot_clock

    return boot_clock()
