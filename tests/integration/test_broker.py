"""The broker as a process: one of it, found by everybody, safe in its home, fair to all clients, gone when idle."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import stat
import subprocess
import sys
import time
from pathlib import Path

import msgpack
import pytest
import zmq

from broker.rendezvous import read_record
from broker.wire import PROTOCOL
from tests.integration.exchanges import exchange, gate, open_both, open_gate, ping
from tests.integration.panels import Panel
from tests.integration.processes import gone_within
from tests.integration.world import ROOT, World

BROKER = [sys.executable, "-I", str(ROOT / "broker" / "__main__.py"), "run"]


# one of it (EN-10, case 39)


@pytest.mark.cold
@pytest.mark.requirement("EN-10", "EN-08")
def test_ten_clients_at_once_start_one_broker(world: World) -> None:
    clients = [world.mcp() for _ in range(10)]
    for client in clients:
        client.shake_hands()
    numbers = [client.post("tools/call", {"name": "bridge_status", "arguments": {}}) for client in clients]
    answers = [client.answer(n)["result"]["structuredContent"] for client, n in zip(clients, numbers, strict=True)]
    assert [answer for answer in answers if not answer["ok"]] == []
    processes = [answer["server_process"] for answer in answers]
    assert {(process["pid"], process["generation"]) for process in processes} == {(world.broker().pid, 1)}
    assert world.log().count("generation 1 at") == 1


@pytest.mark.cold
@pytest.mark.requirement("EN-10", "EN-08")
def test_of_ten_brokers_at_once_one_stays(world: World) -> None:
    environment = {**os.environ, **world.settings}
    brokers = [subprocess.Popen(BROKER, env=environment, stdin=subprocess.DEVNULL) for _ in range(10)]
    winner = world.broker()
    losers = [broker for broker in brokers if broker.pid != winner.pid]
    assert len(losers) == 9
    assert {loser.wait(20) for loser in losers} == {0}
    assert winner.generation == 1
    assert world.ask("status")["pid"] == winner.pid
    os.kill(winner.pid, signal.SIGTERM)
    next(broker for broker in brokers if broker.pid == winner.pid).wait(10)


@pytest.mark.cold
@pytest.mark.requirement("EN-08")
def test_what_a_dead_broker_left_stops_nobody(world: World) -> None:
    """A record of a process that is gone, a socket that nobody listens on, a lock file that nobody holds."""
    run = Path(world.home.run)
    stale = {"endpoint": f"ipc://{run}/b1.sock", "events": f"ipc://{run}/e1.sock", "pid": 1 << 22, "start": 7}
    (run / "broker.json").write_text(json.dumps({**stale, "generation": 1, "protocol": PROTOCOL, "version": "0"}))
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(run / "b1.sock"))
    for name in ("broker.lock", "start.lock"):
        (run / name).touch(0o600)
    client = world.mcp()
    client.shake_hands()
    assert client.call("bridge_status")["ok"]


@pytest.mark.cold
@pytest.mark.requirement("EN-10")
def test_a_broker_is_detached_from_whoever_started_it(world: World) -> None:
    client = world.mcp()
    client.shake_hands()
    assert client.call("bridge_status")["ok"]
    broker = world.broker()
    fields = Path(f"/proc/{broker.pid}/stat").read_text().rpartition(")")[2].split()
    assert int(fields[3]) == broker.pid  # a session of its own
    assert os.readlink(f"/proc/{broker.pid}/cwd") == "/"
    client.kill()
    client.wait_end()
    assert world.ask("status")["pid"] == broker.pid


@pytest.mark.cold
@pytest.mark.requirement("EN-10")
def test_a_broker_ends_when_it_is_idle_and_not_before(world: World) -> None:
    Path(world.home.config).write_text("[broker]\nidle_seconds = 1\n")
    client = world.mcp()  # the test's own process asks nothing: it would stay a client for as long as it lives
    client.shake_hands()
    target = world.codex()
    assert client.call("bridge_status")["ok"]
    broker = world.broker()
    assert not gone_within(broker.pid, 2)
    client.close()
    assert not gone_within(broker.pid, 2)
    target.close()
    began = time.monotonic()
    assert gone_within(broker.pid, 10)
    assert time.monotonic() - began < 5
    assert "ended: idle" in world.log()
    assert read_record(world.home) is None
    assert not list(Path(world.home.run).glob("*.sock"))


# its wire (EN-05)


def _raw(world: World) -> tuple[zmq.Context[zmq.Socket[bytes]], zmq.Socket[bytes]]:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    raw = context.socket(zmq.DEALER)
    raw.setsockopt(zmq.LINGER, 0)
    raw.connect(world.broker().endpoint)
    return context, raw


@pytest.mark.requirement("EN-05")
@pytest.mark.parametrize(
    ("data", "code"),
    [
        (msgpack.packb({"v": PROTOCOL + 1, "k": "request"}), "protocol_mismatch"),
        (msgpack.packb({"k": "request"}), "protocol_mismatch"),
        (msgpack.packb({"v": PROTOCOL, "k": "nonsense"}), "bad_message"),
        (msgpack.packb({"v": PROTOCOL, "k": "shim.register", "child": "x"}), "bad_message"),
        (msgpack.packb([1, 2]), "bad_message"),
        (b"\xc1", "bad_message"),
        (b"", "bad_message"),
    ],
)
def test_what_is_no_message_is_answered_clearly(world: World, data: bytes, code: str) -> None:
    client = world.mcp()
    client.shake_hands()
    assert client.call("bridge_status")["ok"]
    context, raw = _raw(world)
    try:
        raw.send(data)
        assert raw.poll(5000)
        answer = msgpack.unpackb(raw.recv())
        assert (answer["k"], answer["code"]) == ("failure", code)
        assert answer["message"]
        assert answer["next_step"]
    finally:
        raw.close()
        context.destroy(0)
    assert client.call("bridge_status")["ok"]


@pytest.mark.cold
@pytest.mark.requirement("EN-05")
def test_a_broker_of_another_protocol_is_told_in_every_call(world: World) -> None:
    """A newer one lives: the old thin process neither hangs nor starts a second."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    newer = context.socket(zmq.ROUTER)
    endpoint = f"ipc://{world.home.run}/b9.sock"
    newer.bind(endpoint)
    me = Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]
    record = {"endpoint": endpoint, "events": endpoint, "pid": os.getpid(), "start": int(me), "generation": 9}
    Path(world.home.broker_record).write_text(json.dumps({**record, "protocol": PROTOCOL + 1, "version": "9", "added": 1}))
    try:
        client = world.mcp()
        client.shake_hands()
        for _ in range(2):
            refused = client.call("bridge_status", timeout=5)
            assert refused["code"] == "protocol_mismatch"
            assert refused["next_step"]
    finally:
        newer.close(0)
        context.destroy(0)
        os.unlink(world.home.broker_record)


