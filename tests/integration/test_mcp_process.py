"""What the thin process is to the system around it: small, silent, quick to end, and hard to stop by accident."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mcp_server.packing import LONGEST_TEXT
from tests.integration.environments import ROOMS, link_packages, make_venv
from tests.integration.lines import Lines
from tests.integration.panels import McpClient
from tests.integration.processes import gone_within, reaches_state, resident_kib
from tests.integration.world import MCP, ROOT, World

PING = b'{"jsonrpc":"2.0","id":%d,"method":"ping"}\n'
STATUS: dict[str, Any] = {"name": "bridge_status", "arguments": {}}


@pytest.fixture
def world(home: Path) -> Iterator[World]:
    built = World(home)
    try:
        yield built
    finally:
        built.close()


def bells(world: World, pid: int) -> list[Path]:
    return list(Path(world.home.wake).glob(f"{pid}@*"))


def maps(pid: int) -> str:
    return Path(f"/proc/{pid}/maps").read_text()


# size (MC-01)


@pytest.mark.requirement("MC-01")
def test_the_sdk_is_in_the_broker_and_not_in_the_process_of_each_session(world: World) -> None:
    client = world.mcp()
    client.shake_hands()
    assert client.call("bridge_status")["ok"]
    assert "pydantic_core" in maps(world.broker().pid)
    assert "_zmq" in maps(client.pid)
    assert "pydantic" not in maps(client.pid)
    bare = Lines([sys.executable, "-I", "-S", "-c", "import os; os.write(1, b'{}\\n'); os.read(0, 1)"], dict(os.environ))
    try:
        bare.wait(lambda _: True, "its first line")
        assert resident_kib(client.pid) - resident_kib(bare.pid) < 12 * 1024
    finally:
        bare.close()


# the wire stays clean (MC-07, case 51)


@pytest.mark.requirement("MC-07")
def test_a_stray_print_goes_to_stderr(world: World, tmp_path: Path) -> None:
    """A library that prints when it is loaded, by `print` and by the descriptor."""
    root = copy_of_the_tree(tmp_path)
    loud = root / "broker" / "client.py"
    loud.write_text(loud.read_text() + '\n\nprint("stray one", flush=True)\nos.write(1, b"stray two\\n")\n')
    client = McpClient([*MCP[:-1], str(root / "mcp_server" / "__main__.py")], {**world.settings, **marked()})
    try:
        client.shake_hands()
        assert client.call("bridge_status")["ok"]
        assert client.garbage == []
        client.end_input()
        client.wait_end()
    finally:
        client.close()
    assert {b"stray one", b"stray two"} <= set(bytes(client.errors).splitlines())


@pytest.mark.requirement("MC-07")
def test_a_stdout_that_does_not_block_loses_nothing(world: World) -> None:
    read, write = os.pipe()
    os.set_blocking(write, False)
    with subprocess.Popen(MCP, env=quiet(world), stdin=subprocess.PIPE, stdout=write, stderr=subprocess.PIPE) as process:
        os.close(write)
        assert process.stdin is not None
        count = 4000  # more than a pipe holds
        process.stdin.write(b"".join(PING % number for number in range(count)))
        process.stdin.flush()
        assert reaches_state(process.pid, "S", 10)
        with open(read, "rb") as answers:
            assert [json.loads(answers.readline())["id"] for _ in range(count)] == list(range(count))
        process.stdin.close()
        assert process.wait(5) == 0


@pytest.mark.requirement("MC-07")
def test_lines_of_16_mib(world: World) -> None:
    """A call over the bound is refused; anything else of that length does no harm."""
    client = world.mcp()
    client.shake_hands()
    assert client.call("bridge_status")["ok"]
    broker = world.broker()
    client.write(b"x" * (16 << 20) + b"\n")
    client.write(b'{"jsonrpc":"2.0","method":"notifications/' + b"y" * (16 << 20) + b'"}\n')
    refused = client.call("send_to_codex", message="z" * (16 << 20), session_id="nobody")
    assert (refused["code"], refused["retry_safe"]) == ("message_too_long", True)
    refused = client.call("send_to_codex", message="z" * LONGEST_TEXT, session_id="nobody")
    assert refused["code"] == "message_too_long"
    assert client.call("bridge_status")["ok"]
    assert client.garbage == []
    assert world.broker() == broker


@pytest.mark.requirement("MC-05", "MC-07")
def test_requests_of_odd_shape_are_answered_where_due_and_break_no_session(world: World) -> None:
    client = world.mcp()
    client.shake_hands()
    for line in (
        rb'{"jsonrpc":"2.0","id":"\ud800","method":"ping"}',
        rb'{"jsonrpc":"2.0","id":60,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":{}}}}',
        b'{"jsonrpc":"2.0","id":61,"method":"tools/call"}',
        b'{"jsonrpc":"2.0","id":62,"method":"tools/call","params":{"name":7}}',
        b'{"jsonrpc":"2.0","id":63,"method":"tools/call","params":{"name":"no_such_tool"}}',
        b'{"jsonrpc":"2.0","id":64,"method":"no/such/method"}',
        b'{"jsonrpc":"2.0","id":65,"method":"resources/read","params":{"uri":[]}}',
        b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":{"a":1}}}',
        b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":999}}',
        b'{"jsonrpc":"2.0","id":999,"error":{"code":1,"message":"x"}}',
    ):
        client.write(line + b"\n")
    for number in (61, 62, 64, 65):
        assert "error" in client.answer(number, timeout=10), number
    assert client.answer(63)["result"]["structuredContent"]["code"] == "unknown_tool"
    assert client.call("bridge_status")["ok"]
    text = json.dumps(client.messages)
    assert "Traceback" not in text
    assert "pydantic" not in text


# the end (MC-06, case 50)


@pytest.mark.requirement("MC-06")
@pytest.mark.parametrize("how", ["EOF", "HUP", "TERM", "INT"])
def test_nothing_is_left_in_the_run_directory(world: World, how: str) -> None:
    client = world.mcp()
    client.shake_hands()
    assert client.call("bridge_status")["ok"]
    assert len(bells(world, client.pid)) == 1
    end_by(client, how)
    assert bells(world, client.pid) == []
    assert client.process.returncode == 0


@pytest.mark.requirement("MC-06")
@pytest.mark.parametrize("how", ["EOF", "HUP", "TERM"])
def test_a_process_that_ends_while_it_starts_leaves_nothing(world: World, how: str) -> None:
    for _ in range(5):
        client = world.mcp(CROSS_AGENT_AUTOSTART="off")
        client.write(PING % 1)
        client.wait(lambda m: m.get("id") == 1)
        end_by(client, how)
        assert bells(world, client.pid) == []


ANOTHER_THREAD = """
import _thread, signal, sys
told = _thread.allocate_lock()
told.acquire()
def take_all():
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ending)
    told.release()
    signal.sigwait([signal.SIGUSR1])
