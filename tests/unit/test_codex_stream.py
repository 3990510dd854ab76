"""Stories of Codex's app-server: lines as 0.147 to 0.171 were recorded to say them, and what they mean."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.wire import Inject, SessionState
from shims.codex.stream import CodexStream
from shims.codex.threads import server_version
from shims.lines import DROP, HOLD, LONGEST_MESSAGE, PASS, Sieve
from shims.observe import Observer
from shims.stream import Finished, Progress, Rejected, Taken, Write

T1, T2, U1, U2, Q1 = "019a-t1", "019a-t2", "019a-u1", "019a-u2", "019a-q1"
TOKEN = "req_1700000000000_abcdef"

Frame = dict[str, Any]


def thread_record(thread: str = T1, **more: Any) -> Frame:
    record = {"id": thread, "parentThreadId": None, "preview": "", "ephemeral": False, "status": {"type": "idle"}, "cwd": "/w"}
    return {**record, "model": "mock", "canAcceptDirectInput": True, "name": None, "turns": [], **more}


def notice(method: str, thread: str = T1, **parameters: Any) -> Frame:
    return {"method": method, "params": {"threadId": thread, **parameters}, "emittedAtMs": 1}


def started(turn: str = U1, thread: str = T1) -> list[Frame]:
    active = notice("thread/status/changed", thread, status={"type": "active", "activeFlags": []})
    return [active, notice("turn/started", thread, turn={"id": turn, "status": "inProgress", "items": []})]


def user_item(client: str | None, turn: str = U1, thread: str = T1) -> list[Frame]:
    item = {"type": "userMessage", "id": "i1", "clientId": client, "content": [{"type": "text", "text": "x"}]}
    return [notice(f"item/{step}", thread, item=item, turnId=turn) for step in ("started", "completed")]


def agent_item(text: str, turn: str = U1, thread: str = T1, phase: str = "final_answer") -> list[Frame]:
    begun, whole = ({"type": "agentMessage", "id": "m1", "text": words, "phase": phase} for words in ("", text))
    return [notice("item/started", thread, item=begun, turnId=turn), notice("item/completed", thread, item=whole, turnId=turn)]


def completed(text: str | None = "done", turn: str = U1, thread: str = T1, status: str = "completed") -> list[Frame]:
    items = [] if text is None else [{"type": "agentMessage", "text": text, "phase": "final_answer"}]
    idle = notice("thread/status/changed", thread, status={"type": "systemError" if status == "failed" else "idle"})
    return [idle, notice("turn/completed", thread, turn={"id": turn, "items": items, "status": status, "error": None})]


def approval(number: int = 0, thread: str = T1) -> Frame:
    asked = {"threadId": thread, "turnId": U1, "command": "touch  x", "reason": "need it"}
    return {"method": "item/commandExecution/requestApproval", "id": number, "params": asked}


def order(session: str = T1, attempt: str = "a1", key: str = "key-1", token: str = TOKEN, **more: str) -> Inject:
    return Inject("d1", attempt, key, token, session, "the message", 1, 1e9, **more)


class Panel:
    """A tracker with a hand on both sides; by default after the handshake, with one thread open."""

    def __init__(self, version: str = "0.171.0", *, experimental: bool = True, threads: tuple[str, ...] = (T1,)) -> None:
        self.stream = CodexStream(cwd="/panel")
        self.now = 10.0
        self._id = 100
        capabilities = {"experimentalApi": experimental}
        self.call(
            "initialize", {"clientInfo": {"name": "x"}, "capabilities": capabilities}, {"userAgent": f"x/{version} (Debian 12)"}
        )
        self.editor({"method": "initialized"})
        for thread in threads:
            self.call("thread/start", {}, {"thread": thread_record(thread), "model": "mock"})
            self.agent({"method": "thread/started", "params": {"thread": thread_record(thread)}})

    def editor(self, *frames: Frame) -> None:
        for frame in frames:
            self.now += 1
            self.stream.from_editor(json.dumps(frame).encode(), True, self.now)

    def agent(self, *frames: Frame) -> None:
        for frame in frames:
            self.now += 1
            self.stream.from_agent(json.dumps(frame).encode(), True, self.now)

    def call(self, method: str, parameters: Frame, result: Frame | None = None, *, error: str = "") -> None:
        """A request of the editor's and its answer."""
        self._id += 1
        self.editor({"method": method, "id": self._id, "params": parameters})
        answer = {"error": {"code": -32600, "message": error}} if error else {"result": result or {}}
        self.agent({**answer, "id": self._id})

    def human(self, thread: str = T1) -> None:
        self.call("turn/start", {"threadId": thread, "input": []}, {"turn": {"id": U1}})

    def state(self, thread: str = T1) -> SessionState:
        return next(state for state in self.stream.sessions() if state.id == thread)

    def targets(self) -> list[str]:
        return [state.id for state in self.stream.sessions()]

    def progress(self) -> list[Progress]:
        told, self.stream.progress = self.stream.progress, []
        return told

    def requests(self) -> list[Frame]:
        """What we want written, as the pump writes it: asked whether it still may."""
        writes, self.stream.writes = self.stream.writes, []
        return [json.loads(write.data) for write in writes if self._may(write)]

    def _may(self, write: Write) -> bool:
        if self.stream.may_write(write):
            return True
        if write.message:
            self.stream.dropped(write.attempt)
        return False

    def answer(self, request: Frame, **result: Any) -> None:
        self.agent({"id": request["id"], "result": result})

    def refuse(self, request: Frame, message: str) -> None:
        self.agent({"error": {"code": -32600, "message": message}, "id": request["id"]})

    def queue(self, **more: str) -> Frame:
        """Injects, and answers as the queue does."""
        assert self.stream.inject(order(**more)) == ""
        (request,) = self.requests()
        assert request["method"] == "thread/queue/add"
        self.answer(request, queuedSubmission={"id": Q1, "clientUserMessageId": request["params"]["clientUserMessageId"]})
        return request


