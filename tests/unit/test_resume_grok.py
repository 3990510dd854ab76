"""What Grok Build's lines say of a turn that it was started for: lines as 1.0.41 was recorded to write them, without what
nothing is read from.
"""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shims.grok.resume import HEADLESS
from shims.headless import LONGEST_FAILURE, Order, Said
from shims.shelf import LONGEST_DECODED

pytestmark = pytest.mark.requirement("EN-14")

S1, S2 = "d7bd5c5a-67ca-48db-9311-2de09ffc9359", "31e541b9-5f38-428d-a3dd-310144369db0"
TURN = "ab821809-39e4-4621-b74b-d9cae5274b87"
LOGGED_OUT = (
    "Not signed in. To authenticate without a browser, run:\n  grok login --device-code\n\nAlternatively, set the XAI_API_KEY "
    "environment variable or run `grok login` on a machine with a browser."
)
ELSEWHERE = (
    f'Session "{S1}" not found locally, restoring conversation from remote...\n'
    "Error: Failed to authenticate for session restore: error sending request for url (https://auth.x.ai/.well-known/x)\n"
)
BAD_MODEL = "Couldn't set model 'x': Invalid params: \"unknown model id\". Run 'grok models' to see available models."
BAD_MODE = "error: invalid value 'x' for '--permission-mode <MODE>'\n  [possible values: default, plan]\n\nFor more information"

Frame = dict[str, Any]

COMMANDS = [{"type": "available_commands", "tools": ["run_terminal_command"], "commands": []}] * 2
SPENT = {"type": "usage", "usage": {"input_tokens": 10, "output_tokens": 5}}


def text(*pieces: str) -> list[Frame]:
    return [{"type": "text", "data": piece} for piece in pieces]


def call(name: str = "read_file", **given: Any) -> Frame:
    named = {"toolCallId": "call_1", "title": name, "kind": "execute", "status": "pending", "toolName": name}
    return {"type": "tool_call", **named, "rawInput": given, "content": [], "locations": []}


def returned(status: str | None, words: str = "", **output: Any) -> Frame:
    content = [{"type": "content", "content": {"type": "text", "text": words}}]
    told = {"toolCallId": "call_1", "status": status, "content": content, "rawOutput": output or None}
    return {"type": "tool_call_update", **told, "locations": []}


def refused(name: str, **given: Any) -> list[Frame]:
    cancelled = f"User cancelled the execution for tool `{name}`"
    return [SPENT, call(name, **given), returned(None), returned("failed", cancelled)]


def end(reason: str = "end_turn", session: str = S1) -> Frame:
    return {"type": "end", "stopReason": reason, "sessionId": session, "requestId": TURN, "usage": {}, "num_turns": 1}


def failure(words: str) -> Frame:
    return {"type": "error", "message": words}


def encoded(frame: Frame) -> bytes:
    return json.dumps(frame, ensure_ascii=False, separators=(",", ":")).encode()


def told(*frames: Frame, status: int = 0, errors: str = "", session: str = S1) -> Said:
    output = HEADLESS.output(session)
    for frame in frames:
        output.feed(encoded(frame))
    return output.closed(status, errors)


def order(**fields: Any) -> Order:
    return Order(**{"session": S1, "new": "", "key": "dlv_1", "prompt": "/run/p", "cwd": "/w", **fields})


# what is started


@pytest.mark.requirement("EN-24")
@given(st.text(min_size=1), st.text())
def test_text_is_in_the_file_and_nowhere_else(words: str, key: str) -> None:
    assert HEADLESS.by_file
    assert HEADLESS.input(words, key) == words.encode(errors="replace")
    assert "".join(HEADLESS.arguments(order())) == f"--prompt-file=/run/p--resume={S1}--output-format=streaming-json"


def test_arguments() -> None:
    given = HEADLESS.arguments(order(session="", new=S2, model="grok-4.6", mode="auto"))
    assert given[1:] == [f"--session-id={S2}", "--output-format=streaming-json", "--model=grok-4.6", "--permission-mode=auto"]
    assert not any("/w" in argument or "dlv_1" in argument for argument in given)


# what it answers


@pytest.mark.requirement("SE-08")
@pytest.mark.parametrize(
    ("frames", "answer"),
    [
        (text("one", " two"), "one two"),
        ([*text("let", " me"), SPENT, call(), returned(None), returned("completed"), *text("pong", " two")], "pong two"),
        ([*text("all that came"), call(), returned("completed")], "all that came"),
        ([*text("a"), call(), returned("completed"), *text("b"), call(), returned("failed", "no such file")], "a\n\nb"),
        ([{"type": "thought", "data": "hm"}, *text("one"), {"type": "plan", "entries": []}, {"type": "unheard of"}], "one"),
    ],
)
def test_the_answer_is_what_was_said_after_the_last_tool(frames: list[Frame], answer: str) -> None:
    assert told(*COMMANDS, *frames, SPENT, end()) == Said(S1, begun=True, ended=True, text=answer, turn=TURN)


