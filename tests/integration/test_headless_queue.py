"""Several messages for one session that nobody holds, and somebody who comes to hold it (DE-04, DE-22, DE-26, DE-52, DE-53)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from broker.processes import identify
from shims.presence import PresenceRecord
from tests.integration.command_lines import STORES, Turns
from tests.integration.exchanges import open_gate
from tests.integration.startable import each_agent


@pytest.fixture
def world(turns: Turns) -> Turns:
    return turns


@pytest.mark.requirement("DE-04", "DE-02", "DE-03")
@each_agent
def test_messages_of_several_callers_run_one_after_the_other(world: Turns, agent: str) -> None:
    order = Path(world.home.root, "order")
    session = world.opened(world.client, agent)["session"]
    world.wrap(agent, f"echo begin >> {order}")
    callers = [world.client, world.caller(), world.caller()]
    gate = world.gate()
    first = world.begin(agent, world.message("M0", f"slowreply {gate} pong M0"), session)
    receipts = [world.send(callers[n % 3], agent, world.message(f"M{n}"), session) for n in range(1, 5)]
    assert [receipt["queue_depth"] for receipt in receipts] == [0, 1, 2, 3]
    for receipt in receipts:
        assert receipt["peer_queue"]["runs_turn"]
        assert receipt["peer_queue"]["ahead"] == receipt["queue_depth"]
        assert "peer_busy" in {warning["code"] for warning in receipt["warnings"]}
        assert world.delivery(receipt)["state"] == "queued"
    assert order.read_text().splitlines() == ["begin"]
    open_gate(gate)
    ended = [world.ended(receipt) for receipt in (first, *receipts)]
    assert [delivery["state"] for delivery in ended] == ["delivered"] * 5
    assert [delivery["reply_preview"] for delivery in ended] == [f"pong M{n}" for n in range(5)]
    turns = [attempt["created"] for delivery in ended for attempt in world.attempts() if attempt["delivery"] == delivery["id"]]
    assert turns == sorted(turns) and len(turns) == 5
    assert all(later > earlier["updated"] - 0.5 for earlier, later in zip(ended, turns[1:], strict=False))


@contextmanager
def held(world: Turns, agent: str, session: str) -> Iterator[int]:
    """A process of somebody's that has the session open, by the agent's own word; its pid."""
    store = world.user / STORES[agent]
    program = "import sys; print(flush=True); sys.stdin.read()"
    if agent == "codex":
        os.makedirs(store / "thread-writer-locks", exist_ok=True)
        lock = store / "thread-writer-locks" / f"{session}.lock"
        program = f"import fcntl; file = open({str(lock)!r}, 'w'); fcntl.flock(file, fcntl.LOCK_EX); {program}"
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None and process.stdout is not None
        process.stdout.readline()
        found = identify(process.pid)
        assert found is not None
        entry = {"session_id": session, "pid": process.pid, "cwd": "/", "opened_at": ""}
        mine = {"pid": process.pid, "sessionId": session, "procStart": str(found.start), "cwd": "/"}
        registry = {"claude": store / f"sessions/{process.pid}.json", "grok": store / "active_sessions.json"}.get(agent)
        if registry is not None:
            registry.parent.mkdir(exist_ok=True)
            registry.write_text(json.dumps(mine if agent == "claude" else [entry]))
        try:
            yield process.pid
        finally:
            process.stdin.close()
            if registry is not None:
                registry.unlink()


def seen_held(world: Turns, session: str, pid: int) -> None:
    """Waits until the broker has seen it: what is new in an agent's directory is told by the kernel, and takes a moment."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        listed = world.client.call("list_agent_sessions", agent="all", limit=50, cwd=str(world.work))["sessions"]
        if any((line["id"], line["held_by_pid"]) == (session, pid) for line in listed):
            return
    raise AssertionError(f"{session} is not seen to be held")


@pytest.mark.requirement("DE-25", "DE-53")
@pytest.mark.parametrize("agent", ["claude", "codex"])  # of Grok's registry only what is a Grok counts beforehand
def test_a_session_that_somebody_holds_is_refused_with_the_holder(world: Turns, agent: str) -> None:
    session = world.opened(world.client, agent)["session"]
    with held(world, agent, session) as pid:
        seen_held(world, session, pid)
        refused = world.send(world.client, agent, world.message("M1"), session)
        assert refused.get("ok") is False and refused["code"] == "session_held", refused
        assert str(pid) in json.dumps(refused)
    assert world.ended(world.send(world.client, agent, world.message("M2"), session))["state"] == "delivered"
    assert world.taken(agent, "M1") == 0