# fair to all (cases 24, 31, 54)


@pytest.mark.requirement("EN-25")
def test_a_client_that_never_reads_disturbs_nobody(world: World) -> None:
    """Its outbox fills, and everybody else's messages go on as before."""
    sender, target = open_both(world, ("claude", "codex"))
    deaf = world.mcp()
    deaf.shake_hands()
    assert deaf.call("bridge_status")["ok"]
    os.kill(deaf.pid, signal.SIGSTOP)
    call = {"jsonrpc": "2.0", "method": "tools/call", "params": {"name": "list_agent_sessions", "arguments": {}}}
    lines = b"".join(json.dumps({**call, "id": 100 + n}).encode() + b"\n" for n in range(400))
    assert deaf.process.stdin is not None
    os.set_blocking(deaf.process.stdin.fileno(), False)
    while select.select([], [deaf.process.stdin], [], 0.2)[1] and lines:
        lines = lines[os.write(deaf.process.stdin.fileno(), lines) :]
    os.kill(deaf.pid, signal.SIGCONT)
    began = time.monotonic()
    exchange(world, sender, target, "M1")
    assert time.monotonic() - began < 5


@pytest.mark.requirement("DE-04", "DE-31")
def test_three_messages_to_a_busy_session_run_in_order(world: World) -> None:
    sender, target = open_both(world, ("claude", "codex"))
    waiting = gate(world, "g")
    target.say(f"[[slow {waiting} the answer of the person's own turn]]")
    for number in range(3):
        sender.send_to(target, ping(f"M{number}"))
        sender.wait_ends(number + 1)
    assert [r["warnings"][0]["code"] for r in sender.receipts()] == ["peer_busy"] * 3
    assert sender.receipts()[2]["queue_depth"] >= 1
    assert target.handed_over("M") == 0
    open_gate(waiting)
    for number in range(3):
        sender.wait_reply(f"pong M{number}")
    markers = [p.partition("ping ")[2][:2] for p in target.prompts() if "BRIDGE MESSAGE" in p]
    assert markers == ["M0", "M1", "M2"]
    assert "the answer of the person's own turn" in target.answers()
    assert all(target.prompts())


@pytest.mark.requirement("DE-04")
def test_twenty_sends_at_once_to_one_session(world: World) -> None:
    target = world.codex()
    target.registered()
    client = world.mcp(CROSS_AGENT_MAX_HOPS="4")
    client.shake_hands()
    arguments = [{"message": f"M{n:02} [[reply pong]]", "session_id": target.session} for n in range(20)]
    numbers = [client.post("tools/call", {"name": "send_to_codex", "arguments": a}) for a in arguments]
    receipts = [client.answer(number)["result"]["structuredContent"] for number in numbers]
    assert all(receipt["ok"] for receipt in receipts)
    requests = world.finished(20, timeout=60)
    assert {request["state"] for request in requests} == {"delivered"}
    order = [p.partition("\n\n")[2][:3] for p in target.prompts() if "BRIDGE MESSAGE" in p]
    assert order == [request["summary"][:3] for request in requests]
    assert sorted(order) == [f"M{n:02}" for n in range(20)]
    assert len({request["token"] for request in requests}) == 20


