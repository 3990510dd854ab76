"""Which records of a session tell that somebody other than us was at work in it, and when."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker import reader as reader_module
from broker.deliveries import State
from broker.focus import Focus
from broker.reader import Reader
from broker.wire import SessionState
from shims import moved, tail
from shims.claude import sessions as claude_sessions
from shims.claude import transcript as claude
from shims.codex import sessions as codex_sessions
from shims.codex import transcript as codex
from tests.unit.engine import engine
from tests.unit.made_up import CLAUDE as CLAUDE_AGENT
from tests.unit.made_up import World, caller_in
from tests.unit.test_transcripts import (
    DEQUEUED,
    KEY,
    OLD_MESSAGE,
    QUEUED,
    SESSION,
    THREAD,
    TOKEN,
    Entry,
    agent_says,
    complete,
    event,
    folded,
    interrupted,
    json_values,
    lines,
    message,
    ours,
    prompt,
    says,
    started,
    tool_result,
    uses_tool,
    write,
)

pytestmark = pytest.mark.requirement("SE-22")

KEYS = frozenset((KEY, TOKEN))


def timed(*entries: Entry | bytes, first: int = 1) -> list[Entry | bytes]:
    """Records that were written one after the other, a second between two, from second ``first`` on."""
    return [
        {**entry, "timestamp": _stamp(second)} if isinstance(entry, dict) else entry
        for second, entry in enumerate(entries, first)
    ]


def _stamp(second: int) -> str:
    return datetime.fromtimestamp(second, timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")


CLAUDE: dict[str, tuple[list[Entry | bytes], float]] = {
    "nothing": ([], 0),
    "a turn of the person's": ([prompt("x"), says("y")], 2),
    "a turn of ours": ([ours(), says("y")], 0),
    "theirs, then ours": ([prompt("x"), says("y"), QUEUED, DEQUEUED, ours(), uses_tool(), tool_result(), says("z")], 2),
    "ours, then theirs": ([ours(), says("z"), prompt("x"), uses_tool()], 4),
    "two of ours after theirs": ([prompt("x"), ours(), says("z"), prompt("again", TOKEN), says("z")], 1),
    "what is before the first prompt is nobody's": ([says("y"), ours(), says("z")], 0),
    "a word of the person's into our turn": ([ours(), uses_tool(), folded("other"), says("both")], 4),
    "a word of ours into the person's turn": ([prompt("x"), uses_tool(), folded(), says("both")], 4),
    "a note of the agent's into our turn": ([ours(), folded("other") | {"attachment": {"type": "queued_command"}}], 0),
    "our turn is interrupted": ([prompt("x"), ours(), interrupted()], 1),
    "our turn is compacted": ([ours(), prompt("so far", isCompactSummary=True), says("z")], 0),
    "a note of the agent's own": ([ours(), prompt("<note>", isMeta=True), says("z")], 0),
    "sub-agents of ours": ([ours(), prompt("sub", isSidechain=True), says("z", isSidechain=True)], 0),
    "what the end of the process writes": ([prompt("x"), says("y"), {"type": "last-prompt"}, {"type": "mode"}], 2),
    "noise": ([b"", b"{", b"null", prompt("x"), b"\xff", {"type": 7}], 4),
}

CODEX: dict[str, tuple[list[Entry | bytes], float]] = {
    "nothing": ([], 0),
    "a turn of the person's": ([started(), message(client_id=None), agent_says("y"), complete()], 4),
    "a turn of a client's": ([started(), message(client_id="other"), complete()], 3),
    "a turn of ours": ([started(), message(), agent_says("y"), complete()], 0),
    "theirs, then ours": ([started("t0"), message("t0", None), complete("x", "t0"), started(), message(), complete()], 3),
    "ours, then theirs": ([started(), message(), complete(), started("t2"), message("t2", None)], 5),
    "ours, then one whose message is to come": ([started(), message(), complete(), started("t2")], 0),
    "what is before the first message is nobody's": ([agent_says("y"), complete("y", "t0"), started(), message()], 0),
    "the person steers our turn": ([started(), message(), message(client_id=None), agent_says("y")], 4),
    "0.147: theirs, then ours": (
        [started("t0"), event("user_message", client_id=None), complete("x", "t0"), started(), OLD_MESSAGE, complete()], 3,
    ),
    "noise": ([b"", started(), b"null", message(client_id=None), {"type": "event_msg", "payload": 5}], 5),
}  # fmt: skip


@pytest.mark.parametrize(("entries", "expected"), CLAUDE.values(), ids=CLAUDE)
def test_when_others_moved_a_session_of_claudes(entries: list[Entry | bytes], expected: float) -> None:
    assert claude.last_of_others(lines(*timed(*entries)), KEYS) == expected


@pytest.mark.parametrize(("entries", "expected"), CODEX.values(), ids=CODEX)
def test_when_others_moved_a_thread_of_codexs(entries: list[Entry | bytes], expected: float) -> None:
    assert codex.last_of_others(lines(*timed(*entries)), KEYS) == expected


@given(st.lists(json_values.map(lambda value: json.dumps(value).encode()) | st.binary(max_size=20), max_size=6))
def test_records_that_nobody_has_seen_yet_are_no_failure(written: list[bytes]) -> None:
    assert claude.last_of_others(written, KEYS) == codex.last_of_others(written, KEYS) == 0


@pytest.mark.parametrize("odd", [[], {}, 7, None, True])
def test_an_id_of_another_kind_is_not_ours(odd: object) -> None:
    assert claude.last_of_others(lines(*timed({**prompt("x"), "uuid": odd})), KEYS) == 1
    assert codex.last_of_others(lines(*timed(event("user_message", client_id=odd))), KEYS) == 1


@given(st.none() | st.integers() | st.text(max_size=30) | st.sampled_from(("9999-99-99T00:00:00Z", "0001-01-01", "12:00Z")))
def test_a_time_that_nobody_can_read_is_none(stamp: Any) -> None:
    assert isinstance(moved.moment({"timestamp": stamp}), float)


def test_a_file_is_looked_at_only_as_far_back_as_it_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind a turn of ours that fills the end of the file, there may be one of the person's."""
    monkeypatch.setattr(moved, "_SPANS", (1_000, 10_000))
    seen: list[int] = []
    kept = tail.last_lines

    def last_lines(path: str, span: int) -> Iterator[bytes]:
        seen.append(span)
        return kept(path, span)

    monkeypatch.setattr(tail, "last_lines", last_lines)
    path = tmp_path / "projects" / "-w" / f"{SESSION}.jsonl"
    work = [says("z" * 100, "tool_use") for _ in range(20)]
    write(path, *timed(prompt("x"), says("y"), ours(), *work))
    assert claude_sessions.moved(str(tmp_path), SESSION, KEYS) == 2
    assert seen == [1_000, 10_000]
    write(path, *timed(ours(), *work, prompt("x"), says("y")))
    assert claude_sessions.moved(str(tmp_path), SESSION, KEYS) == 23
    assert seen[2:] == [1_000]
    write(path, *timed(prompt("x"), ours(), *work * 10))
    assert claude_sessions.moved(str(tmp_path), SESSION, KEYS) == 0  # too far back: nothing is claimed


