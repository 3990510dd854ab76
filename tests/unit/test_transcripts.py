"""What agents' own records prove of a message: written by hand here, in the shapes that were measured."""

from __future__ import annotations

import fcntl
import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.processes import ProcessId, identify
from shims.agent import Found, Record
from shims.claude import live as claude_live
from shims.claude import sessions as claude_sessions
from shims.claude import transcript as claude
from shims.codex import live as codex_live
from shims.codex import sessions as codex_sessions
from shims.codex import transcript as codex

KEY = "d0d0d0d0-0000-4000-8000-000000000001"
"""The uuid of a message to Claude."""
TOKEN = "req_1700000000000_abcdef"
"""Of a request, and the client id of a message to Codex."""
SESSION = "6f1b9d1e-0000-4000-8000-000000000002"
THREAD = "01a22cf3-742a-7fdb-bc3e-425791269f1b"

Entry = dict[str, Any]


def lines(*entries: Entry | bytes) -> list[bytes]:
    return [entry if isinstance(entry, bytes) else json.dumps(entry).encode() for entry in entries]


# Claude Code: 2.1.197 and 2.1.332


def prompt(text: str, uuid: str = "u-other", **more: Any) -> Entry:
    message = {"role": "user", "content": text}
    return {"type": "user", "message": message, "uuid": uuid, "isSidechain": False, "promptSource": "sdk", **more}


def ours(text: str = f"please\nrequest: {TOKEN}") -> Entry:
    return prompt(text, KEY)


def says(text: str, stop: str | None = "end_turn", **more: Any) -> Entry:
    content = [{"type": "text", "text": text}]
    return {"type": "assistant", "message": {"role": "assistant", "content": content, "stop_reason": stop}, "uuid": "a", **more}


