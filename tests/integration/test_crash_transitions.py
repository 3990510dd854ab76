"""Every step that the table of deliveries knows is killed before and after: the row is where it was, or where it leads.

A transition without a crash test fails here. The store alone is enough to prove durability of all of them; those that
happen for rare reasons only are also driven through a whole world, in front of a shim that answers as scripted.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from broker import failpoints
from broker.deliveries import TRANSITIONS, Event, State
from broker.wire import Inject, SessionState, StageName
from tests.integration import points
from tests.integration.brokers import Brokers
from tests.integration.exchanges import ping
from tests.integration.lines import PATIENCE, Json
from tests.integration.panels import ClaudePanel
from tests.integration.processes import gone_within
from tests.integration.scripted_shim import ScriptedShim, Step
from tests.integration.world import FINAL, ROOT, World

pytestmark = pytest.mark.requirement("DE-20", "DE-22")

_STEPS = """
import asyncio, os, sys
from dataclasses import replace
from pathlib import Path
from broker.deliveries import Event, State
from tests.unit.engine import engine

async def step(home, state, event, point):
    async with engine(home) as made:
        queued = await made.queued(id="dlv_1")
        await made.store.write(lambda transaction: transaction.update_delivery(replace(queued, state=state), queued.state))
        Path(home, "run", "fail", point).touch()
        await made.book.apply(replace(queued, state=state), event)

for line in sys.stdin:
    home, state, event, point = line.split()
    child = os.fork()
    if not child:
        os.environ["CROSS_AGENT_HOME"] = home
        try:
            asyncio.run(step(Path(home), State(state), Event(event), point))
        finally:
            os._exit(1)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


