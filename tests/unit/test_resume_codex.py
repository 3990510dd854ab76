"""What the lines of ``codex exec --json`` mean: recorded from the real binary, cut anywhere, and among garbage."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shims.agent import Found, Record
from shims.codex import sessions
from shims.codex.resume import HEADLESS, LONGEST_LINE
from shims.headless import LONGEST_FAILURE, Order, Said
from tests.unit.test_stub_codex import STUB

pytestmark = pytest.mark.requirement("EN-14")

THREAD = "01a22ed3-a2fe-7881-83c0-d20617f2e3e7"
OTHER = "01a22ed4-5e59-7e03-8c44-5dca38df9687"
STARTED = b'{"type":"thread.started","thread_id":"%s"}' % THREAD.encode()
WARNING = b'{"type":"item.completed","item":{"id":"item_0","type":"error","message":"Model metadata for `scripted` not found."}}'
BEGUN = b'{"type":"turn.started"}'
THINKING = b'{"type":"item.completed","item":{"id":"item_1","type":"agent_message","text":"thinking"}}'
FINAL = b'{"type":"item.completed","item":{"id":"item_3","type":"agent_message","text":"fin"}}'
EMPTY = b'{"type":"item.completed","item":{"id":"item_1","type":"agent_message","text":""}}'
COMPLETED = b'{"type":"turn.completed","usage":{"input_tokens":10,"cached_input_tokens":0,"output_tokens":5}}'
RETRY = b'{"type":"error","message":"Reconnecting... waiting for network (Connection failed: error sending request)"}'


def call(refusal: str, arguments: Any = None) -> bytes:
    """A call of an MCP tool that failed."""
    item = {"id": "item_2", "type": "mcp_tool_call", "server": "cross-agent", "tool": "echo", "arguments": arguments or {}}
    whole = {"type": "item.completed", "item": {**item, "result": None, "error": {"message": refusal}, "status": "failed"}}
    return json.dumps(whole, separators=(",", ":")).encode()


def failed(words: str) -> bytes:
    return b'{"type":"turn.failed","error":{"message":%s}}' % json.dumps(words).encode()


DENIED = call("MCP tool call requires approval, but approval policy is never")
CANCELLED = call("user cancelled MCP tool call")
STORY = (STARTED, WARNING, BEGUN, THINKING, DENIED, FINAL, COMPLETED)

ALIASES = 'WARNING: proceeding, even though we could not create PATH aliases: Refusing to create helper binaries under "/tmp"\n'
HELD = (
    "2026-11-30T23:42:52.551828Z ERROR codex_core::session::session: failed to initialize thread persistence\n"
    f"Error: thread/resume: thread/resume failed: thread {THREAD} already has an active writer (code -32600)\n"
)
UNKNOWN = f"Error: thread/resume: thread/resume failed: no rollout found for thread id {THREAD} (code -32600)\n"
UNKNOWN_147 = (
    "Error: thread/resume: thread/resume failed: failed to resolve rollout path `/x`: file does not exist (code -32600)\n"
)
ARCHIVED = f"Error: thread/resume: thread/resume failed: session {THREAD} is archived. Run `codex unarchive {THREAD}` first.\n"
LONG = "Error: turn/start: turn/start failed: Input exceeds the maximum length of 1048576 characters. (code -32602)\n"
ESCALATED = (
    "2026-11-30T23:39:57.625885Z ERROR codex_core::tools::router: error=approval policy is Never; reject command — you cannot "
    "ask for escalated permissions if the approval policy is Never\n"
)
CONFIG = "Error loading config.toml:\n/h/.codex/config.toml:1:10: unclosed array, expected `]`\n  |\n1 | model = [\n"
UNAUTHORIZED = "unexpected status 401 Unauthorized: Incorrect API key provided, url: http://127.0.0.1:1/v1/responses"


def read(*lines: bytes, status: int = 0, errors: str = "", expected: str = THREAD) -> Said:
    output = HEADLESS.output(expected)
    for line in lines:
        output.feed(line)
    return output.closed(status, ALIASES + errors)


def test_an_answer() -> None:
    said = Said(THREAD, begun=True, ended=True, text="fin", denied=("mcp__cross-agent__echo",))
    assert read(*STORY) == said
    assert read(STARTED, WARNING, BEGUN, THINKING, CANCELLED, FINAL, COMPLETED) == said  # 0.147.0
    assert read(*STORY, expected="") == said  # a new conversation


def test_so_far() -> None:
    output = HEADLESS.output(THREAD)
    assert output.said() == Said()
    for line in (STARTED, WARNING):
        output.feed(line)
    assert output.said() == Said(THREAD)
    for line in (BEGUN, FINAL, RETRY):
        output.feed(line)
    assert output.said() == Said(THREAD, begun=True)
    output.feed(COMPLETED)
    assert output.said() == Said(THREAD, begun=True, ended=True, text="fin")


def test_the_last_message_with_words_is_the_answer_as_in_the_records() -> None:
    assert read(STARTED, BEGUN, THINKING, EMPTY, COMPLETED).text == "thinking"
    said = read(STARTED, BEGUN, EMPTY, COMPLETED)
    assert (said.text, said.code, said.ended) == ("", "turn_failed", True)


@pytest.mark.requirement("EN-15")
def test_only_a_turn_without_an_answer_fails_for_want_of_an_approval() -> None:
    said = read(STARTED, BEGUN, DENIED, COMPLETED)
    assert (said.code, said.denied) == ("approval_needed", ("mcp__cross-agent__echo",))
    assert "CROSS_AGENT_CODEX_SANDBOX" in said.reason
    assert read(STARTED, BEGUN, FINAL, COMPLETED, errors=ESCALATED) == Said(
        THREAD, begun=True, ended=True, text="fin", denied=("exec_command",)
    )
    broken = call("connection closed")
    assert read(STARTED, BEGUN, broken, FINAL, COMPLETED).denied == ()


@pytest.mark.parametrize(
    ("lines", "status", "errors", "code", "words", "untouched"),
    [
        ((STARTED, BEGUN, RETRY, failed("model is down")), 1, "", "turn_failed", "model is down", False),
        ((STARTED, BEGUN, failed("that model is archived")), 1, "", "turn_failed", "is archived", False),
        ((BEGUN,), 1, UNKNOWN, "turn_failed", "exit status 1", False),
        ((STARTED, BEGUN, failed(UNAUTHORIZED)), 1, "", "not_logged_in", "codex login", False),
        ((STARTED, BEGUN, failed("Missing environment variable: `K`.")), 1, "", "not_logged_in", "`K`", False),
        ((), 1, HELD, "session_held", "already has an active writer", True),
        ((), 1, UNKNOWN, "unknown_session", "no rollout found", True),
        ((), 1, UNKNOWN_147, "unknown_session", "failed to resolve rollout path", True),
        ((), 1, ARCHIVED, "session_archived", f"codex unarchive {THREAD}", True),
        ((), 1, CONFIG, "turn_failed", "Error loading config.toml", True),
        ((), 1, "Not inside a trusted directory and …\n", "directory_not_trusted", "run `codex` there", True),
        ((), 1, "No prompt provided via stdin.\n", "turn_failed", "No prompt provided", True),
        ((), 2, "error: invalid value 'x' for '--sandbox <SANDBOX_MODE>'\n", "turn_failed", "invalid value", True),
        ((), 127, "", "turn_failed", "exit status 127", True),
        ((), -9, "", "turn_failed", "by signal 9", True),
        ((), -2, "", "turn_cancelled", "interrupted", True),
        ((STARTED,), 1, LONG, "turn_failed", "exceeds the maximum length", True),
        ((STARTED,), -9, "", "turn_failed", "by signal 9", False),
        ((STARTED, BEGUN), 1, "", "turn_cancelled", "interrupted", False),
        ((STARTED, BEGUN), 1, HELD.splitlines()[0], "turn_cancelled", "interrupted", False),
        ((STARTED, BEGUN, FINAL), -15, "", "turn_failed", "by signal 15", False),
        ((STARTED, BEGUN, RETRY), -9, "", "turn_failed", "waiting for network", False),
        ((STARTED, BEGUN, FINAL), 0, "", "turn_failed", "exit status 0", False),
    ],
)
def test_no_answer(lines: tuple[bytes, ...], status: int, errors: str, code: str, words: str, untouched: bool) -> None:
    said = read(*lines, status=status, errors=errors)
    assert (said.text, said.code, said.untouched) == ("", code, untouched)
    assert words in said.reason
    assert "PATH aliases" not in said.reason


def test_the_answer_of_another_thread_is_none() -> None:
    said = read(*STORY, expected=OTHER)
    assert (said.session, said.text, said.code, said.untouched) == (THREAD, "", "wrong_session", False)
    assert read(BEGUN, FINAL, COMPLETED).code == "turn_failed"  # it does not say whose


def test_a_failure_is_one_short_line() -> None:
    said = read(STARTED, BEGUN, failed("a\nb\x1b[31m\u202e" * 10_000))
    assert len(said.reason) <= LONGEST_FAILURE
    assert said.reason.isprintable()


def test_long_lines_are_decoded_only_where_they_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "z" * (LONGEST_LINE + 1)
    assert read(STARTED, BEGUN, FINAL.replace(b"fin", text.encode()), COMPLETED).text == text
    assert read(STARTED, BEGUN, call("user cancelled MCP tool call", text), FINAL, COMPLETED).denied
    seen: list[int] = []

    def parse(line: bytes) -> Any:
        seen.append(len(line))
        return json.loads(line)

    monkeypatch.setattr("shims.codex.resume.parse_object", parse)
    command = b'{"type":"item.completed","item":{"id":"item_1","type":"command_execution","aggregated_output":"%s"}}'
    assert read(STARTED, BEGUN, command % text.encode(), FINAL, COMPLETED).text == "fin"
    assert max(seen) < LONGEST_LINE


@given(at=st.integers(0, len(b"\n".join(STORY[:-1]))), status=st.sampled_from((0, 1, -9, -15)))
def test_an_output_that_is_cut_anywhere_holds_no_answer(at: int, status: int) -> None:
    said = read(*b"\n".join(STORY)[:at].split(b"\n"), status=status)
    assert (said.text, said.ended) == ("", False)
    assert said.code


words = st.text(max_size=20)
json_values = st.none() | st.integers() | words | st.lists(words, max_size=2) | st.dictionaries(words, words, max_size=2)
kinds = st.sampled_from(
    ("thread.started", "turn.started", "item.completed", "error", "turn.failed", "agent_message", "mcp_tool_call")
)
fields = st.sampled_from(("thread_id", "item", "error", "message", "text", "type", "server", "tool"))
events = st.builds(
    lambda kind, values, item: json.dumps({**values, "item": item, "type": kind}).encode(),
    kinds,
    st.dictionaries(fields, json_values, max_size=4),
    st.builds(lambda kind, values: {**values, "type": kind}, kinds, st.dictionaries(fields, json_values, max_size=4))
    | json_values,
)


@given(lines=st.lists(st.binary(max_size=40) | events, max_size=8), status=st.integers(-64, 255), errors=st.text())
def test_no_line_raises_and_none_but_the_end_record_gives_an_answer(lines: list[bytes], status: int, errors: str) -> None:
    said = read(*lines, status=status, errors=errors)
    assert said.text == ""
    assert said.code
    assert len(said.reason) <= LONGEST_FAILURE
    assert "\n" not in said.reason


@given(noise=st.lists(st.binary(), max_size=len(STORY)))
def test_garbage_between_the_lines_changes_nothing(noise: list[bytes]) -> None:
    lines = [line for at, told in enumerate(STORY) for line in (*noise[at : at + 1], told)]
    assert read(*lines) == read(*STORY)


# how it is started


def test_a_new_conversation_is_read_only_unless_a_setting_says_otherwise() -> None:
    order = Order("", "", "key", "/p", "/w")
    assert HEADLESS.arguments(order) == ["exec", "--sandbox=read-only", "--skip-git-repo-check", "--cd=/w", "--json", "-"]
    line = HEADLESS.arguments(order._replace(mode="workspace-write", model="-m"))
    assert line[:3] == ["exec", "--sandbox=workspace-write", "--model=-m"]


def test_a_conversation_that_goes_on() -> None:
    order = Order(THREAD, "", "key", "/p", "/w")
    assert HEADLESS.arguments(order) == ["exec", "--skip-git-repo-check", "--cd=/w", "resume", "--json", THREAD, "-"]
    assert HEADLESS.arguments(order._replace(mode="read-only"))[1] == "--sandbox=read-only"


@pytest.mark.requirement("EN-24")
@given(text=st.text(min_size=30), key=st.text(min_size=30), session=st.sampled_from(("", THREAD)))
def test_no_text_among_the_arguments(text: str, key: str, session: str) -> None:
    line = HEADLESS.arguments(Order(session, "", key, text, "/w"))
    assert not any(text in word or key in word for word in line)
    assert HEADLESS.input(text, key) == text.encode()


def test_half_a_character_is_replaced() -> None:
    assert HEADLESS.input("a\ud800b", "key") == b"a?b"


# what is looked for in its files


def rollout(store: Path, *records: tuple[str, dict[str, Any]], folder: str = "sessions/2026/11/30") -> Path:
    path = store / folder / f"rollout-2026-11-30T23-39-11-{THREAD}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps({"type": kind, "payload": payload}) + "\n" for kind, payload in records))
    return path


def hindered(store: Path, session: str = THREAD) -> str:
    hindrance = HEADLESS.hindrance(str(store), session)
    return hindrance.code if hindrance is not None else ""


def turn(identifier: str, sandbox: str = "read-only") -> tuple[tuple[str, dict[str, Any]], ...]:
    return (
        ("event_msg", {"type": "task_started", "turn_id": identifier}),
        ("turn_context", {"turn_id": identifier, "sandbox_policy": {"type": sandbox}}),
    )


def test_what_is_no_thread_is_not_resumed(tmp_path: Path) -> None:
    path = rollout(tmp_path, *turn("T1"))
    assert hindered(tmp_path) == ""
    assert HEADLESS.transcript(str(tmp_path), THREAD) == str(path)
    for name in (OTHER, "name", "", "*", "-", THREAD.upper(), THREAD[-12:], f"x-{THREAD}", THREAD.replace("-", "")):
        assert hindered(tmp_path, name) == "unknown_session"
        assert HEADLESS.transcript(str(tmp_path), name) == ""


def test_what_was_put_away_is_not_resumed(tmp_path: Path) -> None:
    rollout(tmp_path, *turn("T1"), folder="archived_sessions")
    assert hindered(tmp_path) == "session_archived"


def test_what_has_messages_waiting_is_not_resumed(tmp_path: Path) -> None:
    rollout(tmp_path, *turn("T1"))
    with sqlite3.connect(tmp_path / "queue_1.sqlite") as database:
        database.execute("CREATE TABLE queued_items (thread_id TEXT, payload_json TEXT)")
        database.execute("INSERT INTO queued_items VALUES (?, '{}')", (OTHER,))
        database.commit()
        assert hindered(tmp_path) == ""
        database.execute("INSERT INTO queued_items VALUES (?, 'what nobody can read')", (THREAD,))
        database.commit()
        assert hindered(tmp_path) == "queue_not_empty"
        database.execute("DROP TABLE queued_items")
        database.commit()
    assert hindered(tmp_path) == "queue_unknown"


@pytest.mark.requirement("EN-17")
def test_a_sandbox_is_never_widened(tmp_path: Path) -> None:
    def mode(*records: tuple[str, dict[str, Any]]) -> str:
        rollout(tmp_path, *records)
        return HEADLESS.resumed_mode(str(tmp_path), THREAD)

    assert mode(*turn("T1", "workspace-write"), *turn("T2")) == "read-only"
    assert mode(*turn("T1"), *turn("T2", "workspace-write")) == "workspace-write"
    assert mode(*turn("T1", "danger-full-access")) == ""
    for unknown in ("external-sandbox", ""):
        assert mode(*turn("T1", unknown)) == "read-only"
    assert mode() == mode(("turn_context", {"sandbox_policy": None})) == "read-only"


@pytest.mark.requirement("DE-22")
def test_a_turn_of_ours_is_found_by_its_id(tmp_path: Path) -> None:
    assert HEADLESS.newest is not None
    said = ("event_msg", {"type": "user_message", "message": "T2, T3"})
    rollout(tmp_path, *turn("T1"), said)
    assert HEADLESS.newest(str(tmp_path), THREAD) == "T1"
    assert HEADLESS.newest(str(tmp_path), OTHER) is None  # whether there ever was one, nothing says
    sqlite3.connect(tmp_path / "state_5.sqlite").execute("CREATE TABLE threads (id TEXT)").connection.close()
    assert HEADLESS.newest(str(tmp_path), OTHER) == ""
    rollout(tmp_path, *turn("T1"), said, *turn("T2"), said)
    assert HEADLESS.newest(str(tmp_path), THREAD) == "T2"
    assert sessions.record(str(tmp_path), THREAD, "T2").found is Found.OPEN
    assert sessions.record(str(tmp_path), THREAD, "T1").found is Found.INTERRUPTED  # another began
    assert sessions.record(str(tmp_path), THREAD, "T3").found is Found.ABSENT
    end = ("event_msg", {"type": "task_complete", "turn_id": "T2", "last_agent_message": "fin"})
    rollout(tmp_path, *turn("T1"), said, *turn("T2"), said, end)
    assert sessions.record(str(tmp_path), THREAD, "T2") == Record(Found.ANSWERED, "fin", "T2")


# the stub


@pytest.mark.requirement("MC-25")
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["resume", "-s", "read-only", THREAD, "--json", "-"], "unexpected argument '-s'"),
        (["--sandbox=any", "--json", "-"], "invalid value 'any'"),
        (["--json", "--nonsense", "-"], "unexpected argument '--nonsense'"),
        (["--json", "--model"], "a value is required"),
        (["--json", "words"], "from stdin"),
        (["-"], "in JSON"),
    ],
)
def test_the_stub_refuses_what_codex_refuses(arguments: list[str], words: str) -> None:
    command = [sys.executable, "-I", "-S", str(STUB), "exec", *arguments]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=20)
    assert (done.returncode, done.stdout) == (2, "")
    assert words in done.stderr
