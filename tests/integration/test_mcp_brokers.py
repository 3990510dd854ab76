"""Brokers come and go, keep dying, can't be talked to or never come up: what an MCP client is told, and that it goes on."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import signal
import sqlite3
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pytest
import zmq

from broker.processes import identify
from broker.rendezvous import BrokerRecord, publish_record, read_record, withdraw_record
from broker.wire import PROTOCOL, Bye, Failure, McpOpen, decode, encode
from mcp_server import handshake
from tests.integration.commands import command
from tests.integration.exchanges import gate, open_gate, ping
from tests.integration.lines import Json, Silence
from tests.integration.panels import McpClient
from tests.integration.processes import gone_within
from tests.integration.world import ROOT, World

META = {
    "io.modelcontextprotocol/protocolVersion": handshake.MODERN,
    "io.modelcontextprotocol/clientInfo": {"name": "t", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}


@pytest.fixture
def client(world: World) -> McpClient:
    made = world.mcp()
    made.shake_hands()
    return made


# while it starts (MC-08)


@pytest.mark.cold
@pytest.mark.requirement("MC-08")
def test_the_handshake_does_not_wait_for_the_sdk(world: World) -> None:
    """Nothing runs at first: the broker and the SDK are loaded while the client is answered."""
    client = world.mcp()
    began = time.monotonic()
    client.shake_hands()
    called = client.post("tools/call", {"name": "bridge_status", "arguments": {}})
    pinged, listed = client.post("ping"), client.post("tools/list")
    assert client.answer(pinged)["result"] == {}
    assert client.answer(listed)["result"]["tools"]
    assert time.monotonic() - began < 1
    assert client.answer(called)["result"]["structuredContent"]["ok"]
    assert [message["id"] for message in client.messages] == [1, pinged, listed, called]


@pytest.mark.cold
@pytest.mark.requirement("MC-07", "MC-08")
def test_calls_by_the_thousand_wait_for_the_sdk(client: McpClient) -> None:
    call = {"name": "no_such_tool", "arguments": {}}
    numbers = [client.post("tools/call", call) for _ in range(1500)]
    client.until(lambda: len(client.messages) == 1501, "1500 answers")
    codes = {message["result"]["structuredContent"]["code"] for message in client.messages if message["id"] in numbers}
    assert codes == {"unknown_tool"}
    assert client.call("bridge_status")["ok"]


@pytest.mark.requirement("MC-06", "MC-24", "MC-30")
@pytest.mark.parametrize("mode", ["auto", "legacy", handshake.MODERN])
def test_the_sdks_client_notices_nothing_when_brokers_change(world: World, mode: str) -> None:
    from mcp import Client, StdioServerParameters
    from mcp.client.stdio import stdio_client

    environment = {"PATH": os.environ["PATH"], **world.settings, "CROSS_AGENT_TEST_MARK": os.environ["CROSS_AGENT_TEST_MARK"]}
    server = StdioServerParameters(command=str(ROOT / "bin" / "cross-agent"), args=["mcp"], env=environment)

    async def story() -> list[int]:
        generations = []
        async with Client(stdio_client(server), mode=mode) as client:
            for _ in range(2):
                status = await client.call_tool("bridge_status", {})
                assert status.structured_content is not None
                generations.append(status.structured_content["server_process"]["generation"])
                world.kill_broker()
            assert (await client.list_tools()).tools
        return generations

    assert asyncio.run(asyncio.wait_for(story(), 60)) == [1, 2]


# replaced (MC-30, MC-31)


@pytest.mark.requirement("MC-30", "MC-31", "DE-20")
@pytest.mark.parametrize("point", ["broker.request.before", "broker.request.after"])
def test_a_call_whose_broker_died_gets_its_one_receipt_from_the_next(world: World, client: McpClient, point: str) -> None:
    target = world.codex()
    target.registered()
    first = world.broker()
    world.arm(point)
    answer = client.request(
        "tools/call", {"name": "send_to_codex", "arguments": {"message": ping("M1"), "session_id": target.session}}
    )
    receipt = answer["result"]["structuredContent"]
    assert gone_within(first.pid, 1)
    world.finished()
    (record,) = world.requests()
    assert receipt == record["receipt"]
    assert target.handed_over("M1") == 1
    assert client.count(lambda m: m.get("id") == 2) == 1


@pytest.mark.requirement("MC-06", "MC-30")
@pytest.mark.parametrize("how", ["killed", "stopped"])
def test_a_subscription_stays_whichever_way_its_broker_ends(world: World, how: str) -> None:
    client = world.mcp()
    number = client.post("subscriptions/listen", {"notifications": {"toolsListChanged": True}, "_meta": META})
    client.wait(lambda m: m.get("method") == "notifications/subscriptions/acknowledged", "acknowledgement")
    if how == "killed":
        world.kill_broker()
    else:
        assert command(world, "broker", "stop").returncode == 0
    called = client.request("tools/call", {"name": "bridge_status", "arguments": {}, "_meta": META})
    assert called["result"]["structuredContent"]["server_process"]["generation"] == 2
    assert client.count(lambda m: m.get("method") == "notifications/subscriptions/acknowledged") == 1
    assert client.count(lambda m: m.get("id") == number) == 0


@pytest.mark.requirement("MC-06", "MC-30")
def test_a_cancelled_call_is_not_said_again(world: World, client: McpClient) -> None:
    target = world.codex()
    target.registered()
    with locked(world):
        number = post_send(client, target.session, "M1")
        client.send(cancelled(number))
        world.kill_broker()
    assert client.call("bridge_status")["ok"]
    assert world.requests() == []
    assert client.count(lambda m: m.get("id") == number) == 0


# repeated (MC-09)


@pytest.mark.requirement("MC-09")
@pytest.mark.parametrize("text", ["M1", "M2"], ids=["the same", "another text"])
def test_a_call_that_is_cancelled_in_the_middle_and_repeated(world: World, client: McpClient, text: str) -> None:
    target = world.codex()
    target.registered()
    with locked(world):
        number = post_send(client, target.session, "M1")
        assert client.call("bridge_status")["ok"]  # whoever is answered after it: the send is under way
        client.send(cancelled(number))
        assert client.call("bridge_status")["ok"]
    again = client.call("send_to_codex", message=text, session_id=target.session)
    assert again["ok"]
    world.finished(1 if text == "M1" else 2)
    summaries = [request["summary"] for request in world.requests()]
    assert summaries == (["M1"] if text == "M1" else ["M1", "M2"])
    assert again["delivery_id"] == world.requests()[-1]["id"]
    assert ("nothing was sent again" in again["note"]) == (text == "M1")
    assert client.count(lambda m: m.get("id") == number) == 0


@pytest.mark.requirement("MC-09")
def test_a_call_that_was_answered_while_it_was_cancelled_is_not_sent_twice(world: World, client: McpClient) -> None:
    """The receipt and the cancellation passed each other: the client has used neither, and repeats."""
    target = world.codex()
    target.registered()
    number = post_send(client, target.session, "M1")
    receipt = client.answer(number)["result"]["structuredContent"]
    client.send(cancelled(number))
    assert client.call("bridge_status")["ok"]

    again = client.call("send_to_codex", message="M1", session_id=target.session)
    third = client.call("send_to_codex", message="M1", session_id=target.session)

    assert again["delivery_id"] == receipt["delivery_id"]
    assert "nothing was sent again" in again["note"]
    assert third["delivery_id"] != receipt["delivery_id"], "said once more, it is meant"
    world.finished(2)


@pytest.mark.requirement("MC-09")
@pytest.mark.parametrize("when", ["before it died", "after it died", "after it died with the receipt"])
def test_a_call_whose_broker_died_is_cancelled_and_repeated_without_sending_twice(
    world: World, client: McpClient, when: str
) -> None:
    """It was recorded, and the repetition meets the next broker."""
    target = world.codex()
    target.registered()
    number = {
        "before it died": cancelled_before_its_broker_died,
        "after it died": cancelled_into_the_void,
        "after it died with the receipt": cancelled_unanswered,
    }[when](world, client, target.session)

    again = client.call("send_to_codex", message="M1", session_id=target.session)

    assert "nothing was sent again" in again["note"]
    assert [request["id"] for request in world.requests()] == [again["delivery_id"]]
    assert client.count(lambda m: m.get("id") == number) == ("receipt" not in when)
    world.kill_broker()
    third = client.call("send_to_codex", message="M1", session_id=target.session)
    assert third["delivery_id"] != again["delivery_id"], "said once more, it is meant"
    world.finished(2)
    assert target.handed_over("M1") == 2


def cancelled_before_its_broker_died(world: World, client: McpClient, session: str) -> int:
    number = post_send(client, session, "M1")
    assert client.answer(number)["result"]["structuredContent"]["ok"]
    client.send(cancelled(number))
    assert client.call("bridge_status")["ok"]
    world.kill_broker()
    return number


def cancelled_into_the_void(world: World, client: McpClient, session: str) -> int:
    number = post_send(client, session, "M1")
    assert client.answer(number)["result"]["structuredContent"]["ok"]
    with standing_still(client):
        world.kill_broker()
        client.send(cancelled(number))
    return number


def cancelled_unanswered(world: World, client: McpClient, session: str) -> int:
    """The client's process sleeps while its broker records the call and dies of it."""
    with ExitStack() as still:
        with locked(world):
            number = post_send(client, session, "M1")
            assert client.call("bridge_status")["ok"]
            broker = world.broker()
            still.enter_context(standing_still(client))
            world.arm("broker.request.after")
        assert gone_within(broker.pid, 5)
        client.send(cancelled(number))
    return number


