"""Grok Build's command line: one turn of a conversation without a terminal, and what its lines say of it.

Owns the arguments and the meaning of the output; sans-I/O but for `_hindrance` and `_transcript`. Measured with
1.0.41, and with 1.0.5 what no version is named for:

* The prompt's id is made up by the process. It stands in the last line of the output, as `requestId`, and in the records; the
  summary names it before the model is asked. There is no way to choose it.
* Lines of a sub-agent stand between those of the turn and are not marked: what seems to be the answer may be its words. The
  records tell them apart, by the prompt's id.
* Nobody is asked: what needs an approval ends the turn as `cancelled`, with exit status 0; what a rule of the person's denies is
  only told to the model. A mode holds for this turn alone (EN-17), and counts more than the person's own.
* White space around the message is cut off. A message that is empty then is refused; a command of Grok's own is run, ends well
  and says nothing; ``--verbatim`` changes neither that nor what ``@path`` does.
* SIGINT, SIGTERM and SIGHUP end it by that signal, and it records no end: the next process that opens the session does
  (`transcript`; of a first turn 1.0.5 records nothing at all). Commands that it runs have sessions of their own and survive it
  and its group, whatever ends it.
* Nobody reads its output any more: it goes on, and records all of it.
* Of a message of 100,000 bytes and more the model is shown the beginning, the end, and in which file the whole is (1.0.41).
* The model cannot be reached: it tries again without a word, for longer than 20 s (1.0.41).
* A directory that nobody trusts or that is no git repository is no hindrance, nor is another process that has the session open
  (both write to it). Started elsewhere it works in the session's own directory, as long as that is there.
* What is not found here is looked for with its maker, and what is no uuid among the titles of the directory first.
"""

from __future__ import annotations

import os
import re
import signal
from typing import Any

from shims.grok import sessions
from shims.grok.command import PRODUCT
from shims.headless import Headless, Hindrance, Order, Said, in_short
from shims.jsonline import as_list, as_object, parse_object
from shims.shelf import LONGEST_DECODED

_MODE_SETTING = "CROSS_AGENT_GROK_PERMISSION_MODE"
_NOT_SIGNED_IN = "Grok Build is not signed in; run `grok login` in a terminal"

_TEXT = b'{"type":"text"'
_TOOL = b'{"type":"tool_call'
"""How a line begins that is too long to be decoded for anything but the answer itself."""

_OF_THE_TURN = frozenset(("text", "thought", "tool_call", "tool_call_update", "usage", "plan", "max_turns_reached", "end"))
"""What is said only when the model has the message; commands are listed before that."""

_REFUSED = re.compile(r"User cancelled the execution for tool `(.+?)`|Tool `(.+?)` was not executed: Denied by permission policy")
_MCP_CALL = "use_tool"
_INTERNAL = "Internal error: "

_REFUSALS = (
    (r"^(?:Error: )?Not signed in", "not_logged_in", True),
    (r"^Session \".*\" not found locally|^(?:Error: )?Couldn't create session: Session does not exist", "unknown_session", True),
    (r"^Error: .* is already in use", "turn_failed", False),  # an earlier attempt of ours may have opened it
    (r"^Error: Failed to read |^Error: .*: prompt is empty", "turn_failed", True),
    (r"^(?:Error: )?Couldn't (?:set model|create session)", "turn_failed", True),
)
"""How it refuses before it takes the message: pattern, code, and whether the message is certain to be nowhere."""
_REFUSES = [(re.compile(f"(?:{pattern}).*", re.M), code, untouched) for pattern, code, untouched in _REFUSALS]
_MISUSED = 2
"""The exit status when it cannot read its arguments."""

_STOPPED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def _arguments(order: Order) -> list[str]:
    conversation = f"--resume={order.session}" if order.session else f"--session-id={order.new}"
    model = [f"--model={order.model}"] if order.model else []
    mode = [f"--permission-mode={order.mode}"] if order.mode else []
    # `json` and `plain` glue together what is said before and after a tool.
    return [f"--prompt-file={order.prompt}", conversation, "--output-format=streaming-json", *model, *mode]


def _input(text: str, key: str) -> bytes:
    del key
    return text.encode(errors="replace")


