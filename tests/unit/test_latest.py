"""The end of a session's records: its last answer, whether a turn is open, what was said since (SE-08)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker import reader as reader_module
from broker import status
from broker.panels import Panels
from broker.reader import Reader
from broker.routes import Reach
from broker.wire import SessionState
from shims import tail
from shims.agent import Latest, agents
from shims.claude import transcript as claude
from shims.codex import transcript as codex
from shims.grok import transcript as grok
from tests.unit import test_grok_records as told
from tests.unit.engine import engine
from tests.unit.made_up import World
from tests.unit.test_moved import timed
from tests.unit.test_transcripts import (
    DEQUEUED,
    META,
    OLD_MESSAGE,
    QUEUED,
    SESSION,
    THREAD,
    TOKEN,
    Entry,
    aborted,
    agent_says,
    complete,
    event,
    folded,
    interrupted,
    item,
    json_values,
    lines,
    message,
    ours,
    prompt,
    says,
    spoken,
    started,
    tool_result,
    uses_tool,
)

pytestmark = pytest.mark.requirement("SE-08")

Read = Callable[[Iterable[bytes], float], Latest]
Case = tuple[list[Entry | bytes], Latest]

TURN: list[Entry | bytes] = [prompt("x"), says("one")]
COMMAND = prompt("<command-name>/context</command-name>")
del COMMAND["promptSource"]
"""It runs without the model."""
LOCAL = {"type": "system", "subtype": "local_command", "content": "<local-command-stdout>…</local-command-stdout>"}
BOUNDARY = {"type": "system", "subtype": "compact_boundary"}
THINKS = {"type": "assistant", "message": {"content": [{"type": "thinking", "thinking": "hm"}]}}
FAILED = says("API Error: 400 no", "stop_sequence", isApiErrorMessage=True)

# Every record is written at the second of its place in the list, the first at 1; what is asked about is after second 2.

CLAUDE: dict[str, Case] = {
    "nothing": ([], Latest()),
    "a turn": (TURN, Latest("one", 2.0)),
    "two turns": ([*TURN, QUEUED, DEQUEUED, ours(), says("two")], Latest("two", 6.0, since="two")),
    "the second is open": ([*TURN, ours(), says("let me", "tool_use"), uses_tool()], Latest("one", 2.0, True, "let me")),
    "its tool has answered": ([*TURN, ours(), uses_tool(), tool_result("no words")], Latest("one", 2.0, True)),
    "its words come": ([*TURN, ours(), says("let me", None)], Latest("one", 2.0, True, "let me")),
    "it has only begun": ([*TURN, QUEUED, DEQUEUED, ours()], Latest("one", 2.0, True)),
    "it only waits": ([*TURN, QUEUED], Latest("one", 2.0)),
    "words around a tool": (
        [*TURN, ours(), says("let me", "tool_use"), uses_tool(), tool_result(), says("done")],
        Latest("done", 7.0, since="let me\n\ndone"),
    ),
    "an answer in two records": ([prompt("x"), says("one"), says("two")], Latest("two", 3.0, since="two")),
    "interrupted": ([*TURN, prompt("y"), says("half", None), interrupted()], Latest("one", 2.0, since="half")),
    "interrupted in a tool": ([*TURN, prompt("y"), uses_tool(), tool_result(), interrupted()], Latest("one", 2.0)),
    "failed": ([*TURN, prompt("y"), says("half", "tool_use"), FAILED], Latest("one", 2.0, since="half")),
    "died, and the next ended": (
        [*TURN, prompt("y"), uses_tool(), prompt("z"), says("three")], Latest("three", 6.0, since="three"),
    ),
    "died, and the next was without words": (
        [*TURN, prompt("y"), says("half", None), prompt("z"), {**says(""), "message": {"stop_reason": "end_turn"}}],
        Latest("one", 2.0, since="half"),
    ),
    "a sub-agent speaks": ([*TURN, prompt("sub", isSidechain=True), says("sub", isSidechain=True)], Latest("one", 2.0)),
    "a message folds into it": (
        [prompt("x"), uses_tool(), tool_result(), folded(), says("both")], Latest("both", 5.0, since="both"),
    ),
    "compacted between turns": ([*TURN, prompt("so far", isCompactSummary=True), prompt("n", isMeta=True)], Latest("one", 2.0)),
    "compacted in a turn": (
        [prompt("x"), uses_tool(), tool_result(), BOUNDARY, prompt("so far", isCompactSummary=True)],
        Latest(open=True),
    ),
    "a command without the model": ([*TURN, COMMAND, LOCAL], Latest("one", 2.0)),
    "begun out of sight, ended": ([says("one")], Latest("one", 1.0)),
    "begun out of sight, at work": ([tool_result()], Latest(open=True)),
    "thoughts": ([*TURN, prompt("y"), THINKS], Latest("one", 2.0, True)),
    "noise": (
        [b"{", *TURN, b"null", b"\xff", {"type": "assistant", "message": 7, "isSidechain": True}],
        Latest("one", 3.0, since="one"),
    ),
    "half a line": ([*TURN, b'{"type":"user","promptSource":"sdk","message":{"con'], Latest("one", 2.0)),
}  # fmt: skip

CODEX: dict[str, Case] = {
    "nothing": ([], Latest()),
    "a turn": ([META, started(), message(), agent_says("one"), complete("one")], Latest("one", 5.0, since="one")),
    "another is open": (
        [complete("one"), META, started("t2"), message("t2"), agent_says("let me", "t2")], Latest("one", 1.0, True, "let me"),
    ),
    "it has only begun": ([complete("one"), META, started("t2")], Latest("one", 1.0, True)),
    "interim words": (
        [META, started(), message(), agent_says("let me"), item("CommandExecution"), agent_says("done"), complete("done")],
        Latest("done", 7.0, since="let me\n\ndone"),
    ),
    "the end names no words": ([started(), message(), agent_says("one"), complete(None)], Latest("one", 4.0, since="one")),
    "interrupted": (
        [complete("one"), META, started("t2"), agent_says("half", "t2"), aborted("t2")], Latest("one", 1.0, since="half"),
    ),
    "failed": ([complete("one"), META, started("t2"), complete(None, "t2", error={"message": "boom"})], Latest("one", 1.0)),
    "died, and the next ended": (
        [started("t0"), agent_says("half", "t0"), started(), complete("one")], Latest("one", 4.0),
    ),
    "another turn's end is not its own": ([started(), message(), complete("x", "t0"), aborted("t0")], Latest(open=True)),
    "compacted between turns": (
        [started(), complete("one"), started("t2"), {"type": "compacted", "payload": {}}, complete(None, "t2")],
        Latest("one", 2.0),
    ),
    "what the model is shown": ([complete("one"), META, spoken("x")], Latest("one", 1.0)),
    "0.147: a turn": (
        [started(), OLD_MESSAGE, event("agent_message", message="one"), complete("one")], Latest("one", 4.0, since="one"),
    ),
    "begun out of sight, at work": ([item("CommandExecution")], Latest(open=True)),
    "begun out of sight, ended": ([item("CommandExecution"), complete("one"), event("token_count")], Latest("one", 2.0)),
    "begun out of sight, interrupted": ([item("CommandExecution"), aborted()], Latest()),
    "noise": ([b"{", started(), b"null", {"type": "event_msg", "payload": 5}, complete(turn="t1")], Latest("done", 5.0)),
    "half a line": ([started(), complete("one"), b'{"type":"event_msg","payload":{"type":"task_sta'], Latest("one", 2.0)),
}  # fmt: skip


def _turn(words: str = "one", key: str = "p1") -> list[Entry | bytes]:
    return [told.asked(), told.said(words, key), told.ended(prompt=key)]


def _update(kind: str, key: str = "", **more: Any) -> Entry:
    return told._line({"sessionUpdate": kind, **more}, key)


THOUGHT = _update("agent_thought_chunk", "p2", content={"type": "text", "text": "hm"})
TASKS = _update("background_tasks", tasks=[])
FOUND = _update("tool_call_update", "p2", content=[{"type": "content", "content": {"type": "text", "text": "no words"}}])

GROK: dict[str, Case] = {
    "nothing": ([], Latest()),
    "a turn": (_turn(), Latest("one", 3.0)),
    "two turns": ([*_turn(), *_turn("two", "p2")], Latest("two", 6.0, since="two")),
    "the second has only begun": ([*_turn(), told.asked()], Latest("one", 3.0, True)),
    "it thinks": ([*_turn(), told.asked(), THOUGHT], Latest("one", 3.0, True)),
    "it is at work": (
        [*_turn(), told.asked(), told.said("let me", "p2"), told.used("p2"), FOUND], Latest("one", 3.0, True, "let me"),
    ),
    "said after the last tool": (
        [*_turn(), told.asked(), told.said("let me", "p2"), told.used("p2"), FOUND,
         told.said("do", "p2"), told.said("ne", "p2"), told.ended(prompt="p2")],
        Latest("done", 10.0, since="let me\n\ndo\n\nne"),
    ),
    "nothing said after the last tool": (
        [told.asked(), told.said("all ", "p2"), told.said("of", "p2"), told.used("p2"), told.said("it", "p2"),
         told.used("p2"), FOUND, told.ended(prompt="p2")],
        Latest("all of\n\nit", 8.0, since="of\n\nit"),
    ),
    "a word into a turn": (
        [told.asked(), told.used("p2"), FOUND, told.asked("too"), told.said("both", "p2"), told.ended(prompt="p2")],
        Latest("both", 6.0, since="both"),
    ),
    "cancelled": (
        [*_turn(), told.asked(), told.said("half", "p2"), told.ended("cancelled", "p2")], Latest("one", 3.0, since="half"),
    ),
    "cancelled before a word": ([*_turn(), told.asked(), told.ended("cancelled", "p2")], Latest("one", 3.0)),
    "failed": ([*_turn(), told.asked(), told.ended("error", "p2")], Latest("one", 3.0)),
    "killed, and loaded again": ([*_turn(), told.asked(), told.ended("interrupted", "p2"), TASKS], Latest("one", 3.0)),
    "cut off by nobody": (
        [told.asked(), told.said("ha", "p2"), told.ended("interrupted", "p2"), told.said("lf", "p2"), told.ended(prompt="p2")],
        Latest("half", 5.0, since="lf"),
    ),
    "what only waited is cut off": ([told.asked(), told.said("half", "p2"), told.ended("interrupted", "p3")], Latest(open=True)),
    "killed, and the next ended": ([told.asked(), told.said("half", "p1"), *_turn("two", "p2")], Latest("two", 5.0, since="two")),
    "killed, and the next was cancelled": (
        [told.asked(), told.said("half", "p1"), told.asked(), told.ended("cancelled", "p2")], Latest(),
    ),
    "handed over again under its id": (
        [told.asked(), told.said("half"), told.ended("interrupted"), told.asked(), told.said("all"), told.ended()],
        Latest("all", 6.0, since="all"),
    ),
    "two prompts of one id": ([*_turn(), *_turn("two")], Latest("two", 6.0, since="two")),
    "a line that comes late": ([*_turn(), told.used("p1")], Latest("one", 3.0)),
    "a command without the model": ([*_turn(), told.ended(prompt="p2")], Latest("one", 3.0)),
    "begun out of sight": ([FOUND], Latest(open=True)),
    "noise": ([b"{", *_turn(), b"null", {"params": 7}, {"params": {"update": []}}], Latest("one", 4.0, since="one")),
    "half a line": ([*_turn(), b'{"timestamp":1,"method":"session/update","par'], Latest("one", 3.0)),
}  # fmt: skip


def at_their_seconds(entries: Iterable[Entry | bytes]) -> list[Entry | bytes]:
    return [told.at(second, entry) if _is_update(entry) else entry for second, entry in enumerate(entries, 1)]  # type: ignore[arg-type]


def _is_update(entry: Entry | bytes) -> bool:
    return isinstance(entry, dict) and isinstance(entry["params"], dict)


READS: dict[str, tuple[Read, dict[str, Case], Callable[..., list[Entry | bytes]]]] = {
    "claude": (claude.latest, CLAUDE, timed),
    "codex": (codex.latest, CODEX, timed),
    "grok": (grok.latest, GROK, lambda *entries: at_their_seconds(entries)),
}


@pytest.mark.parametrize(("agent", "case"), [(agent, case) for agent, (_, cases, _) in READS.items() for case in cases])
def test_the_latest_of_a_session(agent: str, case: str) -> None:
    read, cases, dated = READS[agent]
    entries, expected = cases[case]
    assert read(lines(*dated(*entries)), 2.0) == expected


@pytest.mark.parametrize("agent", READS)
@given(data=st.data())
def test_a_file_that_ends_in_the_middle_tells_what_its_whole_lines_tell(agent: str, data: st.DataObject) -> None:
    """It may be cut anywhere, by whoever writes it just now, and by where the look begins."""
    read, cases, dated = READS[agent]
    written = lines(*dated(*cases[data.draw(st.sampled_from(list(cases)))][0]))
    content = b"".join(line + b"\n" for line in written)
    end = data.draw(st.integers(0, len(content)))
    whole = content[:end].count(b"\n")
    # The braces close at the very end of a line: a line without its newline is whole, and tells already.
    whole += whole < len(written) and content[:end].endswith(written[whole])
    assert read(content[:end].split(b"\n"), 2.0) == read(written[:whole], 2.0)
    read(content[data.draw(st.integers(0, len(content))) :].split(b"\n"), 2.0)


update_values = st.dictionaries(
    st.sampled_from(("sessionUpdate", "prompt_id", "stop_reason", "content", "text")),
    json_values | st.sampled_from(("turn_completed", "agent_message_chunk", "interrupted", "end_turn")),
)
strange_values = json_values | st.fixed_dictionaries(
    {"params": st.fixed_dictionaries({"update": update_values, "_meta": json_values | st.just({"promptId": "p"})})},
    optional={"timestamp": st.sampled_from((10**400, True, None, "x"))},
)


@given(st.lists(strange_values.map(lambda value: json.dumps(value).encode()) | st.binary(max_size=20), max_size=6))
def test_records_that_nobody_has_seen_yet_are_no_failure(written: list[bytes]) -> None:
    for read, _, _ in READS.values():
        found = read(written, 0.0)
        assert isinstance(found.text + found.since, str)


# in the stores, as the broker asks


STORED: dict[str, tuple[str, str]] = {
    "claude": (f"projects/-w/{SESSION}.jsonl", SESSION),
    "codex": (f"sessions/2026/11/30/rollout-2026-11-30T14-54-42-{THREAD}.jsonl", THREAD),
    "grok": (f"sessions/%2Fw/{SESSION}/updates.jsonl", SESSION),
}


def stored(store: Path, agent: str, *entries: Entry | bytes, filler: int = 0) -> str:
    """Writes the records, with ``filler`` bytes in front of the last one; the session's id."""
    place, session = STORED[agent]
    path = store / place
    path.parent.mkdir(parents=True, exist_ok=True)
    dated = READS[agent][2]
    *first, last = lines(*dated(*entries))
    with path.open("wb") as file:
        for line in first:
            file.write(line + b"\n")
        for _ in range(0, filler, 1 << 16):
            file.write(b'{"type":"filler","text":"' + b"x" * ((1 << 16) - 28) + b'"}\n')
        file.write(last + b"\n")
    return session


