"""One turn of the Grok stub on the command line: a session, one prompt, lines of ``streaming-json``, and the end.

Owns what differs from a panel: where the prompt comes from, how a session is chosen and refused, what the lines look like, and
that nobody answers a question. The turn itself and its records are a panel's. A signal ends it where it stands, unrecorded.
"""

from __future__ import annotations

import json
import os
import signal

from shims.grok.stub import store
from shims.grok.stub.server import AgentServer
from shims.grok.stub.session import Prompt, Session
from shims.grok.stub.store import MODEL, SessionFiles
from shims.grok.stub.tools import SessionServers
from shims.grok.stub.wire import Wire
from shims.stub_io import complain, write_all
from shims.stub_values import iso_now, uuid4, uuid7

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Final

    from shims.grok.stub.config import Config
    from shims.grok.stub.options import Options
    from shims.stub_loop import Loop

_NOT_SIGNED_IN: Final = (
    "Not signed in. To authenticate without a browser, run:\n  grok login --device-code\n\nAlternatively, set the XAI_API_KEY "
    "environment variable or run `grok login` on a machine with a browser."
)
_HEX: Final = frozenset("0123456789abcdef-")


class Refused(Exception):
    """The turn is not begun. The words go to stderr; with ``told`` to the output, too."""

    def __init__(self, words: str, *, told: bool = False) -> None:
        super().__init__(words)
        self.told = told


class TurnWire(Wire):
    """The output of one turn: what a client would be sent, as lines for a program that only reads."""

    def __init__(self, loop: Loop, end: Callable[[int], None]) -> None:
        super().__init__(loop)
        self._end = end

    def line(self, what: str, **facts: Any) -> None:
        """A line; where nobody reads any more the turn goes on all the same."""
        line = json.dumps({"type": what, **facts}, ensure_ascii=False, separators=(",", ":"))
        try:
            write_all(1, line.encode(errors="surrogatepass") + b"\n")
        except BrokenPipeError:
            pass  # its end is recorded

    def fail(self, words: str) -> None:
        self.line("error", message=words)
        complain(f"Error: {words}")
        self._end(1)

    def _write(self, message: dict[str, Any]) -> None:
        method = message.get("method")
        if method == "session/request_permission":
            self.take_answer({"id": message["id"], "result": {"outcome": {"outcome": "cancelled"}}})
        elif method in ("session/update", "_x.ai/session_notification"):
            self._tell(message["params"]["update"])
        elif "result" in message:
            self._complete(message["result"])
        elif "error" in message:
            self.fail(f"Internal error: {json.dumps(message['error']['data'], indent=2)}")

    def _tell(self, update: dict[str, Any]) -> None:
        """An update; whose it is, a sub-agent's perhaps, is not said."""
        kind = update["sessionUpdate"]
        if kind in ("agent_message_chunk", "agent_thought_chunk"):
            self.line("text" if kind == "agent_message_chunk" else "thought", data=update["content"]["text"])
        elif kind == "available_commands_update":
            self.line("available_commands", tools=update["_meta"]["tools"], commands=update["availableCommands"])
        elif kind == "response_completed":
            self.line("usage", usage=update["usage"])
        elif kind == "tool_call":
            tool = update.get("_meta", {}).get("x.ai/tool", {})
            named = {"toolCallId": update["toolCallId"], "title": update["title"], "kind": tool.get("kind", "other")}
            more = {"status": "pending", "toolName": update["title"], "rawInput": update["rawInput"]}
            self.line(kind, **named, **more, content=[], locations=[])
        elif kind == "tool_call_update":
            told = {name: update.get(name) for name in ("toolCallId", "status")}
            output = {"content": update.get("content", []), "rawOutput": update.get("rawOutput")}
            self.line(kind, **told, **output, locations=update.get("locations", []))

    def _complete(self, result: dict[str, Any]) -> None:
        meta = result["_meta"]
        used = meta.get("usage")
        turns = {} if used is None else {"usage": {"total_tokens": used["totalTokens"]}, "num_turns": used["modelCalls"]}
        self.line("end", stopReason=result["stopReason"], sessionId=meta["sessionId"], requestId=meta["requestId"], **turns)
        self._end(0)


