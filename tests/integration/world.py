"""A whole small world: a state directory, stub agents behind real shims, thin MCP processes, and whichever broker lives.

Owns everything that a test starts, and its end. The stubs call the tools themselves, through their own MCP clients, so that
a message goes the whole way. What a test asks of the world is asked from outside: the panels' lines, the agents' files, the
database (read only) and the process table.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sqlite3
import sys
import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, Protocol, TypeVar

import zmq

from broker.client import Connection
from broker.paths import Home
from broker.processes import ProcessId, identify, open_death_watch
from broker.rendezvous import BrokerRecord, read_record
from broker.wire import Failure, Reply, Request
from tests.integration.lines import PATIENCE, Json, Lines, Silence
from tests.integration.processes import gone_within
from tests.real.homes import ClaudeHome, CodexHome

ROOT = Path(__file__).resolve().parents[2]
MCP = [sys.executable, "-I", "-S", str(ROOT / "mcp_server" / "__main__.py")]
_SHIM = [sys.executable, "-I", "-S"]
_NO_MODEL = "http://127.0.0.1:9"

T = TypeVar("T", bound=Lines)

FINAL = ("delivered", "failed", "uncertain", "withdrawn")


class World:
    """Builds panels and looks at what became of messages.

    Args:
        home: the state directory, fresh.
        settings: variables of every process of this world.
    """

    def __init__(self, home: Path, **settings: str) -> None:
        self.home = Home(str(home))
        self.home.prepare()
        self.settings = {
            "CROSS_AGENT_HOME": str(home),
            "CROSS_AGENT_FAIL_POINTS": "1",
            "CROSS_AGENT_DEBUG": "1",
            **settings,
        }
        os.makedirs(self.home.fail_points, mode=0o700, exist_ok=True)
        self._agents = home / "agents"
        self._started: list[Lines] = []
        self._claude_home: ClaudeHome | None = None
        self._codex_home: CodexHome | None = None

    # panels

    def claude(self, session: str = "", *, version: str = "2.1.332", resume: str = "", **variables: str) -> ClaudePanel:
        home = self._claude_home = self._claude_home or ClaudeHome(
            self._agents / "c", _NO_MODEL, MCP, self.settings, self.settings, shell="allow", git=False
        )
        environment = {
            **home.environment(),
            "STUB_CLAUDE_VERSION": version,
            "CLAUDE_CODE_ENTRYPOINT": "claude-vscode",
            **variables,
        }
        session = resume or session or str(uuid.uuid4())
        named = ["--resume", session] if resume else ["--session-id", session]
        command = [*_SHIM, str(ROOT / "shims/claude/__main__.py"), str(self._stub("claude")), *_CLAUDE_ARGUMENTS, *named]
        return self._add(ClaudePanel(self, command, environment, home, session))

    def codex(self, *, version: str = "0.171.0", resume: str = "", thread: bool = True, **variables: str) -> CodexPanel:
        home = self._codex_home = self._codex_home or CodexHome(
            self._agents / "x", _NO_MODEL, MCP, self.settings, self.settings, shell="allow", git=False
        )
        environment = {
            **home.environment(),
            "STUB_CODEX_VERSION": version,
            "CROSS_AGENT_REAL_CODEX": str(self._stub("codex")),
            **variables,
        }
        panel = self._add(CodexPanel(self, [*_SHIM, str(ROOT / "shims/codex/__main__.py"), "app-server"], environment, home))
        panel.shake_hands()
        if resume:
            panel.resume_thread(resume)
        elif thread:
            panel.start_thread()
        return panel

    def mcp(self, **variables: str) -> McpClient:
        """An MCP process of nobody's."""
        environment = {"PATH": os.environ["PATH"], **self.settings, **_marked(), **variables}
        return self._add(McpClient(MCP, environment))

    def open(self, kind: str, **options: Any) -> ClaudePanel | CodexPanel:
        """A panel of ``claude``, ``claude197``, ``codex``, ``codex154`` or ``codex147``."""
        if kind.startswith("claude"):
            return self.claude(version={"claude": "2.1.332", "claude197": "2.1.197"}[kind], **options)
        return self.codex(version={"codex": "0.171.0", "codex154": "0.154.0", "codex147": "0.147.0"}[kind], **options)

    def _add(self, lines: T) -> T:
        self._started.append(lines)
        return lines

    def _stub(self, agent: str) -> Path:
        path = self._agents / "bin" / agent
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S {ROOT}/shims/{agent}/stub/__main__.py "$@"\n')
        path.chmod(0o755)
        return path

    # the broker

    def broker(self, *, other_than: BrokerRecord | None = None, timeout: float = PATIENCE) -> BrokerRecord:
        """The living broker, waited for."""
        deadline = time.monotonic() + timeout
        bell = Bell(self.home)
        try:
            while (record := read_record(self.home)) is None or record == other_than:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise Silence(f"no broker within {timeout} s\n{self.log()[-2000:]}")
                select.select([bell.fd], [], [], left)
                bell.drain()
            return record
        finally:
            bell.close()

    def kill_broker(self, number: int = signal.SIGKILL) -> BrokerRecord:
        record = self.broker()
        os.kill(record.pid, number)
        assert gone_within(record.pid, 10)
        return record

    def arm(self, point: str) -> None:
        Path(self.home.fail_points, point).touch()

    def is_armed(self, point: str) -> bool:
        return Path(self.home.fail_points, point).exists()

    def log(self) -> str:
        logs = sorted(Path(self.home.logs).glob("*.log"))
        return "\n".join(f"--- {path.name}\n{path.read_text(errors='replace')}" for path in logs)

    def ask(self, operation: str, **parameters: Any) -> Json:
        """What the living broker answers to a client that is no agent."""
        record = self.broker()
        death = open_death_watch(record.process)
        assert death is not None
        context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        connection = Connection(context, record, death)
        poller = zmq.Poller()
        try:
            connection.send(Request("t", operation, parameters))
            while True:
                poller.register(connection.socket, connection.wanted)
                if not poller.poll(int(PATIENCE * 1000)):
                    raise Silence(f"no answer to {operation}")
                connection.flush()
                for message in connection.receive():
                    if isinstance(message, Reply):
                        return message.result
                    if isinstance(message, Failure):
                        raise AssertionError(message)
        finally:
            connection.close()
            context.destroy(0)

    # what became of messages

    def deliveries(self) -> list[Json]:
        """Every delivery's record, oldest first."""
        return self._rows("SELECT record FROM deliveries ORDER BY sequence")

    def attempts(self) -> list[Json]:
        return self._rows("SELECT record FROM attempts")

    def _rows(self, query: str) -> list[Json]:
        if not os.path.exists(self.home.database):
            return []
        with closing(sqlite3.connect(f"file:{self.home.database}?mode=ro", uri=True, timeout=5)) as database:
            try:
                return [json.loads(row[0]) for row in database.execute(query)]
            except sqlite3.OperationalError:
                return []  # no tables yet

    def requests(self) -> list[Json]:
        return [record for record in self.deliveries() if record["kind"] == "request"]

    def until(self, holds: Callable[[], bool], what: str, timeout: float = PATIENCE) -> None:
        """Waits until ``holds`` of the database; asked again at each event of any broker."""
        deadline = time.monotonic() + timeout
        context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        bell = Bell(self.home)
        try:
            while True:
                record = read_record(self.home)
                socket = context.socket(zmq.SUB)
                poller = zmq.Poller()
                poller.register(bell.fd, zmq.POLLIN)
                death = None
                if record is not None and (death := open_death_watch(record.process)) is not None:
                    socket.setsockopt(zmq.SUBSCRIBE, b"")
                    socket.connect(record.events)
                    poller.register(socket, zmq.POLLIN)
                    poller.register(death, zmq.POLLIN)
                try:
                    if self._follow(holds, poller, socket, bell, death, deadline, what):
                        return
                finally:
                    socket.close(0)
                    if death is not None:
                        os.close(death)
        finally:
            bell.close()
            context.destroy(0)

    def _follow(
        self,
        holds: Callable[[], bool],
        poller: zmq.Poller,
        socket: zmq.Socket[bytes],
        bell: Bell,
        death: int | None,
        deadline: float,
        what: str,
    ) -> bool:
        """True: it holds. False: the broker has changed. A subscription takes a moment, so the first looks are close."""
        pause = 20
        while not holds():
            left = deadline - time.monotonic()
            if left <= 0:
                raise Silence(f"not {what} within the time\n{json.dumps(self.deliveries(), indent=1)}\n{self.log()[-6000:]}")
            ready = dict(poller.poll(min(pause, int(left * 1000) + 1)))
            pause = min(pause * 2, 500)
            if socket in ready:
                socket.recv()
            if bell.fd in ready:
                bell.drain()
                return False
            if death is not None and death in ready:
                poller.unregister(death)
                return False
        return True

    def finished(self, count: int = 1, timeout: float = PATIENCE) -> list[Json]:
        """The first ``count`` requests, once they have ended."""

        def done() -> bool:
            requests = self.requests()
            return len(requests) >= count and all(r["state"] in FINAL for r in requests[:count])

        self.until(done, f"{count} requests finished", timeout)
        return self.requests()[:count]

    # the end

    def close(self) -> None:
        for lines in self._started:
            lines.close()
        record = read_record(self.home)
        if record is not None:
            os.kill(record.pid, signal.SIGCONT)
            os.kill(record.pid, signal.SIGTERM)
            if not gone_within(record.pid, 5):
                os.kill(record.pid, signal.SIGKILL)
                gone_within(record.pid, 5)


