"""Codex's command line: one turn of a thread without a terminal, and what its lines say of it.

Owns the arguments, the text on stdin and the meaning of the output; sans-I/O but for what looks into the store. Measured with
codex-cli 0.147.0, 0.154.0 and 0.171.0:

* Text on stdin is text, whatever it begins with; nothing in it acts. A byte order mark at its beginning is dropped.
* A word that is no id is a name, and an unknown name opens a new thread, with exit status 0: `_hindrance` lets ids alone pass.
* ``thread.started`` comes before the message is handed to the thread. A turn, and then its message, are in the rollout before
  the model sees it, also of a process that is killed at that instant: what the output leaves open, `sessions.newest` tells.
* Nobody is asked. A call of an MCP tool that needs an approval fails and the turn goes on; of a command that asks to leave the
  sandbox stderr alone tells, of one that the sandbox stops nothing does.
* What sub-agents say is not in the output.
* ``exec resume`` forgets the sandbox in which the thread ran and takes that of the configuration, which may be a wider one.
* SIGINT ends a turn with a record and exit status 1, without a line. In the moment before the turn begins it may get lost.
  SIGTERM, SIGHUP and SIGKILL end the process at once, without a record. No command that it runs survives it.
* ``error`` is no end: it tells of each try to reach the model. 0.171 tries for ever while there is no network.
"""

from __future__ import annotations

import re
import signal
import sqlite3
from typing import Any

from shims.codex import facts, sessions
from shims.codex.command import PRODUCT
from shims.headless import Headless, Hindrance, Order, Said, in_short
from shims.jsonline import as_object, parse_object

LONGEST_LINE = 1 << 20
"""Bytes of a line that is decoded whatever it holds; the output of a command may have any length, and tells nothing."""

_SANDBOXES = ("read-only", "workspace-write", "danger-full-access")
_STRICTEST = _SANDBOXES[0]
_SETTING = "CROSS_AGENT_CODEX_SANDBOX"
_ALLOWS = f"Codex's own `default_tools_approval_mode` of that MCP server allows it, or {_SETTING} for new threads"

_EDGE = 256
"""Bytes at either end of a long line that hold its kinds and, in front of its end, the error of a call."""

_UNASKED = ("requires approval, but approval policy is never", "user cancelled MCP tool call")
"""In the error of a call that nobody was asked about: 0.154.0 and 0.171.0, and 0.147.0."""

_ESCALATED = "reject command"
"""On stderr, of a command that asked to leave the sandbox."""

_LOGGED_OUT = "not_logged_in"
_REFUSALS = (
    (r"already has an active writer", "session_held", ""),
    (r"no rollout found|failed to resolve rollout path", "unknown_session", ""),
    (r"is archived", "session_archived", ""),
    (r"Not inside a trusted directory", "directory_not_trusted", "run `codex` there once and trust it"),
    (r"status 401|Missing environment variable|[Nn]ot logged in|log out and sign in", _LOGGED_OUT, "run `codex login`"),
)
"""What of its own words tells why it has no answer: pattern, code, and the remedy where the words name none."""
_REFUSES = [(re.compile(pattern), code, remedy) for pattern, code, remedy in _REFUSALS]


def _arguments(order: Order) -> list[str]:
    """Options stand before ``resume``, which knows few of them itself."""
    mode = order.mode if order.session else order.mode or _STRICTEST
    line = ["exec", *([f"--sandbox={mode}"] if mode else []), *([f"--model={order.model}"] if order.model else [])]
    line += ["--skip-git-repo-check", f"--cd={order.cwd}"]
    return [*line, "resume", "--json", order.session, "-"] if order.session else [*line, "--json", "-"]


def _input(text: str, key: str) -> bytes:
    """Half a pair of UTF-16 is no text to Codex, which would refuse all of it; no record of it can hold the key."""
    del key
    return text.encode("utf-8", "replace")


