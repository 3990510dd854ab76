"""One session of the Grok stub: its queue, what runs, and what is told of both.

Owns the order in which a turn's end is told, and the session's counters; the course of a turn is in ``turn``. All who prompt
a session stand in one queue. After ``session/cancel`` with nobody waiting the queue is not shown again: the end of the turn
alone tells.
"""

from __future__ import annotations

import os
import signal

from shims.grok.stub import shown
from shims.grok.stub.store import MODEL
from shims.grok.stub.turn import Turn
from shims.grok.stub.wire import milliseconds

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from shims.grok.stub.server import AgentServer
    from shims.grok.stub.store import SessionFiles
    from shims.grok.stub.tools import SessionServers
    from shims.stub_loop import Task

_CUT_OFF = "Grok stopped before this turn finished (the agent process exited or was restarted)."


class Prompt:
    """A prompt that was accepted; ``request`` is the client's id for it, None where nobody asked."""

    __slots__ = ("blocks", "prompt_id", "request", "text")

    def __init__(self, request: Any, prompt_id: str, blocks: list[str]) -> None:
        self.request = request
        self.prompt_id = prompt_id
        self.blocks = blocks
        self.text = "\n\n".join(blocks)


class Session:
    """A session that this process has open."""

    def __init__(self, server: AgentServer, session_id: str, cwd: str, files: SessionFiles) -> None:
        self.server = server
        self.session_id = session_id
        self.cwd = cwd
        self.files = files
        self.servers: SessionServers | None = None
        self.approves_all = server.options.always_approve or server.config.approves_all
        self.approved: set[str] = set()
        self.running: Turn | None = None
        self._queue: list[Prompt] = []
        self._task: Task | None = None
        self._closing = False
        self._events = len(files.updates())
        self.prompted = sum(line["params"]["update"]["sessionUpdate"] == "user_message_chunk" for line in files.updates())

    @property
    def title(self) -> str:
        return str(self.files.summary.get("generated_title") or "")

    # told to the client

    def notify(self, update: dict[str, Any], meta: dict[str, Any] | None = None) -> None:
        """A ``session/update``."""
        params: dict[str, Any] = {"sessionId": self.session_id, "update": update}
        self.server.wire.notify("session/update", params if meta is None else {**params, "_meta": meta})

    def notify_own(self, update: dict[str, Any], meta: dict[str, Any] | None = None) -> None:
        """An update that ACP does not have."""
        params: dict[str, Any] = {"sessionId": self.session_id, "update": update}
        self.server.wire.notify("_x.ai/session_notification", params if meta is None else {**params, "_meta": meta})

    def event(self, **facts: Any) -> dict[str, Any]:
        """The ``_meta`` of an update."""
        number, self._events = self._events, self._events + 1
        return {"eventId": f"{self.session_id}-{number}", "agentTimestampMs": milliseconds(), **facts}

    def record(self, update: dict[str, Any], meta: dict[str, Any], *, own: bool = False) -> None:
        """Puts an update on disk."""
        params = {"sessionId": self.session_id, "update": update, "_meta": meta}
        self.files.append("_x.ai/session/update" if own else "session/update", params)

    def show_commands(self, meta: dict[str, Any] | None = None) -> None:
        tools = [] if self.servers is None else self.servers.tools()
        self.notify(shown.commands_update(tools), meta or self.event(updateType="AvailableCommandsUpdate"))

    def show_activity(self, activity: str) -> None:
        row = {**shown.activity_row(self.files.summary, activity), "lastChangeUnixMs": milliseconds()}
        self.server.wire.notify("_x.ai/sessions/changed", {"upserted": [row], "removed": []})

    def show_queue(self) -> None:
        entries = [
            {"id": prompt.prompt_id, "version": 0, "kind": "prompt", "text": prompt.text, "position": position}
            for position, prompt in enumerate(self._queue)
        ]
        params: dict[str, Any] = {"sessionId": self.session_id, "entries": entries}
        if self.running is not None:
            prompt = self.running.prompt
            params |= {"runningPromptId": prompt.prompt_id, "runningText": prompt.text, "runningKind": "prompt"}
        self.server.wire.notify("_x.ai/queue/changed", params)

    def entitle(self, title: str, *, manual: bool = False) -> None:
        """Gives the session a title: the person's, which stays, or the one that the first prompt suggests."""
        meta = {"x.ai/titleIsManual": True} if manual else None
        if manual:
            self.files.note(generated_title=title, title_is_manual=True)
        else:
            self.files.note(generated_title=title, session_summary=title)
        self.notify_own({"sessionUpdate": "session_summary_generated", "session_summary": title}, meta)
        self.notify({"sessionUpdate": "session_info_update", "title": title}, meta)

    # prompts

    def accept(self, prompt: Prompt) -> None:
        """Queues a prompt; an idle session begins it at once. One id may come twice: both run (1.0.41)."""
        self.files.note(request_id=prompt.prompt_id)
        self.show_activity("working")
        self._queue.append(prompt)
        self.show_queue()
        if self.running is None:
            self._start_next()

    def remove(self, prompt_id: str) -> None:
        """Takes a waiting prompt out. The one that runs, or one that is unknown, stays; the queue is shown all the same."""
        found = next((prompt for prompt in self._queue if prompt.prompt_id == prompt_id), None)
        if found is not None:
            self._queue.remove(found)
        self.show_queue()
        if found is not None:
            meta = {**self._result_meta(found), "totalTokens": 0, "modelId": MODEL, "completionKind": "removedFromQueue"}
            self.server.wire.respond(found.request, {"stopReason": "cancelled", "_meta": meta})

    def cancel(self) -> None:
        """``session/cancel``: what runs, not what waits."""
        if self.running is not None:
            self.running.abort()

    def start_own(self, prompt: Prompt) -> None:
        """A turn that the agent begins by itself: its end is told by ``turn_completed`` alone."""
        self.show_queue()
        self._start(prompt)

    async def idle(self) -> None:
        """Returns when nothing runs."""
        while self.running is not None and self._task is not None:
            await self._task.finished

    def _start_next(self) -> None:
        self._start(self._queue.pop(0))

    def _start(self, prompt: Prompt) -> None:
        turn = self.running = Turn(self, prompt)
        self.show_queue()
        self._task = self.server.loop.start(self._run(turn))

    async def _run(self, turn: Turn) -> None:
        await turn.run()
        self._end(turn)

    def _end(self, turn: Turn) -> None:
        own = turn.prompt.request is None
        self.running = None
        if not turn.aborted and not own:
            self.show_queue()
        turn.complete()
        if self._queue and not self._closing:
            self._start_next()
        if own:
            return
        self.server.wire.notify("_x.ai/session/prompt_complete", turn.prompt_complete())
        if not self._closing:
            self.show_activity("idle")
        self._answer(turn)
        if turn.reason == "end_turn" and self.running is None:
            self._summarise(turn)

    def _answer(self, turn: Turn) -> None:
        if turn.failure is not None:
            self.server.wire.refuse(turn.prompt.request, turn.failure)
            return
        meta = {**self._result_meta(turn.prompt), **turn.result_meta()}
        self.server.wire.respond(turn.prompt.request, {"stopReason": turn.reason, "_meta": meta})

    def _result_meta(self, prompt: Prompt) -> dict[str, Any]:
        return {"sessionId": self.session_id, "requestId": prompt.prompt_id, "promptId": prompt.prompt_id}

    def _summarise(self, turn: Turn) -> None:
        summary = {"summary": "(scripted)", "prompt_id": turn.prompt.prompt_id}
        self.files.note(last_turn_summary=summary["summary"], last_turn_summary_prompt_id=summary["prompt_id"])
        self.notify_own({"sessionUpdate": "last_turn_summary", **summary}, {"agentTimestampMs": milliseconds()})

    # opened again

    def recover(self) -> None:
        """Notes the turn that the last process left unfinished: by the id of the prompt that it accepted last."""
        if self.files.was_cut_off():
            ended = {"prompt_id": self.files.summary["request_id"], "stop_reason": "interrupted", "agent_result": _CUT_OFF}
            self.files.happened("turn_ended", outcome="interrupted")
            self.record({"sessionUpdate": "turn_completed", **ended}, self.event(), own=True)

    def replay(self) -> None:
        """Every update that is on disk; a call of a tool as one update, and none that has no outcome."""
        for line in _with_whole_calls(self.files.updates()):
            params = line["params"]
            replayed = {**params, "_meta": {**params["_meta"], "isReplay": True}}
            self.server.wire.notify(line["method"], replayed)

    def reopened(self) -> None:
        """What is told in front of the answer to ``session/load`` and ``session/resume``."""
        tasks: dict[str, Any] = {"sessionUpdate": "background_tasks", "tasks": []}
        meta = self.event()
        self.record(tasks, meta, own=True)
        self.notify_own(tasks, meta)
        self.notify_own({"sessionUpdate": "model_changed", "model_id": MODEL})

    # the end

    async def close(self, request: Any) -> None:
        """``session/close``: what runs is cancelled, what waits is answered as cancelled, the servers are killed."""
        self._closing = True
        self.server.wire.notify("_x.ai/sessions/changed", {"upserted": [], "removed": [self.session_id]})
        if self.running is not None and self._task is not None:
            self.running.abort("session_close")
            await self._task.finished
        for prompt in self._queue:
            ended = {"sessionId": self.session_id, "promptId": prompt.prompt_id, "stopReason": "cancelled", "agentResult": None}
            self.server.wire.notify("_x.ai/session/prompt_complete", ended)
            meta = {**self._result_meta(prompt), "totalTokens": 0, "modelId": MODEL}
            self.server.wire.respond(prompt.request, {"stopReason": "cancelled", "_meta": meta})
        self._queue.clear()
        for pid in () if self.servers is None else self.servers.pids():
            _kill_group(pid)
        self.files.close()
        self.server.wire.respond(request, {"_meta": {"x.ai/closeOutcome": "closed"}})


def _with_whole_calls(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    calls: dict[str, dict[str, Any]] = {}
    kept = []
    for line in lines:
        update = line["params"]["update"]
        identifier = update.get("toolCallId")
        if update["sessionUpdate"] == "tool_call_update" and identifier in calls:
            calls[identifier].update({**update, "sessionUpdate": "tool_call"})
            continue
        if identifier is not None:
            calls[identifier] = update
        kept.append(line)
    return [line for line in kept if line["params"]["update"].get("status") or "toolCallId" not in line["params"]["update"]]


def _kill_group(pid: int) -> None:
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass  # it has ended by itself
