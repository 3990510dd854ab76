"""What the index learns of Codex's store: files written by hand here, in the shapes that were measured."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.index.feed import packed_told as packed
from broker.index.feed import unpacked_told as unpacked
from broker.processes import identify
from shims.codex import facts
from shims.codex.shelf import MOST_NAMES, SHELF
from shims.names import kept
from shims.shelf import LONGEST_DECODED, Card, Folder, Hold, Listed, Told, listed

THREAD = "01a22cf3-742a-7fdb-bc3e-425791269f1b"
OTHER = "01a22cf3-742a-7fdb-bc3e-425791269f1c"
FILE = f"rollout-2026-11-30T20-52-04-{THREAD}.jsonl"
STAMP, MOMENT = "2026-11-30T20:52:08.500Z", 1796071928.5
RANK = 1796071924.0

Entry = dict[str, Any]


def content(*entries: Entry | bytes) -> bytes:
    return b"".join((entry if isinstance(entry, bytes) else json.dumps(entry).encode()) + b"\n" for entry in entries)


def meta(**fields: Any) -> Entry:
    payload = {"id": THREAD, "cwd": "/w/é k", "source": "vscode", "base_instructions": {"text": "be good " * 2500}, **fields}
    return {"timestamp": "2026-11-30T20:52:04.449Z", "type": "session_meta", "payload": payload}


def event(**payload: Any) -> Entry:
    return {"timestamp": "2026-11-30T20:52:05.000Z", "type": "event_msg", "payload": payload}


def said(*texts: str, pictures: int = 0) -> Entry:
    parts = [{"type": "text", "text": text} for text in texts] + [{"type": "image", "image_url": "data:"}] * pictures
    return event(type="item_completed", turn_id="t", item={"type": "UserMessage", "content": parts})


def said_to_147(text: str, **more: Any) -> Entry:
    return event(type="user_message", message=text, **more)


CONTEXT = {
    "timestamp": "2026-11-30T20:52:04.900Z",
    "type": "response_item",
    "payload": {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "<environment_context> x"}]},
}
LAST = {"timestamp": STAMP, "type": "event_msg", "payload": {"type": "task_complete", "last_agent_message": "done"}}


@pytest.fixture
def store(tmp_path: Path) -> Path:
    (tmp_path / "sessions/2026/11/30").mkdir(parents=True)
    (tmp_path / "archived_sessions").mkdir()
    (tmp_path / "thread-writer-locks").mkdir()
    return tmp_path


def write(store: Path, data: bytes, place: str = f"sessions/2026/11/30/{FILE}") -> Listed:
    path = store / place
    path.write_bytes(data)
    found = listed(str(path))
    assert found is not None
    return found


def told(store: Path, data: bytes, **place: str) -> Told:
    result = SHELF.read(str(store), write(store, data, **place), None)
    assert unpacked(packed(result)) == result
    return result


def only_card(store: Path, *entries: Entry | bytes, **place: str) -> Card:
    (card,) = told(store, content(*entries), **place).cards
    return card


# A rollout


@pytest.mark.requirement("SE-02")
def test_a_rollout_tells_id_directory_description_and_when_it_moved(store: Path) -> None:
    card = only_card(store, meta(), CONTEXT, said("hello  there\n\nsecond line"), LAST)
    assert card == Card(THREAD, cwd="/w/é k", title="hello  there\n\nsecond line", moved=MOMENT, rank=RANK)


@pytest.mark.requirement("SE-02")
@pytest.mark.parametrize(
    ("entries", "title"),
    [
        ([said("first ", "second")], "first second"),
        ([said("  \n words \n")], "words"),
        ([said("   "), said("after it")], "after it"),
        ([said("", pictures=1), said("after it")], "[Image]"),
        ([said("with it", pictures=1)], "with it"),
        ([said_to_147("of 0.147", images=[], local_images=[])], "of 0.147"),
        ([said_to_147("", images=["data:"], local_images=[])], "[Image]"),
        ([said("# Context from my IDE setup:\n\n## My request for Codex:\nfix it\n")], "fix it"),
        ([said("x" * 5000)], kept("x" * 5000)),
        ([said("y" * 200_000)], kept("y" * 200_000)),
        ([said("<environment_context> typed")], "<environment_context> typed"),
        ([CONTEXT, LAST], ""),
        ([event(type="item_completed", item={"type": "AgentMessage", "content": '"UserMessage"'})], ""),
        ([said("🧵 \u202eright to left\u202c e\u0301 \x1b[31m")], "🧵 \u202eright to left\u202c e\u0301 \x1b[31m"),
    ],
)
def test_the_description_is_the_first_message_that_says_something(store: Path, entries: list[Entry], title: str) -> None:
    assert only_card(store, meta(), *entries).title == title


@pytest.mark.requirement("SE-02")
@pytest.mark.parametrize(
    ("fields", "barred"),
    [
        ({}, ""),
        ({"thread_source": "user"}, ""),
        ({"thread_source": "user", "source": "exec"}, ""),
        ({"source": {"custom": "my editor"}}, ""),
        ({"forked_from_id": OTHER}, ""),
        ({"thread_source": "subagent"}, "a sub-agent's thread"),
        ({"source": {"subagent": {"thread_spawn": {"parent_thread_id": OTHER}}}}, "a sub-agent's thread"),
        ({"source": {"subagent": "review"}}, "a sub-agent's thread"),
        ({"parent_thread_id": OTHER}, "a sub-agent's thread"),
        ({"thread_source": "bridge"}, "not a person's thread"),
        ({"thread_source": ["user"]}, "not a person's thread"),
        ({"source": {"internal": "memory_consolidation"}}, "not a person's thread"),
    ],
)
def test_who_is_no_target(store: Path, fields: Entry, barred: str) -> None:
    assert only_card(store, meta(**fields)).barred == barred
    archived = only_card(store, meta(**fields), place=f"archived_sessions/{FILE}")
    assert archived.barred == (barred or "archived")


@pytest.mark.requirement("SE-02")
def test_the_newest_rollout_of_a_thread_ranks_highest(store: Path) -> None:
    names = [f"rollout-{time}-{THREAD}.jsonl" for time in ("2025-12-31T23-59-59", "2026-01-01T00-00-00", "2026-01-01T00-00-01")]
    ranks = [only_card(store, meta(), place=f"sessions/2026/11/30/{name}").rank for name in names]
    assert ranks == sorted(set(ranks))
    assert only_card(store, meta(), place=f"archived_sessions/rollout-2026-13-77T99-00-00-{THREAD}.jsonl").rank == 0


@pytest.mark.requirement("SE-05")
def test_a_rollout_that_does_not_begin_as_one_is_none(store: Path) -> None:
    for beginning in (b"", b"\n", b"garbage\n", b"{}\n", b'{"type":"session_meta"', b"\0" * 5000 + b"\n", content(CONTEXT)):
        assert told(store, beginning).cards == ()
    write(store, content(b"garbage", said("hello")))
    assert told(store, content(b"garbage", said("hello"))).cards == ()


@pytest.mark.requirement("SE-05")
def test_what_a_first_line_leaves_open_is_taken_from_the_file(store: Path) -> None:
    for odd in ({"id": None}, {"id": 7}, {"id": "x" * 5000}, {"id": "../../etc"}):
        assert only_card(store, meta(**odd)).id == THREAD
    assert only_card(store, meta(id=OTHER)).id == OTHER
    assert only_card(store, {"type": "session_meta", "payload": []}) == Card(THREAD, moved=listed_now(store), rank=RANK)
    assert only_card(store, meta(cwd=["/w"])).cwd == ""
    assert only_card(store, meta(cwd="/w/\ud800")).cwd == "/w/\ufffd"


def listed_now(store: Path) -> float:
    return os.stat(store / f"sessions/2026/11/30/{FILE}").st_mtime_ns / 1e9


@pytest.mark.requirement("SE-05")
def test_long_instructions(store: Path) -> None:
    long = meta(base_instructions={"text": "x" * 500_000})
    card = only_card(store, long, said("hello"), LAST)
    assert (card.cwd, card.title, card.moved) == ("/w/é k", "hello", MOMENT)


@pytest.mark.requirement("SE-02", "SE-05")
@pytest.mark.parametrize(
    ("fields", "counts"),
    [
        ({}, True),
        ({"thread_source": "user"}, True),
        ({"thread_source": "user", "parent_thread_id": "p"}, True),
        ({"thread_source": "subagent"}, False),
        ({"source": {"subagent": {"thread_spawn": {}}}}, False),
        ({"parent_thread_id": "p"}, False),
        ({"thread_source": "memory"}, False),
        ({"source": None}, False),
        ({"base_instructions": {"text": '"thread_source":"user"' + "x" * (9 << 20)}, "source": None}, False),
    ],
)
def test_whose_a_rollout_is_whose_first_line_is_too_long_to_be_decoded(store: Path, fields: Entry, counts: bool) -> None:
    long = {"base_instructions": {"text": '"thread_source":"subagent"' + "x" * LONGEST_DECODED}}
    card = only_card(store, meta(**{**long, **fields}), said("hello"), LAST)
    assert (card.id, card.cwd, card.moved, card.rank) == (THREAD, "/w/é k", MOMENT, RANK)
    assert (card.barred == "") is counts


@pytest.mark.requirement("SE-05")
def test_when_it_moved_is_the_last_record_that_says_so(store: Path) -> None:
    assert only_card(store, meta(), LAST, {"timestamp": "yesterday"}, {"timestamp": 7}, b"\xff\xfe{").moved == MOMENT
    assert told(store, content(meta(), LAST) + b'{"timestamp":"2027-01-01T00:00:00.000Z"').cards[0].moved == MOMENT
    assert only_card(store, meta(), LAST, said("x" * 20_000)).moved == 1796071925.0
    assert only_card(store, meta(), LAST, said("x" * 200_000)).moved == listed_now(store)


@pytest.mark.requirement("SE-05")
@pytest.mark.parametrize("end", [b"", b"\n" + content(LAST)], ids=["nothing behind it", "records behind it"])
def test_a_gigabyte_of_nothing_costs_nothing(store: Path, end: bytes) -> None:
    path = store / f"sessions/2026/11/30/{FILE}"
    with path.open("wb") as file:
        file.write(content(meta(), said("hello"), LAST))
        file.truncate(1 << 30)
        file.seek(1 << 30)
        file.write(end)
    found = listed(str(path))
    assert found is not None
    before = time.process_time()
    result = SHELF.read(str(store), found, None)
    assert time.process_time() - before < 0.1
    assert result.cards == (Card(THREAD, "/w/é k", title="hello", moved=MOMENT, rank=RANK),)
    assert result.read == (found.size if end else len(content(meta(), said("hello"), LAST)))


ROLLOUT = content(meta(base_instructions={}), CONTEXT, b"\xff noise", said(" "), said("hello", "é"), LAST, said("again"))
RENAMES = content(
    {"id": THREAD, "thread_name": "first"},
    {"id": OTHER, "thread_name": "é 🧵"},
    b"\xff noise",
    {"id": THREAD, "thread_name": "second"},
    {"id": OTHER, "thread_name": ""},
)


@pytest.mark.requirement("SE-05", "SE-14")
@settings(deadline=None)  # it writes up to a dozen files
@given(st.sampled_from([ROLLOUT, RENAMES]), st.lists(st.integers(0, len(ROLLOUT)), max_size=5), st.binary(max_size=40))
def test_reading_in_steps_is_reading_at_once(data: bytes, cuts: list[int], noise: bytes) -> None:
    with tempfile.TemporaryDirectory() as directory:
        store = Path(directory)
        (store / "sessions/2026/11/30").mkdir(parents=True)
        place = "session_index.jsonl" if data is RENAMES else f"sessions/2026/11/30/{FILE}"
        data = data + noise
        before: Told | None = None
        for cut in sorted(cuts):
            before = SHELF.read(str(store), fixed(write(store, data[:cut], place)), before)
            assert before == SHELF.read(str(store), fixed(write(store, data[:cut], place)), None)
        whole = fixed(write(store, data, place))
        assert SHELF.read(str(store), whole, before) == SHELF.read(str(store), whole, None)


def fixed(file: Listed) -> Listed:
    return file._replace(changed=0)


ANY = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=8) | st.sampled_from(["user_message", "UserMessage", "image"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["id", "text", "type", "item"]), inner, max_size=3)
    ),
    max_leaves=8,
)


@pytest.mark.requirement("SE-05")
@given(
    st.one_of(
        st.binary(max_size=300),
        st.builds(lambda fields, more: content({**meta(), "payload": fields}, more), ANY, ANY),
        st.builds(lambda kind, value: content(meta(), event(type=kind, item=value, message=value, content=value)), ANY, ANY),
        st.builds(lambda value: content(meta(), {"type": "event_msg", "timestamp": value, "payload": value}), ANY),
        st.builds(lambda thread, value: content({"id": thread, "thread_name": value}), st.just(THREAD) | ANY, ANY),
    ),
    st.sampled_from([f"sessions/2026/11/30/{FILE}", f"archived_sessions/{FILE}", "session_index.jsonl"]),
)
def test_nothing_that_is_in_a_file_raises(data: bytes, place: str) -> None:
    with tempfile.TemporaryDirectory() as directory:
        store = Path(directory)
        (store / place).parent.mkdir(parents=True, exist_ok=True)
        assert told(store, data, place=place).read <= len(data)


@pytest.mark.requirement("SE-05")
def test_a_description_that_comes_late_is_found_and_then_stays(store: Path) -> None:
    first = SHELF.read(str(store), write(store, content(meta())), None)
    assert first.cards[0].title == ""
    grown = SHELF.read(str(store), write(store, content(meta(), CONTEXT, said("hello"), LAST)), first)
    assert grown.cards[0].title == "hello"
    path = store / f"sessions/2026/11/30/{FILE}"
    path.write_bytes(b"!" * (grown.read - 1) + b"\n" + content(LAST))  # what was read is not read again
    found = listed(str(path))
    assert found is not None
    assert SHELF.read(str(store), found, grown).cards == grown.cards


# Names


def name(thread: str, name: object) -> Entry:
    return {"id": thread, "thread_name": name, "updated_at": STAMP}


@pytest.mark.requirement("SE-02", "SE-14")
@pytest.mark.parametrize(
    "given",
    [
        "plain",
        "é",
        "e\u0301",
        "👩‍👩‍👧 thread",
        "\u202eabc\u202c",
        "two\nlines",
        "\x1b[31mred",
        "x" * 500,
        " outer ",
        '"\\',
        "\x00",
    ],
)
def test_a_name_is_kept_as_it_was_given(store: Path, given: str) -> None:
    for ascii_only in (True, False):
        line = json.dumps(name(THREAD, given), ensure_ascii=ascii_only).encode()
        assert told(store, content(line), place="session_index.jsonl").names == ((THREAD, given),)


@pytest.mark.requirement("SE-14")
def test_the_last_name_counts_wherever_it_stands(store: Path) -> None:
    noise = [name(f"01a22cf3-742a-7fdb-bc3e-{n:012}", "x" * 100) for n in range(20_000)]
    data = content(name(THREAD, "old"), *noise[:10_000], name(THREAD, "new"), name(OTHER, None), *noise[10_000:])
    result = told(store, data, place="session_index.jsonl")
    names = dict(result.names)
    assert names[THREAD] == "new"
    assert OTHER not in names
    assert len(names) == 20_001
    more = SHELF.read(str(store), write(store, data + content(name(THREAD, "newer")), "session_index.jsonl"), result)
    assert dict(more.names)[THREAD] == "newer"
    assert len(more.names) == len(names)


@pytest.mark.requirement("SE-05")
def test_names_are_bounded(store: Path) -> None:
    lines = [f'{{"id":"01a22cf3-742a-7fdb-bc3e-{n:012}","thread_name":"name {n}"}}\n' for n in range(100_000)]
    before = time.process_time()
    result = told(store, "".join(lines).encode(), place="session_index.jsonl")
    assert time.process_time() - before < 3
    assert len(result.names) == MOST_NAMES
    assert result.left_out
    file = write(store, "".join(lines).encode() + b"{}\n", "session_index.jsonl")
    assert SHELF.read(str(store), file, result).left_out, "what was left out once is not known later"
    assert not told(store, "".join(lines[:9]).encode(), place="session_index.jsonl").left_out
    assert result.names[-1][1] == "name 99999"
    huge = content(name(OTHER, "x" * 3_000_000), name(THREAD, "short"))
    assert told(store, huge, place="session_index.jsonl").names == ((THREAD, "short"),)


@pytest.mark.requirement("SE-14")
def test_names_that_were_replaced_are_read_anew(store: Path) -> None:
    """``codex delete`` writes another file; on ext4 it may have an inode that the old one had some time ago."""
    first = told(store, content(name(OTHER, "gone"), name(THREAD, "stays")), place="session_index.jsonl")
    data = content(name(THREAD, "stays"), name(THREAD, "renamed"), name(THREAD, "renamed again"), name(THREAD, "and again"))
    again = SHELF.read(str(store), write(store, data, "session_index.jsonl"), first)
    assert again == told(store, data, place="session_index.jsonl")
    assert again.names == ((THREAD, "and again"),)
    shorter = write(store, content(name(THREAD, "x")), "session_index.jsonl")
    assert SHELF.read(str(store), shorter, again).names == ((THREAD, "x"),)


# The store


@pytest.mark.requirement("SE-02")
def test_which_files_there_are(store: Path) -> None:
    expected = {
        str(store / place)
        for place in (f"sessions/2026/11/30/{FILE}", f"archived_sessions/{FILE}", f"thread-writer-locks/{THREAD}.lock")
    } | {str(store / "session_index.jsonl")}
    for place in expected:
        Path(place).write_bytes(b"")
    for odd in (
        "sessions/2026/11/30/notes.txt",
        "sessions/2026/11/30/rollout-today.jsonl",
        f"sessions/2026/11/30/{FILE}.zst",
        f"sessions/2026/11/{FILE}",
        f"sessions/{FILE}",
        f"archived_sessions/x{FILE}",
        "thread-writer-locks/.coordination.lock",
        "thread-writer-locks/notes",
        "session_index.jsonl.lock",
        "state_5.sqlite",
    ):
        (store / odd).write_bytes(b"")
        assert not SHELF.concerns(str(store), str(store / odd))
    assert {file.path for file in SHELF.files(str(store))} == expected
    assert all(SHELF.concerns(str(store), path) for path in expected)
    assert all(SHELF.concerns(f"{store}/", path) for path in expected)
    assert not SHELF.concerns(str(store), f"/elsewhere/{FILE}")
    assert not SHELF.concerns(str(store), f"{store}x/session_index.jsonl")
    assert not SHELF.concerns(str(store), str(store))
    watched = [Folder(str(store)), Folder(str(store / "sessions"), deep=True)]
    watched += [Folder(str(store / name)) for name in ("archived_sessions", "thread-writer-locks")]
    assert list(SHELF.folders(str(store))) == watched


@pytest.mark.requirement("SE-05")
def test_what_is_no_file_is_left_out(store: Path) -> None:
    day = store / "sessions/2026/11/30"
    (day / FILE).mkdir()
    os.mkfifo(day / FILE.replace("30T20", "30T21"))
    (day / FILE.replace("30T20", "30T22")).symlink_to("nowhere")
    (store / "session_index.jsonl").mkdir()
    (store / "sessions/2026/12").write_text("no directory")
    (store / "sessions/2027").symlink_to(store / "sessions/2027")
    target = store / "elsewhere"
    target.write_bytes(content(meta(), said("linked")))
    linked = day / FILE.replace("30T20", "30T23")
    linked.symlink_to(target)
    (found,) = SHELF.files(str(store))
    assert found.path == str(linked)
    assert SHELF.read(str(store), found, None).cards[0].title == "linked"
    assert list(SHELF.files(str(store / "missing"))) == []


@pytest.mark.requirement("SE-05")
def test_what_became_something_else_since_it_was_listed(store: Path) -> None:
    """An error of the system, or nothing; never a wait."""
    file = write(store, content(meta(), said("hello")))
    for become in (os.mkfifo, os.mkdir, lambda path: os.symlink(path, path)):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(file.path)
        become(file.path)
        with pytest.raises(OSError):
            SHELF.read(str(store), file, None)
        (os.rmdir if os.path.isdir(file.path) else os.unlink)(file.path)
    with pytest.raises(FileNotFoundError):
        SHELF.read(str(store), file, None)
    shrunk = write(store, content(meta()))
    assert SHELF.read(str(store), shrunk._replace(size=1 << 20), None).cards[0].id == THREAD
    if os.geteuid():  # nothing is closed to root
        os.chmod(file.path, 0)
        with pytest.raises(PermissionError):
            SHELF.read(str(store), file, None)


@pytest.mark.requirement("SE-05")
def test_a_thousand_rollouts_are_read_quickly(store: Path) -> None:
    data = content(meta(), CONTEXT, said("hello"), *[said("x" * 500)] * 50, LAST)
    files = [
        write(store, data, f"sessions/2026/11/30/{FILE.replace(THREAD, f'01a22cf3-742a-7fdb-bc3e-{n:012}')}") for n in range(1000)
    ]
    before = time.process_time()
    found = [SHELF.read(str(store), file, None) for file in files]
    assert time.process_time() - before < 1  # 0.2 on a machine at rest
    assert all(told.cards[0].title == "hello" for told in found)


# Locks


@pytest.mark.requirement("SE-09")
def test_a_lock_is_a_hold_only_while_somebody_has_it(store: Path) -> None:
    place = f"thread-writer-locks/{THREAD}.lock"
    file = write(store, b"", place)
    (hold,) = SHELF.read(str(store), file, None).holds
    assert hold == Hold(THREAD, evidence=str(file.inode))
    assert SHELF.holding(str(store), [hold]) == {}
    with (store / place).open() as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        assert SHELF.holding(str(store), [hold]) == {THREAD: (identify(os.getpid()),)}
        assert SHELF.holding(str(store), []) == {}
        (store / place).rename(store / "kept")
        write(store, b"", place)  # the inode in the hold is no longer that of the lock
        assert SHELF.holding(str(store), [hold]) == {}


@pytest.mark.requirement("SE-09")
def test_holds_of_the_dead_cost_little(store: Path) -> None:
    holds = [Hold(f"01a22cf3-742a-7fdb-bc3e-{n:012}", evidence=str(2**62 + n)) for n in range(500)]
    holds += [Hold(THREAD), Hold(THREAD, 5, "no inode")]
    before = time.process_time()
    for _ in range(20):
        assert SHELF.holding(str(store), holds) == {}
    assert time.process_time() - before < 0.2


# Names of files


@pytest.mark.requirement("SE-02")
@given(st.text(max_size=80))
def test_only_a_rollout_has_the_name_of_one(text: str) -> None:
    assert facts.named(text) is None
    assert facts.named(FILE + text) == (facts.named(FILE) if not text else None)
    assert facts.locked(text) == ""
