"""Stories of Claude Code's stream: lines as 2.1.197 and 2.1.332 were recorded to say them, and what they mean."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.wire import Inject, SessionState
from shims.claude.stream import ClaudeStream
from shims.lines import DROP, LONGEST_PARSED, PASS, Sieve
from shims.observe import Observer
from shims.stream import Finished, Progress, Rejected, Taken, Write

SESSION = "6f1b9d1e-0000-4000-8000-000000000001"
OTHER = "6f1b9d1e-0000-4000-8000-000000000002"
KEY = "d0d0d0d0-0000-4000-8000-000000000003"
TOKEN = "req_1700000000000_abcdef"
OTHER_TOKEN = "req_1700000000001_fedcba"

Frame = dict[str, Any]


class Panel:
    """A tracker with a hand on both sides."""

    def __init__(self, *, session: str = SESSION, resumed: bool = False, renders: bool = True, replays: bool = True) -> None:
        self.stream = ClaudeStream(session=session, resumed=resumed, cwd="/w", renders=renders, replays=replays, opened=1.0)
        self.now = 10.0

    def editor(self, *frames: Frame) -> None:
        for frame in frames:
            self.now += 1
            self.stream.from_editor(json.dumps(frame).encode(), True, self.now)

    def agent(self, *frames: Frame) -> None:
        for frame in frames:
            self.now += 1
            self.stream.from_agent(json.dumps(frame).encode(), True, self.now)

    @property
    def state(self) -> SessionState:
        (state,) = self.stream.sessions()
        return state

    def progress(self) -> list[Progress]:
        told, self.stream.progress = self.stream.progress, []
        return told

    def writes(self) -> list[Write]:
        written, self.stream.writes = self.stream.writes, []
        return written


def init(session: str = SESSION) -> Frame:
    return {"type": "system", "subtype": "init", "session_id": session, "cwd": "/w/real", "model": "claude-x", "tools": []}


def result(text: str | None = "done", *, uuids: list[str] | None = None, session: str = SESSION, **more: Any) -> Frame:
    frame: Frame = {"type": "result", "subtype": "success", "is_error": False, "session_id": session, "uuid": "r1", **more}
    if text is not None:
        frame["result"] = text
    if uuids is not None:
        frame["user_message_uuids"] = uuids  # 2.1.332 only
    return frame


def human(text: str = "hello", **more: Any) -> Frame:
    return {"type": "user", "message": {"role": "user", "content": text}, "session_id": "default", **more}


def replay(uuid: str, text: str = "x") -> Frame:
    return {
        "type": "user",
        "message": {"role": "user", "content": text},
        "uuid": uuid,
        "timestamp": "2026-01-01T00:00:00Z",
        "isReplay": True,
        "session_id": SESSION,
    }


def lifecycle(state: str, uuid: str = KEY) -> Frame:
    return {"type": "command_lifecycle", "command_uuid": uuid, "state": state}


def can_use_tool(request: str = "p1") -> Frame:
    asked = {"subtype": "can_use_tool", "tool_name": "Bash", "input": {"command": "make\n  all"}, "tool_use_id": "toolu_1"}
    return {"type": "control_request", "request_id": request, "request": asked}


def permission(request: str = "p1") -> Frame:
    return {
        "type": "control_response",
        "response": {"subtype": "success", "request_id": request, "response": {"behavior": "allow"}},
    }


def answer(request: str, **response: Any) -> Frame:
    return {"type": "control_response", "response": {"subtype": "success", "request_id": request, "response": response}}


def order(session: str = SESSION, attempt: str = "a1", key: str = KEY, token: str = TOKEN) -> Inject:
    return Inject("d1", attempt, key, token, session, "the message", 1, 1e9)


# what is known of the session


@pytest.mark.requirement("SH-20", "SH-46")
def test_a_new_panel_is_empty_until_somebody_speaks() -> None:
    panel = Panel(session="")
    assert (panel.state.id, panel.state.empty, panel.state.turn_since) == ("", True, 0.0)
    panel.editor(human())
    assert not panel.state.empty
    assert panel.state.last_human == panel.state.turn_since == 11.0
    panel.agent(init())
    assert (panel.state.id, panel.state.cwd, panel.state.model) == (SESSION, "/w/real", "claude-x")
    panel.agent(result())
    assert panel.state.turn_since == 0.0


@pytest.mark.requirement("SH-40")
def test_the_registry_names_an_unused_panel() -> None:
    panel = Panel(session="")
    panel.editor({"type": "control_request", "request_id": "req_1", "request": {"subtype": "initialize"}})
    panel.agent(answer("req_1", pid=77, commands=[]))
    assert panel.stream.cli_pid == 77
    assert panel.stream.look_up_registry
    panel.stream.registered(SESSION, "w-9c", False)
    assert (panel.state.id, panel.state.name, panel.state.empty) == (SESSION, "", True)


@pytest.mark.requirement("SH-40")
def test_a_registry_that_lags_behind_moves_nothing_back() -> None:
    panel = Panel()
    panel.editor(human("/clear"))
    panel.agent({"type": "conversation_reset", "new_conversation_id": OTHER, "trigger": "clear"}, result(session=OTHER))
    panel.stream.registered(SESSION, "old name", True)
    assert (panel.state.id, panel.state.name) == (OTHER, "")


@pytest.mark.requirement("SH-40")
@pytest.mark.parametrize("generation", ["2.1.197", "2.1.332"])
def test_clear_changes_the_session(generation: str) -> None:
    panel = Panel()
    panel.agent(init(), result())
    panel.stream.registered(SESSION, "named", True)
    panel.editor(human("/clear"))
    if generation == "2.1.332":
        panel.agent({"type": "conversation_reset", "new_conversation_id": OTHER, "trigger": "clear"})
    panel.agent(init(OTHER), result("", session=OTHER))
    assert (panel.state.id, panel.state.name, panel.state.turn_since) == (OTHER, "", 0.0)
    assert panel.stream.look_up_registry


@pytest.mark.requirement("SH-40")
def test_a_fork_gets_its_own_id_from_the_first_init() -> None:
    panel = Panel(session="", resumed=True)
    assert not panel.state.empty
    panel.editor(human())
    panel.agent(init(OTHER))
    assert panel.state.id == OTHER


@pytest.mark.requirement("SH-20")
def test_names_that_were_given() -> None:
    panel = Panel()
    panel.editor({"type": "control_request", "request_id": "r", "request": {"subtype": "rename_session", "title": "mine"}})
    assert panel.state.name == "mine"
    panel.agent({"type": "system", "subtype": "session_title_changed", "title": "yours", "session_id": SESSION})
    assert panel.state.name == "yours"
    panel.stream.registered(SESSION, "w-9c", False)
    assert panel.state.name == "yours", "a derived name is no name"


@pytest.mark.requirement("SH-20", "SE-24")
def test_a_name_that_is_newer_than_what_was_read_of_the_registry_stays() -> None:
    """A turn ends, its registry entry is read, and meanwhile the person renames the session in the editor's list."""
    panel = Panel()
    panel.agent(init(), result())
    panel.editor({"type": "control_request", "request_id": "r", "request": {"subtype": "rename_session", "title": "new"}})
    panel.stream.registered(SESSION, "old", True)
    assert panel.state.name == "new"
    panel.agent({"type": "system", "subtype": "session_title_changed", "title": "newer", "session_id": SESSION})
    panel.stream.registered(SESSION, "old", True)
    assert panel.state.name == "newer"
    panel.agent(init(), result())
    panel.stream.registered(SESSION, "newest", True)
    assert panel.state.name == "newest"