class _Output:
    """What the lines of one turn have said."""

    def __init__(self, session: str) -> None:
        self._expected = session
        self._said = Said()
        self._over = False
        self._last: list[str] = []
        """What was said after the last tool: the answer, unless nothing was (SE-08)."""
        self._earlier: list[str] = []
        self._mcp: dict[str, str] = {}
        """By the call: the tool behind `use_tool`."""

    def feed(self, line: bytes) -> None:
        if len(line) > LONGEST_DECODED and not line.startswith(_TEXT):
            if line.startswith(_TOOL):
                self._worked()
            return
        event = parse_object(line)
        kind = event.get("type")
        if self._over or not isinstance(kind, str):
            return
        if kind in _OF_THE_TURN and not self._said.begun:
            self._update(begun=True)
        if kind == "text":
            words = event.get("data")
            self._last += [words] if isinstance(words, str) and words else []
        elif kind == "tool_call":
            self._called(event)
        elif kind == "tool_call_update":
            self._returned(event)
        elif kind == "error":
            self._failed(str(event.get("message") or ""))
        elif kind == "end":
            self._ended(event)

    def said(self) -> Said:
        return self._said

    def closed(self, status: int, errors: str) -> Said:
        if self._said.ended or self._refused(errors):
            return self._said
        if status == _MISUSED and not self._said.begun:
            first, _, _ = errors.partition("\n")
            self._update(code="turn_failed", reason=in_short(f"Grok Build: {first}"), untouched=True)
            return self._said
        killed = -status if status < 0 else status - 128
        how = f"by signal {killed}" if 0 < killed < 65 else f"with exit status {status}"
        last = (errors.strip().splitlines() or [""])[-1]
        words = f"Grok Build ended {how} before the turn was over{': ' if last else ''}{last}"
        self._update(code="turn_cancelled" if killed in _STOPPED else "turn_failed", reason=in_short(words))
        return self._said

    def _called(self, call: dict[str, Any]) -> None:
        self._worked()
        name = as_object(call.get("rawInput")).get("tool_name")
        if call.get("toolName") == _MCP_CALL and isinstance(name, str):
            self._mcp[str(call.get("toolCallId"))] = name

    def _returned(self, update: dict[str, Any]) -> None:
        self._worked()
        if update.get("status") != "failed":
            return
        for part in as_list(update.get("content")):
            text = as_object(as_object(part).get("content")).get("text")
            found = _REFUSED.match(text) if isinstance(text, str) else None
            if found:
                name = in_short(self._mcp.get(str(update.get("toolCallId"))) or found[1] or found[2])
                self._update(denied=tuple(dict.fromkeys((*self._said.denied, name))))

    def _worked(self) -> None:
        """What follows a tool is another block of words, as in the records (`transcript`)."""
        if not self._said.begun:
            self._update(begun=True)
        if self._last:
            self._earlier.append("".join(self._last))
            self._last = []

    def _failed(self, words: str) -> None:
        self._update(ended=True)
        if self._refused(words):
            return
        if words.startswith(_INTERNAL):  # the prompt was taken, and its failure is recorded
            words = str(parse_object(words.removeprefix(_INTERNAL).encode(errors="replace")).get("message") or words)
            self._update(begun=True)
        self._update(code="turn_failed", reason=in_short(words or "Grok Build does not say why it failed"))

    def _refused(self, words: str) -> bool:
        if self._said.begun:
            return False
        for pattern, code, untouched in _REFUSES:
            found = pattern.search(words)
            if found:
                why = found[0].removeprefix("Error: ").removeprefix("Error: ")
                reason = _NOT_SIGNED_IN if code == "not_logged_in" else in_short(f"Grok Build: {why}")
                self._update(code=code, reason=reason, untouched=untouched)
                return True
        return False

    def _ended(self, end: dict[str, Any]) -> None:
        session, turn = (str(end.get(name) or "") for name in ("sessionId", "requestId"))
        self._over = True
        self._update(session=session, turn=turn, ended=True, code="", reason="", untouched=False)
        if self._expected and session != self._expected:
            self._update(code="wrong_session", reason=in_short(f"Grok Build went on with another conversation, {session}"))
            return
        reason = str(end.get("stopReason"))
        answer = "".join(self._last) or "\n\n".join(self._earlier)
        if reason == "end_turn" and answer:
            self._update(text=answer)
        elif reason == "cancelled":
            self._cancelled()
        else:
            words = "without an answer" if reason == "end_turn" else f"with `{reason}`"
            self._update(code="turn_failed", reason=in_short(f"Grok Build ended the turn {words}"))

    def _cancelled(self) -> None:
        if not self._said.denied:
            self._update(code="turn_cancelled", reason="the turn was cancelled")
            return
        wanted = ", ".join(f"`{name}`" for name in self._said.denied)
        words = f"Grok Build ended the turn: {wanted} would have needed an approval, and nobody is there to give it"
        self._update(code="approval_needed", reason=f"{words[:200]}; {_MODE_SETTING} names the mode of such turns")

    def _update(self, **changes: Any) -> None:
        self._said = self._said._replace(**changes)


def _hindrance(store: str, session: str) -> Hindrance | None:
    """A session without a summary is not found either, and then looked for with its maker."""
    folder = sessions.find(store, session) if _UUID.fullmatch(session) else None
    if folder is not None and os.path.isfile(os.path.join(folder, sessions.SUMMARY)):
        return None
    return Hindrance("unknown_session", in_short(f"Grok Build has no conversation {session}"))


def _transcript(store: str, session: str) -> str:
    folder = sessions.find(store, session) if session else None
    return "" if folder is None else os.path.join(folder, sessions.UPDATES)


HEADLESS = Headless(
    product=PRODUCT,
    arguments=_arguments,
    input=_input,
    by_file=True,
    output=_Output,
    hindrance=_hindrance,
    transcript=_transcript,
    chooses_id=True,
    keyed=False,
    mode_setting=_MODE_SETTING,
    modes=("plan", "dontAsk", "default", "acceptEdits", "auto", "bypassPermissions"),
    newest=sessions.newest,
)
