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
* A rejected approval ends the whole turn as ``cancelled``; so does ``session/close``, which says so (``cancelTrigger``).
* A sub-agent asks the person under its parent's id, also when its parent's turn is over; ``pending_interaction`` in front of
  that, and ``interaction_resolved`` behind it, name the sub-agent itself. Each names the tool call.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from broker.wire import Inject, SessionState
from shims import lines
from shims.grok.prompts import Prompt
from shims.grok.session import INTERACTIONS, Session, call_of
from shims.jsonline import as_object, parse_object
from shims.jsonrpc import OurRequest, OurRequests, encoded, identity, is_answer
from shims.lines import DROP, HOLD, PASS
from shims.stream import Finished, Progress, Rejected, Taken, Write

if TYPE_CHECKING:
    from shims.lines import Bulk

_UPDATE = b'{"jsonrpc":"2.0","method":"session/update"'
_COMPLETE = b'{"jsonrpc":"2.0","method":"_x.ai/session/prompt_complete"'
_THOUGHT = b'"agent_thought_chunk"'
_TITLE = b'"session_info_update"'
_OURS = b'"dlv_'
"""In updates of our own turns only, but for what quotes it: the person's prompt ids are uuids."""

_START = 600
"""Bytes in which a message says what it is and for which session, where it says so before its text."""
_SESSION = re.compile(rb'"sessionId"\s*:\s*"([^"\\]+)"')
_TOOL = re.compile(rb'"update"\s*:\s*\{\s*"sessionUpdate"\s*:\s*"tool_call')
_REPLAY = re.compile(rb'"isReplay"\s*:\s*true')
"""Names and values as they stand in a line that is too long to parse; what quotes them in a text has backslashes in it."""

EXTENSION = ("", "grok-build-gui", "grok-vscode-gui")
"""What the extension calls itself in ``clientInfo`` (its ACP test script sends none); others are unverified (SH-65)."""

