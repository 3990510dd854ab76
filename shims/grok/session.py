"""One Grok session as its agent process shows it over ACP. No I/O.

Source: ``grok agent stdio`` 1.0.41 (protocols: grok.md, sections 1 and 2).
"""

from __future__ import annotations

from typing import Any, NamedTuple

from broker.wire import Approval, SessionState
from shims.jsonline import as_list, as_object, summary_of

INTERACTIONS = ("session/request_permission", "_x.ai/ask_user_question", "_x.ai/exit_plan_mode", "_x.ai/mcp/elicit")
"""Requests of the agent's that wait for a person; its others (files, terminals) the client answers by itself."""


class Asked(NamedTuple):
    """What waits for the person: ``call`` the tool call behind it, ``turn`` the prompt id of the turn that it keeps waiting."""

    approval: Approval
    call: str
    turn: str


class Session:
    """What is known of a session that the editor opened; one seen only in notifications is a sub-agent's (SH-60)."""

    __slots__ = (
        "_asked",
        "_counted",
        "_queue",
        "_queue_seen",
        "cwd",
        "empty",
        "id",
        "last_human",
        "model",
        "name",
        "opened",
        "running",
        "title",
        "turn_since",
    )

    def __init__(self, identifier: str, cwd: str, now: float, *, empty: bool) -> None:
        self.id = identifier
        self.cwd = cwd
        self.opened = now
        self.empty = empty
        """Opened and never prompted: it may take a new conversation (SH-62)."""
        self.name = ""
        self.title = ""
        self.model = ""
        self.last_human = 0.0
        self.turn_since = 0.0
        self.running = ""
        """The prompt id of the running turn."""
        self._asked: dict[str, Asked] = {}
        """By the agent's request."""
        self._queue_seen = False
        self._queue: tuple[str, ...] = ()
        self._counted: set[str] = set()
        """The editor's prompts that have no answer yet; they tell of busyness where the queue is never shown."""

    def describe(self, result: dict[str, Any]) -> None:
        """Takes over the answer to ``session/new``, ``session/load`` or ``session/resume``."""
        self.model = str(as_object(result.get("models")).get("currentModelId") or self.model)
        detail = as_object(as_object(result.get("_meta")).get("x.ai/sessionDetail"))
        self.cwd = str(detail.get("cwd") or self.cwd)

    def prompted(self, request: str, now: float) -> None:
        """The editor has sent a prompt."""
        self.spoken_to(now)
        self._counted.add(request)
        self._count(now)

    def spoken_to(self, now: float) -> None:
        """The person has written to it."""
        self.empty = False
        self.last_human = now

    def answered(self, request: str, now: float) -> None:
        """A prompt of the editor's has ended."""
        self._counted.discard(request)
        self._count(now)

    def _count(self, now: float) -> None:
        if not self._queue_seen:
            self.turn_since = (self.turn_since or now) if self._counted else 0.0

    def queue_changed(self, parameters: dict[str, Any], now: float) -> None:
        """``_x.ai/queue/changed``: what runs and what waits, whoever sent it."""
        self._queue_seen = True
        self._queue = tuple(str(as_object(entry).get("id")) for entry in as_list(parameters.get("entries")))
        running = str(parameters.get("runningPromptId") or "")
        if running != self.running:
            self._no_longer_waits(self.running)
        if running or self._queue:
            self.empty = False  # whoever prompted it, in whatever way
        if not running and not self._queue:
            self.turn_since = 0.0
        elif running != self.running or not self.turn_since:
            self.turn_since = now
        self.running = running

    def waits(self, prompt: str) -> bool:
        """Whether the queue, as it was last shown, still holds ``prompt`` back."""
        return prompt in self._queue and prompt != self.running and bool(self.running)

    def completed(self, prompt: str) -> None:
        """A turn has ended; of that the queue tells nothing when it was cancelled or the agent's own (measured with 1.0.41)."""
        self._no_longer_waits(prompt)
        if prompt == self.running:
            self.running = ""
            if not self._queue:
                self.turn_since = 0.0

    def asks(self, request: str, method: str, parameters: dict[str, Any], now: float, *, turn: str) -> None:
        """The agent waits for the person; ``turn`` empty: no turn of this session waits for it."""
        call = as_object(parameters.get("toolCall"))
        if method == INTERACTIONS[0]:
            tool = as_object(as_object(call.get("_meta")).get("x.ai/tool"))
            name = str(tool.get("name") or call.get("title") or "a tool")
            approval = Approval(name, summary_of(call.get("rawInput")) or str(call.get("title") or "")[:120], now)
        else:
            approval = Approval(method.rpartition("/")[2], summary_of(parameters), now)
        self._asked[request] = Asked(approval, call_of(parameters), turn)

    def decided(self, request: str) -> None:
        """The editor has answered that request."""
        self._asked.pop(request, None)

    def resolved(self, call: str) -> None:
        """The agent itself says that ``call`` waits for nobody any more."""
        self._asked = {request: asked for request, asked in self._asked.items() if asked.call != call}

    def _no_longer_waits(self, turn: str) -> None:
        """``turn`` is over, and what it asked with it; what a sub-agent in the background asks is not (1.0.41)."""
        self._asked = {request: asked for request, asked in self._asked.items() if not turn or asked.turn != turn}

    def state(self, *, accepts: bool, shows_message: bool, host: str, attempt: str) -> SessionState:
        return SessionState(
            id=self.id,
            cwd=self.cwd,
            name=self.name,
            title=self.title,
            model=self.model,
            turn_since=self.turn_since,
            approval=next((asked.approval for asked in self._asked.values()), None),
            last_human=self.last_human,
            opened=self.opened,
            empty=self.empty,
            accepts=accepts,
            shows_message=shows_message,
            running=attempt,
            host=host,
        )


def call_of(parameters: dict[str, Any]) -> str:
    """The tool call that a request of the agent's is about; empty when it names none."""
    return str(as_object(parameters.get("toolCall")).get("toolCallId") or parameters.get("toolCallId") or "")
