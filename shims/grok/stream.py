"""Grok Build's ACP over stdio, both directions: which sessions live here, what they do, and how a message gets in.

Owns every fact about the JSON-RPC of ``grok agent stdio``; sans-I/O. Measured with 1.0.41 (protocols: grok.md, sections 1
and 2); 1.0.5 does the same (docs/compatibility.md). What shaped it:

* ``session/prompt`` is queued by the agent while a turn runs, and ``_meta.promptId`` is honoured: it tags the queue entry,
  every update of the turn and its end. Nothing else names a turn.
* ``_x.ai/queue/changed`` is the state of a session's queue for all who prompt it; it does not say that a cancelled turn
  has ended, nor one that the agent began itself (a sub-agent or a command in the background is done): ``turn_completed`` does.
* The last lines of a turn (``turn_completed``, ``prompt_complete``, the answer to its prompt) come in any order.
* ``session/load`` replays old turns under their old prompt ids, ours among them.
* The agent's own requests count from 0, as the editor's do: the direction tells them apart.
* Sub-agents are announced by notifications alone, so only what the editor itself opened is a target.
* A rejected approval ends the whole turn as ``cancelled``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker.wire import Inject, SessionState
from shims.grok.prompts import Prompt
from shims.grok.session import INTERACTIONS, Session
from shims.jsonline import as_object, parse_object
from shims.jsonrpc import OurRequest, OurRequests, encoded, identity, is_answer
from shims.lines import DROP, HOLD, PASS
from shims.stream import Finished, Progress, Rejected, Taken, Write

if TYPE_CHECKING:
    from shims.lines import Bulk

_UPDATE = b'{"jsonrpc":"2.0","method":"session/update"'
_THOUGHT = b'"sessionUpdate":"agent_thought_chunk"'
_TITLE = b'"sessionUpdate":"session_info_update"'
_OURS = b'"promptId":"dlv_'
"""In updates of our own turns only: the person's prompt ids are uuids."""
_META = 1 << 12
"""Bytes at the end of an update in which its ``_meta`` stands."""

EXTENSION = ("", "grok-build-gui", "grok-vscode-gui")
"""What the extension calls itself in ``clientInfo`` (its ACP test script sends none); others are unverified (SH-65)."""

_OPENERS = ("session/new", "session/load", "session/resume")