def uses_tool() -> Entry:
    content = [{"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {"command": "ls"}}]
    return {"type": "assistant", "message": {"role": "assistant", "content": content, "stop_reason": "tool_use"}, "uuid": "a"}


def tool_result(text: str = "ok") -> Entry:
    content = [{"type": "tool_result", "tool_use_id": "toolu_1", "content": [{"type": "text", "text": text}]}]
    return {"type": "user", "message": {"role": "user", "content": content}, "uuid": "r"}


def folded(source: str = KEY) -> Entry:
    return {"type": "attachment", "attachment": {"type": "queued_command", "prompt": "please", "source_uuid": source}}


def interrupted(text: str = "[Request interrupted by user]", parent: str | None = None) -> Entry:
    message = {"role": "user", "content": [{"type": "text", "text": text}]}
    return {"type": "user", "message": message, "uuid": "i", **({"parentUuid": parent} if parent else {})}


def by_inbox(key: str = KEY, parent: object = None, **more: Any) -> Entry:
    """What came by the inbox has a uuid of its own (2.1.332)."""
    origin = {"kind": "peer", "from": "uds:/x", "msg_id": key}
    return prompt("please", "u-inbox", promptSource="system", origin=origin, parentUuid=parent, **more)


def folded_from_inbox(key: str = KEY) -> Entry:
    attachment = {"type": "queued_command", "prompt": "please", "origin": {"kind": "peer", "msg_id": key}}
    return {"type": "attachment", "attachment": attachment, "uuid": "f"}


def noted(uuid: str, parent: str, kind: str = "attachment", **more: Any) -> Entry:
    """Something that the turn before ours left, behind our message."""
    return {"type": kind, "uuid": uuid, "parentUuid": parent, "attachment": {"type": "other"}, **more}


QUEUED = {"type": "queue-operation", "operation": "enqueue", "content": f"please {KEY}", "uuid": KEY, "sessionId": SESSION}
DEQUEUED = {"type": "queue-operation", "operation": "dequeue"}

ABSENT, OPEN, WAITING = Record(Found.ABSENT), Record(Found.OPEN), Record(Found.WAITING)
INTERRUPTED, UNKNOWN = Record(Found.INTERRUPTED), Record(Found.UNKNOWN)


def answer(text: str) -> Record:
    return Record(Found.ANSWERED, text)


CLAUDE: dict[str, tuple[list[Entry | bytes], Record]] = {
    "nothing": ([], ABSENT),
    "another message": ([prompt("hello"), says("hi")], ABSENT),
    "queued, and no more": ([QUEUED], ABSENT),
    "queued and taken out, and no more": ([QUEUED, DEQUEUED], ABSENT),
    "left behind without its uuid": ([QUEUED, DEQUEUED, prompt(f"please {TOKEN}"), says("hi")], ABSENT),
    "its key in somebody's text": ([prompt(f"what is {KEY}?"), says(f"{KEY} is an id")], ABSENT),
    "its key in a tool's output": ([prompt("x"), uses_tool(), tool_result(f'"uuid":"{KEY}"'), says("hi")], ABSENT),
    "its key as an assistant's uuid": ([says("hi", uuid=KEY)], ABSENT),
    "its key as a parent": ([prompt("x", parentUuid=KEY), says("hi")], ABSENT),
    "in a sub-agent's file": ([prompt("x", KEY, isSidechain=True), says("hi", isSidechain=True)], ABSENT),
    "somebody else's message folded": ([folded("other"), says("hi")], ABSENT),
    "taken": ([QUEUED, DEQUEUED, ours()], OPEN),
    "at work": ([ours(), says("let me look", "tool_use"), uses_tool()], OPEN),
    "at work, the tool has answered": ([ours(), uses_tool(), tool_result()], OPEN),
    "streaming": ([ours(), says("let me", None)], OPEN),
    "answered": ([QUEUED, DEQUEUED, ours(), says("done")], answer("done")),
    "answered after a tool": ([ours(), says("let me", "tool_use"), uses_tool(), tool_result(), says("done")], answer("done")),
    "answered in two blocks": ([ours(), says("one", "end_turn"), says("two", "end_turn")], answer("two")),
    "cut off by its length": ([ours(), says("so f", "max_tokens")], answer("so f")),
    "answered, and the person went on": ([ours(), says("done"), prompt("next"), says("other")], answer("done")),
    "answered while a sub-agent spoke": ([ours(), says("sub", isSidechain=True), says("done")], answer("done")),
    "folded into a running turn": ([prompt("x"), uses_tool(), tool_result(), folded(), says("both")], answer("both")),
    "folded, and still at work": ([prompt("x"), uses_tool(), tool_result(), folded(), uses_tool()], OPEN),
    "failed": (
        [ours(), says("let me", "tool_use"), says("API Error: 400", "stop_sequence", isApiErrorMessage=True)], INTERRUPTED,
    ),
    "failed, and the person went on": (
        [ours(), says("API Error: 400", "stop_sequence", isApiErrorMessage=True), prompt("next"), says("other")], INTERRUPTED,
    ),
    "interrupted": ([ours(), says("let me", None), interrupted()], INTERRUPTED),
    "interrupted in a tool": ([ours(), uses_tool(), interrupted("[Request interrupted by user for tool use]")], INTERRUPTED),
    "interrupted, then the person went on": ([ours(), interrupted(), prompt("next"), says("other")], INTERRUPTED),
    "the next turn was interrupted": ([ours(), says("done"), prompt("next"), interrupted()], answer("done")),
    "died in its turn, and the person went on": ([ours(), uses_tool(), prompt("next"), says("other")], OPEN),
    "a summary of the agent's own in the middle": (
        [ours(), uses_tool(), tool_result(), {**interrupted("so far"), "isCompactSummary": True}, says("done")], answer("done"),
    ),
    "a note of the agent's own in the middle": (
        [ours(), uses_tool(), tool_result(), {**interrupted("<note>"), "isMeta": True}, says("done")], answer("done"),
    ),
    "by the inbox, taken": ([by_inbox()], OPEN),
    "by the inbox, answered": ([by_inbox(), says("done")], answer("done")),
    "by the inbox, and the person went on": ([by_inbox(), says("done"), prompt("next"), says("other")], answer("done")),
    "by the inbox, interrupted": ([by_inbox(parent="p"), says("let me", None), interrupted(parent="a")], INTERRUPTED),
    "by the inbox, somebody else's": ([by_inbox("other"), says("hi")], ABSENT),
    "by the inbox, marked as the agent's own": ([by_inbox(isMeta=True), says("done")], answer("done")),
    "by the inbox, an origin that is none": ([prompt("x", origin=KEY), prompt("y", origin={"msg_id": [KEY]})], ABSENT),
    "by the inbox, folded": ([prompt("x"), uses_tool(), tool_result(), folded_from_inbox(), says("both")], answer("both")),
    "by the inbox, somebody else's folded": ([prompt("x"), uses_tool(), folded_from_inbox("other"), says("one")], ABSENT),
    "the turn before it was interrupted": (  # 2.1.332: Esc while ours waits; the interruption is written behind it
        [prompt("theirs"), uses_tool(), by_inbox(parent="a"), interrupted(parent="a"), says("done")], answer("done"),
    ),
    "the turn before it was interrupted in a tool": (
        [
            prompt("theirs"), uses_tool(), by_inbox(parent="a"), {**tool_result(), "parentUuid": "a"},
            interrupted("[Request interrupted by user for tool use]", "r"), says("done", parentUuid="i"),
        ],
        answer("done"),
    ),
    "the turn before it was interrupted, some records on": (
        [by_inbox(parent="a"), noted("n1", "a"), noted("n2", "n1", "system"), interrupted(parent="n2"), says("done")],
        answer("done"),
    ),
    "the turn before it was interrupted, and it is at work": ([by_inbox(parent="a"), interrupted(parent="a"), uses_tool()], OPEN),
    "both were interrupted": (
        [by_inbox(parent="t"), interrupted(parent="t"), says("let me", None), interrupted(parent="a")], INTERRUPTED,
    ),
    "it was interrupted before it said anything": ([by_inbox(parent="t"), interrupted(parent="u-inbox")], INTERRUPTED),
    "ids that are none": (
        [by_inbox(parent=["a"]), {"type": "system", "uuid": {}, "parentUuid": ["a"]}, says("done")], answer("done"),
    ),
    "an interruption without a parent is its own": ([by_inbox(parent=None), interrupted()], INTERRUPTED),
    "noise in between": (
        [b"", b"{", b"null", b"[]", b"\xff\xfe", ours(), b"7", {"type": 5}, {"type": "attachment"}, says("done")], answer("done"),
    ),
    "half a line at the end": ([ours(), says("done"), b'{"type":"user","mess'], answer("done")),
}  # fmt: skip


@pytest.mark.requirement("DE-22", "DE-33")
@pytest.mark.parametrize(("entries", "expected"), CLAUDE.values(), ids=CLAUDE)
def test_what_claude_wrote_of_a_message(entries: list[Entry | bytes], expected: Record) -> None:
    assert claude.record_of(lines(*entries), KEY) == expected


NAMING_CLAUDE: dict[str, tuple[list[Entry | bytes], Record]] = {
    "a finished turn that closes with it": ([says(f"done\n{TOKEN}")], answer(f"done\n{TOKEN}")),
    "an interim word": ([says(f"I begin\n{TOKEN}", "tool_use"), uses_tool()], ABSENT),
    "a word that is not finished": ([says(f"I begin\n{TOKEN}", None)], ABSENT),
    "not on the last line": ([says(f"{TOKEN}\nmore later")], ABSENT),
    "in the request alone": ([ours(), says("done")], ABSENT),
    "in a tool's output": ([tool_result(TOKEN), says("done")], ABSENT),
    "by a sub-agent": ([says(f"done\n{TOKEN}", isSidechain=True)], ABSENT),
    "another one": ([says("done\nreq_1700000000001_fedcba")], ABSENT),
    "later, after others": ([says("one"), prompt("x"), says(f"late\n{TOKEN}")], answer(f"late\n{TOKEN}")),
}


@pytest.mark.requirement("DE-33")
@pytest.mark.parametrize(("entries", "expected"), NAMING_CLAUDE.values(), ids=NAMING_CLAUDE)
def test_which_turn_of_claudes_closes_with_a_token(entries: list[Entry | bytes], expected: Record) -> None:
    assert claude.answer_naming(lines(*entries), TOKEN) == expected


# Codex: 0.147.0 (user_message, agent_message) and 0.154.0, 0.171.0 (item_completed)


def event(kind: str, **fields: Any) -> Entry:
    return {"timestamp": "2026-11-30T00:00:00Z", "type": "event_msg", "payload": {"type": kind, **fields}}


def started(turn: str = "t1") -> Entry:
    return event("task_started", turn_id=turn)


def item(kind: str, turn: str = "t1", **fields: Any) -> Entry:
    return event("item_completed", turn_id=turn, item={"type": kind, **fields})


def message(turn: str = "t1", client_id: str | None = TOKEN) -> Entry:
    return item("UserMessage", turn, client_id=client_id, content=[{"type": "text", "text": "please"}])


def agent_says(text: str, turn: str = "t1") -> Entry:
    return item("AgentMessage", turn, content=[{"type": "Text", "text": text}])


def complete(text: str | None = "done", turn: str = "t1", **more: Any) -> Entry:
    return event("task_complete", turn_id=turn, last_agent_message=text, **more)


def aborted(turn: str = "t1") -> Entry:
    return event("turn_aborted", turn_id=turn, reason="interrupted")


def spoken(text: str) -> Entry:
    content = [{"type": "input_text", "text": text}]
    return {"type": "response_item", "payload": {"type": "message", "role": "user", "content": content, "client_id": TOKEN}}


OLD_MESSAGE = event("user_message", client_id=TOKEN, message=f"please\nrequest: {TOKEN}")
META: Entry = {"type": "session_meta", "payload": {"id": THREAD}}


def turned(found: Found, text: str = "", turn: str = "t1") -> Record:
    return Record(found, text, turn)


CODEX: dict[str, tuple[list[Entry | bytes], Record]] = {
    "nothing": ([], ABSENT),
    "another message": ([META, started(), message(client_id="other"), complete()], ABSENT),
    "a message without a client id": ([started(), message(client_id=None), complete()], ABSENT),
    "its key in somebody's text": ([started(), message(client_id="other"), agent_says(f"{TOKEN}?"), complete(TOKEN)], ABSENT),
    "its key in what the model was shown": ([started(), spoken(f"request: {TOKEN}"), complete()], ABSENT),
    "its key on something that is no message": ([started(), item("CommandExecution", client_id=TOKEN), complete()], ABSENT),
    "taken": ([META, started(), message()], turned(Found.OPEN)),
    "at work": ([started(), spoken("please"), message(), agent_says("let me look")], turned(Found.OPEN)),
    "answered": ([META, started(), message(), agent_says("done"), complete("done")], turned(Found.ANSWERED, "done")),
    "answered by what it said last": ([started(), message(), agent_says("done"), complete(None)], turned(Found.ANSWERED, "done")),
    "answered after an earlier turn": (
        [started("t0"), message("t0", "other"), complete("x", "t0"), started(), message(), complete()],
        turned(Found.ANSWERED, "done"),
    ),
    "another turn's end is not its own": (
        [started(), message(), complete("x", "t0"), aborted("t0"), complete()], turned(Found.ANSWERED, "done"),
    ),
    "failed": ([started(), message(), complete(None, error={"message": "boom"})], turned(Found.INTERRUPTED)),
    "interrupted": ([started(), message(), agent_says("let me"), aborted()], turned(Found.INTERRUPTED)),
    "died in its turn, and the person went on": (
        [started(), message(), agent_says("let me"), started("t2"), message("t2", "other"), complete("x", "t2")],
        turned(Found.INTERRUPTED),
    ),
    "0.147: taken": ([started(), OLD_MESSAGE], turned(Found.OPEN)),
    "0.147: answered": (
        [started(), OLD_MESSAGE, event("agent_message", message="done"), complete("done")], turned(Found.ANSWERED, "done"),
    ),
    "0.147: interrupted": ([started(), OLD_MESSAGE, aborted()], turned(Found.INTERRUPTED)),
    "0.147: another one's": (
        [started(), event("user_message", client_id="other", message=f"request: {TOKEN}"), complete("x")], ABSENT,
    ),
    "named in a turn before": (
        [started("t0"), message("t0", "other"), agent_says(f"I wait for {TOKEN}", "t0"), complete("x", "t0"),
         started(), message(), complete()],
        turned(Found.ANSWERED, "done"),
    ),
    "noise in between": (
        [b"", b"{", started(), b"null", message(), {"type": "event_msg", "payload": 5}, complete()],
        turned(Found.ANSWERED, "done"),
    ),
}  # fmt: skip


@pytest.mark.requirement("DE-22", "DE-33")
@pytest.mark.parametrize(("entries", "expected"), CODEX.values(), ids=CODEX)
def test_what_codex_wrote_of_a_message(entries: list[Entry | bytes], expected: Record) -> None:
    written = lines(*entries)
    at = next((number for number, line in enumerate(written) if TOKEN.encode() in line), len(written))
    assert codex.record_of(written[:at], written[at:], TOKEN) == expected


NAMING_CODEX: dict[str, tuple[list[Entry | bytes], Record]] = {
    "a finished turn that closes with it": ([complete(f"done\n{TOKEN}")], Record(Found.ANSWERED, f"done\n{TOKEN}", "t1")),
    "an interim word": ([agent_says(f"I begin\n{TOKEN}")], ABSENT),
    "not on the last line": ([complete(f"{TOKEN}\nmore later")], ABSENT),
    "in the request alone": ([OLD_MESSAGE, complete("done")], ABSENT),
    "a turn without words": ([complete(None)], ABSENT),
    "later, after others": ([complete("x"), complete(f"late\n{TOKEN}", "t2")], Record(Found.ANSWERED, f"late\n{TOKEN}", "t2")),
}


@pytest.mark.requirement("DE-33")
@pytest.mark.parametrize(("entries", "expected"), NAMING_CODEX.values(), ids=NAMING_CODEX)
def test_which_turn_of_codexs_closes_with_a_token(entries: list[Entry | bytes], expected: Record) -> None:
    assert codex.answer_naming(lines(*entries), TOKEN) == expected


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=9) | st.sampled_from((KEY, TOKEN, "user", "event_msg", "text")),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(("type", "message", "content", "payload", "item", "attachment", "uuid", "client_id")), inner
        )
    ),
    max_leaves=12,
)