@pytest.mark.requirement("SH-20")
def test_a_name_given_before_the_id_was_known_stays() -> None:
    panel = Panel(session="")
    panel.editor({"type": "control_request", "request_id": "r", "request": {"subtype": "rename_session", "title": "mine"}})
    panel.editor(human())
    panel.agent(init())
    assert (panel.state.id, panel.state.name) == (SESSION, "mine")


@pytest.mark.requirement("SH-45")
def test_an_approval_opens_and_closes() -> None:
    panel = Panel()
    panel.editor(human())
    panel.agent(init(), can_use_tool())
    approval = panel.state.approval
    assert approval is not None
    assert (approval.tool, approval.summary, approval.since) == ("Bash", "make all", panel.now)
    panel.editor(permission())
    assert panel.state.approval is None
    panel.agent(can_use_tool("p2"), {"type": "control_cancel_request", "request_id": "p2"})
    assert panel.state.approval is None
    panel.agent(can_use_tool("p3"), result())
    assert panel.state.approval is None, "a turn that has ended asks for nothing"


@pytest.mark.requirement("SH-45")
def test_other_control_traffic_is_no_approval() -> None:
    panel = Panel()
    panel.agent(
        {"type": "control_request", "request_id": "m", "request": {"subtype": "mcp_message", "server_name": "x", "message": {}}},
        {"type": "control_request", "request_id": "h", "request": {"subtype": "hook_callback"}},
    )
    assert panel.state.approval is None
    panel.agent(can_use_tool())
    panel.agent({**permission(), "response": {"subtype": "success", "request_id": "p1"}})  # the echo of --replay-user-messages
    assert panel.state.approval is not None, "an echo of the agent's answers nothing"


