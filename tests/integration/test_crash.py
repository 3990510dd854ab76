"""The broker is killed at every named point of an exchange, and nothing is lost, doubled or noticed.

Rows 1 to 4, 9 and 10 of the crash table. What the table of transitions knows, `test_crash_transitions` kills as well.
"""

from __future__ import annotations

import os
import signal
from itertools import cycle

import pytest

from broker.failpoints import SIDES
from tests.integration import points
from tests.integration.exchanges import assert_exchanged_once, exchange, gate, open_both, open_gate, ping
from tests.integration.panels import Panel
from tests.integration.processes import gone_within
from tests.integration.world import FINAL, ROOT, World

pytestmark = pytest.mark.requirement("DE-20", "DE-21", "DE-22", "EN-10", "MC-31")

PAIRS = (
    ("claude", "codex"),
    ("codex", "claude"),
    ("claude", "grok"),
    ("claude197", "codex147"),
    ("grok", "codex"),
    ("codex154", "claude"),
    ("codex", "codex"),
)
"""Sender and target."""

ANSWERED = [("claude", "codex"), ("codex", "claude"), pytest.param(("codex", "grok"), marks=pytest.mark.full)]
SOME = list(zip(points.EXCHANGE, cycle(PAIRS), strict=False))
ALL = [(point, pair) for point in points.EXCHANGE for pair in PAIRS if (point, pair) not in SOME]


def identities(*panels: Panel) -> list[tuple[int, int, int]]:
    return [(panel.pid, panel.child(), panel.mcp_process()) for panel in panels]


def killed_at(world: World, point: str, pair: tuple[str, str]) -> None:
    sender, target = open_both(world, pair)
    before, first = identities(sender, target), world.broker()
    world.arm(point)
    sender.send_to(target, ping("M1"))
    assert gone_within(first.pid, 20), f"{point} was not passed"
    assert not world.is_armed(point)
    assert_exchanged_once(world, sender, target, "M1")
    assert sender.wait_receipt()["ok"]
    exchange(world, sender, target, "M2")
    assert identities(sender, target) == before
    assert world.broker().generation > first.generation


@pytest.mark.parametrize(("point", "pair"), SOME, ids=lambda value: value if isinstance(value, str) else "→".join(value))
def test_an_exchange_survives_its_broker(world: World, point: str, pair: tuple[str, str]) -> None:
    killed_at(world, point, pair)


@pytest.mark.full
@pytest.mark.parametrize(("point", "pair"), ALL, ids=lambda value: value if isinstance(value, str) else "→".join(value))
def test_an_exchange_of_any_pair_survives_its_broker(world: World, point: str, pair: tuple[str, str]) -> None:
    killed_at(world, point, pair)


def test_a_broker_killed_while_idle_is_back_by_itself(world: World) -> None:
    sender, target = open_both(world, ("claude", "codex"))
    before = identities(sender, target)
    first = world.kill_broker()
    world.broker(other_than=first)
    exchange(world, sender, target, "M1")
    exchange(world, target, sender, "M2")
    assert identities(sender, target) == before


def test_a_broker_killed_with_turns_running_both_ways(world: World) -> None:
    """Each side is at work on a message of the other's when the broker dies, and answers when the next one lives."""
    one, other = open_both(world, ("claude", "codex"))
    first_gate, second_gate = gate(world, "g1"), gate(world, "g2")
    one.send_to(other, ping("M1", f"slowreply {first_gate} pong M1"))
    one.wait_ends(1)
    other.until(lambda: other.handed_over("M1") == 1, "M1 at work")
    other_two = world.codex()
    other_two.registered()
    other_two.send_to(one, ping("M2", f"slowreply {second_gate} pong M2"))
    one.until(lambda: one.handed_over("M2") == 1, "M2 at work")
    first = world.kill_broker()
    world.broker(other_than=first)
    open_gate(first_gate)
    open_gate(second_gate)
    assert_exchanged_once(world, one, other, "M1")
    assert_exchanged_once(world, other_two, one, "M2")


@pytest.mark.parametrize("pair", ANSWERED, ids="→".join)
def test_an_answer_given_while_no_broker_lives(world: World, pair: tuple[str, str]) -> None:
    """Row 4: the shim keeps its stages and tells the next broker."""
    sender, target = open_both(world, pair)
    waiting = gate(world, "g")
    sender.send_to(target, ping("M1", f"slowreply {waiting} pong M1"))
    target.until(lambda: target.handed_over("M1") == 1, "M1 at work")
    sender.wait_ends(1)
    broker = world.broker()
    os.kill(broker.pid, signal.SIGSTOP)
    open_gate(waiting)
    target.wait_ends(1)
    os.kill(broker.pid, signal.SIGKILL)
    assert gone_within(broker.pid, 10)
    assert_exchanged_once(world, sender, target, "M1")


def test_a_failure_is_told_once_when_the_broker_dies(world: World) -> None:
    sender, target = open_both(world, ("codex", "claude"))
    first = world.broker()
    world.arm("broker.ended.after")
    sender.send_to(target, ping("M1", "fail boom"))
    assert gone_within(first.pid, 20)
    assert "HANDED OVER, NO ANSWER" in sender.wait_notice()
    world.until(lambda: all(d["state"] in FINAL for d in world.deliveries()), "everything finished")
    assert [d["state"] for d in world.deliveries()] == ["failed", "delivered"]
    assert len(sender.notices()) == 1
    assert target.handed_over("M1") == 1


def test_the_sources_pass_every_point_by_name() -> None:
    """A point in the list that nobody passes would prove nothing."""
    sources = "".join(path.read_text() for room in ("broker", "shims") for path in (ROOT / room).rglob("*.py"))
    for place in ("broker.request", "broker.commit", "broker.inject", "broker.stage-seen", "shim.write", "shim.stage"):
        for side in SIDES:
            assert f'fail_point("{place}.{side}")' in sources
    for side in SIDES:
        assert f'fail_point(f"broker.{{event.value}}.{side}")' in sources