@pytest.mark.requirement("DE-22")
@given(st.lists(json_values.map(lambda value: json.dumps(value).encode()) | st.binary(max_size=20), max_size=6))
def test_records_that_nobody_has_seen_yet_are_no_failure(written: list[bytes]) -> None:
    for found in (
        claude.record_of(written, KEY),
        claude.answer_naming(written, TOKEN),
        codex.record_of(written, written, TOKEN),
        codex.answer_naming(written, TOKEN),
    ):
        assert isinstance(found.text, str)


# the stores


def write(path: Path, *entries: Entry | bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(line + b"\n" for line in lines(*entries)))


@pytest.mark.requirement("DE-22")
def test_a_session_of_claudes_is_found_in_whichever_project_it_stands(tmp_path: Path) -> None:
    store = str(tmp_path)
    write(tmp_path / "projects" / "-w-a" / "other.jsonl", ours(), says("not this one"))
    write(tmp_path / "projects" / "-w-b" / f"{SESSION}.jsonl", prompt("x"), says("y"), ours(), says(f"done\n{TOKEN}"))
    assert claude_sessions.record(store, SESSION, KEY) == answer(f"done\n{TOKEN}")
    assert claude_sessions.answer_naming(store, SESSION, TOKEN) == answer(f"done\n{TOKEN}")
    assert claude_sessions.record(store, SESSION, "another key") == ABSENT
    assert claude_sessions.record(store, "*", KEY) == UNKNOWN