_CLAUDE_ARGUMENTS = (
    *("--input-format", "stream-json", "--output-format", "stream-json", "--verbose", "--replay-user-messages"),
    *("--permission-prompt-tool", "stdio"),
)


class Target(Protocol):
    """What can be sent to."""

    @property
    def agent(self) -> str: ...

    @property
    def session(self) -> str: ...


class Panel(Lines):
    """What both agents' panels have in common."""

    agent = ""
    session = ""

    def __init__(self, world: World, command: list[str], environment: Mapping[str, str], cwd: Path) -> None:
        super().__init__(command, environment, cwd)
        self.world = world

    @property
    def process_id(self) -> ProcessId:
        found = identify(self.pid)
        assert found is not None
        return found

    def child(self) -> int:
        """The agent's pid."""
        return children(self.pid)[0]

    def mcp_process(self) -> int:
        return next(pid for pid in children(self.child()) if b"mcp_server" in Path(f"/proc/{pid}/cmdline").read_bytes())

    def registered(self) -> None:
        """Waits until the broker knows this panel's session."""

        def known() -> bool:
            panels = self.world.ask("overview")["ide_panels"]
            return any(session["id"] == self.session for panel in panels for session in panel["sessions"])

        self.world.until(known, f"{self.session} registered")

    def say(self, text: str) -> None:
        raise NotImplementedError

    def ends(self) -> int:
        """How many turns have ended."""
        raise NotImplementedError

    def prompts(self) -> list[str]:
        """Every user message that the agent has taken in, over all its processes, from its own file."""
        raise NotImplementedError

    def answers(self) -> list[str]:
        """Every final message, as the editor's client saw it."""
        raise NotImplementedError

    def receipts(self) -> list[Json]:
        """What the tools answered the agent."""
        raise NotImplementedError

    def wait_receipt(self, number: int = 1, timeout: float = PATIENCE) -> Json:
        self.until(lambda: len(self.receipts()) >= number, f"receipt {number}", timeout=timeout)
        return self.receipts()[number - 1]

    def send_script(self, to: Target, message: str, **arguments: Any) -> str:
        """The script by which this agent sends ``message``."""
        call = {"message": message, "session_id": to.session, **arguments}
        return f"[[tool mcp__cross-agent__send_to_{to.agent} {json.dumps(call)} ;; say sent]]"

    def send_to(self, to: Target, message: str, **arguments: Any) -> None:
        """The person tells the agent to send; the agent does."""
        self.say(self.send_script(to, message, **arguments))

    def handed_over(self, marker: str) -> int:
        """How many requests with ``marker`` this agent has taken in."""
        return sum("BRIDGE MESSAGE" in prompt and marker in prompt for prompt in self.prompts())

    def replies(self, marker: str) -> list[str]:
        return [prompt for prompt in self.prompts() if "BRIDGE REPLY" in prompt and marker in prompt]

    def notices(self) -> list[str]:
        return [prompt for prompt in self.prompts() if "DELIVERY FAILED" in prompt]

    def wait_ends(self, count: int, timeout: float = PATIENCE) -> None:
        self.until(lambda: self.ends() >= count, f"{count} turns ended at {self.agent}", timeout=timeout)

    def wait_reply(self, marker: str, timeout: float = PATIENCE) -> str:
        """The text of the answer that came back, when the turn that reads it has begun."""
        self.until(lambda: bool(self.replies(marker)), f"reply with {marker} at {self.agent}", timeout=timeout)
        return self.replies(marker)[0]

    def wait_notice(self, timeout: float = PATIENCE) -> str:
        self.until(lambda: bool(self.notices()), f"failure notice at {self.agent}", timeout=timeout)
        return self.notices()[0]


