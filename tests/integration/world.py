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
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, TypeVar

import zmq

from broker.connection import Connection
from broker.paths import Home
from broker.processes import open_death_watch
from broker.rendezvous import BrokerRecord, living_or_starting, read_record
from broker.wire import Failure, Reply, Request
from tests.integration.brokers import Brokers
from tests.integration.lines import PATIENCE, Json, Lines, Silence
from tests.integration.panels import ClaudePanel, CodexPanel, GrokPanel, McpClient
from tests.integration.processes import gone_within
from tests.real.homes import ClaudeHome, CodexHome, GrokHome

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
        brokers: who starts the first broker, at once; by default, the first client does.
        settings: variables of every process of this world.
    """

    def __init__(self, home: Path, brokers: Brokers | None = None, **settings: str) -> None:
        self.home = Home(str(home))
        self.home.prepare()
        self.settings = {
            "CROSS_AGENT_HOME": str(home),
            "CROSS_AGENT_FAIL_POINTS": "1",
            "CROSS_AGENT_DEBUG": "1",
            "CROSS_AGENT_DISABLE_HEADLESS": "1",  # whatever a test asks for: no agent of this machine's own is started
            **settings,
        }
        os.makedirs(self.home.fail_points, mode=0o700, exist_ok=True)
        self._agents = home / "agents"
        self._started: list[Lines] = []
        self._claude_home: ClaudeHome | None = None
        self._codex_home: CodexHome | None = None
        self._grok_home: GrokHome | None = None
        if brokers is not None:
            brokers.start({**self.settings, "HOME": str(home)})
            self.broker()

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

    def grok(
        self, *, resume: str = "", session: bool = True, client: str = "", echo: bool = False, **variables: str
    ) -> GrokPanel:
        home = self._grok_home = self._grok_home or GrokHome(
            self._agents / "g", _NO_MODEL, MCP, self.settings, self.settings, git=False
        )
        environment = {**home.environment(), "CROSS_AGENT_REAL_GROK": str(self._stub("grok")), **variables}
        command = [*_SHIM, str(ROOT / "shims/grok/__main__.py"), "agent", "stdio"]
        panel = self._add(GrokPanel(self, command, environment, home))
        panel.shake_hands(client, echo=echo)
        if resume:
            panel.load_session(resume)
        elif session:
            panel.start_session()
        return panel

    def mcp(self, **variables: str) -> McpClient:
        """An MCP process of nobody's."""
        environment = {"PATH": os.environ["PATH"], **self.settings, **_marked(), **variables}
        return self._add(McpClient(MCP, environment))

    def mcp_outside(self, **variables: str) -> McpClient:
        """An MCP process that descends from nobody who has opened a panel; the handshake is done."""
        environment = {"PATH": os.environ["PATH"], **self.settings, **_marked(), **variables}
        let_go = 'exec 3<&0; "$0" "$@" <&3 3<&- &'  # what a shell leaves in the background gets its own input only so
        client = self._add(McpClient(["/bin/sh", "-c", let_go, *MCP], environment))
        client.shake_hands()
        return client

    def open(self, kind: str, **options: Any) -> ClaudePanel | CodexPanel | GrokPanel:
        """A panel of ``claude``, ``claude197``, ``codex``, ``codex154``, ``codex147`` or ``grok``."""
        if kind == "grok":
            return self.grok(**options)
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

    def open_deliveries(self) -> int:
        """How many are under way; cheap, where there are thousands."""
        return self._count("state IN ('queued', 'delivering', 'awaiting-peer')")

    def finished_requests(self) -> int:
        states = ", ".join(f"'{state}'" for state in FINAL)
        return self._count(f"kind = 'request' AND state IN ({states})")

    def _count(self, which: str) -> int:
        return sum(row[0] for row in self._query(f"SELECT count(*) FROM deliveries WHERE {which}"))

    def _rows(self, query: str) -> list[Json]:
        return [json.loads(row[0]) for row in self._query(query)]

    def _query(self, query: str) -> list[Any]:
        if not os.path.exists(self.home.database):
            return []
        with closing(sqlite3.connect(f"file:{self.home.database}?mode=ro", uri=True, timeout=5)) as database:
            try:
                return database.execute(query).fetchall()
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
        record = living_or_starting(self.home, time.monotonic() + 5)
        if record is not None:
            os.kill(record.pid, signal.SIGCONT)
            os.kill(record.pid, signal.SIGTERM)
            if not gone_within(record.pid, 5):
                os.kill(record.pid, signal.SIGKILL)
                gone_within(record.pid, 5)
        assert "Event loop is closed" not in self.log(), "a broker let go of a process too late"


_CLAUDE_ARGUMENTS = (
    *("--input-format", "stream-json", "--output-format", "stream-json", "--verbose", "--replay-user-messages"),
    *("--permission-prompt-tool", "stdio"),
)


class Bell:
    """Rung when a broker has published itself. `broker.rendezvous.WakeUp` is one for each process, and a test may hold many."""

    def __init__(self, home: Home) -> None:
        name = f"test-{uuid.uuid4().hex}"
        self._path, hidden = os.path.join(home.wake, name), os.path.join(home.root, name)
        os.mkfifo(hidden, 0o600)
        self.fd = os.open(hidden, os.O_RDWR | os.O_NONBLOCK)
        os.rename(hidden, self._path)  # one at which nobody listens is removed by whoever rings it

    def drain(self) -> None:
        try:
            os.read(self.fd, 4096)
        except BlockingIOError:
            pass

    def close(self) -> None:
        os.close(self.fd)
        os.unlink(self._path)


def _marked() -> dict[str, str]:
    mark = os.environ.get("CROSS_AGENT_TEST_MARK")
    return {"CROSS_AGENT_TEST_MARK": mark} if mark else {}
