"""The broker's loop stands still for nobody: long messages, lines of hostile clients, records of a gigabyte (EN-25)."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import zmq

from broker import VERSION
from broker.connection import Connection
from broker.guards import MAX_CHARACTERS
from broker.processes import open_death_watch
from broker.wire import McpLine, McpOpen, McpReady, Message
from mcp_server.packing import LONGEST_JSON, LONGEST_TEXT
from tests.integration.exchanges import gate, open_gate, ping
from tests.integration.lines import PATIENCE, Json
from tests.integration.panels import McpClient, Panel
from tests.integration.world import World

pytestmark = [pytest.mark.requirement("EN-25"), pytest.mark.alone]

MIB = 1 << 20


@pytest.fixture
def world(home: Path) -> Iterator[World]:
    built = World(home)
    try:
        yield built
    finally:
        built.close()


@pytest.fixture
def client(world: World) -> McpClient:
    made = world.mcp()
    made.shake_hands()
    assert made.call("bridge_status")["ok"]
    return made


def gaps(world: World) -> list[str]:
    return [line for line in world.log().splitlines() if "stood still" in line]


# long messages


@pytest.mark.requirement("DE-05", "MC-07")
@pytest.mark.parametrize(
    ("kind", "character"),
    [("claude", "\U0001f600"), ("claude", "\x01"), ("codex", "\U0001f600")],
    ids=["claude-emoji", "claude-control", "codex-emoji"],
)
def test_a_message_of_the_greatest_size(world: World, client: McpClient, kind: str, character: str) -> None:
    """Its line has up to twelve million bytes: an agent that escapes what is not ASCII writes an emoji in twelve."""
    target = world.open(kind)
    target.registered()
    end = ping("M1")
    message = character * (MAX_CHARACTERS - len(end)) + end

    receipt = client.call(f"send_to_{target.agent}", message=message, session_id=target.session)

    assert receipt["ok"], receipt
    (request,) = world.finished()
    assert (request["state"], request["reply_preview"]) == ("delivered", "pong M1")
    assert gaps(world) == []


@pytest.mark.requirement("DE-05", "MC-05")
def test_a_message_over_the_greatest_size_is_refused(world: World, client: McpClient) -> None:
    """By the broker, which knows the limit; by the thin process what is so long that it need not be sent there."""
    for length, said in ((MAX_CHARACTERS + 1, "1,000,001 characters"), (3 * MAX_CHARACTERS, "8 MiB")):
        refused = client.call("send_to_codex", message="\U0001f600" * length, session_id="s")
        assert (refused["code"], refused["ok"], refused["retry_safe"]) == ("message_too_long", False, True)
        assert said in refused["error"]
        assert refused["next_step"]
    assert client.call("bridge_status")["ok"]
    assert gaps(world) == []


@pytest.mark.parametrize(("kind", "character"), [("claude", "x"), ("codex", "\U0001f600")], ids=["claude", "codex"])
def test_an_answer_of_the_greatest_size(world: World, client: McpClient, kind: str, character: str) -> None:
    """It comes from the shim, goes into the sender's frame, and is read from the records for whoever asks."""
    target = world.open(kind)
    target.registered()
    message = f"[[reply {character * 950_000}]]"
    receipt = client.call(f"send_to_{kind}", message=message, session_id=target.session)
    (request,) = world.finished()
    assert request["state"] == "delivered"
    shown = client.call("bridge_status", delivery_id=receipt["delivery_id"])
    assert shown["peer_transcript"]["answer"].startswith(character * 950_000)
    assert gaps(world) == []


# hostile lines


def test_lines_of_a_foreign_client_are_read_up_to_a_bound(world: World, client: McpClient) -> None:
    """The thin process bounds what it passes on; the broker does not rely on it."""
    foreign = Foreign(world)
    try:
        foreign.receive(lambda message: isinstance(message, McpReady))
        for line in (
            b'"' + b"x" * LONGEST_JSON,
            b'{"jsonrpc":"2.0","id":1,"method":"x","params":{"a":[' + b"{}," * (3 * MIB) + b"{}]}}",
            b"[" * (16 * MIB),
            b"{}\n" + b"\xf0\x9f\x98\x80" * (4 * MIB),
        ):
            foreign.say(line)
            answer = foreign.receive(lambda message: isinstance(message, McpLine))
            assert isinstance(answer, McpLine)
            told = json.loads(answer.line)
            assert (told["id"], told["error"]["code"]) == (None, -32600)
        for line in (worst(b"{},"), worst(b"[],"), worst(b'"\\u1234",'), worst(b"[" * 100 + b"]" * 100 + b",")):
            foreign.say(line)
        foreign.say(b"{}\n" + b"x" * LONGEST_TEXT)
        foreign.say(b'{"jsonrpc":"2.0","id":7,"method":"ping"}')
        foreign.receive(lambda message: isinstance(message, McpLine) and json.loads(message.line)["id"] == 7)
    finally:
        foreign.close()
    assert client.call("bridge_status")["ok"]
    assert gaps(world) == []


