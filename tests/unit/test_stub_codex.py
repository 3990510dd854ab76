"""The Codex stub behaves as ``codex app-server`` was measured to: every test here tells what a client of it sees."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from shims.stub_toml import parse_subset

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.requirement("MC-25")

ROOT = Path(__file__).resolve().parents[2]
STUB = ROOT / "shims" / "codex" / "stub" / "__main__.py"
NEW, MIDDLE, OLD = "0.171.0", "0.154.0", "0.147.0"
UNKNOWN = "01a22c4a-6655-74e3-b1cf-77c3991e44ca"
PATIENCE = 20.0
ESCALATED = '{"cmd":"echo hi > made","sandbox_permissions":"require_escalated","justification":"need it"}'

MCP_SERVER = """
import json, os, sys
tools = [
    {"name": "look", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}},
    {"name": "send", "inputSchema": {"type": "object"}},
]
for line in sys.stdin:
    m = json.loads(line)
    if "id" not in m: continue
    if m["method"] == "initialize":
        info = {"name": "s", "version": "1"}
        r = {"protocolVersion": m["params"]["protocolVersion"], "capabilities": {}, "serverInfo": info}
    elif m["method"] == "tools/list":
        r = {"tools": tools}
    else:
        seen = {"meta": m["params"]["_meta"], "env": sorted(os.environ), "cwd": os.getcwd(), "pid": os.getpid()}
        r = {"content": [{"type": "text", "text": json.dumps(seen)}]}
    print(json.dumps({"jsonrpc": "2.0", "id": m["id"], "result": r}), flush=True)
"""


class Home:
    """A throw-away home and working directory."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.codex = path / ".codex"
        self.work = path / "work"
        self.work.mkdir(parents=True)
        self.codex.mkdir()
        self._servers: list[Server] = []

    def start(self, version: str = NEW, *, experimental: bool = True, **env: str) -> Server:
        """A server that has shaken hands."""
        server = self.bare(version, **env)
        server.call(
            "initialize",
            clientInfo={"name": "probe", "title": None, "version": "0"},
            capabilities={"experimentalApi": experimental},
        )
        server.send({"method": "initialized"})
        return server

    def bare(self, version: str = NEW, **env: str) -> Server:
        server = Server(self, version, env)
        self._servers.append(server)
        return server

    def rollout(self, thread_id: str) -> list[dict[str, Any]]:
        (path,) = self.codex.rglob(f"rollout-*-{thread_id}.jsonl")
        return [json.loads(line) for line in path.read_text().splitlines()]

    def lock(self, thread_id: str) -> Path:
        return self.codex / "thread-writer-locks" / f"{thread_id}.lock"

    def close(self) -> None:
        for server in self._servers:
            server.kill()