def test_it_has_begun_when_the_model_is_heard_of() -> None:
    output = HEADLESS.output(S1)
    for frame in COMMANDS:
        output.feed(encoded(frame))
    assert output.said() == Said()
    output.feed(encoded(text("o")[0]))
    assert output.said() == Said(begun=True)


def test_nothing_counts_behind_the_end() -> None:
    said = told(*text("one"), end(), *text("two"), failure("late"), end("cancelled", S2), status=1, errors="Error: late")
    assert (said.text, said.code, said.session) == ("one", "", S1)


def test_a_new_conversation_is_named_by_the_end() -> None:
    assert told(*text("one"), end(session=S2), session="").session == S2


@pytest.mark.requirement("EN-25")
def test_of_a_long_line_only_the_answer_is_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    long = "x" * LONGEST_DECODED
    assert told(*text("before", long), call(content=long), *text(long), end()).text == long
    decoded: list[int] = []
    loads = json.loads

    def counted(line: bytes) -> Any:
        decoded.append(len(line))
        return loads(line)

    monkeypatch.setattr(json, "loads", counted)
    told(call(content=long), returned("completed", long), {"type": "thought", "data": long}, end())
    assert max(decoded) < LONGEST_DECODED
    assert len(decoded) == 1


# why there is no answer


@pytest.mark.requirement("EN-15")
@pytest.mark.parametrize(
    ("frames", "denied"),
    [
        (refused("run_terminal_command", command="rm -rf x"), "run_terminal_command"),
        (refused("use_tool", tool_name="cross-agent__send_to_codex", tool_input={}), "cross-agent__send_to_codex"),
        (refused("write", content="x" * LONGEST_DECODED), "write"),
    ],
)
def test_an_approval_that_nobody_gives_ends_the_turn(frames: list[Frame], denied: str) -> None:
    said = told(*COMMANDS, *text("let me"), *frames, end("cancelled"))
    assert (said.code, said.denied, said.text, said.untouched) == ("approval_needed", (denied,), "", False)
    assert denied in said.reason
    assert "CROSS_AGENT_GROK_PERMISSION_MODE" in said.reason


@pytest.mark.requirement("EN-15")
def test_what_was_denied_in_a_turn_with_an_answer_is_told() -> None:
    by_rule = 'Tool `run_terminal_command` was not executed: Denied by permission policy: deny rule on bash matching "rm*"'
    said = told(call("run_terminal_command"), returned("failed", by_rule), *text("did"), *refused("write"), *text("it"), end())
    assert (said.text, said.code, said.denied) == ("it", "", ("run_terminal_command", "write"))


@pytest.mark.parametrize(
    ("frames", "code", "words"),
    [
        ([*text("half"), end("cancelled")], "turn_cancelled", "cancelled"),
        ([*text("half"), {"type": "max_turns_reached"}, end("max_turn_requests")], "turn_failed", "`max_turn_requests`"),
        ([*text("half"), end("refusal")], "turn_failed", "`refusal`"),
        ([end()], "turn_failed", "without an answer"),  # a command of its own
        ([*text("half"), end(session=S2)], "wrong_session", S2),
        ([*text("half"), {"type": "end"}], "wrong_session", "another"),
    ],
)
def test_an_end_without_an_answer(frames: list[Frame], code: str, words: str) -> None:
    said = told(*COMMANDS, *frames)
    assert (said.ended, said.code, said.text, said.untouched) == (True, code, "", False)
    assert words in said.reason


def test_the_model_fails() -> None:
    inner = "API error (status 400 Bad Request): invalid_request_error: not today"
    said = told(*COMMANDS, failure(f'Internal error: {{\n  "message": "{inner}",\n  "http_status": 400\n}}'), status=1)
    assert said == Said(begun=True, ended=True, code="turn_failed", reason=inner)


