"""One turn of the Grok stub: the prompt, the model's responses, and how it ends.

Owns what a turn says and when that is put on disk: a block of text is one line there, written when the block ends. Whatever
ends a turn early leaves its last block behind as far as it was said.
"""

from __future__ import annotations

import os
import time

from shims.grok.stub import slash
from shims.grok.stub.store import MODEL
from shims.grok.stub.wire import INTERNAL, RpcError, milliseconds
from shims.script import Step, find_script, parse_step, split_steps
from shims.stub_io import Gate
from shims.stub_loop import Wait

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Final

    from shims.grok.stub.session import Prompt, Session

TITLE_LENGTH: Final = 40
OUTCOMES: Final = {"end_turn": "completed"}
_TYPES: Final = {"agent_message_chunk": "AgentMessageChunk", "agent_thought_chunk": "AgentThoughtChunk"}


class Turn:
    """A running turn."""

    def __init__(self, session: Session, prompt: Prompt) -> None:
        self.session = session
        self.prompt = prompt
        self.stopped = Wait(session.server.loop)
        self.reason = "end_turn"
        self.aborted = False
        self.failure: RpcError | None = None
        self._cancellation: dict[str, Any] = {}
        self._responses = 0
        self._steps = 0
        self._began = time.monotonic()
        self._began_ms = milliseconds()
        self._chunks = 0
        self._said = ""
        self._kind = ""
        self._block = ""
        self._block_meta: dict[str, Any] = {}

    # run

    async def run(self) -> None:
        """The whole turn."""
        command = slash.command_of(self.prompt.text)
        self.session.files.happened("turn_started", session_id=self.session.session_id)
        self._take_prompt(host=command is not None)
        if command is not None:
            slash.run(self, command)
            return
        session = self.session
        text = " ".join(self.prompt.blocks)
        seen = text + attached_files(text, session.cwd)
        session.files.remember("user", f"<user_query>\n{text}\n</user_query>{seen[len(text) :]}")
        if not session.title:
            session.entitle(title_of(text))
        if session.server.options.subagent and session.prompted == 1:
            from shims.grok.stub import child  # only here: it needs a session, as a session needs turns

            child.announce(session)
        while await self._respond(seen):
            pass
        self.flush()
        if self.reason == "end_turn":
            session.files.remember("assistant", self._said)

    def _take_prompt(self, *, host: bool) -> None:
        """The prompt's own updates: on disk always, to the client only if it asked for an echo. They name no prompt id."""
        session = self.session
        for block in self.prompt.blocks or [""]:
            marks = {"hostTurn": True} if host else {"modelId": MODEL, "promptIndex": session.prompted}
            update = {"sessionUpdate": "user_message_chunk", "content": {"type": "text", "text": block}, "_meta": marks}
            meta = session.event()
            session.record(update, meta)
            if session.server.echoes:
                session.notify(update, meta)
        session.prompted += not host

    async def _respond(self, seen: str) -> bool:
        """One response of the model; True if it is to be asked again."""
        self.chunk("agent_thought_chunk", "I follow the script.")
        again = False
        for index, step in enumerate(response(seen, self._steps)):
            if step.verb == "fail":
                self._fail(step.text)
            elif step.verb == "tool":
                self._steps += 1
                again = await self._use_tool(step)
            else:
                await self._speak(step, "\n\n" if index else "")
            if self.stopped.done or self.failure is not None or self.reason != "end_turn":
                return False
        if not again:
            self._responded()
        return again

    def _responded(self) -> None:
        """The response is whole; only such a one is counted."""
        self._responses += 1
        self.session.show_commands(self.meta("AvailableCommandsUpdate"))
        usage = {"input_tokens": 10, "output_tokens": 5}
        self.session.notify_own({"sessionUpdate": "response_completed", "usage": usage})

    async def _speak(self, step: Step, separator: str) -> None:
        """Words of the model in two chunks; with a gate between them."""
        half = len(step.text) // 2
        self.chunk("agent_message_chunk", separator + step.text[:half])
        if step.gate:
            try:
                gate = Gate(self.session.server.loop, step.gate)
            except OSError as error:
                self._fail(str(error))
                return
            try:
                await self.session.server.loop.first(gate.opened, self.stopped)
            finally:
                gate.close()
            if self.stopped.done:
                return
        self.chunk("agent_message_chunk", step.text[half:])

    async def _use_tool(self, step: Step) -> bool:
        from shims.grok.stub.tools import run_tool

        self.flush()
        self._said = ""
        self._responded()
        await run_tool(self, step)
        return True

    def _fail(self, words: str) -> None:
        message = f"API error (status 400 Bad Request): {words}"
        failed = {"sessionUpdate": "retry_state", "type": "failed", "error_type": "api", "message": message}
        meta = self.session.event()
        self.flush()
        self.session.record(failed, meta, own=True)
        self.session.notify_own(failed, meta)
        self.reason = "error"
        self.failure = RpcError(INTERNAL, {"message": message, "http_status": 400})

    # what it says

    def meta(self, kind: str, **facts: Any) -> dict[str, Any]:
        """The ``_meta`` of an update of this turn: every one names its prompt."""
        session = self.session
        times = {"streamStartMs": self._began_ms, "turnStartMs": self._began_ms}
        return {"totalTokens": 15, **session.event(promptId=self.prompt.prompt_id, **times, updateType=kind), **facts}

    def chunk(self, kind: str, text: str, marks: dict[str, Any] | None = None) -> None:
        """A piece of a block of text."""
        if not text:
            return
        if kind != self._kind:
            self.flush()
        self._chunks += 1
        update: dict[str, Any] = {"sessionUpdate": kind, "content": {"type": "text", "text": text}}
        if marks is not None:
            update["_meta"] = marks
        self._kind = kind
        self._block += text
        self._said += text if kind == "agent_message_chunk" else ""
        self._block_meta = self.meta(_TYPES[kind], chunkId=self._chunks)
        self.session.notify(update, self._block_meta)

    def flush(self) -> None:
        """The block of text has ended."""
        if self._block:
            update = {"sessionUpdate": self._kind, "content": {"type": "text", "text": self._block}}
            self.session.record(update, self._block_meta)
        self._kind = self._block = ""

    def update(self, update: dict[str, Any], kind: str, *, kept: bool = True) -> None:
        """An update that is no text; one that is not kept names no prompt either."""
        if not kept:
            self.session.notify(update)
            return
        self.flush()
        meta = self.meta(kind)
        self.session.record(update, meta)
        self.session.notify(update, meta)

    # the end

    def abort(self, trigger: str = "") -> None:
        """Somebody else ends it: the client, or the end of the session."""
        self.aborted = True
        why = {"cancelTrigger": trigger, "cancellationContext": {"trigger": trigger}} if trigger else {}
        self.decline("MidTurnAbort", **why)
        self.stopped.settle()

    def decline(self, category: str, **why: Any) -> None:
        """It ends here, without another word of the model."""
        self.reason = "cancelled"
        self._cancellation = {"cancellationCategory": category, **why}

    def complete(self) -> None:
        """Tells and records the end."""
        ended: dict[str, Any] = {"prompt_id": self.prompt.prompt_id, "stop_reason": self.reason}
        if self.failure is not None:
            ended["agent_result"] = self.failure.data["message"]
        elif self._responses:
            ended["usage"] = self._usage()
        update = {"sessionUpdate": "turn_completed", **ended, "elapsed_ms": int((time.monotonic() - self._began) * 1000)}
        meta = self.session.event(**self._cancellation)
        self.session.files.happened("turn_ended", outcome=OUTCOMES.get(self.reason, self.reason))
        self.session.record(update, meta, own=True)
        self.session.notify_own(update, meta)

    def prompt_complete(self) -> dict[str, Any]:
        result = None if self.failure is None else self.failure.data["message"]
        ended = {"sessionId": self.session.session_id, "promptId": self.prompt.prompt_id, "stopReason": self.reason}
        return {**ended, "agentResult": result, **self._cancellation}

    def result_meta(self) -> dict[str, Any]:
        """What the answer to the prompt says beside the reason."""
        tokens = {"totalTokens": 15, "modelId": MODEL, "inputTokens": 10, "outputTokens": 5}
        used = {"usage": self._usage()} if self._responses else {}
        return {**tokens, **used, **self._cancellation}

    def _usage(self) -> dict[str, Any]:
        calls = self._responses
        return {"inputTokens": 10 * calls, "outputTokens": 5 * calls, "totalTokens": 15 * calls, "modelCalls": calls}


