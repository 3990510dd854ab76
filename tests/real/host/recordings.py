"""What windows and the real host said to each other, as files that a stand-in for the host can be held against.

Owns the files below ``recordings/`` and the form of what stands in them: whatever differs from run to run (paths, ids, times,
serial numbers) is replaced by a name, the same thing by the same name throughout one recording, and what has nothing to do with
chats is left out. Tokens never come over the socket, and are looked for all the same.

With ``CROSS_AGENT_TEST_RECORD=1`` in the environment the files are written anew; without it a run is compared with them.
"""

from __future__ import annotations

import difflib
import json
import os
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tests.real.host.client import HostWindow
from tests.real.host.installation import VSCODE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.real.host.process import Endpoint

Json = dict[str, Any]

DIRECTORY: Final = Path(__file__).with_name("recordings")
WRITE: Final = "CROSS_AGENT_TEST_RECORD"

NOISE: Final = frozenset(
    {
        "chat/activityChanged",
        "chat/usage",
        "notifications/tools/list_changed",
        "root/activeSessionsChanged",
        "root/agentsChanged",
        "root/progress",
        "root/sessionAdded",
        "root/sessionSummaryChanged",
        "session/activityChanged",
        "session/changesetsChanged",
        "session/customizationRemoved",
        "session/customizationUpdated",
        "session/customizationsChanged",
        "session/mcpServerStateChanged",
        "session/metaChanged",
        "session/serverToolsChanged",
        "session/titleChanged",
    }
)
"""Actions and notifications that come when they come, and of which no client of a chat needs to know."""

ELIDED: Final = frozenset(
    {
        "_meta",
        "agents",
        "changesets",
        "config",
        "customizations",
        "rules",
        "serverTools",
        "telemetry",
        "usage",
    }
)
"""Fields that are long and say nothing about a chat: only that they are there is kept."""

VOLATILE: Final = frozenset({"createdAt", "duration", "fromSeq", "modifiedAt", "serverSeq", "startedAt", "stack"})
"""Fields whose value is another in each run."""

RACING: Final = frozenset({"chat/toolCallContentChanged", "session/chatUpdated", "session/ready"})
"""These come when they come, or not: they are in a recording, but not compared."""

UUID: Final = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
NAMED: Final = re.compile(
    rf"(?P<chat>Y29waWxvdGNsaTov[A-Za-z0-9_-]+)|(?P<id>{UUID})|(?P<call>\bcall_[0-9a-f]{{16}})|(?P<gate>\bgate-[0-9a-f]{{8}})"
)
"""A chat's address holds its session's in base64 (``copilotcli:/…``), so its id too."""

TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")


class Recorder:
    """One recording. ``directory`` is that of the host, ``name`` that of the file."""

    def __init__(self, name: str, directory: Path) -> None:
        self._file = DIRECTORY / f"{name}.json"
        self._paths = sorted({str(directory), str(directory.resolve())}, key=len, reverse=True)
        self._windows: list[HostWindow] = []
        self._facts: list[tuple[float, Json]] = []
        self._secrets: set[str] = set()

    def window(self, endpoint: Endpoint) -> HostWindow:
        """A window whose frames are recorded; the caller closes it."""
        self._secrets.add(endpoint.token)
        made = HostWindow(endpoint)
        self._windows.append(made)
        return made

    def happened(self, what: str, **facts: Any) -> None:
        """Something that went over no socket."""
        self._facts.append((time.monotonic(), {"happened": what, **facts}))

    def keep(self, *, compare: bool = True) -> None:
        """Write the recording, or compare it with the one that is kept, unless it may be another each time.

        Raises:
            AssertionError: the host did something else than it did when it was recorded.
        """
        made = {"host": f"VS Code {VSCODE}", "exchange": list(self._scrubbed())}
        text = json.dumps(made, indent=1, ensure_ascii=False) + "\n"
        assert not any(secret in text for secret in self._secrets), "a token went over the socket"
        if os.environ.get(WRITE):
            DIRECTORY.mkdir(exist_ok=True)
            self._file.write_text(text, encoding="utf-8")
            return
        if compare:
            kept = essence(json.loads(self._file.read_text(encoding="utf-8")))
            assert essence(made) == kept, "\n".join(difflib.unified_diff(_lines(kept), _lines(essence(made)), "kept", "now"))

    def _scrubbed(self) -> Iterator[Json]:
        lines: list[tuple[float, Json]] = list(self._facts)
        noise: set[tuple[int, int]] = set()
        for number, window in enumerate(self._windows, 1):
            for received in window.frames.snapshot():
                message = json.loads(received.message.text)
                del message["jsonrpc"]
                if message.get("method") == "listSessions":
                    noise.add((number, message["id"]))  # the test's own way to know that all has been read
                if _kind(message) in NOISE or (number, message.get("id", 0)) in noise:
                    continue
                key = "sent" if received.message.sent else "received"
                lines.append((received.at, {"window": number, key: message}))
        names: dict[str, str] = {}
        for _, line in sorted(lines, key=lambda pair: pair[0]):
            scrubbed = self._scrub(line, names)
            assert isinstance(scrubbed, dict)
            yield scrubbed

    def _scrub(self, value: Any, names: dict[str, str]) -> Any:
        if isinstance(value, dict):
            return {key: self._field(key, each, names) for key, each in value.items()}
        if isinstance(value, list):
            return [self._scrub(each, names) for each in value]
        return self._text(value, names) if isinstance(value, str) else value

    def _field(self, key: str, value: Any, names: dict[str, str]) -> Any:
        if key in ELIDED:
            return "…"
        return f"<{key}>" if key in VOLATILE and value is not None else self._scrub(value, names)

    def _text(self, text: str, names: dict[str, str]) -> str:
        for path in self._paths:
            text = text.replace(path, "/<directory>")
        return NAMED.sub(lambda found: _name(found, names), TIME.sub("<time>", text))


def _name(found: re.Match[str], names: dict[str, str]) -> str:
    kind = str(found.lastgroup)
    count = sum(name.startswith(f"<{kind}-") for name in names.values())
    return names.setdefault(found[0], f"<{kind}-{count + 1}>")


def _kind(message: Json) -> str:
    """``chat/turnStarted``, ``subscribe``, or nothing for a reply."""
    method = str(message.get("method", ""))
    return str(message["params"]["action"]["type"]) if method in ("action", "dispatchAction") else method


def essence(recording: Json) -> list[list[str]]:
    """What must be the same in each run: for each window what it sent, and per channel what it was told, in its order."""
    lanes: dict[str, list[str]] = {}
    for line in recording["exchange"]:
        message = line.get("sent") or line.get("received")
        if message is None:
            lanes.setdefault("facts", []).append(json.dumps(line, sort_keys=True, ensure_ascii=False))
            continue
        kind = _kind(message)
        if kind in RACING:
            continue
        params = message.get("params") or {}
        way = "sent" if "sent" in line else f"received {params.get('channel', 'replies')}"
        word = kind or f"{message['id']}: {json.dumps(message.get('error') or 'result', sort_keys=True)}"
        error = ((params.get("action") or {}).get("part") or {}).get("error") or {}
        word = " ".join([word, *([error["errorType"]] if error else []), *(["refused"] if "rejectionReason" in params else [])])
        lanes.setdefault(f"{line['window']} {way}", []).append(word)
    return [[lane, *words] for lane, words in sorted(lanes.items())]


def _lines(lanes: list[list[str]]) -> list[str]:
    return [f"{lane}: {word}" for lane, *words in lanes for word in words]