@pytest.mark.parametrize(
    ("frames", "status", "errors", "code", "untouched"),
    [
        ([failure(LOGGED_OUT)], 1, f"Error: {LOGGED_OUT}", "not_logged_in", True),
        ([], 1, f"Error: {LOGGED_OUT}", "not_logged_in", True),
        ([], 1, ELSEWHERE, "unknown_session", True),
        ([failure("Couldn't create session: Session does not exist")], 1, "", "unknown_session", True),
        ([*COMMANDS, failure(BAD_MODEL)], 1, f"Error: {BAD_MODEL}", "turn_failed", True),
        ([], 1, "Error: '/run/p': prompt is empty", "turn_failed", True),
        ([], 1, "Error: Failed to read '/run/p': No such file or directory (os error 2)", "turn_failed", True),
        ([], 2, BAD_MODE, "turn_failed", True),
        ([], 1, f"Error: Error: Session ID {S1} is already in use.", "turn_failed", False),
        ([], 0, "", "turn_failed", False),
        (COMMANDS, -signal.SIGKILL, "", "turn_failed", False),
        ([*COMMANDS, *text("half")], -signal.SIGINT, "", "turn_cancelled", False),
        ([*COMMANDS, *text("half")], 128 + signal.SIGTERM, "", "turn_cancelled", False),
        ([*text("half")], 2, BAD_MODE, "turn_failed", False),
        ([*text("half")], 1, ELSEWHERE, "turn_failed", False),
    ],
)
def test_it_ends_without_an_end(frames: list[Frame], status: int, errors: str, code: str, untouched: bool) -> None:
    said = told(*frames, status=status, errors=errors)
    assert (said.code, said.untouched, said.text) == (code, untouched, "")
    assert said.reason
    assert "\n" not in said.reason
    assert len(said.reason) <= LONGEST_FAILURE


STORY = [encoded(frame) for frame in (*COMMANDS, *text("let me"), *refused("write"), *text("pong", " two"), SPENT, end())]


@given(st.data())
def test_no_garbage_and_no_cut_makes_an_answer(data: st.DataObject) -> None:
    """Broken lines anywhere, a line that was cut, the end missing: never an exception, never an answer without the end."""
    kept = data.draw(st.lists(st.sampled_from(STORY[:-1]), max_size=12))
    values = st.recursive(
        st.none() | st.integers() | st.text(max_size=5), lambda inner: st.lists(inner, max_size=2), max_leaves=4
    )
    fields = st.sampled_from(("data", "message", "toolCallId", "toolName", "status", "rawInput", "content"))
    kinds: st.SearchStrategy[Any] = st.sampled_from(("text", "tool_call", "tool_call_update", "error", "usage", [], None, {}))
    odd = st.dictionaries(fields, values, max_size=4).flatmap(
        lambda line: kinds.map(lambda kind: encoded({"type": kind, **line}))
    )
    cut = st.sampled_from(STORY).flatmap(lambda line: st.integers(0, len(line) - 1).map(lambda at: line[:at]))
    for line in data.draw(st.lists(st.binary(max_size=20) | odd | cut, max_size=8)):
        kept.insert(data.draw(st.integers(0, len(kept))), line)
    output = HEADLESS.output(S1)
    for line in kept:
        output.feed(line)
    said = output.closed(data.draw(st.sampled_from((0, 1, 2, -2, -9, 255))), data.draw(st.text(max_size=20)))
    assert (said.text, said.turn) == ("", "")
    assert said.code
    assert len(said.reason) <= LONGEST_FAILURE


@given(st.text(), st.text())
def test_a_reason_is_short_and_one_line(words: str, errors: str) -> None:
    for said in (
        told(failure(words * 50)),
        told(status=1, errors=errors * 50),
        told(*refused(words * 50 + "`"), end("cancelled")),
    ):
        assert len(said.reason) <= LONGEST_FAILURE
        assert said.reason.isprintable() or "\n" not in said.reason


# what stands in its way


@pytest.mark.parametrize("found", ["all", "no summary", "nothing", "a title"])
def test_only_what_is_here_is_gone_on_with(tmp_path: Path, found: str) -> None:
    session = "my title" if found == "a title" else S1
    folder = tmp_path / "sessions" / "%2Fw" / session
    if found != "nothing":
        folder.mkdir(parents=True)
    if found in ("all", "a title"):
        (folder / "summary.json").write_text("{}")
    hindrance = HEADLESS.hindrance(str(tmp_path), session)
    assert (hindrance is None) == (found == "all")
    assert hindrance is None or hindrance.code == "unknown_session"
    assert HEADLESS.transcript(str(tmp_path), session) == ("" if found == "nothing" else str(folder / "updates.jsonl"))
    assert HEADLESS.transcript(str(tmp_path), "") == ""


@pytest.mark.requirement("DE-22")
def test_which_message_came_last(tmp_path: Path) -> None:
    """Records that cannot be read are not the same as those of nobody."""
    newest = HEADLESS.newest
    assert newest is not None
    assert newest(str(tmp_path), S1) == ""
    folder = tmp_path / "sessions" / "%2Fw" / S1
    folder.mkdir(parents=True)
    assert newest(str(tmp_path), S1) is None
    for content, found in (("{}", ""), ("{", None), (json.dumps({"request_id": TURN}), TURN)):
        (folder / "summary.json").write_text(content)
        assert newest(str(tmp_path), S1) == found
