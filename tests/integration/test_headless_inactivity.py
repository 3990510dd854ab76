"""When a started turn counts as dead, and what is left of it then (DE-32, DE-35, DE-36, EN-16)."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.brokers import Brokers
from tests.integration.command_lines import Turns
from tests.integration.lines import Json
from tests.integration.startable import each_agent

pytestmark = pytest.mark.requirement("DE-32", "DE-36", "EN-16")

LIMIT = 2
"""Seconds without a sign of life."""

_GROWS = {
    "claude": "$HOME/.claude/projects/*/{session}.jsonl",
    "codex": "$HOME/.codex/sessions/*/*/*/rollout-*-{session}.jsonl",
    "grok": "$HOME/.grok/sessions/*/{session}/updates.jsonl",
}


@pytest.fixture
def world(home: Path, brokers: Brokers) -> Iterator[Turns]:
    built = Turns(home, brokers)
    built.client = built.caller(CROSS_AGENT_TIMEOUT=str(LIMIT))
    try:
        yield built
        assert built.left() == []
    finally:
        built.close()


def killed(world: Turns, receipt: Json) -> None:
    delivery = world.ended(receipt, timeout=30)
    assert (delivery["state"], delivery["error_code"]) == ("failed", "killed_by_timeout"), delivery
    assert "is_killed_by_timeout" in delivery["flags"]
    assert "no sign of life" in delivery["error"]
    status = world.client.call("bridge_status", delivery_id=receipt["delivery_id"])
    assert not status["peer_transcript"]["is_working"]


@each_agent
def test_a_turn_without_a_sign_of_life_is_ended_with_its_group(world: Turns, agent: str) -> None:
    """Also what ignores every kind word."""
    session = world.opened(world.caller(), agent)["session"]
    world.wrap(agent, "(trap '' INT TERM; exec sleep 60) < /dev/null > /dev/null 2>&1 &")
    gate = world.gate()
    receipt = world.begin(agent, world.message("M1", f"slowreply {gate} pong"), session)
    assert len(world.processes()) == 3
    killed(world, receipt)


def test_an_agent_that_never_begins_is_not_started_again(world: Turns) -> None:
    """Claude Code ends well when it is interrupted before its turn, which says that nothing ran."""
    session = world.opened(world.caller(), "claude")["session"]
    starts = Path(world.home.root, "starts")
    world.replace("claude", f"echo >> {starts}", "trap 'exit 0' INT", "sleep 60 > /dev/null 2>&1 & wait")
    receipt = world.send(world.client, "claude", world.message("M1"), session)
    delivery = world.ended(receipt)
    assert (delivery["error_code"], len(starts.read_text().splitlines())) == ("killed_by_timeout", 1)


@pytest.mark.parametrize("agent", ["claude", *(pytest.param(other, marks=pytest.mark.full) for other in ("codex", "grok"))])
def test_output_is_a_sign_of_life(world: Turns, agent: str) -> None:
    session = world.opened(world.caller(), agent)["session"]
    world.wrap(agent, 'for i in 1 2 3 4 5 6 7 8; do sleep 0.4; echo "{}"; done < /dev/null')
    receipt = world.send(world.client, agent, world.message("M1"), session)
    assert world.ended(receipt)["state"] == "delivered"


@pytest.mark.parametrize("new", [False, pytest.param(True, marks=pytest.mark.full)])
@each_agent
def test_growth_of_the_transcript_is_a_sign_of_life(world: Turns, agent: str, *, new: bool) -> None:
    session = "" if new else world.opened(world.caller(), agent)["session"]
    pattern = _GROWS[agent].format(session=session or "*")
    world.wrap(agent, f"(for i in 1 2 3 4 5 6 7 8; do sleep 0.4; touch {pattern}; done) < /dev/null > /dev/null 2>&1 &")
    began = time.monotonic()
    step = f"slowreply {1.6 * LIMIT} pong M1"
    receipt = world.send(world.client, agent, world.message("M1", step), session, new_session=new)
    assert world.ended(receipt)["state"] == "delivered"
    assert time.monotonic() - began > 1.5 * LIMIT


@pytest.mark.requirement("DE-35")
def test_a_runner_that_was_stopped_has_not_waited(world: Turns) -> None:
    session = world.opened(world.caller(), "grok")["session"]
    gate = world.gate()
    receipt = world.begin("grok", world.message("M1", f"slowreply {gate} pong M1"), session)
    runner = world.runner()
    os.kill(runner.pid, signal.SIGSTOP)
    time.sleep(1.5 * LIMIT)  # what it has slept through, and nobody has waited for
    os.kill(runner.pid, signal.SIGCONT)
    time.sleep(0.2 * LIMIT)
    assert world.delivery(receipt)["state"] == "awaiting-peer"
    with gate.open("w"):
        pass
    assert world.ended(receipt)["state"] == "delivered"
