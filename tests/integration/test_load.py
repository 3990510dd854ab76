"""Many sends at once: every one of them is answered, once, and each session gets its own in the order of their acceptance."""

from __future__ import annotations

import random
from collections import defaultdict

import pytest

from tests.integration.exchanges import ping
from tests.integration.lines import Json
from tests.integration.panels import CodexPanel, McpClient, Panel
from tests.integration.world import World

pytestmark = pytest.mark.requirement("DE-01", "DE-04", "DE-21")

SEED = 5
CALLERS = SESSIONS = 20
KINDS = ("claude", "codex", "grok")


def callers(world: World, count: int = CALLERS) -> list[McpClient]:
    """MCP processes of nobody's, each with its own connection to the broker."""
    clients = [world.mcp() for _ in range(count)]
    for client in clients:
        client.shake_hands()
    return clients


def all_sent(clients: list[McpClient], targets: list[tuple[str, str]], count: int) -> list[Json]:
    """Each caller sends its share, everything at once, to sessions that chance names; the receipts."""
    chance = random.Random(SEED)
    posted = []
    for number in range(count):
        agent, session = chance.choice(targets)
        client = clients[number % len(clients)]
        arguments = {"message": ping(f"M{number:04}"), "session_id": session}
        posted.append((client, client.post("tools/call", {"name": f"send_to_{agent}", "arguments": arguments})))
    receipts = [client.answer(number, timeout=120)["result"]["structuredContent"] for client, number in posted]
    assert [receipt for receipt in receipts if not receipt["ok"]] == []
    return receipts


def markers(prompts: list[str]) -> list[str]:
    """What a session was sent, in the order in which it took it in."""
    return [prompt.partition("ping ")[2][:5] for prompt in prompts if "BRIDGE MESSAGE" in prompt]


def assert_settled(world: World, receipts: list[Json], taken_in: dict[str, list[str]]) -> None:
    """All answered, each once, at the session it was meant for, in order."""
    requests = world.requests()
    assert [r["id"] for r in requests if r["state"] != "delivered"] == []
    assert {r["id"] for r in requests} == {receipt["delivery_id"] for receipt in receipts}
    expected = defaultdict(list)
    for request in requests:
        marker = request["summary"].partition("ping ")[2][:5]
        expected[request["session"]].append(marker)
        assert request["reply_preview"] == f"pong {marker}"
    assert taken_in == {session: expected[session] for session in taken_in}
    assert sum(map(len, taken_in.values())) == len(receipts)


def prompts_of(host: CodexPanel, thread: str) -> list[str]:
    host.session = thread
    return host.prompts()


def test_two_hundred_from_twenty_to_twenty(world: World) -> None:
    host = world.codex(thread=False)
    threads = [host.start_thread() for _ in range(SESSIONS)]
    clients = callers(world)
    host.registered()
    receipts = all_sent(clients, [("codex", thread) for thread in threads], 200)
    world.until(lambda: world.finished_requests() == 200, "everything answered", 60)
    assert_settled(world, receipts, {thread: markers(prompts_of(host, thread)) for thread in threads})


@pytest.mark.full
@pytest.mark.timeout(600)
def test_a_thousand_from_twenty_to_twenty(world: World) -> None:
    """Twenty panels, each with a shim, an agent and its MCP process."""
    panels: list[Panel] = [world.open(KINDS[number % len(KINDS)]) for number in range(SESSIONS)]
    clients = callers(world)
    for panel in panels:
        panel.registered()
    receipts = all_sent(clients, [(panel.agent, panel.session) for panel in panels], 1000)
    world.until(lambda: world.finished_requests() == 1000, "everything answered", 400)
    assert_settled(world, receipts, {panel.session: markers(panel.prompts()) for panel in panels})


@pytest.mark.full
@pytest.mark.timeout(600)
@pytest.mark.requirement("DE-40", "DE-45")
def test_twenty_panels_that_all_write_to_each_other(world: World) -> None:
    """Each of them is asked by its person to send twenty-five messages in one turn, and gets twenty-five answers back."""
    panels: list[Panel] = [world.open(KINDS[number % len(KINDS)]) for number in range(SESSIONS)]
    for panel in panels:
        panel.registered()
    each, chance = 25, random.Random(SEED)
    for number, panel in enumerate(panels):
        others = [other for other in panels if other is not panel]
        steps = []
        for part in range(each):
            target = chance.choice(others)
            script = panel.send_script(target, ping(f"M{number:02}{part:02}"))
            steps.append(script.removeprefix("[[").removesuffix(" ;; say sent]]"))
        panel.say(f"[[{' ;; '.join(steps)} ;; say sent]]")
    total = each * len(panels)
    world.until(lambda: world.finished_requests() == total and not world.open_deliveries(), "all answers back", 400)
    deliveries = world.deliveries()
    assert {delivery["state"] for delivery in deliveries} == {"delivered"}
    assert len(deliveries) == 2 * total
    for number, panel in enumerate(panels):
        sent = sorted(f"pong M{number:02}{part:02}" for part in range(each))
        back = [prompt for prompt in panel.prompts() if "BRIDGE REPLY" in prompt]
        assert sorted(line for text in back for line in text.splitlines() if line.startswith("pong M")) == sent