# which threads are targets


@pytest.mark.requirement("SH-50")
def test_a_thread_that_the_editor_started_is_a_target() -> None:
    panel = Panel()
    state = panel.state()
    assert (state.cwd, state.model, state.accepts, state.accepts_busy) == ("/w", "mock", True, True)
    assert panel.requests() == [], "its record came with the answer"


@pytest.mark.requirement("SH-50")
def test_a_thread_seen_only_in_notifications_is_none() -> None:
    panel = Panel()
    panel.agent(*started(U2, T2), {"method": "thread/started", "params": {"thread": thread_record(T2)}})
    assert panel.targets() == [T1]
    assert panel.stream.inject(order(T2)) == "wrong_session"


@pytest.mark.requirement("SH-50")
def test_a_thread_that_the_editor_speaks_to_is_looked_at_first() -> None:
    panel = Panel(threads=())
    panel.call("turn/start", {"threadId": T2}, {"turn": {"id": U1}})
    assert panel.targets() == []
    (request,) = panel.requests()
    assert (request["method"], request["params"]) == ("thread/read", {"threadId": T2})
    assert panel.stream.inject(order(T2)) == "not_accepting"
    panel.answer(request, thread=thread_record(T2, name="named", preview="first\n words"))
    state = panel.state(T2)
    assert (state.name, state.title) == ("named", "first words")
    assert state.last_human
    panel.human(T2)
    assert panel.requests() == []


@pytest.mark.requirement("SH-51")
@pytest.mark.parametrize(
    "record", [{"parentThreadId": T1, "agentNickname": "Dewey"}, {"ephemeral": True}, {"canAcceptDirectInput": False}]
)
def test_a_sub_agent_is_no_target(record: Frame) -> None:
    panel = Panel()
    panel.human(T2)
    (request,) = panel.requests()
    panel.answer(request, thread=thread_record(T2, **record))
    assert panel.targets() == [T1]
    assert panel.stream.inject(order(T2)) == "no_direct_input"


@pytest.mark.requirement("SH-50")
@pytest.mark.parametrize("method", ["thread/resume", "turn/start", "turn/steer", "thread/queue/add"])
def test_what_the_editor_was_refused_opens_nothing(method: str) -> None:
    panel = Panel(threads=())
    panel.call(method, {"threadId": T2}, error="thread T2 already has an active writer")
    assert panel.requests() == []
    assert panel.targets() == []


@pytest.mark.requirement("SH-50")
def test_an_answer_over_the_parse_bound_leaves_it_to_a_question() -> None:
    panel = Panel(threads=())
    panel.editor({"method": "thread/resume", "id": 7, "params": {"threadId": T2}})
    panel.stream.from_agent(b'{"id":7,"result":{"thread":{"id":"019a-t2","turns":[{"items":[', False, 1.0)
    request, _ = panel.requests()
    panel.answer(request, thread=thread_record(T2))
    assert panel.targets() == [T2]


