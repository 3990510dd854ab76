"""The thin MCP process in front of a real broker: any client, any moment, and brokers that come and go behind it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from mcp_server import handshake
from tests.integration.exchanges import gate, ping
from tests.integration.panels import McpClient
from tests.integration.world import MCP, World

META = {
    "io.modelcontextprotocol/protocolVersion": handshake.MODERN,
    "io.modelcontextprotocol/clientInfo": {"name": "t", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}


# the handshake (MC-06, MC-08)


@pytest.mark.requirement("MC-08")
def test_the_answers_made_beforehand_are_the_sdks() -> None:
    assert handshake.read() == handshake.make()


@pytest.mark.cold
@pytest.mark.requirement("MC-06", "MC-08")
@pytest.mark.parametrize("version", handshake.HANDSHAKE_VERSIONS)
def test_every_version_is_answered_while_no_broker_lives(world: World, version: str) -> None:
    client = world.mcp(CROSS_AGENT_AUTOSTART="off")
    expected = handshake.read()
    began = time.monotonic()
    assert client.shake_hands(version)["result"] == expected["initialize"][version]
    assert time.monotonic() - began < 1
    assert client.request("ping")["result"] == {}
    assert client.request("tools/list")["result"] == expected["tools"][version]


@pytest.mark.cold
@pytest.mark.requirement("MC-06")
def test_an_unknown_version_gets_the_newest(world: World) -> None:
    client = world.mcp(CROSS_AGENT_AUTOSTART="off")
    assert client.shake_hands("1999-01-01")["result"]["protocolVersion"] == max(handshake.HANDSHAKE_VERSIONS)


@pytest.mark.requirement("MC-06")
def test_discovery(world: World) -> None:
    client = world.mcp()
    assert client.request("server/discover", {"_meta": META})["result"] == handshake.read()["discover"]
    assert client.request("tools/list", {"_meta": META})["result"] == handshake.read()["tools"][handshake.MODERN]
    called = client.request("tools/call", {"name": "bridge_status", "arguments": {}, "_meta": META})
    assert called["result"]["structuredContent"]["ok"]
    assert called["result"]["resultType"] == "complete"


@pytest.mark.requirement("MC-01", "MC-02", "MC-06")
@pytest.mark.parametrize("mode", ["auto", "legacy", handshake.MODERN])
def test_the_sdks_own_client(world: World, mode: str) -> None:
    from mcp import Client, StdioServerParameters
    from mcp.client.stdio import stdio_client

    environment = {"PATH": os.environ["PATH"], **world.settings, "CROSS_AGENT_TEST_MARK": os.environ["CROSS_AGENT_TEST_MARK"]}

    async def story() -> None:
        server = StdioServerParameters(command=MCP[0], args=MCP[1:], env=environment)
        async with Client(stdio_client(server), mode=mode) as client:
            tools = {tool.name for tool in (await client.list_tools()).tools}
            assert tools >= {"send_to_claude", "send_to_codex", "list_agent_sessions", "bridge_status"}
            listed = await client.call_tool("list_agent_sessions", {"scope": "any"})
            assert not listed.is_error
            assert listed.structured_content is not None
            assert listed.structured_content["sessions"] == []
            refused = await client.call_tool("send_to_codex", {"message": "x", "session_id": "nobody"})
            assert refused.is_error
            assert refused.structured_content is not None
            assert refused.structured_content["code"] == "unknown_session"

    asyncio.run(asyncio.wait_for(story(), 30))


# what is no request (MC-07, cases 49 and 51)


@pytest.mark.requirement("MC-06", "MC-07")
def test_nothing_that_a_client_says_ends_the_process(world: World) -> None:
    client = world.mcp()
    for line in (
        b"",
        b"   ",
        b"garbage",
        b"\xff\xfe\x00",
        b"[]",
        b"null",
        b"7",
        b'{"jsonrpc":"2.0","method":"notifications/whatever"}',
        b'{"jsonrpc":"2.0","method":"notifications/initialized"}',
        b'{"jsonrpc":"2.0","id":null,"method":"ping"}',
        b'{"jsonrpc":"2.0","id":1.5,"method":"ping"}',
        b'[{"jsonrpc":"2.0","id":90,"method":"ping"},{"jsonrpc":"2.0","id":91,"method":"ping"}]',
        b'{"jsonrpc":"2.0","id":92,"result":{}}',
        b'{"id":[],"method":{}}',
        b"[" * 100_000,
    ):
        client.write(line + b"\n")
    client.shake_hands()
    assert client.call("bridge_status")["ok"]
    assert client.garbage == []
    assert all(message.get("jsonrpc") == "2.0" for message in client.messages)
    assert {message.get("id") for message in client.messages} == {1, 2}


@pytest.mark.requirement("MC-07")
def test_a_request_that_nobody_can_read_is_refused_at_once(world: World) -> None:
    """The first by the thin process, the second by the broker: its SDK does not read what is nested that deeply."""
    client = world.mcp()
    client.shake_hands()
    assert client.call("bridge_status")["ok"]
    client.write(b'{"jsonrpc":"2.0","id":60,"method":"tools/call","params":["bridge_status"]}\n')
    deep = b"[" * 500 + b"]" * 500
    client.write(b'{"jsonrpc":"2.0","id":61,"method":"tools/call","params":{"name":"bridge_status","arguments":' + deep + b"}}\n")
    for number in (60, 61):
        assert client.answer(number, 5)["error"]["code"] == -32600
    assert client.call("bridge_status")["ok"]


@pytest.mark.requirement("MC-07")
def test_a_line_may_be_long_and_come_in_pieces(world: World) -> None:
    client = world.mcp()
    client.shake_hands()
    arguments = {"message": "é" * 900_000, "session_id": "nobody"}
    line = json.dumps(
        {"jsonrpc": "2.0", "id": 50, "method": "tools/call", "params": {"name": "send_to_codex", "arguments": arguments}}
    )
    data = line.encode() + b"\n"
    for start in range(0, len(data), 1 << 20):
        client.write(data[start : start + (1 << 20)])
    assert client.answer(50)["result"]["structuredContent"]["code"] == "unknown_session"


@pytest.mark.requirement("MC-07")
def test_calls_run_side_by_side(world: World) -> None:
    client = world.mcp()
    client.shake_hands()
    numbers = [client.post("tools/call", {"name": "bridge_status", "arguments": {}}) for _ in range(50)]
    for number in numbers:
        assert client.answer(number)["result"]["structuredContent"]["ok"]


# the end (MC-06, case 50)


@pytest.mark.requirement("MC-06")
@pytest.mark.parametrize("how", ["EOF", "HUP", "TERM"])
@pytest.mark.parametrize("shaken", [pytest.param(False, marks=pytest.mark.cold), True], ids=["at once", "in service"])
def test_gone_within_a_second(world: World, how: str, shaken: bool) -> None:
    client = world.mcp()
    client.shake_hands()
    if shaken:
        assert client.call("bridge_status")["ok"]
    began = time.monotonic()
    if how == "EOF":
        client.end_input()
    else:
        client.kill(getattr(signal, f"SIG{how}"))
    client.wait_end(5)
    assert time.monotonic() - began < 1


# no broker (MC-08, MC-31, MC-32)


@pytest.mark.cold
@pytest.mark.requirement("MC-08", "EN-02")
def test_a_bad_home_is_told_in_every_call(world: World) -> None:
    client = world.mcp(CROSS_AGENT_HOME="/")
    began = time.monotonic()
    client.shake_hands()
    assert time.monotonic() - began < 1
    for _ in range(2):
        assert client.call("bridge_status", timeout=5)["code"] == "bad_home"


@pytest.mark.cold
@pytest.mark.requirement("MC-08")
def test_missing_packages_are_told_in_every_call(world: World, tmp_path: Path) -> None:
    """An environment without zmq: the interpreter alone, called by a link that has no packages beside it."""
    bare = tmp_path / "bin" / "python3"
    bare.parent.mkdir()
    bare.symlink_to(os.path.realpath(sys.executable))
    (tmp_path / "pyvenv.cfg").write_text(f"home = {os.path.dirname(os.path.realpath(sys.executable))}\n")
    client = McpClient([str(bare), *MCP[1:]], {"PATH": os.environ["PATH"], **world.settings})
    try:
        began = time.monotonic()
        client.shake_hands()
        assert time.monotonic() - began < 1
        for _ in range(2):
            assert client.call("bridge_status", timeout=5)["code"] == "environment_broken"
    finally:
        client.close()


@pytest.mark.requirement("MC-31", "EN-10")
def test_a_broker_killed_between_calls_is_not_noticed(world: World) -> None:
    client = world.mcp()
    client.shake_hands()
    for _ in range(3):
        assert client.call("bridge_status")["ok"]
        world.kill_broker()
    assert client.call("bridge_status")["ok"]
    assert {message["id"] for message in client.messages} == {1, 2, 3, 4, 5}


@pytest.mark.requirement("MC-31", "MC-06")
def test_a_subscription_stays_through_a_change_of_brokers(world: World) -> None:
    client = world.mcp()
    number = client.post("subscriptions/listen", {"notifications": {"toolsListChanged": True}, "_meta": META})
    client.wait(lambda m: m.get("method") == "notifications/subscriptions/acknowledged", "acknowledgement")
    first = world.kill_broker()
    status = {"name": "bridge_status", "arguments": {}, "_meta": META}
    shown = client.request("tools/call", status)["result"]["structuredContent"]["server_process"]
    assert shown["generation"] == first.generation + 1
    acknowledged = client.count(lambda m: m.get("method") == "notifications/subscriptions/acknowledged")
    assert (acknowledged, client.count(lambda m: m.get("id") == number)) == (1, 0)


@pytest.mark.cold
@pytest.mark.requirement("MC-32")
def test_a_broker_that_keeps_dying_is_given_up(world: World) -> None:
    client = world.mcp()
    client.shake_hands()
    for _ in range(4):
        assert client.call("bridge_status")["ok"]
        world.kill_broker()
    refused = client.call("bridge_status", timeout=5)
    assert refused["code"] == "broker_keeps_dying"
    assert "broker.log" in refused["next_step"]
    assert "cross-agent broker start" in refused["next_step"]


# sends (MC-09, MC-05, case 53)


@pytest.mark.requirement("MC-09")
def test_a_cancelled_call_that_is_repeated_sends_once(world: World) -> None:
    target = world.codex()
    target.registered()
    client = world.mcp()
    client.shake_hands()
    assert client.call("bridge_status")["ok"]
    broker = world.broker()
    call = {"name": "send_to_codex", "arguments": {"message": ping("M1"), "session_id": target.session}}
    os.kill(broker.pid, signal.SIGSTOP)
    number = client.post("tools/call", call)
    client.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": number}})
    os.kill(broker.pid, signal.SIGCONT)
    again = client.request("tools/call", call)["result"]["structuredContent"]
    world.finished()
    assert again["ok"]
    assert [request["id"] for request in world.requests()] == [again["delivery_id"]]
    assert target.handed_over("M1") == 1
    if "nothing was sent again" in again["note"]:
        assert client.count(lambda m: m.get("id") == number) == 0


@pytest.mark.requirement("DE-01", "DE-03")
def test_a_send_to_a_session_that_is_busy_for_long_returns_at_once(world: World) -> None:
    target = world.codex()
    target.say(f"[[slow {gate(world, 'g')} busy]]")
    target.registered()
    client = world.mcp()
    client.shake_hands()
    assert client.call("bridge_status")["ok"]
    began = time.monotonic()
    receipt = client.call("send_to_codex", message="M1", session_id=target.session)
    assert time.monotonic() - began < 0.25
    assert receipt["peer_queue"]["runs_turn"]
    assert {"peer_busy", "unknown_caller"} <= {warning["code"] for warning in receipt["warnings"]}


@pytest.mark.requirement("MC-05", "DE-05")
@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({"message": " "}, "empty_message"),
        ({"message": "x" * 1_000_001}, "message_too_long"),
        ({"message": "x"}, "no_session"),
        ({"message": "x", "session_id": "nobody"}, "unknown_session"),
        ({"message": "x", "session_id": "nobody", "new_session": True}, "contradictory_target"),
        ({"message": "x", "conversation_id": "conv_0", "session_id": "nobody"}, "unknown_session"),
        ({"message": 7}, "bad_argument"),
        ({}, "bad_argument"),
        ({"message": "x", "colour": "red"}, "bad_argument"),
        ({"message": "x", "timeout": 0}, "bad_argument"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_wrong_use_is_answered_with_a_code_and_a_next_step(world: World, arguments: dict[str, Any], code: str) -> None:
    client = world.mcp()
    client.shake_hands()
    parameters = {"name": "send_to_codex", "arguments": arguments}
    answer = client.request("tools/call", parameters)["result"]["structuredContent"]
    assert (answer["ok"], answer["code"]) == (False, code)
    assert answer["error"]
    assert answer["next_step"]
    assert answer["retry_safe"] is True
    assert world.deliveries() == []