@pytest.mark.requirement("DE-22")
def test_a_transcript_that_is_missing_proves_nothing(tmp_path: Path) -> None:
    """Persistence may be off, or the file was deleted: the session may have had the message, and worked on it."""
    write(tmp_path / "projects" / "-w" / "other.jsonl", ours(), says("not this one"))
    for store in (tmp_path, tmp_path / "gone"):
        assert claude_sessions.record(str(store), SESSION, KEY) == UNKNOWN
        assert claude_sessions.answer_naming(str(store), SESSION, TOKEN) == UNKNOWN


@pytest.fixture
def rollout(tmp_path: Path) -> Path:
    return tmp_path / "sessions" / "2026" / "11" / "30" / f"rollout-2026-11-30T14-54-42-{THREAD}.jsonl"


def waits(store: Path, client_id: str, thread: str = THREAD) -> None:
    """A message in Codex's own queue."""
    payload = json.dumps({"UserInput": {"content": [{"type": "text", "text": "please"}], "client_id": client_id}})
    with closing(sqlite3.connect(store / "queue_1.sqlite")) as database:
        database.execute("CREATE TABLE IF NOT EXISTS queued_items (id, thread_id, payload_json, queue_order)")
        database.execute("INSERT INTO queued_items VALUES ('q', ?, ?, 1)", (thread, payload))
        database.commit()


