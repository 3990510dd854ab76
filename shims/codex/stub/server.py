"""The app-server of the Codex stub: requests in, threads and turns behind them, and every way to end.

Owns the handshake, the table of methods and the checks that come before a method does anything. What the real server
refuses is refused here in its words.
"""

from __future__ import annotations

import json
import os
import signal

from shims.codex.stub import rollout as store
from shims.codex.stub import submissions
from shims.codex.stub.checks import check_id, check_params
from shims.codex.stub.config import Config
from shims.codex.stub.history import agent_message, user_message
from shims.codex.stub.thread import Thread
from shims.codex.stub.threads import ThreadMethods
from shims.codex.stub.wire import INTERNAL, INVALID_PARAMS, RpcError, Wire
from shims.stub_io import Lines, complain
from shims.stub_loop import Loop
from shims.stub_toml import ConfigError
from shims.stub_values import uuid7

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Final

    from shims.codex.stub.options import Options

MAX_INPUT: Final = 1 << 20  # characters of one input
FIELDS: Final = {  # methods, with the fields that each insists on
    "initialize": ("clientInfo",),
    "thread/start": (),
    "thread/resume": ("threadId",),
    "thread/read": ("threadId",),
    "thread/list": (),
    "thread/loaded/list": (),
    "thread/turns/list": ("threadId",),
    "thread/name/set": ("threadId", "name"),
    "thread/archive": ("threadId",),
    "thread/unsubscribe": ("threadId",),
    "turn/start": ("threadId", "input"),
    "turn/steer": ("threadId", "expectedTurnId", "input"),
    "turn/interrupt": ("threadId", "turnId"),
}
QUEUE_FIELDS: Final = {
    "thread/queue/add": ("threadId", "clientUserMessageId", "input"),
    "thread/queue/list": ("threadId",),
    "thread/queue/delete": ("threadId", "queuedSubmissionId"),
    "thread/queue/start": ("threadId",),
}


