"""A broker that is stopped by hand while turns run that it has started (EN-06)."""

from __future__ import annotations

import signal
import threading

import pytest

from broker.cli.calls import stop_broker
from broker.errors import CrossAgentError
from tests.integration.command_lines import Turns
from tests.integration.exchanges import open_gate
from tests.integration.processes import gone_within
from tests.integration.startable import each_agent

pytestmark = pytest.mark.requirement("EN-06")


@pytest.fixture
def world(turns: Turns) -> Turns:
    return turns


def test_it_refuses_and_lists_what_is_open(world: Turns) -> None:
    gate = world.gate()
    receipt = world.begin("grok", world.message("M1", f"slowreply {gate} pong M1"), new_session=True)
    with pytest.raises(CrossAgentError) as refused:
        stop_broker(world.home, how="ask")
    assert refused.value.code == "work_open"
    assert receipt["delivery_id"] in str(refused.value) and "awaiting-peer" in str(refused.value)
    open_gate(gate)
    assert world.ended(receipt)["state"] == "delivered"
    record = world.broker()
    assert stop_broker(world.home, how="ask") == record


def test_it_drains(world: Turns) -> None:
    """What is queued is still done, and nothing new is taken."""
    gate = world.gate()
    first = world.begin("grok", world.message("M1", f"slowreply {gate} pong M1"), new_session=True)
    second = world.send(world.client, "grok", world.message("M2"), world.delivery(first)["session"])
    record = world.broker()
    draining = threading.Thread(target=stop_broker, args=(world.home, 30.0), kwargs={"how": "drain"})
    draining.start()
    try:
        with pytest.raises(AssertionError):
            while True:
                assert world.send(world.client, "grok", world.message("M3"), new_session=True)["ok"]
    finally:
        open_gate(gate)
        draining.join(30)
    assert gone_within(record.pid, 10)
    assert [world.ended(receipt)["state"] for receipt in (first, second)] == ["delivered", "delivered"]


@each_agent
def test_by_force_it_ends_what_it_has_started(world: Turns, agent: str) -> None:
    """With its group, and the record says why; what waits behind it is not begun."""
    session = world.opened(world.client, agent)["session"]
    world.wrap(agent, "(trap '' INT TERM; exec sleep 60) < /dev/null > /dev/null 2>&1 &")
    gate = world.gate()
    first = world.begin(agent, world.message("M1", f"slowreply {gate} pong M1"), session)
    second = world.send(world.client, agent, world.message("M2"), session)
    world.client.close()
    record = world.broker()
    assert stop_broker(world.home, 30.0, how="force") == record
    ended = world.delivery(first)
    assert (ended["state"], ended["error_code"], ended["handed_over"]) == ("failed", "stopped", True)
    assert "the broker was stopped" in ended["error"]
    assert world.left() == []
    assert (world.delivery(second)["state"], world.taken(agent, "M2")) == ("queued", 0)


def test_a_signal_closes_nothing(world: Turns) -> None:
    gate = world.gate()
    receipt = world.begin("claude", world.message("M1", f"slowreply {gate} pong M1"), new_session=True)
    runner = world.runner()
    first = world.kill_broker(signal.SIGTERM)
    assert runner.alive()
    assert world.delivery(receipt)["state"] == "awaiting-peer"
    assert world.client.call("bridge_status")["ok"]  # the next one starts when it is needed
    assert world.broker() != first
    open_gate(gate)
    assert world.ended(receipt)["state"] == "delivered"
