"""Codex's app-server over stdio, both directions: which threads live here, what they do, how a message gets in.

Owns every fact about the JSON-RPC of ``codex app-server``; sans-I/O. Measured with codex-cli 0.147.0, 0.154.0, 0.158.0 and
0.171.0 (protocols: codex.md, sections 1 and 2), played with the releases of docs/compatibility.md. What shaped it:

* ``turn/start`` on a busy thread steers into the running turn, and 0.171 destroys the running answer: it is used only on
  a provably idle thread, and only where there is no queue.
* ``thread/queue/add`` (0.148 and later, experimentalApi negotiated) starts at once when idle and waits otherwise; its
  answer names no turn. The turn is the one whose ``userMessage`` carries our ``clientId``.
* Turn ids in answers are not trusted: 0.147 answers with one that never appears again.
* Sub-agent threads are announced by notifications alone, so only what the editor itself opened is a target.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from broker.wire import Inject, SessionState
from shims.codex.injections import Injection, Injections
from shims.codex.threads import Thread, Threads, approval_of, ended, server_version
from shims.jsonline import as_list, as_object, parse_object
from shims.jsonrpc import OurRequest, identity, is_answer
from shims.stream import Progress, Write, closes_with

if TYPE_CHECKING:
    from shims.lines import Bulk

QUEUE_SINCE = (0, 148)
"""First version with ``thread/queue/add``: absent in 0.147.0; 0.148.0, 0.149.1, 0.151.0 and 0.153.4 have it as 0.154.0 has."""

_OPENERS = ("thread/start", "thread/resume", "thread/fork")
_SPEAKERS = ("turn/start", "turn/steer", "thread/queue/add")

_LONG_ANSWER = re.compile(rb'\{"method":"item/completed","params":\{"item":\{"type":"agentMessage"')
_NAMED = re.compile(rb'"(threadId|turnId)":"([^"\\]+)"')
_END = 1 << 10
"""Bytes at the end of an item's line in which its turn is named (0.147.0 to 0.171.0)."""

_BULK: Bulk = {
    b'{"method":"item/agentMessage/delta"': (),
    b'{"method":"item/reasoning/': (),
    b'{"method":"item/commandExecution/outputDelta"': (),
    b'{"method":"thread/tokenUsage/': (),
    b'{"method":"account/': (),
}


