"""The process of the Claude stub: what comes in on stdin, one turn after the other, and every way to end.

Owns the dispatch of lines and control requests, the current turn, and the order of clean-up. What a turn does is in
``turn``, what the frames look like in ``frames``.
"""

from __future__ import annotations

import json
import os
import signal
import stat

from shims.claude.stub import transcript as store
from shims.claude.stub.backlog import NOW, Backlog, Message
from shims.claude.stub.frames import Frames, initialize_answer
from shims.claude.stub.options import MODES, Options, UsageError, is_uuid
from shims.claude.stub.registry import LiveRecord
from shims.claude.stub.slash import finish_quietly, run_command, runs_locally
from shims.claude.stub.tools import Toolbox
from shims.claude.stub.transcript import Transcript
from shims.claude.stub.turn import Turn
from shims.stub_io import Lines, complain
from shims.stub_loop import Loop
from shims.stub_values import uuid4

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any


class Session:
    """One live session on stdin and stdout."""

    def __init__(self, loop: Loop, options: Options, transcript: Transcript) -> None:
        self.loop = loop
        self.options = options
        self.transcript = transcript
        self.frames = Frames(options, transcript.session_id)
        self.registry = LiveRecord(options, transcript.session_id)
        self.tools = Toolbox(loop, options, transcript.session_id)
        self.backlog = Backlog()
        self.mode = options.mode
        self.hung_up = False
        self.status = 0
        self.leaving = False
        """A signal has interrupted the turn: it is the last one."""
        self._turn: Turn | None = None

    def listen(self) -> None:
        """Takes lines and signals from now on."""
        self.loop.on_signal(signal.SIGTERM, lambda: self.leave(128 + signal.SIGTERM))
        self.loop.on_signal(signal.SIGHUP, lambda: self.leave(128 + signal.SIGHUP))
        self.loop.on_signal(signal.SIGINT, self._on_interrupt_signal)
        if not self.options.modern and stat.S_ISREG(os.fstat(0).st_mode):
            self.loop.ready.append(lambda: self._on_end(b""))  # 2.1.197 takes nothing from a file
            return
        Lines(self.loop, 0, self._on_line, self._on_end)

    def leave(self, status: int) -> None:
        """Ends the process with ``status``."""
        self.status = status
        self.loop.stop()

    # what commands and turns do to the session

    def open_turn(self) -> None:
        """The state and the frame that begin a turn."""
        self.registry.set_status("busy")
        self.frames.state("running")
        self.frames.init(self.mode, self.tools.states(), self.tools.names())

    def rename(self, title: str) -> None:
        """A title: in the transcript, and from 2.1.332 on in the registry too."""
        self.transcript.name(title)
        if self.options.modern:
            self.registry.set_name(title)
        self.frames.title(title)

    def clear(self, message_uuid: str) -> None:
        """A new conversation in the same process."""
        title = self.transcript.title
        if self.options.modern:
            reset = uuid4()
            marks = {"trigger": "clear", "user_message_uuid": message_uuid}
            self.frames.send({"type": "conversation_reset", "new_conversation_id": reset, **marks}, uuid=reset)
        self.transcript.close()
        seen = self.transcript.seen
        self.transcript = Transcript(self.options, uuid4())
        self.transcript.seen = seen
        self.frames.session_id = self.transcript.session_id
        self.registry.set_session(self.transcript.session_id)
        if title is not None:
            self.transcript.name(title)
            self.frames.title(title)

    # lines received

    def _on_line(self, line: bytes) -> None:
        if not line.strip():
            return
        try:
            message = json.loads(line)
        except ValueError:
            self._die(self._unreadable(line, "SyntaxError"))
            return
        if message is None:
            self._die(self._unreadable(line, "TypeError"))
            return
        if not isinstance(message, dict):
            return
        kind = message.get("type")
        if kind == "user":
            self._on_user(message)
        elif kind == "control_request":
            self._on_control_request(message)
        elif kind == "control_response":
            self._on_control_response(message)

    def _unreadable(self, line: bytes, kind: str) -> str:
        text = line.decode(errors="replace").rstrip("\r")
        if not self.options.modern:
            return f"Error parsing streaming input line: {text}: {kind}"
        quoted = text.partition('"type"')[2].split('"')
        named = quoted[1] if len(quoted) > 1 else "unknown"
        return f"Error parsing streaming input line (type={named}, {len(text)} chars): {kind}"

    def _die(self, reason: str) -> None:
        """A line that Claude cannot stomach ends it at once, running turn or not."""
        complain(reason)
        self.leave(1)

    def _on_user(self, line: dict[str, Any]) -> None:
        inner = line.get("message")
        role = inner.get("role", "undefined") if isinstance(inner, dict) else "undefined"
        if role != "user":
            self._die(f"Error: Expected message role 'user', got '{role}'")
            return
        message = Message(line, modern=self.options.modern)
        if message.uuid in self.transcript.seen:
            self.frames.lifecycle(message, "completed")
            self.frames.echo(message.content, message.uuid, again=True)
            return
        self.transcript.seen.add(message.uuid)
        if message.rank == NOW and self._turn is not None:
            self._turn.preempt()
        self.backlog.add(message)
        self.frames.lifecycle(message, "queued")
        self.transcript.queue("enqueue", content=message.text)
        self._pump()

    def _on_control_response(self, line: dict[str, Any]) -> None:
        response = line.get("response")
        if isinstance(response, dict) and self._turn is not None and self._turn.answer(response) and self.options.replay:
            self.frames.write(line)

    def _on_control_request(self, line: dict[str, Any]) -> None:
        request = line.get("request")
        request_id = line.get("request_id")
        if not isinstance(request, dict):
            self._die("Error: Missing request on control_request")
            return
        subtype = request.get("subtype")
        handler = {
            "initialize": self._initialize,
            "interrupt": self._interrupt,
            "set_permission_mode": self._set_permission_mode,
            "set_model": self._set_model,
            "cancel_async_message": self._cancel_async_message,
            "rename_session": self._rename_session,
        }.get(str(subtype))
        if handler is None:
            self.frames.refuse(request_id, f"Unsupported control request subtype: {subtype}", "unsupported_request")
        else:
            handler(request_id, request)

    # control requests

    def _initialize(self, request_id: Any, _request: dict[str, Any]) -> None:
        state = "idle" if self._turn is None else "running"
        self.frames.answer(request_id, initialize_answer(self.options, self.mode, state))

    def _interrupt(self, request_id: Any, _request: dict[str, Any]) -> None:
        if self._turn is not None:
            self._turn.interrupt()
        self.frames.answer(request_id, {"still_queued": self.backlog.uuids()} if self.options.modern else None)

    def _set_permission_mode(self, request_id: Any, request: dict[str, Any]) -> None:
        mode = request.get("mode")
        if mode == "bypassPermissions" and not self.options.may_bypass:
            self.frames.refuse(
                request_id,
                "Cannot set permission mode to bypassPermissions because the session was not launched with "
                "--dangerously-skip-permissions",
                "bypass_not_launched",
            )
        elif self.options.modern and mode not in MODES:
            self.frames.refuse(request_id, f"Cannot set permission mode: must be one of {', '.join(MODES)}", "invalid_mode")
        else:
            self.mode = str(mode)
            self.frames.answer(request_id, {"mode": mode})
            if mode in MODES:  # 2.1.197 accepts any word, and says nothing of one it doesn't know
                self.frames.mode(self.mode)

    def _set_model(self, request_id: Any, request: dict[str, Any]) -> None:
        model = request.get("model") or "default"
        said = f"`{model}`" if self.options.modern else str(model)
        content = f"<local-command-stdout>Set model to {said}</local-command-stdout>"
        self.frames.echo(content, uuid4())
        self.frames.answer(request_id, {"model": model} if self.options.modern else None)

    def _cancel_async_message(self, request_id: Any, request: dict[str, Any]) -> None:
        uuid = str(request.get("message_uuid"))
        message = self.backlog.withdraw(uuid)
        answer: dict[str, Any] = {"cancelled": message is not None}
        if message is not None:
            self.frames.lifecycle(message, "cancelled")
            self.transcript.queue("remove")
            if self.options.modern:
                answer["message_uuid"] = uuid
        self.frames.answer(request_id, answer)

    def _rename_session(self, request_id: Any, request: dict[str, Any]) -> None:
        title = request.get("title")
        if not isinstance(title, str) or not title.strip():
            self.frames.refuse(request_id, "title must be non-empty")
            return
        self.rename(title)
        self.frames.answer(request_id)

    # turns

    def _pump(self) -> None:
        """Starts what waits, one thing at a time; exits after the last one when the client is gone."""
        while self._turn is None and not self.leaving:
            messages = self.backlog.take()
            if not messages:
                self.registry.set_status("idle")
                if self.hung_up:
                    self.leave(int(self.frames.failed))
                return
            first = messages[0]
            if not first.asks:
                self._remember(first)
            elif runs_locally(first, modern=self.options.modern):
                run_command(self, first)
                self.frames.state("idle")
            else:
                self._turn = Turn(self, messages)
                self.loop.start(self._run_turn(self._turn))

    async def _run_turn(self, turn: Turn) -> None:
        await turn.run()
        self._turn = None
        self.frames.state("idle")
        if self.leaving:
            self.leave(0)
        self._pump()

    def _remember(self, message: Message) -> None:
        """``shouldQuery: false``: the model sees it with the next prompt."""
        self.transcript.queue("dequeue")
        self.frames.lifecycle(message, "started")
        self.open_turn()
        record = {
            "type": "user",
            "message": {"role": "user", "content": message.content},
            "promptSource": "sdk",
            "permissionMode": self.mode,
        }
        self.transcript.chain(record, uuid=message.uuid)
        self.frames.echo(message.content, message.uuid)
        finish_quietly(self, message, "", {})
        self.frames.state("idle")

    # the end

    def _on_end(self, rest: bytes) -> None:
        if rest.strip():
            self._on_line(rest)
        self.hung_up = True
        if self._turn is not None:
            self._turn.hang_up()
        self._pump()

    def _on_interrupt_signal(self) -> None:
        if self._turn is None:
            self.leave(0)
        else:
            self.leaving = True
            self._turn.interrupt()