ending = [signal.SIGHUP, signal.SIGTERM]
signal.pthread_sigmask(signal.SIG_BLOCK, ending + [signal.SIGUSR1])
_thread.start_new_thread(take_all, ())
told.acquire()
sys.path.insert(0, sys.argv[1])
from mcp_server.process import main
main([])
"""
"""The MCP process, with a thread that the kernel gives every signal to; the handlers are the main thread's all the same."""


@pytest.mark.requirement("MC-06")
@pytest.mark.parametrize("how", ["HUP", "TERM"])
def test_a_signal_that_another_thread_gets_ends_the_process_as_well(world: World, how: str) -> None:
    client = McpClient([sys.executable, "-I", "-S", "-c", ANOTHER_THREAD, str(ROOT)], quiet(world))
    try:
        client.write(PING % 1)
        client.wait(lambda m: m.get("id") == 1)
        end_by(client, how)
    finally:
        client.close()


@pytest.mark.requirement("MC-06")
def test_the_end_of_a_client_that_never_read(world: World) -> None:
    with subprocess.Popen(MCP, env=quiet(world), stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        choke(process.stdin.fileno())
        began = time.monotonic()
        process.stdin.close()
        assert gone_within(process.pid, 5)
        assert time.monotonic() - began < 1


@pytest.mark.requirement("MC-06")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_signals_end_a_process_whose_client_never_read(world: World, number: int) -> None:
    with subprocess.Popen(MCP, env=quiet(world), stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        choke(process.stdin.fileno())
        began = time.monotonic()
        process.send_signal(number)
        assert gone_within(process.pid, 5)
        assert time.monotonic() - began < 1


@pytest.mark.requirement("MC-06")
def test_answers_that_are_still_read_after_the_end_of_input_arrive(world: World) -> None:
    data = b"".join(PING % number for number in range(4000))
    done = subprocess.run(MCP, env=quiet(world), input=data, stdout=subprocess.PIPE, timeout=10, check=True)
    assert done.stdout.count(b"\n") == 4000


@pytest.mark.requirement("EN-25", "MC-07")
def test_a_client_that_never_reads_affects_nobody_else(world: World) -> None:
    """Case 54: its answers fill its pipe, and then wait for it alone."""
    good = world.mcp()
    good.shake_hands()
    assert good.call("bridge_status")["ok"]
    with subprocess.Popen(MCP, env=spoken(world), stdin=subprocess.PIPE, stdout=subprocess.PIPE) as deaf:
        assert deaf.stdin is not None
        parameters = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "d", "version": "1"}}
        lines = [{"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": parameters}]
        lines += [{"jsonrpc": "2.0", "id": n, "method": "tools/call", "params": STATUS} for n in range(1, 300)]
        deaf.stdin.write(b"".join(json.dumps(line).encode() + b"\n" for line in lines))
        deaf.stdin.flush()
        world.until(lambda: world.ask("status")["mcp_sessions"] == 2, "two MCP sessions")
        choke(deaf.stdin.fileno())
        for _ in range(20):
            began = time.monotonic()
            assert good.call("bridge_status")["ok"]
            assert time.monotonic() - began < 0.5
        deaf.stdin.close()
        assert gone_within(deaf.pid, 2)
    assert good.call("bridge_status")["ok"]