class ClaudePanel(Panel):
    agent = "claude"

    def __init__(self, world: World, command: list[str], environment: Mapping[str, str], home: ClaudeHome, session: str) -> None:
        super().__init__(world, command, environment, home.cwd)
        self.session = session
        self.store = home.config
        self.send({"type": "control_request", "request_id": "hello", "request": {"subtype": "initialize"}})
        self.wait(lambda m: m.get("type") == "control_response", "answer to initialize")

    def say(self, text: str) -> None:
        message = {"role": "user", "content": text}
        self.send({"type": "user", "message": message, "uuid": str(uuid.uuid4()), "session_id": self.session})

    def ends(self) -> int:
        return sum(message.get("type") == "result" for message in self.messages)

    def prompts(self) -> list[str]:
        found = []
        for path in self.store.glob(f"projects/*/{self.session}.jsonl"):
            for record in _records(path):
                content = record.get("message", {}).get("content")
                if record.get("type") == "user" and isinstance(content, str):
                    found.append(content)
                elif record.get("type") == "attachment" and record["attachment"].get("type") == "queued_command":
                    found.append(str(record["attachment"]["prompt"]))
        return found

    def answers(self) -> list[str]:
        return [str(message.get("result")) for message in self.messages if message.get("type") == "result"]

    def receipts(self) -> list[Json]:
        found = []
        for message in self.messages:
            content = message.get("message", {}).get("content") if message.get("type") == "user" else None
            for block in content if isinstance(content, list) else ():
                if block.get("type") == "tool_result":
                    found.append(_json(str(block["content"])))
        return found