# start


def open_transcript(options: Options) -> Transcript:
    """The conversation that argv asks for.

    Raises:
        UsageError: there is none, or its id is taken.
    """
    if options.continues:
        files = store.own_files(options)
        if not files:
            raise UsageError("No conversation found to continue")
        return take_up(options, files[0])
    if options.resume:
        return take_up(options, find_resumed(options, options.resume))
    if options.session_id is not None and store.find(options, options.session_id) is not None:
        raise UsageError(f"Error: Session ID {options.session_id} is already in use.")
    return Transcript(options, options.session_id or uuid4())


def find_resumed(options: Options, wanted: str) -> str:
    if is_uuid(wanted):
        path = store.find(options, wanted)
        if path is None:
            raise NoConversationError(wanted, f"No conversation found with session ID: {wanted}")
        return path
    path = store.find_title(options, wanted)
    if path is None:
        raise NoConversationError(
            uuid4(),
            "Error: --resume requires a valid session ID or session title when used with --print. "
            "Usage: claude -p --resume <session-id|title>. "
            f'Provided value "{wanted}" is not a UUID and does not match any session title.',
        )
    return path


def take_up(options: Options, path: str) -> Transcript:
    """An earlier conversation, or a fork of it. 2.1.332 goes on in the file's own folder, wherever it runs."""
    session_id = os.path.basename(path)[: -len(".jsonl")]
    if options.forks:
        transcript = Transcript(options, options.session_id or uuid4())
        transcript.fork(path)
        return transcript
    transcript = Transcript(options, session_id, entrypoint_dir=os.path.dirname(path))
    transcript.load()
    return transcript


class NoConversationError(UsageError):
    """``--resume`` with what names no conversation: said on stderr and as a result frame."""

    def __init__(self, session_id: str, reason: str) -> None:
        super().__init__(reason)
        self.session_id = session_id


def run(argv: Sequence[str], env: Mapping[str, str]) -> int:
    """Runs the process to its end; returns its exit code."""
    try:
        options = Options(argv, env)
        if not options.streams:
            raise UsageError("Error: this stand-in for Claude Code runs stream-json sessions only")
        transcript = open_transcript(options)
    except NoConversationError as error:
        complain(str(error))
        refused = Frames(options, error.session_id)
        refused.result(
            {
                "subtype": "error_during_execution",
                "is_error": True,
                "duration_ms": 0,
                "duration_api_ms": 0,
                "num_turns": 0,
                "stop_reason": None,
                "permission_denials": [],
                "errors": [str(error)],
            }
        )
        return 1
    except UsageError as error:
        complain(str(error))
        return 1
    loop = Loop()
    session = Session(loop, options, transcript)
    try:
        session.listen()
        loop.run()
    except BrokenPipeError:
        session.status = 1
    finally:
        session.registry.remove()
        loop.end_children()
    return session.status
