"""Stories of Grok's ACP: lines as 1.0.41 was recorded to say them, and what they mean."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.wire import Inject, SessionState
from shims.grok.stream import GrokStream
from shims.lines import DROP, HOLD, LONGEST_PARSED, LONGEST_UNDECIDED, PASS, LineFilter, Sieve
from shims.observe import Observer
from shims.stream import Finished, Progress, Rejected, Taken

S1, S2, P1, KEY = "01a2-s1", "01a2-s2", "6224c6a5", "dlv_1"

Frame = dict[str, Any]


def encode(frame: Frame) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **frame}, separators=(",", ":")).encode()


def update(kind: str, prompt: str = "", session: str = S1, **fields: Any) -> Frame:
    meta = {"_meta": {"totalTokens": 1, "promptId": prompt, "updateType": "x"}} if prompt else {}
    return {"method": "session/update", "params": {"sessionId": session, "update": {"sessionUpdate": kind, **fields}, **meta}}


def chunk(text: str, prompt: str = KEY, session: str = S1) -> Frame:
    return update("agent_message_chunk", prompt, session, content={"type": "text", "text": text})


def queue(*waiting: str, running: str = "", session: str = S1) -> Frame:
    entries = [{"id": prompt, "version": 0, "kind": "prompt", "text": "…", "position": at} for at, prompt in enumerate(waiting)]
    now = {"runningPromptId": running, "runningText": "…", "runningKind": "prompt"} if running else {}
    return {"method": "_x.ai/queue/changed", "params": {"sessionId": session, "entries": entries, **now}}


def complete(prompt: str = KEY, reason: str = "end_turn", category: str = "", session: str = S1) -> Frame:
    parameters = {"sessionId": session, "promptId": prompt, "stopReason": reason, "agentResult": None}
    if category:
        parameters["cancellationCategory"] = category
    return {"method": "_x.ai/session/prompt_complete", "params": parameters}


def permission(number: int = 0, session: str = S1) -> Frame:
    tool = {"x.ai/tool": {"name": "run_terminal_command"}}
    call = {"toolCallId": "c1", "title": "Execute `rm x`", "rawInput": {"command": "rm  x"}, "_meta": tool}
    parameters = {"sessionId": session, "toolCall": call, "options": []}
    return {"id": number, "method": "session/request_permission", "params": parameters}


def order(session: str = S1, attempt: str = "a1", key: str = KEY, text: str = "the message\nof two lines") -> Inject:
    return Inject("d1", attempt, key, "req_1", session, text, 1, 1e9)


class Panel:
    """A tracker with a hand on both sides; by default after the handshake, with one session that was used."""

    def __init__(self, client: str | None = None, *, echo: bool = False, used: bool = True) -> None:
        self.stream = GrokStream(cwd="/panel")
        self.now = 10.0
        self._id = -1
        capabilities = {"_meta": {"x.ai/userMessageEcho": True}} if echo else {}
        named = {"clientInfo": {"name": client, "version": "1"}} if client else {}
        self.call("initialize", {"protocolVersion": 1, "clientCapabilities": capabilities, **named}, {"protocolVersion": 1})
        self.opened("session/new", S1)
        if used:
            self.human_turn()

    def editor(self, *frames: Frame) -> None:
        for frame in frames:
            self.now += 1
            self.stream.from_editor(encode(frame), True, self.now)

    def agent(self, *frames: Frame) -> None:
        for frame in frames:
            self.now += 1
            self.stream.from_agent(encode(frame), True, self.now)

    def ask(self, method: str, parameters: Frame) -> int:
        self._id += 1
        self.editor({"id": self._id, "method": method, "params": parameters})
        return self._id

    def call(self, method: str, parameters: Frame, result: Frame | None = None) -> None:
        number = self.ask(method, parameters)
        self.agent({"id": number, "error": {"code": -32603}} if result is None else {"id": number, "result": result})

    def opened(self, method: str, session: str) -> None:
        asked: Frame = {"cwd": "/w", "mcpServers": []}
        result: Frame = {"models": {"currentModelId": "grok-4.6"}}
        if method == "session/new":
            result["sessionId"] = session
        else:
            asked["sessionId"] = session
        self.call(method, asked, result)

    def prompt(self, session: str = S1) -> int:
        return self.ask("session/prompt", {"sessionId": session, "prompt": [{"type": "text", "text": "hi"}]})

    def human_turn(self) -> None:
        number = self.prompt()
        self.agent(queue(P1), queue(running=P1), chunk("own", P1), queue(), complete(P1))
        self.agent({"id": number, "result": {"stopReason": "end_turn"}})

    def inject(self, **fields: str) -> int:
        """Hands a message over; the number of its request."""
        assert self.stream.inject(order(**fields)) == ""
        (write,) = self.written()
        return int(str(json.loads(write)["id"]).removeprefix("xagent-"))

    def written(self) -> list[bytes]:
        writes, self.stream.writes = self.stream.writes, []
        return [write.data for write in writes]

    def answer(self, number: int, reason: str = "end_turn", **meta: str) -> None:
        self.agent({"id": f"xagent-{number}", "result": {"stopReason": reason, "_meta": {"promptId": KEY, **meta}}})

    def progress(self) -> list[Progress]:
        told, self.stream.progress = self.stream.progress, []
        return told

    def state(self, session: str = S1) -> SessionState:
        return next(state for state in self.stream.sessions() if state.id == session)

    def targets(self) -> list[str]:
        return [state.id for state in self.stream.sessions()]

    def shown(self, *frames: Frame) -> list[Frame]:
        """What the editor gets of ``frames``, each as a line."""
        sieve = Sieve(self.stream.outstanding, self.stream.judge, self.stream.ahead)
        passed = b"".join(sieve.filter(encode(frame) + b"\n") for frame in frames)
        return [json.loads(line) for line in passed.splitlines()]

    def relayed(self, *frames: Frame, form: Callable[[Frame], bytes] = encode) -> list[Frame]:
        """What the editor gets of ``frames``, each seen by the tracker behind the filter of lines, in chunks as a pump reads."""
        observer = Observer()
        observer.attach(self.stream, lambda: None)
        data, passed = b"".join(form(frame) + b"\n" for frame in frames), b""
        for at in range(0, len(data), 1 << 16):
            chunk = data[at : at + (1 << 16)]
            passed += observer.sieve.filter(chunk)
            observer.agent_side.arrived(chunk)
            observer.agent_side.passed()
        assert observer.off_because == ""
        return [json.loads(line) for line in passed.splitlines()]

    def typed(self, line: bytes) -> None:
        """The editor sends ``line``."""
        observer = Observer()
        observer.attach(self.stream, lambda: None)
        observer.editor_side.arrived(line + b"\n")
        observer.editor_side.passed()


def spaced(frame: Frame) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **frame}).encode()


def reordered(frame: Frame) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **frame}, separators=(",", ":"), sort_keys=True).encode()


def backwards(frame: Frame) -> bytes:
    turned = {name: frame[name] for name in reversed(frame)}
    return json.dumps({**turned, "jsonrpc": "2.0"}, separators=(",", ":")).encode()


def ended(number: int, reason: str = "end_turn") -> Frame:
    """The answer to a prompt of ours."""
    return {"id": f"xagent-{number}", "result": {"stopReason": reason, "_meta": {"promptId": KEY}}}


def interaction(kind: str, call: str = "c1", session: str = S1) -> Frame:
    update = {"sessionUpdate": kind, "tool_call_id": call}
    return {"method": "_x.ai/session_notification", "params": {"sessionId": session, "update": update}}


HUGE = "x" * (LONGEST_PARSED + 100)
BLOCK = "> the message\n> of two lines\n\n"


def texts(frames: list[Frame]) -> list[str]:
    return [frame["params"]["update"]["content"]["text"] for frame in frames if frame.get("method") == "session/update"]


# sessions


@pytest.mark.requirement("SH-60", "SH-20")
@pytest.mark.parametrize("method", ["session/new", "session/load", "session/resume"])
def test_what_the_editor_opens_is_a_session(method: str) -> None:
    panel = Panel()
    panel.opened(method, S2)
    assert panel.targets() == [S1, S2]
    assert panel.state(S2).empty is (method == "session/new")
    assert (panel.state(S2).cwd, panel.state(S2).model) == ("/w", "grok-4.6")


@pytest.mark.requirement("SH-60")
def test_a_session_that_could_not_be_opened_is_none() -> None:
    panel = Panel()
    panel.call("session/load", {"sessionId": S2, "cwd": "/w"})
    assert panel.targets() == [S1]


@pytest.mark.requirement("SH-60")
def test_a_sub_agents_session_is_no_target() -> None:
    panel = Panel()
    panel.agent(queue(running=P1, session=S2), chunk("child", P1, S2), permission(session=S2))
    assert panel.targets() == [S1]
    assert panel.stream.inject(order(S2)) == "wrong_session"


@pytest.mark.requirement("SH-60")
def test_a_closed_session_is_gone() -> None:
    panel = Panel()
    panel.call("session/close", {"sessionId": S1}, {"_meta": {"x.ai/closeOutcome": "closed"}})
    assert panel.targets() == []


@pytest.mark.requirement("SH-20")
def test_names_and_titles() -> None:
    panel = Panel()
    panel.agent(update("session_info_update", title="A description"))
    assert (panel.state().name, panel.state().title) == ("", "A description")
    panel.call("_x.ai/session/rename", {"sessionId": S1, "title": "mine"}, {"success": True})
    assert panel.state().name == "mine"


@pytest.mark.requirement("SH-62")
def test_a_session_is_empty_until_somebody_prompts_it() -> None:
    panel = Panel(used=False)
    assert panel.state().empty
    number = panel.inject()
    assert panel.state().empty, "it only waits"
    panel.agent(queue(running=KEY))
    assert not panel.state().empty, "it runs"
    panel.answer(number)
    assert not panel.state().empty


@pytest.mark.requirement("SH-62", "SH-21")
def test_words_put_into_a_session_from_its_side_are_the_persons() -> None:
    panel = Panel(used=False)
    panel.ask("_x.ai/interject", {"sessionId": S1, "text": "hello", "interjectionId": "i1"})
    assert (panel.state().empty, panel.state().last_human) == (False, panel.now)


@pytest.mark.requirement("SH-62")
@pytest.mark.parametrize("shown", [queue(running="interject-fallback-1"), queue(P1)])
def test_a_session_with_anything_in_its_queue_is_not_empty(shown: Frame) -> None:
    panel = Panel(used=False)
    panel.agent(shown)
    assert not panel.state().empty


@pytest.mark.requirement("SH-62", "SH-21")
@pytest.mark.parametrize("form", [encode, spaced, reordered, backwards])
def test_a_huge_prompt_is_the_persons_wherever_its_session_is_named(form: Callable[[Frame], bytes]) -> None:
    panel = Panel(used=False)
    panel.opened("session/new", S2)
    said = [{"type": "text", "text": f'"sessionId":"{S2}"{HUGE}"sessionId":"{S2}"'}]
    for parameters in ({"prompt": said, "sessionId": S1}, {"sessionId": S1, "prompt": said}):
        panel.typed(form({"id": 9, "method": "session/prompt", "params": parameters}))
        assert not panel.state().empty
        assert panel.state().last_human
        assert (panel.state(S2).empty, panel.state(S2).last_human) == (True, 0.0)


# busy, human, approvals


@pytest.mark.requirement("SH-20", "SH-21", "SH-61")
def test_a_turn_and_the_person() -> None:
    panel = Panel(used=False)
    number = panel.prompt()
    at = panel.now
    assert panel.state().last_human == at
    panel.agent(queue(P1), queue(running=P1))
    assert panel.state().turn_since
    panel.agent(queue(P1 + "b", running=P1), queue(P1 + "b"))
    assert panel.state().turn_since, "another prompt waits"
    panel.agent(queue(running=P1 + "b"), queue(), complete(P1 + "b"))
    assert not panel.state().turn_since
    panel.agent({"id": number, "result": {"stopReason": "end_turn"}})
    assert panel.state().last_human == at


@pytest.mark.requirement("SH-61")
def test_a_cancelled_turn_is_over_though_the_queue_is_not_shown_again() -> None:
    panel = Panel()
    panel.prompt()
    panel.agent(queue(P1), queue(running=P1), complete(P1, "cancelled", "MidTurnAbort"))
    assert not panel.state().turn_since


@pytest.mark.requirement("SH-61", "SH-21")
def test_a_turn_that_the_agent_began_itself_ends_as_well_and_is_nobodys_word() -> None:
    panel = Panel()
    at = panel.state().last_human
    panel.agent(queue(), queue(running="task-completed-c1"), chunk("the command is done", "task-completed-c1"))
    assert panel.state().turn_since
    ended = {"sessionUpdate": "turn_completed", "prompt_id": "task-completed-c1", "stop_reason": "end_turn"}
    panel.agent({"method": "_x.ai/session_notification", "params": {"sessionId": S1, "update": ended}})
    assert (panel.state().turn_since, panel.state().last_human) == (0.0, at)


@pytest.mark.requirement("SH-30")
def test_a_replay_is_no_evidence() -> None:
    panel = Panel()
    panel.inject()
    replayed = chunk("an old answer")
    replayed["params"]["_meta"]["isReplay"] = True
    panel.agent(replayed)
    assert panel.progress() == []


@pytest.mark.requirement("SH-64")
def test_the_answer_may_come_before_the_end_that_explains_it() -> None:
    panel = Panel()
    number = panel.inject()
    panel.agent(queue(running=KEY))
    panel.answer(number, "cancelled", cancellationCategory="PermissionRejected")
    panel.agent(complete(KEY, "cancelled", "PermissionRejected"))
    assert panel.progress() == [Taken("a1", S1, KEY), Finished("a1", "declined", "", KEY)]


@pytest.mark.requirement("SH-61")
def test_where_the_queue_is_never_shown_prompts_are_counted() -> None:
    panel = Panel(used=False)
    first, second = panel.prompt(), panel.prompt()
    assert panel.state().turn_since
    panel.agent({"id": first, "result": {"stopReason": "end_turn"}})
    assert panel.state().turn_since
    panel.agent({"id": second, "error": {"code": -32603}})
    assert not panel.state().turn_since


@pytest.mark.requirement("SH-21", "SH-07")
def test_a_huge_prompt_counts_as_the_persons() -> None:
    panel = Panel(used=False)
    panel.opened("session/load", "half \ud83d")
    head = encode(
        {"id": 9, "method": "session/prompt", "params": {"sessionId": S1, "prompt": [{"type": "text", "text": "x" * 99}]}}
    )
    panel.stream.from_editor(head, False, 77.0)
    assert (panel.state().last_human, panel.state().empty) == (77.0, False)


@pytest.mark.requirement("SH-64")
@pytest.mark.parametrize("answer", [{"result": {"outcome": {"outcome": "cancelled"}}}, {"error": {"code": -32601}}])
def test_an_approval_waits_until_the_editor_answers(answer: Frame) -> None:
    panel = Panel()
    panel.prompt()
    panel.agent(queue(running=P1), permission(0))
    asked = panel.state().approval
    assert asked is not None
    assert (asked.tool, asked.summary) == ("run_terminal_command", "rm x")
    panel.editor({"id": 0, **answer})
    assert panel.state().approval is None


@pytest.mark.requirement("SH-64")
def test_a_question_waits_for_the_person_as_well_and_a_file_does_not() -> None:
    panel = Panel()
    panel.agent({"id": 3, "method": "fs/read_text_file", "params": {"sessionId": S1, "path": "/x"}})
    assert panel.state().approval is None
    panel.agent({"id": 4, "method": "_x.ai/ask_user_question", "params": {"sessionId": S1, "questions": []}})
    asked = panel.state().approval
    assert asked is not None and asked.tool == "ask_user_question"


@pytest.mark.requirement("SH-64")
def test_an_approval_ends_with_its_turn() -> None:
    panel = Panel()
    panel.prompt()
    panel.agent(queue(running=P1), permission(0), complete(P1, "cancelled"))
    assert panel.state().approval is None


@pytest.mark.requirement("SH-64")
def test_what_a_sub_agent_asks_waits_through_other_turns() -> None:
    """It asks under its parent's id, and names itself only around that (1.0.41)."""
    panel = Panel()
    panel.agent(interaction("pending_interaction", session="01a2-child"), permission(0))
    for prompt in ("p2", "p3"):
        panel.prompt()
        panel.agent(queue(prompt), queue(running=prompt), queue(), complete(prompt))
        assert panel.state().approval is not None
    panel.agent(interaction("interaction_resolved", session="01a2-child"))
    assert panel.state().approval is None


