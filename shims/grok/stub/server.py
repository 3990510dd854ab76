"""The agent process of the Grok stub: requests in, sessions behind them, and every way to end.

Owns the table of methods and the checks that come before a method does anything. What the real agent refuses is refused here
in its words.
"""

from __future__ import annotations

import json
import signal
from functools import partial

from shims.grok.stub import shown, store
from shims.grok.stub.checks import check_absolute, check_params
from shims.grok.stub.config import Config
from shims.grok.stub.session import Prompt, Session
from shims.grok.stub.store import SessionFiles
from shims.grok.stub.tools import SessionServers
from shims.grok.stub.wire import INTERNAL, INVALID_PARAMS, INVALID_REQUEST, NO_METHOD, NOT_SIGNED_IN, RpcError, Wire
from shims.stub_io import Lines, complain
from shims.stub_loop import Loop
from shims.stub_toml import ConfigError
from shims.stub_values import uuid4, uuid7

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Final

    from shims.grok.stub.options import Options

_BEFORE: Final = ("auth", "resolve_workspace", "folder_trust", "plugin_registry", "mcp_merge")
_MIDDLE: Final = ("persistence_init", "spawn_session_actor")
_AFTER: Final = ("git_discovery", "finalize_response", "tool_overrides", "response_ready")


