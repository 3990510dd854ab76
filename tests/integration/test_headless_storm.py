"""Brokers, runners and agents are killed at random while turns are started, and at the end everything is counted.

Chance chooses by a fixed seed whom to kill, when and how: outright, or at one of the named points. The sessions are open nowhere;
those that send are spared, so that what they were told can be counted as well.
"""

from __future__ import annotations

import os
import random
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration import points
from tests.integration.command_lines import Turns
from tests.integration.counting import assert_recorded, marker_of
from tests.integration.lines import Json, Silence
from tests.integration.panels import McpClient
from tests.integration.startable import AGENTS
from tests.integration.world import FINAL

pytestmark = pytest.mark.requirement("DE-20", "DE-22", "DE-24", "DE-04")

LULL = 1.5
"""Seconds after which the next blow falls in any case."""

WAIT = 90.0
_ALONE = 'lock="{place}/$CROSS_AGENT_SELF_SESSION"; exec 9>>"$lock"; flock -n 9 || echo "$lock" >> {place}/twice'
"""Run by each agent: as long as it lives it holds its session, and two that do so at once leave a note."""

_AT_BROKERS = (*points.AT_BROKERS, "broker.never.before", "broker.never.after", "broker.ended.before", "broker.ended.after")


class Storm:
    """A world under way, and the chance that strikes it."""

    def __init__(self, world: Turns, seed: int, sessions: int) -> None:
        self.world = world
        self.chance = random.Random(seed)
        self.sessions = [(agent, world.opened(world.client, agent)["session"]) for agent in AGENTS for _ in range(sessions)]
        self.locks = Path(world.home.root, "locks")
        self.locks.mkdir()
        for agent in AGENTS:
            world.wrap(agent, f'case "$CROSS_AGENT_SELF_SESSION" in *:?*) {_ALONE.format(place=self.locks)};; esac')
        self.callers = [world.client, world.caller()]
        self.posted: dict[str, tuple[McpClient, int]] = {}
        self.blows: Counter[str] = Counter()

    def send(self, each: int) -> None:
        for letter, caller in zip("AB", self.callers, strict=True):
            for number in range(each):
                marker = f"{letter}{number:03}"
                self.posted[marker] = caller, self.post(caller, marker)

    def post(self, caller: McpClient, marker: str) -> int:
        """To one of the sessions, or to a new one."""
        agent, session = self.chance.choice([*self.sessions, (self.chance.choice(AGENTS), "")])
        script = f"slowreply {self.chance.choice(('0', '0.02', '0.2', '2'))} pong {marker}"
        where = {"session_id": session} if session else {"new_session": True}
        arguments = {"message": self.world.message(marker, script), "cwd": str(self.world.work), **where}
        return caller.post("tools/call", {"name": f"send_to_{agent}", "arguments": arguments})

    def twice(self) -> str:
        """Sessions on which two agents were at work at the same time, one a line."""
        found = self.locks / "twice"
        return found.read_text() if found.exists() else ""

    # kills

    def strike(self) -> None:
        kinds = (self.broker, self.broker_at_a_point, self.runner, self.runner_at_a_point, self.agent, self.both, self.told)
        blow: Callable[[], None] = self.chance.choice(kinds)
        self.blows[blow.__name__] += 1
        blow()

    def broker(self) -> None:
        self.ask()
        number = self.chance.choice((signal.SIGKILL, signal.SIGTERM))
        try:
            self.world.kill_broker(number)
        except ProcessLookupError:
            pass  # it has just died at a point
        self.ask()

    def broker_at_a_point(self) -> None:
        self.ask()
        self.world.arm(self.chance.choice(_AT_BROKERS))

    def runner(self) -> None:
        self.kill("turns/program.py")

    def runner_at_a_point(self) -> None:
        self.world.arm(self.chance.choice(points.AT_RUNNERS))

    def agent(self) -> None:
        self.kill("/stub/__main__.py")

    def both(self) -> None:
        """The broker with a runner of its."""
        self.kill("turns/program.py")
        self.broker()

    def told(self) -> None:
        """A runner is told to end, by nobody of ours."""
        self.kill("turns/program.py", signal.SIGTERM)

    def kill(self, what: str, number: int = signal.SIGKILL) -> None:
        """One of those that run now; none, where none does."""
        found = sorted(process for process, line in self.world.processes().items() if what in line)
        if found:
            try:
                os.kill(self.chance.choice(found).pid, number)
            except ProcessLookupError:
                pass  # it has just ended

    def ask(self) -> None:
        """Somebody wants something of a broker: after a signal none comes unasked, nor after many that died (MC-32)."""
        Path(self.world.home.starts).unlink(missing_ok=True)
        self.callers[0].post("tools/call", {"name": "bridge_status", "arguments": {}})

    def go_on(self, kills: int) -> None:
        """Strikes, and lets a few end, or none, before the next blow; as long as there is anything to hit."""
        for _ in range(kills):
            self.some_ended(self.chance.randrange(8))
            if self.world.finished_requests() >= len(self.sessions) + len(self.posted):
                return
            self.strike()

    def some_ended(self, more: int) -> None:
        """Not for ever: what an armed point has killed may hold all of them up."""
        enough = self.world.finished_requests() + more
        try:
            self.world.until(lambda: self.world.finished_requests() >= enough, "some ended", LULL)
        except Silence:
            pass

    def calm(self) -> dict[str, Json]:
        """No blows any more; what every call was answered, when all has ended."""
        for path in Path(self.world.home.fail_points).iterdir():
            path.unlink(missing_ok=True)
        self.ask()
        receipts = {
            marker: caller.answer(number, timeout=WAIT)["result"]["structuredContent"]
            for marker, (caller, number) in self.posted.items()
        }
        self.world.until(self.settled, "everything settled", WAIT)
        return receipts

    def settled(self) -> bool:
        return not self.world.open_deliveries() and not any(attempt["open"] for attempt in self.world.attempts())