@pytest.mark.requirement("SH-45")
def test_an_answer_over_the_parse_bound_still_closes_the_approval() -> None:
    panel = Panel()
    panel.agent(can_use_tool())
    panel.stream.from_editor(json.dumps(permission()).encode() + b" " * 100, False, 99.0)
    assert panel.state.approval is None


@pytest.mark.requirement("SH-07")
def test_half_a_character_in_an_id_is_no_trouble() -> None:
    panel = Panel()
    panel.agent(can_use_tool("half \ud83d"), can_use_tool())
    panel.stream.from_editor(json.dumps(permission()).encode() + b" " * 100, False, 99.0)
    assert panel.state.approval is not None, "the one that was answered is another"


@pytest.mark.requirement("SH-20")
def test_a_message_over_the_parse_bound_is_a_humans() -> None:
    panel = Panel()
    panel.stream.from_editor(b'{"type":"user","message":{"content":[{"type":"image","data":"AAAA', False, 99.0)
    assert panel.state.last_human == 99.0


def test_a_silent_line_starts_no_turn() -> None:
    panel = Panel()
    panel.editor(human(shouldQuery=False))
    assert panel.state.turn_since == 0.0


def test_state_frames_where_the_host_asked_for_them() -> None:
    panel = Panel()
    panel.agent({"type": "system", "subtype": "session_state_changed", "state": "running", "session_id": SESSION})
    assert panel.state.turn_since
    panel.agent({"type": "system", "subtype": "session_state_changed", "state": "requires_action", "session_id": SESSION})
    assert panel.state.turn_since
    panel.agent({"type": "system", "subtype": "session_state_changed", "state": "idle", "session_id": SESSION})
    assert not panel.state.turn_since


@pytest.mark.requirement("EN-20")
def test_uses_of_our_tools_are_remembered() -> None:
    panel = Panel()
    for number in range(40):
        block = {"type": "tool_use", "id": f"toolu_{number}", "name": "mcp__cross-agent__send_to_codex", "input": {}}
        other = {"type": "tool_use", "id": f"other_{number}", "name": "Bash", "input": {}}
        panel.agent({"type": "assistant", "message": {"content": [{"type": "text", "text": "x"}, other, block]}})
    assert panel.state.tool_uses == tuple(f"toolu_{number}" for number in range(24, 40))


# injections


@pytest.mark.requirement("SH-41")
def test_the_line_that_is_written() -> None:
    panel = Panel()
    assert panel.stream.inject(order()) == ""
    (write,) = panel.writes()
    assert write.message
    assert write.data.endswith(b"\n")
    assert write.data.count(b"\n") == 1
    line = json.loads(write.data)
    assert line["message"] == {"role": "user", "content": "the message"}
    assert (line["uuid"], line["priority"], line["client_composed"]) == (KEY, "later", True)
    assert panel.state.last_human == 0.0, "an injected turn is no human's"