@pytest.mark.requirement("MC-09", "MC-31")
def test_a_repetition_whose_broker_died_before_it_was_answered_sends_nothing_either(world: World, client: McpClient) -> None:
    """Nor does the repetition of that one, once it is cancelled in its turn."""
    target = world.codex()
    held = gate(world, "g")
    target.registered()
    target.say(f"[[slowreply {held} own answer]]")
    number = post_send(client, target.session, "M1")
    receipt = client.answer(number)["result"]["structuredContent"]
    client.send(cancelled(number))
    assert client.call("bridge_status")["ok"]
    first = world.broker()
    world.arm("broker.commit.after")

    number = post_send(client, target.session, "M1")
    again = client.answer(number)["result"]["structuredContent"]

    assert not world.is_armed("broker.commit.after")
    assert gone_within(first.pid, 5)
    assert again["delivery_id"] == receipt["delivery_id"]
    assert "nothing was sent again" in again["note"]
    client.send(cancelled(number))
    third = client.call("send_to_codex", message="M1", session_id=target.session)
    assert third["delivery_id"] == receipt["delivery_id"]
    assert [request["id"] for request in world.requests()] == [receipt["delivery_id"]]
    open_gate(held)
    world.finished(1)


# not to be had (MC-05, MC-08, MC-32)