@pytest.mark.requirement("DE-22")
def test_a_message_that_waits_in_codexs_queue_is_found_there(tmp_path: Path, rollout: Path) -> None:
    store = str(tmp_path)
    waits(tmp_path, "other")
    waits(tmp_path, TOKEN, "another thread")
    assert codex_sessions.record(store, THREAD, TOKEN) == UNKNOWN
    waits(tmp_path, TOKEN)
    assert codex_sessions.record(store, THREAD, TOKEN) == WAITING
    write(rollout, META, started("t0"), message("t0", "other"), complete("x", "t0"))
    assert codex_sessions.record(store, THREAD, TOKEN) == WAITING


def indexed(store: Path, *threads: str) -> None:
    """Codex's index of threads; it gets a row with a thread's first turn."""
    with closing(sqlite3.connect(store / "state_5.sqlite")) as database:
        database.execute("CREATE TABLE IF NOT EXISTS threads (id TEXT PRIMARY KEY, rollout_path TEXT)")
        database.executemany("INSERT INTO threads VALUES (?, '')", [(thread,) for thread in threads])
        database.commit()


def queue_used(store: Path, *threads: str) -> None:
    """What stays noted of queues that have held something."""
    with closing(sqlite3.connect(store / "queue_1.sqlite")) as database:
        database.execute("CREATE TABLE IF NOT EXISTS queued_items (id, thread_id, payload_json, queue_order)")
        database.execute("CREATE TABLE IF NOT EXISTS queued_thread_revisions (revision INTEGER PRIMARY KEY, thread_id)")
        database.executemany("INSERT INTO queued_thread_revisions (thread_id) VALUES (?)", [(thread,) for thread in threads])
        database.commit()


