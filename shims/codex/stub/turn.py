"""One turn of the Codex stub: messages in, model steps, tools, and the end.

Owns the order of notifications within a turn, steering and interruption. What steering does to an answer that streams
depends on the version: 0.171.0 cuts it off, earlier ones let it finish and ask the model again.
"""

from __future__ import annotations

import os
import time

from shims.codex.stub.history import agent_message, user_message
from shims.script import Step, next_step
from shims.stub_io import Gate
from shims.stub_loop import Wait
from shims.stub_values import uuid7

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from shims.codex.stub.history import TurnRecord
    from shims.codex.stub.thread import Thread
    from shims.codex.stub.wire import Asked


class Turn:
    """A running turn."""

    def __init__(self, thread: Thread, record: TurnRecord) -> None:
        self.thread = thread
        self.record = record
        self.interrupted = Wait(thread.server.loop)
        self._steered: list[tuple[list[dict[str, Any]], str | None]] = []
        self._steering = Wait(thread.server.loop)
        self._began = time.monotonic()

    @property
    def turn_id(self) -> str:
        return self.record.turn_id

    # events received

    def steer(self, content: list[dict[str, Any]], client_id: str | None) -> None:
        """A message for this turn; it is delivered when the model can take it."""
        if content:
            self._steered.append((content, client_id))
            self._steering.settle()

    def interrupt(self) -> None:
        self.interrupted.settle()

    def abandon(self) -> None:
        """The process ends: the turn is recorded as aborted, with what it was given, and nobody is told."""
        self.thread.subscribed = False
        self._deliver()
        self._record_abort()

    # run

    async def run(self) -> None:
        """The whole turn."""
        thread = self.thread
        thread.set_status("active", [])
        thread.notify("turn/started", {"turn": self.record.shown(thread.server.options, [])})
        asking = True
        while asking:
            self._deliver()
            if thread.server.options.subagent and not thread.is_child and len(thread.turns) == 1:
                thread.server.announce_child(thread)
            asking = await self._ask_model()
            if self.interrupted.done:
                self._finish_interrupted()
                return
        if self.record.error is None:
            self._finish("completed")

    async def _ask_model(self) -> bool:
        """One model request; True if the model is to be asked again."""
        thread = self.thread
        try:
            step = next_step(thread.prompt, thread.done)
            gate = Gate(thread.server.loop, step.gate) if step.gate else None
        except (OSError, ValueError) as error:
            step, gate = Step("fail", text=str(error)), None
        if step.verb == "fail":
            self._fail(step.text)
            return False
        if step.verb != "tool":
            await self._speak(step, gate)
            return bool(self._steered)
        thread.done += 1
        await self._use_tool(step)
        return True

    def _deliver(self) -> None:
        """Hands the model every message that waits for it; the newest one is what it obeys."""
        waiting, self._steered = self._steered, []
        self._steering = Wait(self.thread.server.loop)
        for content, client_id in waiting:
            whole = [{"text_elements": [], **part} if part["type"] == "text" else part for part in content]
            item = user_message(uuid7(), client_id, whole)
            text = "\n".join(part["text"] for part in content if part["type"] == "text")
            self.thread.prompt, self.thread.done = text, 0
            self.start_item(item)
            self._write_message("user", "input_text", text)
            self.thread.rollout.item(self.turn_id, item)
            self.record.items.append(item)
            self.complete_item(item)

    async def _speak(self, step: Step, gate: Gate | None) -> None:
        """A message of the model; with a gate, half of it before and half of it after."""
        thread = self.thread
        phase = "commentary" if step.verb == "comment" else "final_answer"
        item_id = f"msg_{os.urandom(8).hex()}"
        half = len(step.text) // 2
        self.start_item(agent_message(item_id, "", phase))
        self._delta(item_id, step.text[:half])
        if gate is not None:
            cuts = [self._steering] if thread.server.options.preempts else []
            try:
                await thread.server.loop.first(gate.opened, self.interrupted, *cuts)
            finally:
                gate.close()
            if self.interrupted.done or not gate.opened.done:
                return  # the item is left without an end, and what was said of it is lost
        self._delta(item_id, step.text[half:])
        item = agent_message(item_id, step.text, phase)
        thread.rollout.item(self.turn_id, item)
        self._write_message("assistant", "output_text", step.text, phase=phase)
        self.record.items.append(item)
        self.complete_item(item)

    async def _use_tool(self, step: Step) -> None:
        from shims.codex.stub.tools import run_tool

        call_id = f"call_{os.urandom(8).hex()}"
        rollout = self.thread.rollout
        fields = {"name": step.tool, "arguments": step.arguments, "call_id": call_id}
        rollout.write("response_item", {"type": "function_call", **fields})
        output = await run_tool(self, step, call_id)
        rollout.write("response_item", {"type": "function_call_output", "call_id": call_id, "output": output})

    # what tools need

    async def approval(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Asks the client; empty if the turn was interrupted instead."""
        thread = self.thread
        asked: Asked = thread.server.wire.ask(method, {"threadId": thread.thread_id, "turnId": self.turn_id, **params})
        await thread.server.loop.first(asked.answer, self.interrupted)
        thread.server.wire.forget(asked)
        thread.notify("serverRequest/resolved", {"requestId": asked.number})
        if not asked.answer.done:
            return {}
        result: dict[str, Any] = asked.answer.value.get("result") or {}
        return result

    def start_item(self, item: dict[str, Any]) -> None:
        now = int(time.time() * 1000)
        self.thread.notify("item/started", {"item": item, "turnId": self.turn_id, "startedAtMs": now})

    def complete_item(self, item: dict[str, Any]) -> None:
        now = int(time.time() * 1000)
        self.thread.notify("item/completed", {"item": item, "turnId": self.turn_id, "completedAtMs": now})

    # private

    def _delta(self, item_id: str, text: str) -> None:
        self.thread.notify("item/agentMessage/delta", {"turnId": self.turn_id, "itemId": item_id, "delta": text})

    def _write_message(self, role: str, kind: str, text: str, *, phase: str | None = None) -> None:
        message: dict[str, Any] = {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}
        if phase is not None:
            message["phase"] = phase
        self.thread.rollout.write("response_item", message)

    # the end

    def _close(self, status: str) -> int:
        self.record.status = status
        self.record.completed_at = int(time.time())
        return int((time.monotonic() - self._began) * 1000)

    def _finish(self, status: str) -> None:
        thread = self.thread
        spent = self._close(status)
        last = next((item["text"] for item in reversed(self.record.items) if item["type"] == "agentMessage"), None)
        fields: dict[str, Any] = {"turn_id": self.turn_id, "last_agent_message": last, "duration_ms": spent}
        if self.record.error is not None:
            fields |= {
                "last_agent_message": None,
                "error": {"message": self.record.error["message"], "codex_error_info": "other"},
            }
        times = {"started_at": self.record.started_at, "completed_at": self.record.completed_at}
        thread.rollout.event("task_complete", **fields, **times)
        if self.record.error is None:
            usage = {"totalTokens": 15, "inputTokens": 10, "cachedInputTokens": 0, "outputTokens": 5}
            total = {"total": usage, "last": usage, "modelContextWindow": 258400}
            thread.notify("thread/tokenUsage/updated", {"turnId": self.turn_id, "tokenUsage": total})
            thread.set_status("idle")
        final = self.record.final_message()
        thread.notify("turn/completed", {"turn": self.record.shown(thread.server.options, [final] if final else [])})

    def _fail(self, reason: str) -> None:
        thread = self.thread
        self.record.error = {"message": reason, "codexErrorInfo": "other", "additionalDetails": None}
        thread.set_status("systemError")
        thread.notify("error", {"error": self.record.error, "willRetry": False, "turnId": self.turn_id})
        self._finish("failed")

    def _finish_interrupted(self) -> None:
        self._record_abort()
        self.thread.set_status("idle")
        shown = self.record.shown(self.thread.server.options, [])
        self.thread.notify("turn/completed", {"turn": shown})

    def _record_abort(self) -> None:
        spent = self._close("interrupted")
        times = {"started_at": self.record.started_at, "completed_at": self.record.completed_at}
        fields = {"turn_id": self.turn_id, "reason": "interrupted", "duration_ms": spent}
        self.thread.rollout.event("turn_aborted", **fields, **times)