class CodexPanel(Panel):
    agent = "codex"

    def __init__(self, world: World, command: list[str], environment: Mapping[str, str], home: CodexHome) -> None:
        super().__init__(world, command, environment, home.cwd)
        self.store = home.config
        self._requests = 0

    def shake_hands(self) -> None:
        capabilities = {"experimentalApi": True}
        self.request("initialize", {"clientInfo": {"name": "t", "version": "1"}, "capabilities": capabilities})
        self.send({"method": "initialized"})

    def request(self, method: str, params: Json) -> Json:
        self._requests += 1
        number = self._requests
        self.send({"id": number, "method": method, "params": params})
        answer = self.wait(lambda m: m.get("id") == number and "method" not in m, f"answer to {method}")
        assert "result" in answer, answer
        result: Json = answer["result"]
        return result

    def start_thread(self) -> str:
        self.session = self.request("thread/start", {})["thread"]["id"]
        return self.session

    def resume_thread(self, thread: str) -> None:
        self.session = self.request("thread/resume", {"threadId": thread, "excludeTurns": True})["thread"]["id"]

    def say(self, text: str, thread: str = "") -> None:
        self.request("turn/start", {"threadId": thread or self.session, "input": [{"type": "text", "text": text}]})

    def ends(self) -> int:
        return sum(message.get("method") == "turn/completed" for message in self.messages)

    def prompts(self) -> list[str]:
        found = []
        for path in self.store.glob(f"sessions/*/*/*/rollout-*-{self.session}.jsonl"):
            for record in _records(path):
                payload = record.get("payload", {})
                if record.get("type") == "response_item" and payload.get("role") == "user":
                    found.append("".join(part.get("text", "") for part in payload["content"]))
        return found

    def answers(self) -> list[str]:
        return [i["text"] for m in self.messages if m.get("method") == "item/completed" and (i := _item(m))]

    def receipts(self) -> list[Json]:
        found = []
        for message in self.messages:
            item = message.get("params", {}).get("item", {})
            if message.get("method") == "item/completed" and item.get("type") == "mcpToolCall":
                result = item.get("result")
                found.append(_json(result["content"][0]["text"]) if result else {"error": item.get("error")})
        return found