@pytest.mark.requirement("SH-50")
def test_a_fork_is_a_thread_of_its_own() -> None:
    panel = Panel()
    panel.call("thread/fork", {"threadId": T1}, {"thread": thread_record(T2, forkedFromId=T1)})
    assert panel.targets() == [T1, T2]


@pytest.mark.requirement("SH-50")
@pytest.mark.parametrize("how", ["thread/archive", "thread/closed"])
def test_a_thread_that_is_gone_is_no_target(how: str) -> None:
    panel = Panel()
    if how == "thread/archive":
        panel.call(how, {"threadId": T1})
    else:
        panel.agent(notice(how))
    assert panel.targets() == []
    assert panel.stream.inject(order()) == "wrong_session"


def test_before_the_handshake_nothing_is_accepted() -> None:
    stream = CodexStream(cwd="/w")
    assert stream.inject(order("")) == "not_accepting"


# what threads do


@pytest.mark.requirement("SH-20", "SH-21")
def test_a_turn_from_its_request_to_its_end() -> None:
    panel = Panel()
    panel.editor({"method": "turn/start", "id": 5, "params": {"threadId": T1, "input": []}})
    assert panel.state().turn_since == panel.state().last_human == panel.now, "busy before the server says so"
    panel.agent({"id": 5, "result": {"turn": {"id": U1}}}, *started(), *user_item("cid"), *agent_item("hi"))
    assert panel.state().turn_since
    panel.agent(*completed("hi"))
    assert panel.state().turn_since == 0.0


def test_a_turn_that_was_refused_leaves_the_thread_idle() -> None:
    panel = Panel()
    panel.call("turn/start", {"threadId": T1}, error="Input exceeds the maximum length")
    assert panel.state().turn_since == 0.0
    panel.human()
    panel.agent(*started())
    panel.call("turn/start", {"threadId": T1}, error="ActiveTurnNotSteerable")
    assert panel.state().turn_since, "the turn that ran before goes on"


@pytest.mark.requirement("SH-20")
def test_names() -> None:
    panel = Panel()
    panel.agent(notice("thread/name/updated", threadName="a name"))
    assert panel.state().name == "a name"


@pytest.mark.requirement("SH-55")
def test_an_approval_opens_and_closes() -> None:
    panel = Panel()
    panel.human()
    panel.agent(*started(), approval())
    asked = panel.state().approval
    assert asked is not None
    assert (asked.tool, asked.summary) == ("command", "touch x")
    panel.editor({"id": 0, "result": {"decision": "accept"}})
    assert panel.state().approval is None
    panel.agent(approval(1), notice("serverRequest/resolved", requestId=1))
    assert panel.state().approval is None
    panel.agent(approval(2), *completed())
    assert panel.state().approval is None


@pytest.mark.requirement("SH-55")
def test_an_mcp_tool_asks_by_elicitation() -> None:
    panel = Panel()
    meta = {"codex_approval_kind": "mcp_tool_call", "tool_name": "send", "tool_params": {}}
    asked = {"threadId": T1, "serverName": "bridge", "_meta": meta, "message": 'Allow the bridge MCP server to run tool "send"?'}
    panel.agent({"method": "mcpServer/elicitation/request", "id": 0, "params": asked})
    approved = panel.state().approval
    assert approved is not None
    assert approved.tool == "send"


@pytest.mark.requirement("SH-55")
def test_flags_alone_are_an_approval_too() -> None:
    panel = Panel()
    panel.agent(notice("thread/status/changed", status={"type": "active", "activeFlags": ["waitingOnApproval"]}))
    assert panel.state().approval is not None
    panel.agent(notice("thread/status/changed", status={"type": "active", "activeFlags": []}))
    assert panel.state().approval is None


# injections by the queue


@pytest.mark.requirement("SH-52", "SH-53")
def test_idle() -> None:
    panel = Panel()
    request = panel.queue()
    assert request["params"] == {
        "threadId": T1,
        "clientUserMessageId": "key-1",
        "input": [{"type": "text", "text": "the message"}],
    }
    assert panel.progress() == [Taken("a1", T1)]
    panel.agent(*started(), *user_item("key-1"), *agent_item("my answer"), *completed("my answer"))
    assert panel.progress() == [Finished("a1", "completed", "my answer", U1)]
    assert panel.state().last_human == 0.0, "an injected turn is no human's"
    panel.queue(attempt="a2")


