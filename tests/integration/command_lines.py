"""Turns on command lines, seen from outside: the agents' records, the processes that are there, the files that are left.

Owns the stubs' wrappers, by which a test slips something in between a runner and its agent, and the proof that nothing is left
of a turn: neither files nor processes, which are known by the conversation that each is told (EN-13).
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from broker.processes import ProcessId, identify
from tests.integration.brokers import Brokers
from tests.integration.lines import Json
from tests.integration.panels import McpClient
from tests.integration.panels.panel import records
from tests.integration.startable import CommandLines
from tests.integration.world import FINAL, ROOT

STORES = {"claude": ".claude", "codex": ".codex", "grok": ".grok"}
_RECORDS = {
    "claude": "projects/*/*.jsonl",
    "codex": "sessions/*/*/*/rollout-*.jsonl",
    "grok": "sessions/*/*/updates.jsonl",
}
_OF_A_TURN = b"CROSS_AGENT_CONVERSATION_ID="
_CLEAN = 10.0
"""Seconds after a turn's end in which its processes are gone, and its files."""


class Turns(CommandLines):
    """A world in which turns may be started, and looked at."""

    def __init__(self, home: Path, brokers: Brokers, **settings: str) -> None:
        super().__init__(home, brokers, **settings)
        self.client: McpClient = self.caller()

    # what runs in place of an agent

    def wrap(self, agent: str, *lines: str) -> None:
        """Shell lines that run in the agent's process before it is the stub; they have its descriptors, but take nothing."""
        program = f'exec {sys.executable} -I -S {ROOT}/shims/{agent}/stub/__main__.py "$@"'
        (self.bin / agent).write_text("\n".join(("#!/bin/sh", *lines, program, "")))

    def replace(self, agent: str, *lines: str) -> None:
        """Shell lines in place of the agent."""
        (self.bin / agent).write_text("\n".join(("#!/bin/sh", *lines, "")))

    def gate(self, name: str = "gate") -> Path:
        """A FIFO at which a scripted step waits."""
        path = Path(self.home.root, name)
        os.mkfifo(path)
        return path

    # sending

    def message(self, marker: str, script: str = "") -> str:
        """A message whose script stands beyond what a summary quotes."""
        return f"ping {marker} {'.' * 100} [[{script or f'reply pong {marker}'}]]"

    def begin(self, agent: str, text: str, session: str = "", **arguments: Any) -> Json:
        """Sends, and waits until the turn has begun; the receipt."""
        receipt = self.send(self.client, agent, text, session, **arguments)
        assert receipt.get("ok"), receipt
        self.reaches(receipt, "awaiting-peer")
        return receipt

    # what became of it

    def delivery(self, receipt: Json) -> Json:
        return next(record for record in self.deliveries() if record["id"] == receipt["delivery_id"])

    def reaches(self, receipt: Json, *states: str, timeout: float = 20.0) -> Json:
        """The delivery, in one of ``states``."""
        self.until(lambda: self.delivery(receipt)["state"] in states, f"{receipt['delivery_id']} {states}", timeout)
        return self.delivery(receipt)

    def ended(self, receipt: Json, timeout: float = 20.0) -> Json:
        return self.reaches(receipt, *FINAL, timeout=timeout)

    def taken(self, agent: str, marker: str) -> int:
        """How often the agent has taken a message with ``marker`` into any of its conversations."""
        return sum(marker in prompt for prompt in self.messages(agent))

    def messages(self, agent: str, session: str = "") -> list[str]:
        """Every message of ours that the agent has taken in, into this conversation or any, in its order."""
        files = [path for path in (self.user / STORES[agent]).glob(_RECORDS[agent]) if session in str(path)]
        found = [prompt for path in files for record in records(path) for prompt in _prompts(agent, record)]
        return [prompt for prompt in found if "BRIDGE MESSAGE" in prompt]

    # processes

    def processes(self) -> dict[ProcessId, str]:
        """Runners, agents, and what they have started, with their command lines."""
        needle = f"CROSS_AGENT_HOME={self.home.root}".encode()
        found = {}
        for entry in os.scandir("/proc"):
            if not entry.name.isdecimal():
                continue
            try:
                environment = Path(entry.path, "environ").read_bytes().split(b"\0")
                line = Path(entry.path, "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue  # gone meanwhile
            process = identify(int(entry.name))
            if process is not None and needle in environment and any(v.startswith(_OF_A_TURN) for v in environment):
                found[process] = line
        return found

    def runner(self) -> ProcessId:
        """The one that runs now."""
        return self._process(lambda line: "turns/program.py" in line)

    def agent_process(self, agent: str) -> ProcessId:
        """The agent of the one turn that runs now."""
        return self._process(lambda line: f"shims/{agent}/stub" in line)

    def _process(self, fits: Callable[[str], bool]) -> ProcessId:
        deadline = time.monotonic() + _CLEAN
        while time.monotonic() < deadline:
            found = [process for process, line in self.processes().items() if fits(line)]
            if len(found) == 1:
                return found[0]
            select.select([], [], [], 0.01)
        raise AssertionError(f"not one such process: {self.processes()}")

    def left(self) -> list[str]:
        """Files of turns, and processes, that are there when everything has ended, after a moment."""
        deadline = time.monotonic() + _CLEAN
        while found := [*os.listdir(self.home.turns), *self.processes().values()]:
            if time.monotonic() > deadline:
                break
            select.select([], [], [], 0.02)
        return found

    def close(self) -> None:
        super().close()
        for process in self.processes():
            os.kill(process.pid, signal.SIGKILL)


def _prompts(agent: str, record: Json) -> list[str]:
    if agent == "claude":
        content = record.get("message", {}).get("content")
        return [content] if record.get("type") == "user" and isinstance(content, str) else []
    if agent == "codex":
        payload = record.get("payload", {})
        is_prompt = record.get("type") == "response_item" and payload.get("role") == "user"
        return ["".join(part.get("text", "") for part in payload["content"])] if is_prompt else []
    update = record.get("params", {}).get("update", {})
    return [str(update["content"]["text"])] if update.get("sessionUpdate") == "user_message_chunk" else []