class McpClient(Lines):
    """A client of the handshake era, by hand."""

    _requests = 0

    def shake_hands(self, version: str = "2025-11-25") -> Json:
        client = {"name": "t", "version": "1"}
        parameters = {"protocolVersion": version, "capabilities": {}, "clientInfo": client}
        answer = self.request("initialize", parameters)
        self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return answer

    def post(self, method: str, parameters: Json | None = None) -> int:
        """Sends a request and returns its id."""
        self._requests += 1
        message = {"jsonrpc": "2.0", "id": self._requests, "method": method}
        self.send(message if parameters is None else {**message, "params": parameters})
        return self._requests

    def answer(self, number: int, timeout: float = PATIENCE) -> Json:
        return self.wait(lambda m: m.get("id") == number and "method" not in m, f"answer {number}", timeout=timeout)

    def request(self, method: str, parameters: Json | None = None, timeout: float = PATIENCE) -> Json:
        return self.answer(self.post(method, parameters), timeout)

    def call(self, tool: str, timeout: float = PATIENCE, **arguments: Any) -> Json:
        """What a tool answers, as data."""
        answer = self.request("tools/call", {"name": tool, "arguments": arguments}, timeout)
        assert "result" in answer, answer
        result: Json = answer["result"]["structuredContent"]
        return result


class Bell:
    """Rung when a broker has published itself. `broker.rendezvous.WakeUp` is one for each process, and a test may hold many."""

    def __init__(self, home: Home) -> None:
        self._path = os.path.join(home.wake, f"test-{uuid.uuid4().hex}")
        os.mkfifo(self._path, 0o600)
        self.fd = os.open(self._path, os.O_RDWR | os.O_NONBLOCK)

    def drain(self) -> None:
        try:
            os.read(self.fd, 4096)
        except BlockingIOError:
            pass

    def close(self) -> None:
        os.close(self.fd)
        os.unlink(self._path)


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()] or _children_of_threads(pid)


def _children_of_threads(pid: int) -> list[int]:
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return [int(child) for task in tasks for child in (task / "children").read_text().split()]


def _records(path: Path) -> list[Json]:
    """Whole lines of a file that may be written to right now, or end in half a line for ever."""
    found = []
    for line in path.read_text(errors="replace").splitlines():
        record = _json(line)
        if record:
            found.append(record)
    return found


def _json(text: str) -> Json:
    try:
        value = json.loads(text)
    except ValueError:
        return {"text": text} if text and not text.startswith("{") else {}
    return value if isinstance(value, dict) else {}


def _item(message: Json) -> Json | None:
    item = message["params"]["item"]
    return item if item.get("type") == "agentMessage" else None


def _marked() -> dict[str, str]:
    mark = os.environ.get("CROSS_AGENT_TEST_MARK")
    return {"CROSS_AGENT_TEST_MARK": mark} if mark else {}