TWO_TURNS: dict[str, list[Entry | bytes]] = {
    "claude": [*TURN, ours(), says("two \ud800 \U0001f600")],
    "codex": [started(), complete("one"), started("t2"), agent_says("two \ud800 \U0001f600", "t2"), complete(None, "t2")],
    "grok": [*_turn(), *_turn("two \ud800 \U0001f600", "p2")],
}


@pytest.mark.parametrize("agent", STORED)
def test_the_reader_program_tells_the_latest(tmp_path: Path, agent: str) -> None:
    """Both texts as they are, also halves of characters."""
    session = stored(tmp_path, agent, *TWO_TURNS[agent])
    found = asyncio.run(Reader().latest(agent, str(tmp_path), session, 2.5))
    text = "two \ud800 \U0001f600"
    assert found == Latest(text, float(len(TWO_TURNS[agent])), since=text)


@pytest.mark.parametrize("agent", STORED)
def test_what_cannot_be_read_tells_nothing(tmp_path: Path, agent: str, monkeypatch: pytest.MonkeyPatch) -> None:
    place, session = STORED[agent]
    described = agents()[agent]
    assert described.latest(str(tmp_path), session, 0.0) == Latest()
    (tmp_path / place).parent.mkdir(parents=True)
    (tmp_path / place).touch()
    assert described.latest(str(tmp_path), session, 0.0) == Latest()
    (tmp_path / place).unlink()
    (tmp_path / place).mkdir()
    assert described.latest(str(tmp_path), session, 0.0) == Latest()
    monkeypatch.setattr(reader_module, "_PATIENCE", 0.001)
    assert asyncio.run(Reader().latest(agent, str(tmp_path), session, 0.0)) == Latest()


