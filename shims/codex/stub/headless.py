"""``codex exec --json`` of the stub: one turn of a thread, new or resumed, without a client.

Owns the command line, the text on stdin, the lines of output, the exit status and what SIGINT does. The turn is the app-server's,
as in the real agent: what that would tell a client is told in lines here. More than that one way of calling it is refused.
"""

from __future__ import annotations

import json
import os
import signal
import sys

from shims.codex.stub import rollout as store
from shims.codex.stub.checks import ID_LENGTH, WORDS
from shims.codex.stub.config import Config
from shims.codex.stub.server import AppServer
from shims.codex.stub.wire import Wire
from shims.stub_io import complain, write_all
from shims.stub_loop import Loop
from shims.stub_toml import ConfigError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, Final

    from shims.codex.stub.options import Options
    from shims.codex.stub.wire import RpcError

USAGE_STATUS: Final = 2
NEVER: Final = "never"  # the approval policy of every turn without a client
VALUED: Final = {"-s": "sandbox", "-m": "model", "-C": "cd", "--sandbox": "sandbox", "--model": "model", "--cd": "cd"}
FLAGS: Final = ("--json", "--skip-git-repo-check")
RESUMING: Final = ("model",)  # the options with a value that stand behind `resume` as well
WARNING: Final = (
    "Model metadata for `scripted` not found. Defaulting to fallback metadata; this can degrade performance and cause issues."
)
USAGE: Final = {
    "input_tokens": 10,
    "cached_input_tokens": 0,
    "cache_write_input_tokens": 0,
    "output_tokens": 5,
    "reasoning_output_tokens": 0,
}


class UsageError(Exception):
    """The command line makes no sense."""


class Line:
    """What stands behind ``codex exec``."""

    __slots__ = ("flags", "session", "values")

    def __init__(self, argv: Sequence[str]) -> None:
        self.values: dict[str, str] = {}
        self.flags: set[str] = set()
        words: list[str] = []
        rest = list(argv)
        while rest:
            word = rest.pop(0)
            name, equals, value = word.partition("=")
            if word in FLAGS:
                self.flags.add(word)
            elif name in VALUED and not (words[:1] == ["resume"] and VALUED[name] not in RESUMING):
                if not equals and not rest:
                    raise UsageError(f"a value is required for '{name}' but none was supplied")
                self.values[VALUED[name]] = value if equals else rest.pop(0)
            elif word.startswith("-") and word != "-":
                raise UsageError(f"unexpected argument '{name}' found")
            else:
                words.append(word)
        sandbox = self.values.get("sandbox", "read-only")
        if sandbox not in WORDS["sandbox"]:
            known = ", ".join(WORDS["sandbox"])
            raise UsageError(f"invalid value '{sandbox}' for '--sandbox <SANDBOX_MODE>'\n  [possible values: {known}]")
        self.session = words[1] if words[:1] == ["resume"] and len(words) == 3 else ""
        if words != (["resume", self.session, "-"] if self.session else ["-"]) or "--json" not in self.flags:
            raise UsageError("this stand-in for Codex takes its prompt from stdin and answers in JSON only")


class Lines(Wire):
    """In place of a client: answers go to the turn, notifications to it as well."""

    def __init__(self, loop: Loop) -> None:
        super().__init__(loop)
        self.turn: HeadlessTurn | None = None

    def respond(self, request_id: Any, result: dict[str, Any]) -> None:
        del request_id
        if self.turn is not None:
            self.turn.answered(result)

    def refuse(self, request_id: Any, error: RpcError) -> None:
        del request_id
        if self.turn is not None:
            self.turn.refused(error)

    def notify(self, method: str, params: dict[str, Any]) -> None:
        if self.turn is not None and self.turn.thread_id and params.get("threadId") == self.turn.thread_id:
            self.turn.heard(method, params)


