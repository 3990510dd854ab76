"""Claude Code's stream-json, both directions: what session lives here, what it does, and how a message gets in.

Owns every fact about the stdio protocol; sans-I/O. Measured with Claude Code 2.1.197 and 2.1.332 (protocols: claude.md,
sections 1 and 2). What shaped it:

* A user line with ``"priority":"later"`` and a fresh uuid runs as a turn of its own, after the human's, in both versions;
  without the priority it folds into the running turn and shares that turn's result.
* Two waiting ``later`` lines merge into one turn, so at most one of ours may wait.
* ``system/init`` comes with every turn, a result's key order differs between versions, ``is_error`` may come with
  ``subtype: success``.
* With ``--replay-user-messages`` each user line comes back with its uuid: in front of the answer, before 2.1.211 in front of
  its first whole block only. Control responses of the editor come back as well: those answer nobody.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker.wire import Approval, Inject, SessionState
from shims.claude.message import json_line, may_be_result, user_line
from shims.jsonline import as_object, parse_object, summary_of
from shims.lines import DROP, HOLD, PASS, may_be_object
from shims.stream import Finished, Progress, Rejected, Taken, Write, closes_with

if TYPE_CHECKING:
    from shims.lines import Bulk

_OURS = "xagent-"
_TYPE = b'{"type":"'
_ANSWER = _TYPE + b'control_response"'
_TOOL_USES_KEPT = 16

_BULK: Bulk = {b'{"type":"stream_event"': ()}


class ClaudeStream:
    """Tracker of one Claude Code process.

    Args:
        session: id known from the command line, empty when there is none.
        resumed: whether the command line continues a conversation.
        cwd: where the process works.
        renders: whether the host draws what it did not ask for; one that pairs each query with the next result would get
            out of step (SH-44).
        replays: whether the host asked for the echo of user lines.
        opened: when the process was started; like every `now` below, wall-clock seconds.
    """

    editor_markers = (b'"message"', b'"control_re')  # a user's line has a message; long words are found faster
    agent_markers = (
        b'"subtype"',
        b'"isReplay"',
        b'"command_lifecycle"',
        b'"conversation_reset"',
        b'"control_cancel_request"',
        b'"tool_use"',
    )
    agent_long = (b'{"type":"user","message"',)  # an echo names its message behind the text

    def __init__(self, *, session: str, resumed: bool, cwd: str, renders: bool, replays: bool, opened: float) -> None:
        self.progress: list[Progress] = []
        self.writes: list[Write] = []
        self.cli_pid = 0
        """Pid that the agent named in its `initialize` answer; 0 until then."""
        self.look_up_registry = False
        """Set when the live registry may say more than the stream did; the link reads it and calls `registered`."""
        self._session = session
        self._session_said = False
        """The stream itself has named the session: the registry may lag behind it, and adds nothing."""
        self._cwd = cwd
        self._empty = not resumed
        self._renders = renders
        self._replays = replays
        self._name = ""
        self._name_said = False
        """It was given since the last turn ended: what was read of the registry for that may be older."""
        self._title = ""
        self._model = ""
        self._opened = opened
        self._now = opened
        self._turn_since = 0.0
        self._last_human = 0.0
        self.ended = False
        self._approvals: dict[str, Approval] = {}
        self._tool_uses: list[str] = []
        self._current: _Injection | None = None
        self._initialize = ""
        self._withdrawals: dict[str, str] = {}
        """Requests of ours that the agent has not answered: their id, and the attempt to take back."""
        self._requests = 0

    # what is known

    def sessions(self) -> tuple[SessionState, ...]:
        approval = next(iter(self._approvals.values()), None)
        current = self._current
        return (
            SessionState(
                id=self._session,
                cwd=self._cwd,
                name=self._name,
                title=self._title,
                model=self._model,
                turn_since=self._turn_since,
                approval=approval,
                last_human=self._last_human,
                opened=self._opened,
                empty=self._empty,
                accepts=self._renders and not self.ended,
                why_not="" if self._renders else "its host pairs every answer with a query of its own",
                shows_message=self._replays,
                running=current.attempt if current is not None and current.begun else "",
                tool_uses=tuple(self._tool_uses),
            ),
        )

    def registered(self, session: str, name: str, given: bool) -> None:
        """What the live registry says of this process now (`sessions/<pid>.json`)."""
        if session and not self._session_said:
            self._session = session
        if name and given and session == self._session and not self._name_said:
            self._name = name

    # from the editor

    def from_editor(self, line: bytes, whole: bool, now: float) -> None:
        self._now = now
        if not whole:
            if b'"type":"user"' in line[:200]:
                self._human_line({})
            for answered in [name for name in self._approvals if name.encode(errors="surrogatepass") in line[:400]]:
                del self._approvals[answered]  # an answer that carries a huge input back
            return
        message = parse_object(line)
        kind = message.get("type")
        if kind == "user":
            self._human_line(message)
        elif kind == "control_response":
            self._approvals.pop(str(as_object(message.get("response")).get("request_id")), None)
        elif kind == "control_request":
            request = as_object(message.get("request"))
            if request.get("subtype") == "initialize":
                self._initialize = str(message.get("request_id"))
            elif request.get("subtype") == "rename_session" and isinstance(request.get("title"), str):
                self._name, self._name_said = request["title"], True

    def editor_ended(self) -> None:
        self.ended = True

    def _human_line(self, message: dict[str, Any]) -> None:
        self._last_human = self._now
        if message.get("shouldQuery") is not False:
            self._turn_since = self._turn_since or self._now
        self._empty = False

    # from the agent

    def from_agent(self, line: bytes, whole: bool, now: float) -> None:
        self._now = now
        if not whole:
            if may_be_result(line):
                self._result({}, seen=False)
            return
        message = parse_object(line)
        kind = message.get("type")
        if kind == "system":
            self._system(message)
        elif kind == "control_request":
            self._asks(message)
        elif kind == "control_cancel_request":
            self._approvals.pop(str(message.get("request_id")), None)
        elif kind == "control_response":
            self._answers(as_object(message.get("response")))
        elif kind == "command_lifecycle":
            self._lifecycle(message)
        elif kind == "user" and message.get("isReplay") is True:
            self._replayed(message)
        elif kind == "assistant":
            self._assistant(message)
        elif kind == "conversation_reset":
            self._moved_to(message.get("new_conversation_id"))
        elif kind == "result":
            self._moved_to(message.get("session_id"))
            self._result(message, seen=True)

    def _system(self, message: dict[str, Any]) -> None:
        subtype = message.get("subtype")
        if subtype == "init":
            self._moved_to(message.get("session_id"))
            self._cwd = str(message.get("cwd") or self._cwd)
            self._model = str(message.get("model") or self._model)
            self._turn_since = self._turn_since or self._now
            self._empty = False
        elif subtype == "session_state_changed":
            self._moved_to(message.get("session_id"))
            if message.get("state") == "idle":
                self._turn_since = 0.0
            else:
                self._turn_since = self._turn_since or self._now
        elif subtype == "session_title_changed" and isinstance(message.get("title"), str):
            self._name, self._name_said = message["title"], True

    def _asks(self, message: dict[str, Any]) -> None:
        request = as_object(message.get("request"))
        if request.get("subtype") == "can_use_tool":  # other control traffic is no approval (SH-45)
            tool = str(request.get("tool_name"))
            self._approvals[str(message.get("request_id"))] = Approval(tool, summary_of(request.get("input")), self._now)

    def _answers(self, response: dict[str, Any]) -> None:
        request = str(response.get("request_id"))
        if request == self._initialize:
            self._initialize = ""
            pid = as_object(response.get("response")).get("pid")
            self.cli_pid = pid if isinstance(pid, int) else 0
            self.look_up_registry = True
        elif request in self._withdrawals:
            attempt = self._withdrawals.pop(request)
            cancelled = as_object(response.get("response")).get("cancelled")
            current = self._current
            if current is None or current.attempt != attempt:
                return
            if cancelled is True:
                self._current = None
                self.progress.append(Rejected(attempt, "withdrawn"))
            elif cancelled is False:
                # It waits no more, so its turn runs: before 2.1.211 nothing else says so until the answer's first block is whole.
                self._begun(current)

    def _lifecycle(self, message: dict[str, Any]) -> None:
        current = self._current
        if current is None or message.get("command_uuid") != current.key:
            return
        if message.get("state") == "started":
            self._taken(current)
        elif message.get("state") == "cancelled" and not current.taken:
            self._current = None
            self.progress.append(Rejected(current.attempt, "withdrawn"))

    def _replayed(self, message: dict[str, Any]) -> None:
        self._moved_to(message.get("session_id"))
        self._turn_since = self._turn_since or self._now
        if self._current is not None and message.get("uuid") == self._current.key:
            self._taken(self._current)

    def _assistant(self, message: dict[str, Any]) -> None:
        content = as_object(message.get("message")).get("content")
        for block in content if isinstance(content, list) else []:
            if isinstance(block, dict) and block.get("type") == "tool_use" and "__send_to_" in str(block.get("name")):
                self._tool_uses = [*self._tool_uses[1 - _TOOL_USES_KEPT :], str(block.get("id"))]

    def _result(self, message: dict[str, Any], *, seen: bool) -> None:
        self._turn_since = 0.0
        self._approvals.clear()
        self.look_up_registry = True  # a name may have been given, the id may have moved
        self._name_said = False
        current = self._current
        if current is None:
            return
        named = message.get("user_message_uuids")
        text = message.get("result")
        text = text if isinstance(text, str) else ("" if seen else None)
        if isinstance(named, list):
            if current.key not in named:
                return
        elif not current.taken and not closes_with(text, current.token):
            return
        self._taken(current)
        self._current = None
        self.progress.append(Finished(current.attempt, _status(message), text, str(message.get("uuid") or "")))

    def _taken(self, current: _Injection) -> None:
        current.taken = True
        self._begun(current)

    def _begun(self, current: _Injection) -> None:
        if not current.begun:
            current.begun = True
            self.progress.append(Taken(current.attempt, self._session, current.key, self._replays))

    def _moved_to(self, session: object) -> None:
        if not isinstance(session, str) or not session:
            return
        self._session_said = True
        if session != self._session:
            if self._session:
                self._name, self._name_said = "", False
            self._session = session
            self.look_up_registry = True

    # injections

    def inject(self, order: Inject) -> str:
        if not self._renders:
            return "not_accepting"
        if self.ended:
            return "closed"
        if order.session != self._session if order.session else not self._empty:
            return "wrong_session"
        if self._current is not None:
            return "busy"
        self._current = _Injection(order.attempt, order.key, order.token)
        line = user_line(order.text, order.key, self._session)
        self.writes.append(Write(line, order.attempt, message=True))
        return ""

    def may_write(self, write: Write) -> bool:
        del write
        return not self.ended

    def withdraw(self, attempt: str) -> None:
        current = self._current
        if current is None or current.attempt != attempt or current.begun or attempt in self._withdrawals.values():
            return
        self._requests += 1
        identifier = f"{_OURS}{self._requests}"
        self._withdrawals[identifier] = attempt
        request = {"subtype": "cancel_async_message", "message_uuid": current.key}
        line = {"type": "control_request", "request_id": identifier, "request": request}
        self.writes.append(Write(json_line(line), attempt))

    def dropped(self, attempt: str) -> None:
        """The line of ``attempt`` was not written after all."""
        if self._current is not None and self._current.attempt == attempt:
            self._current = None

    def forgotten(self, attempt: str) -> None:
        self.dropped(attempt)

    def agent_ended(self, *, input_ended: bool) -> None:
        """Its transcript tells what it had."""

    # the sieve

    def agent_bulk(self) -> Bulk:
        return _BULK

    def outstanding(self) -> bool:
        return bool(self._withdrawals)

    def ahead(self) -> bytes:
        return b""

    def judge(self, start: bytes, whole: bool) -> str:
        if not may_be_object(start):
            return PASS
        if start.startswith(_TYPE) and not _ANSWER.startswith(start[: len(_ANSWER)]):
            return PASS
        if not whole:
            return HOLD
        if _OURS.encode() not in start or b'"subtype"' not in start:  # without the latter it would not be seen either
            return PASS
        message = parse_object(start)
        ours = str(as_object(message.get("response")).get("request_id")) in self._withdrawals
        return DROP if ours and message.get("type") == "control_response" else PASS


class _Injection:
    """Our one message that waits or runs."""

    __slots__ = ("attempt", "begun", "key", "taken", "token")

    def __init__(self, attempt: str, key: str, token: str) -> None:
        self.attempt = attempt
        self.key = key
        self.token = token
        self.begun = False
        """It is out of the agent's queue."""
        self.taken = False
        """Its echo was seen: the next result is its turn's."""


def _status(result: dict[str, Any]) -> str:
    if not result.get("is_error"):  # `subtype` may say success beside an error
        return "completed"
    return "interrupted" if str(result.get("terminal_reason")).startswith("aborted") else "failed"