@pytest.mark.requirement("SH-52", "SH-53")
def test_busy() -> None:
    panel = Panel()
    panel.human()
    panel.agent(*started(), *user_item("human"))
    panel.queue()
    panel.agent(*agent_item("the human's"), *completed("the human's"))
    assert panel.progress() == [Taken("a1", T1)]
    panel.agent(*started(U2), *user_item("key-1", U2), *agent_item("ours", U2), *completed("ours", U2))
    assert panel.progress() == [Finished("a1", "completed", "ours", U2)]


@pytest.mark.requirement("SH-52", "SH-55")
def test_while_an_approval_waits() -> None:
    panel = Panel()
    panel.human()
    panel.agent(*started(), approval())
    panel.queue()
    assert panel.state().approval is not None
    panel.editor({"id": 0, "result": {"decision": "decline"}})
    panel.agent(*completed(), *started(U2), *user_item("key-1", U2), *completed("ours", U2))
    assert panel.progress() == [Taken("a1", T1), Finished("a1", "completed", "ours", U2)]


@pytest.mark.requirement("SH-53")
def test_a_turn_of_commentary_alone_ends_with_its_last_words() -> None:
    panel = Panel()
    panel.queue()
    panel.agent(
        *started(), *user_item("key-1"), *agent_item("first", phase="commentary"), *agent_item("last", phase="commentary")
    )
    panel.agent(*completed(None))
    assert panel.progress()[-1] == Finished("a1", "completed", "last", U1)


@pytest.mark.requirement("SH-53")
@pytest.mark.parametrize(("status", "told"), [("failed", "failed"), ("interrupted", "interrupted"), ("new kind", "failed")])
def test_how_a_turn_ended(status: str, told: str) -> None:
    panel = Panel()
    panel.queue()
    panel.agent(*started(), *user_item("key-1"), *completed(None, status=status))
    assert panel.progress()[-1] == Finished("a1", told, "", U1)
    assert panel.state().turn_since == 0.0


@pytest.mark.requirement("SH-34", "SH-53")
@pytest.mark.parametrize("named", [None, "an earlier one"])
def test_words_too_long_to_read_are_left_to_the_records(named: str | None) -> None:
    panel = Panel()
    panel.queue()
    panel.agent(*started(), *user_item("key-1"), *agent_item("let me see", phase="commentary"))
    observer = Observer()
    observer.attach(panel.stream, lambda: None)
    (_, frame) = agent_item("x" * LONGEST_MESSAGE)
    ordered = {"item": frame["params"]["item"], **frame["params"]}  # as the server writes it: the turn is named behind the words
    observer.agent_side.arrived(json.dumps({**frame, "params": ordered}, separators=(",", ":")).encode() + b"\n")
    observer.agent_side.passed()
    panel.agent(*completed(named))
    assert panel.progress()[-1] == Finished("a1", "completed", None, U1)


@pytest.mark.requirement("SH-34")
def test_without_its_client_id_the_token_tells() -> None:
    panel = Panel()
    panel.queue()
    panel.agent(*started(U2), *completed(f"about {TOKEN}\nand more", U2))
    assert panel.progress() == [Taken("a1", T1)]
    panel.agent(*started(), *completed(f"my answer\n{TOKEN}"))
    assert panel.progress() == [Finished("a1", "completed", f"my answer\n{TOKEN}", U1)]


@pytest.mark.requirement("SH-52")
@pytest.mark.parametrize("when", ["while it waits", "before it came"])
def test_a_queue_that_an_interrupt_paused(when: str) -> None:
    panel = Panel()
    panel.human()
    panel.agent(*started())
    if when == "while it waits":
        panel.queue()
        panel.agent(*completed(None, status="interrupted"))
    else:
        panel.agent(*completed(None, status="interrupted"))
        panel.queue()
    assert panel.state().queue_paused
    panel.agent(*started(U2))
    assert not panel.state().queue_paused
    panel.agent(*completed("the human's", U2), *started("u3"), *user_item("key-1", "u3"), *completed("ours", "u3"))
    assert panel.progress() == [Taken("a1", T1), Finished("a1", "completed", "ours", "u3")]