@pytest.mark.requirement("SH-64")
def test_what_a_sub_agent_asks_beside_its_parents_turn_is_not_of_that_turn() -> None:
    panel = Panel()
    panel.prompt()
    panel.agent(queue(running=P1), interaction("pending_interaction", session="01a2-child"), permission(0), complete(P1))
    assert panel.state().approval is not None
    panel.editor({"id": 0, "result": {"outcome": {"outcome": "selected", "optionId": "allow-once"}}})
    assert panel.state().approval is None


@pytest.mark.requirement("SH-64")
def test_an_approval_ends_when_another_turn_runs() -> None:
    panel = Panel()
    panel.prompt()
    panel.agent(queue(running=P1), permission(0), queue(running="p2"))
    assert panel.state().approval is None


@pytest.mark.requirement("SH-64")
def test_the_agent_itself_says_that_nobody_is_waited_for() -> None:
    panel = Panel()
    panel.prompt()
    panel.relayed(queue(running=P1), interaction("pending_interaction"), permission(0), interaction("interaction_resolved", "c2"))
    assert panel.state().approval is not None
    panel.relayed(interaction("interaction_resolved"))
    assert panel.state().approval is None


# a message


@pytest.mark.requirement("SH-61", "SH-30")
def test_a_message_is_a_prompt_under_its_own_id() -> None:
    panel = Panel()
    assert panel.stream.inject(order()) == ""
    (write,) = panel.stream.writes
    line = json.loads(write.data)
    assert (write.message, line["jsonrpc"], line["method"], line["id"]) == (True, "2.0", "session/prompt", "xagent-1")
    assert line["params"]["_meta"] == {"promptId": KEY}
    assert line["params"]["prompt"] == [{"type": "text", "text": "the message\nof two lines"}]


