"""Answers that come late, by whole worlds of stub panels: through a change of brokers, without a panel, after a crash."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pytest

from broker.rendezvous import BrokerRecord
from tests.integration.exchanges import gate, open_both, open_gate, ping, settled
from tests.integration.lines import PATIENCE, Json
from tests.integration.panels import ClaudePanel, Panel
from tests.integration.processes import gone_within
from tests.integration.world import World

LATE = "=== CROSS-AGENT BRIDGE LATE ANSWER ==="
AT_ONCE = 15.0
"""Seconds within which an event must have led to a look: nothing looks by itself before half a minute has passed."""


def late(panel: Panel) -> list[str]:
    return [prompt for prompt in panel.prompts() if prompt.startswith(LATE)]


def wait_late(panel: Panel, words: str) -> str:
    panel.until(lambda: any(f"\n\n{words}\n\n" in prompt for prompt in late(panel)), f"late answer {words}", timeout=AT_ONCE)
    return next(prompt for prompt in late(panel) if f"\n\n{words}\n\n" in prompt)


def closing(request: Json, words: str) -> str:
    """What a person types whose agent then finishes what a message had asked for."""
    return f"go on\nrequest: {request['token']}\n[[reply {words}]]"


def watched(world: World) -> list[str]:
    return [watch["delivery_id"] for watch in world.ask("overview")["deliveries"]["watching_for_late_answers"]]


def restarted(world: World, *panels: Panel) -> BrokerRecord:
    """The next broker, which knows these panels."""
    following = world.broker(other_than=world.kill_broker())
    for panel in panels:
        panel.registered()
    return following


def interim(world: World, sender: Panel, target: Panel, marker: str) -> Json:
    """A request whose turn ended with an answer that is none."""
    before = len(world.requests())
    sender.send_to(target, ping(marker, f"say I will look into {marker}"))
    assert "possibly interim" in sender.wait_reply(f"I will look into {marker}")
    request: Json = world.finished(before + 1)[before]
    assert "is_possibly_interim" in request["flags"]
    return request


@pytest.mark.requirement("DE-43", "DE-45", "EN-10", "MC-04")
@pytest.mark.parametrize(
    "pair",
    [("codex", "claude"), *(pytest.param(pair, marks=pytest.mark.full) for pair in (("claude", "codex"), ("claude", "grok")))],
)
def test_a_late_answer_comes_back_through_a_change_of_brokers(world: World, pair: tuple[str, str]) -> None:
    """Two requests to one session, a broker that dies in the middle of the watch, and the answers in the other order."""
    sender, target = open_both(world, pair)
    first, second = (interim(world, sender, target, marker) for marker in ("M1", "M2"))
    assert watched(world) == [first["id"], second["id"]]

    restarted(world, sender, target)
    assert watched(world) == [first["id"], second["id"]]
    target.say(closing(second, "all of M2"))
    assert f"late answer to: delivery {second['id']}\n" in wait_late(sender, "all of M2")
    target.say(closing(first, "all of M1"))
    wait_late(sender, "all of M1")

    client = world.mcp()
    client.shake_hands()
    shown = client.call("bridge_status", delivery_id=first["id"])
    assert shown["delivery"]["late_reply_delivery_id"] == shown["late_reply_delivery"]["delivery_id"]
    assert shown["late_reply_delivery"]["kind"] == "late-answer"
    assert shown["peer_transcript"]["answer"].startswith("all of M1"), "the later one"
    assert client.call("bridge_status")["deliveries"]["watching_for_late_answers"] == []
    world.until(lambda: not any(a["open"] for a in world.attempts()), "every turn over")
    assert len(late(sender)) == 2
    assert sorted(d["kind"] for d in world.deliveries()) == ["late-answer"] * 2 + ["reply"] * 2 + ["request"] * 2


@pytest.mark.requirement("DE-43", "DE-12")
def test_a_turn_that_finishes_an_earlier_request_is_not_told_as_the_answer_to_its_own(world: World) -> None:
    sender, target = open_both(world, ("codex", "claude"))
    first = interim(world, sender, target, "M1")
    sender.send_to(target, f"ping M2 {'.' * 100} [[say all of M1\n{first['token']}]]")
    assert first["id"] in sender.wait_notice()
    wait_late(sender, "all of M1")
    second = world.finished(2)[1]
    assert (second["state"], second["error_code"], second["reply_preview"]) == ("failed", "no_answer", "")
    assert watched(world) == [second["id"]]
    assert sender.replies("all of M1") == []


@pytest.mark.requirement("DE-43", "DE-33")
def test_records_that_somebody_else_writes_are_watched_as_well(world: World) -> None:
    """The panel is closed, and the session goes on in a terminal: the index tells."""
    sender, target = open_both(world, ("codex", "claude"))
    request = interim(world, sender, target, "M1")
    target.close()
    assert isinstance(target, ClaudePanel)
    (transcript,) = target.store.glob(f"projects/*/{target.session}.jsonl")
    said = [json.loads(line) for line in transcript.read_text().splitlines()]
    last = next(entry for entry in reversed(said) if entry["type"] == "assistant")
    last["message"]["content"] = [{"type": "text", "text": f"all of M1\n{request['token']}"}]
    with transcript.open("a") as file:
        file.write(json.dumps(last) + "\n")
    wait_late(sender, "all of M1")


@pytest.mark.requirement("DE-34", "DE-36", "DE-11")
@pytest.mark.parametrize("kind", ["claude", "codex"])
def test_an_answer_after_a_crash_is_recovered_and_late(world: World, kind: str) -> None:
    """The agent dies in the middle of the turn: an end without an answer, which is told. Who opens the session again goes on."""
    sender, target = open_both(world, ("codex", kind))
    held = gate(world, "g")
    sender.send_to(target, ping("M1", f"slowreply {held} pong M1"))
    world.until(lambda: any(a["evidence"] == "taken" for a in world.attempts()), "M1 taken")
    agent = target.child()
    os.kill(agent, signal.SIGKILL)
    assert "HANDED OVER, NO ANSWER" in sender.wait_notice()
    (request,) = world.finished()
    assert (request["state"], request["error_code"]) == ("failed", "interrupted")

    target = world.open(kind, resume=target.session)
    target.registered()
    client = world.mcp()
    client.shake_hands()
    shown = client.call("bridge_status", delivery_id=request["id"])
    assert shown["peer_transcript"]["is_working"] is False, "its turn stands open in the records for ever"
    target.say(closing(request, "all of M1"))
    told = wait_late(sender, "all of M1")
    assert "\ntransport failure: the session ended in the middle of its turn\nRECOVERED, NOT RECEIVED\n" in told
    after = client.call("bridge_status", delivery_id=request["id"])["delivery"]
    assert (after["state"], after["is_reply_recovered"], after["is_answered_late"]) == ("failed", True, True)


@pytest.mark.requirement("DE-41", "DE-40")
def test_an_answer_finds_a_tab_that_was_closed_and_opened_again(world: World) -> None:
    """The way back was there when the answer came, and is gone when it goes out."""
    sender, target = open_both(world, ("codex", "claude"))
    held = gate(world, "g")
    sender.send_to(target, ping("M1", f"slowreply {held} pong M1"))
    sender.wait_ends(1)
    os.kill(sender.pid, signal.SIGSTOP)  # it counts as live, and takes nothing
    open_gate(held)
    world.until(lambda: [d["state"] for d in world.deliveries() if d["kind"] == "reply"] == ["delivering"], "the reply going out")
    sender.kill()
    sender = world.open("codex", resume=sender.session)
    sender.wait_reply("pong M1")
    (request,) = world.finished()
    assert "is_return_status_only" not in request["flags"]
    assert len(sender.replies("pong M1")) == 1


@pytest.mark.full
@pytest.mark.requirement("DE-41")
def test_an_answer_whose_tab_stays_closed_is_on_the_record_after_a_minute(world: World) -> None:
    sender, target = open_both(world, ("codex", "claude"))
    held = gate(world, "g")
    sender.send_to(target, ping("M1", f"slowreply {held} pong M1"))
    sender.wait_ends(1)
    os.kill(sender.pid, signal.SIGSTOP)
    open_gate(held)
    world.until(lambda: [d["state"] for d in world.deliveries() if d["kind"] == "reply"] == ["delivering"], "the reply going out")
    closed = time.monotonic()
    sender.kill()
    world.until(lambda: [d["state"] for d in world.deliveries() if d["kind"] == "reply"] == ["failed"], "given up", timeout=90)
    assert time.monotonic() - closed > 55
    client = world.mcp()
    client.shake_hands()
    shown = client.call("bridge_status", delivery_id=world.requests()[0]["id"])
    assert shown["delivery"]["is_return_status_only"] and shown["delivery"]["state"] == "delivered"
    returned = shown["return_delivery"]
    assert (returned["state"], returned["code"], returned["is_undelivered"]) == ("failed", "panel_closed", True)
    assert shown["peer_transcript"]["answer"].startswith("pong M1")


@pytest.mark.full
@pytest.mark.cold
@pytest.mark.requirement("EN-10", "DE-43")
def test_a_broker_is_not_idle_while_it_watches_and_no_longer(world: World) -> None:
    Path(world.home.config).write_text("[broker]\nidle_seconds = 0.5\n")
    client = world.mcp(CROSS_AGENT_LATE_ANSWER_WATCH="6")  # the test's own process asks nothing: it would stay a client
    client.shake_hands()
    target = world.claude()
    deadline = time.monotonic() + PATIENCE
    while target.session not in str(client.call("bridge_status", scope="any")["ide_panels"]):
        assert time.monotonic() < deadline
    receipt = client.call("send_to_claude", message=ping("M1", "say I will look"), session_id=target.session)
    settled(client, receipt["delivery_id"], "delivered")
    answered = time.monotonic()
    broker = world.broker()
    target.close()
    client.close()
    assert not gone_within(broker.pid, 2)
    assert gone_within(broker.pid, 10)
    assert time.monotonic() - answered > 6
    assert "ended: idle" in world.log()