def response(message: str, done: int) -> list[Step]:
    """The steps of one response: any comments, then one other step; comments alone would end the turn."""
    script = find_script(message)
    if script is None:
        return [Step("say", text="echo: " + message[:300])]
    answered = 0
    steps: list[Step] = []
    try:
        for step in (parse_step(part, message) for part in split_steps(script)):
            steps.append(step)
            if step.verb == "comment":
                continue
            if answered == done:
                return steps
            answered, steps = answered + 1, []
    except ValueError as error:
        return [Step("fail", text=str(error))]
    return steps or [Step("say", text="done")]


def title_of(text: str) -> str:
    """A title that holds no script: somebody else's model may read it."""
    words = " ".join(text.partition("[[")[0].split())
    return words[:TITLE_LENGTH] or "Scripted session"


def attached_files(text: str, cwd: str) -> str:
    """The ``@path`` hazard: each name at a line start or after white space that is a file is read for the model."""
    found = ""
    for word in text.split():
        path = os.path.join(cwd, word[1:])
        if word.startswith("@") and os.path.isfile(path) and os.access(path, os.R_OK):
            with open(path, encoding="utf-8", errors="replace") as file:
                found += f'<file_contents path="{path}" isFullFile="true">\n{file.read()}\n</file_contents>\n'
    return f"\n\n<system-reminder>\n<attached_files>\n{found}</attached_files>\n</system-reminder>" if found else ""
