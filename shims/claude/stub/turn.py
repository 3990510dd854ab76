"""One turn of the Claude stub: from the prompt it takes in to the ``result`` that ends it.

Owns the order of frames and records within a turn, folding, and the ways a turn is cut short: ``interrupt`` (the user
stops it) and ``preempt`` (a message of priority ``now`` ends it). Which messages make up the turn is decided elsewhere.
"""

from __future__ import annotations

import time

from shims.claude.stub.attachments import file_attachments
from shims.claude.stub.frames import assistant_message
from shims.claude.stub.permissions import Question, verdict
from shims.claude.stub.tools import Outcome, no_such_tool
from shims.script import Step, find_script, next_step
from shims.stub_io import Gate
from shims.stub_loop import Wait
from shims.stub_values import uuid4

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Final

    from shims.claude.stub.backlog import Message
    from shims.claude.stub.session import Session

REJECTED: Final = (
    "The user doesn't want to proceed with this tool use. The tool use was rejected (eg. if it was a file edit, the "
    "new_string was NOT written to the file). STOP what you are doing and wait for the user to tell you how to proceed."
)
ABORTED: Final = {  # by generation: a tool whose permission was still open when a ``now`` message came
    True: "Tool permission request aborted",
    False: "Tool permission request failed: AbortError",
}