@pytest.mark.requirement("SH-61", "SH-30", "SH-34")
def test_its_turn_is_taken_when_it_runs_and_its_answer_is_what_came_after_the_last_tool() -> None:
    panel = Panel()
    panel.prompt()
    panel.agent(queue(running=P1))
    number = panel.inject()
    panel.agent(queue(KEY, running=P1), chunk("the person's", P1))
    assert panel.progress() == [], "what waits dies with the process"
    panel.agent(queue(KEY), complete(P1), queue(running=KEY))
    assert panel.progress() == [Taken("a1", S1, KEY)]
    assert panel.state().running == "a1"
    panel.agent(chunk("let me"), update("tool_call", KEY, toolCallId="c"), update("tool_call_update", KEY, status="completed"))
    panel.agent(chunk("pong"), chunk(" it is"), queue(), complete())
    panel.answer(number)
    assert panel.progress() == [Finished("a1", "completed", "pong it is", KEY)]
    assert not panel.stream.outstanding()


@pytest.mark.requirement("SE-08", "SH-61")
@pytest.mark.parametrize("between", [(), (chunk(""),)])
def test_where_nothing_follows_the_last_tool_all_of_it_is_the_answer(between: tuple[Frame, ...]) -> None:
    panel = Panel()
    number = panel.inject()
    tool = update("tool_call", KEY, toolCallId="c")
    panel.agent(queue(running=KEY), chunk("first "), tool, chunk("then"), tool, *between, queue(), complete())
    panel.answer(number)
    assert panel.progress()[-1] == Finished("a1", "completed", "first then", KEY)