@pytest.mark.requirement("SH-43")
def test_idle_2_1_332() -> None:
    panel = Panel()
    panel.stream.inject(order())
    panel.agent(lifecycle("queued"))
    assert panel.progress() == []
    panel.agent(init(), lifecycle("started"), replay(KEY), lifecycle("completed"), result("my answer", uuids=[KEY]))
    assert panel.progress() == [Taken("a1", SESSION, KEY, True), Finished("a1", "completed", "my answer", "r1")]
    assert panel.stream.inject(order(attempt="a2")) == ""


@pytest.mark.requirement("SH-43")
def test_idle_2_1_197() -> None:
    panel = Panel()
    panel.stream.inject(order())
    panel.agent(init(), replay(KEY), result("my answer"))
    assert panel.progress() == [Taken("a1", SESSION, KEY, True), Finished("a1", "completed", "my answer", "r1")]


@pytest.mark.requirement("SH-34", "SH-43")
def test_without_the_echo_the_token_tells() -> None:
    panel = Panel(replays=False)
    panel.stream.inject(order())
    panel.agent(init(), result(f"somebody else's\nanswer about {TOKEN}\n\nand more"))
    assert panel.progress() == []
    panel.agent(init(), result(f"{TOKEN} is done, so is {OTHER_TOKEN}"))
    assert panel.progress() == [], "the last one tells, here as in the broker"
    panel.agent(init(), result(f"my answer\n\n{TOKEN}  \n"))
    finished = Finished("a1", "completed", f"my answer\n\n{TOKEN}  \n", "r1")
    assert panel.progress() == [Taken("a1", SESSION, KEY, False), finished]


@pytest.mark.requirement("SH-41", "SH-43")
@pytest.mark.parametrize("uuids", [True, False], ids=["2.1.332", "2.1.197"])
def test_busy_the_humans_answer_is_not_ours(uuids: bool) -> None:
    panel = Panel()
    panel.editor(human(uuid="h1"))
    panel.agent(init(), replay("h1"))
    panel.stream.inject(order())
    panel.agent(result("the human's", uuids=["h1"] if uuids else None))
    assert panel.progress() == []
    panel.agent(init(), replay(KEY), result("ours", uuids=[KEY] if uuids else None))
    assert panel.progress() == [Taken("a1", SESSION, KEY, True), Finished("a1", "completed", "ours", "r1")]


@pytest.mark.requirement("SH-43")
def test_while_an_approval_waits() -> None:
    panel = Panel()
    panel.editor(human(uuid="h1"))
    panel.agent(init(), replay("h1"), can_use_tool())
    panel.stream.inject(order())
    assert panel.state.approval is not None
    panel.editor(permission())
    panel.agent(result("the human's", uuids=["h1"]), init(), replay(KEY), result("ours", uuids=[KEY]))
    assert [type(fact) for fact in panel.progress()] == [Taken, Finished]


@pytest.mark.requirement("SH-43")
def test_a_message_that_was_folded_after_all_shares_the_result() -> None:
    panel = Panel()
    panel.editor(human(uuid="h1"))
    panel.agent(init(), replay("h1"))
    panel.stream.inject(order())
    panel.agent(replay(KEY), result("both", uuids=["h1", KEY]))
    assert panel.progress() == [Taken("a1", SESSION, KEY, True), Finished("a1", "completed", "both", "r1")]


@pytest.mark.requirement("SH-43")
@pytest.mark.parametrize(
    ("more", "text", "status"),
    [
        ({"is_error": True}, "API Error: Unable to connect", "failed"),
        ({"is_error": True, "subtype": "error_during_execution", "terminal_reason": "aborted_streaming"}, None, "interrupted"),
        ({"is_error": True, "subtype": "error_during_execution", "terminal_reason": "aborted_tools"}, "", "interrupted"),
        ({"is_error": True, "subtype": "error_max_turns"}, None, "failed"),
        ({}, "", "completed"),
    ],
)
def test_how_a_turn_ended(more: dict[str, Any], text: str | None, status: str) -> None:
    panel = Panel()
    panel.stream.inject(order())
    panel.agent(init(), replay(KEY), result(text, uuids=[KEY], **more))
    assert panel.progress()[-1] == Finished("a1", status, text or "", "r1")


