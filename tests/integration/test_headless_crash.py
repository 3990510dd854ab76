"""A started turn whose broker, runner or agent is killed: it ends truthfully, runs at most once, and leaves nothing (DE-24).

Rows 1, 2, 11 to 13 and 15 of the crash table. Which points there are, `test_crash_transitions` knows.
"""

from __future__ import annotations

import os
import signal
from itertools import cycle
from pathlib import Path

import pytest

from broker import failpoints
from broker.cli.calls import call
from tests.integration import points
from tests.integration.command_lines import Turns
from tests.integration.exchanges import open_gate
from tests.integration.lines import Json
from tests.integration.processes import gone_within
from tests.integration.startable import AGENTS, each_agent

pytestmark = pytest.mark.requirement("DE-20", "DE-22", "DE-24")

_SOME = list(zip(points.STARTED, cycle(AGENTS), strict=False))
_ROWS = [
    pytest.param(point, agent, marks=() if (point, agent) in _SOME else (pytest.mark.full,), id=f"{point}-{agent}")
    for point in points.STARTED
    for agent in AGENTS
]


def mostly(usual: str) -> pytest.MarkDecorator:
    """Each agent, one of them in every run."""
    rows = [agent if agent == usual else pytest.param(agent, marks=pytest.mark.full) for agent in AGENTS]
    return pytest.mark.parametrize("agent", rows)


@pytest.fixture
def world(turns: Turns) -> Turns:
    return turns


def truthful(world: Turns, agent: str, receipt: Json, marker: str) -> Json:
    """The delivery, ended: what it says is so."""
    delivery = world.ended(receipt, timeout=30)
    world.until(lambda: not any(attempt["open"] for attempt in world.attempts()), "every attempt closed")
    runs = world.taken(agent, marker)
    assert runs <= 1
    if delivery["state"] == "delivered":
        assert (runs, delivery["reply_preview"]) == (1, f"pong {marker}")
    elif delivery["state"] == "failed":
        assert runs == 0 or delivery["handed_over"]
    else:
        assert delivery["state"] == "uncertain" or (delivery["state"], runs) == ("withdrawn", 0)
    return delivery


@pytest.mark.parametrize(("point", "agent"), _ROWS)
def test_a_turn_survives_whoever_passes_a_point(world: Turns, point: str, agent: str) -> None:
    session = world.opened(world.client, agent)["session"]
    first = world.broker()
    world.arm(point)
    receipt = world.send(world.client, agent, world.message("M1"), session)
    if point.startswith("broker."):
        assert gone_within(first.pid, 20), f"{point} was not passed"
    assert receipt["ok"], receipt
    delivery = truthful(world, agent, receipt, "M1")
    assert not world.is_armed(point)
    assert len([record for record in world.requests() if "M1" in record["summary"]]) == 1
    if point.startswith("broker.") or point in _HARMLESS:
        assert delivery["state"] == "delivered", delivery
    again = world.send(world.client, agent, world.message("M2"), session)
    assert truthful(world, agent, again, "M2")["state"] == "delivered"


_HARMLESS = ("runner.start.before", "runner.end.before", "runner.end.after")
"""Where a runner's death costs nothing: the agent was not there yet, or has said everything."""


def at_work(world: Turns, agent: str, marker: str = "M1") -> tuple[Json, Path]:
    """A turn that has begun, and the gate at which it waits; before it the session had another one."""
    session = world.opened(world.client, agent)["session"]
    gate = world.gate()
    return world.begin(agent, world.message(marker, f"slowreply {gate} pong {marker}"), session), gate


@each_agent
def test_a_turn_outlives_its_broker(world: Turns, agent: str) -> None:
    """DE-24: what came of it is picked up by the next one."""
    receipt, gate = at_work(world, agent)
    first, runner = world.kill_broker(), world.runner()
    world.broker(other_than=first)
    open_gate(gate)
    delivery = truthful(world, agent, receipt, "M1")
    assert (delivery["state"], "is_reply_recovered" in delivery["flags"]) == ("delivered", False)
    assert not runner.alive()


@pytest.mark.parametrize(
    "agent", ["claude", pytest.param("codex", marks=pytest.mark.full), pytest.param("grok", marks=pytest.mark.full)]
)
def test_a_turn_that_ended_while_no_broker_lived(world: Turns, agent: str) -> None:
    receipt, gate = at_work(world, agent)
    broker, runner = world.broker(), world.runner()
    os.kill(broker.pid, signal.SIGSTOP)
    open_gate(gate)
    assert gone_within(runner.pid, 10)
    os.kill(broker.pid, signal.SIGKILL)
    assert truthful(world, agent, receipt, "M1")["state"] == "delivered"


@each_agent
def test_a_runner_that_is_killed_in_its_turn(world: Turns, agent: str) -> None:
    """Row 12: its agent is ended, and its message is not given to it again."""
    receipt, _ = at_work(world, agent)
    os.kill(world.runner().pid, signal.SIGKILL)
    delivery = truthful(world, agent, receipt, "M1")
    assert (delivery["state"], delivery["error_code"], delivery["handed_over"]) == ("failed", "interrupted", True)