@pytest.mark.requirement("SH-52")
@pytest.mark.parametrize(
    ("latest", "paused"),
    [
        ({"status": "interrupted", "completedAt": 1796058259}, True),
        ({"status": "interrupted", "completedAt": None}, False),  # cut off by a kill
        ({"status": "completed", "completedAt": 1796058259}, False),
        ({"status": "failed", "completedAt": 1796058259}, False),
        (None, False),
    ],
)
def test_a_queue_that_an_earlier_process_left_paused(latest: Frame | None, paused: bool) -> None:
    panel = Panel()
    panel.call("thread/resume", {"threadId": T2}, {"thread": thread_record(T2), "model": "mock"})
    (request,) = panel.requests()
    assert (request["method"], request["params"]["threadId"], request["params"]["limit"]) == ("thread/turns/list", T2, 1)
    panel.agent({"id": request["id"], "result": {"data": [latest] if latest else [], "nextCursor": None}})
    assert panel.state(T2).queue_paused is paused
    panel.agent(*started(U2, T2))
    assert not panel.state(T2).queue_paused


@pytest.mark.requirement("SH-52")
@pytest.mark.parametrize("panel", [Panel("0.147.0"), Panel(experimental=False)], ids=["old", "not experimental"])
def test_who_has_no_queue_is_not_asked_for_turns(panel: Panel) -> None:
    panel.call("thread/resume", {"threadId": T2}, {"thread": thread_record(T2), "model": "mock"})
    assert panel.requests() == []


@pytest.mark.requirement("SH-31")
def test_one_at_a_time_in_each_thread() -> None:
    panel = Panel(threads=(T1, T2))
    panel.queue()
    assert panel.stream.inject(order(attempt="a2")) == "busy"
    panel.queue(session=T2, attempt="a3", key="key-3")
    panel.agent(*started(U2, T2), *user_item("key-3", U2, T2), *completed("two", U2, T2))
    panel.agent(*started(U1, T1), *user_item("key-1", U1, T1), *completed("one", U1, T1))
    assert [fact for fact in panel.progress() if isinstance(fact, Finished)] == [
        Finished("a3", "completed", "two", U2),
        Finished("a1", "completed", "one", U1),
    ]


@pytest.mark.requirement("SH-51")
def test_a_sub_agent_that_the_server_refuses_is_dropped() -> None:
    panel = Panel()
    panel.stream.inject(order())
    (request,) = panel.requests()
    panel.refuse(request, "direct app-server input is not allowed for multi-agent v2 sub-agents")
    assert panel.progress() == [Rejected("a1", "no_direct_input")]
    assert panel.targets() == []


@pytest.mark.requirement("SH-30")
def test_a_refusal_ends_the_attempt() -> None:
    panel = Panel()
    panel.stream.inject(order())
    (request,) = panel.requests()
    panel.refuse(request, "thread not found: T1")
    assert panel.progress() == [Rejected("a1", "agent_refused")]
    panel.queue(attempt="a2")


@pytest.mark.requirement("SH-52")
@pytest.mark.parametrize("version", ["0.148.0", "0.153.4", "0.154.0"])
def test_the_queue_is_used_from_its_first_release_on(version: str) -> None:
    panel = Panel(version)
    panel.human()
    assert panel.state().accepts_busy
    panel.queue()


# without a queue


@pytest.mark.requirement("SH-52")
@pytest.mark.parametrize(("version", "experimental"), [("0.147.0", True), ("0.171.0", False)])
def test_without_a_queue_only_an_idle_thread_is_spoken_to(version: str, experimental: bool) -> None:
    panel = Panel(version, experimental=experimental)
    assert not panel.state().accepts_busy
    panel.human()
    assert panel.stream.inject(order()) == "busy", "the server has not even said that the turn runs"
    panel.agent(*started(), *completed())
    assert panel.stream.inject(order()) == ""
    (request,) = panel.requests()
    assert request["method"] == "turn/start"
    assert panel.state().turn_since, "nobody takes it for idle any more"


@pytest.mark.requirement("SH-52")
def test_a_turn_that_began_before_ours_was_written_drops_ours() -> None:
    panel = Panel("0.147.0")
    assert panel.stream.inject(order()) == ""
    panel.human()
    assert panel.requests() == []
    panel.agent(*started(), *completed())
    assert panel.stream.inject(order(attempt="a2")) == ""
    assert len(panel.requests()) == 1


@pytest.mark.requirement("SH-53")
def test_phantom_turn_ids_are_not_trusted() -> None:
    """0.147 answers with an id that never appears again; its user messages carry no client id."""
    panel = Panel("0.147.0")
    panel.stream.inject(order())
    (request,) = panel.requests()
    panel.answer(request, turn={"id": "phantom"})
    panel.agent(*started(U2), *user_item(None, U2), *agent_item("mine", U2), *completed("mine", U2))
    assert panel.progress() == [Taken("a1", T1), Finished("a1", "completed", "mine", U2)]