# what there is at the end


def assert_true(world: Turns, request: Json) -> None:
    """The record says what became of it, and what the agent has written down says the same."""
    marker = marker_of(request)
    runs = world.taken(request["agent"], f"ping {marker}")
    assert runs <= 1, f"{marker} ran {runs} times: {request}"
    if request["state"] == "delivered":
        assert (runs, request["reply_preview"]) == (1, f"pong {marker}"), request
    elif request["state"] == "failed":
        assert request["error_code"] and request["error"]
        # An agent that said it had begun, and died before it wrote that down, had the message: its record holds nothing.
        assert runs <= request["handed_over"], request
    else:
        assert request["state"] == "uncertain", request


def assert_in_order(world: Turns, agent: str, session: str, requests: list[Json]) -> None:
    """What a session has taken in, it has in the order of acceptance."""
    taken = [message.partition("ping ")[2][:4] for message in world.messages(agent, session) if "ping " in message]
    accepted = [marker_of(request) for request in requests if request["session"] == session]
    assert taken == [marker for marker in accepted if marker in taken]


def storm(world: Turns, seed: int, *, sessions: int, each: int, kills: int) -> None:
    made = Storm(world, seed, sessions)
    made.send(each)
    made.go_on(kills)
    receipts = made.calm()
    deliveries = world.deliveries()
    assert {delivery["state"] for delivery in deliveries} <= set(FINAL)
    requests = [d for d in deliveries if d["kind"] == "request" and "ping " in d["summary"]]
    assert_recorded(receipts, requests, ("broker_unreachable",))
    for request in requests:
        assert_true(world, request)
    assert not made.twice(), "two agents were at work on one session"
    for agent, session in made.sessions:
        assert_in_order(world, agent, session, requests)
    counted = Counter(request["state"] for request in requests)
    codes = Counter(request["error_code"] for request in requests if request["error_code"])
    print(f"seed {seed}: {dict(counted)}, {dict(codes)}, {dict(made.blows)}")
    assert counted["delivered"] > each, (counted, codes)


def test_a_few_blows(turns: Turns) -> None:
    storm(turns, 1, sessions=1, each=8, kills=6)


@pytest.mark.full
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(2, 12))
def test_many_blows(turns: Turns, seed: int) -> None:
    storm(turns, seed, sessions=2, each=50, kills=30)
