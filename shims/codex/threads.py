"""Codex threads as their app-server shows them, and what its records mean. No I/O.

Source: ``thread`` objects and notifications of codex-cli 0.147.0 to 0.171.0 (protocols: codex.md, section 1).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from broker.wire import Approval, SessionState
from shims.jsonline import as_object, summary_of


class Thread:
    """What is known of a thread; a target only when the editor opened it and it is nobody's sub-agent (SH-50, SH-51)."""

    __slots__ = (
        "accepts_direct",
        "approvals",
        "asked",
        "cwd",
        "ephemeral",
        "flags",
        "id",
        "last_human",
        "last_words",
        "model",
        "name",
        "opened",
        "opened_by_editor",
        "parent",
        "queue_paused",
        "title",
        "turn",
        "turn_since",
        "verified",
    )

    def __init__(self, identifier: str, cwd: str, now: float) -> None:
        self.id = identifier
        self.cwd = cwd
        self.opened = now
        self.opened_by_editor = False
        self.verified = False
        """A thread object was seen: parent, ephemeral and direct input are known."""
        self.asked = False
        """A `thread/read` of ours is under way."""
        self.parent = ""
        self.ephemeral = False
        self.accepts_direct = True
        self.name = ""
        self.title = ""
        self.model = ""
        self.turn = ""
        self.turn_since = 0.0
        self.last_human = 0.0
        self.queue_paused = False
        self.approvals: dict[str, Approval] = {}
        self.flags: tuple[str, ...] = ()
        self.last_words: dict[str, str | None] = {}
        """The latest agent message of each running turn, None when it was too long: a turn that ends on commentary names none."""

    def describe(self, record: dict[str, Any], model: str) -> None:
        """Takes over a ``thread`` object of an answer."""
        self.verified = True
        self.parent = str(record.get("parentThreadId") or "")
        self.ephemeral = record.get("ephemeral") is True
        self.accepts_direct = record.get("canAcceptDirectInput") is not False
        self.name = str(record.get("name") or "")
        self.title = " ".join(str(record.get("preview") or "").split())[:120]
        self.model = str(record.get("model") or model or self.model)
        self.cwd = str(record.get("cwd") or self.cwd)
        if as_object(record.get("status")).get("type") == "active" and not self.turn_since:
            self.turn_since = self.opened

    def recall(self, turns: list[dict[str, Any]]) -> None:
        """Takes over the turns of earlier processes, the latest first.

        One that was recorded as aborted keeps the queue waiting, across restarts. One that a kill cut off has no end, is shown
        as interrupted too, and keeps nothing waiting (measured with 0.154.0 and 0.171.0).
        """
        latest = turns[0] if turns else {}
        if latest.get("status") == "interrupted" and latest.get("completedAt") is not None and not self.turn_since:
            self.queue_paused = True

    def is_target(self) -> bool:
        return self.opened_by_editor and self.verified and not self.parent and not self.ephemeral and self.accepts_direct

    def state(self, *, accepts: bool, accepts_busy: bool, running: str) -> SessionState:
        approval = next(iter(self.approvals.values()), None)
        if approval is None and self.flags:
            approval = Approval(self.flags[0], "", self.turn_since)
        return SessionState(
            id=self.id,
            cwd=self.cwd,
            name=self.name,
            title=self.title,
            model=self.model,
            turn_since=self.turn_since,
            approval=approval,
            last_human=self.last_human,
            opened=self.opened,
            accepts=accepts,
            accepts_busy=accepts_busy,
            queue_paused=self.queue_paused,
            running=running,
        )


class Threads:
    """The threads that are known in one app-server, by their ids."""

    __slots__ = ("_cwd", "_known")

    def __init__(self, cwd: str) -> None:
        self._cwd = cwd
        self._known: dict[str, Thread] = {}

    def get(self, identifier: object) -> Thread | None:
        return self._known.get(str(identifier))

    def __iter__(self) -> Iterator[Thread]:
        return iter(self._known.values())

    def opened(self, record: dict[str, Any], model: str, asked: str, now: float) -> Thread | None:
        """The editor has opened a thread; the head of a huge answer names none, then what was ``asked`` for tells."""
        identifier = str(record.get("id") or asked)
        if not identifier:
            return None
        thread = self._known.setdefault(identifier, Thread(identifier, self._cwd, now))
        thread.opened_by_editor = True
        if record:
            thread.describe(record, model)
        return thread

    def forget(self, identifier: str) -> None:
        self._known.pop(identifier, None)


def server_version(user_agent: str) -> tuple[int, ...]:
    """``probe/0.171.0 (Debian …`` → (0, 171, 0); the client's name comes first and may hold a slash itself."""
    for word in user_agent.split(" (", 1)[0].split("/"):
        numbers = word.split("-", 1)[0].split(".")
        if len(numbers) == 3 and all(number.isascii() and number.isdecimal() and len(number) < 10 for number in numbers):
            return tuple(int(number) for number in numbers)
    return ()


def ended(status: str) -> str:
    """A turn's status as ours: anything that is neither complete nor interrupted has failed."""
    return status if status in ("completed", "interrupted") else "failed"


def approval_of(method: str, parameters: dict[str, Any], now: float) -> Approval:
    """The prompt behind a request of the server's; MCP tool approvals come as elicitations."""
    meta = as_object(parameters.get("_meta"))
    tool = (
        str(meta.get("tool_name") or "")
        or _asked_about(meta, parameters)
        or {
            "item/commandExecution/requestApproval": "command",
            "item/fileChange/requestApproval": "file change",
            "item/permissions/requestApproval": "permissions",
            "item/tool/requestUserInput": "question",
        }.get(method, method)
    )
    return Approval(tool, summary_of(parameters), now)


def _asked_about(meta: dict[str, Any], parameters: dict[str, Any]) -> str:
    """The MCP tool in ``Allow the … MCP server to run tool "send"?``; 0.147 and 0.154 name it nowhere else."""
    if meta.get("codex_approval_kind") != "mcp_tool_call":
        return ""
    return str(parameters.get("message")).partition(' tool "')[2].partition('"')[0]