class Steps:
    """Takes steps of deliveries, each in a process of its own: forked from one that has loaded everything."""

    def __init__(self) -> None:
        environment = {**os.environ, "CROSS_AGENT_FAIL_POINTS": "1", "PYTHONPATH": str(ROOT)}
        self._process = subprocess.Popen(
            [sys.executable, "-c", _STEPS], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def take(self, *step: str) -> int:
        """How the process ended that took ``step``: home, state, event, and the point where it is to die."""
        assert self._process.stdin is not None and self._process.stdout is not None
        print(*step, file=self._process.stdin, flush=True)
        assert select.select([self._process.stdout], [], [], PATIENCE)[0]
        return int(self._process.stdout.readline())

    def close(self) -> None:
        self._process.communicate(timeout=PATIENCE)


@pytest.fixture(scope="module")
def steps() -> Iterator[Steps]:
    made = Steps()
    yield made
    made.close()


def test_the_list_of_points_is_the_table_of_transitions() -> None:
    assert set(failpoints.EVENTS) == {event.value for event in Event} == {event.value for _, event in TRANSITIONS}


def test_every_effect_of_a_started_turn_is_killed_before_and_after() -> None:
    """A new point fails here until a turn is killed at it, and so does one that nobody passes."""
    of_turns = {point for point in failpoints.POINTS if point.startswith(("broker.turn.", "runner."))}
    assert of_turns <= set(points.STARTED) <= set(failpoints.POINTS)
    sources = "".join(path.read_text() for path in (ROOT / "broker" / "turns").glob("*.py"))
    assert {point for point in of_turns if f'fail_point("{point}")' in sources} == of_turns


@pytest.mark.requirement("DE-20", "DE-24")
def test_every_step_that_a_started_turn_takes_is_killed_in_one() -> None:
    """The rest are those of panels alone, and are told to be."""
    driven = {point.split(".")[1] for point in points.STARTED}
    driven |= set(points.STEPS)
    assert set(failpoints.EVENTS) - driven == {"settled", "busy"}, (
        "a reply is never given to a started turn, and who holds a session beside us is waited for before"
    )


@pytest.mark.parametrize("side", failpoints.SIDES)
@pytest.mark.parametrize(("state", "event"), list(TRANSITIONS), ids=lambda value: value.value)
def test_a_step_is_durable_or_has_not_happened(home: Path, steps: Steps, state: State, event: Event, side: str) -> None:
    world = World(home)
    assert steps.take(str(home), state.value, event.value, f"broker.{event.value}.{side}") == -signal.SIGKILL
    (record,) = world.deliveries()
    assert record["state"] == (state if side == "before" else TRANSITIONS[state, event]).value


# the rare ones, in a whole world


def sides(usual: str) -> pytest.MarkDecorator:
    """Both, one of them in every run: that each step is durable is held above for both."""
    rows = [side if side == usual else pytest.param(side, marks=pytest.mark.full) for side in failpoints.SIDES]
    return pytest.mark.parametrize("side", rows)


@pytest.fixture
def world(home: Path, brokers: Brokers) -> Iterator[World]:
    built = World(home, brokers, CROSS_AGENT_PANEL_PATIENCE="1")
    try:
        yield built
    finally:
        built.close()


OpenTarget = Callable[..., ScriptedShim]


@pytest.fixture
def scripted(world: World, tmp_path: Path) -> Iterator[OpenTarget]:
    opened: list[ScriptedShim] = []

    def start(*orders: list[Step], taken_back: tuple[Step, ...] = (), **state: object) -> ScriptedShim:
        def script(number: int, order: Inject) -> list[Step]:
            del order
            return orders[min(number, len(orders) - 1)] if orders else []

        session = SessionState("thread-1", opened=1.0, **state)  # type: ignore[arg-type]
        opened.append(ScriptedShim(world.home, tmp_path, session, script, taken_back))
        return opened[-1]

    yield start
    for shim in opened:
        shim.close()


WRITTEN: Step = (StageName.WRITTEN, {})
TAKEN: Step = (StageName.TAKEN, {})


def rejected(code: str) -> Step:
    return StageName.REJECTED, {"code": code}


def finished(text: str, status: str = "completed") -> Step:
    return StageName.FINISHED, {"status": status, "text": text}


def killed_in(world: World, shim: ScriptedShim, event: Event, side: str, **arguments: object) -> tuple[ClaudePanel, Json]:
    """Sends a message to the scripted panel while ``event`` is armed; the sender and the request when all is over."""
    sender = world.claude()
    shim.wait_welcome()
    sender.registered()
    first = world.broker()
    world.arm(f"broker.{event.value}.{side}")
    sender.send_to(shim, ping("M1"), **arguments)
    assert gone_within(first.pid, 10), "the point was not passed"
    world.broker(other_than=first)
    (request,) = world.finished(timeout=30)
    world.until(lambda: all(d["state"] in FINAL for d in world.deliveries()), "everything finished")
    world.until(lambda: not any(a["open"] for a in world.attempts()), "every attempt closed")
    return sender, request


def told_once(sender: ClaudePanel, words: str) -> None:
    assert words in sender.wait_notice()
    assert len(sender.notices()) == 1


@sides("after")
def test_busy(world: World, scripted: OpenTarget, side: str) -> None:
    shim = scripted([rejected("busy")], [WRITTEN, TAKEN, finished("pong M1")])
    sender, request = killed_in(world, shim, Event.BUSY, side)
    assert request["state"] == "delivered"
    assert len(shim.orders) == 2
    assert len({order.attempt for order in shim.orders}) == 2
    assert len({order.key for order in shim.orders}) == 1
    assert len(sender.replies("pong M1")) == 1


@sides("before")
def test_refused_by_the_shim(world: World, scripted: OpenTarget, side: str) -> None:
    shim = scripted([rejected("agent_refused")])
    sender, request = killed_in(world, shim, Event.REFUSED, side)
    assert (request["state"], request["error_code"], len(shim.orders)) == ("failed", "agent_refused", 1)
    told_once(sender, "NOT DELIVERED")


@sides("after")
def test_expired_in_the_queue(world: World, scripted: OpenTarget, side: str) -> None:
    shim = scripted(turn_since=1.0, accepts_busy=False)
    sender, request = killed_in(world, shim, Event.EXPIRED, side, timeout=1)
    assert (request["state"], request["error_code"], shim.orders) == ("failed", "peer_busy", [])
    told_once(sender, "NOT DELIVERED")


@sides("before")
def test_expired_in_the_shim(world: World, scripted: OpenTarget, side: str) -> None:
    shim = scripted([rejected("too_late")])
    sender, request = killed_in(world, shim, Event.EXPIRED, side, timeout=1)
    assert (request["state"], request["error_code"]) == ("failed", "peer_busy")
    told_once(sender, "NOT DELIVERED")


@sides("after")
def test_expired_in_the_agents_queue(world: World, scripted: OpenTarget, side: str) -> None:
    shim = scripted([WRITTEN, TAKEN], taken_back=(rejected("withdrawn"),))
    sender, request = killed_in(world, shim, Event.EXPIRED, side, timeout=1)
    assert (request["state"], len(shim.orders)) == ("failed", 1)
    told_once(sender, "NOT DELIVERED")


_WITHDRAW = """
import sys
from broker.cli.calls import call
from broker.paths import find_home
print(call(find_home(), "withdraw", start=True, id=sys.argv[1])["delivery"]["state"])
"""


def _withdraw(world: World) -> str:
    """As a command does, which asks the next broker when one dies; a process of its own, since this one is the shim's."""
    environment = {**os.environ, **world.settings, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", _WITHDRAW, world.requests()[0]["id"]]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE, check=True)
    return done.stdout.strip()


@pytest.mark.requirement("DE-26")
@sides("before")
def test_withdrawn_out_of_the_agents_queue(world: World, scripted: OpenTarget, side: str) -> None:
    """The next broker hears that the agent gave it back, and knows that somebody wanted that."""
    shim = scripted([WRITTEN, TAKEN], taken_back=(rejected("withdrawn"),))
    sender = world.claude()
    shim.wait_welcome()
    sender.registered()
    sender.send_to(shim, ping("M1"), timeout=600)
    world.until(lambda: bool((r := world.requests()) and r[0]["state"] == "awaiting-peer"), "M1 taken")
    first = world.broker()
    world.arm(f"broker.withdraw.{side}")
    assert _withdraw(world) == "withdrawn"
    assert gone_within(first.pid, 10), "the point was not passed"
    world.broker(other_than=first)
    (request,) = world.finished(timeout=30)
    world.until(lambda: not any(a["open"] for a in world.attempts()), "every attempt closed")
    assert (request["state"], request["handed_over"], request["flags"]) == ("withdrawn", False, ["is_undelivered"])
    assert sender.notices() == []


@sides("before")
def test_ended(world: World, scripted: OpenTarget, side: str) -> None:
    shim = scripted([WRITTEN, TAKEN, finished("", "failed")])
    sender, request = killed_in(world, shim, Event.ENDED, side)
    assert (request["state"], request["error_code"], len(shim.orders)) == ("failed", "no_answer", 1)
    told_once(sender, "HANDED OVER, NO ANSWER")


@sides("after")
def test_never(world: World, side: str) -> None:
    """The broker dies with the order unsent, and the next one when it learns that nobody saw it."""
    sender, target = world.claude(), world.codex()
    sender.registered()
    target.registered()
    first = world.broker()
    world.arm("broker.inject.before")
    world.arm(f"broker.never.{side}")
    sender.send_to(target, ping("M1"))
    assert gone_within(first.pid, 20)
    sender.wait_reply("pong M1")
    assert world.broker().generation == first.generation + 2
    assert target.handed_over("M1") == 1


@pytest.mark.parametrize(
    ("state", "side"),
    [
        (State.DELIVERING, "before"),
        (State.AWAITING, "after"),
        pytest.param(State.DELIVERING, "after", marks=pytest.mark.full),
        pytest.param(State.AWAITING, "before", marks=pytest.mark.full),
    ],
    ids=lambda value: value.value if isinstance(value, State) else value,
)
def test_unproven(world: World, state: State, side: str) -> None:
    """The shim dies and the agent's record cannot be read: nobody claims anything, and nothing is sent again."""
    sender, target = world.claude(), world.codex()
    target.say("hello")
    target.wait_ends(1)
    sender.registered()
    target.registered()
    first = world.broker()
    world.arm(f"broker.unproven.{side}")
    if state is State.DELIVERING:
        world.arm("shim.write.before")
        _make_unreadable(target.store)
        sender.send_to(target, ping("M1"))
    else:
        sender.send_to(target, ping("M1", "slowreply 60 pong M1"))
        world.until(lambda: bool((r := world.requests()) and r[0]["state"] == "awaiting-peer"), "M1 taken")
        _make_unreadable(target.store)
        os.kill(target.pid, signal.SIGKILL)
    assert gone_within(first.pid, 20)
    (request,) = world.finished()
    assert request["state"] == "uncertain"
    told_once(sender, "UNCERTAIN")
    assert len(world.attempts()) == 2  # one of the request, one of the notice


def _make_unreadable(store: Path) -> None:
    """A directory where the rollout was: reading it fails for root as well."""
    for path in store.glob("sessions/*/*/*/rollout-*.jsonl"):
        path.rename(path.with_suffix(".moved"))
        path.mkdir()