@pytest.mark.requirement("SH-43")
def test_a_result_over_the_parse_bound_ends_the_turn_with_words_unseen() -> None:
    panel = Panel()
    panel.stream.inject(order())
    panel.agent(init(), replay(KEY))
    panel.stream.from_agent(b'{"type":"result","subtype":"success","result":"aaaa', False, 99.0)
    assert panel.progress()[-1] == Finished("a1", "completed", None, "")
    assert panel.state.turn_since == 0.0


@pytest.mark.requirement("SH-31")
def test_one_at_a_time() -> None:
    panel = Panel()
    assert panel.stream.inject(order()) == ""
    assert panel.stream.inject(order(attempt="a2", key="k2")) == "busy"
    assert len(panel.writes()) == 1


@pytest.mark.requirement("SH-44")
def test_a_host_that_pairs_answers_with_queries_gets_no_message() -> None:
    panel = Panel(renders=False, replays=False)
    assert not panel.state.accepts
    assert panel.state.why_not
    assert panel.stream.inject(order()) == "not_accepting"


@pytest.mark.requirement("SH-30")
def test_refusals() -> None:
    panel = Panel()
    assert panel.stream.inject(order(session=OTHER)) == "wrong_session"
    panel.stream.editor_ended()
    assert panel.stream.inject(order()) == "closed"
    assert not panel.state.accepts


@pytest.mark.requirement("SH-46")
def test_an_empty_panel_takes_its_first_message_by_injection() -> None:
    panel = Panel(session="")
    assert panel.stream.inject(order(session="")) == ""
    panel.agent(init(), replay(KEY), result("hello", uuids=[KEY]))
    assert panel.progress() == [Taken("a1", SESSION, KEY, True), Finished("a1", "completed", "hello", "r1")]
    assert not panel.state.empty


@pytest.mark.requirement("SH-46")
@pytest.mark.parametrize("session", ["", SESSION])
def test_a_panel_that_continues_something_is_not_empty(session: str) -> None:
    assert Panel(session=session, resumed=True).stream.inject(order(session="")) == "wrong_session"


# withdrawal


@pytest.mark.requirement("SH-33", "SH-41")
def test_a_withdrawal_that_comes_in_time() -> None:
    panel = Panel()
    panel.stream.inject(order())
    panel.writes()
    panel.stream.withdraw("a1")
    panel.stream.withdraw("a1")
    (write,) = panel.writes()
    request = json.loads(write.data)
    assert request["request"] == {"subtype": "cancel_async_message", "message_uuid": KEY}
    assert request["request_id"].startswith("xagent-")
    assert not write.message
    theirs, ours = answer("req_1"), answer(request["request_id"], cancelled=True)
    assert panel.stream.outstanding()
    assert panel.stream.judge(json.dumps(theirs).encode(), True) == PASS
    assert panel.stream.judge(json.dumps(ours).encode(), True) == DROP
    panel.agent(theirs, ours)
    assert panel.progress() == [Rejected("a1", "withdrawn")]
    assert not panel.stream.outstanding()
    assert panel.stream.judge(json.dumps(ours).encode(), True) == PASS, "an id that nobody waits for is the editor's"


@pytest.mark.requirement("SH-43", "SH-34")
@pytest.mark.parametrize("backwards", [False, True])
def test_a_result_too_long_to_read_leaves_its_words_to_the_records(backwards: bool) -> None:
    """Which of its members stand before the text, and which behind it, differs between versions."""
    panel = Panel()
    assert panel.stream.inject(order()) == ""
    panel.agent(replay(KEY))
    observer = Observer()
    observer.attach(panel.stream, lambda: None)
    long = "x" * LONGEST_PARSED
    tool = {"type": "user", "message": {"content": long}, "tool_use_result": {"type": "result", "subtype": "success"}}
    for frame in (tool, result(long)):
        members = list(frame.items())
        line = json.dumps(dict(members[::-1] if backwards and frame is not tool else members), separators=(",", ":"))
        observer.agent_side.arrived(line.encode() + b"\n")
        observer.agent_side.passed()
        if frame is tool:
            assert panel.progress() == [Taken("a1", SESSION, KEY)]
    assert panel.progress() == [Finished("a1", "completed", None)]
    assert not panel.state.turn_since