@pytest.mark.parametrize(("agent", "bound"), [("claude", tail.TAIL), ("codex", tail.TAIL), ("grok", 8 << 20)])
def test_the_end_of_a_file_is_read_up_to_a_bound(tmp_path: Path, agent: str, bound: int) -> None:
    """The first turn stands in front of what fills nearly the bound, and then more than it; the last record is one of many."""
    firsts: dict[str, list[Entry | bytes]] = {"claude": TURN, "codex": [started(), complete("one")], "grok": _turn()}
    first = firsts[agent]
    begun = {"claude": ours(), "codex": started("t2"), "grok": told.asked()}[agent]
    described = agents()[agent]
    session = stored(tmp_path, agent, *first, begun, filler=bound - (1 << 17))
    found = described.latest(str(tmp_path), session, 0.0)
    assert (found.text, found.open) == ("one", True)
    stored(tmp_path, agent, *first, begun, filler=bound)
    assert described.latest(str(tmp_path), session, 0.0) == Latest(open=True)


# what is shown of a delivery's peer


def shown(tmp_path: Path, *entries: Entry | bytes, hosted: bool = True) -> dict[str, Any]:
    """`peer_transcript` of a request to a session that has these records."""
    session = stored(tmp_path / "store", "claude", *entries)
    world = World()
    if hosted:
        world.opens(SessionState(session))

    async def story(panels: Panels) -> dict[str, Any]:
        async with engine(tmp_path) as made:
            made.route.reached = Reach("panel", "1@1", "", str(tmp_path / "store"))
            delivery = await made.queued(session=session, key=ours()["uuid"])
            made.carrier.begin()
            await asyncio.wait_for(made.route.news.wait(), 10)
            detail = await status.detail(made.book, panels, made.reader, made.route, delivery.id)
            found: dict[str, Any] = detail["peer_transcript"]
            return found

    return asyncio.run(story(world.panels))


@pytest.mark.requirement("MC-04")
@pytest.mark.parametrize(
    ("entries", "working", "answer"),
    [
        ([*TURN, prompt("left behind without its uuid"), uses_tool()], True, None),
        ([*TURN], False, None),
        ([prompt("x"), interrupted()], False, None),
        ([*TURN, ours(), uses_tool()], True, None),
        ([ours(), says(f"done\n{TOKEN}")], False, f"done\n{TOKEN}"),
        ([ours(), says("done"), prompt("next")], False, "done"),
    ],
    ids=["another turn runs", "idle", "interrupted", "its turn runs", "answered", "answered, another turn runs"],
)
def test_a_peer_works_while_a_turn_of_its_is_open(
    tmp_path: Path, entries: list[Entry | bytes], working: bool, answer: str | None
) -> None:
    """Where the records do not name the message, a turn that is open may be its own."""
    assert shown(tmp_path, *entries) == {"is_working": working, "answer": answer}


@pytest.mark.requirement("MC-04")
def test_a_peer_that_nobody_hosts_is_not_at_work(tmp_path: Path) -> None:
    assert shown(tmp_path, *TURN, prompt("x"), uses_tool(), hosted=False) == {"is_working": False, "answer": None}
