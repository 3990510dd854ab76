"""Claude Code's command line: one turn of a conversation without a terminal, and what its lines say of it.

Owns the arguments, the one line of input and the meaning of the output; sans-I/O but for `_hindrance` and `_transcript`.
Measured with 2.1.197 and 2.1.332, whose records hold our uuid, but not always all of the turn:

* 2.1.197 takes nothing from a stdin that is a file, and ends well; a pipe, a FIFO or a socket is read, also when its writer is
  gone already.
* A repeated uuid runs nothing, also after a resume: exit status 0 and no result. 2.1.332 says `completed` of it and never
  `started`, 2.1.197 says nothing at all; that is how an interrupt before the turn looks in 2.1.332 as well.
* SIGINT ends a turn with a result that says `aborted_…`; the exit status is 0 or 1. 2.1.197 does not record it when the model
  was speaking. SIGTERM and SIGHUP end it at once and without a result. SIGKILL right after the start leaves no record at all
  of a message that 2.1.197 has sent to the model already: what has begun by the output is never absent.
* Nobody is asked: what needs an approval is denied, and the turn goes on.
* A command that was left in the background makes a turn of its own, with a result of its own, when it is over. 2.1.332 lives on
  until then; 2.1.197 ends it after 5 s.
* An editor that has the session open is no hindrance to it (the transcript gets two branches), nor is a directory that
  nobody trusts or that is no git repository. 2.1.197 finds a session from its own directory only.
* A mode is for one process: a resume is back at the person's own, also where a panel had the session in ``plan`` (EN-17).
"""

from __future__ import annotations

import re
from typing import Any

from shims.claude import sessions
from shims.claude.command import PRODUCT
from shims.claude.message import may_be_result, user_line
from shims.headless import Headless, Hindrance, Order, Said, in_short
from shims.jsonline import as_list, as_object, parse_object

LONGEST_LINE = 1 << 20
"""Bytes of a line that is decoded though it is no result: a result of a tool may have any length, and tells nothing."""

_STREAM = b'{"type":"stream_event"'
_LOGGED_OUT = "authentication_failed"
_LOGIN = "run `claude` and `/login` in a terminal"
_STRICTER = ("plan", "dontAsk")
_OWN = (None, "human")
"""Where the message of a turn comes from that is no note of a command's end, and none of another session's."""

_REFUSALS = (
    (r"No conversation found|does not match any session title", "unknown_session", True),
    (r"running as a background agent|running in the background", "session_held", True),
    (r"is already in use", "turn_failed", False),  # an earlier attempt of ours may have opened it
    (r"^error: (unknown )?option|Invalid session ID|cannot be used with root", "turn_failed", True),
)
"""How it refuses before it reads the message: pattern, code, and whether the message is certain to be nowhere."""
_REFUSES = [(re.compile(pattern, re.M), code, untouched) for pattern, code, untouched in _REFUSALS]


def _arguments(order: Order) -> list[str]:
    conversation = f"--resume={order.session}" if order.session else f"--session-id={order.new}"
    model = [f"--model={order.model}"] if order.model else []
    mode = [f"--permission-mode={order.mode}"] if order.mode else []
    return [
        "-p",
        "--output-format=stream-json",
        "--verbose",  # or it refuses the format
        "--input-format=stream-json",
        "--include-partial-messages",  # long thinking would look like a process that hangs (DE-32)
        conversation,
        *model,
        *mode,
    ]


