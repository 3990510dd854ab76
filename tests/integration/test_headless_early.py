"""Between the receipt and the beginning of a turn: who ends the broker then, opens the session, holds it, or dies again.

Owns what is true of a turn that is not there yet. Runners are held up by a program in their place that waits at a gate before it
becomes the runner: like one that is still loading, it does not know yet how a turn is ended.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.cli.calls import stop_broker
from broker.processes import ProcessId
from broker.rendezvous import BrokerRecord
from tests.integration.brokers import Brokers
from tests.integration.command_lines import STORES, Turns
from tests.integration.exchanges import open_gate
from tests.integration.lines import Json
from tests.integration.panels import GrokPanel
from tests.integration.processes import gone_within
from tests.integration.startable import each_agent
from tests.integration.world import ROOT
from tests.real.gates import Gate

_LOADING = """
import os, sys
here = os.path.dirname(__file__)
for name in os.listdir(here):
    if name.startswith("gate-"):
        open(os.path.join(here, name), "rb").read()
os.execv(sys.executable, [sys.executable, "-I", {program!r}, *sys.argv[1:]])
"""


@pytest.fixture
def world(turns: Turns) -> Turns:
    return turns


@pytest.fixture
def loading(home: Path, brokers: Brokers) -> Iterator[Turns]:
    """A world whose runners load for as long as a gate beside their program is not opened."""
    program = home / "loading" / "turns" / "program.py"
    program.parent.mkdir(parents=True)
    program.write_text(_LOADING.format(program=f"{ROOT}/broker/turns/program.py"))
    built = Turns(home, brokers, CROSS_AGENT_TEST_RUNNER=str(program))
    try:
        yield built
        assert built.left() == []
    finally:
        built.close()


def held_up(world: Turns, session: str) -> tuple[int, ProcessId, Gate]:
    """Sends M1, whose runner comes to a gate while it loads, and no later one: the number of the call, the runner, the gate."""
    gate = Gate(Path(world.settings["CROSS_AGENT_TEST_RUNNER"]).parent)
    call = post(world, session)
    gate.reached()
    os.unlink(str(gate))
    return call, world.runner(), gate


def post(world: Turns, session: str) -> int:
    """Sends M1, whatever happens to the broker meanwhile; the number of the call."""
    arguments = {"message": world.message("M1"), "cwd": str(world.work), "session_id": session}
    return world.client.post("tools/call", {"name": "send_to_claude", "arguments": arguments})


def receipt_of(world: Turns, call: int) -> Json:
    receipt: Json = world.client.answer(call)["result"]["structuredContent"]
    assert receipt["ok"], receipt
    return receipt


# somebody ends the broker (EN-06)


@pytest.mark.requirement("EN-06", "DE-22")
def test_by_force_it_ends_a_runner_that_is_still_loading(loading: Turns) -> None:
    """Its agent never was, and the message is not left for the next broker to begin."""
    session = loading.opened(loading.client, "claude")["session"]
    call, runner, gate = held_up(loading, session)
    receipt = receipt_of(loading, call)
    loading.client.close()
    assert stop_broker(loading.home, 30.0, how="force") is not None
    ended = loading.delivery(receipt)
    assert (ended["state"], ended["error_code"], ended["handed_over"]) == ("failed", "stopped", False)
    assert "before it began" in ended["error"]
    assert not runner.alive()
    gate.release()
    assert loading.taken("claude", "M1") == 0


@pytest.mark.requirement("EN-06", "DE-24", "DE-22")
@pytest.mark.parametrize("released", [pytest.param("before", marks=pytest.mark.full), "after"])
def test_a_signal_to_the_broker_leaves_a_runner_that_is_still_loading(loading: Turns, released: str) -> None:
    """It begins while no broker lives, or is late: the next broker has decided meanwhile that this one never does."""
    session = loading.opened(loading.client, "claude")["session"]
    call, runner, gate = held_up(loading, session)
    receipt = receipt_of(loading, call)
    loading.kill_broker(signal.SIGTERM)
    assert runner.alive()
    if released == "before":
        gate.release()
    assert loading.client.call("bridge_status")["ok"]
    if released == "after":
        loading.ended(receipt)
        assert runner.alive()
        gate.release()
    assert loading.ended(receipt)["state"] == "delivered"
    loading.until(lambda: not runner.alive(), "the first runner gone")
    assert loading.taken("claude", "M1") == 1


# somebody opens the session (DE-53)


def opened_while_one_waits(world: Turns, **settings: str) -> tuple[GrokPanel, Json]:
    """A panel that has opened the session for which a message waits, whose sender has these settings."""
    session = world.opened(world.client, "grok")["session"]
    gate = world.gate()
    first = world.begin("grok", world.message("M1", f"slowreply {gate} pong M1"), session)
    waiting = world.send(world.caller(**settings), "grok", world.message("M2"), session)
    panel = world.grok(session=False, GROK_HOME=str(world.user / STORES["grok"]))
    panel.cwd = str(world.work)
    panel.load_session(session)
    panel.registered()
    open_gate(gate)
    assert world.ended(first)["state"] == "delivered"
    another = world.send(world.client, "claude", world.message("M3"), new_session=True)
    world.ended(another)  # until then what waits would have gone out
    return panel, waiting


@pytest.mark.requirement("DE-53")
def test_whose_sender_uses_no_panels_waits_until_the_panel_is_closed(world: Turns) -> None:
    """Neither into the panel, nor beside it."""
    panel, waiting = opened_while_one_waits(world, CROSS_AGENT_UI_HOOK="off")
    assert world.delivery(waiting)["state"] == "queued"
    assert world.taken("grok", "M2") == 0
    panel.close()
    ended = world.ended(waiting)
    assert (ended["state"], ended["route"], world.taken("grok", "M2")) == ("delivered", "headless", 1)


@pytest.mark.full
@pytest.mark.requirement("DE-53", "DE-25")
def test_whose_sender_uses_no_panels_is_told_when_the_panel_stays(world: Turns) -> None:
    panel, waiting = opened_while_one_waits(world, CROSS_AGENT_UI_HOOK="off")
    ended = world.ended(waiting, timeout=50)
    assert (ended["state"], ended["error_code"], ended["handed_over"]) == ("failed", "session_held", False)
    assert (panel.handed_over("M2"), world.taken("grok", "M2")) == (0, 0)


# somebody holds the session, by the agent's word alone


def refusing(world: Turns, times: int) -> Path:
    """Codex refuses so many turns, since somebody has the thread; each try is a line in this file."""
    tries = Path(world.home.root, "tries")
    words = "Error: thread/resume: thread/resume failed: thread 1 already has an active writer"
    refuse = f"cat > /dev/null; echo '{words}' >&2; exit 1"
    world.wrap("codex", f"echo >> {tries}", f'if [ "$(wc -l < {tries})" -le {times} ]; then {refuse}; fi')
    return tries


@pytest.mark.full
@pytest.mark.requirement("DE-25", "DE-31")
@pytest.mark.parametrize(("times", "state", "tried"), [(2, "delivered", 3), (99, "failed", 4)])
def test_an_agent_that_says_its_session_is_held_is_asked_again_a_few_times(
    world: Turns, times: int, state: str, tried: int
) -> None:
    session = world.opened(world.client, "codex")["session"]
    tries = refusing(world, times)
    receipt = world.send(world.client, "codex", world.message("M1"), session)
    ended = world.ended(receipt, timeout=60)
    assert ended["state"] == state, ended
    assert len(tries.read_text().splitlines()) == tried
    if state == "failed":
        assert (ended["error_code"], ended["handed_over"]) == ("session_held", False)
        assert "already has an active writer" in ended["error"]


# it begins, and says that it does not (EN-14, DE-22)

_NOT_STARTED = "Error: turn/start: turn/start failed: no turn"


@pytest.mark.requirement("DE-22", "EN-14")
def test_what_the_records_have_got_in_whatever_the_agent_says(world: Turns) -> None:
    session = world.opened(world.client, "codex")["session"]
    stub = f"{sys.executable} -I -S {ROOT}/shims/codex/stub/__main__.py"
    world.replace("codex", f'{stub} "$@" > /dev/null', f"echo '{_NOT_STARTED}' >&2", "exit 1")
    ended = world.ended(world.send(world.client, "codex", world.message("M1"), session))
    assert (ended["state"], ended["handed_over"], world.taken("codex", "M1")) == ("failed", True, 1), ended


@pytest.mark.requirement("DE-22", "EN-14")
@pytest.mark.parametrize("way", ["exit 1", pytest.param("kill -9 $$", marks=pytest.mark.full)])
def test_a_resume_that_never_began_is_known_by_the_records(world: Turns, way: str) -> None:
    """It has named the thread, and was gone: its output leaves open whether the message got in."""
    session = world.opened(world.client, "codex")["session"]
    started = f'{{"type":"thread.started","thread_id":"{session}"}}'
    world.replace("codex", "cat > /dev/null", f"echo '{started}'", way)
    ended = world.ended(world.send(world.client, "codex", world.message("M1"), session))
    assert (ended["state"], ended["handed_over"], world.taken("codex", "M1")) == ("failed", False, 0), ended


# the next broker dies as well (rows 11 and 12, twice)


class Alone:
    """A world in which the test alone starts brokers, so that it decides what the next one meets."""

    def __init__(self, world: Turns, brokers: Brokers) -> None:
        self.world = world
        self._brokers = brokers
        world.client.close()
        world.client = world.caller(CROSS_AGENT_AUTOSTART="off")

    def following(self, dead: BrokerRecord, point: str = "") -> BrokerRecord:
        """The next broker, when this one has died, as it is about to; the next one dies at ``point``."""
        assert gone_within(dead.pid, 20), self.world.log()[-3000:]
        if point:
            self.world.arm(point)
        self._brokers.start({**self.world.settings, "HOME": self.world.home.root})
        return self.world.broker(other_than=dead)

    def two_die(self, broker: BrokerRecord, point: str) -> BrokerRecord:
        """This broker dies at ``point``, which is armed, and the next one as well; the one after them."""
        following = self.following(broker, point)
        last = self.following(following)
        assert not self.world.is_armed(point), "it was not passed again"
        return last


@pytest.fixture
def alone(world: Turns, brokers: Brokers) -> Alone:
    return Alone(world, brokers)


@pytest.mark.requirement("DE-20", "DE-22", "DE-24")
@pytest.mark.parametrize("point", [pytest.param("broker.turn.before", marks=pytest.mark.full), "runner.start.before"])
def test_two_brokers_die_over_a_turn_that_never_began(alone: Alone, point: str) -> None:
    """Row 11: what the first has decided holds for the third, which gives the message to a turn of its own."""
    world = alone.world
    session = world.opened(world.client, "claude")["session"]
    broker = world.broker()
    world.arm(point)
    if point.startswith("runner."):
        world.arm("broker.never.before")
    call = post(world, session)
    if point.startswith("broker."):
        broker = alone.following(broker, "broker.never.before")
    alone.two_die(broker, "broker.never.before")
    ended = world.ended(receipt_of(world, call))
    assert (ended["state"], world.taken("claude", "M1")) == ("delivered", 1)


@pytest.mark.requirement("DE-20", "DE-22", "DE-24")
def test_two_brokers_die_over_a_turn_whose_runner_is_late(loading: Turns, brokers: Brokers) -> None:
    """Row 11: it is there when the message has been given to another, and begins nothing."""
    alone, session = Alone(loading, brokers), loading.opened(loading.client, "claude")["session"]
    call, runner, gate = held_up(loading, session)
    broker = loading.kill_broker()
    alone.two_die(alone.following(broker, "broker.never.before"), "broker.never.before")
    ended = loading.ended(receipt_of(loading, call))
    assert runner.alive()
    gate.release()
    loading.until(lambda: not runner.alive(), "the late one gone")
    assert (ended["state"], loading.taken("claude", "M1")) == ("delivered", 1)


@pytest.mark.requirement("DE-20", "DE-22", "DE-24")
def test_a_runner_comes_late_to_what_a_dead_broker_has_decided(loading: Turns, brokers: Brokers) -> None:
    """Row 11: the message waits to be given to another, and nobody has cleared up yet."""
    alone, session = Alone(loading, brokers), loading.opened(loading.client, "claude")["session"]
    call, runner, gate = held_up(loading, session)
    second = alone.following(loading.kill_broker(), "broker.never.after")
    assert gone_within(second.pid, 20)
    gate.release()
    loading.until(lambda: not runner.alive(), "the late one gone")
    assert loading.taken("claude", "M1") == 0
    alone.following(second)
    ended = loading.ended(receipt_of(loading, call))
    assert (ended["state"], loading.taken("claude", "M1")) == ("delivered", 1)


@pytest.mark.requirement("DE-20", "DE-22", "DE-24")
@pytest.mark.full
@each_agent
def test_two_brokers_die_over_a_turn_whose_runner_died(alone: Alone, agent: str) -> None:
    """Row 12: the first has ended the agent, and the others find it ended."""
    world = alone.world
    session = world.opened(world.client, agent)["session"]
    receipt = world.begin(agent, world.message("M1", f"slowreply {world.gate()} pong M1"), session)
    process, broker = world.agent_process(agent), world.broker()
    world.arm("broker.ended.before")
    os.kill(world.runner().pid, signal.SIGKILL)
    alone.two_die(broker, "broker.ended.before")
    assert not process.alive()
    ended = world.ended(receipt)
    assert (ended["state"], ended["error_code"], ended["handed_over"]) == ("failed", "interrupted", True)
    assert world.taken(agent, "M1") == 1


@pytest.mark.requirement("DE-20", "DE-22", "DE-24")
def test_two_brokers_die_while_they_wait_for_an_agent_to_end(alone: Alone) -> None:
    """Row 12: it does not listen, and is not forgotten."""
    world = alone.world
    session = world.opened(world.client, "claude")["session"]
    world.wrap("claude", "(trap '' INT TERM; exec sleep 60) < /dev/null > /dev/null 2>&1 &")
    receipt = world.begin("claude", world.message("M1", f"slowreply {world.gate()} pong M1"), session)
    process, broker = world.agent_process("claude"), world.broker()
    os.kill(process.pid, signal.SIGSTOP)
    os.kill(world.runner().pid, signal.SIGKILL)
    for times in (1, 2):
        said_to_have_died(world, times)
        os.kill(broker.pid, signal.SIGKILL)
        broker = alone.following(broker)
    said_to_have_died(world, 3)
    assert process.alive()
    os.kill(process.pid, signal.SIGCONT)
    ended = world.ended(receipt)
    assert (ended["state"], ended["error_code"], ended["handed_over"]) == ("failed", "interrupted", True)


def said_to_have_died(world: Turns, times: int) -> None:
    """Waits until so many brokers have noticed that the runner is dead: each ends the agent then."""
    deadline = time.monotonic() + 20
    while world.log().count("its runner died") < times:
        assert time.monotonic() < deadline
        select.select([], [], [], 0.01)