@pytest.mark.requirement("SH-64")
@pytest.mark.parametrize(
    ("reason", "category", "status"),
    [
        ("cancelled", "PermissionRejected", "declined"),
        ("cancelled", "PermissionCancelled", "declined"),
        ("cancelled", "MidTurnAbort", "interrupted"),
        ("cancelled", "", "interrupted"),
        ("cancelled", "session_close", "closed"),
        ("max_turn_requests", "", "failed"),
        ("refusal", "", "failed"),
    ],
)
def test_other_ends(reason: str, category: str, status: str) -> None:
    panel = Panel()
    number = panel.inject()
    end = complete(KEY, reason, category)
    if status == "closed":
        end["params"] |= {"cancelTrigger": "session_close", "cancellationCategory": "MidTurnAbort"}
    panel.agent(queue(running=KEY), chunk("half"), end)
    panel.answer(number, reason)
    assert panel.progress() == [Taken("a1", S1, KEY), Finished("a1", status, "half", KEY)]


def test_a_model_that_fails() -> None:
    panel = Panel()
    number = panel.inject()
    panel.agent(queue(running=KEY), queue(), {"id": f"xagent-{number}", "error": {"code": -32603, "message": "Internal error"}})
    assert panel.progress() == [Taken("a1", S1, KEY), Finished("a1", "failed", "", KEY)]