class _Output:
    """What the lines of one turn have said."""

    def __init__(self, session: str) -> None:
        self._expected = session
        self._said = Said()
        self._words = ""
        """The last message of the agent's that has any words."""
        self._trouble = ""
        """What was said last of the model's being out of reach."""

    def feed(self, line: bytes) -> None:
        if self._said.ended or (len(line) > LONGEST_LINE and not _is_needed(line)):
            return
        event = parse_object(line)
        kind = event.get("type")
        if kind == "thread.started":
            self._begins(event.get("thread_id"))
        elif kind == "turn.started":
            self._update(begun=True)
        elif kind == "item.completed":
            self._item(as_object(event.get("item")))
        elif kind == "error":
            self._trouble = str(event.get("message") or "")
        elif kind == "turn.completed":
            self._completed()
        elif kind == "turn.failed":
            self._update(ended=True)
            self._fail(str(as_object(event.get("error")).get("message") or self._trouble))

    def said(self) -> Said:
        return self._said

    def closed(self, status: int, errors: str) -> Said:
        if _ESCALATED in errors:
            self._deny("exec_command")
        if self._said.ended or self._said.code:
            return self._said
        words = _last_error(errors)
        untouched = not self._said.begun and (not self._said.session or "turn/start failed" in words)
        self._update(untouched=untouched)
        if status == -signal.SIGINT or (status == 1 and self._said.begun and not words):
            self._update(code="turn_cancelled", reason="the turn was interrupted")
        else:
            self._fail(words if untouched else "", f"Codex ended {_how(status)} before the turn was over")
        return self._said

    def _begins(self, thread: object) -> None:
        if self._said.session or not isinstance(thread, str):
            return
        self._update(session=thread)
        if self._expected and thread != self._expected:
            self._update(code="wrong_session", reason=in_short(f"Codex went on with another thread, {thread}"))

    def _item(self, item: dict[str, Any]) -> None:
        kind, error = item.get("type"), as_object(item.get("error")).get("message")
        if kind == "agent_message":
            text = item.get("text")
            self._words = text if isinstance(text, str) and text.strip() else self._words
        elif kind == "mcp_tool_call" and isinstance(error, str) and any(words in error for words in _UNASKED):
            self._deny(f"mcp__{item.get('server')}__{item.get('tool')}")

    def _completed(self) -> None:
        self._update(ended=True)
        if self._said.code:
            return  # it is another thread's answer
        if not self._said.session:
            self._fail("", "Codex did not say which thread has answered")
        elif self._words:
            self._update(text=self._words)
        elif self._said.denied:
            tools = ", ".join(self._said.denied)
            reason = f"the turn ended without an answer: {tools} needed an approval, and nobody is asked; {_ALLOWS}"
            self._update(code="approval_needed", reason=in_short(reason))
        else:
            self._fail("", "the turn ended without a final message")

    def _fail(self, words: str, otherwise: str = "the turn failed") -> None:
        """Says why there is no answer, by Codex's own ``words`` where it has any."""
        if self._said.code:
            return
        for pattern, code, remedy in _REFUSES:
            if pattern.search(words) and (code == _LOGGED_OUT or not self._said.begun):
                self._update(code=code, reason=in_short(f"{remedy}: {words}" if remedy else words))
                return
        why = words or (f"{otherwise}: {self._trouble}" if self._trouble else otherwise)
        self._update(code="turn_failed", reason=in_short(why))

    def _deny(self, tool: str) -> None:
        self._update(denied=tuple(dict.fromkeys((*self._said.denied, in_short(tool)))))

    def _update(self, **changes: Any) -> None:
        self._said = self._said._replace(**changes)


def _is_needed(line: bytes) -> bool:
    """Whether a long line is more than what a tool was given, or gave."""
    head, end = line[:_EDGE], line[-_EDGE:]
    return b'"type":"item.' not in head or b'"agent_message"' in head or any(words.encode() in end for words in _UNASKED)


def _last_error(errors: str) -> str:
    """Codex's last words on stderr that say why it ended; its log and its warnings are none."""
    lines = [line.strip() for line in errors.splitlines()]
    told = [line for line in lines if line and not line.startswith("WARNING:") and not _LOGGED.match(line)]
    named = [line for line in told if line.lower().startswith("error")]
    return (named or told or [""])[-1]


_LOGGED = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T\S+ +(?:ERROR|WARN|INFO|DEBUG|TRACE) ")


def _how(status: int) -> str:
    return f"by signal {-status}" if status < 0 else f"with exit status {status}"


def _hindrance(store: str, session: str) -> Hindrance | None:
    """Why ``session`` must not be resumed: the text would go into a new thread, or into the turn of what waits in the queue."""
    path = _transcript(store, session)
    if not path:
        return Hindrance("unknown_session", in_short(f"Codex has no thread {session} that ever had a turn"))
    if sessions.archived(path):
        return Hindrance("session_archived", f"the thread was put away; `codex unarchive {session}` brings it back")
    try:
        waiting = sessions.queued(store, session)
    except sqlite3.Error:
        return Hindrance("queue_unknown", "whether messages wait in the thread's own queue cannot be read")
    if waiting:
        words = f"messages wait in the thread's own queue ({len(waiting)}); `codex resume {session}` opens it, and they run"
        return Hindrance("queue_not_empty", words)
    return None


def _transcript(store: str, session: str) -> str:
    return (sessions.find(store, session) or "") if facts.is_thread(session) else ""


def _resumed_mode(store: str, session: str) -> str:
    """The sandbox in which the thread ran; where it does not say, the strictest.

    Full access is the configuration's to give: without a word of ours it has what its owner gives to every thread.
    """
    ran = sessions.sandbox(store, session)
    if ran == _SANDBOXES[-1]:
        return ""
    return ran if ran in _SANDBOXES else _STRICTEST


HEADLESS = Headless(
    product=PRODUCT,
    arguments=_arguments,
    input=_input,
    by_file=False,
    output=_Output,
    hindrance=_hindrance,
    transcript=_transcript,
    chooses_id=False,
    keyed=False,
    newest=sessions.newest,
    mode_setting=_SETTING,
    modes=_SANDBOXES,
    default_mode=_STRICTEST,
    new_only=True,
    resumed_mode=_resumed_mode,
    noise=lambda line: line.startswith(b'{"type":"error"'),
)