@pytest.mark.cold
@pytest.mark.requirement("MC-05", "MC-32", "SH-07")
def test_a_broker_that_keeps_dying_is_started_by_hand_and_panels_go_on_meanwhile(world: World, client: McpClient) -> None:
    panel = world.claude()
    panel.registered()
    for _ in range(4):
        assert client.call("bridge_status")["ok"]
        world.kill_broker()
    for _ in range(2):
        refused = client.call("bridge_status", timeout=5)
        assert (refused["code"], refused["ok"], refused["retry_safe"]) == ("broker_keeps_dying", False, True)
        assert f"{world.home.logs}/broker.log" in refused["next_step"]
        assert "cross-agent broker start" in refused["next_step"]
    assert read_record(world.home) is None
    panel.say("[[say still here]]")
    panel.wait_ends(1)
    shown = command(world, "broker", "status")
    assert (shown.returncode, shown.stdout) == (1, "")
    assert "no broker is running [no_broker]" in shown.stderr
    started = command(world, "broker", "start")
    assert (started.returncode, started.stderr) == (0, "")
    assert started.stdout.startswith("broker started: pid ")
    assert client.call("bridge_status")["ok"]
    panel.registered()
    world.kill_broker()
    assert client.call("bridge_status")["ok"]  # the count has begun anew