def test_the_time_of_the_file_does_not_count(tmp_path: Path) -> None:
    """Claude Code sets it whenever it opens a session."""
    path = tmp_path / "projects" / "-w" / f"{SESSION}.jsonl"
    write(path, *timed(prompt("x"), says("y")))
    os.utime(path, (10**9, 10**9))
    assert claude_sessions.moved(str(tmp_path), SESSION, ()) == 2


def test_a_session_without_records_has_never_moved(tmp_path: Path) -> None:
    assert claude_sessions.moved(str(tmp_path), SESSION, KEYS) == 0
    assert codex_sessions.moved(str(tmp_path), THREAD, KEYS) == 0
    (tmp_path / "projects" / "-w" / f"{SESSION}.jsonl").mkdir(parents=True)
    assert claude_sessions.moved(str(tmp_path), SESSION, KEYS) == 0


# the question, as the broker asks it


def _stored(store: Path, session: str, *entries: Entry | bytes) -> None:
    write(store / "projects" / "-w" / f"{session}.jsonl", *entries)


def test_sessions_are_asked_about_at_once_and_ours_are_known_by_their_keys(tmp_path: Path) -> None:
    """Raw messages have no frame; what tells them is the record of deliveries."""
    store = tmp_path / "store"
    _stored(store, "a", *timed(prompt("x"), says("y"), prompt("raw", "k-a"), says("z")))
    _stored(store, "b", *timed(prompt("x"), says("y"), first=50))
    _stored(store, "c", *timed(prompt("reply", "k-c"), says("z"), first=90))
    world = World()
    for name in ("a", "b", "c"):
        panel = world.opens(SessionState(name))
        panel.store = str(store)
    caller = caller_in(world.opens(SessionState("me"), agent="codex"))

    async def story() -> None:
        async with engine(tmp_path) as made:
            focus = Focus(made.book, world.panels, made.reader)
            await made.queued(session="a", key="k-a", raw=True)
            await made.queued(session="c", key="k-c", state=State.DELIVERED)
            await made.queued(session="b", agent="codex", key="u-other")  # to a session of another agent's
            assert await focus.moved(CLAUDE_AGENT, caller) == {"a": 2, "b": 51, "c": 0}

    asyncio.run(story())


def test_a_reader_that_takes_too_long_tells_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader_module, "_SHORT_PATIENCE", 0.001)
    _stored(tmp_path, "a", *timed(prompt("x")))
    assert asyncio.run(Reader().moved("claude", [(str(tmp_path), "a")], [])) == {}


def test_a_reader_that_nobody_waits_for_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "slow.py"
    pid = tmp_path / "pid"
    os.mkfifo(pid)
    program.write_text(f"import os, signal\nopen({str(pid)!r}, 'w').write(str(os.getpid()))\nsignal.pause()\n")
    monkeypatch.setattr(reader_module, "_PROGRAM", str(program))

    async def story() -> None:
        asked = asyncio.ensure_future(Reader().record("claude", "/s", "a", "k"))
        number = int(await asyncio.get_running_loop().run_in_executor(None, pid.read_text))
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked
        with pytest.raises(ProcessLookupError):
            os.kill(number, 0)

    asyncio.run(story())


def test_the_reader_program_answers_for_each_session(tmp_path: Path) -> None:
    _stored(tmp_path, "a", *timed(prompt("x")))
    found = asyncio.run(Reader().moved("claude", [(str(tmp_path), "a"), (str(tmp_path), "b")], [KEY]))
    assert found == {"a": 1, "b": 0}
