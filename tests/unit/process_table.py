"""A process table that a test writes: parents, programs, environments, and what Claude's registry shows of a process.

Owns nothing that outlives a test.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path

import pytest

from broker import callers, panels
from broker.processes import ProcessId
from shims.claude import live


class Table:
    """Parents and programs; a pid's start is its pid."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._parents: dict[int, int] = {}
        self._programs: dict[int, str] = {}
        self.environments: dict[int, dict[str, str] | None] = {}
        """What a process was started with; None: it cannot be read."""
        self.arguments: dict[int, list[str]] = {}
        monkeypatch.setattr(callers, "variables", self.variables)
        self.directories: dict[int, str] = {}
        """Where a process works."""
        monkeypatch.setattr(callers, "working_directory", lambda pid: self.directories.get(pid, "/"))
        monkeypatch.setattr(callers, "argv", lambda pid: self.arguments.get(pid, []))
        monkeypatch.setattr(live, "_is_there", lambda pid: pid in self._parents)
        monkeypatch.setattr(live, "identify", lambda pid: ProcessId(pid, pid) if pid in self._parents else None)
        for module in (callers, panels):
            monkeypatch.setattr(module, "ancestors", self.ancestors)
            monkeypatch.setattr(module, "executable", self._programs.get)

    def line(self, *programs: str) -> ProcessId:
        """Processes that have started one another, the first one first; returns the last."""
        parent = 1
        for program in programs:
            pid = 90_000_000 + len(self._parents)
            self._parents[pid], self._programs[pid] = parent, program
            parent = pid
        return ProcessId(parent, parent)

    def below(self, process: ProcessId, *programs: str) -> ProcessId:
        last = self.line(*programs)
        self._parents[last.pid - len(programs) + 1] = process.pid
        return last

    def ancestors(self, pid: int) -> list[ProcessId]:
        found = []
        while pid > 1 and pid in self._parents:
            found.append(ProcessId(pid, pid))
            pid = self._parents[pid]
        return found

    def variables(self, pid: int, names: Collection[str]) -> dict[str, str] | None:
        environment = self.environments.get(pid, {})
        return None if environment is None else {name: value for name, value in environment.items() if name in names}


def parent(process: ProcessId) -> ProcessId:
    """Of a process in the table that was not put below another one: the one listed before it."""
    return ProcessId(process.pid - 1, process.pid - 1)


def registered(store: Path, agent: ProcessId, session: str, start: int | None = None) -> None:
    """Claude's registry shows ``session`` for a process that started then."""
    (store / "sessions").mkdir(parents=True, exist_ok=True)
    record = {"pid": agent.pid, "procStart": str(agent.start if start is None else start), "sessionId": session}
    (store / "sessions" / f"{agent.pid}.json").write_text(json.dumps(record))