@pytest.mark.requirement("SH-34", "SH-61")
@pytest.mark.parametrize("form", [encode, spaced, reordered, backwards])
@pytest.mark.parametrize("size", [10, LONGEST_UNDECIDED, LONGEST_PARSED])
def test_an_answer_is_handed_on_whole_or_not_at_all(size: int, form: Callable[[Frame], bytes]) -> None:
    """A piece of it that is too long to be read here is in the records."""
    panel = Panel()
    number = panel.inject()
    said = ["begin ", "x" * size, " end"]
    panel.relayed(queue(running=KEY), *map(chunk, said), queue(), complete(), ended(number), form=form)
    whole = "".join(said) if size < LONGEST_PARSED else None
    assert panel.progress() == [Taken("a1", S1, KEY), Finished("a1", "completed", whole, KEY)]


@pytest.mark.requirement("SH-34")
def test_what_a_tool_says_at_length_is_no_part_of_an_answer() -> None:
    panel = Panel()
    number = panel.inject()
    tool = update("tool_call_update", KEY, rawOutput={"sessionUpdate": "agent_message_chunk", "text": HUGE})
    panel.relayed(queue(running=KEY), chunk(HUGE), tool, chunk("pong"), queue(), complete(), ended(number))
    assert panel.progress()[-1] == Finished("a1", "completed", "pong", KEY)


@pytest.mark.requirement("SH-34", "SH-30")
def test_what_is_shown_again_at_length_is_no_part_of_an_answer() -> None:
    panel = Panel()
    number = panel.inject()
    replayed = chunk(HUGE)
    replayed["params"]["_meta"]["isReplay"] = True
    panel.relayed(replayed)
    assert panel.progress() == []
    panel.relayed(queue(running=KEY), chunk("pong"), replayed, queue(), complete(), ended(number))
    assert panel.progress()[-1] == Finished("a1", "completed", "pong", KEY)


@pytest.mark.requirement("SH-34")
def test_a_turn_of_which_nothing_was_seen_is_told_by_its_records() -> None:
    panel = Panel()
    number = panel.inject()
    panel.agent(queue(running=KEY), chunk("untagged", ""), queue(), complete(), ended(number))
    assert panel.progress() == [Taken("a1", S1, KEY), Finished("a1", "completed", None, KEY)]


@pytest.mark.requirement("SH-34")
def test_a_turn_that_was_seen_to_say_nothing_said_nothing() -> None:
    panel = Panel()
    number = panel.inject()
    panel.agent(queue(running=KEY), update("agent_thought_chunk", KEY), queue(), complete(), ended(number))
    assert panel.progress()[-1] == Finished("a1", "completed", "", KEY)


@pytest.mark.requirement("SH-61", "DE-05")
def test_a_queue_that_holds_the_greatest_messages_is_read() -> None:
    panel = Panel()
    panel.inject()
    shown = queue(running=KEY)
    shown["params"]["entries"] = [{"id": "p2", "kind": "prompt", "text": HUGE}]
    panel.relayed(shown)
    assert panel.progress() == [Taken("a1", S1, KEY)]


@pytest.mark.requirement("SH-20")
@pytest.mark.parametrize("busy", [False, True])
def test_a_title_is_seen_among_what_comes_in_bulk(busy: bool) -> None:
    panel = Panel()
    if busy:
        panel.inject()
    panel.relayed(chunk("own", P1), update("session_info_update", title="A description"), chunk("own", P1))
    assert panel.state().title == "A description"


@pytest.mark.requirement("SH-61")
def test_updates_are_parsed_for_our_own_turns_alone_and_only_while_there_is_one() -> None:
    panel = Panel()
    lines = LineFilter(panel.stream.agent_markers, panel.stream.agent_bulk, panel.stream.agent_long)
    ours, theirs = encode(chunk("ours")), encode(chunk("theirs", P1))
    assert lines.feed(ours + b"\n" + theirs + b"\n") == []
    panel.inject()
    assert lines.feed(ours + b"\n" + theirs + b"\n") == [(ours, True)]