class AgentServer:
    """One ``grok agent stdio``."""

    def __init__(self, loop: Loop, options: Options, config: Config, wire: Wire | None = None) -> None:
        self.loop = loop
        self.options = options
        self.config = config
        self.wire = wire or Wire(loop)
        self.echoes = False
        self.status = 0
        self.sessions: dict[str, Session] = {}
        self._initialized = False
        self._servers_shown = False
        self._handlers: dict[str, Callable[[Any, dict[str, Any]], None]] = {
            "initialize": self._initialize,
            "authenticate": self._authenticate,
            "session/new": self._new,
            "session/load": partial(self._open, replay=True),
            "session/resume": partial(self._open, replay=False),
            "session/close": self._close,
            "session/list": self._list,
            "session/prompt": self._prompt,
            "_x.ai/session/rename": self._rename,
            "_x.ai/sessions/list": self._list_activity,
        }

    def listen(self) -> None:
        """Takes lines and signals from now on."""
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            self.loop.on_signal(number, partial(self.end, 128 + number))
        Lines(self.loop, 0, self._on_line, self._on_end)

    def end(self, status: int) -> None:
        """The process ends after what it does now."""
        self.status = status
        self.loop.stop()

    # lines received

    def _on_end(self, _rest: bytes) -> None:
        self.wire.muted = True
        for session in self.sessions.values():
            session.files.muted = True
        self.loop.after(self.options.lingers, self.loop.stop)

    def _on_line(self, line: bytes) -> None:
        try:
            message = json.loads(line)
            if not isinstance(message, dict):
                raise ValueError("invalid type, expected struct RawIncomingMessage")
            number, method = message.get("id"), message.get("method", "")
            if isinstance(number, bool) or not isinstance(number, (str, int, type(None))) or not isinstance(method, str):
                raise ValueError("data did not match")
        except ValueError as error:
            complain(f"ERROR failed to parse incoming message: {error}")
            return
        if "method" not in message:
            self.wire.take_answer(message)
        elif number is None:
            self._on_notification(method, message.get("params"))
        else:
            try:
                self._on_request(number, method, message.get("params"))
            except RpcError as error:
                self.wire.refuse(number, error)

    def _on_notification(self, method: str, params: Any) -> None:
        if method not in ("session/cancel", "_x.ai/queue/remove"):
            complain("ERROR failed to decode: Method not found")
            return
        session = self.sessions.get(str(params.get("sessionId"))) if isinstance(params, dict) else None
        if session is None:
            return
        if method == "session/cancel":
            session.cancel()
        elif isinstance(params.get("id"), str):
            session.remove(params["id"])

    def _on_request(self, number: Any, method: str, params: Any) -> None:
        handler = self._handlers.get(method)
        if handler is None:
            words = f"unknown ACP extension method: {method[1:]}" if method.startswith("_") else None
            raise RpcError(NO_METHOD, words)
        handler(number, check_params(method, params))

    # the connection

    def _initialize(self, number: Any, params: dict[str, Any]) -> None:
        capabilities = params.get("clientCapabilities")
        meta = capabilities.get("_meta") if isinstance(capabilities, dict) else None
        self.echoes = isinstance(meta, dict) and meta.get("x.ai/userMessageEcho") is True
        self._initialized = True
        self.wire.respond(number, shown.initialized(self.options))

    def _authenticate(self, number: Any, params: dict[str, Any]) -> None:
        if params["methodId"] != "xai.api_key":
            raise RpcError(INVALID_PARAMS, f"unsupported auth method: {params['methodId']}")
        if not self.options.signed_in:
            raise RpcError(NOT_SIGNED_IN, "Set XAI_API_KEY or add api_key/env_key to config.toml.")
        self.wire.respond(number, {})

    def _admit(self, method: str, cwd: str) -> None:
        """What every way to open a session needs."""
        if not self._initialized:
            raise RpcError(INVALID_PARAMS, f"initialize must be called before {method}")
        if not self.options.signed_in:
            raise RpcError(NOT_SIGNED_IN, "no auth method id provided")
        check_absolute(cwd)

    # sessions

    def _new(self, number: Any, params: dict[str, Any]) -> None:
        self._admit("new_session", params["cwd"])
        self._show_servers()
        self._show_setup(_BEFORE, None)
        files = SessionFiles(self.options.home, uuid7(), params["cwd"])
        files.create()
        session = Session(self, files.session, params["cwd"], files)
        self.sessions[session.session_id] = session
        self._show_setup(_MIDDLE, session)
        self.wire.respond(number, shown.opened(session, new=True))
        self._show_setup(_AFTER, session)
        session.servers = SessionServers(session)
        session.show_commands()

    def _open(self, number: Any, params: dict[str, Any], *, replay: bool) -> None:
        """``session/load`` and ``session/resume``. One that is open already is only replayed: what runs in it goes on."""
        self._admit("load_session", params["cwd"])
        known = self.sessions.get(params["sessionId"])
        session = known or self._stored(params["sessionId"], params["cwd"])
        if session is None or session.cwd != params["cwd"]:
            detail = {"detail": "No such file or directory (os error 2)", "code": "FS_NOT_FOUND"}
            raise RpcError(INTERNAL, detail, "Path not found.")
        self._show_servers()
        if known is None:
            self.sessions[session.session_id] = session
            session.recover()
        if replay:
            session.replay()
        if known is None:
            session.servers = SessionServers(session)
        session.reopened()
        self.wire.respond(number, shown.opened(session, new=False))
        session.show_commands()

    def _stored(self, session_id: str, cwd: str) -> Session | None:
        if "/" in session_id:
            return None
        files = SessionFiles(self.options.home, session_id, cwd)
        return Session(self, session_id, cwd, files) if files.open() else None

    def _close(self, number: Any, params: dict[str, Any]) -> None:
        session = self.sessions.pop(params["sessionId"], None)
        if session is None:
            self.wire.respond(number, {"_meta": {"x.ai/closeOutcome": "notResident"}})
        else:
            self.loop.start(session.close(number))

    def _list(self, number: Any, params: dict[str, Any]) -> None:
        """Those that were ever prompted, of one working directory or of all."""
        wanted = params.get("cwd")
        found = [summary for summary in store.stored(self.options.home) if wanted in (None, summary["info"]["cwd"])]
        self.wire.respond(number, {"sessions": [shown.listed(summary) for summary in found if summary["num_messages"]]})

    def _list_activity(self, number: Any, _params: dict[str, Any]) -> None:
        rows = []
        for summary in store.stored(self.options.home):
            session = self.sessions.get(summary["info"]["id"])
            activity = "dormant" if session is None else "idle" if session.running is None else "working"
            rows.append(shown.activity_row(summary, activity, title=summary.get("generated_title")))
        self.wire.respond(number, {"result": {"sessions": rows}})

    def _rename(self, number: Any, params: dict[str, Any]) -> None:
        title = "".join(letter for letter in params.get("title") or "" if letter.isprintable()).strip()
        if not title:
            raise RpcError(INVALID_REQUEST, "title must not be blank")
        session = self.sessions.get(params["sessionId"])
        files = None if session is not None else store.find(self.options.home, params["sessionId"])
        if session is None and files is None:
            raise RpcError(INVALID_REQUEST, f"session not found: {params['sessionId']}")
        self.wire.respond(number, {"success": True})
        if session is not None:
            session.entitle(title, manual=True)
        elif files is not None:
            files.note(generated_title=title, title_is_manual=True)

    def _prompt(self, number: Any, params: dict[str, Any]) -> None:
        session = self.sessions.get(params["sessionId"])
        if session is None:
            raise RpcError(INVALID_PARAMS, "unknown session id")
        named = (params.get("_meta") or {}).get("promptId")
        blocks = [block["text"] for block in params["prompt"] if block["type"] == "text"]
        session.accept(Prompt(number, named if isinstance(named, str) else uuid4(), blocks))

    # told around

    def _show_servers(self) -> None:
        if not self._servers_shown:
            self._servers_shown = True
            servers = [entry.shown() for entry in self.config.mcp_servers]
            self.wire.notify("_x.ai/mcp/servers_updated", {"mcpServers": servers})

    def _show_setup(self, phases: tuple[str, ...], session: Session | None) -> None:
        named = None if session is None else session.session_id
        for phase in phases:
            self.wire.notify("_x.ai/session/setup", {"method": "session/new", "phase": phase, "sessionId": named})


def run(options: Options, kind: type[AgentServer] = AgentServer) -> int:
    """Runs the process to its end; returns its exit code."""
    try:
        config = Config(options.home)
    except (ConfigError, KeyError, TypeError) as error:
        complain(f"Error loading config.toml: {error}")
        return 1
    loop = Loop()
    server = kind(loop, options, config)
    try:
        server.listen()
        loop.run()
    except BrokenPipeError:
        return 1
    finally:
        loop.end_children()
    return server.status