class HeadlessTurn:
    """From the thread's opening to the end of the one turn; ``status`` is the exit status."""

    def __init__(self, server: AppServer, line: Line, text: str) -> None:
        self.thread_id = ""
        self.status = 1
        self._server = server
        self._line = line
        self._text = text
        self._doing = ""
        self._shown: dict[str, str] = {}
        """Items by their ids, as they are numbered in the output."""

    def begin(self) -> None:
        thread = self._named(self._line.session)
        values = self._line.values
        how = {"cwd": os.path.abspath(values.get("cd", ".")), "approvalPolicy": NEVER, "sandbox": values.get("sandbox")}
        if thread:
            self._ask("thread/resume", threadId=thread, excludeTurns=True, **how)
        else:
            self._ask("thread/start", threadSource="user", **how)

    def _named(self, session: str) -> str:
        """The thread that ``session`` means: what is no id is a name, and an unknown name means a new thread."""
        if len(session) == ID_LENGTH and session.count("-") == 4:
            return session
        names = store.read_names(self._server.options)
        return max((thread for thread, name in names.items() if name == session), default="")

    def _ask(self, method: str, **params: Any) -> None:
        self._doing = method
        self._server.perform(method, params)

    # what the app-server says

    def answered(self, result: dict[str, Any]) -> None:
        if not self.thread_id:
            self.thread_id = result["thread"]["id"]
            self._write("thread.started", thread_id=self.thread_id)
            self._server.loop.ready.append(self._send)  # a turn of what waited in the queue begins first

    def _send(self) -> None:
        self._ask("turn/start", threadId=self.thread_id, input=[{"type": "text", "text": self._text}])

    def refused(self, error: RpcError) -> None:
        data = f", data: {json.dumps(error.data, separators=(',', ':'))}" if error.data is not None else ""
        complain(f"Error: {self._doing}: {self._doing} failed: {error.message} (code {error.code}){data}")
        self._server.loop.stop()

    def heard(self, method: str, params: dict[str, Any]) -> None:
        if method == "turn/started":
            self._server.loop.on_signal(signal.SIGINT, self._interrupt)
            self._write("item.completed", item={"id": self._number("warning"), "type": "error", "message": WARNING})
            self._write("turn.started")
        elif method in ("item/started", "item/completed"):
            self._item(method.replace("/", "."), params["item"])
        elif method == "error":
            self._write("error", message=params["error"]["message"])
        elif method == "turn/completed":
            self._end(params["turn"])

    def _item(self, moment: str, item: dict[str, Any]) -> None:
        shown = shown_item(item)
        if shown is not None and (moment == "item.completed" or shown["type"] != "agent_message"):
            self._write(moment, item={"id": self._number(item["id"]), **shown})

    def _end(self, turn: dict[str, Any]) -> None:
        if turn["status"] == "completed":
            self._write("turn.completed", usage=USAGE)
            self.status = 0
        elif turn["status"] == "failed":
            self._write("turn.failed", error={"message": turn["error"]["message"]})
        self._server.loop.stop()

    def _interrupt(self) -> None:
        running = self._server.threads[self.thread_id].running
        if running is not None:
            running.interrupt()

    def _number(self, item: str) -> str:
        return self._shown.setdefault(item, f"item_{len(self._shown)}")

    def _write(self, kind: str, **fields: Any) -> None:
        write_all(1, json.dumps({"type": kind, **fields}, ensure_ascii=False, separators=(",", ":")).encode() + b"\n")


def shown_item(item: dict[str, Any]) -> dict[str, Any] | None:
    """An item of the protocol as the lines have it; None: they do not show it."""
    kind = item["type"]
    if kind == "agentMessage":
        return {"type": "agent_message", "text": item["text"]}
    status = "in_progress" if item.get("status") == "inProgress" else item.get("status")
    if kind == "commandExecution":
        shown = {"command": item["command"], "aggregated_output": item["aggregatedOutput"] or "", "exit_code": item["exitCode"]}
        return {"type": "command_execution", **shown, "status": status}
    if kind == "mcpToolCall":
        result = item["result"]
        if result is not None:
            result = {"content": result["content"], "structured_content": result["structuredContent"]}
        shown = {field: item[field] for field in ("server", "tool", "arguments")}
        return {"type": "mcp_tool_call", **shown, "result": result, "error": item["error"], "status": status}
    return None


def run(options: Options, argv: Sequence[str]) -> int:
    """Runs the process to its end; returns its exit status. SIGTERM ends it at once, SIGINT too until the turn begins."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    try:
        line = Line(argv)
        config = Config(options.codex_home)
        text = read_prompt()
    except UsageError as error:
        complain(f"error: {error}\n\nFor more information, try '--help'.")
        return USAGE_STATUS
    except (ConfigError, KeyError, TypeError) as error:
        complain(f"Error loading config.toml: {error}")
        return 1
    reason = refusal(options, line, text)
    if reason:
        complain(reason)
        return 1
    loop = Loop()
    lines = Lines(loop)
    server = AppServer(loop, options, config, lines)
    server.originator, server.source = options.originator or "codex_exec", "exec"
    turn = lines.turn = HeadlessTurn(server, line, text)
    try:
        turn.begin()
        loop.run()
    finally:
        server.close()
    return turn.status


def refusal(options: Options, line: Line, text: str) -> str:
    """Why nothing is begun; empty when it is."""
    cwd = line.values.get("cd", options.cwd)
    if not os.path.isdir(cwd):
        return "Error: No such file or directory (os error 2)"
    if options.preempts and "--skip-git-repo-check" not in line.flags and not in_repository(os.path.abspath(cwd)):
        return "Not inside a trusted directory and --skip-git-repo-check was not specified."
    return "" if text.strip() else "No prompt provided via stdin."


def in_repository(path: str) -> bool:
    return os.path.exists(os.path.join(path, ".git")) or (path != os.path.dirname(path) and in_repository(os.path.dirname(path)))


def read_prompt() -> str:
    """All of stdin: nothing begins before its end."""
    data = sys.stdin.buffer.read().removeprefix(b"\xef\xbb\xbf")
    return data.decode(errors="replace")
