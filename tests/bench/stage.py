"""The stage of a measurement: a state directory of its own, shims, MCP clients, and their end."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from broker.cli.calls import call, stop_broker
from broker.paths import Home

ROOT = Path(__file__).resolve().parents[2]
CHILDREN = ROOT / "tests" / "bench" / "children"
BARE = (sys.executable, "-I", "-S")
MCP = (*BARE, str(ROOT / "mcp_server" / "__main__.py"))
PATIENCE = 30.0


_PANEL_CALL = {
    "claude": ("--input-format", "stream-json", "--replay-user-messages"),
    "codex": ("app-server",),
    "grok": ("agent", "stdio"),
}


def python_child(path: Path, name: str, *arguments: str) -> Path:
    """``children/<name>`` as an executable without an interpreter search in front; ``arguments`` go before all others."""
    launcher = path / "-".join((name.removesuffix(".py"), *arguments))
    launcher.write_text(f'#!/bin/sh\nexec {shlex.join((*BARE, str(CHILDREN / name), *arguments))} "$@"\n')
    launcher.chmod(0o755)
    return launcher


class Stage:
    """Everything of one measurement; `close` ends every process that was started on it."""

    def __init__(self, path: Path, *, autostart: bool) -> None:
        self.path = path
        self.home = Home(str(path / "state"))
        self.environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(path),
            "CROSS_AGENT_HOME": self.home.root,
            "CROSS_AGENT_AUTOSTART": "on" if autostart else "off",
            "CLAUDE_CONFIG_DIR": str(path / "claude"),
        }
        self._stack = ExitStack()

    def spawn(self, command: Sequence[str], **options: Any) -> subprocess.Popen[bytes]:
        options.setdefault("stdout", subprocess.PIPE)
        process = subprocess.Popen(command, stdin=subprocess.PIPE, bufsize=0, env=self.environment, cwd=self.path, **options)
        self._stack.callback(end, process)
        return process

    def run(self, command: Sequence[str], variables: Mapping[str, str]) -> None:
        """A command that ends by itself."""
        environment = {**self.environment, **variables}
        subprocess.run(command, env=environment, cwd=self.path, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=True)

    def shim(self, child: Path, *arguments: str, agent: str = "claude", **options: Any) -> subprocess.Popen[bytes]:
        """A panel whose agent is ``child``, which gets ``arguments`` last."""
        shim = str(ROOT / "bin" / f"{agent}-shim")
        self.environment[f"CROSS_AGENT_REAL_{agent.upper()}"] = str(child)
        wrapped = (str(child),) if agent == "claude" else ()
        return self.spawn((shim, *wrapped, *_PANEL_CALL[agent], *arguments), **options)

    def panel(self, sink: Path, report: str = "-") -> tuple[subprocess.Popen[bytes], str]:
        """A linked panel with a conversation, whose editor reads everything; its session id."""
        session = str(uuid.uuid4())
        process = self.shim(sink, "--resume", session, session, report, stdout=subprocess.DEVNULL)
        write_line(process, {"type": "control_request", "request_id": "1", "request": {"subtype": "initialize"}})
        return process, session

    def wait_for_panels(self, count: int) -> None:
        deadline = time.monotonic() + PATIENCE + count
        while (facts := call(self.home, "status", start=True))["panels"] < count:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{count} panels did not register")
            call(self.home, "next_event", after=facts["event_sequence"])

    def mcp(self) -> McpClient:
        return McpClient(self.spawn(MCP))

    def close(self) -> None:
        self._stack.close()
        stop_broker(self.home)


class McpClient:
    """A client that speaks just enough."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self._number = 0
        self._rest = b""

    def initialize(self) -> None:
        parameters = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "bench", "version": "0"}}
        self.request("initialize", parameters)
        write_line(self.process, {"jsonrpc": "2.0", "method": "notifications/initialized"})

    def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        result = self.request("tools/call", {"name": tool, "arguments": arguments})
        if result.get("isError"):
            raise RuntimeError(result["structuredContent"])
        structured: dict[str, Any] = result["structuredContent"]
        return structured

    def calls(self, tool: str, all_arguments: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """Calls at once; what they were answered, in the order of the calls."""
        first = self._number + 1
        for arguments in all_arguments:
            self._number += 1
            parameters = {"name": tool, "arguments": arguments}
            write_line(self.process, {"jsonrpc": "2.0", "id": self._number, "method": "tools/call", "params": parameters})
        answers: dict[int, dict[str, Any]] = {}
        while len(answers) < len(all_arguments):
            answer = json.loads(self._read_line())
            if answer.get("id", 0) >= first:
                answers[answer["id"]] = answer["result"]["structuredContent"]
        return [answers[number] for number in sorted(answers)]

    def request(self, method: str, parameters: dict[str, Any]) -> dict[str, Any]:
        self._number += 1
        write_line(self.process, {"jsonrpc": "2.0", "id": self._number, "method": method, "params": parameters})
        while True:
            answer = json.loads(self._read_line())
            if answer.get("id") == self._number:
                result: dict[str, Any] = answer["result"]
                return result

    def _read_line(self) -> bytes:
        assert self.process.stdout is not None
        while b"\n" not in self._rest:
            chunk = os.read(self.process.stdout.fileno(), 1 << 20)
            if not chunk:
                raise EOFError("the MCP process has ended")
            self._rest += chunk
        line, _, self._rest = self._rest.partition(b"\n")
        return line


@contextmanager
def stage(*, autostart: bool = False) -> Iterator[Stage]:
    path = Path(tempfile.mkdtemp(prefix="xa-bench-", dir="/tmp"))
    built = Stage(path, autostart=autostart)
    try:
        built.home.prepare()
        yield built
    finally:
        built.close()
        shutil.rmtree(path, ignore_errors=True)


def write_line(process: subprocess.Popen[bytes], message: dict[str, Any]) -> None:
    assert process.stdin is not None
    os.write(process.stdin.fileno(), json.dumps(message).encode() + b"\n")


def end(process: subprocess.Popen[bytes]) -> None:
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            stream.close()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(10)


def until(condition: Callable[[], bool], patience: float = PATIENCE) -> None:
    """For what no event tells: a process's memory settling after its start. Bounded."""
    deadline = time.monotonic() + patience
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError("the measured process did not settle")
        time.sleep(0.02)