class Server:
    """A stub process and everything that it said."""

    def __init__(self, home: Home, version: str, env: dict[str, str]) -> None:
        self.home = home
        base = {"HOME": str(home.path), "PATH": os.environ["PATH"], "STUB_CODEX_VERSION": version, "SECRET": "x"}
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(STUB), "app-server"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=base | env,
            cwd=home.work,
        )
        self.said: list[dict[str, Any]] = []
        self._ended = False
        self._next = 0
        self._changed = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self._changed:
                self.said.append(json.loads(line))
                self._changed.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    # tell

    def send(self, *messages: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(b"".join(json.dumps(message).encode() + b"\n" for message in messages))
        self.process.stdin.flush()

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """The result of a request that is accepted."""
        response = self.exchange(method, params)
        assert "result" in response, response
        result: dict[str, Any] = response["result"]
        return result

    def refused(self, method: str, **params: Any) -> str:
        """The message of a request that is refused."""
        response = self.exchange(method, params)
        assert "error" in response, response
        return str(response["error"]["message"])

    def exchange(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        self._next += 1
        number = f"t-{self._next}"
        self.send({"method": method, "id": number, "params": params})
        return self.wait(lambda message: message.get("id") == number)

    def open_thread(self, **params: Any) -> str:
        return str(self.call("thread/start", cwd=str(self.home.work), **params)["thread"]["id"])

    def say(self, thread_id: str, text: str, client_id: str | None = None) -> str:
        named = {} if client_id is None else {"clientUserMessageId": client_id}
        return str(self.call("turn/start", threadId=thread_id, input=typed(text), **named)["turn"]["id"])

    def enqueue(self, thread_id: str, text: str, client_id: str) -> dict[str, Any]:
        entry: dict[str, Any] = self.call(
            "thread/queue/add", threadId=thread_id, clientUserMessageId=client_id, input=typed(text)
        )["queuedSubmission"]
        return entry

    def end(self) -> int:
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.exit_code()

    def exit_code(self) -> int:
        code = self.process.wait(PATIENCE)
        self._reader.join(PATIENCE)
        return code

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(PATIENCE)

    # hear

    def wait(self, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        deadline = time.monotonic() + PATIENCE
        at = 0
        with self._changed:
            while True:
                while at < len(self.said):
                    if wanted(self.said[at]):
                        return self.said[at]
                    at += 1
                assert not self._ended, f"the stub ended without it; it said {self.said}"
                assert self._changed.wait(deadline - time.monotonic()), f"it never came; the stub said {self.said}"

    def notice(self, method: str, **params: Any) -> dict[str, Any]:
        """The params of the first notification or request of that kind whose params hold the given ones."""

        def wanted(message: dict[str, Any]) -> bool:
            return message.get("method") == method and params.items() <= message["params"].items()

        found: dict[str, Any] = self.wait(wanted)["params"]
        return found

    def completed(self, turn_id: str) -> dict[str, Any]:
        """The finished turn."""
        message = self.wait(
            lambda message: message.get("method") == "turn/completed" and message["params"]["turn"]["id"] == turn_id
        )
        turn: dict[str, Any] = message["params"]["turn"]
        return turn

    def answered(self, turn_id: str) -> str | None:
        """The final text of a finished turn."""
        items = self.completed(turn_id)["items"]
        return str(items[0]["text"]) if items else None

    def turn_of(self, client_id: str) -> str:
        """The turn in which a message was delivered."""
        message = self.wait(
            lambda message: message.get("method") == "item/completed" and message["params"]["item"].get("clientId") == client_id
        )
        return str(message["params"]["turnId"])

    def streaming(self, turn_id: str) -> None:
        self.notice("item/agentMessage/delta", turnId=turn_id)

    def methods(self) -> list[str]:
        return [message["method"] for message in self.said if "method" in message]


def typed(text: str) -> list[dict[str, Any]]:
    return [{"type": "text", "text": text}]


def open_gate(path: Path) -> None:
    """Lets a slow step go on; blocks until the stub has come to it."""
    path.open("w").close()


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    home = Home(tmp_path)
    yield home
    home.close()


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    path = tmp_path / "gate"
    os.mkfifo(path)
    return path


versions = pytest.mark.parametrize("version", [NEW, MIDDLE, OLD])
with_queue = pytest.mark.parametrize("version", [NEW, MIDDLE])


# start, handshake, end


def run_stub(*argv: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-I", "-S", STUB, *argv], capture_output=True, text=True, check=False, timeout=PATIENCE
    )


def test_version() -> None:
    assert run_stub("--version").stdout == "codex-cli 0.171.0\n"


@pytest.mark.parametrize("argv", [["exec", "hi"], ["app-server", "daemon"], ["app-server", "generate-ts"], []])
def test_everything_else_is_refused(argv: list[str]) -> None:
    run = run_stub(*argv)
    assert (run.returncode, run.stdout) == (2, "")


def test_root_options_stand_in_front() -> None:
    run = run_stub("-c", "features.x=true", "app-server", "--listen", "stdio://", "--analytics-default-enabled")
    assert run.returncode == 0


def test_nothing_before_the_handshake(home: Home) -> None:
    server = home.bare()
    assert server.refused("thread/list") == "Not initialized"
    answer = server.call("initialize", clientInfo={"name": "probe", "version": "0"})
    assert answer["userAgent"].startswith("probe/0.171.0 (")
    assert answer["codexHome"] == str(home.codex)
    assert server.refused("initialize", clientInfo={"name": "probe"}) == "Already initialized"


def test_requests_that_make_no_sense(home: Home) -> None:
    server = home.start()
    assert server.refused("nope/nope").startswith("Invalid request: unknown variant `nope/nope`, expected one of ")
    assert server.refused("turn/start", input=[]) == "Invalid request: missing field `threadId`"
    assert server.refused("thread/read", threadId="nonsense").startswith("invalid thread id: invalid character")
    assert server.refused("thread/read", threadId=UNKNOWN) == f"thread not loaded: {UNKNOWN}"
    assert server.refused("turn/start", threadId=UNKNOWN, input=[]) == f"thread not found: {UNKNOWN}"
    assert server.refused("thread/resume", threadId=UNKNOWN) == f"no rollout found for thread id {UNKNOWN}"


def test_fields_of_the_wrong_shape(home: Home) -> None:
    server = home.start()
    thread = server.open_thread()
    wrong = "Invalid request: invalid type: "
    assert server.refused("thread/read", threadId=0) == wrong + "integer `0`, expected a string"
    assert server.refused("turn/start", threadId=thread, input="x").startswith(wrong)
    assert "unknown variant `x`" in server.refused("thread/start", approvalPolicy="x")
    assert "unknown variant `bogus`" in server.refused("turn/start", threadId=thread, input=[{"type": "bogus"}])


def test_noise_gets_no_answer(home: Home) -> None:
    server = home.start()
    assert server.process.stdin is not None
    server.process.stdin.write(b'not json\n\n[1]\n{"id":99,"result":{}}\r\n{"method":"whatever"}\n')
    assert server.call("thread/loaded/list") == {"data": [], "nextCursor": None}


def test_a_client_hears_nothing_that_it_opted_out_of(home: Home) -> None:
    server = home.bare()
    muted = {"optOutNotificationMethods": ["item/agentMessage/delta"]}
    server.call("initialize", clientInfo={"name": "probe", "version": "0"}, capabilities=muted)
    thread = server.open_thread()
    server.completed(server.say(thread, "hi"))
    assert "item/agentMessage/delta" not in server.methods()


@pytest.mark.parametrize("number", [None, signal.SIGTERM])
def test_a_running_turn_is_recorded_as_aborted(home: Home, gate: Path, number: signal.Signals | None) -> None:
    server = home.start()
    thread = server.open_thread()
    turn = server.say(thread, f"[[slow {gate} aabb]]")
    server.streaming(turn)
    if number is None:
        assert server.end() == 0
    else:
        server.process.send_signal(number)
        assert server.exit_code() == 0
    last = home.rollout(thread)[-1]["payload"]
    assert (last["type"], last["turn_id"], last["reason"]) == ("turn_aborted", turn, "interrupted")
    assert not home.lock(thread).exists()


@pytest.mark.parametrize("version", ["0.154.0", "0.147.0"])
def test_older_versions_die_of_sigterm(home: Home, gate: Path, version: str) -> None:
    server = home.start(version)
    thread = server.open_thread()
    server.streaming(server.say(thread, f"[[slow {gate} aabb]]"))
    server.process.send_signal(signal.SIGTERM)
    assert server.exit_code() == -signal.SIGTERM
    assert "turn_aborted" not in [record["payload"].get("type") for record in home.rollout(thread)]


# one turn


@versions
def test_a_turn_in_order(home: Home, version: str) -> None:
    server = home.start(version)
    thread = server.open_thread()
    turn = server.say(thread, "hi [[say hello]]", "cid-1")
    assert server.answered(turn) == "hello"
    begin = next(at for at, message in enumerate(server.said) if "turn" in message.get("result", {}))
    kinds = [message["method"] for message in server.said[begin + 1 :]]
    assert kinds == [
        "thread/status/changed",
        "turn/started",
        "item/started",
        "item/completed",
        "item/started",
        "item/agentMessage/delta",
        "item/agentMessage/delta",
        "item/completed",
        "thread/tokenUsage/updated",
        "thread/status/changed",
        "turn/completed",
    ]
    assert server.turn_of("cid-1") == turn


def test_the_response_comes_before_the_notification(home: Home) -> None:
    server = home.start()
    thread = server.open_thread()
    started = server.notice("thread/started")
    assert started["thread"]["id"] == thread
    response = next(message for message in server.said if "thread" in message.get("result", {}))
    announcement = next(message for message in server.said if message.get("method") == "thread/started")
    assert server.said.index(response) < server.said.index(announcement)
    assert response["result"]["thread"]["originator"] == "probe"


def test_a_turn_of_comments_has_no_final_answer(home: Home) -> None:
    server = home.start()
    turn = server.say(server.open_thread(), "[[comment thinking aloud]]")
    assert server.answered(turn) is None


@versions
def test_the_rollout_tells_the_turn(home: Home, version: str) -> None:
    server = home.start(version)
    thread = server.open_thread()
    assert not list(home.codex.rglob("rollout-*"))
    turn = server.say(thread, "hi [[say hello]]", "cid-1")
    server.completed(turn)
    meta, *records = home.rollout(thread)
    assert (meta["type"], meta["payload"]["id"], meta["payload"]["source"]) == ("session_meta", thread, "vscode")
    assert ("ordinal" in meta) is (version != OLD)
    events = [record["payload"] for record in records if record["type"] == "event_msg"]
    assert (events[0]["type"], events[0]["turn_id"]) == ("task_started", turn)
    assert (events[-1]["type"], events[-1]["last_agent_message"]) == ("task_complete", "hello")
    user = events[1]["client_id"] if version == OLD else events[1]["item"]["client_id"]
    assert user == "cid-1"


def test_a_failed_turn(home: Home) -> None:
    server = home.start()
    thread = server.open_thread()
    turn = server.completed(server.say(thread, "[[fail boom]]"))
    assert (turn["status"], turn["error"]["message"]) == ("failed", "boom")
    assert server.notice("error")["willRetry"] is False
    assert server.call("thread/read", threadId=thread)["thread"]["status"] == {"type": "systemError"}
    assert server.answered(server.say(thread, "again")) == "echo: again"


def test_threads_run_side_by_side(home: Home, gate: Path) -> None:
    server = home.start()
    one, two = server.open_thread(), server.open_thread()
    slow = server.say(one, f"[[slow {gate} aabb]]")
    server.streaming(slow)
    assert server.answered(server.say(two, "quick")) == "echo: quick"
    open_gate(gate)
    assert server.answered(slow) == "aabb"


def test_too_much_input(home: Home) -> None:
    server = home.start()
    thread = server.open_thread()
    response = server.exchange("turn/start", {"threadId": thread, "input": typed("x" * ((1 << 20) + 1))})
    assert response["error"]["code"] == -32602
    assert response["error"]["data"]["input_error_code"] == "input_too_large"


# steering and interruption


@versions
def test_a_turn_start_on_a_busy_thread_steers(home: Home, gate: Path, version: str) -> None:
    server = home.start(version)
    thread = server.open_thread()
    owner = server.say(thread, f"[[slow {gate} aabb]]")
    server.streaming(owner)
    injected = server.say(thread, "mine [[say mine]]", "cid-2")
    assert (injected == owner) is (version != OLD)  # 0.147 names a turn that never appears
    if version != NEW:
        open_gate(gate)
    assert server.answered(owner) == "mine"
    assert server.turn_of("cid-2") == owner
    texts = [
        message["params"]["item"]["text"]
        for message in server.said
        if message.get("method") == "item/completed" and message["params"]["item"]["type"] == "agentMessage"
    ]
    # Only 0.171 loses the owner's answer.
    assert texts == (["mine"] if version == NEW else ["aabb", "mine"])
    assert server.methods().count("turn/started") == 1


def test_two_turn_starts_back_to_back_are_one_turn(home: Home) -> None:
    server = home.start()
    thread = server.open_thread()
    server.send(
        {"method": "turn/start", "id": 1, "params": {"threadId": thread, "input": typed("one")}},
        {"method": "turn/start", "id": 2, "params": {"threadId": thread, "input": typed("two")}},
    )
    first, second = (server.wait(lambda message, n=n: message.get("id") == n) for n in (1, 2))  # type: ignore[misc]
    assert first["result"]["turn"]["id"] == second["result"]["turn"]["id"]
    assert server.answered(first["result"]["turn"]["id"]) == "echo: two"


def test_steer_wants_the_right_turn(home: Home, gate: Path) -> None:
    server = home.start()
    thread = server.open_thread()
    assert server.refused("turn/steer", threadId=thread, expectedTurnId="x", input=[]) == "no active turn to steer"
    turn = server.say(thread, f"[[slow {gate} aabb]]")
    server.streaming(turn)
    refusal = server.refused("turn/steer", threadId=thread, expectedTurnId="x", input=typed("no"))
    assert refusal == f"expected active turn id `x` but found `{turn}`"
    server.call("turn/steer", threadId=thread, expectedTurnId=turn, input=typed("[[say steered]]"))
    assert server.answered(turn) == "steered"


@versions
def test_interrupt(home: Home, gate: Path, version: str) -> None:
    server = home.start(version)
    thread = server.open_thread()
    turn = server.say(thread, f"[[slow {gate} aabb]]")
    server.streaming(turn)
    refusal = server.refused("turn/interrupt", threadId=thread, turnId="x")
    assert refusal == f"expected active turn id x but found {turn}"
    server.call("turn/interrupt", threadId=thread, turnId=turn)
    assert server.completed(turn)["status"] == "interrupted"
    assert server.refused("turn/interrupt", threadId=thread, turnId=turn) == "no active turn to interrupt"


def test_interrupt_kills_a_command(home: Home, gate: Path) -> None:
    server = home.start()
    thread = server.open_thread()
    turn = server.say(thread, f'[[tool exec_command {{"cmd":"cat {gate}; touch made"}} ;; say fin]]')
    server.notice("item/started", turnId=turn)
    server.wait(lambda message: message.get("params", {}).get("item", {}).get("type") == "commandExecution")
    server.call("turn/interrupt", threadId=thread, turnId=turn)
    assert server.completed(turn)["status"] == "interrupted"
    assert server.end() == 0
    assert not (home.work / "made").exists()


# the queue


@with_queue
def test_a_queued_message_has_a_turn_of_its_own(home: Home, gate: Path, version: str) -> None:
    server = home.start(version)
    thread = server.open_thread()
    owner = server.say(thread, f"[[slow {gate} aabb]]")
    server.streaming(owner)
    server.enqueue(thread, "[[say mine]]", "cid-q")
    open_gate(gate)
    assert server.answered(owner) == "aabb"
    queued = server.turn_of("cid-q")
    assert queued != owner
    assert server.answered(queued) == "mine"


@with_queue
def test_on_an_idle_thread_it_starts_at_once(home: Home, version: str) -> None:
    server = home.start(version)
    thread = server.open_thread()
    server.enqueue(thread, "[[say mine]]", "cid-q")
    assert server.answered(server.turn_of("cid-q")) == "mine"
    assert server.call("thread/queue/list", threadId=thread)["data"] == []


@with_queue
def test_an_interrupt_pauses_the_queue_across_a_restart(home: Home, gate: Path, version: str) -> None:
    server = home.start(version)
    thread = server.open_thread()
    turn = server.say(thread, f"[[slow {gate} aabb]]")
    server.streaming(turn)
    server.call("turn/interrupt", threadId=thread, turnId=turn)
    server.completed(turn)
    entry = server.enqueue(thread, "[[say mine]]", "cid-q")
    assert server.end() == 0
    again = home.start(version)
    again.call("thread/resume", threadId=thread, excludeTurns=True)
    assert again.call("thread/queue/list", threadId=thread)["data"] == [entry]
    started = again.call("thread/queue/start", threadId=thread)["turn"]["id"]
    assert again.answered(started) == "mine"
    assert again.refused("thread/queue/start", threadId=thread) == "queue is empty"


def test_a_server_killed_between_its_file_and_its_database_has_one_queue(home: Home, gate: Path) -> None:
    """What the database says, which is what others have seen: neither is a message lost that waits there, nor run twice."""
    server = home.start()
    thread = server.open_thread()
    turn = server.say(thread, f"[[slow {gate} aabb]]")
    server.streaming(turn)
    server.call("turn/interrupt", threadId=thread, turnId=turn)
    server.completed(turn)
    entry = server.enqueue(thread, "[[say mine]]", "cid-q")
    assert server.end() == 0
    (kept,) = (home.codex / "queue_1.stub").iterdir()
    kept.rename(f"{kept}.tmp")
    kept.write_text("[]")
    again = home.start()
    again.call("thread/resume", threadId=thread, excludeTurns=True)
    assert again.call("thread/queue/list", threadId=thread)["data"] == [entry]
    assert again.answered(again.call("thread/queue/start", threadId=thread)["turn"]["id"]) == "mine"
    assert again.call("thread/queue/list", threadId=thread)["data"] == []


def test_the_owners_next_turn_ends_the_pause(home: Home, gate: Path) -> None:
    server = home.start()
    thread = server.open_thread()
    turn = server.say(thread, f"[[slow {gate} aabb]]")
    server.streaming(turn)
    server.call("turn/interrupt", threadId=thread, turnId=turn)
    server.enqueue(thread, "[[say mine]]", "cid-q")
    server.say(thread, "owner")
    assert server.answered(server.turn_of("cid-q")) == "mine"


def test_a_queued_message_can_be_taken_back(home: Home, gate: Path) -> None:
    server = home.start()
    thread = server.open_thread()
    turn = server.say(thread, f"[[slow {gate} aabb]]")
    server.streaming(turn)
    entry = server.enqueue(thread, "never", "cid-q")
    for expected in (True, False):
        deleted = server.call("thread/queue/delete", threadId=thread, queuedSubmissionId=entry["id"])
        assert deleted == {"deleted": expected}
    open_gate(gate)
    assert server.answered(turn) == "aabb"
    assert server.end() == 0
    assert "cid-q" not in json.dumps(home.rollout(thread))


def test_the_queue_is_gated_and_new(home: Home) -> None:
    plain = home.start(experimental=False)
    thread = plain.open_thread()
    params = {"threadId": thread, "clientUserMessageId": "c", "input": typed("x")}
    assert plain.refused("thread/queue/add", **params) == "thread/queue/add requires experimentalApi capability"
    del params["clientUserMessageId"]
    assert plain.refused("thread/queue/add", **params) == "Invalid request: missing field `clientUserMessageId`"
    assert "unknown variant `thread/queue/add`" in home.start(OLD).refused("thread/queue/add", **params)


@pytest.mark.skipif(sys.platform != "linux", reason="the stub is told of other processes' additions by Linux alone")
def test_another_process_can_queue(home: Home) -> None:
    owner = home.start()
    thread = owner.open_thread()
    owner.completed(owner.say(thread, "first"))
    other = home.start()
    other.enqueue(thread, "[[say mine]]", "cid-q")
    assert owner.answered(owner.turn_of("cid-q")) == "mine"


# approvals


@versions
def test_an_escalated_command_asks(home: Home, version: str) -> None:
    server = home.start(version)
    thread = server.open_thread(approvalPolicy="on-request")
    turn = server.say(thread, f"[[tool exec_command {ESCALATED} ;; say fin]]")
    request = server.wait(lambda message: message.get("method") == "item/commandExecution/requestApproval")
    assert request["id"] == 0
    assert request["params"]["reason"] == "need it"
    waiting = {"type": "active", "activeFlags": ["waitingOnApproval"]}
    assert server.call("thread/read", threadId=thread)["thread"]["status"] == waiting
    assert server.say(thread, "while [[say both]]", "cid-2")
    server.send({"id": 0, "result": {"decision": "accept"}})
    assert server.answered(turn) == "both"
    assert server.turn_of("cid-2") == turn
    assert server.notice("serverRequest/resolved")["requestId"] == 0
    assert (home.work / "made").read_text() == "hi\n"


@pytest.mark.parametrize(("decision", "status"), [("decline", "completed"), ("cancel", "interrupted")])
def test_a_refused_command(home: Home, decision: str, status: str) -> None:
    server = home.start()
    turn = server.say(server.open_thread(), f"[[tool exec_command {ESCALATED} ;; say fin]]")
    server.notice("item/commandExecution/requestApproval")
    server.send({"id": 0, "result": {"decision": decision}})
    assert server.completed(turn)["status"] == status
    assert not (home.work / "made").exists()


def test_an_interrupt_resolves_an_open_question(home: Home) -> None:
    server = home.start()
    thread = server.open_thread()
    turn = server.say(thread, f"[[tool exec_command {ESCALATED} ;; say fin]]")
    server.notice("item/commandExecution/requestApproval")
    server.call("turn/interrupt", threadId=thread, turnId=turn)
    assert server.completed(turn)["status"] == "interrupted"
    server.notice("serverRequest/resolved", requestId=0)


def test_an_ordinary_command_asks_nobody(home: Home) -> None:
    server = home.start()
    turn = server.say(server.open_thread(), '[[tool exec_command {"cmd":"echo hi"} ;; say fin]]')
    assert server.answered(turn) == "fin"
    assert "item/commandExecution/requestApproval" not in server.methods()


# MCP


def configure(home: Home, extra: str = "") -> None:
    script = home.path / "server.py"
    script.write_text(MCP_SERVER)
    (home.codex / "config.toml").write_text(
        f'[mcp_servers.lab]\ncommand = "{sys.executable}"\nargs = ["{script}"]\nenv = {{ MINE = "1" }}\n{extra}'
    )


def seen_by_server(server: Server, turn_id: str) -> dict[str, Any]:
    message = server.wait(
        lambda message: (
            message.get("method") == "item/completed"
            and message["params"]["turnId"] == turn_id
            and message["params"]["item"]["type"] == "mcpToolCall"
        )
    )
    seen: dict[str, Any] = json.loads(message["params"]["item"]["result"]["content"][0]["text"])
    return seen


@versions
def test_each_thread_has_its_own_server_with_a_bare_environment(home: Home, version: str) -> None:
    configure(home)
    server = home.start(version)
    threads = [server.open_thread() for _ in range(2)]
    turns = [server.say(thread, "[[tool mcp__lab__look {} ;; say fin]]") for thread in threads]
    one, two = (seen_by_server(server, turn) for turn in turns)
    assert one["pid"] != two["pid"]
    assert one["meta"]["threadId"] == threads[0]
    assert one["meta"]["x-codex-turn-metadata"]["turn_id"] == turns[0]
    assert set(one["env"]) - {"LC_CTYPE"} == {"HOME", "PATH", "MINE"}
    assert one["cwd"] == str(home.work)
    assert server.end() == 0
    for process in (one["pid"], two["pid"]):
        with pytest.raises(ProcessLookupError):
            os.kill(process, 0)


def test_a_call_that_writes_asks_by_elicitation(home: Home) -> None:
    configure(home)
    server = home.start()
    thread = server.open_thread()
    for number, (action, status) in enumerate([("accept", "completed"), ("decline", "failed")]):
        turn = server.say(thread, '[[tool mcp__lab__send {"x":1} ;; say fin]]')
        asked = server.notice("mcpServer/elicitation/request", turnId=turn)
        assert asked["_meta"]["tool_params"] == {"x": 1}
        server.send({"id": number, "result": {"action": action, "content": {}, "_meta": None}})
        assert server.answered(turn) == "fin"
        done = [
            message["params"]["item"]["status"]
            for message in server.said
            if message.get("method") == "item/completed" and message["params"]["item"]["type"] == "mcpToolCall"
        ]
        assert done[-1] == status


def test_an_approved_server_asks_nobody(home: Home) -> None:
    configure(home, 'default_tools_approval_mode = "approve"\n')
    server = home.start()
    turn = server.say(server.open_thread(), "[[tool mcp__lab__send {} ;; say fin]]")
    assert server.answered(turn) == "fin"
    assert "mcpServer/elicitation/request" not in server.methods()


def test_a_required_server_that_fails_refuses_the_thread(home: Home) -> None:
    (home.codex / "config.toml").write_text('[mcp_servers.lab]\ncommand = "false"\nrequired = true\n')
    assert home.start().refused("thread/start").startswith("required MCP servers failed to initialize: lab: ")


# threads on disk


def test_a_loaded_thread_is_locked(home: Home) -> None:
    server = home.start()
    thread = server.open_thread()
    server.completed(server.say(thread, "hi"))
    with home.lock(thread).open() as file, pytest.raises(BlockingIOError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    other = home.start()
    assert other.refused("thread/resume", threadId=thread) == f"thread {thread} already has an active writer"
    assert other.call("thread/read", threadId=thread)["thread"]["status"] == {"type": "notLoaded"}
    assert server.call("thread/unsubscribe", threadId=thread) == {"status": "unsubscribed"}
    assert home.lock(thread).exists()


@versions
def test_resume_in_another_process(home: Home, version: str) -> None:
    first = home.start(version)
    thread = first.open_thread()
    turn = first.say(thread, "hi [[say hello]]", "cid-1")
    first.completed(turn)
    assert first.end() == 0
    second = home.start(version)
    resumed = second.call("thread/resume", threadId=thread)["thread"]
    assert (resumed["preview"], len(resumed["turns"])) == ("hi [[say hello]]", 1)
    second.completed(second.say(thread, "more"))
    turns = second.call("thread/turns/list", threadId=thread, limit=1)
    assert turns["nextCursor"] is not None
    (older,) = second.call("thread/turns/list", threadId=thread, limit=1, cursor=turns["nextCursor"])["data"]
    assert older["id"] == turn
    assert older["items"][0]["clientId"] == "cid-1"
    assert older["items"][1]["text"] == "hello"


def test_names(home: Home) -> None:
    server = home.start()
    thread = server.open_thread()
    assert server.refused("thread/name/set", threadId=thread, name="") == "thread name must not be empty"
    server.call("thread/name/set", threadId=thread, name="my name")
    assert server.notice("thread/name/updated") == {"threadId": thread, "threadName": "my name"}
    (entry,) = (home.codex / "session_index.jsonl").read_text().splitlines()
    assert json.loads(entry)["thread_name"] == "my name"
    (listed,) = home.start().call("thread/list")["data"]
    assert (listed["id"], listed["name"]) == (thread, "my name")


@versions
def test_a_thread_without_a_turn_has_no_history(home: Home, version: str) -> None:
    server = home.start(version)
    thread = server.open_thread()
    assert server.call("thread/read", threadId=thread)["thread"]["turns"] == []
    assert server.call("thread/list")["data"] == []
    refusal = server.refused("thread/turns/list", threadId=thread)
    assert ("not materialized yet" in refusal) is (version == OLD)


def test_archive_unloads(home: Home, gate: Path) -> None:
    server = home.start()
    thread = server.open_thread()
    server.streaming(server.say(thread, f"[[slow {gate} aabb]]"))
    server.call("thread/archive", threadId=thread)
    assert server.refused("turn/start", threadId=thread, input=typed("x")) == f"thread not found: {thread}"
    assert not home.lock(thread).exists()
    assert list((home.codex / "archived_sessions").glob(f"*{thread}.jsonl"))
    assert home.rollout(thread)[-1]["payload"]["type"] == "turn_aborted"


def test_a_sub_agent_takes_no_direct_input(home: Home) -> None:
    server = home.start(STUB_CODEX_SUBAGENT="1")
    parent = server.open_thread()
    server.completed(server.say(parent, "hi"))
    started = server.wait(lambda message: message.get("method") == "turn/started" and message["params"]["threadId"] != parent)
    child = started["params"]["threadId"]
    assert len([method for method in server.methods() if method == "thread/started"]) == 1
    shown = server.call("thread/read", threadId=child)["thread"]
    assert (shown["parentThreadId"], shown["canAcceptDirectInput"]) == (parent, False)
    for method, extra in (("turn/start", {}), ("thread/queue/add", {"clientUserMessageId": "c"})):
        refusal = server.refused(method, threadId=child, input=typed("x"), **extra)
        assert refusal == "direct app-server input is not allowed for multi-agent v2 sub-agents"


# configuration without a TOML parser


def test_the_subset_reader_reads_what_such_files_hold() -> None:
    text = """
    model = "m"  # why
    tool_timeout_sec = 1_000
    [mcp_servers."cross-agent"]
    command = 'python'
    args = ["-m", "x,y # z", ]
    env = { A = "1", "B.C" = "2" }
    required = true
    startup_timeout_sec = 2.5
    [mcp_servers.cross-agent.tools.send]
    approval_mode = "approve"
    [projects."/abs/work.d"]
    trust_level = "trusted"
    """
    assert parse_subset(text) == {
        "model": "m",
        "tool_timeout_sec": 1000,
        "mcp_servers": {
            "cross-agent": {
                "command": "python",
                "args": ["-m", "x,y # z"],
                "env": {"A": "1", "B.C": "2"},
                "required": True,
                "startup_timeout_sec": 2.5,
                "tools": {"send": {"approval_mode": "approve"}},
            }
        },
        "projects": {"/abs/work.d": {"trust_level": "trusted"}},
    }