# no environment (MC-08)


@pytest.mark.requirement("MC-05", "MC-08")
@pytest.mark.parametrize("broken", ["missing", "raising"])
def test_a_broken_environment_is_told_in_words_of_ours(world: World, tmp_path: Path, broken: str) -> None:
    packages = make_venv(tmp_path / "venv", linked=False)
    if broken == "raising":
        link_packages(packages)
        (packages / "zmq").unlink()
        (packages / "zmq").mkdir()
        (packages / "zmq" / "__init__.py").write_text('raise RuntimeError("the library says canary")\n')
    root = copy_of_the_tree(tmp_path)
    command = [str(tmp_path / "venv" / "bin" / "python"), "-I", "-S", str(root / "mcp_server" / "__main__.py")]
    client = McpClient(command, spoken(world))
    try:
        began = time.monotonic()
        client.shake_hands()
        assert time.monotonic() - began < 1
        assert client.request("tools/list")["result"]["tools"]
        for _ in range(2):
            told = client.call("bridge_status", timeout=5)
            assert (told["code"], told["retry_safe"]) == ("environment_broken", True)
            assert told["next_step"]
            assert ("zmq" if broken == "missing" else "RuntimeError") in told["error"]
            assert "canary" not in json.dumps(told)
    finally:
        client.close()


@pytest.mark.requirement("MC-08")
def test_the_directory_of_the_agent_may_be_removed(world: World, tmp_path: Path) -> None:
    """A worktree that is gone when a new broker asks where the agent works."""
    place = tmp_path / "worktree"
    place.mkdir()
    client = McpClient(MCP, spoken(world), cwd=place)
    try:
        client.shake_hands()
        assert client.call("bridge_status")["ok"]
        place.rmdir()
        world.kill_broker()
        assert client.call("bridge_status")["ok"]
    finally:
        client.close()


# by hand (MC-24)


@pytest.mark.requirement("MC-24")
@pytest.mark.parametrize("option", ["-h", "--help"])
def test_help_is_shown_and_nothing_served(option: str) -> None:
    done = subprocess.run([*MCP, option], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=10, check=True)
    assert done.stdout.startswith("Usage: cross-agent mcp")
    assert "--surface" in done.stdout


@pytest.mark.requirement("MC-24")
@pytest.mark.parametrize("arguments", [["--no-such"], ["--surface"], ["--surface="], ["x"]], ids=" ".join)
def test_wrong_usage_is_said_on_stderr(arguments: list[str]) -> None:
    done = subprocess.run([*MCP, *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=10, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"{arguments[0]} is not understood" in done.stderr


# tools of these tests


def marked() -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "CROSS_AGENT_TEST_MARK": os.environ["CROSS_AGENT_TEST_MARK"]}


def spoken(world: World) -> dict[str, str]:
    return {**world.settings, **marked()}


def quiet(world: World) -> dict[str, str]:
    return {**spoken(world), "CROSS_AGENT_AUTOSTART": "off"}


def end_by(client: McpClient, how: str) -> None:
    began = time.monotonic()
    if how == "EOF":
        client.end_input()
    else:
        client.kill(getattr(signal, f"SIG{how}"))
    client.wait_end(5)
    assert time.monotonic() - began < 1


def choke(stdin: int) -> None:
    """Pings until the process takes no more, since nobody reads what it answers."""
    os.set_blocking(stdin, False)
    poll = select.poll()
    poll.register(stdin, select.POLLOUT)
    number = 10_000
    while poll.poll(300):
        try:
            os.write(stdin, PING % number)
        except BlockingIOError:
            continue
        number += 1
    assert number > 10_100


def copy_of_the_tree(tmp_path: Path) -> Path:
    for room in ROOMS:
        shutil.copytree(ROOT / room, tmp_path / "tree" / room, ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path / "tree"