@pytest.mark.requirement("DE-25", "DE-53")
@pytest.mark.parametrize("agent", ["claude"])  # no process of ours passes for a Grok that holds one
def test_a_session_that_somebody_took_while_a_message_waited_is_left_to_him(world: Turns, agent: str) -> None:
    """For as long as he has it; a look at it is soon over."""
    session = world.opened(world.client, agent)["session"]
    starts = Path(world.home.root, "starts")
    gate = world.gate()
    first = world.begin(agent, world.message("M1", f"slowreply {gate} pong M1"), session)
    second = world.send(world.client, agent, world.message("M2"), session)
    world.wrap(agent, f"echo >> {starts}")
    with held(world, agent, session):
        open_gate(gate)
        assert world.ended(first)["state"] == "delivered"
        assert (world.delivery(second)["state"], starts.exists()) == ("queued", False)
    assert world.ended(second)["state"] == "delivered"


@pytest.mark.full
@pytest.mark.requirement("SH-22", "DE-25")
def test_a_session_of_a_shim_that_never_connects_is_never_resumed(world: Turns) -> None:
    """Neither what waits when the shim comes, for however long, nor what is sent then."""
    session = world.opened(world.client, "grok")["session"]
    gate = world.gate()
    first = world.begin("grok", world.message("M1", f"slowreply {gate} pong M1"), session)
    waiting = world.send(world.client, "grok", world.message("M2"), session)
    presence = PresenceRecord(world.home.shims, agent="grok", real="/x", child=os.getpid(), cwd="/")
    presence.update((session,))
    open_gate(gate)
    assert world.ended(first)["state"] == "delivered"
    refused = world.send(world.client, "grok", world.message("M3"), session)
    failed = world.ended(waiting, timeout=100)
    presence.remove()
    assert (failed["state"], failed["handed_over"], world.taken("grok", "M2")) == ("failed", False, 0)
    assert (refused["ok"], refused.get("code")) == (False, "session_held"), refused


@pytest.mark.requirement("SE-20", "DE-53")
def test_a_panel_that_opens_the_session_gets_what_waits(world: Turns) -> None:
    """A turn that runs goes on; what waits behind it goes to where the session is open then."""
    session = world.opened(world.client, "grok")["session"]
    gate = world.gate()
    first = world.begin("grok", world.message("M1", f"slowreply {gate} pong M1"), session)
    waiting = [world.send(world.client, "grok", world.message(f"M{n}"), session) for n in (2, 3)]
    panel = world.grok(session=False, GROK_HOME=str(world.user / STORES["grok"]))
    panel.cwd = str(world.work)
    panel.load_session(session)
    panel.registered()
    open_gate(gate)
    ended = [world.ended(receipt) for receipt in (first, *waiting)]
    assert [(d["state"], d["route"]) for d in ended] == [
        ("delivered", "headless"),
        ("delivered", "panel"),
        ("delivered", "panel"),
    ]


@pytest.mark.requirement("DE-52")
def test_what_was_switched_off_after_the_acceptance_is_not_started(world: Turns) -> None:
    session = world.opened(world.client, "claude")["session"]
    gate = world.gate()
    first = world.begin("claude", world.message("M1", f"slowreply {gate} pong M1"), session)
    second = world.send(world.client, "claude", world.message("M2"), session)
    Path(world.home.config).write_text('[grants]\nheadless = false\nchild_env = ["XAI_API_KEY"]\n')
    open_gate(gate)
    assert world.ended(first)["state"] == "delivered"
    failed = world.ended(second)
    assert (failed["state"], failed["error_code"], failed["handed_over"]) == ("failed", "headless_disabled", False)
    assert "is_undelivered" in failed["flags"]
    assert world.taken("claude", "M2") == 0
    refused = world.send(world.client, "claude", world.message("M3"), session)
    assert refused["code"] == "headless_disabled"
