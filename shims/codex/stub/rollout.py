"""The files of one Codex home as the stub keeps them: rollouts, the index of names, writer locks.

Owns their format and places. 0.147 writes user and agent messages as events; later versions write completed items and
number their lines. The SQLite databases that Codex keeps beside them are not imitated.
"""

from __future__ import annotations

import fcntl
import json
import os
import time

from shims.stub_values import iso_now

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Final

    from shims.codex.stub.options import Options

SUFFIX: Final = ".jsonl"
ID_LENGTH: Final = 36


class Rollout:
    """The file of one thread; it comes into being with the first turn or name."""

    def __init__(self, options: Options, thread_id: str, path: str | None = None) -> None:
        self._options = options
        self._descriptor = -1
        self._ordinal = 0
        self.thread_id = thread_id
        stamp = time.strftime("%Y-%m-%dT%H-%M-%S")
        folder = os.path.join(options.codex_home, "sessions", *stamp[:10].split("-"))
        self.path = path or os.path.join(folder, f"rollout-{stamp}-{thread_id}{SUFFIX}")

    @property
    def exists(self) -> bool:
        return os.path.exists(self.path)

    def create(self, meta: dict[str, Any]) -> None:
        """Writes the first line, unless the file is there already."""
        if not self.exists:
            os.makedirs(os.path.dirname(self.path), mode=0o700, exist_ok=True)
            self.write("session_meta", meta)

    def records(self) -> list[dict[str, Any]]:
        with open(self.path, encoding="utf-8") as file:
            found = [record for record in map(parse, file) if record]
        self._ordinal = len(found)
        return found

    def write(self, kind: str, payload: dict[str, Any]) -> None:
        if self._descriptor < 0:
            self._descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        record: dict[str, Any] = {"timestamp": iso_now()}
        if self._options.has_queue:
            record["ordinal"] = self._ordinal
        self._ordinal += 1
        line = json.dumps({**record, "type": kind, "payload": payload}, ensure_ascii=False, separators=(",", ":"))
        os.write(self._descriptor, line.encode() + b"\n")

    def event(self, kind: str, **fields: Any) -> None:
        self.write("event_msg", {"type": kind, **fields})

    def item(self, turn_id: str, item: dict[str, Any]) -> None:
        """A finished message, in the version's way."""
        if self._options.has_queue:
            self.event("item_completed", thread_id=self.thread_id, turn_id=turn_id, item=rollout_item(item))
        elif item["type"] == "userMessage":
            text = "".join(part.get("text", "") for part in item["content"])
            self.event("user_message", client_id=item["clientId"], message=text, images=[], text_elements=[])
        else:
            self.event("agent_message", message=item["text"], phase=item["phase"], memory_citation=None)

    def archive(self) -> None:
        """Moves the file to the archive."""
        folder = os.path.join(self._options.codex_home, "archived_sessions")
        os.makedirs(folder, mode=0o700, exist_ok=True)
        target = os.path.join(folder, os.path.basename(self.path))
        os.replace(self.path, target)
        self.path = target
        self.close()

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def parse(line: str) -> dict[str, Any]:
    """One record; empty for a line that a killed process left unfinished."""
    try:
        record = json.loads(line)
    except ValueError:
        return {}
    return record if isinstance(record, dict) else {}


def rollout_item(item: dict[str, Any]) -> dict[str, Any]:
    if item["type"] == "userMessage":
        written = {"type": "UserMessage", "id": item["id"], "content": item["content"]}
        return written if item["clientId"] is None else {**written, "client_id": item["clientId"]}
    text = [{"type": "Text", "text": item["text"]}]
    return {"type": "AgentMessage", "id": item["id"], "content": text, "phase": item["phase"]}


def find(options: Options, thread_id: str) -> str | None:
    """The rollout of a thread that isn't archived."""
    return next((path for path in all_paths(options) if path.endswith(f"-{thread_id}{SUFFIX}")), None)


def all_paths(options: Options, *, archived: bool = False) -> list[str]:
    root = os.path.join(options.codex_home, "archived_sessions" if archived else "sessions")
    return [
        os.path.join(folder, name)
        for folder, _, names in os.walk(root)
        for name in names
        if name.startswith("rollout-") and name.endswith(SUFFIX)
    ]


def thread_id_of(path: str) -> str:
    return os.path.basename(path)[: -len(SUFFIX)][-ID_LENGTH:]


# names


def read_names(options: Options) -> dict[str, str]:
    """The last name of each named thread."""
    names: dict[str, str] = {}
    try:
        with open(index_path(options), encoding="utf-8") as file:
            for line in file:
                entry = json.loads(line)
                names[entry["id"]] = entry["thread_name"]
    except FileNotFoundError:
        pass
    return names


def write_name(options: Options, thread_id: str, name: str) -> None:
    entry = {"id": thread_id, "thread_name": name, "updated_at": iso_now()}
    with open(index_path(options), "a", encoding="utf-8") as file:
        file.write(json.dumps(entry, ensure_ascii=False, separators=(",", ":")) + "\n")


def index_path(options: Options) -> str:
    return os.path.join(options.codex_home, "session_index.jsonl")


# the writer lock


class WriterLock:
    """``thread-writer-locks/<id>.lock``, held while this process has the thread loaded."""

    __slots__ = ("_descriptor", "_path")

    def __init__(self, options: Options, thread_id: str) -> None:
        folder = os.path.join(options.codex_home, "thread-writer-locks")
        os.makedirs(folder, mode=0o700, exist_ok=True)
        self._path = os.path.join(folder, f"{thread_id}.lock")
        self._descriptor = -1

    def acquire(self) -> bool:
        """False if another process has the thread loaded."""
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return False
        self._descriptor = descriptor
        return True

    def release(self) -> None:
        if self._descriptor >= 0:
            os.unlink(self._path)
            os.close(self._descriptor)
            self._descriptor = -1


# values