class CodexStream:
    """Tracker of one ``codex app-server`` process, which may host many threads.

    Args:
        cwd: where the process works; threads may work elsewhere.
    """

    editor_markers = (b'"method"', b'"result"', b'"error"')
    agent_markers = (
        b'"result"',
        b'"error"',
        b'/started"',
        b'/completed"',
        b'"thread/',
        b'Approval"',
        b"/request",
        b'/resolved"',
    )
    agent_long = (b'{"method":"item/started"', b'{"method":"item/completed"', b'{"method":"turn/completed"')

    def __init__(self, *, cwd: str) -> None:
        self._ours = Injections()
        self._version: tuple[int, ...] = ()
        self._experimental = False
        self._initialized = False
        self.ended = False
        self.look_up_registry = False  # everything is in the stream
        self._now = 0.0
        self._threads = Threads(cwd)
        self._asked: dict[str, tuple[str, str, bool]] = {}
        """Requests of the editor that wait for an answer: method, thread, and whether that thread was idle."""

    @property
    def progress(self) -> list[Progress]:
        return self._ours.progress

    @progress.setter
    def progress(self, rest: list[Progress]) -> None:
        self._ours.progress = rest

    @property
    def writes(self) -> list[Write]:
        return self._ours.writes

    @writes.setter
    def writes(self, rest: list[Write]) -> None:
        self._ours.writes = rest

    # what is known

    def sessions(self) -> tuple[SessionState, ...]:
        return tuple(
            thread.state(accepts=not self.ended, accepts_busy=self._queues(), running=self._running(thread))
            for thread in self._threads
            if thread.is_target()
        )

    def _running(self, thread: Thread) -> str:
        """The attempt whose turn runs in ``thread``."""
        return next((i.attempt for i in self._ours.at(thread.id) if i.turn and i.turn == thread.turn), "")

    def _queues(self) -> bool:
        return self._experimental and self._version >= QUEUE_SINCE

    # from the editor

    def from_editor(self, line: bytes, whole: bool, now: float) -> None:
        self._now = now
        message = parse_object(line) if whole else {}
        method = message.get("method")
        if method is None:
            self._decided(message)
            return
        parameters = as_object(message.get("params"))
        if method == "initialize" and not self._version:  # a second one is refused
            self._experimental = as_object(parameters.get("capabilities")).get("experimentalApi") is True
        elif method == "initialized":
            self._initialized = True
            self._verify_threads()
        thread = str(parameters.get("threadId") or "")
        known = self._threads.get(thread)
        if "id" in message:
            self._asked[identity(message["id"])] = (str(method), thread, known is not None and not known.turn_since)
        if method in _SPEAKERS and known is not None:
            known.last_human = now
            if method == "turn/start":
                known.turn_since = known.turn_since or now  # not idle from here on, though the server has yet to say so

    def editor_ended(self) -> None:
        self.ended = True

    def _decided(self, message: dict[str, Any]) -> None:
        """The editor answers a request of the server's: an approval is given or refused."""
        if is_answer(message):
            for thread in self._threads:
                thread.approvals.pop(identity(message["id"]), None)

    # from the agent

    def from_agent(self, line: bytes, whole: bool, now: float) -> None:
        self._now = now
        if not whole and _LONG_ANSWER.match(line):
            self._long_answer(line)
            return
        message = parse_object(line) if whole else _head(line)
        method = message.get("method")
        if method is None:
            if is_answer(message):
                self._answered(message)
            return
        parameters = as_object(message.get("params"))
        if "id" in message:
            self._asks(identity(message["id"]), str(method), parameters)
            return
        thread = self._threads.get(parameters.get("threadId"))
        if thread is None:
            return
        handle = _NOTIFICATIONS.get(str(method))
        if handle is not None:
            handle(self, thread, parameters)

    def _answered(self, message: dict[str, Any]) -> None:
        ours = self._ours.requests.answered(message["id"])
        if ours is not None:
            self._our_answer(ours, message)
            return
        method, thread, was_idle = self._asked.pop(identity(message["id"]), ("", "", False))
        result = as_object(message.get("result"))
        if "error" in message:
            known = self._threads.get(thread)
            if method == "turn/start" and was_idle and known is not None and not known.turn:
                known.turn_since = 0.0
        elif method == "initialize":
            self._version = server_version(str(result.get("userAgent")))
        elif method in _OPENERS:
            asked = thread if method == "thread/resume" else ""
            opened = self._opened(as_object(result.get("thread")), str(result.get("model") or ""), asked)
            if opened is not None and method != "thread/start" and self._queues():
                self._ask_latest_turn(opened)
        elif method in _SPEAKERS:
            self._spoken_to(thread)
        elif method in ("thread/archive", "thread/delete") and "result" in message:
            self._threads.forget(thread)

    def _opened(self, record: dict[str, Any], model: str, asked: str) -> Thread | None:
        thread = self._threads.opened(record, model, asked, self._now)
        self._verify_threads()
        return thread

    def _spoken_to(self, identifier: str) -> None:
        """The server took a human's message for a thread: it is loaded here, however it was opened."""
        known = self._threads.get(identifier)
        if known is None or not known.opened_by_editor:
            opened = self._opened({}, "", identifier)
            if opened is not None:
                opened.last_human = self._now

    def _verify_threads(self) -> None:
        if not self._initialized or self.ended:
            return
        for thread in self._threads:
            if thread.opened_by_editor and not thread.verified and not thread.asked:
                thread.asked = True
                self._ours.request("thread/read", {"threadId": thread.id}, thread=thread.id)

    def _asks(self, request: str, method: str, parameters: dict[str, Any]) -> None:
        """Any request of the server's that names a thread keeps its turn waiting (SH-55)."""
        thread = self._threads.get(parameters.get("threadId"))
        if thread is not None:
            thread.approvals[request] = approval_of(method, parameters, self._now)

    # notifications

    def _status_changed(self, thread: Thread, parameters: dict[str, Any]) -> None:
        status = as_object(parameters.get("status"))
        kind = status.get("type")
        thread.flags = tuple(str(flag) for flag in as_list(status.get("activeFlags")))
        if kind == "active":
            thread.turn_since = thread.turn_since or self._now
        else:
            thread.turn_since = 0.0
            thread.approvals.clear()

    def _turn_started(self, thread: Thread, parameters: dict[str, Any]) -> None:
        thread.turn = str(as_object(parameters.get("turn")).get("id"))
        thread.turn_since = self._now
        thread.queue_paused = False
        for injection in self._ours.at(thread.id):
            # Started on a thread that was idle, with nothing before it: the next turn is ours (0.147 names no client id).
            if injection.started_idle and not injection.turn:
                injection.turn = thread.turn

    def _item(self, thread: Thread, parameters: dict[str, Any]) -> None:
        item = as_object(parameters.get("item"))
        turn = str(parameters.get("turnId"))
        if item.get("type") == "userMessage" and item.get("clientId"):
            injection = self._ours.by_key(str(item["clientId"]))
            if injection is not None:
                injection.turn = turn
                self._ours.taken(injection)
        elif item.get("type") == "agentMessage" and isinstance(item.get("text"), str) and item["text"]:
            thread.last_words[turn] = item["text"]

    def _long_answer(self, line: bytes) -> None:
        """A message of the agent's over the parse bound: the turn's words are not known here."""
        named = {name: value.decode(errors="replace") for name, value in _NAMED.findall(line[-_END:])}
        thread = self._threads.get(named.get(b"threadId"))
        if thread is not None:
            thread.last_words[named.get(b"turnId", "")] = None

    def _turn_completed(self, thread: Thread, parameters: dict[str, Any]) -> None:
        turn = as_object(parameters.get("turn"))
        identifier = str(turn.get("id"))
        status = str(turn.get("status"))
        items = [as_object(item) for item in as_list(turn.get("items"))]
        words = [str(item["text"]) for item in items if item.get("type") == "agentMessage" and item.get("text")]
        last = thread.last_words.pop(identifier, "")
        text = words[-1] if words and last is not None else last
        if thread.turn in ("", identifier):
            thread.turn = ""
            thread.turn_since = 0.0
            thread.approvals.clear()
        if status == "interrupted" and self._queues():
            thread.queue_paused = True  # for what waits and for what is added, until a turn runs again
        for injection in self._ours.at(thread.id):
            if injection.turn == identifier or closes_with(text, injection.token):
                self._ours.finished(injection, ended(status), text, identifier)

    def _renamed(self, thread: Thread, parameters: dict[str, Any]) -> None:
        thread.name = str(parameters.get("threadName") or "")

    def _resolved(self, thread: Thread, parameters: dict[str, Any]) -> None:
        thread.approvals.pop(identity(parameters.get("requestId")), None)

    def _closed(self, thread: Thread, parameters: dict[str, Any]) -> None:
        del parameters
        self._threads.forget(thread.id)
        for injection in self._ours.at(thread.id):
            if injection.taken:  # what waits in the queue is run by whoever opens the thread next
                self._ours.forgotten(injection.attempt)

    # injections

    def inject(self, order: Inject) -> str:
        if self.ended:
            return "closed"
        if not self._initialized:
            return "not_accepting"
        if not order.session:
            self._ours.begin(order)
            parameters: dict[str, Any] = {"threadSource": "user"}
            if order.cwd:
                parameters["cwd"] = order.cwd
            self._ours.request("thread/start", parameters, attempt=order.attempt)
            return ""
        thread = self._threads.get(order.session)
        if thread is None or not thread.opened_by_editor:
            return "wrong_session"
        if not thread.is_target():
            return "no_direct_input" if thread.verified else "not_accepting"
        if any(self._ours.at(thread.id)) or (thread.turn_since and not self._queues()):
            return "busy"
        self._hand_over(self._ours.begin(order), thread)
        return ""

    def _hand_over(self, injection: Injection, thread: Thread) -> None:
        order = injection.order
        injection.thread = thread.id
        injection.queued = self._queues()
        parameters = {
            "threadId": thread.id,
            "clientUserMessageId": order.key,
            "input": [{"type": "text", "text": order.text}],
        }
        method = "thread/queue/add" if injection.queued else "turn/start"
        self._ours.request(method, parameters, attempt=order.attempt, thread=thread.id, message=True)

    def may_write(self, write: Write) -> bool:
        if self.ended:
            return False
        injection = self._ours.get(write.attempt)
        if not write.message or injection is None or injection.queued:
            return True
        thread = self._threads.get(injection.thread)
        if thread is None or thread.turn_since:
            return False
        injection.started_idle = True
        thread.turn_since = self._now or 1.0  # from here on nobody else of ours takes it for idle
        return True

    def dropped(self, attempt: str) -> None:
        self._ours.dropped(attempt)

    def forgotten(self, attempt: str) -> None:
        self._ours.forgotten(attempt)

    def withdraw(self, attempt: str) -> None:
        injection = self._ours.get(attempt)
        if injection is None or injection.turn or not injection.queued:
            return
        if not injection.queue_id:
            injection.unwanted = True  # its place in the queue is not known yet
            return
        parameters = {"threadId": injection.thread, "queuedSubmissionId": injection.queue_id}
        self._ours.request("thread/queue/delete", parameters, attempt=attempt, thread=injection.thread)

    def _our_answer(self, ours: OurRequest, message: dict[str, Any]) -> None:
        method, attempt, thread = ours[:3]
        result = as_object(message.get("result"))
        refused = "error" in message
        injection = self._ours.get(attempt)
        if method == "thread/read":
            self._read(thread, as_object(result.get("thread")))
        elif method == "thread/turns/list":
            known = self._threads.get(thread)
            if known is not None:
                known.recall([as_object(turn) for turn in as_list(result.get("data"))])
        elif method == "thread/start" and injection is not None:
            opened = self._opened(as_object(result.get("thread")), str(result.get("model") or ""), "")
            if opened is None:
                self._ours.rejected(injection, "no_new_conversation")
                return
            if injection.order.title:
                self._ours.request("thread/name/set", {"threadId": opened.id, "name": injection.order.title}, thread=opened.id)
            self._hand_over(injection, opened)
        elif method in ("thread/queue/add", "turn/start") and injection is not None:
            if refused:
                self._refused(injection, as_object(message.get("error")))
                return
            injection.queue_id = str(as_object(result.get("queuedSubmission")).get("id") or "")
            self._ours.taken(injection)
            if injection.unwanted and injection.queue_id:
                self.withdraw(attempt)
        elif method == "thread/queue/delete" and injection is not None and result.get("deleted") is True:
            self._ours.rejected(injection, "withdrawn")

    def _read(self, thread_id: str, record: dict[str, Any]) -> None:
        thread = self._threads.get(thread_id)
        if thread is None:
            return
        thread.asked = False
        if record:
            thread.describe(record, "")
        else:
            thread.opened_by_editor = False

    def _ask_latest_turn(self, thread: Thread) -> None:
        latest = {"threadId": thread.id, "limit": 1, "sortDirection": "desc", "itemsView": "notLoaded"}
        self._ours.request("thread/turns/list", latest, thread=thread.id)

    def _refused(self, injection: Injection, error: dict[str, Any]) -> None:
        thread = self._threads.get(injection.thread)
        if thread is not None and "direct app-server input is not allowed" in str(error.get("message")):
            thread.accepts_direct = False  # a multi-agent v2 sub-agent; 0.171 says so in these words
            self._ours.rejected(injection, "no_direct_input")
            return
        if thread is not None and injection.started_idle and not thread.turn:
            thread.turn_since = 0.0
        self._ours.rejected(injection, "agent_refused")

    def agent_ended(self, *, input_ended: bool) -> None:
        """Its queue outlives it, and its records tell the rest."""

    # the sieve

    def agent_bulk(self) -> Bulk:
        return _BULK

    def outstanding(self) -> bool:
        return self._ours.requests.outstanding()

    def judge(self, start: bytes, whole: bool) -> str:
        return self._ours.requests.judge(start, whole)

    def ahead(self) -> bytes:
        return b""


_NOTIFICATIONS = {
    "item/completed": CodexStream._item,
    "item/started": CodexStream._item,
    "serverRequest/resolved": CodexStream._resolved,
    "thread/archived": CodexStream._closed,
    "thread/closed": CodexStream._closed,
    "thread/name/updated": CodexStream._renamed,
    "thread/status/changed": CodexStream._status_changed,
    "turn/completed": CodexStream._turn_completed,
    "turn/started": CodexStream._turn_started,
}


def _head(line: bytes) -> dict[str, Any]:
    """What can be told of a line too long to parse: an answer, whose id stands first (measured on 0.171)."""
    if not line.startswith(b'{"id":'):
        return {}
    raw = line[len(b'{"id":') :].split(b",", 1)[0]
    return parse_object(b'{"result":null,"id":' + raw + b"}")
