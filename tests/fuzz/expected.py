"""What the editor must get of what the agent says, worked out line by line beside the shims.

Owns the bookkeeping of the reference: which requests of ours have been written and not answered, and for Grok which turns
are ours and whether their message has been shown. Is told what was written, what was said and when; never how it was cut.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from shims import lines
from shims.jsonline import as_object
from tests.fuzz.dialects import GROK, Dialect, parse
from tests.fuzz.reference import DROP, MAY, PASS, Item


class Expected:
    """The agent's output, and what of it is the editor's."""

    def __init__(self, dialect: Dialect) -> None:
        self.items: list[Item] = []
        self._dialect = dialect
        self._made: set[str] = set()
        """Requests that exist and were not written: no agent can answer them."""
        self._written: set[str] = set()
        self._unsure: set[str] = set()
        """Requests that something has answered which is no answer to everybody."""
        self._open = b""
        """The line that has begun and not ended."""
        self._sure: set[str] = set()
        """Of those written, which were when that line began."""
        self._recent: set[str] = set()
        """Those answered since the breath in which it began."""
        self._loaded = False
        self._guessed: set[str] = set()
        """What was answered before the tracker was loaded, which sees that when it has made its first requests."""

    def loaded(self) -> None:
        """The tracker has seen everything that was said until now."""
        self._loaded = True

    def made(self, line: bytes) -> None:
        request = self._dialect.asks(line)
        if request and not self._loaded and request in self._guessed:
            self._unsure.add(request)
        elif request:
            self._made.add(request)

    def written(self, line: bytes) -> None:
        request = self._dialect.asks(line)
        if request in self._made:
            self._made.remove(request)
            self._written.add(request)

    def forgotten(self, number: int) -> None:
        """The broker knows the end of message ``number``."""

    def editor_said(self, data: bytes) -> None:
        """What the editor says decides in some protocols what it is shown."""

    def quiet(self) -> bool:
        """Whether there is nothing of ours that could still be answered."""
        return not (self._made | self._written | self._unsure)

    def said(self, data: bytes) -> None:
        """The agent has said ``data`` in one breath: nothing was written meanwhile."""
        if not self._open:
            self._recent = set()
        *ended, rest = data.split(b"\n")
        for part in ended:
            self._begin()
            self.items += self._judged(self._open + part)
            self._open = b""
        if rest:
            self._begin()
            self._open += rest

    def ended(self) -> None:
        """No more comes: what there is of a last line is the editor's, if it was not known to be ours for its length."""
        if self._open:
            too_long = len(self._open) > lines.LONGEST_UNDECIDED
            self.items.append(Item(self._open, self._by_beginning(self._open) if too_long else PASS))

    def _begin(self) -> None:
        if not self._open:
            self._sure = set(self._written)

    def _judged(self, line: bytes) -> list[Item]:
        """The items that ``line`` makes; it has just ended."""
        answer = self._dialect.answers(line)
        too_long = len(line) > lines.LONGEST_UNDECIDED
        verdict = self._by_beginning(line) if too_long else PASS
        if answer is not None and answer.request in self._known():
            sure = answer.plain and answer.request in self._sure & self._written
            if not too_long:
                verdict = DROP if sure else MAY
            self._has_answer(answer.request, answer.plain and len(line) <= lines.LONGEST_PARSED)
        elif answer is not None and not self._loaded:
            self._guessed.add(answer.request)
        elif too_long and verdict != PASS:
            self._has_answer(self._dialect.begins_as(line), False)
        return [Item(line + b"\n", verdict)]

    def _known(self) -> set[str]:
        return self._made | self._written | self._unsure | self._recent

    def _by_beginning(self, line: bytes) -> str:
        request = self._dialect.begins_as(line[: lines.LONGEST_UNDECIDED])
        if request in self._sure & self._written:
            return DROP
        return MAY if request in self._known() else PASS

    def _has_answer(self, request: str, plain: bool) -> None:
        if request in self._written and plain:
            self._recent.add(request)
        elif request not in self._recent:
            self._unsure.add(request)
        self._written.discard(request)
        self._made.discard(request)


_UPDATE = b'{"jsonrpc":"2.0","method":"session/update"'
_COMPLETE = b'{"jsonrpc":"2.0","method":"_x.ai/session/prompt_complete"'
_THOUGHT = b'"sessionUpdate":"agent_thought_chunk"'