@pytest.mark.requirement("DE-22")
def test_a_rollout_that_is_missing_proves_nothing_but_of_a_thread_that_was_never_used(tmp_path: Path, rollout: Path) -> None:
    store = str(tmp_path)
    assert codex_sessions.record(store, THREAD, TOKEN) == UNKNOWN  # no index: nothing tells whether it was used
    indexed(tmp_path, "another thread")
    assert codex_sessions.record(store, THREAD, TOKEN) == ABSENT  # 0.147.0
    queue_used(tmp_path, "another thread")
    assert codex_sessions.record(store, THREAD, TOKEN) == ABSENT
    queue_used(tmp_path, THREAD)
    assert codex_sessions.record(store, THREAD, TOKEN) == UNKNOWN  # the thread was deleted after something was handed over
    (tmp_path / "queue_1.sqlite").unlink()
    indexed(tmp_path, THREAD)
    assert codex_sessions.record(store, THREAD, TOKEN) == UNKNOWN  # it had a turn, and its rollout is gone
    assert codex_sessions.answer_naming(store, THREAD, TOKEN) == UNKNOWN
    write(rollout, META, started("t0"), complete("x", "t0"))
    assert codex_sessions.record(store, THREAD, TOKEN) == ABSENT


@pytest.mark.requirement("DE-22")
@pytest.mark.parametrize("content", [b"no database at all, but long enough to be looked at " * 20, b""])
def test_an_index_that_can_not_be_read_decides_nothing(tmp_path: Path, content: bytes) -> None:
    indexed(tmp_path)
    (tmp_path / "state_6.sqlite").write_bytes(content)
    assert codex_sessions.record(str(tmp_path), THREAD, TOKEN) == UNKNOWN