class AppServer:
    """One app-server: on stdio, or with another ``wire`` in place of its client."""

    def __init__(self, loop: Loop, options: Options, config: Config, wire: Wire | None = None) -> None:
        self.loop = loop
        self.options = options
        self.config = config
        self.wire = wire or Wire(loop)
        self.originator = ""
        self.source = "vscode"  # whoever its client is
        self.experimental = False
        self.threads: dict[str, Thread] = {}
        self._initialized = False
        self._fields: dict[str, tuple[str, ...]] = {**FIELDS, **(QUEUE_FIELDS if options.has_queue else {})}
        methods = ThreadMethods(self)
        self._handlers: dict[str, Callable[[Any, dict[str, Any]], None]] = {
            "initialize": self._initialize,
            "thread/start": methods.start,
            "thread/resume": methods.resume,
            "thread/read": methods.read,
            "thread/list": methods.list,
            "thread/loaded/list": methods.loaded,
            "thread/turns/list": methods.turns,
            "thread/name/set": methods.name,
            "thread/archive": methods.archive,
            "thread/unsubscribe": methods.unsubscribe,
            "turn/start": self._turn_start,
            "turn/steer": self._turn_steer,
            "turn/interrupt": self._turn_interrupt,
            "thread/queue/add": self._queue_add,
            "thread/queue/list": self._queue_list,
            "thread/queue/delete": self._queue_delete,
            "thread/queue/start": self._queue_start,
        }

    def listen(self) -> None:
        """Takes lines and signals from now on."""
        if self.options.preempts:
            self.loop.on_signal(signal.SIGTERM, self.loop.stop)
        else:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)  # 0.147.0 and 0.154.0 die of it, without a word in the rollout
        # Codex dies of this one, without a word in the rollout.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        if self.options.has_queue:
            self.loop.on_signal(signal.SIGIO, self._drain_queues)
            submissions.watch(self.options)
        Lines(self.loop, 0, self._on_line, self._on_end)

    def perform(self, method: str, params: dict[str, Any]) -> None:
        """A request of this process's own, with nobody who would have to shake hands first."""
        try:
            self._handlers[method](0, params)
        except RpcError as error:
            self.wire.refuse(0, error)

    def close(self) -> None:
        """Unloads every thread: nothing of this process stays behind."""
        for thread in self.threads.values():
            thread.unload()
        self.loop.end_children()

    # lines received

    def _on_end(self, _rest: bytes) -> None:
        self.loop.stop()

    def _on_line(self, line: bytes) -> None:
        if not line.strip():
            return
        try:
            message = json.loads(line)
        except ValueError as error:
            complain(f"ERROR codex_app_server: failed to deserialize message: {error}")
            return
        number = message.get("id", 0) if isinstance(message, dict) else None
        if not isinstance(number, (str, int)) or isinstance(number, bool):
            complain("ERROR codex_app_server: failed to deserialize message")
        elif "method" not in message:
            self.wire.take_answer(message)
        elif "id" in message:
            try:
                self._on_request(message)
            except RpcError as error:
                self.wire.refuse(message["id"], error)

    def _on_request(self, message: dict[str, Any]) -> None:
        method = str(message["method"])
        fields = self._fields.get(method)
        if fields is None:
            known = ", ".join(f"`{name}`" for name in self._fields)
            raise RpcError(f"Invalid request: unknown variant `{method}`, expected one of {known}")
        params = check_params(method, message.get("params"), fields)
        if method != "initialize" and not self._initialized:
            raise RpcError("Not initialized")
        if method in QUEUE_FIELDS and not self.experimental:
            raise RpcError(f"{method} requires experimentalApi capability")
        self._handlers[method](message["id"], params)

    def _initialize(self, request_id: Any, params: dict[str, Any]) -> None:
        if self._initialized:
            raise RpcError("Already initialized")
        client = params["clientInfo"]
        if "name" not in client:
            raise RpcError("Invalid request: missing field `name`")
        self._initialized = True
        capabilities = params.get("capabilities") or {}
        self.experimental = capabilities.get("experimentalApi") is True
        self.wire.muted = frozenset(capabilities.get("optOutNotificationMethods") or ())
        self.originator = self.options.originator or client["name"]
        system = os.uname()
        agent = f"{client['name']}/{self.options.version} ({system.sysname} {system.release}; {system.machine})"
        self.wire.respond(
            request_id,
            {
                "userAgent": f"{agent} xterm ({client['name']}; {client.get('version')})",
                "codexHome": self.options.codex_home,
                "platformFamily": "unix",
                "platformOs": "macos" if system.sysname == "Darwin" else "linux",
            },
        )
        status = {"status": "disabled", "serverName": system.nodename, "environmentId": None}
        self.wire.notify("remoteControl/status/changed", status)

    def _drain_queues(self) -> None:
        """Another process may have added to the queue of a thread that is loaded here."""
        for thread in list(self.threads.values()):
            thread.drain()

    # turns

    def loaded_thread(self, thread_id: Any) -> Thread:
        """The thread of that id, if this process has it."""
        check_id(thread_id)
        thread = self.threads.get(thread_id)
        if thread is None:
            raise RpcError(f"thread not found: {thread_id}")
        return thread

    def _directed(self, params: dict[str, Any]) -> tuple[Thread, list[dict[str, Any]], str | None]:
        """Thread, input and client id of a message, checked."""
        thread = self.loaded_thread(params["threadId"])
        return thread, self._input(thread, params), params.get("clientUserMessageId")

    def _input(self, thread: Thread, params: dict[str, Any]) -> list[dict[str, Any]]:
        refuse_child(thread)
        content: list[dict[str, Any]] = params["input"]
        size = sum(len(part.get("text", "")) for part in content)
        if size > MAX_INPUT:
            raise RpcError(
                f"Input exceeds the maximum length of {MAX_INPUT} characters.",
                INVALID_PARAMS,
                {"input_error_code": "input_too_large", "max_chars": MAX_INPUT, "actual_chars": size},
            )
        return content

    def _turn_start(self, request_id: Any, params: dict[str, Any]) -> None:
        thread, content, client_id = self._directed(params)
        thread.approval_policy = params.get("approvalPolicy") or thread.approval_policy
        thread.cwd = params.get("cwd") or thread.cwd
        turn = thread.running
        if turn is None:
            turn = thread.begin(content, client_id)
            shown = turn.record.shown(self.options, [])
        else:
            # Not queued and not refused: it steers the running turn.
            turn.steer(content, client_id)
            shown = turn.record.shown(self.options, [])
            if not self.options.has_queue:
                shown["id"] = uuid7()  # 0.147 names a turn that never appears
        self.wire.respond(request_id, {"turn": {**shown, "startedAt": None}})

    def _turn_steer(self, request_id: Any, params: dict[str, Any]) -> None:
        thread, content, client_id = self._directed(params)
        turn = thread.running
        if turn is None:
            raise RpcError("no active turn to steer")
        if params["expectedTurnId"] != turn.turn_id:
            raise RpcError(f"expected active turn id `{params['expectedTurnId']}` but found `{turn.turn_id}`")
        turn.steer(content, client_id)
        self.wire.respond(request_id, {"turnId": turn.turn_id})

    def _turn_interrupt(self, request_id: Any, params: dict[str, Any]) -> None:
        thread = self.loaded_thread(params["threadId"])
        turn = thread.running
        last = turn.turn_id if turn is not None else None
        if last is None and not self.options.preempts and thread.turns:
            last = thread.turns[-1].turn_id  # before 0.171 the last turn counts, running or not
        if last is not None and params["turnId"] != last:
            raise RpcError(f"expected active turn id {params['turnId']} but found {last}")
        if turn is None:
            raise RpcError("no active turn to interrupt")
        turn.interrupt()
        self.wire.respond(request_id, {})

    # the queue

    def _queue_add(self, request_id: Any, params: dict[str, Any]) -> None:
        thread = self._known_thread(params["threadId"])
        entry = thread.submissions.add(params["clientUserMessageId"], self._input(thread, params))
        loaded = thread.thread_id in self.threads
        if loaded and thread.running is None and not thread.paused:
            thread.queue_changed()
            thread.drain()
            self.wire.respond(request_id, {"queuedSubmission": entry})
        else:
            self.wire.respond(request_id, {"queuedSubmission": entry})
            thread.queue_changed()

    def _queue_list(self, request_id: Any, params: dict[str, Any]) -> None:
        thread = self._known_thread(params["threadId"])
        self.wire.respond(request_id, {"data": thread.submissions.waiting(), "nextCursor": None})

    def _queue_delete(self, request_id: Any, params: dict[str, Any]) -> None:
        thread = self._known_thread(params["threadId"])
        removed = thread.submissions.remove(params["queuedSubmissionId"])
        self.wire.respond(request_id, {"deleted": removed is not None})
        if removed is not None:
            thread.queue_changed()

    def _queue_start(self, request_id: Any, params: dict[str, Any]) -> None:
        thread = self.loaded_thread(params["threadId"])
        if thread.running is not None:
            raise RpcError("a turn is already running")
        turn = thread.start_submission(params.get("queuedSubmissionId"), told=False)
        if turn is None:
            raise RpcError("queue is empty")
        self.wire.respond(request_id, {"turn": {**turn.record.shown(self.options, []), "startedAt": None}})
        thread.queue_changed()

    def _known_thread(self, thread_id: Any) -> Thread:
        """A thread of this process, or one that only the disk knows."""
        check_id(thread_id)
        if thread_id in self.threads:
            return self.threads[thread_id]
        path = store.find(self.options, thread_id)
        if path is None:
            raise RpcError(f"no rollout found for thread id {thread_id}", INTERNAL)
        return Thread.read(self, path, None)

    # a sub-agent, for tests

    def announce_child(self, parent: Thread) -> None:
        """A child thread as v2 sub-agents appear: no ``thread/started``, only notifications with an unknown id."""
        child = Thread(self, uuid7(), cwd=parent.cwd)
        child.parent_id = parent.thread_id
        self.threads[child.thread_id] = child
        child.run_as_child(
            user_message(uuid7(), None, [{"type": "text", "text": "help", "text_elements": []}]),
            agent_message("msg_" + os.urandom(8).hex(), "child done", "final_answer"),
        )


def refuse_child(thread: Thread) -> None:
    if thread.is_child:
        raise RpcError("direct app-server input is not allowed for multi-agent v2 sub-agents")


def run(options: Options) -> int:
    """Runs the process to its end; returns its exit code."""
    try:
        config = Config(options.codex_home)
    except (ConfigError, KeyError, TypeError) as error:
        complain(f"Error loading config.toml: {error}")
        return 1
    loop = Loop()
    server = AppServer(loop, options, config)
    try:
        server.listen()
        loop.run()
    except BrokenPipeError:
        return 1
    finally:
        server.close()
    return 0