class GrokStream:
    """Tracker of one ``grok agent … stdio`` process, which may host many sessions.

    Args:
        cwd: where the process works; sessions may work elsewhere.
    """

    editor_markers = (b'"method"', b'"result"', b'"error"')
    agent_markers = (
        b'"result"',
        b'"error"',
        b"/queue/changed",
        b"request_permission",
        b"/ask_user_question",
        b"/exit_plan_mode",
        b"/elicit",
        b"/prompt_complete",
        b'"turn_completed"',
        _TITLE,
        _OURS,
    )
    agent_long = (b'{"jsonrpc":"2.0","method":"_x.ai/queue/changed"',)  # holds whole prompts

    def __init__(self, *, cwd: str) -> None:
        self.progress: list[Progress] = []
        self.writes: list[Write] = []
        self.ended = False
        self.look_up_registry = False  # everything is in the stream
        self._cwd = cwd
        self._now = 0.0
        self._client = ""
        self._echoes = False
        self._requests = OurRequests({"jsonrpc": "2.0"})
        self._sessions: dict[str, Session] = {}
        self._prompts: dict[str, Prompt] = {}
        """Messages of ours by their attempt."""
        self._asked: dict[str, tuple[str, dict[str, Any]]] = {}
        """Requests of the editor that wait for an answer: method and parameters without their text."""
        self._ahead = b""

    def agent_bulk(self) -> Bulk:
        return {_UPDATE: (_TITLE, _OURS) if self._prompts else (_TITLE,)}

    # what is known

    def sessions(self) -> tuple[SessionState, ...]:
        return tuple(
            session.state(
                accepts=not self.ended,
                shows_message=self._echoes or self._is_extension(),
                host="" if self._is_extension() else f"unverified client {self._client}",
                attempt=next((p.order.attempt for p in self._prompts.values() if p.order.key == session.running), ""),
            )
            for session in self._sessions.values()
        )

    def _is_extension(self) -> bool:
        return self._client in EXTENSION

    # from the editor

    def from_editor(self, line: bytes, whole: bool, now: float) -> None:
        self._now = now
        if not whole:
            self._long_prompt(line)
            return
        message = parse_object(line)
        method = message.get("method")
        if method is None:
            self._decided(message)
            return
        parameters = as_object(message.get("params"))
        if method == "initialize":
            self._client = str(as_object(parameters.get("clientInfo")).get("name") or "")
            meta = as_object(as_object(parameters.get("clientCapabilities")).get("_meta"))
            self._echoes = meta.get("x.ai/userMessageEcho") is True
        if "id" not in message:
            return
        request = identity(message["id"])
        named = {name: parameters.get(name) for name in ("sessionId", "cwd", "title")}
        self._asked[request] = (str(method), named)
        session = self._sessions.get(str(named["sessionId"]))
        if method == "session/prompt" and session is not None:
            session.prompted(request, now)

    def _long_prompt(self, line: bytes) -> None:
        """A prompt over the parse bound: whose it is stands in its head; that it has ended, the queue tells."""
        if b'"session/prompt"' not in line[:400]:
            return
        for session in self._sessions.values():
            if session.id.encode(errors="surrogatepass") in line[:600]:
                session.empty = False
                session.last_human = self._now

    def editor_ended(self) -> None:
        self.ended = True

    def _decided(self, message: dict[str, Any]) -> None:
        """The editor answers a request of the agent's: an approval is given or refused."""
        if is_answer(message):
            for session in self._sessions.values():
                session.approvals.pop(identity(message["id"]), None)

    # from the agent

    def from_agent(self, line: bytes, whole: bool, now: float) -> None:
        self._now = now
        message = parse_object(line) if whole else {}
        method = message.get("method")
        if method is None:
            if is_answer(message):
                self._answered(message)
            return
        parameters = as_object(message.get("params"))
        session = self._sessions.get(str(parameters.get("sessionId")))
        if session is None:
            return
        if "id" in message:
            if method in INTERACTIONS:
                session.asks(identity(message["id"]), str(method), parameters, now)
        elif method == "session/update":
            self._updated(session, parameters)
        elif method == "_x.ai/queue/changed":
            session.queue_changed(parameters, now)
            running = self._by_key(session.running)
            if running is not None:
                self._taken(running)
        elif method == "_x.ai/session_notification":
            update = as_object(parameters.get("update"))
            if update.get("sessionUpdate") == "turn_completed":
                session.completed(str(update.get("prompt_id")))
        elif method == "_x.ai/session/prompt_complete":
            session.completed(str(parameters.get("promptId")))
            prompt = self._by_key(str(parameters.get("promptId")))
            if prompt is not None:
                prompt.category = str(parameters.get("cancellationCategory") or "")

    def _answered(self, message: dict[str, Any]) -> None:
        ours = self._requests.answered(message["id"])
        if ours is not None:
            self._our_answer(ours, message)
            return
        request = identity(message["id"])
        method, named = self._asked.pop(request, ("", {}))
        result = as_object(message.get("result"))
        identifier = str(named.get("sessionId") or result.get("sessionId") or "")
        session = self._sessions.get(identifier)
        if method == "session/prompt" and session is not None:
            session.answered(request, self._now)
        if "result" not in message:
            return
        if method in _OPENERS and identifier:
            self._opened(identifier, str(named.get("cwd") or self._cwd), result, empty=method == "session/new")
        elif method == "session/close":
            self._closed(identifier)
        elif method == "_x.ai/session/rename" and session is not None:
            session.name = str(named.get("title") or "")

    def _opened(self, identifier: str, cwd: str, result: dict[str, Any], *, empty: bool) -> None:
        session = self._sessions.setdefault(identifier, Session(identifier, cwd, self._now, empty=empty))
        session.describe(result)

    def _closed(self, identifier: str) -> None:
        self._sessions.pop(identifier, None)

    def _updated(self, session: Session, parameters: dict[str, Any]) -> None:
        update = as_object(parameters.get("update"))
        if update.get("sessionUpdate") == "session_info_update" and isinstance(update.get("title"), str):
            session.title = update["title"]
        meta = as_object(parameters.get("_meta"))
        prompt = self._by_key(str(meta.get("promptId"))) if meta.get("isReplay") is not True else None
        if prompt is not None:
            self._taken(prompt)
            prompt.updated(update)

    def _by_key(self, key: str) -> Prompt | None:
        return next((prompt for prompt in self._prompts.values() if prompt.order.key == key), None)

    def _taken(self, prompt: Prompt) -> None:
        """Its turn runs. What only waits dies with the process (measured), so that waiting proves nothing."""
        if not prompt.taken:
            prompt.taken = True
            session = self._sessions.get(prompt.order.session)
            if session is not None:
                session.empty = False
            shown = self._echoes or self._is_extension()
            self.progress.append(Taken(prompt.order.attempt, prompt.order.session, prompt.order.key, shown))

    # injections

    def inject(self, order: Inject) -> str:
        if self.ended:
            return "closed"
        session = self._sessions.get(order.session)
        if session is None:
            return "wrong_session"
        if any(prompt.order.session == order.session for prompt in self._prompts.values()):
            return "busy"
        self._prompts[order.attempt] = Prompt(order)
        parameters = {
            "sessionId": order.session,
            "prompt": [{"type": "text", "text": order.text}],
            "_meta": {"promptId": order.key},
        }
        request = OurRequest("session/prompt", order.attempt, order.session, message=True)
        self.writes.append(Write(self._requests.line(request.method, parameters, request), order.attempt, message=True))
        return ""

    def may_write(self, write: Write) -> bool:
        del write
        return not self.ended

    def dropped(self, attempt: str) -> None:
        self._prompts.pop(attempt, None)
        self._requests.drop(attempt)

    def forgotten(self, attempt: str) -> None:
        self._prompts.pop(attempt, None)

    def withdraw(self, attempt: str) -> None:
        prompt = self._prompts.get(attempt)
        if prompt is None or prompt.taken:
            return
        parameters = {"sessionId": prompt.order.session, "id": prompt.order.key}
        # A notification: as a request it is unknown. The prompt's own answer says whether it was removed.
        line = encoded({"jsonrpc": "2.0", "method": "_x.ai/queue/remove", "params": parameters})
        self.writes.append(Write(line, attempt))

    def agent_ended(self, *, input_ended: bool) -> None:
        """What waited in its memory is gone with it. That a turn begins is told before its model is asked.

        But after the end of its input it goes on for some seconds, begins what waits, and tells nobody (1.0.41).
        """
        if input_ended:
            return
        for attempt, prompt in list(self._prompts.items()):
            session = self._sessions.get(prompt.order.session)
            if session is not None and session.waits(prompt.order.key):
                self.dropped(attempt)
                self.progress.append(Rejected(attempt, "ended_waiting"))

    def _our_answer(self, ours: OurRequest, message: dict[str, Any]) -> None:
        prompt = self._prompts.pop(ours.attempt, None)
        if prompt is None:
            return
        result = as_object(message.get("result"))
        reason = result.get("stopReason")
        meta = as_object(result.get("_meta"))
        if meta.get("completionKind") == "removedFromQueue":
            self.progress.append(Rejected(ours.attempt, "withdrawn"))
        elif not prompt.taken and reason != "end_turn":
            # It only waited: its session was closed, or never took it.
            self.progress.append(Rejected(ours.attempt, "closed" if reason == "cancelled" else "agent_refused"))
        else:
            self._taken(prompt)
            category = prompt.category or str(meta.get("cancellationCategory") or "")
            self.progress.append(Finished(ours.attempt, _status(reason, category), prompt.answer(), prompt.order.key))

    # the sieve

    def outstanding(self) -> bool:
        return self._requests.outstanding()

    def judge(self, start: bytes, whole: bool) -> str:
        verdict = self._requests.judge(start, whole)
        if verdict != PASS or not self._is_extension() or self._echoes:
            return verdict
        if not whole:
            return HOLD if start.startswith(_UPDATE) or _UPDATE.startswith(start) else PASS
        if not start.startswith(_UPDATE):
            return PASS
        prompt = next((prompt for prompt in self._prompts.values() if prompt.mark in start[-_META:]), None)
        thought = _THOUGHT in start
        if prompt is None or (prompt.shown and not thought):
            return PASS
        parameters = as_object(parse_object(start).get("params"))  # what a tool has said may hold the same words
        if as_object(parameters.get("_meta")).get("promptId") != prompt.order.key:
            return PASS
        if thought and as_object(parameters.get("update")).get("sessionUpdate") == "agent_thought_chunk":
            return DROP  # the extension would leave it open
        if not prompt.shown:
            prompt.shown = True
            self._ahead = prompt.block()
        return PASS

    def ahead(self) -> bytes:
        ahead, self._ahead = self._ahead, b""
        return ahead


def _status(reason: object, category: str) -> str:
    """A turn's end as ours; an approval that the person refused has ended it as well."""
    if reason == "end_turn":
        return "completed"
    if reason == "cancelled":
        return "declined" if category.startswith("Permission") else "interrupted"
    return "failed"