def worst(item: bytes) -> bytes:
    """A call that is still read, of as many values as it can hold."""
    head = b'{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"x","arguments":{"a":['
    return head + item * ((LONGEST_JSON - 200) // len(item)) + b"0]}}}"


class Foreign:
    """An MCP process of somebody else's making: this one."""

    def __init__(self, world: World) -> None:
        record = world.broker()
        death = open_death_watch(record.process)
        assert death is not None
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._connection = Connection(self._context, record, death)
        self._connection.send(McpOpen("mcp_foreign", VERSION, "/", "cross-agent", {}, {}))
        self._kept: list[Message] = []

    def say(self, line: bytes) -> None:
        self._connection.send(McpLine(line))

    def receive(self, fits: Callable[[Message], bool]) -> Message:
        """The next message that fits; earlier ones are passed over."""
        poller = zmq.Poller()
        while True:
            while self._kept:
                message = self._kept.pop(0)
                if fits(message):
                    return message
            poller.register(self._connection.socket, self._connection.wanted)
            assert poller.poll(int(PATIENCE * 1000)), "no answer"
            self._connection.flush()
            self._kept += self._connection.receive()

    def close(self) -> None:
        self._connection.close()
        self._context.destroy(0)


# long records


@pytest.mark.parametrize("kind", ["claude", "codex"])
def test_records_of_50_mib_are_read_while_a_message_is_carried(world: World, client: McpClient, kind: str) -> None:
    carried_beside_long_records(world, client, kind, total=50 * MIB, single=10 * MIB)


@pytest.mark.full
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", ["claude", "codex"])
def test_records_of_a_gigabyte_are_read_while_a_message_is_carried(spacious: World, kind: str) -> None:
    client = spacious.mcp()
    client.shake_hands()
    carried_beside_long_records(spacious, client, kind, total=1000 * MIB, single=100 * MIB)


@pytest.fixture
def spacious(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """A world whose files are on a disk, and gone afterwards."""
    root = Path(tempfile.mkdtemp(prefix="xa-", dir=disk()))
    monkeypatch.setenv("CROSS_AGENT_HOME", str(root))
    built = World(root)
    try:
        yield built
    finally:
        built.close()
        shutil.rmtree(root)


def disk() -> Path:
    """A directory for temporary files that is not memory."""
    mounts = Path("/proc/mounts")
    lines = [line.split() for line in mounts.read_text().splitlines()] if mounts.exists() else []
    kinds = {fields[1]: fields[2] for fields in lines}
    for place in map(Path, ("/tmp", "/var/tmp")):  # short: sockets have their paths below
        if place.is_dir() and next((kinds[str(at)] for at in (place, *place.parents) if str(at) in kinds), "") not in _MEMORY:
            return place
    pytest.skip("no directory for temporary files is on a disk")


_MEMORY = ("tmpfs", "ramfs")


def carried_beside_long_records(world: World, client: McpClient, kind: str, *, total: int, single: int) -> None:
    """A quarter of the records comes in the message's turn, the others stand before; everybody who may read them does.

    They are read when a panel meets a new broker (names), when somebody asks for the delivery, and when its agent has died.
    """
    target = world.open(kind)
    target.registered()
    target.say("[[say hello]]")
    target.wait_ends(1)
    (path,) = target.store.rglob(f"*{target.session}.jsonl")
    held, second = gate(world, "g1"), gate(world, "g2")
    grow(path, target, total * 3 // 4, single)
    world.kill_broker()
    target.registered()

    receipt = client.call(f"send_to_{kind}", message=f"M1 [[slowreply {held} pong]]", session_id=target.session)
    world.until(lambda: world.requests()[0]["state"] == "awaiting-peer", "M1 at work")
    grow(path, target, total // 4, single)
    ask = {"name": "bridge_status", "arguments": {"delivery_id": receipt["delivery_id"]}}
    working = client.post("tools/call", ask)
    assert client.answer(working, timeout=60)["result"]["structuredContent"]["peer_transcript"]["is_working"]
    open_gate(held)
    world.finished(1)
    answered = client.post("tools/call", ask)
    assert client.answer(answered, timeout=60)["result"]["structuredContent"]["peer_transcript"]["answer"].startswith("pong")

    assert client.call(f"send_to_{kind}", message=f"M2 [[slowreply {second} pong]]", session_id=target.session)["ok"]
    world.until(lambda: world.requests()[1]["state"] == "awaiting-peer", "M2 at work")
    target.kill()
    world.finished(2, timeout=120)
    assert path.stat().st_size > total
    assert gaps(world) == []


def grow(path: Path, panel: Panel, size: int, single: int) -> None:
    """Appends what tools have said: records of a few KiB, and one after each tenth that is ``single`` bytes long."""
    small = b"".join(spoken(panel, f"line {number}\n" * 300) for number in range(256))
    large = spoken(panel, "x" * single)
    with path.open("ab", buffering=0) as file:
        written = 0
        while written < size:
            for block in [small] * max(1, (size // 3) // len(small)) + [large]:
                written += file.write(block)


def spoken(panel: Panel, text: str) -> bytes:
    """What a tool has said, as the agent records it."""
    if panel.agent == "claude":
        block = {"type": "tool_result", "tool_use_id": "t", "content": text}
        record: Json = {"type": "user", "isSidechain": False, "uuid": "u", "message": {"role": "user", "content": [block]}}
    else:
        record = {"type": "response_item", "payload": {"type": "function_call_output", "call_id": "c", "output": text}}
    return json.dumps({"timestamp": "2026-01-01T00:00:00.000Z", **record}).encode() + b"\n"