class TurnServer(AgentServer):
    """One ``grok --prompt-file``."""

    def __init__(self, loop: Loop, options: Options, config: Config) -> None:
        self._output = TurnWire(loop, self.end)
        super().__init__(loop, options, config, self._output)
        self._given = options.given
        if self._given["permission-mode"]:
            config.approves_all = False  # the mode of the turn counts more, also where it is the stricter one

    def listen(self) -> None:
        """Begins the turn. Nothing is read."""
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        try:
            text = self._prompt_text()
            if not self.options.signed_in:
                raise Refused(_NOT_SIGNED_IN, told=True)
            session = self._reopened() if self._given["resume"] else self._opened()
        except Refused as refused:
            if refused.told:
                self._output.fail(str(refused))
                return
            complain(str(refused))
            self.end(1)
            return
        self._register(session)
        session.servers = SessionServers(session)
        for _ in range(2):
            session.show_commands()
        model = self._given["model"]
        if model not in ("", MODEL):
            words = (
                f"Couldn't set model '{model}': Invalid params: \"unknown model id\". Run 'grok models' to see available models."
            )
            self._output.fail(words)
            return
        session.accept(Prompt(0, uuid4(), [text]))

    def end(self, status: int) -> None:
        if self.options.env.get("GROK_TRACK_HEADLESS") == "1":
            _write_registry(self.options.home, [])
        super().end(status)

    def _prompt_text(self) -> str:
        path = self._given["prompt-file"]
        try:
            with open(path, encoding="utf-8", newline="") as file:
                text = file.read().strip()
        except OSError as error:
            raise Refused(f"Error: Failed to read '{path}': {error.strerror} (os error {error.errno})") from error
        if not text:
            raise Refused(f"Error: '{path}': prompt is empty")
        return text

    def _opened(self) -> Session:
        """A new session; one that is there is not gone on with."""
        named = self._given["session-id"] or uuid7()
        if not _is_uuid(named):
            raise Refused(f"Error: Error: --session-id must be a valid UUID (got '{named}').")
        files = SessionFiles(self.options.home, named, self.options.cwd)
        if os.path.exists(files.path):
            raise Refused(f"Error: Error: Session ID {named} is already in use.")
        files.create()
        files.note(session_kind="headless")
        return Session(self, named, self.options.cwd, files)

    def _reopened(self) -> Session:
        """A session from wherever it works. One that is not here is looked for elsewhere, which a stand-in can't reach."""
        if self._given["session-id"]:
            only = "--session-id can only be used with --continue or --resume if --fork-session is also specified."
            raise Refused(f"Error: Error: {only}")
        named = self._given["resume"]
        files = store.find(self.options.home, named)
        if files is None:
            words = (
                f'Session "{named}" not found locally, restoring conversation from remote...\nError: Failed to authenticate for '
            )
            raise Refused(f"{words}session restore: this stand-in knows no other place")
        cwd = files.summary["info"]["cwd"]
        if cwd != self.options.cwd:
            complain(f"Session {named} found locally (originally in {cwd})")
        session = Session(self, named, cwd, files)
        session.recover()
        session.reopened()
        return session

    def _register(self, session: Session) -> None:
        """A turn on the command line is in the registry only if it is told so."""
        if self.options.env.get("GROK_TRACK_HEADLESS") == "1":
            entry = {"session_id": session.session_id, "pid": os.getpid(), "cwd": session.cwd, "opened_at": iso_now()}
            _write_registry(self.options.home, [entry])


def _write_registry(home: str, own: list[dict[str, Any]]) -> None:
    """Puts this process's entries in place of those that it had."""
    path = os.path.join(home, "active_sessions.json")
    try:
        with open(path, encoding="utf-8") as file:
            entries = [entry for entry in json.load(file) if entry["pid"] != os.getpid()]
    except FileNotFoundError:
        entries = []
    with open(f"{path}.tmp", "w", encoding="utf-8") as file:
        json.dump([*entries, *own], file)
    os.replace(f"{path}.tmp", path)


def _is_uuid(text: str) -> bool:
    return [len(part) for part in text.split("-")] == [8, 4, 4, 4, 12] and _HEX.issuperset(text)