@pytest.mark.requirement("DE-22")
def test_a_rollout_that_was_archived_still_tells(tmp_path: Path, rollout: Path) -> None:
    write(tmp_path / "archived_sessions" / rollout.name, META, started(), message(), complete())
    assert codex_sessions.record(str(tmp_path), THREAD, TOKEN) == turned(Found.ANSWERED, "done")


@pytest.mark.requirement("DE-22")
def test_a_turn_that_began_counts_more_than_an_item_that_was_seen_in_the_queue(tmp_path: Path, rollout: Path) -> None:
    """It leaves the queue when its turn begins: between the two looks it may be in both."""
    waits(tmp_path, TOKEN)
    write(rollout, META, started(), message())
    assert codex_sessions.record(str(tmp_path), THREAD, TOKEN) == turned(Found.OPEN)


@pytest.mark.requirement("DE-22")
def test_of_several_rollouts_of_a_thread_the_newest_counts(tmp_path: Path, rollout: Path) -> None:
    write(rollout, started(), message(), aborted())
    write(rollout.with_name(f"rollout-2026-11-30T15-00-00-{THREAD}.jsonl"), started(), message(), complete())
    assert codex_sessions.record(str(tmp_path), THREAD, TOKEN) == turned(Found.ANSWERED, "done")


@pytest.mark.requirement("DE-22")
def test_the_turn_of_an_old_message_is_the_one_that_had_begun(tmp_path: Path, rollout: Path) -> None:
    """0.147 names no turn in the message itself, and the first mention of the key comes after the turn's begin."""
    write(rollout, META, started("t0"), complete("x", "t0"), started(), spoken(f"request: {TOKEN}"), OLD_MESSAGE, complete())
    assert codex_sessions.record(str(tmp_path), THREAD, TOKEN) == turned(Found.ANSWERED, "done")


@pytest.mark.requirement("DE-22")
@pytest.mark.parametrize("content", [b"no database at all, but long enough to be looked at " * 20, None])
def test_a_queue_that_can_not_be_read_decides_nothing(tmp_path: Path, rollout: Path, content: bytes | None) -> None:
    write(rollout, started("t0"), complete("x", "t0"))
    if content is not None:
        (tmp_path / "queue_1.sqlite").write_bytes(content)
    else:
        with closing(sqlite3.connect(tmp_path / "queue_1.sqlite")) as database:
            database.execute("CREATE TABLE queued_things (id)")
            database.commit()
    assert codex_sessions.record(str(tmp_path), THREAD, TOKEN) == UNKNOWN