def test_a_turn_of_ours_that_is_refused_leaves_the_thread_idle() -> None:
    panel = Panel("0.147.0")
    panel.stream.inject(order())
    (request,) = panel.requests()
    panel.refuse(request, "no")
    assert panel.progress() == [Rejected("a1", "agent_refused")]
    assert panel.state().turn_since == 0.0


# new conversations


@pytest.mark.requirement("SH-54")
def test_with_no_thread_open_one_is_opened_and_titled() -> None:
    panel = Panel(threads=())
    assert panel.stream.inject(order("", title="Claude: hello", cwd="/elsewhere")) == ""
    (start,) = panel.requests()
    assert (start["method"], start["params"]) == ("thread/start", {"threadSource": "user", "cwd": "/elsewhere"})
    panel.answer(start, thread=thread_record(T2), model="mock")
    name, add = panel.requests()
    assert (name["method"], name["params"]) == ("thread/name/set", {"threadId": T2, "name": "Claude: hello"})
    assert (add["method"], add["params"]["threadId"]) == ("thread/queue/add", T2)
    panel.answer(name)
    panel.answer(add, queuedSubmission={"id": Q1})
    assert panel.progress() == [Taken("a1", T2)]
    assert panel.targets() == [T2]


@pytest.mark.requirement("SH-54")
def test_a_conversation_that_cannot_be_opened() -> None:
    panel = Panel(threads=())
    panel.stream.inject(order(""))
    (start,) = panel.requests()
    panel.refuse(start, "required MCP servers failed to initialize")
    assert panel.progress() == [Rejected("a1", "no_new_conversation")]


# withdrawal


@pytest.mark.requirement("SH-30")
def test_what_waits_in_the_queue_is_withdrawn() -> None:
    panel = Panel()
    panel.human()
    panel.agent(*started())
    panel.queue()
    panel.progress()
    panel.stream.withdraw("a1")
    (request,) = panel.requests()
    assert (request["method"], request["params"]) == ("thread/queue/delete", {"threadId": T1, "queuedSubmissionId": Q1})
    panel.answer(request, deleted=True)
    assert panel.progress() == [Rejected("a1", "withdrawn")]


def test_a_withdrawal_that_comes_too_late_changes_nothing() -> None:
    panel = Panel()
    panel.queue()
    panel.stream.withdraw("a1")
    (request,) = panel.requests()
    panel.answer(request, deleted=False)
    panel.agent(*started(), *user_item("key-1"))
    panel.stream.withdraw("a1")
    assert panel.requests() == []
    panel.agent(*completed("ours"))
    assert panel.progress() == [Taken("a1", T1), Finished("a1", "completed", "ours", U1)]


def test_a_withdrawal_before_the_place_in_the_queue_is_known() -> None:
    panel = Panel()
    panel.stream.inject(order())
    (add,) = panel.requests()
    panel.stream.withdraw("a1")
    assert panel.requests() == []
    panel.answer(add, queuedSubmission={"id": Q1})
    (delete,) = panel.requests()
    panel.answer(delete, deleted=True)
    assert panel.progress() == [Taken("a1", T1), Rejected("a1", "withdrawn")]


def test_a_closed_editor_takes_nothing() -> None:
    panel = Panel()
    panel.stream.inject(order())
    panel.stream.editor_ended()
    assert panel.requests() == []
    assert panel.stream.inject(order(attempt="a2")) == "closed"
    assert not panel.state().accepts


# the sieve


@pytest.mark.requirement("SH-33")
@pytest.mark.parametrize("form", ["result", "error", "late id", "spaced"])
def test_answers_to_us_stay_here(form: str) -> None:
    panel = Panel()
    panel.stream.inject(order())
    ours = {
        "result": b'{"id":"xagent-1","result":{"queuedSubmission":{}}}',
        "error": b'{"error":{"code":-32600,"message":"no"},"id":"xagent-1"}',
        "late id": b'{"result":{"a":"x"},"id":"xagent-1"}',
        "spaced": b'{ "id" : "xagent-1", "result": {}}\r',
    }[form]
    assert panel.stream.judge(ours, True) == DROP
    theirs = ours.replace(b"xagent-1", b"xagent-9")
    assert panel.stream.judge(theirs, True) == PASS
    for cut in range(1, len(ours)):
        assert panel.stream.judge(ours[:cut], False) in (HOLD, DROP)
        sieve = Sieve(panel.stream.outstanding, panel.stream.judge)
        assert sieve.filter(b"noise\n" + ours[:cut]) == b"noise\n"
        assert sieve.filter(ours[cut:] + b"\nnext") == b"next"