@pytest.mark.requirement("SH-41")
@pytest.mark.parametrize("response", [{"cancelled": False}, {}, {"cancelled": "true"}])
def test_a_withdrawal_that_comes_too_late(response: dict[str, Any]) -> None:
    panel = Panel()
    panel.stream.inject(order())
    panel.stream.withdraw("a1")
    request = json.loads(panel.writes()[1].data)["request_id"]
    panel.agent(answer(request, **response), init(), replay(KEY), result("anyway", uuids=[KEY]))
    assert panel.progress() == [Taken("a1", SESSION, KEY, True), Finished("a1", "completed", "anyway", "r1")]


@pytest.mark.requirement("SH-41", "DE-30")
def test_what_cannot_be_withdrawn_any_more_runs() -> None:
    """2.1.197 echoes a message only in front of the answer's first whole block: until then nothing else tells."""
    panel = Panel()
    panel.stream.inject(order())
    panel.stream.withdraw("a1")
    request = json.loads(panel.writes()[1].data)["request_id"]
    panel.agent(init(), answer(request, cancelled=False))
    assert panel.progress() == [Taken("a1", SESSION, KEY, True)]
    assert panel.state.running == "a1"
    panel.stream.withdraw("a1")
    assert panel.writes() == [], "nobody asks for ever"
    panel.agent(result("of the turn before"))
    assert panel.progress() == [], "whose result that is, only the echo tells"
    panel.agent(replay(KEY), result("its own"))
    assert panel.progress() == [Finished("a1", "completed", "its own", "r1")]


def test_what_was_taken_is_not_withdrawn() -> None:
    panel = Panel()
    panel.stream.inject(order())
    panel.agent(replay(KEY))
    panel.writes()
    panel.stream.withdraw("a1")
    panel.stream.withdraw("another")
    assert panel.writes() == []


def test_a_message_that_was_cancelled_by_the_agent() -> None:
    panel = Panel()
    panel.stream.inject(order())
    panel.agent(lifecycle("queued"), lifecycle("cancelled"))
    assert panel.progress() == [Rejected("a1", "withdrawn")]


def test_a_line_that_was_not_written_leaves_room() -> None:
    panel = Panel()
    panel.stream.inject(order())
    panel.stream.dropped("a1")
    assert panel.stream.inject(order(attempt="a2")) == ""


@pytest.mark.requirement("SH-05", "SH-14")
def test_only_what_may_be_an_answer_is_held() -> None:
    panel = Panel()
    panel.stream.inject(order())
    panel.stream.withdraw("a1")
    ours = json.dumps(answer("xagent-1", cancelled=True)).encode()
    for cut in range(1, len(ours)):
        sieve = Sieve(panel.stream.outstanding, panel.stream.judge)
        assert sieve.filter(b"noise\n" + ours[:cut]) == b"noise\n"
        assert sieve.filter(ours[cut:] + b"\nnext") == b"next"
    sieve = Sieve(panel.stream.outstanding, panel.stream.judge)
    assert sieve.filter(b"Debugger att") == b"Debugger att"
    assert sieve.filter(b'ached.\n{"type":"stream_event","event":{"type":') == b'ached.\n{"type":"stream_event","event":{"type":'


@pytest.mark.requirement("SH-07")
@pytest.mark.parametrize("request_id", [[], {}, None, 1, ["xagent-1"]])
def test_an_answer_to_something_odd_is_the_editors(request_id: object) -> None:
    panel = Panel()
    panel.stream.inject(order())
    panel.stream.withdraw("a1")
    response = {"subtype": "success", "request_id": request_id, "about": "xagent-1"}
    assert panel.stream.judge(json.dumps({"type": "control_response", "response": response}).encode(), True) == PASS