class Turn:
    """A running turn."""

    def __init__(self, session: Session, messages: list[Message]) -> None:
        self._session = session
        self._frames = session.frames
        self._record = session.transcript
        self._modern = session.options.modern
        self._messages = messages
        self._folded: list[Message] = []
        self._prompt = "\n".join(message.text for message in messages)
        self._content: Any = messages[0].content if len(messages) == 1 else self._prompt
        self._echoes: list[tuple[Any, str]] = []
        self._interrupted = Wait(session.loop)
        self._preempted = Wait(session.loop)
        self._question: Question | None = None
        self._denials: list[dict[str, Any]] = []
        self._started = time.monotonic()
        self._marked = [False, False]  # whether the first assistant frame and the first event carried our uuids
        self._own_users = 0
        self._text = ""

    # events received

    def interrupt(self) -> None:
        """The user stops the turn."""
        if self._question is not None:
            self._question.withdraw()
        self._interrupted.settle()

    def preempt(self) -> None:
        """A message of priority ``now`` ends the turn at the next point where it can end."""
        if self._question is not None:
            self._question.withdraw()
        self._preempted.settle()

    def answer(self, response: dict[str, Any]) -> bool:
        """A control response of the client; False if the turn asked no such thing."""
        question = self._question
        if question is None or response.get("request_id") != question.request_id or question.answer.done:
            return False
        question.answer.settle(response)
        return True

    def hang_up(self) -> None:
        """The client is gone: nobody will answer the open question."""
        if self._question is not None:
            self._question.answer.settle({"subtype": "error", "error": "Stream closed"})

    # run

    async def run(self) -> None:
        """The whole turn."""
        self._take_in()
        if self._session.options.logged_out:
            self._fail("Not logged in · Please run /login", "authentication_failed", None)
            return
        prompt, done = self._prompt, 0
        while True:
            self._frames.requesting(self._uuids())
            try:
                step = next_step(prompt, done)
                gate = Gate(self._session.loop, step.gate) if step.gate else None
            except (OSError, ValueError) as error:
                step, gate = Step("fail", text=str(error)), None
            if step.verb == "fail":
                self._fail(f"API Error: 400 {step.text}", "unknown", 400)
                return
            if step.verb != "tool":
                await self._speak(step.text, gate)
                return
            done += 1
            await self._use_tool(step)
            if self._interrupted.done:
                self._note_interruption("[Request interrupted by user for tool use]")
                self._finish_interrupted("aborted_tools", "tool_use")
                return
            if self._preempted.done:
                self._finish("", "aborted_tools", "tool_use")
                return
            for message in self._session.backlog.fold():
                self._fold(message)
                # The newest text that holds a script is obeyed; without any, the newest text is answered.
                if find_script(message.text) is not None or find_script(prompt) is None:
                    prompt, done = message.text, 0

    # taking in

    def _take_in(self) -> None:
        for _ in self._messages:
            self._record.queue("dequeue")
        for message in self._messages[:-1]:
            self._frames.echo(message.content, message.uuid, again=True)
        for message in self._messages:
            self._frames.lifecycle(message, "started")
        self._session.open_turn()
        last = self._messages[-1]
        record = {
            "type": "user",
            "message": {"role": "user", "content": self._content},
            "promptSource": "sdk",
            "permissionMode": self._session.mode,
        }
        self._record.chain(record, uuid=last.uuid)
        self._record.last_prompt(self._prompt)
        if not last.composed:
            for attachment in file_attachments(self._prompt, self._session.options.cwd):
                self._record.chain({"type": "attachment", "attachment": attachment})
        self._echoes.append((self._content, last.uuid))

    def _fold(self, message: Message) -> None:
        details = {"content": message.text, "reason": "absorbed_mid_turn", "commandUuid": message.uuid}
        self._record.queue("remove", **(details if self._modern else {}))
        attachment = {
            "type": "queued_command",
            "prompt": message.content,
            "source_uuid": message.uuid,
            "commandMode": "prompt",
        }
        self._record.chain({"type": "attachment", "attachment": attachment})
        if not message.composed:
            for read in file_attachments(message.text, self._session.options.cwd):
                self._record.chain({"type": "attachment", "attachment": read})
        self._folded.append(message)
        self._frames.echo(message.content, message.uuid)
        self._frames.lifecycle(message, "started")

    def _flush_echoes(self) -> None:
        """2.1.332 echoes a turn's prompt when the answer begins, 2.1.197 not before the answer's first whole block."""
        for content, uuid in self._echoes:
            self._frames.echo(content, uuid)
        self._echoes.clear()

    # what the model does

    async def _speak(self, text: str, gate: Gate | None) -> None:
        """A finished answer; with a gate, half of it before and half of it after."""
        message_id = self._open_message({"type": "text", "text": ""})
        half = text[: len(text) // 2]
        self._delta({"type": "text_delta", "text": half})
        if gate is not None:
            await self._session.loop.first(gate.opened, self._interrupted, self._preempted)
            gate.close()
        if self._interrupted.done or self._preempted.done:
            self._say(message_id, half, None, aborted=True)
            if self._interrupted.done:
                # 2.1.197 is gone before it has written that down.
                self._note_interruption("[Request interrupted by user]", kept=self._modern or not self._session.leaving)
                self._finish_interrupted("aborted_streaming", None)
            else:
                self._finish(half, "aborted_streaming", None)
            return
        self._delta({"type": "text_delta", "text": text[len(half) :]})
        self._say(message_id, text, "end_turn")
        self._close_message("end_turn")
        self._finish(text, "completed", "end_turn")

    async def _use_tool(self, step: Step) -> None:
        tool_use_id = "toolu_" + uuid4().replace("-", "")[:24]
        try:
            arguments = step.parsed_arguments()
        except ValueError:
            arguments = {}
        block = {"type": "tool_use", "id": tool_use_id, "name": step.tool, "input": arguments}
        message_id = self._open_message({**block, "input": {}})
        self._delta({"type": "input_json_delta", "partial_json": step.arguments})
        source = self._say_block(message_id, block, "tool_use")
        self._close_message("tool_use")
        outcome = await self._decide_and_run(step.tool, arguments, tool_use_id)
        content: dict[str, Any] = {
            "tool_use_id": tool_use_id,
            "type": "tool_result",
            "content": outcome.text,
            "is_error": outcome.is_error,
        }
        record = {
            "type": "user",
            "message": {"role": "user", "content": [content]},
            "toolUseResult": outcome.detail,
            "sourceToolAssistantUUID": source,
        }
        uuid = self._record.chain(record)
        self._own_users += 1
        self._frames.user([content], {"tool_use_result": outcome.detail}, uuid)

    async def _decide_and_run(self, tool: str, arguments: Any, tool_use_id: str) -> Outcome:
        session = self._session
        if not isinstance(arguments, dict) or not session.tools.knows(tool):
            return no_such_tool(tool)
        decision = verdict(session.options, session.mode, tool, arguments)
        if decision == "ask":
            answer = await self._ask(tool, arguments, tool_use_id)
            if isinstance(answer, Outcome):
                self._deny(tool, arguments, tool_use_id)
                return answer
            arguments = answer
        elif decision == "deny":
            self._deny(tool, arguments, tool_use_id)
            reason = f"Claude requested permissions to use {tool}, but you haven't granted it yet."
            self._frames.denied(tool, tool_use_id, reason)
            return Outcome(reason, is_error=True)
        outcome = await session.tools.run(tool, arguments, tool_use_id, self._frames.session_id, self._interrupted)
        return Outcome(REJECTED, is_error=True) if self._interrupted.done else outcome

    async def _ask(self, tool: str, arguments: Any, tool_use_id: str) -> Any:
        """The arguments to run with, or the outcome of a tool that may not run."""
        session = self._session
        session.registry.set_status("waiting", "permission prompt")
        self._frames.state("requires_action")
        question = self._question = Question(session.loop, self._frames, tool, arguments, tool_use_id)
        if session.hung_up:
            self.hang_up()
        await session.loop.first(question.answer, self._interrupted, self._preempted)
        self._question = None
        session.registry.set_status("busy")
        self._frames.state("running")
        if self._interrupted.done:
            return Outcome(REJECTED, is_error=True)
        if not question.answer.done:
            return Outcome(ABORTED[self._modern], is_error=True)
        response = question.answer.value
        if response.get("subtype") != "success":
            return Outcome(f"Tool permission request failed: {response.get('error')}", is_error=True)
        answer = response.get("response") or {}
        if answer.get("behavior") != "allow":
            if answer.get("interrupt"):
                self._interrupted.settle()
            return Outcome(str(answer.get("message", "")), is_error=True)
        return answer.get("updatedInput") or arguments

    def _deny(self, tool: str, arguments: Any, tool_use_id: str) -> None:
        self._denials.append({"tool_name": tool, "tool_use_id": tool_use_id, "tool_input": arguments})

    def _fail(self, text: str, kind: str, status: int | None) -> None:
        """The model request fails: a message of the agent's own, and a result that is an error."""
        self._flush_echoes()
        message_id = "msg_" + uuid4()
        content = [{"type": "text", "text": text}]
        message = assistant_message(message_id, content, "stop_sequence", modern=self._modern)
        uuid = self._record.chain({"type": "assistant", "message": message, "isApiErrorMessage": True})
        marks: dict[str, Any] = {"error": kind}
        if self._modern:
            marks |= {"is_api_error_message": True, "api_error_status": status, **self._marks(0)}
        self._frames.assistant(message_id, content, marks, uuid, stop_reason="stop_sequence")
        self._finish(text, "api_error" if self._modern else "completed", "stop_sequence", is_error=True, status=status)

    # frames of a message

    def _open_message(self, block: dict[str, Any]) -> str:
        message_id = "msg_" + uuid4().replace("-", "")[:24]
        if self._modern:
            self._flush_echoes()
        message = assistant_message(message_id, [], None, modern=self._modern)
        self._frames.event({"type": "message_start", "message": message}, self._marks(1))
        self._frames.event({"type": "content_block_start", "index": 0, "content_block": block}, {})
        return message_id

    def _delta(self, delta: dict[str, Any]) -> None:
        self._frames.event({"type": "content_block_delta", "index": 0, "delta": delta}, {})

    def _close_message(self, stop_reason: str) -> None:
        self._frames.event({"type": "content_block_stop", "index": 0}, {})
        delta = {"stop_reason": stop_reason, "stop_sequence": None}
        self._frames.event({"type": "message_delta", "delta": delta, "usage": {"output_tokens": 7}}, {})
        self._frames.event({"type": "message_stop"}, {})

    def _say(self, message_id: str, text: str, stop_reason: str | None, *, aborted: bool = False) -> None:
        self._text = text
        self._say_block(message_id, {"type": "text", "text": text}, stop_reason, aborted=aborted)

    def _say_block(self, message_id: str, block: dict[str, Any], stop_reason: str | None, *, aborted: bool = False) -> str:
        """The whole block, on stdout (where it has no stop reason yet) and in the transcript (where it has)."""
        self._flush_echoes()
        message = assistant_message(message_id, [block], stop_reason, modern=self._modern)
        uuid = self._record.chain({"type": "assistant", "message": message})
        marks = self._marks(0)
        if aborted and self._modern:
            marks = {"aborted": True, **marks}
        self._frames.assistant(message_id, [block], marks, uuid)
        return uuid

    def _marks(self, kind: int) -> dict[str, Any]:
        """Our messages' uuids, on the first frame of a kind (2.1.332)."""
        if not self._modern or self._marked[kind] or not self._messages[-1].named:
            return {}
        self._marked[kind] = True
        return {"user_message_uuid": self._messages[-1].uuid, "user_message_uuids": self._uuids()}

    def _uuids(self) -> list[str]:
        return [message.uuid for message in (*self._messages, *self._folded) if message.named]

    # the end

    def _note_interruption(self, text: str, *, kept: bool = True) -> None:
        content = [{"type": "text", "text": text}]
        uuid = self._record.chain({"type": "user", "message": {"role": "user", "content": content}}) if kept else uuid4()
        self._own_users += 1
        self._frames.user(content, {}, uuid)

    def _finish_interrupted(self, reason: str, stop_reason: str | None) -> None:
        error = f"[ede_diagnostic] result_type=user last_content_type=n/a stop_reason={stop_reason or 'null'}"
        self._end(
            {
                "subtype": "error_during_execution",
                "is_error": True,
                "stop_reason": stop_reason,
                "terminal_reason": reason,
                "errors": [error],
            }
        )

    def _finish(
        self, text: str, reason: str, stop_reason: str | None, *, is_error: bool = False, status: int | None = None
    ) -> None:
        self._end(
            {
                "subtype": "success",
                "is_error": is_error,
                "api_error_status": status,
                "result": text,
                "stop_reason": stop_reason,
                "terminal_reason": reason,
            }
        )

    def _end(self, fields: dict[str, Any]) -> None:
        self._flush_echoes()
        whole = fields["terminal_reason"] == "completed"
        for message in self._folded if whole else ():
            self._frames.lifecycle(message, "completed")
        marks: dict[str, Any] = {}
        if self._modern and self._uuids():
            marks = {"user_message_uuid": self._messages[-1].uuid, "user_message_uuids": self._uuids()}
        spent = int((time.monotonic() - self._started) * 1000)
        self._frames.result(
            {
                **fields,
                "duration_ms": spent,
                "duration_api_ms": spent,
                "num_turns": 1 + self._own_users,
                "permission_denials": self._denials,
                **marks,
            }
        )
        for message in self._messages if whole else (*self._messages, *self._folded):
            self._frames.lifecycle(message, "completed" if whole else "cancelled")