@pytest.mark.requirement("SH-05")
@pytest.mark.parametrize(
    "line",
    [b'{"id":"xagent-1","method":"x","params":{}}', b'{"id":"xagent-1"}', b'{"id":"xagent-1" and no JSON', b' {"id":"xagent-1'],
)
def test_what_names_a_request_of_ours_and_answers_nothing_is_the_editors(line: bytes) -> None:
    panel = Panel()
    panel.stream.inject(order())
    assert panel.stream.judge(line, True) == PASS
    panel.stream.from_agent(line, True, 1.0)
    assert panel.stream.outstanding()
    assert panel.progress() == []


@pytest.mark.requirement("SH-33")
def test_an_answer_about_a_message_that_is_forgotten_stays_here() -> None:
    panel = Panel()
    panel.stream.inject(order())
    (add,) = panel.requests()
    panel.stream.forgotten("a1")
    assert panel.stream.inject(order(attempt="a2")) == "", "its thread is free"
    assert panel.stream.judge(json.dumps({"id": add["id"], "result": {}}).encode(), True) == DROP
    panel.answer(add, queuedSubmission={"id": Q1})
    assert panel.progress() == []


@pytest.mark.requirement("SH-33", "SH-30")
def test_a_message_for_a_thread_that_closes_meanwhile_is_answered_all_the_same() -> None:
    panel = Panel()
    panel.stream.inject(order())
    (add,) = panel.requests()
    panel.agent(notice("thread/closed"))
    refusal = {"error": {"code": -32600, "message": "thread not found"}, "id": add["id"]}
    assert panel.stream.judge(json.dumps(refusal).encode(), True) == DROP
    panel.agent(refusal)
    assert panel.progress() == [Rejected("a1", "agent_refused")]


@pytest.mark.requirement("SH-05", "SH-14")
@pytest.mark.parametrize("start", [b"a", b"noise", b'{"method":"x', b'{"id":1', b'{"id":"other', b'{"id":"xagent-9"', b"[1"])
def test_what_cannot_be_an_answer_to_us_is_not_held(start: bytes) -> None:
    panel = Panel()
    panel.stream.inject(order())
    assert panel.stream.judge(start, False) == PASS


@pytest.mark.requirement("SH-33")
def test_notifications_about_our_turn_reach_the_editor() -> None:
    panel = Panel()
    panel.stream.inject(order())
    for frame in [*started(), *user_item("xagent-1"), *completed("about xagent-1")]:
        assert panel.stream.judge(json.dumps(frame).encode(), True) == PASS


def test_odd_bytes_in_an_id_are_no_trouble() -> None:
    panel = Panel()
    panel.stream.inject(order())
    assert panel.stream.judge(b'{"id":"xagent-\xff","result":{}}', True) == PASS


@pytest.mark.parametrize(
    ("agent", "version"),
    [
        ("probe/0.171.0 (Debian 12.0.0; x86_64) xterm (probe; 0)", (0, 171, 0)),
        ("codex_vscode/0.154.0-alpha.2 (Mac OS 15)", (0, 154, 0)),
        ("a/b/0.147.0 (x)", (0, 147, 0)),
        ("probe", ()),
        ("x/²..1", ()),
        ("x/1.2." + "9" * 5000, ()),
    ],
)
def test_versions(agent: str, version: tuple[int, ...]) -> None:
    assert server_version(agent) == version


@pytest.mark.requirement("SH-52")
def test_a_second_handshake_changes_nothing() -> None:
    panel = Panel()
    panel.call("initialize", {"capabilities": {"experimentalApi": False}}, error="Already initialized")
    assert panel.state().accepts_busy


# whatever comes