@pytest.mark.requirement("SH-30")
def test_what_the_agent_never_took_is_rejected() -> None:
    panel = Panel()
    number = panel.inject()
    panel.agent({"id": f"xagent-{number}", "error": {"code": -32602, "data": "unknown session id"}})
    assert panel.progress() == [Rejected("a1", "agent_refused")]


@pytest.mark.requirement("SH-30")
def test_what_waited_in_a_session_that_was_closed_never_ran() -> None:
    panel = Panel()
    number = panel.inject()
    panel.agent(queue(KEY, running=P1), complete(KEY, "cancelled"))
    panel.answer(number, "cancelled")
    assert panel.progress() == [Rejected("a1", "session_closed")]


@pytest.mark.requirement("SH-61", "DE-26")
def test_what_waits_can_be_taken_back() -> None:
    panel = Panel()
    number = panel.inject()
    panel.agent(queue(KEY, running=P1))
    panel.stream.withdraw("a1")
    (line,) = panel.written()
    removal = json.loads(line)
    assert (removal["method"], removal["params"], "id" in removal) == ("_x.ai/queue/remove", {"sessionId": S1, "id": KEY}, False)
    panel.answer(number, "cancelled", completionKind="removedFromQueue")
    assert panel.progress() == [Rejected("a1", "withdrawn")]


@pytest.mark.requirement("DE-26")
def test_what_runs_is_not_taken_back() -> None:
    panel = Panel()
    panel.inject()
    panel.agent(queue(running=KEY))
    panel.stream.withdraw("a1")
    assert panel.written() == []


@pytest.mark.requirement("SH-31")
def test_one_at_a_time_in_each_session() -> None:
    panel = Panel()
    panel.opened("session/new", S2)
    panel.inject()
    assert panel.stream.inject(order(attempt="a2", key="dlv_2")) == "busy"
    panel.inject(session=S2, attempt="a3", key="dlv_3")


@pytest.mark.requirement("DE-22")
@pytest.mark.parametrize(
    ("last", "told"),
    [
        (queue(KEY, running=P1), [Rejected("a1", "ended_waiting")]),
        (queue(KEY), []),  # the next that runs, as far as anybody saw
        (queue(running=P1), []),
        (queue(running=KEY), [Taken("a1", S1, KEY)]),
    ],
)
def test_what_was_seen_to_wait_when_the_agent_died_never_ran(last: Frame, told: list[Progress]) -> None:
    panel = Panel()
    panel.inject()
    panel.agent(last)
    panel.stream.editor_ended()  # nobody reads any more what the editor writes
    panel.stream.agent_ended(input_ended=False)
    assert panel.progress() == told


@pytest.mark.requirement("DE-22")
def test_what_waited_at_the_end_of_input_may_have_run() -> None:
    """Then the agent goes on for some seconds, with what waits as well, and tells nobody."""
    panel = Panel()
    panel.inject()
    panel.agent(queue(KEY, running=P1))
    panel.stream.editor_ended()
    panel.stream.agent_ended(input_ended=True)
    assert panel.progress() == []


def test_after_the_editors_end_nothing_is_begun() -> None:
    panel = Panel()
    panel.stream.editor_ended()
    assert panel.stream.inject(order()) == "closed"
    assert not panel.state().accepts


# what the editor sees


@pytest.mark.requirement("SH-63", "SH-35")
def test_the_message_stands_as_a_quoted_block_before_the_answer() -> None:
    panel = Panel()
    panel.inject()
    thought = update("agent_thought_chunk", KEY, content={"type": "text", "text": "hm"})
    shown = panel.shown(queue(running=KEY), thought, chunk("pong"), chunk(" two"), complete())
    assert texts(shown) == ["> the message\n> of two lines\n\n", "pong", " two"]
    assert [frame["method"] for frame in shown].count("_x.ai/session/prompt_complete") == 1
    block = shown[1]
    assert block["params"]["sessionId"] == S1
    assert block["params"]["_meta"] == {"promptId": KEY}


@pytest.mark.requirement("SH-63")
def test_a_tool_call_comes_after_the_block_as_well() -> None:
    panel = Panel()
    panel.inject()
    shown = panel.shown(update("tool_call", KEY, toolCallId="c", content={"text": "tool"}), chunk("pong"))
    assert texts(shown) == ["> the message\n> of two lines\n\n", "tool", "pong"]


@pytest.mark.requirement("SH-63")
@pytest.mark.parametrize("form", [encode, spaced, reordered, backwards])
def test_the_block_stands_before_the_answer_in_whatever_form_it_comes(form: Callable[[Frame], bytes]) -> None:
    panel = Panel()
    number = panel.inject()
    thought = update("agent_thought_chunk", KEY, content={"type": "text", "text": "hm"})
    assert texts(panel.relayed(queue(running=KEY), thought, chunk("pong"), complete(), ended(number), form=form)) == [
        BLOCK,
        "pong",
    ]


