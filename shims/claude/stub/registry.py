"""The live registry entry ``sessions/<pid>.json`` of the Claude stub.

Owns that one file: written before the first answer, rewritten as the session changes, removed at every orderly exit (a
SIGKILL leaves it, as it leaves the real one's).
"""

from __future__ import annotations

import json
import os
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Final

    from shims.claude.stub.options import Options

START_TIME_FIELD: Final = 22  # of /proc/<pid>/stat, counted from one


class LiveRecord:
    """What the registry says of this process."""

    def __init__(self, options: Options, session_id: str) -> None:
        pid = os.getpid()
        now = milliseconds()
        folder = os.path.join(options.config_dir, "sessions")
        os.makedirs(folder, mode=0o700, exist_ok=True)
        self._modern = options.modern
        self._path = os.path.join(folder, f"{pid}.json")
        self._values: dict[str, Any] = {
            "pid": pid,
            "sessionId": session_id,
            "cwd": options.cwd,
            "startedAt": now,
            "procStart": process_start(pid),
            "version": options.version,
            "peerProtocol": 1,
            "kind": "interactive",
            "entrypoint": options.entrypoint,
            "name": options.name or f"{os.path.basename(options.cwd)}-{os.urandom(1).hex()}",
            "nameSource": "user" if options.name else "derived",
        }
        if options.modern:
            self._values |= {"status": "idle", "updatedAt": now, "statusUpdatedAt": now}
        self._write()

    @property
    def name(self) -> str:
        return str(self._values["name"])

    def set_session(self, session_id: str) -> None:
        """The conversation changed its id."""
        self._values["sessionId"] = session_id
        self._write()

    def set_name(self, name: str) -> None:
        """The user gave a name."""
        self._values |= {"name": name, "nameSource": "user"}
        self._write()

    def set_status(self, status: str, waiting_for: str | None = None) -> None:
        """``idle``, ``busy`` or ``waiting``; sessions of old versions publish none."""
        if not self._modern or (self._values["status"], self._values.get("waitingFor")) == (status, waiting_for):
            return
        now = milliseconds()
        self._values |= {"status": status, "updatedAt": now, "statusUpdatedAt": now}
        self._values.pop("waitingFor", None)
        if waiting_for is not None:
            self._values["waitingFor"] = waiting_for
        self._write()

    def remove(self) -> None:
        """The process ends."""
        try:
            os.unlink(self._path)
        except FileNotFoundError:
            pass

    def _write(self) -> None:
        part = self._path + ".tmp"
        with open(part, "w", encoding="utf-8") as file:
            json.dump(self._values, file, separators=(",", ":"))
        os.replace(part, self._path)


def milliseconds() -> int:
    return int(time.time() * 1000)


def process_start(pid: int) -> str:
    """The kernel's start time of a process; empty where there is no ``/proc``."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            stat = file.read()
    except OSError:
        return ""
    # The second field is the command in brackets and may itself hold blanks and brackets.
    return stat[stat.rindex(b")") + 2 :].split()[START_TIME_FIELD - 3].decode()