_SPEAKERS = (b'"session/prompt"', b'"_x.ai/interject"')
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
        b'"pending_interaction"',
        b'"interaction_resolved"',
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
        self._asked_elsewhere: set[str] = set()
        """Tool calls of sub-agents that wait for the person."""
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
        elif method == "_x.ai/interject" and session is not None:
            session.spoken_to(now)  # where nothing runs, it begins a turn (1.0.41)

    def _long_prompt(self, line: bytes) -> None:
        """A prompt over the parse bound: whose it is stands before its text or behind it; that it has ended, the queue tells."""
        ends = line[:_START], line[-_START:]
        if any(speaker in end for speaker in _SPEAKERS for end in ends):
            for session in filter(None, map(self._session_named, ends)):
                session.spoken_to(self._now)

    def _session_named(self, part: bytes) -> Session | None:
        """The session that a part of a line names."""
        named = _SESSION.search(part)
        return self._sessions.get(named[1].decode(errors="replace")) if named is not None else None

    def editor_ended(self) -> None:
        self.ended = True

    def _decided(self, message: dict[str, Any]) -> None:
        """The editor answers a request of the agent's: an approval is given or refused."""
        if is_answer(message):
            for session in self._sessions.values():
                session.decided(identity(message["id"]))

    # from the agent

    def from_agent(self, line: bytes, whole: bool, now: float) -> None:
        self._now = now
        if not whole:
            self._long_update(line)
            return
        message = parse_object(line)
        method = message.get("method")
        if method is None:
            if is_answer(message):
                self._answered(message)
            return
        parameters = as_object(message.get("params"))
        update = as_object(parameters.get("update"))
        session = self._sessions.get(str(parameters.get("sessionId")))
        if method == "_x.ai/session_notification":
            self._interaction(session, update)
        if session is None:
            return
        if "id" in message:
            if method in INTERACTIONS:
                turn = "" if call_of(parameters) in self._asked_elsewhere else session.running
                session.asks(identity(message["id"]), str(method), parameters, now, turn=turn)
        elif method == "session/update":
            self._updated(session, parameters)
        elif method == "_x.ai/queue/changed":
            session.queue_changed(parameters, now)
            running = self._by_key(session.running)
            if running is not None:
                self._taken(running)
        elif method == "_x.ai/session_notification":
            if update.get("sessionUpdate") == "turn_completed":
                session.completed(str(update.get("prompt_id")))
        elif method == "_x.ai/session/prompt_complete":
            session.completed(str(parameters.get("promptId")))
            prompt = self._by_key(str(parameters.get("promptId")))
            if prompt is not None:
                prompt.explained(parameters)

    def _interaction(self, session: Session | None, update: dict[str, Any]) -> None:
        """Something waits for the person, or does not any more; of a sub-agent's this alone names the sub-agent."""
        kind, call = update.get("sessionUpdate"), str(update.get("tool_call_id"))
        if kind == "pending_interaction" and session is None:
            self._asked_elsewhere.add(call)
        elif kind == "interaction_resolved":
            self._asked_elsewhere.discard(call)
            for known in self._sessions.values():
                known.resolved(call)

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

    def _long_update(self, line: bytes) -> None:
        """An update over the parse bound. What a tool says is no part of an answer; anything else, the records have whole."""
        if b'"session/update"' not in line or _REPLAY.search(line) is not None:
            return
        for prompt in self._prompts.values():
            if prompt.mark in line:
                self._taken(prompt)
                if _TOOL.search(line[:_START]) is not None:
                    prompt.updated({"sessionUpdate": "tool_call"})
                else:
                    prompt.missed()

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
            self.progress.append(Rejected(ours.attempt, "session_closed" if reason == "cancelled" else "agent_refused"))
        else:
            self._taken(prompt)
            prompt.explained(meta)
            self.progress.append(Finished(ours.attempt, *prompt.end(reason), prompt.order.key))

    # the sieve

    def outstanding(self) -> bool:
        return self._requests.outstanding()

    def judge(self, start: bytes, whole: bool) -> str:
        verdict = self._requests.judge(start, whole)
        if verdict == DROP or not self._is_extension() or self._echoes:
            return verdict
        if not whole:
            if len(start) >= lines.LONGEST_UNDECIDED:
                self._show_before(start)
            return HOLD if any(start.startswith(kind) or kind.startswith(start) for kind in (_UPDATE, _COMPLETE)) else verdict
        thought = _THOUGHT in start
        prompts = [prompt for prompt in self._prompts.values() if (thought or not prompt.shown) and prompt.mark in start]
        if not prompts:
            return PASS
        message = parse_object(start)  # what a tool has said may hold the same words
        parameters = as_object(message.get("params"))
        meta = as_object(parameters.get("_meta"))
        if message.get("method") == "session/update" and meta.get("isReplay") is not True:
            key = meta.get("promptId")
        elif message.get("method") == "_x.ai/session/prompt_complete" and parameters.get("stopReason") != "cancelled":
            key = parameters.get("promptId")  # it ended without a word
        else:
            return PASS
        prompt = next((prompt for prompt in prompts if prompt.order.key == key), None)
        if prompt is None:
            return PASS
        if thought and as_object(parameters.get("update")).get("sessionUpdate") == "agent_thought_chunk":
            return DROP  # the extension would leave it open
        self._show(prompt)
        return PASS

    def _show_before(self, start: bytes) -> None:
        """An update too long to be held: whose it is stands behind its text, so what runs in its session tells."""
        session = self._session_named(start[:_START]) if b'"session/update"' in start[:_START] else None
        prompt = self._by_key(session.running) if session is not None else None
        if prompt is not None:
            self._show(prompt)

    def _show(self, prompt: Prompt) -> None:
        if not prompt.shown:
            prompt.shown = True
            self._ahead = prompt.block()

    def ahead(self) -> bytes:
        ahead, self._ahead = self._ahead, b""
        return ahead