@each_agent
def test_an_agent_that_is_killed_in_its_turn(world: Turns, agent: str) -> None:
    receipt, _ = at_work(world, agent)
    os.kill(world.agent_process(agent).pid, signal.SIGKILL)
    delivery = truthful(world, agent, receipt, "M1")
    assert (delivery["state"], delivery["handed_over"]) == ("failed", True)
    assert "signal 9" in delivery["error"]


@pytest.mark.parametrize(
    "agent", ["codex", pytest.param("claude", marks=pytest.mark.full), pytest.param("grok", marks=pytest.mark.full)]
)
@pytest.mark.parametrize("with_agent", [False, True])
def test_runner_and_broker_are_killed_in_a_turn(world: Turns, agent: str, *, with_agent: bool) -> None:
    """Row 15 is the one with the agent."""
    receipt, _ = at_work(world, agent)
    runner, process, broker = world.runner(), world.agent_process(agent), world.broker()
    for pid in (broker.pid, runner.pid, *([process.pid] if with_agent else [])):
        os.kill(pid, signal.SIGKILL)
    delivery = truthful(world, agent, receipt, "M1")
    assert (delivery["state"], delivery["error_code"], delivery["handed_over"]) == ("failed", "interrupted", True)


def test_what_an_agent_has_started_ends_with_it_when_its_runner_died(world: Turns) -> None:
    """In its group, and not to be ended by a kind word; the agent itself may be gone by then."""
    world.wrap("claude", "(trap '' INT TERM; exec sleep 60) < /dev/null > /dev/null 2>&1 &")
    session = world.opened(world.client, "claude")["session"]
    for process in world.processes():
        os.kill(process.pid, signal.SIGKILL)  # of the first turn, which ended by itself
    for both in (False, True):
        gate = world.gate(f"gate-{both}")
        receipt = world.begin("claude", world.message("M1", f"slowreply {gate} pong"), session)
        agent = world.agent_process("claude")
        os.kill(world.runner().pid, signal.SIGSTOP)
        if both:
            os.kill(agent.pid, signal.SIGKILL)
        os.kill(world.runner().pid, signal.SIGKILL)
        assert world.ended(receipt)["error_code"] == "interrupted"
        assert world.left() == []


@each_agent
def test_a_first_turn_whose_runner_is_killed_before_it_began(world: Turns, agent: str) -> None:
    """Of a conversation that nobody can name yet: nothing is claimed that is not known."""
    world.arm("runner.start.after")
    receipt = world.send(world.client, agent, world.message("M1"), new_session=True)
    truthful(world, agent, receipt, "M1")


@pytest.mark.parametrize("point", points.AT_RUNNERS)
@pytest.mark.full
@each_agent
def test_a_first_turn_survives_its_runner(world: Turns, agent: str, point: str) -> None:
    world.arm(point)
    receipt = world.send(world.client, agent, world.message("M1"), new_session=True)
    truthful(world, agent, receipt, "M1")
    assert not world.is_armed(point)


# the rarer steps


@pytest.mark.parametrize(
    ("step", "side"),
    [
        pytest.param(step, side, marks=() if (side == "after") == (number % 2 == 0) else (pytest.mark.full,))
        for number, step in enumerate(points.STEPS)
        for side in failpoints.SIDES
    ],
)
def test_a_turn_survives_a_broker_that_is_killed_in_a_rare_step(world: Turns, step: str, side: str) -> None:
    agent = "codex" if step == "unproven" else "claude"
    session = "" if step == "unproven" else world.opened(world.client, agent)["session"]
    first = world.broker()
    gate = None
    if step in ("expired", "withdraw"):
        gate = world.gate()
        world.begin(agent, world.message("M0", f"slowreply {gate} pong M0"), session)
    elif step == "refused":
        world.replace(agent, "cat > /dev/null", "echo 'No conversation found with session ID: x' >&2", "exit 1")
    elif step in ("never", "unproven"):
        world.arm("runner.start.before" if step == "never" else "runner.start.after")
    world.arm(f"broker.{step}.{side}")
    text = world.message("M1", "fail boom" if step == "ended" else "")
    if step == "expired":
        receipt = _sent_in_a_hurry(world, agent, text, session)
    else:
        receipt = world.send(world.client, agent, text, session, new_session=not session)
    if step == "withdraw":
        with pytest.raises(Exception):  # noqa: B017 - whoever asks loses the broker
            call(world.home, "withdraw", patience=2, id=receipt["delivery_id"])
    assert gone_within(first.pid, 20), f"{step} was not passed"
    assert world.client.call("bridge_status")["ok"]
    if gate is not None:
        if step == "withdraw" and side == "before":
            call(world.home, "withdraw", patience=10, id=receipt["delivery_id"])
        world.ended(receipt)
        open_gate(gate)
    delivery = truthful(world, agent, receipt, "M1")
    assert delivery["state"] == points.STEPS[step], delivery


def _sent_in_a_hurry(world: Turns, agent: str, text: str, session: str) -> Json:
    """By somebody who gives up early."""
    client = world.caller(CROSS_AGENT_PANEL_PATIENCE="1")
    asked = {
        "message": text,
        "cwd": str(world.work),
        "timeout": 1,
        **({"session_id": session} if session else {"new_session": True}),
    }
    answer = client.request("tools/call", {"name": f"send_to_{agent}", "arguments": asked})
    receipt: Json = answer["result"]["structuredContent"]
    assert receipt["ok"], receipt
    return receipt