@pytest.mark.requirement("SH-63", "SH-05")
@pytest.mark.parametrize("form", [encode, spaced])
@pytest.mark.parametrize("size", [LONGEST_UNDECIDED, LONGEST_PARSED])
def test_the_block_stands_before_an_answer_that_begins_with_a_long_piece(size: int, form: Callable[[Frame], bytes]) -> None:
    panel = Panel()
    panel.opened("session/new", S2)
    panel.inject()
    long = "x" * size
    own, other = chunk(long, P1), chunk(long, "p2", S2)
    shown = panel.relayed(own, other, queue(running=KEY), other, chunk(long), chunk("end"), form=form)
    assert texts(shown) == [long, long, long, BLOCK, long, "end"]


@pytest.mark.requirement("SH-63", "SH-35")
@pytest.mark.parametrize(("reason", "shows"), [("end_turn", True), ("error", True), ("cancelled", False)])
def test_a_turn_without_a_word_shows_what_it_was_asked(reason: str, shows: bool) -> None:
    """One that was cancelled may never have run."""
    panel = Panel()
    number = panel.inject()
    assert texts(panel.relayed(queue(running=KEY), complete(KEY, reason), ended(number, reason))) == [BLOCK] * shows


@pytest.mark.requirement("SH-63")
def test_what_is_shown_again_gets_no_block() -> None:
    panel = Panel()
    panel.inject()
    replayed = chunk("an old answer")
    replayed["params"]["_meta"]["isReplay"] = True
    assert texts(panel.relayed(replayed)) == ["an old answer"]


@pytest.mark.requirement("SH-63")
def test_a_long_message_is_shown_in_part() -> None:
    panel = Panel()
    panel.inject(text="x" * 5000)
    block = texts(panel.shown(chunk("pong")))[0]
    assert len(block) < 4200
    assert "1000 more characters" in block


@pytest.mark.requirement("SH-63", "SH-05")
def test_the_persons_own_turn_is_untouched_meanwhile() -> None:
    panel = Panel()
    panel.inject()
    own = [update("agent_thought_chunk", P1, content={"text": "hm"}), chunk("own", P1), update("plan"), queue(KEY, running=P1)]
    assert panel.shown(*own) == [{"jsonrpc": "2.0", **frame} for frame in own]


@pytest.mark.requirement("SH-65", "SH-35", "SH-05")
@pytest.mark.parametrize(("panel", "shows"), [(Panel("zed"), False), (Panel("zed", echo=True), True), (Panel(echo=True), True)])
def test_another_client_gets_what_the_protocol_gives(panel: Panel, shows: bool) -> None:
    panel.inject()
    thought = update("agent_thought_chunk", KEY, content={"text": "hm"})
    assert texts(panel.shown(queue(running=KEY), thought, chunk("pong"))) == ["hm", "pong"]
    assert panel.state().shows_message is shows


@pytest.mark.requirement("SH-65")
def test_another_client_is_reported_as_unverified() -> None:
    assert Panel("zed").state().host == "unverified client zed"
    assert Panel().state().host == Panel("grok-build-gui").state().host == ""


@pytest.mark.requirement("SH-33")
@pytest.mark.parametrize("form", ["result", "error", "late id", "spaced"])
def test_answers_to_us_stay_here(form: str) -> None:
    panel = Panel()
    panel.inject()
    ours = {
        "result": b'{"jsonrpc":"2.0","id":"xagent-1","result":{"stopReason":"end_turn"}}',
        "error": b'{"jsonrpc":"2.0","id":"xagent-1","error":{"code":-32602,"message":"no"}}',
        "late id": b'{"jsonrpc":"2.0","result":{"a":"x"},"id":"xagent-1"}',
        "spaced": b'{ "jsonrpc": "2.0", "id" : "xagent-1", "result": {}}\r',
    }[form]
    assert panel.stream.judge(ours, True) == DROP
    assert panel.stream.judge(ours.replace(b"xagent-1", b"xagent-9"), True) == PASS
    for cut in range(1, len(ours)):
        assert panel.stream.judge(ours[:cut], False) in (HOLD, DROP)


@pytest.mark.requirement("SH-05")
def test_what_names_a_prompt_of_ours_and_answers_nothing_is_the_editors() -> None:
    panel = Panel()
    panel.inject()
    for line in (encode({"id": "xagent-1", "method": "x"}), encode({"id": "xagent-1", "promptId": KEY})):
        assert panel.stream.judge(line, True) == PASS
        panel.stream.from_agent(line, True, 1.0)
    assert panel.stream.outstanding()


@pytest.mark.requirement("SH-33")
def test_an_answer_about_a_message_that_is_forgotten_stays_here() -> None:
    panel = Panel()
    number = panel.inject()
    panel.stream.forgotten("a1")
    panel.inject(attempt="a2", key="dlv_2")
    assert panel.stream.judge(encode({"id": f"xagent-{number}", "result": {"stopReason": "end_turn"}}), True) == DROP
    panel.answer(number)
    assert panel.progress() == []


@pytest.mark.requirement("SH-05", "SH-63")
def test_what_a_tool_says_of_a_turn_of_ours_is_not_of_that_turn() -> None:
    panel = Panel()
    panel.inject()
    quoted = {"sessionUpdate": "agent_thought_chunk", "promptId": KEY}
    theirs = update("tool_call", P1, rawOutput=quoted)
    ours = update("tool_call", KEY, content={"text": "tool"}, rawOutput=quoted)
    assert panel.shown(theirs) == [{"jsonrpc": "2.0", **theirs}]
    assert texts(panel.shown(ours)) == ["> the message\n> of two lines\n\n", "tool"]


