"""Claude Code's live registry: which process holds which session.

Owns reading of ``<store>/sessions/<pid>.json``, and what such a record is worth; never writes there. It counts only while its
process lives with the start time it names (Linux: field 22 of ``/proc/<pid>/stat``), or, where it names none, while a Claude
has that pid which was there when it was written: the file stays behind after SIGKILL, and two processes may hold one session.
Measured with 2.1.197 and 2.1.332 (protocols: claude.md, section 3).
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from broker.processes import ProcessId, argv, executable, had_begun, identify
from shims.claude import facts

PROGRAM = re.compile(r"/claude(\.exe)?$|/claude/versions/[^/]+$")  # the native installer's file is named by its version
_SCRIPT = re.compile(r"/claude$|/claude-code/[^/]+\.m?js$")


class Record(NamedTuple):
    """One living process. ``name_given``: somebody chose the name (2.1.332 tells; a derived one is no name)."""

    process: ProcessId
    session: str
    cwd: str
    kind: str
    entrypoint: str
    name: str
    name_given: bool


def store(environment: Mapping[str, str]) -> str:
    """Claude Code's data directory as a process with ``environment`` sees it."""
    return environment.get("CLAUDE_CONFIG_DIR") or os.path.join(os.path.expanduser("~"), ".claude")


def holder(pid: int, evidence: str) -> ProcessId | None:
    """The process that has ``pid``, if it is the one that a record with this ``evidence`` is of (`facts.evidence`)."""
    process = identify(pid) if _is_there(pid) else None
    if process is None or evidence == str(process.start):
        return process
    written = facts.written(evidence)
    return process if written and had_begun(process, written) and _is_claude(pid) else None


def _is_claude(pid: int) -> bool:
    """Also one that an interpreter runs: its script is an argument then."""
    return bool(PROGRAM.search(executable(pid) or "")) or any(_SCRIPT.search(argument) for argument in argv(pid)[1:3])


def _is_there(pid: int) -> bool:
    """A question that costs a third of looking the process up: most of a registry may be dead."""
    if pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def read(store: str, pid: int) -> Record | None:
    """The record of ``pid``, None when there is none or its process is another one by now."""
    found = _found(store, pid)
    if found is None or "sessionId" not in found[1]:
        return None
    process, raw = found
    return Record(
        process,
        str(raw["sessionId"]),
        str(raw.get("cwd") or ""),
        str(raw.get("kind") or ""),
        str(raw.get("entrypoint") or ""),
        str(raw.get("name") or ""),
        raw.get("nameSource") == "user",
    )


def entry(store: str, process: ProcessId) -> dict[str, Any] | None:
    """What ``process`` says of itself, as it is in its file; None when there is no such file, or it is another process's."""
    found = _found(store, process.pid)
    return found[1] if found is not None and found[0] == process else None


def _found(store: str, pid: int) -> tuple[ProcessId, dict[str, Any]] | None:
    """The process that the file of ``pid`` is of, and what is in it; None when it is no living one's."""
    try:
        with open(os.path.join(store, "sessions", f"{pid}.json"), encoding="utf-8") as file:
            raw = json.load(file)
            written = os.fstat(file.fileno()).st_mtime
    except (OSError, ValueError):
        return None
    process = holder(pid, facts.evidence(raw.get("procStart"), written)) if isinstance(raw, dict) else None
    return (process, raw) if process is not None else None


def held_by(store: str, process: ProcessId) -> str:
    """The session that ``process`` has open now. Its environment is no such word: `/clear` and `--continue` move the id."""
    record = read(store, process.pid)
    return record.session if record is not None and record.process == process else ""


def holders(store: str, session: str) -> list[ProcessId]:
    """Every living process that holds ``session``."""
    try:
        names = os.listdir(os.path.join(store, "sessions"))
    except OSError:
        return []
    records = (read(store, int(name[:-5])) for name in names if name.endswith(".json") and name[:-5].isdecimal())
    return [record.process for record in records if record is not None and record.session == session]