@dataclass(slots=True)
class _Turn:
    """A turn of ours; ``block`` is the line that shows its message."""

    request: str
    block: bytes
    shown: bool = False
    unsure: bool = False


class GrokExpected(Expected):
    """As `Expected`, where the host draws no message of ours: it stands before its answer, and thoughts are left out."""

    def __init__(self) -> None:
        super().__init__(GROK)
        self._hides = self._plain_host = True
        self._turns: dict[str, _Turn] = {}
        self._editor = b""

    def made(self, line: bytes) -> None:
        super().made(line)
        message = json.loads(line)
        if message["method"] == "session/prompt":
            parameters = message["params"]
            key = parameters["_meta"]["promptId"]
            self._turns[key] = _Turn(message["id"], _block(parameters["sessionId"], key, parameters["prompt"][0]["text"]))

    def forgotten(self, number: int) -> None:
        turn = self._turns.get(f"dlv_{number}")
        if turn is not None:
            turn.unsure = True

    def editor_said(self, data: bytes) -> None:
        *ended, self._editor = (self._editor + data).split(b"\n")
        for line in ended:
            hello, plain = parse(line)
            if hello.get("method") == "initialize":
                self._introduced(as_object(hello.get("params")), plain and len(line) <= lines.LONGEST_PARSED)

    def _introduced(self, hello: dict[str, Any], plain: bool) -> None:
        """The host has said who it is; one that says so twice leaves open what becomes of the turns before."""
        name = as_object(hello.get("clientInfo")).get("name") or ""
        echoes = as_object(as_object(hello.get("clientCapabilities")).get("_meta")).get("x.ai/userMessageEcho") is True
        self._hides = not plain or (name in ("", "grok-build-gui", "grok-vscode-gui") and not echoes)
        self._plain_host &= plain
        for turn in self._turns.values():
            turn.unsure = True

    def _judged(self, line: bytes) -> list[Item]:
        begun = set(self._sure)
        items = super()._judged(line)
        if len(line) > lines.LONGEST_UNDECIDED:
            return [*self._may_show(), *items] if self._hides else items
        frame, plain = parse(line)
        key = self._key_of(frame)
        turn = self._turns.get(key)
        if turn is None or not self._hides or turn.request not in self._known():
            return items
        thought = as_object(frame["params"].get("update")).get("sessionUpdate") == "agent_thought_chunk"
        if not line.startswith((_UPDATE, _COMPLETE)) or "id" in frame or (thought and _THOUGHT not in line):
            plain = False
        mark = f'"promptId":"{key}"'.encode()
        sure = plain and self._plain_host and mark in line and not turn.unsure and turn.request in begun & self._written
        if not sure:
            turn.unsure = True
            return [Item(turn.block, MAY), Item(line + b"\n", MAY if thought else PASS)]
        if thought:
            return [Item(line + b"\n", DROP)]
        before = [] if turn.shown else [Item(turn.block, PASS)]
        turn.shown = True
        return before + items

    def _may_show(self) -> list[Item]:
        """A line too long to be held may be the first of whichever turn of ours runs."""
        waiting = [turn for turn in self._turns.values() if not turn.shown]
        for turn in waiting:
            turn.unsure = True
        return [Item(turn.block, MAY) for turn in waiting]

    def _key_of(self, frame: dict[str, Any]) -> str:
        """The turn whose message has to stand before ``frame``: it is of that turn, or that turn ended with it."""
        parameters = as_object(frame.get("params"))
        meta = as_object(parameters.get("_meta"))
        key = None
        if frame.get("method") == "session/update" and meta.get("isReplay") is not True:
            key = meta.get("promptId")
        elif frame.get("method") == "_x.ai/session/prompt_complete" and parameters.get("stopReason") != "cancelled":
            key = parameters.get("promptId")
        return key if isinstance(key, str) else ""


def _block(session: str, key: str, text: str) -> bytes:
    """The message as the person sees it: quoted, line by line, as if the agent had begun with it."""
    quoted = "".join(f"> {line}\n" for line in text.splitlines()) + "\n"
    content = {"type": "text", "text": quoted}
    update = {"sessionUpdate": "agent_message_chunk", "content": content}
    parameters = {"sessionId": session, "update": update, "_meta": {"promptId": key}}
    frame = {"jsonrpc": "2.0", "method": "session/update", "params": parameters}
    return json.dumps(frame, separators=(",", ":")).encode() + b"\n"