@pytest.mark.requirement("DE-04", "DE-40")
def test_twenty_sends_at_once_to_twenty_sessions_never_mix(world: World) -> None:
    host = world.codex(thread=False)
    threads = [host.start_thread() for _ in range(20)]
    host.registered()
    client = world.mcp()
    client.shake_hands()
    numbers = {
        thread: client.post(
            "tools/call",
            {"name": "send_to_codex", "arguments": {"message": f"to {thread} [[reply of {thread}]]", "session_id": thread}},
        )
        for thread in threads
    }
    for thread, number in numbers.items():
        assert client.answer(number)["result"]["structuredContent"]["target_session_id"] == thread
    for request in world.finished(20, timeout=60):
        assert request["summary"].startswith(f"to {request['session']}")
        assert request["reply_preview"] == f"of {request['session']}"


# the loop (EN-25)


@pytest.mark.cold
@pytest.mark.alone
@pytest.mark.requirement("EN-25")
def test_the_loop_stands_still_for_nobody(world: World) -> None:
    """While the SDK loads, and while two hundred deliveries run."""
    host = world.codex(thread=False)
    threads = [host.start_thread() for _ in range(10)]
    client = world.mcp()
    client.shake_hands()
    host.registered()
    numbers = [
        client.post("tools/call", {"name": "send_to_codex", "arguments": {"message": "x" * 2000, "session_id": thread}})
        for _ in range(20)
        for thread in threads
    ]
    for number in numbers:
        assert client.answer(number, timeout=60)["result"]["structuredContent"]["ok"]
    world.finished(200, timeout=90)
    assert [line for line in world.log().splitlines() if "stood still" in line] == []


# panels (SH-15, SH-22, SH-23, DE-25)


@pytest.mark.requirement("SH-15", "DE-35")
def test_two_panels_on_one_session_wait_for_the_one_that_stays(world: World) -> None:
    """A window reload: the new panel is there while the old one still ends."""
    sender, old = open_both(world, ("codex", "claude"))
    old.say(f"[[slow {gate(world, 'g')} busy]]")
    old.until(lambda: len(old.prompts()) == 1, "the person's turn")
    new = world.claude(resume=old.session)
    client = world.mcp()
    client.shake_hands()
    world.until(lambda: _panels_on(world, old.session) == 2, "two panels on the session")
    sender.send_to(old, ping("M1"))
    assert sender.wait_receipt()["ok"]
    world.until(lambda: world.requests()[0]["state"] == "queued", "M1 queued")
    old.kill()
    sender.wait_reply("pong M1")
    assert new.handed_over("M1") == 1
    assert any("pong M1" in answer for answer in new.answers())


def _panels_on(world: World, session: str) -> int:
    panels = world.ask("overview")["ide_panels"]
    return sum(any(state["id"] == session for state in panel["sessions"]) for panel in panels)


@pytest.mark.requirement("SH-22", "DE-25")
def test_presence_tells_of_a_shim_that_is_not_connected(world: World) -> None:
    sender, target = open_both(world, ("claude", "codex"))
    record = Path(world.home.shims) / f"{target.process_id}.json"
    assert stat.S_IMODE(record.stat().st_mode) == 0o600
    shown = json.loads(record.read_text())
    assert (shown["pid"], shown["agent"], shown["sessions"]) == (target.pid, "codex", [target.session])
    os.kill(target.pid, signal.SIGSTOP)
    first = world.kill_broker()
    world.broker(other_than=first)
    sender.registered()
    os.kill(target.pid, signal.SIGCONT)
    exchange(world, sender, target, "M1")
    target.end_input()
    target.wait_end()
    assert not record.exists()


@pytest.mark.cold
@pytest.mark.requirement("SH-23")
def test_a_shim_starts_the_broker_unless_told_not_to(world: World) -> None:
    quiet = world.claude(CROSS_AGENT_AUTOSTART="off", CROSS_AGENT_NOTHING="1")
    assert not _starts_a_broker(world, quiet, 1.0)
    loud = world.codex()
    assert _starts_a_broker(world, loud, 10.0)
    quiet.registered()  # a broker that appears later is noticed


def _starts_a_broker(world: World, panel: Panel, seconds: float) -> bool:
    assert panel.process.poll() is None
    try:
        world.broker(timeout=seconds)
    except AssertionError:
        return False
    return True
