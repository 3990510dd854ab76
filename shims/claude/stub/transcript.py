"""The transcript ``projects/<slug>/<session id>.jsonl`` of the Claude stub.

Owns the file of one conversation, and the search for an earlier one. Records form a chain by ``parentUuid``; queue
operations and titles stand outside of it. The many blobs that 2.1.332 stores beside them are not imitated.
"""

from __future__ import annotations

import json
import os

from shims.stub_values import iso_now, uuid4

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Final

    from shims.claude.stub.options import Options

SLUG_LIMIT: Final = 200
DIGITS: Final = "0123456789abcdefghijklmnopqrstuvwxyz"


class Transcript:
    """The conversation's file, opened for appending at its first record."""

    def __init__(self, options: Options, session_id: str, *, entrypoint_dir: str | None = None) -> None:
        self._options = options
        self._folder = entrypoint_dir or project_folder(options)
        self._descriptor = -1
        self.session_id = session_id
        self.path = os.path.join(self._folder, f"{session_id}.jsonl")
        self.leaf: str | None = None
        self.seen: set[str] = set()
        self.title: str | None = None

    # read

    def load(self) -> None:
        """Takes up the conversation that the file holds."""
        with open(self.path, encoding="utf-8") as file:
            for line in file:
                self._take_up(parse(line))

    def _take_up(self, record: dict[str, Any]) -> None:
        if "parentUuid" in record:
            self.leaf = record["uuid"]
            self.seen.add(record["uuid"])
        if record.get("type") == "custom-title":
            self.title = record["customTitle"]
        if record.get("type") == "attachment":
            source = record["attachment"].get("source_uuid")
            if source:
                self.seen.add(source)

    def fork(self, source: str) -> None:
        """Begins with a copy of another conversation's records."""
        with open(source, encoding="utf-8") as file:
            for line in file:
                record = parse(line)
                if "sessionId" in record:
                    record["sessionId"] = self.session_id
                self._take_up(record)
                self._append(record)

    # write

    def chain(self, record: dict[str, Any], *, uuid: str | None = None) -> str:
        """Appends one record of the conversation; returns its uuid."""
        identity = uuid or uuid4()
        self._append(
            {
                "parentUuid": self.leaf,
                "isSidechain": False,
                **record,
                "uuid": identity,
                "timestamp": record.get("timestamp") or iso_now(),
                "userType": "external",
                "entrypoint": self._options.entrypoint,
                "cwd": self._options.cwd,
                "sessionId": self.session_id,
                "version": self._options.version,
                "gitBranch": "HEAD",
            }
        )
        self.leaf = identity
        return identity

    def queue(self, operation: str, **details: Any) -> None:
        """Notes that a message was queued, taken or removed."""
        self._append(
            {
                "type": "queue-operation",
                "operation": operation,
                "timestamp": iso_now(),
                "sessionId": self.session_id,
                **details,
            }
        )

    def name(self, title: str) -> None:
        """Notes a title, as each version does."""
        self.title = title
        self._append({"type": "custom-title", "customTitle": title, "sessionId": self.session_id})
        if self._options.modern:
            self._append({"type": "agent-name", "agentName": title, "sessionId": self.session_id})

    def last_prompt(self, prompt: str) -> None:
        """Notes the prompt that a picker would show."""
        self._append({"type": "last-prompt", "lastPrompt": prompt, "leafUuid": self.leaf, "sessionId": self.session_id})

    def _append(self, record: dict[str, Any]) -> None:
        if self._descriptor < 0:
            os.makedirs(self._folder, mode=0o700, exist_ok=True)
            self._descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(self._descriptor, json.dumps(record, ensure_ascii=False, separators=(",", ":")).encode() + b"\n")

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


# search


def project_folder(options: Options) -> str:
    return os.path.join(options.config_dir, "projects", slug(os.path.realpath(options.cwd)))


def slug(path: str) -> str:
    """The folder name of a working directory: one dash per UTF-16 unit that isn't an ASCII letter or digit."""
    units = path.encode("utf-16-le")
    text = "".join(
        chr(unit) if unit < 128 and chr(unit).isalnum() else "-"
        for unit in (int.from_bytes(units[at : at + 2], "little") for at in range(0, len(units), 2))
    )
    if len(text) <= SLUG_LIMIT:
        return text
    value = 0
    for at in range(0, len(units), 2):
        value = (value * 31 + int.from_bytes(units[at : at + 2], "little")) & 0xFFFFFFFF
    if value >= 1 << 31:
        value -= 1 << 32
    return f"{text[:SLUG_LIMIT]}-{base36(abs(value))}"


def base36(number: int) -> str:
    digits = ""
    while number:
        number, digit = divmod(number, 36)
        digits = DIGITS[digit] + digits
    return digits or "0"


def find(options: Options, session_id: str) -> str | None:
    """The file of a conversation: 2.1.332 finds it from any directory, 2.1.197 only from its own."""
    own = project_folder(options)
    folders = [own]
    if options.modern:
        projects = os.path.dirname(own)
        if os.path.isdir(projects):
            folders += [entry.path for entry in os.scandir(projects) if entry.is_dir()]
    for folder in folders:
        path = os.path.join(folder, f"{session_id}.jsonl")
        if os.path.exists(path):
            return path
    return None


def own_files(options: Options) -> list[str]:
    """The conversations of this directory, newest first."""
    folder = project_folder(options)
    if not os.path.isdir(folder):
        return []
    files = [entry for entry in os.scandir(folder) if entry.name.endswith(".jsonl")]
    return [entry.path for entry in sorted(files, key=lambda entry: entry.stat().st_mtime_ns, reverse=True)]


def find_title(options: Options, title: str) -> str | None:
    """The newest conversation of this directory whose last title is ``title``."""
    for path in own_files(options):
        transcript = Transcript(options, os.path.basename(path)[: -len(".jsonl")])
        transcript.load()
        if transcript.title == title:
            return path
    return None


# values
