"""The files of one session as the Grok stub keeps them: ``<home>/sessions/<directory>/<session>/``.

Owns their places and format. Of what the real agent keeps there, it writes what others read or what decides how a session
goes on: ``summary.json``, ``updates.jsonl``, ``events.jsonl`` and the model's ``chat_history.jsonl``.
"""

from __future__ import annotations

import json
import os
import time
import zlib

from shims.stub_values import iso_now

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Final

MODEL: Final = "scripted"
_PLAIN: Final = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-~")
_LONGEST: Final = 255


class SessionFiles:
    """The directory of a session; what it holds is known after ``create`` or ``open``."""

    def __init__(self, home: str, session: str, cwd: str) -> None:
        self._home = home
        self._cwd = cwd
        self.path = os.path.join(home, "sessions", directory_name(cwd), session)
        self.session = session
        self.summary: dict[str, Any] = {}
        self.muted = False
        self._updates = -1

    def create(self) -> None:
        os.makedirs(self.path, mode=0o700)
        parent = os.path.dirname(self.path)
        if os.path.basename(parent) != quoted(self._cwd):
            with open(os.path.join(parent, ".cwd"), "w", encoding="utf-8") as file:
                file.write(self._cwd)
        now = iso_now()
        self.summary = {
            "info": {"id": self.session, "cwd": self._cwd},
            "session_summary": "",
            "created_at": now,
            "updated_at": now,
            "num_messages": 0,
            "current_model_id": MODEL,
            "grok_home": self._home,
            "agent_name": "grok-build-plan",
        }
        self.note()

    def open(self) -> bool:
        """False: there is no such session of this working directory."""
        try:
            with open(os.path.join(self.path, "summary.json"), encoding="utf-8") as file:
                self.summary = json.load(file)
        except OSError:
            return False
        return True

    def close(self) -> None:
        if self._updates >= 0:
            os.close(self._updates)
            self._updates = -1

    # the summary

    def note(self, **facts: Any) -> None:
        """Writes the summary with ``facts`` in it."""
        if self.muted:
            return
        self.summary |= {"updated_at": iso_now(), **facts}
        part = os.path.join(self.path, "summary.json.tmp")
        with open(part, "w", encoding="utf-8") as file:
            json.dump(self.summary, file, ensure_ascii=False, indent=2)
        os.replace(part, os.path.join(self.path, "summary.json"))

    # the updates

    def append(self, method: str, params: dict[str, Any]) -> None:
        if self.muted:
            return
        if self._updates < 0:
            path = os.path.join(self.path, "updates.jsonl")
            self._updates = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        line = {"timestamp": int(time.time()), "method": method, "params": params}
        os.write(self._updates, _line(line))
        self.summary["num_messages"] += 1

    def updates(self) -> list[dict[str, Any]]:
        """Every whole line."""
        return _records(os.path.join(self.path, "updates.jsonl"))

    # what the model has seen

    def remember(self, role: str, text: str) -> None:
        content: Any = [{"type": "text", "text": text}] if role == "user" else text
        if not self.muted:
            self._add("chat_history.jsonl", {"type": role, "content": content})

    # what has happened: kept to the very end of the process, when all else is kept no more

    def happened(self, what: str, **facts: str) -> None:
        self._add("events.jsonl", {"ts": iso_now(), "type": what, **facts})

    def was_cut_off(self) -> bool:
        """The last process died in a turn."""
        events = [event for event in _records(os.path.join(self.path, "events.jsonl")) if event["type"].startswith("turn_")]
        return bool(events) and events[-1]["type"] == "turn_started"

    def _add(self, name: str, record: dict[str, Any]) -> None:
        with open(os.path.join(self.path, name), "ab") as file:
            file.write(_line(record))


def stored(home: str) -> list[dict[str, Any]]:
    """The summaries of all sessions, the newest first."""
    found = []
    root = os.path.join(home, "sessions")
    for folder, _, names in os.walk(root):
        if "summary.json" in names:
            with open(os.path.join(folder, "summary.json"), encoding="utf-8") as file:
                found.append(json.load(file))
    return sorted(found, key=lambda summary: str(summary["updated_at"]), reverse=True)


def find(home: str, session: str) -> SessionFiles | None:
    """A session by its id, wherever it works."""
    for summary in stored(home):
        if summary["info"]["id"] == session:
            files = SessionFiles(home, session, summary["info"]["cwd"])
            return files if files.open() else None
    return None


def directory_name(cwd: str) -> str:
    name = quoted(cwd)
    if len(name) <= _LONGEST:
        return name
    slug = "".join(letter if letter.isalnum() else "-" for letter in os.path.basename(cwd)[-40:])
    return f"{slug}-{zlib.crc32(name.encode()):016x}"


def quoted(path: str) -> str:
    """Per cent signs for all but letters, digits and ``_.-~``."""
    return "".join(chr(byte) if byte in _PLAIN else f"%{byte:02X}" for byte in os.fsencode(path))


def _line(record: dict[str, Any]) -> bytes:
    return json.dumps(record, ensure_ascii=False, separators=(",", ":")).encode(errors="surrogatepass") + b"\n"


def _records(path: str) -> list[dict[str, Any]]:
    """The whole lines of a file that a killed process may have left in the middle of one."""
    found = []
    try:
        with open(path, "rb") as file:
            for line in file:
                try:
                    found.append(json.loads(line))
                except ValueError:
                    continue
    except FileNotFoundError:
        return []
    return found