@pytest.mark.requirement("SH-14")
@pytest.mark.parametrize(
    "start", [b"a", b'{"jsonrpc":"2.0","method":"_x.ai/q', b'{"jsonrpc":"2.0","id":1', b'{"jsonrpc":"2.0","id":"o', b"[1"]
)
def test_what_is_neither_an_answer_to_us_nor_an_update_is_not_held(start: bytes) -> None:
    panel = Panel()
    panel.inject()
    assert panel.stream.judge(start, False) == PASS


# whatever comes

NAMES = (
    "id method params result error sessionId update sessionUpdate content text promptId _meta entries runningPromptId stopReason "
    "clientInfo name title models currentModelId toolCall rawInput completionKind cancellationCategory clientCapabilities cwd"
)
WORDS = (
    "initialize session/new session/load session/prompt session/update session/close session/request_permission tool_call "
    "_x.ai/queue/changed _x.ai/session/prompt_complete agent_message_chunk agent_thought_chunk session_info_update end_turn "
    "cancelled removedFromQueue xagent-1 x.ai/tool x.ai/sessionDetail"
)
words = st.sampled_from([*WORDS.split(), S1, S2, P1, KEY])
values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-2, 4), st.floats(), st.text(max_size=5), words),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(NAMES.split()), inner, max_size=5)),
    max_leaves=12,
)
realistic = st.sampled_from(
    [
        queue(),
        queue(KEY),
        queue(running=KEY),
        queue(running=P1),
        chunk("words req_1"),
        chunk("own", P1),
        update("agent_thought_chunk", KEY, content={"text": "hm"}),
        update("tool_call", KEY),
        complete(),
        complete(KEY, "cancelled", "PermissionRejected"),
        permission(),
        interaction("pending_interaction", session="child"),
        interaction("interaction_resolved", session="child"),
        {"id": 0, "result": {"outcome": {}}},
        {"id": "xagent-1", "result": {"stopReason": "end_turn"}},
        {"id": "xagent-1", "result": {"stopReason": "cancelled", "_meta": {"completionKind": "removedFromQueue"}}},
        {"id": "xagent-1", "error": {"code": -1}},
        {"id": 7, "method": "session/prompt", "params": {"sessionId": S1}},
        {"id": 7, "result": {"stopReason": "end_turn"}},
        {"id": 8, "method": "session/load", "params": {"sessionId": S2, "cwd": "/w"}},
        {"id": 8, "result": {}},
    ]
)
lines = st.one_of(
    st.binary(max_size=20).map(lambda raw: raw.replace(b"\n", b"")),
    st.one_of(st.dictionaries(st.sampled_from(NAMES.split()), values, max_size=6), realistic).map(encode),
)
steps = st.lists(st.tuples(st.sampled_from(["editor", "agent", "agent", "agent", "inject", "withdraw"]), lines), max_size=30)


def _act(stream: GrokStream, step: str) -> bool:
    if step == "inject":
        stream.inject(order())
    elif step == "withdraw":
        stream.withdraw("a1")
    return step not in ("inject", "withdraw")


@given(steps)
@settings(deadline=None)
@pytest.mark.requirement("SH-07")
def test_nothing_raises_and_facts_keep_their_types(play: list[tuple[str, bytes]]) -> None:
    stream = Panel().stream
    for step, line in play:
        if not _act(stream, step):
            continue
        for whole in (True, False):
            assert stream.judge(line, whole) in (PASS, HOLD, DROP)
            stream.ahead()
            (stream.from_editor if step == "editor" else stream.from_agent)(line, whole, 1.0)
        for state in stream.sessions():
            for text in (state.id, state.cwd, state.name, state.title, state.model, state.host, state.running):
                assert type(text) is str
    for fact in stream.progress:
        assert not isinstance(fact, Finished) or type(fact.text) in (str, type(None))


@given(steps, st.lists(st.integers(1, 60), min_size=1, max_size=20))
@settings(deadline=None)
@pytest.mark.requirement("SH-05", "SH-20")
def test_facts_do_not_depend_on_how_the_stream_was_cut(play: list[tuple[str, bytes]], sizes: list[int]) -> None:
    told = []
    for cut in (False, True):
        stream = Panel().stream
        observer = Observer()
        observer.attach(stream, lambda: None)
        shown = b""
        for step, line in play:
            if not _act(stream, step):
                continue
            tap = observer.editor_side if step == "editor" else observer.agent_side
            data, at, turn = line + b"\n", 0, 0
            while at < len(data):
                size = sizes[turn % len(sizes)] if cut else len(data)
                piece = data[at : at + size]
                tap.arrived(piece)
                if step != "editor":
                    shown += observer.sieve.filter(piece)
                tap.passed()
                at, turn = at + size, turn + 1
        assert observer.off_because == ""
        states = [(s.id, s.name, s.title, bool(s.turn_since), s.approval and s.approval.tool, s.empty) for s in stream.sessions()]
        told.append((stream.progress, [write.data for write in stream.writes], states, shown))
    assert told[0] == told[1]