class _Output:
    """What the lines of one turn have said."""

    def __init__(self, session: str) -> None:
        self._expected = session
        self._said = Said()
        self._failure = ""
        """What the last answer says of why it is none."""
        self._retried = ""
        """The last request to the model that failed and was sent again."""

    def feed(self, line: bytes) -> None:
        if line.startswith(_STREAM) or (len(line) > LONGEST_LINE and not may_be_result(line)):
            return
        message = parse_object(line)
        if message.get("parent_tool_use_id") is not None:
            return  # of a sub-agent
        kind = message.get("type")
        if kind == "system":
            self._system(message)
        elif kind == "command_lifecycle":  # from 2.1.224 on
            if message.get("state") == "started":
                self._update(begun=True)
        elif kind == "assistant":
            self._failure = str(message.get("error") or "")
        elif kind == "result":
            self._result(message)

    def said(self) -> Said:
        return self._said

    def closed(self, status: int, errors: str) -> Said:
        if self._said.ended or self._said.code:
            return self._said
        if not self._said.begun and not status:
            words = "Claude Code has run nothing: it had this message before, or was interrupted; its records tell"
            self._update(code="nothing_ran", reason=words)
        elif status != 1 or not self._refused(errors):
            self._update(code="turn_failed", reason=in_short(self._ending(status, errors)))
        return self._said

    def _ending(self, status: int, errors: str) -> str:
        killed = -status if status < 0 else status - 128
        how = f"by signal {killed}" if 0 < killed < 65 else f"with exit status {status}"
        # 2.1.197 quotes a line that it cannot read.
        last = "" if "streaming input line" in errors else (errors.strip().splitlines() or [""])[-1]
        why = last or self._retried
        return f"Claude Code ended {how} before the turn was over{': ' if why else ''}{why}"

    def _system(self, message: dict[str, Any]) -> None:
        subtype = message.get("subtype")
        if subtype == "init":
            self._begins(str(message.get("session_id") or ""))
        elif subtype == "permission_denied":  # 2.1.332; in both the result tells them once more
            self._deny([message])
        elif subtype == "api_retry":
            self._retried = f"the model could not be reached ({message.get('error_status') or message.get('error')})"

    def _begins(self, session: str) -> None:
        self._update(session=self._said.session or session, begun=True)
        if self._expected and session and session != self._expected:
            self._update(code="wrong_session", reason=in_short(f"Claude Code went on with another conversation, {session}"))

    def _result(self, message: dict[str, Any]) -> None:
        self._deny(as_list(message.get("permission_denials")))
        origin = as_object(message.get("origin")).get("kind")
        text = message.get("result")
        text = text if isinstance(text, str) else ""
        if self._said.code == "wrong_session":
            return
        if self._said.ended or origin not in _OWN:
            if self._said.ended and origin == "task-notification" and not message.get("is_error") and text:
                self._update(later=(*self._said.later, text))
            return
        self._update(ended=True)
        if str(message.get("terminal_reason")).startswith("aborted"):  # also without an error, by a message that cut in
            self._update(code="turn_cancelled", reason="the turn was interrupted")
        elif message.get("is_error") or message.get("subtype") != "success":  # either may be there without the other
            words = text or " ".join(map(str, as_list(message.get("errors")))) or str(message.get("subtype"))
            self._failed(words)
        elif message.get("num_turns") == 0:  # a command, which the model never saw
            self._update(code="turn_failed", reason="Claude Code took the message for a command of its own")
        else:
            self._update(text=text)

    def _failed(self, words: str) -> None:
        if self._refused(words):
            return
        if self._failure == _LOGGED_OUT:
            self._update(code="not_logged_in", reason=f"{in_short(words[:200])}; {_LOGIN}")
        else:
            self._update(code="turn_failed", reason=in_short(words))

    def _refused(self, words: str) -> bool:
        if self._said.begun:
            return False
        for pattern, code, untouched in _REFUSES:
            if pattern.search(words):
                self._update(code=code, reason=in_short(words), untouched=untouched)
                return True
        return False

    def _deny(self, refusals: list[Any]) -> None:
        names = [as_object(refusal).get("tool_name") for refusal in refusals]
        named = [in_short(name) for name in names if isinstance(name, str)]
        self._update(denied=tuple(dict.fromkeys((*self._said.denied, *named))))

    def _update(self, **changes: Any) -> None:
        self._said = self._said._replace(**changes)


def _hindrance(store: str, session: str) -> Hindrance | None:
    """What is no uuid would be looked for among the titles."""
    if _transcript(store, session):
        return None
    return Hindrance("unknown_session", in_short(f"Claude Code has no conversation {session}"))


def _transcript(store: str, session: str) -> str:
    try:
        return sessions.find(store, session) or ""
    except OSError:
        return ""


def _resumed_mode(store: str, session: str) -> str:
    """A mode of the session's that is stricter than the person's own; what it was allowed beyond that, its panel allowed."""
    mode = sessions.mode(store, session)
    return mode if mode in _STRICTER else ""


HEADLESS = Headless(
    product=PRODUCT,
    arguments=_arguments,
    input=user_line,
    by_file=False,
    output=_Output,
    hindrance=_hindrance,
    transcript=_transcript,
    chooses_id=True,
    keyed=True,
    mode_setting="CROSS_AGENT_CLAUDE_PERMISSION_MODE",
    modes=(*_STRICTER, "default", "acceptEdits", "auto", "bypassPermissions"),
    resumed_mode=_resumed_mode,
)