WORDS = (
    "initialize initialized thread/start thread/resume turn/start turn/steer thread/queue/add thread/read turn/started "
    "turn/completed item/completed thread/status/changed thread/closed thread/archive thread/name/updated userMessage "
    "agentMessage active idle interrupted completed waitingOnApproval serverRequest/resolved x/0.171.0 x/0.147.0 key-1 "
    "xagent-1 xagent-2 mcpServer/elicitation/request"
)
NAMES = (
    "id method params result error threadId thread turn turnId item items type status activeFlags clientId text userAgent "
    "capabilities experimentalApi message queuedSubmission deleted requestId threadName parentThreadId ephemeral name preview "
    "canAcceptDirectInput model cwd _meta tool_name command"
)
words = st.sampled_from([*WORDS.split(), T1, T2, U1, U2])
names = st.sampled_from(NAMES.split())
values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-2, 4), st.floats(), st.text(max_size=5), words),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(names, inner, max_size=5)),
    max_leaves=12,
)
shapes = st.dictionaries(names, values, max_size=6)
realistic = st.sampled_from(
    [
        *started(),
        *user_item("key-1"),
        *agent_item(f"words {TOKEN}"),
        *completed(TOKEN),
        *completed(None, status="interrupted"),
        approval(),
        notice("thread/closed"),
        {"id": "xagent-1", "result": {"queuedSubmission": {"id": Q1}}},
        {"id": "xagent-1", "result": {"thread": thread_record(T2)}},
        {"error": {"message": "no"}, "id": "xagent-1"},
        {"id": "xagent-2", "result": {"deleted": True}},
        {"method": "turn/start", "id": 5, "params": {"threadId": T1}},
        {"error": {"message": "no"}, "id": 5},
        {"id": 5, "result": {"turn": {"id": U1}}},
        {"method": "thread/resume", "id": 6, "params": {"threadId": T2}},
        {"id": 6, "result": {"thread": thread_record(T2)}},
    ]
)
lines = st.one_of(
    st.binary(max_size=20).map(lambda raw: raw.replace(b"\n", b"")),
    st.one_of(shapes, realistic).map(lambda frame: json.dumps(frame, separators=(",", ":")).encode()),
)
kinds = st.sampled_from(["editor", "agent", "agent", "agent", "inject", "open", "withdraw", "write"])
steps = st.lists(st.tuples(kinds, lines), max_size=30)
versions = st.sampled_from(["0.147.0", "0.171.0"])


def _play(panel: Panel, step: str, line: bytes, pass_on: Callable[[str, bytes], None]) -> None:
    if step == "inject":
        panel.stream.inject(order())
    elif step == "open":
        panel.stream.inject(order("", attempt="a2", title="t"))
    elif step == "withdraw":
        panel.stream.withdraw("a1")
    elif step == "write":
        panel.requests()
    else:
        pass_on(step, line)


@given(steps, versions)
@settings(deadline=None)
@pytest.mark.requirement("SH-07")
def test_nothing_raises_and_facts_keep_their_types(play: list[tuple[str, bytes]], version: str) -> None:
    panel = Panel(version)
    stream = panel.stream

    def pass_on(side: str, line: bytes) -> None:
        for whole in (True, False):
            assert stream.judge(line, whole) in ("pass", "hold", "drop")
            (stream.from_editor if side == "editor" else stream.from_agent)(line, whole, 1.0)

    for step, line in play:
        _play(panel, step, line, pass_on)
        for state in stream.sessions():
            for text in (state.id, state.cwd, state.name, state.title, state.model):
                assert type(text) is str
    for fact in stream.progress:
        assert not isinstance(fact, Finished) or type(fact.text) is str


@given(steps, versions, st.lists(st.integers(1, 60), min_size=1, max_size=20))
@settings(deadline=None)
@pytest.mark.requirement("SH-05", "SH-20")
def test_facts_do_not_depend_on_how_the_stream_was_cut(play: list[tuple[str, bytes]], version: str, sizes: list[int]) -> None:
    told = []
    for cut in (False, True):
        panel = Panel(version)
        observer = Observer()
        observer.attach(panel.stream, lambda: None)

        def pass_on(side: str, line: bytes, cut: bool = cut, observer: Observer = observer) -> None:
            tap = observer.editor_side if side == "editor" else observer.agent_side
            data = line + b"\n"
            at, turn = 0, 0
            while at < len(data):
                size = sizes[turn % len(sizes)] if cut else len(data)
                tap.arrived(data[at : at + size])
                tap.passed()
                at, turn = at + size, turn + 1

        for step, line in play:
            _play(panel, step, line, pass_on)
        assert observer.off_because == ""
        states = [
            (s.id, s.name, bool(s.turn_since), s.approval and s.approval.tool, s.queue_paused) for s in panel.stream.sessions()
        ]
        told.append((panel.stream.progress, [write.data for write in panel.stream.writes], states))
    assert told[0] == told[1]
