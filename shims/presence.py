"""A shim's record on disk: it lives, and hosts these sessions, whether or not it is connected (SH-22).

Owns ``run/shims/<pid>@<start>.json``: written by the shim, read by the broker, which takes no session for dormant while a
living process of this record hosts it. Removed at exit; a record whose process is gone means nothing.
"""

from __future__ import annotations

import json
import os
from typing import NamedTuple

from broker.processes import ProcessId, identify


class Presence(NamedTuple):
    """What a record says. ``sessions`` are ids; ``child`` is the agent's pid."""

    pid: int
    start: int
    agent: str
    real: str
    child: int
    cwd: str
    sessions: tuple[str, ...]

    @property
    def process(self) -> ProcessId:
        return ProcessId(self.pid, self.start)


class PresenceRecord:
    """The record of this process."""

    def __init__(self, directory: str, *, agent: str, real: str, child: int, cwd: str) -> None:
        me = identify(os.getpid()) or ProcessId(os.getpid(), 0)
        self._path = os.path.join(directory, f"{me}.json")
        self._written: Presence | None = None
        self._me = me
        self._facts = (agent, real, child, cwd)

    def update(self, sessions: tuple[str, ...]) -> None:
        """Writes the record if it would say something new. Raises OSError where the directory takes none."""
        agent, real, child, cwd = self._facts
        presence = Presence(self._me.pid, self._me.start, agent, real, child, cwd, sessions)
        if presence == self._written:
            return
        draft = f"{self._path}.new"
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
            json.dump(presence._asdict(), file)
        os.replace(draft, self._path)
        self._written = presence

    def remove(self) -> None:
        _remove(self._path)


def is_shim(directory: str, process: ProcessId) -> bool:
    """Whether ``process`` has left a record: it is a shim, registered or not."""
    return os.path.exists(os.path.join(directory, f"{process}.json"))


def living(directory: str) -> list[Presence]:
    """The records of shims that are alive; those of dead ones are removed."""
    alive = []
    try:
        entries = list(os.scandir(directory))
    except OSError:
        return []
    for entry in entries:
        presence = _read(entry.path) if entry.name.endswith(".json") else None
        if presence is not None and presence.process.alive():
            alive.append(presence)
        elif presence is not None:
            _remove(entry.path)
    return alive


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        pass  # never written, removed by its owner meanwhile, or gone with the whole home


def _read(path: str) -> Presence | None:
    try:
        with open(path, encoding="utf-8") as file:
            record = json.load(file)
        record["sessions"] = tuple(record["sessions"])
        return Presence(**{name: record[name] for name in Presence._fields})  # a later version may say more
    except (OSError, ValueError, TypeError, KeyError):
        return None