@pytest.mark.requirement("SH-05")
@pytest.mark.parametrize("before", [b"\xef\xbb\xbf", b"\r", b"x"])
def test_what_was_never_seen_as_an_answer_is_not_taken_out(before: bytes) -> None:
    panel = Panel()
    panel.stream.inject(order())
    panel.stream.withdraw("a1")
    ours = before + json.dumps(answer("xagent-1", cancelled=True)).encode()
    for cut in range(1, len(ours)):
        assert panel.stream.judge(ours[:cut], cut == len(ours)) == PASS


# whatever comes

WORDS = (
    "user system init result control_request control_response can_use_tool initialize assistant command_lifecycle started "
    "cancelled conversation_reset xagent-1 success req_1 later"
)
NAMES = (
    "type subtype request response request_id session_id uuid isReplay message content result user_message_uuids command_uuid "
    "state pid cancelled title model cwd id name is_error input new_conversation_id tool_name terminal_reason shouldQuery"
)
words = st.sampled_from([*WORDS.split(), SESSION, OTHER, KEY])
names = st.sampled_from(NAMES.split())
values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5), words),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(names, inner, max_size=5)),
    max_leaves=12,
)
shapes = st.dictionaries(names, values, max_size=6)
realistic = st.sampled_from(
    [
        init(),
        init(OTHER),
        result(),
        result(uuids=[KEY]),
        human(),
        replay(KEY),
        lifecycle("started"),
        lifecycle("cancelled"),
        can_use_tool(),
        permission(),
        answer("xagent-1", cancelled=True),
        {"type": "conversation_reset", "new_conversation_id": OTHER},
    ]
)
lines = st.one_of(
    st.binary(max_size=20).map(lambda raw: raw.replace(b"\n", b"")),
    st.one_of(shapes, realistic).map(lambda frame: json.dumps(frame).encode()),
)
steps = st.lists(st.tuples(st.sampled_from(["editor", "agent", "agent", "inject", "withdraw"]), lines), max_size=25)


def _play(stream: ClaudeStream, step: str, line: bytes, pass_on: Callable[[str, bytes], None]) -> None:
    if step == "inject":
        stream.inject(order())
    elif step == "withdraw":
        stream.withdraw("a1")
    else:
        pass_on(step, line)


@given(steps)
@settings(deadline=None)
@pytest.mark.requirement("SH-07")
def test_nothing_raises_and_facts_keep_their_types(play: list[tuple[str, bytes]]) -> None:
    panel = Panel()
    stream = panel.stream

    def pass_on(side: str, line: bytes) -> None:
        for whole in (True, False):
            (stream.from_editor if side == "editor" else stream.from_agent)(line, whole, 1.0)
            assert stream.judge(line, whole) in ("pass", "hold", "drop")

    for step, line in play:
        _play(stream, step, line, pass_on)
        (state,) = stream.sessions()
        for text in (state.id, state.cwd, state.name, state.title, state.model, *state.tool_uses):
            assert type(text) is str
    for fact in stream.progress:
        assert isinstance(fact, Taken | Finished | Rejected)
        assert not isinstance(fact, Finished) or fact.text is None or type(fact.text) is str


@given(steps, st.lists(st.integers(1, 60), min_size=1, max_size=20))
@settings(deadline=None)
@pytest.mark.requirement("SH-05", "SH-20")
def test_facts_do_not_depend_on_how_the_stream_was_cut(play: list[tuple[str, bytes]], sizes: list[int]) -> None:
    told = []
    for cut in (False, True):
        stream = Panel().stream
        observer = Observer()
        observer.attach(stream, lambda: None)

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
            _play(stream, step, line, pass_on)
        assert observer.off_because == ""
        facts = [(fact if not isinstance(fact, Write) else fact.data) for fact in [*stream.progress, *stream.writes]]
        (state,) = stream.sessions()
        approval = state.approval and (state.approval.tool, state.approval.summary)
        told.append((facts, state.id, state.name, state.model, state.empty, bool(state.turn_since), approval, state.tool_uses))
    assert told[0] == told[1]