# who holds a session


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    """Another process."""
    with subprocess.Popen([sys.executable, "-I", "-S", "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE) as process:
        yield process
        process.kill()


def identity(pid: int) -> ProcessId:
    found = identify(pid)
    assert found is not None
    return found


def registered(store: Path, process: ProcessId, session: str = SESSION, **more: Any) -> None:
    record = {
        "pid": process.pid,
        "sessionId": session,
        "procStart": str(process.start),
        "cwd": "/w",
        "kind": "interactive",
        **more,
    }
    (store / "sessions").mkdir(exist_ok=True)
    (store / "sessions" / f"{process.pid}.json").write_text(json.dumps(record))


@pytest.mark.requirement("SE-09")
def test_every_living_process_that_holds_a_session_of_claudes_is_told(tmp_path: Path, child: subprocess.Popen[bytes]) -> None:
    assert claude_live.holders(str(tmp_path), SESSION) == []
    both = [identity(os.getpid()), identity(child.pid)]
    for process in both:
        registered(tmp_path, process)
    assert sorted(claude_live.holders(str(tmp_path), SESSION)) == sorted(both)
    assert claude_live.holders(str(tmp_path), "another session") == []


@pytest.mark.requirement("SE-09")
def test_a_process_that_died_holds_nothing(tmp_path: Path, child: subprocess.Popen[bytes]) -> None:
    registered(tmp_path, identity(child.pid))
    child.kill()
    child.wait()
    assert claude_live.holders(str(tmp_path), SESSION) == []


@pytest.mark.requirement("SE-09")
def test_a_process_that_died_and_is_not_collected_holds_nothing(tmp_path: Path, child: subprocess.Popen[bytes]) -> None:
    registered(tmp_path, identity(child.pid))
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert claude_live.holders(str(tmp_path), SESSION) == []


@pytest.mark.requirement("SE-09")
def test_a_process_that_has_the_pid_by_now_holds_nothing(tmp_path: Path) -> None:
    me = identity(os.getpid())
    registered(tmp_path, me._replace(start=me.start - 1))
    assert claude_live.holders(str(tmp_path), SESSION) == []


@pytest.mark.requirement("SE-09")
@pytest.mark.parametrize("content", ["", "{", "[]", "null", '{"pid": 1}', "\x00"])
def test_a_registry_that_can_not_be_read_names_nobody_and_hides_nobody(tmp_path: Path, content: str) -> None:
    me = identity(os.getpid())
    registered(tmp_path, me)
    for name in ("1.json", "x.json", "2.txt", "².json"):
        (tmp_path / "sessions" / name).write_text(content)
    assert claude_live.holders(str(tmp_path), SESSION) == [me]


@pytest.mark.requirement("SE-09")
def test_a_name_that_somebody_gave_is_told_from_a_derived_one(tmp_path: Path) -> None:
    me = identity(os.getpid())
    for source, chosen in (("user", True), ("derived", False), (None, False)):
        registered(tmp_path, me, name="Tests", **({"nameSource": source} if source else {}))
        record = claude_live.read(str(tmp_path), me.pid)
        assert record is not None
        assert (record.name, record.name_given) == ("Tests", chosen)


@pytest.mark.requirement("SE-09")
@pytest.mark.skipif(sys.platform != "linux", reason="the kernel tells nobody who holds a lock")
def test_a_thread_of_codexs_is_held_while_its_lock_is(tmp_path: Path) -> None:
    store = str(tmp_path)
    assert codex_live.holders(store, THREAD) == []
    (tmp_path / "thread-writer-locks").mkdir()
    lock = os.open(tmp_path / "thread-writer-locks" / f"{THREAD}.lock", os.O_RDWR | os.O_CREAT)
    try:
        assert codex_live.holders(store, THREAD) == [], "a lock file is left behind by a kill"
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert codex_live.holders(store, THREAD) == [identity(os.getpid())]
        assert codex_live.holders(store, "another thread") == []
    finally:
        os.close(lock)
    assert codex_live.holders(store, THREAD) == []
