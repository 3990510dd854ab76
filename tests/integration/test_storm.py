"""Brokers, shims and agents are killed at random while messages run, and at the end everything is counted.

Chance chooses by a fixed seed whom to kill, when and how: outright, or at one of the named points. The two that send are
spared, so that what they were told can be counted as well; whoever is killed is opened again by its person.
"""

from __future__ import annotations

import os
import random
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.integration import points
from tests.integration.counting import assert_recorded, marker_of
from tests.integration.lines import ENDED, Json, Silence
from tests.integration.panels import McpClient, Panel, children
from tests.integration.world import FINAL, World

pytestmark = pytest.mark.requirement("DE-20", "DE-22", "DE-35", "MC-31")

VICTIMS = ("claude", "codex", "grok", "codex154")
SENDERS = ("claude", "codex")
SHIM_POINTS = tuple(f"shim.{place}.{side}" for place in ("write", "stage") for side in ("before", "after"))
_REFUSALS = ("headless_disabled", "session_held", "unknown_session", "broker_unreachable")
"""It was not open at that moment, or no broker lived long enough."""

WAIT = 60.0
LULL = 3.0
"""Seconds after which the next blow falls in any case."""


class Storm:
    """A world under way, and the chance that strikes it."""

    def __init__(self, world: World, seed: int) -> None:
        self.world = world
        self.chance = random.Random(seed)
        self.kinds = dict(enumerate(VICTIMS))
        self.victims: dict[int, Panel] = {number: world.open(kind) for number, kind in self.kinds.items()}
        self.senders: list[Panel] = [world.open(kind, CROSS_AGENT_FAIL_POINTS="") for kind in SENDERS]
        self.client = world.mcp()
        self.client.shake_hands()
        self.each = 0
        self.posted: list[int] = []
        for victim in self.victims.values():
            victim.say("hello")
            victim.wait_ends(1)  # a session without a history could not be opened again
        for panel in (*self.victims.values(), *self.senders):
            panel.registered()

    def send(self, each: int) -> None:
        """Each sender's person has it send so many in one turn; a client of nobody's does the same."""
        self.each = each
        for letter, sender in zip("AB", self.senders, strict=True):
            steps = [sender.send_script(self.somebody(), self.message(f"{letter}{n:03}")) for n in range(each)]
            sender.say("[[" + " ;; ".join(step[2:].removesuffix(" ;; say sent]]") for step in steps) + " ;; say sent]]")
        self.posted = [self.post(self.client, f"C{n:03}") for n in range(each)]

    def post(self, client: McpClient, marker: str) -> int:
        target = self.somebody()
        arguments = {"message": self.message(marker), "session_id": target.session}
        return client.post("tools/call", {"name": f"send_to_{target.agent}", "arguments": arguments})

    def somebody(self) -> Panel:
        return self.chance.choice(list(self.victims.values()))

    def message(self, marker: str) -> str:
        return f"ping {marker} {'.' * 100} [[slowreply {self.chance.choice(('0', '0.02', '0.1'))} pong {marker}]]"

    # kills

    def strike(self) -> None:
        blows: list[Callable[[], None]] = [self.kill_broker, self.kill_broker_at_a_point, self.kill_shim, self.kill_agent]
        self.chance.choice([*blows, self.kill_shim_at_a_point])()

    def kill_broker(self) -> None:
        self.forgive()
        self.world.kill_broker()

    def kill_broker_at_a_point(self) -> None:
        self.forgive()
        self.world.arm(self.chance.choice(points.EXCHANGE))

    def forgive(self) -> None:
        """That brokers die often is what this is about, and no reason to start none any more (MC-32)."""
        Path(self.world.home.starts).unlink(missing_ok=True)

    def kill_shim(self) -> None:
        os.kill(self.one_alive().pid, signal.SIGKILL)
        self.reopen()

    def kill_agent(self) -> None:
        for agent in children(self.one_alive().pid):  # none, where its shim is just ending
            os.kill(agent, signal.SIGKILL)
        self.reopen()

    def kill_shim_at_a_point(self) -> None:
        self.world.arm(self.chance.choice(SHIM_POINTS))

    def one_alive(self) -> Panel:
        self.reopen()
        alive = [panel for panel in self.victims.values() if panel.process.poll() is None]
        return self.chance.choice(alive)

    def reopen(self) -> None:
        """The person opens again what has gone, and once more where it meets an armed point while it opens."""
        for number, panel in self.victims.items():
            if panel.process.poll() is not None:
                try:
                    self.victims[number] = self.world.open(self.kinds[number], resume=panel.session)
                except Silence as silence:
                    if ENDED not in str(silence):
                        raise

    def go_on(self, kills: int) -> None:
        """Strikes, and lets a few be answered, or none, before the next blow; as long as there is anything to hit."""
        for _ in range(kills):
            self.some_answered(self.chance.randrange(4))
            if self.over():
                return
            self.strike()

    def some_answered(self, more: int) -> None:
        """Not for ever: what is left may wait in queues that only a person sets going again, which is for the end."""
        enough = self.world.finished_requests() + more
        try:
            self.until(lambda: self.world.finished_requests() >= enough or self.over(), "some answered", LULL)
        except Silence:
            pass

    def over(self) -> bool:
        """Every call has been answered, and everything that was accepted has ended."""
        return not self.world.open_deliveries() and all(len(sender.receipts()) == self.each for sender in self.senders)

    def calm(self) -> None:
        """No blows any more; everybody is there again, and speaks where a queue waits for that."""
        for path in Path(self.world.home.fail_points).iterdir():
            path.unlink(missing_ok=True)
        self.forgive()
        spoken: set[int] = set()
        while not self.settled():
            self.until(lambda: self.settled() or bool(self.paused() - spoken), "everything settled or waiting for a person")
            for number in self.paused() - spoken:
                spoken.add(number)
                self.victims[number].say("I am back [[say welcome]]")

    def settled(self) -> bool:
        return not self.world.open_deliveries() and self.no_open_attempt()

    def paused(self) -> set[int]:
        """Those whose queue was stopped by the way in which their agent ended."""
        panels = self.world.ask("overview")["ide_panels"]
        stopped = {session["id"] for panel in panels for session in panel["sessions"] if session["queue_paused"]}
        return {number for number, panel in self.victims.items() if panel.session in stopped}

    def no_open_attempt(self) -> bool:
        return not any(attempt["open"] for attempt in self.world.attempts())

    def until(self, holds: Callable[[], bool], what: str, patience: float = WAIT) -> None:
        """As the world's, and whoever has met a point meanwhile is opened again."""

        def there() -> bool:
            self.reopen()
            return holds()

        self.world.until(there, what, patience)


