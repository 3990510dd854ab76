"""Sessions that nobody has open, in stores as the agents leave them: the fewest records by which each is known.

Owns the form of what it writes (as of 2.1.332, 0.171.0, 1.0.41), and nothing that runs.
"""

from __future__ import annotations

import json
import time
import uuid
from datetime import datetime, timezone
from pathlib import Path
from typing import Any
from urllib.parse import quote

Json = dict[str, Any]


class ClaudeStore:
    """A ``CLAUDE_CONFIG_DIR``."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def add(self, cwd: str = "/w", *, name: str = "", ago: float = 0.0, aside: bool = False, first: str = "hello") -> str:
        """A session that moved last ``ago`` seconds ago; its id. ``aside``: only a sub-agent wrote into it."""
        session = str(uuid.uuid4())
        message = {"role": "user", "content": first}
        common = {"sessionId": session, "cwd": cwd, "timestamp": _stamp(ago), "isSidechain": aside}
        self.append(session, {"type": "user", "message": message, "uuid": str(uuid.uuid4()), **common}, cwd)
        if name:
            self.rename(session, name, cwd)
        return session

    def rename(self, session: str, name: str, cwd: str = "/w") -> None:
        self.append(session, {"type": "custom-title", "customTitle": name, "sessionId": session}, cwd)

    def append(self, session: str, record: Json, cwd: str = "/w") -> None:
        path = self.transcript(session, cwd)
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record, separators=(",", ":")) + "\n")

    def transcript(self, session: str, cwd: str = "/w") -> Path:
        return self.path / "projects" / "".join(c if c.isalnum() else "-" for c in cwd) / f"{session}.jsonl"

    def register(self, session: str, pid: int, start: int) -> None:
        """The live registry's word that a process has it open."""
        entry = {"pid": pid, "sessionId": session, "cwd": "/w", "procStart": str(start), "kind": "interactive"}
        (self.path / "sessions").mkdir(parents=True, exist_ok=True)
        (self.path / "sessions" / f"{pid}.json").write_text(json.dumps(entry))


class CodexStore:
    """A ``CODEX_HOME``."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def add(self, cwd: str = "/w", *, name: str = "", ago: float = 0.0, archived: bool = False, parent: str = "") -> str:
        thread = str(uuid.uuid4())
        folder = self.path / "archived_sessions" if archived else self.path / "sessions" / "2026" / "11" / "30"
        folder.mkdir(parents=True, exist_ok=True)
        source = {"subagent": {"thread_spawn": {"parent_thread_id": parent}}} if parent else "vscode"
        meta = {"session_id": thread, "id": thread, "timestamp": _stamp(ago), "cwd": cwd, "source": source,
                "thread_source": "subagent" if parent else "user"}  # fmt: skip
        rows = (("session_meta", meta), ("event_msg", {"type": "user_message", "message": "hello"}))
        records = ({"timestamp": _stamp(ago), "type": kind, "payload": payload} for kind, payload in rows)
        path = folder / f"rollout-2026-11-30T10-00-00-{thread}.jsonl"
        path.write_text("".join(json.dumps(record, separators=(",", ":")) + "\n" for record in records))
        if name:
            line = {"id": thread, "thread_name": name, "updated_at": _stamp(ago)}
            with (self.path / "session_index.jsonl").open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
        return thread

    def archive(self, thread: str) -> None:
        (path,) = self.path.glob(f"sessions/*/*/*/rollout-*-{thread}.jsonl")
        (self.path / "archived_sessions").mkdir(exist_ok=True)
        path.rename(self.path / "archived_sessions" / path.name)


class GrokStore:
    """A ``GROK_HOME``."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def add(self, cwd: str = "/w", *, name: str = "", ago: float = 0.0, kind: str = "") -> str:
        session = str(uuid.uuid4())
        folder = self.path / "sessions" / quote(cwd, safe="") / session
        folder.mkdir(parents=True)
        stamp = _stamp(ago)
        summary = {"info": {"id": session, "cwd": cwd}, "session_summary": "hello", "generated_title": name,
                   "title_is_manual": bool(name), "created_at": stamp, "updated_at": stamp, "last_active_at": stamp,
                   "request_id": str(uuid.uuid4()), **({"session_kind": kind} if kind else {})}  # fmt: skip
        (folder / "summary.json").write_text(json.dumps(summary))
        return session


class Stores:
    """One of each, below one directory, and the variables that say so."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.claude, self.codex, self.grok = ClaudeStore(path / "c"), CodexStore(path / "x"), GrokStore(path / "g")

    def environment(self, below: Path | None = None) -> dict[str, str]:
        """What a process sees of them; ``below``: by another way than ``path``."""
        path = below or self.path
        return {"CLAUDE_CONFIG_DIR": f"{path}/c", "CODEX_HOME": f"{path}/x", "GROK_HOME": f"{path}/g", "HOME": str(path)}


def _stamp(ago: float) -> str:
    when = datetime.fromtimestamp(time.time() - ago, timezone.utc)
    return when.isoformat(timespec="milliseconds").replace("+00:00", "Z")
