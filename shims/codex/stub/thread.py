"""One thread of the Codex stub: who it is, what it has said, what runs in it and what waits.

Owns the state of a thread and the notifications about that state; the course of a turn is in ``turn``.
"""

from __future__ import annotations

import time

from shims.codex.stub.history import TurnRecord, read_turns
from shims.codex.stub.rollout import Rollout, WriterLock, thread_id_of, write_name
from shims.codex.stub.submissions import Submissions
from shims.codex.stub.turn import Turn
from shims.stub_values import uuid7

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from shims.codex.stub.server import AppServer
    from shims.codex.stub.tools import ThreadServers
    from shims.stub_loop import Task


class Thread:
    """A thread, loaded or only read."""

    def __init__(self, server: AppServer, thread_id: str, *, cwd: str, path: str | None = None) -> None:
        self.server = server
        self.thread_id = thread_id
        self.cwd = cwd
        self.rollout = Rollout(server.options, thread_id, path)
        self.lock = WriterLock(server.options, thread_id)
        self.submissions = Submissions(server.options, thread_id)
        self.name: str | None = None
        self.source: Any = server.source
        self.thread_source: str | None = None
        self.originator = server.originator
        self.parent_id: str | None = None
        self.status: dict[str, Any] = {"type": "notLoaded"}
        self.turns: list[TurnRecord] = []
        self.created_at = self.updated_at = int(time.time())
        self.approval_policy = server.config.approval_policy
        self.sandbox_mode = server.config.sandbox_mode
        self.subscribed = True
        self.running: Turn | None = None
        self._task: Task | None = None
        self.servers: ThreadServers | None = None
        # What the model is to obey, and how many of its steps are done: a turn without input goes on from here.
        self.prompt = ""
        self.done = 0

    @classmethod
    def read(cls, server: AppServer, path: str, name: str | None) -> Thread:
        """The thread that a rollout holds."""
        rollout = Rollout(server.options, thread_id_of(path), path)
        records = rollout.records()
        meta = records[0]["payload"]
        thread = cls(server, meta["id"], cwd=meta["cwd"], path=path)
        thread.rollout = rollout
        thread.name = name
        thread.source = meta.get("source", "vscode")
        thread.thread_source = meta.get("thread_source")
        thread.originator = meta.get("originator", "")
        thread.turns = read_turns(records)
        started = [turn.started_at for turn in thread.turns if turn.started_at is not None]
        thread.created_at = started[0] if started else thread.created_at
        thread.updated_at = started[-1] if started else thread.updated_at
        return thread

    @property
    def is_child(self) -> bool:
        return self.parent_id is not None

    @property
    def paused(self) -> bool:
        """The queue waits after a turn that was recorded as aborted, also across a restart; a kill records nothing."""
        return bool(self.turns) and self.turns[-1].status == "interrupted" and self.turns[-1].completed_at is not None

    # shown

    def shown(self, *, turns: bool = False) -> dict[str, Any]:
        """The thread object of the protocol."""
        options = self.server.options
        source: Any = self.source
        if self.is_child:
            spawned = {"parent_thread_id": self.parent_id, "depth": 1, "agent_path": "/root/helper"}
            source = {"subAgent": {"thread_spawn": {**spawned, "agent_nickname": "Dewey", "agent_role": None}}}
        return {
            "id": self.thread_id,
            "sessionId": self.parent_id or self.thread_id,
            "forkedFromId": None,
            "parentThreadId": self.parent_id,
            "preview": self._preview(),
            "ephemeral": False,
            "historyMode": "paginated" if options.has_queue else "legacy",
            "modelProvider": "mock",
            **({"model": "scripted", "originator": self.originator} if options.has_queue else {}),
            "createdAt": self.created_at,
            "updatedAt": self.updated_at,
            "status": self.status,
            "path": self.rollout.path,
            "cwd": self.cwd,
            "cliVersion": options.version,
            "source": source,
            "canAcceptDirectInput": not self.is_child,
            "threadSource": "subagent" if self.is_child else self.thread_source,
            "agentNickname": "Dewey" if self.is_child else None,
            "agentRole": None,
            "gitInfo": None,
            "name": self.name,
            "turns": [turn.shown(options, turn.items) for turn in self.turns] if turns else [],
        }

    def _preview(self) -> str:
        for turn in self.turns:
            for item in turn.items:
                if item["type"] == "userMessage":
                    return text_of(item["content"])
        return ""

    # told to the client

    def notify(self, method: str, params: dict[str, Any]) -> None:
        """What only subscribers get: turns and items."""
        if self.subscribed:
            self.server.wire.notify(method, {"threadId": self.thread_id, **params})

    def set_status(self, kind: str, flags: list[str] | None = None) -> None:
        """A state that everybody hears of."""
        self.status = {"type": kind} if flags is None else {"type": kind, "activeFlags": flags}
        self.server.wire.notify("thread/status/changed", {"threadId": self.thread_id, "status": self.status})

    def queue_changed(self) -> None:
        if self.server.experimental:
            self.server.wire.notify("thread/queue/changed", {"threadId": self.thread_id})

    # written

    def materialise(self) -> None:
        """Begins the rollout: at the first turn, or at the first name."""
        meta: dict[str, Any] = {
            "session_id": self.parent_id or self.thread_id,
            "id": self.thread_id,
            "timestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self.created_at)),
            "cwd": self.cwd,
            "originator": self.originator,
            "cli_version": self.server.options.version,
            "source": self.source,
            "model_provider": "mock",
            "base_instructions": {"text": "You follow the script in the message."},
        }
        if self.thread_source is not None:
            meta["thread_source"] = self.thread_source
        if self.server.options.has_queue:
            meta["history_mode"] = "paginated"
        self.rollout.create(meta)

    def set_name(self, name: str) -> None:
        self.materialise()
        self.name = name
        write_name(self.server.options, self.thread_id, name)

    # turns

    def begin(self, content: list[dict[str, Any]], client_id: str | None) -> Turn:
        """Starts a turn; its first notification follows after the caller's response."""
        self.materialise()
        record = TurnRecord(uuid7(), int(time.time()))
        self.turns.append(record)
        self.updated_at = int(time.time())
        self.rollout.event("task_started", turn_id=record.turn_id, started_at=record.started_at)
        settings = {"approval_policy": self.approval_policy, "sandbox_policy": {"type": self.sandbox_mode}, "model": "scripted"}
        self.rollout.write("turn_context", {"turn_id": record.turn_id, "cwd": self.cwd, **settings})
        turn = self.running = Turn(self, record)
        turn.steer(content, client_id)
        self._task = self.server.loop.start(self._run(turn))
        return turn

    async def _run(self, turn: Turn) -> None:
        await turn.run()
        self.running = None
        self.drain()

    def drain(self) -> Turn | None:
        """Starts the first submission that waits, if the thread is free for it."""
        if self.running is not None or self.paused or not self.server.options.has_queue:
            return None
        return self.start_submission(None)

    def start_submission(self, entry_id: str | None, *, told: bool = True) -> Turn | None:
        """Starts one submission as a turn of its own; None if it isn't there. ``told``: the client hears of it here."""
        entry = self.submissions.remove(entry_id)
        if entry is None:
            return None
        if told:
            self.queue_changed()
        return self.begin(entry["input"], entry["clientUserMessageId"])

    def run_as_child(self, *items: dict[str, Any]) -> None:
        """A turn that somebody else's model ran in this thread, told as it would be."""
        options = self.server.options
        record = TurnRecord(uuid7(), int(time.time()))
        self.turns.append(record)
        self.set_status("active", [])
        self.notify("turn/started", {"turn": record.shown(options, [])})
        for item in items:
            record.items.append(item)
            for moment in ("item/started", "item/completed"):
                self.notify(moment, {"item": item, "turnId": record.turn_id})
        record.status, record.completed_at = "completed", record.started_at
        self.set_status("idle")
        self.notify("turn/completed", {"turn": record.shown(options, [items[-1]])})

    # the end

    def unload(self) -> None:
        """Gives the thread up: a running turn is recorded as aborted, servers end, the lock is freed."""
        if self.running is not None and self._task is not None:
            self._task.cancel()
            self.running.abandon()
            self.running = None
        if self.servers is not None:
            self.servers.close()
        self.rollout.close()
        self.lock.release()


def text_of(content: list[dict[str, Any]]) -> str:
    """The text of an input."""
    return "\n".join(part["text"] for part in content if part["type"] == "text")