# what there is at the end


def assert_request(request: Json, target: Panel) -> None:
    """The record says what became of it, and what the agent really received says the same."""
    marker = marker_of(request)
    runs = target.handed_over(marker)
    assert runs <= 1, f"{marker} was handed over {runs} times"
    if request["state"] == "delivered":
        assert (runs, request["reply_preview"]) == (1, f"pong {marker}")
    elif request["state"] == "failed":
        assert request["error_code"] and request["error"]
        # An agent that said it had begun, and died before it wrote that down, had the message: its record holds nothing.
        assert runs <= request["handed_over"], f"{marker}: {request}"
    else:
        assert request["state"] == "uncertain", request


def assert_told_once(request: Json, deliveries: list[Json], sender: Panel) -> None:
    """Its sender has its answer or a notice, once, unless the record says that it has not."""
    marker = marker_of(request)
    returned = [d for d in deliveries if d["parent"] == request["id"] and d["kind"] != "progress"]
    words = "BRIDGE REPLY" if request["state"] == "delivered" else "DELIVERY FAILED"
    told = sum(words in prompt and f"ping {marker}" in prompt for prompt in sender.prompts())
    if "is_return_status_only" in request["flags"]:
        assert told == 0
    else:
        assert [(d["id"], d["state"]) for d in returned] == [(request["return_delivery"], "delivered")]
        assert told == 1, f"{marker}: told {told} times"


def receipts_of(storm: Storm) -> dict[str, Json]:
    """What every call was answered, by its marker."""
    each = storm.each
    found = {f"C{n:03}": storm.client.answer(call)["result"]["structuredContent"] for n, call in enumerate(storm.posted)}
    for letter, sender in zip("AB", storm.senders, strict=True):
        sender.wait_receipt(each)
        found |= {f"{letter}{n:03}": receipt for n, receipt in enumerate(sender.receipts())}
    assert len(found) == 3 * each
    return found


def assert_nothing_lost_or_doubled(storm: Storm) -> Counter[str]:
    deliveries = storm.world.deliveries()
    assert {d["state"] for d in deliveries} <= set(FINAL)
    receipts = receipts_of(storm)
    requests = [d for d in deliveries if d["kind"] == "request"]
    assert_recorded(receipts, requests, _REFUSALS)
    targets = {panel.session: panel for panel in storm.victims.values()}
    senders = {panel.session: panel for panel in storm.senders}
    for request in requests:
        assert_request(request, targets[request["session"]])
        if request["sender_session"]:
            assert_told_once(request, deliveries, senders[request["sender_session"]])
    return Counter(request["state"] for request in requests)


@pytest.fixture
def seeded(world: World, request: pytest.FixtureRequest) -> Iterator[Storm]:
    yield Storm(world, request.param)


def storm(seeded: Storm, *, each: int, kills: int) -> None:
    seeded.send(each)
    seeded.go_on(kills)
    seeded.calm()
    counted = assert_nothing_lost_or_doubled(seeded)
    assert counted["delivered"] > each, counted


@pytest.mark.parametrize("seeded", [1], indirect=True)
def test_a_few_blows(seeded: Storm) -> None:
    storm(seeded, each=10, kills=6)


@pytest.mark.full
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seeded", range(2, 10), indirect=True)
def test_many_blows(seeded: Storm) -> None:
    storm(seeded, each=40, kills=30)
