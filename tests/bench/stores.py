"""Stores of the size that a year leaves behind: thousands of sessions of each agent, some of them huge (sparse) files.

Owns their making. Records have the shape and about the size of what the real agents write (2.1.332, 0.171.0, 1.0.41), with
fewer turns.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

CLAUDE, CODEX, GROK = 5000, 5000, 1000
_HUGE = (1 << 30, *[100 << 20] * 5)
_PROJECTS = 120
_DEAD = 500
_WORDS = "the quick brown fox jumps over the lazy dog " * 40
_TIME = "2026-11-%02dT10:%02d:%02d.123Z"


def make(home: Path, cwd: str) -> None:
    """All three stores below ``home``; one session of each works in ``cwd``."""
    for number in range(CLAUDE):
        _claude(home / ".claude", number, cwd if number == 7 else f"/work/project-{number % _PROJECTS}")
    for number in range(_DEAD):
        _dead_record(home / ".claude" / "sessions", number)
    for number in range(CODEX):
        _codex(home / ".codex", number, cwd if number == 7 else f"/work/project-{number % _PROJECTS}")
    names = ({"id": _id("codex", n), "thread_name": f"thread name {n}", "updated_at": _stamp(n)} for n in range(0, CODEX, 4))
    (home / ".codex" / "session_index.jsonl").write_text("".join(json.dumps(name) + "\n" for name in names))
    for number in range(GROK):
        _grok(home / ".grok", number, cwd if number == 7 else f"/work/project-{number % _PROJECTS}")


def _id(agent: str, number: int) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"{agent}/{number}"))


def _stamp(number: int) -> str:
    return _TIME % (1 + number % 28, number // 28 % 60, number % 60)


def _claude(store: Path, number: int, cwd: str) -> None:
    session = _id("claude", number)
    folder = store / "projects" / "".join(c if c.isalnum() else "-" for c in cwd)
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / f"{session}.jsonl", "w", encoding="utf-8") as file:
        for entry in _turns(session, number, cwd):
            file.write(json.dumps(entry, separators=(",", ":")) + "\n")
        if number < len(_HUGE):
            file.truncate(_HUGE[number])
            file.seek(0, os.SEEK_END)
            file.write("\n")
            for entry in _turns(session, number, cwd):
                file.write(json.dumps(entry, separators=(",", ":")) + "\n")
        if number % 5 == 0:
            file.write(json.dumps({"type": "custom-title", "customTitle": f"claude name {number}", "sessionId": session},
                                  separators=(",", ":")) + "\n")  # fmt: skip


def _turns(session: str, number: int, cwd: str) -> Iterator[dict[str, object]]:
    common = {"isSidechain": False, "sessionId": session, "cwd": cwd, "version": "2.1.332", "timestamp": _stamp(number)}
    yield {"type": "queue-operation", "operation": "enqueue", "sessionId": session, "timestamp": _stamp(number)}
    for turn in range(4):
        text = f"question {turn} of {number}"
        yield {"type": "user", "message": {"role": "user", "content": text}, "uuid": str(uuid.uuid4()), **common}
        answer = {"role": "assistant", "content": [{"type": "text", "text": _WORDS}]}
        yield {"type": "assistant", "message": answer, "uuid": str(uuid.uuid4()), **common}
    yield {"type": "last-prompt", "lastPrompt": "x", "sessionId": session}


def _dead_record(folder: Path, number: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    pid = 4_000_000 + number
    record = {"pid": pid, "sessionId": _id("claude", number), "cwd": "/work", "procStart": "123", "kind": "interactive"}
    (folder / f"{pid}.json").write_text(json.dumps(record))


def _codex(store: Path, number: int, cwd: str) -> None:
    thread = _id("codex", number)
    day = 1 + number % 28
    folder = store / "sessions" / "2026" / "11" / f"{day:02}"
    folder.mkdir(parents=True, exist_ok=True)
    meta: dict[str, object] = {
        "session_id": thread,
        "id": thread,
        "timestamp": _stamp(number),
        "cwd": cwd,
        "originator": "codex_vscode",
        "cli_version": "0.171.0",
        "source": "vscode",
        "base_instructions": {"text": _WORDS * 8},
    }
    rows: list[tuple[str, dict[str, object]]] = [("session_meta", meta)]
    for turn in range(4):
        rows.append(("event_msg", {"type": "user_message", "message": f"question {turn} of {number}"}))
        rows.append(("event_msg", {"type": "agent_message", "message": _WORDS}))
    with open(folder / f"rollout-2026-11-{day:02}T10-00-00-{thread}.jsonl", "w", encoding="utf-8") as file:
        for ordinal, (kind, payload) in enumerate(rows):
            row = {"timestamp": _stamp(number), "ordinal": ordinal, "type": kind, "payload": payload}
            file.write(json.dumps(row, separators=(",", ":")) + "\n")


def _grok(store: Path, number: int, cwd: str) -> None:
    session = _id("grok", number)
    folder = store / "sessions" / quote(cwd, safe="") / session
    folder.mkdir(parents=True, exist_ok=True)
    summary = {"info": {"id": session, "cwd": cwd}, "session_summary": f"grok {number}", "generated_title": f"grok {number}",
               "title_is_manual": number % 3 == 0, "created_at": _stamp(number), "updated_at": _stamp(number),
               "last_active_at": _stamp(number), "num_messages": 4, "request_id": str(uuid.uuid4())}  # fmt: skip
    (folder / "summary.json").write_text(json.dumps(summary))
    (folder / "updates.jsonl").write_text("{}\n")