@pytest.mark.cold
@pytest.mark.requirement("MC-05", "MC-32")
def test_who_finds_another_at_a_start_that_comes_to_nothing_is_told_as_soon(world: World) -> None:
    Path(world.home.starts).write_text(json.dumps([time.time()] * 9))
    client = world.mcp()
    client.shake_hands()
    assert client.call("bridge_status")["code"] == "broker_keeps_dying"
    with open(world.home.start_lock, "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        number = client.post("tools/call", {"name": "bridge_status", "arguments": {}})
        with pytest.raises(Silence):
            client.answer(number, timeout=0.5)
    assert client.answer(number, timeout=3)["result"]["structuredContent"]["code"] == "broker_keeps_dying"


@pytest.mark.cold
@pytest.mark.requirement("MC-05", "MC-08", "MC-32")
def test_a_broker_that_never_comes_up_is_told_at_once(world: World, client: McpClient) -> None:
    Path(world.home.database).write_bytes(b"no database " * 1000)
    codes = []
    for _ in range(6):
        told = client.call("bridge_status", timeout=10)
        codes.append(told["code"])
        assert "broker.log" in told["next_step"]
        assert "database" not in told["error"]
    assert codes[0] == "broker_unreachable"
    assert codes[-1] == "broker_keeps_dying"


@pytest.mark.requirement("MC-05", "MC-31")
def test_a_send_that_a_dead_broker_had_is_not_called_safe_to_repeat(world: World) -> None:
    """It died with the call in its hands, and no other may be started."""
    target = world.codex()
    target.registered()
    client = world.mcp(CROSS_AGENT_AUTOSTART="off")
    client.shake_hands()
    assert client.call("bridge_status")["ok"]
    Path(world.home.starts).write_text(json.dumps([time.time()] * 9))  # nobody starts one by itself
    with locked(world):
        number = post_send(client, target.session, "M1")
        world.kill_broker()
    told = client.answer(number, 5)["result"]["structuredContent"]
    assert (told["code"], told["retry_safe"]) == ("no_broker", False)
    assert "bridge_status" in told["next_step"]
    after = client.call("send_to_codex", message="M2", session_id=target.session, timeout=5)
    assert (after["code"], after["retry_safe"]) == ("no_broker", True)


@pytest.mark.cold
@pytest.mark.requirement("MC-05")
def test_a_broker_of_another_protocol_is_told_until_it_is_replaced(world: World) -> None:
    client = world.mcp()
    client.shake_hands()
    with closing(ForeignBroker(world, PROTOCOL + 1)) as foreign:
        for _ in range(2):
            told = client.call("bridge_status", timeout=5)
            assert (told["code"], bool(told["next_step"])) == ("protocol_mismatch", True)
        withdraw_record(world.home, foreign.record)
    assert client.call("bridge_status")["ok"]


@pytest.mark.cold
@pytest.mark.requirement("MC-05")
def test_a_broker_that_refuses_is_quoted_until_it_is_replaced(world: World) -> None:
    client = world.mcp()
    client.shake_hands()
    with closing(ForeignBroker(world, PROTOCOL)) as foreign:
        number = client.post("tools/call", {"name": "bridge_status", "arguments": {}})
        peer = foreign.refuse()
        for told in (client.answer(number)["result"]["structuredContent"], client.call("bridge_status", timeout=5)):
            assert (told["code"], told["next_step"], told["retry_safe"]) == ("bad_message", "Update.", True)
        foreign.leave(peer)
        assert command(world, "broker", "start").returncode == 0
        world.until(lambda: world.ask("status")["mcp_sessions"] == 1, "the MCP process met the new broker")
    assert client.call("bridge_status")["ok"]
    assert [message["id"] for message in client.messages] == [1, 2, 3, 4]


# refusals (MC-05)


@pytest.mark.requirement("MC-05", "MC-02")
def test_refusals_that_need_a_session(world: World, client: McpClient) -> None:
    target = world.codex()
    target.registered()
    sends = {"message": "x", "session_id": target.session}
    strict = world.mcp(CROSS_AGENT_REQUIRE_EXPLICIT_TARGET="1")
    strict.shake_hands()
    hookless = world.mcp(CROSS_AGENT_UI_HOOK="off", CROSS_AGENT_LIVE_DOORS="off")
    hookless.shake_hands()
    panelless = world.mcp(CROSS_AGENT_UI_HOOK="off", CROSS_AGENT_LIVE_DOORS="off", CROSS_AGENT_DISABLE_HEADLESS="0")
    panelless.shake_hands()
    for who, tool, arguments, code in (
        (client, "send_to_codex", {**sends, "conversation_id": "conv_0"}, "unknown_conversation"),
        (client, "bridge_status", {"delivery_id": "dlv_0"}, "unknown_delivery"),
        (client, "send_to_nobody", {"message": "x"}, "unknown_tool"),
        (client, "list_agent_sessions", {"agent": "nobody"}, "bad_argument"),
        (client, "list_agent_sessions", {"limit": 0}, "bad_argument"),
        (strict, "send_to_codex", {"message": "x"}, "explicit_target_required"),
        (hookless, "send_to_codex", sends, "no_route"),
        (panelless, "send_to_codex", sends, "session_held"),
    ):
        assert_refused(who.call(tool, **arguments), code)
    assert world.deliveries() == []


@pytest.mark.requirement("MC-05", "DE-51")
def test_refusals_of_ones_own_kind(world: World) -> None:
    for panel in (world.claude(), world.codex()):
        panel.registered()
        refused: tuple[tuple[Json, str], ...] = (({"session_id": panel.session}, "own_session"), ({}, "same_agent"))
        for number, (arguments, code) in enumerate(refused, start=1):
            call = json.dumps({"message": "x", **arguments})
            panel.say(f"[[tool mcp__cross-agent__send_to_{panel.agent} {call} ;; say fin]]")
            assert_refused(panel.wait_receipt(number), code)
    assert world.deliveries() == []


# while the target is busy (case 53)


@pytest.mark.requirement("DE-01", "DE-31", "MC-07")
def test_sends_to_a_busy_session_return_in_milliseconds_and_run_when_it_is_free(world: World, client: McpClient) -> None:
    target = world.codex()
    held = gate(world, "g")
    target.registered()
    target.say(f"[[slowreply {held} own answer]]")
    assert client.call("bridge_status")["ok"]
    took = []
    for number in range(5):
        began = time.monotonic()
        assert client.call("send_to_codex", message=ping(f"M{number}"), session_id=target.session)["ok"]
        took.append(time.monotonic() - began)
    assert sorted(took)[2] < 0.05
    assert {request["state"] for request in world.requests()} <= {"queued", "delivering", "awaiting-peer"}
    open_gate(held)
    world.finished(5)
    assert [target.handed_over(f"M{number}") for number in range(5)] == [1] * 5


# by hand (MC-24)


@pytest.mark.cold
@pytest.mark.requirement("MC-24", "EN-10")
def test_the_broker_by_hand(world: World) -> None:
    stopped = command(world, "broker", "stop")
    assert (stopped.returncode, stopped.stdout) == (0, "no broker is running\n")
    assert command(world, "broker", "start").returncode == 0
    again = command(world, "broker", "start")
    record = world.broker()
    assert again.stdout == f"broker was running: pid {record.pid}, generation 1\n"
    assert command(world, "broker", "status").stdout.startswith(f"broker running: pid {record.pid}, generation 1, version ")
    facts = json.loads(command(world, "broker", "status", "--json").stdout)
    assert (facts["pid"], facts["generation"], facts["panels"], facts["mcp_sessions"]) == (record.pid, 1, 0, 0)
    second = command(world, "broker", "run")
    assert (second.returncode, world.broker()) == (0, record)
    stopped = command(world, "broker", "stop")
    assert (stopped.returncode, stopped.stdout) == (0, f"broker stopped: pid {record.pid}\n")
    assert gone_within(record.pid, 1)
    assert read_record(world.home) is None
    assert command(world, "broker", "no-such").returncode == 2


# tools of these tests


def assert_refused(told: Json, code: str) -> None:
    assert (told["ok"], told["code"], told["retry_safe"]) == (False, code, True)
    assert told["error"]
    assert told["next_step"]
    assert "Traceback" not in json.dumps(told)


def post_send(client: McpClient, session: str, text: str) -> int:
    return client.post("tools/call", {"name": "send_to_codex", "arguments": {"message": text, "session_id": session}})


def cancelled(number: int) -> Json:
    return {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": number}}


@contextmanager
def locked(world: World) -> Iterator[None]:
    """Somebody else writes to the database: what is sent meanwhile is under way and not recorded."""
    with closing(sqlite3.connect(world.home.database, isolation_level=None, timeout=5)) as database:
        database.execute("BEGIN IMMEDIATE")
        yield
        database.execute("ROLLBACK")


@contextmanager
def standing_still(client: McpClient) -> Iterator[None]:
    """The client's MCP process notices nothing meanwhile."""
    client.kill(signal.SIGSTOP)
    yield
    client.kill(signal.SIGCONT)


class ForeignBroker:
    """Takes the broker's place, in this process, and serves nobody."""

    def __init__(self, world: World, protocol: int) -> None:
        self._home = world.home
        me = identify(os.getpid())
        assert me is not None
        endpoint = f"ipc://{world.home.sockets()}/b0.sock"
        self.record = BrokerRecord(endpoint, endpoint, me.pid, me.start, 0, protocol, "other")
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._router = self._context.socket(zmq.ROUTER)
        self._router.bind(self.record.endpoint)
        publish_record(self._home, self.record)

    def refuse(self) -> bytes:
        assert self._router.poll(10_000)
        peer, data = self._router.recv_multipart()
        assert isinstance(decode(data), McpOpen)
        self._router.send_multipart((peer, encode(Failure("", "bad_message", "not understood", "Update.", True))))
        return peer

    def leave(self, peer: bytes) -> None:
        withdraw_record(self._home, self.record)
        self._router.send_multipart((peer, encode(Bye(0, "over"))))

    def close(self) -> None:
        self._context.destroy(500)
