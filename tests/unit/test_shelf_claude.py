"""What the index learns from Claude Code's files: from every byte that may stand in them, in one reading or in many."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.index.feed import packed_told as packed
from broker.index.feed import unpacked_told as unpacked
from broker.processes import identify
from shims.blocks import LONGEST_LINE
from shims.claude import facts
from shims.claude.shelf import SHELF
from shims.names import cut, kept
from shims.shelf import ENDS, Card, Folder, Hold, Listed, Told, listed
from tests.unit.test_transcripts import Entry, folded, interrupted, lines, prompt, says, tool_result, uses_tool

SESSION = "6f1b9d1e-0000-4000-8000-000000000002"
WHEN = "2026-11-30T10:00:00.500Z"
MOMENT = 1796032800.5
CHANGED = 1_700_000_000_000_000_000
"""Nanoseconds; the time of every file here, so that it shows when no record tells one."""

NO_MESSAGE, SUB_AGENT = "no message yet", "a sub-agent's transcript"

HELLO = prompt("hello", cwd="/work/a_b.c d é", timestamp=WHEN)
ANSWER = says("hi", cwd="/work/a_b.c d é", timestamp="2026-11-30T10:00:01Z")


def custom(name: object) -> Entry:
    return {"type": "custom-title", "customTitle": name, "sessionId": SESSION}


def generated(title: object) -> Entry:
    return {"type": "ai-title", "aiTitle": title, "sessionId": SESSION}


def summary(text: str) -> Entry:
    return {"type": "summary", "summary": text, "leafUuid": "u"}


def text(words: str) -> Entry:
    return {"type": "text", "text": words}


def command(name: str) -> Entry:
    return prompt(
        f"<command-name>/{name}</command-name>\n <command-message>{name}</command-message>\n <command-args></command-args>"
    )


def whole(*entries: Entry | bytes) -> bytes:
    return b"".join(line + b"\n" for line in compact(*entries))


def compact(*entries: Entry | bytes) -> list[bytes]:
    """As Claude Code writes them: without spaces, not only ASCII."""
    made = lines(*entries)
    return [
        json.dumps(entry, ensure_ascii=False, separators=(",", ":")).encode() if isinstance(entry, dict) else line
        for entry, line in zip(entries, made, strict=True)
    ]


class Store:
    """A store with one project, on disk."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.path = str(root)
        self.project = root / "projects" / "-work-a-b-c-d--"
        self.project.mkdir(parents=True)
        (root / "sessions").mkdir()
        self.transcript = self.project / f"{SESSION}.jsonl"

    def write(self, content: bytes) -> Listed:
        self.transcript.write_bytes(content)
        return self.now()

    def now(self) -> Listed:
        os.utime(self.transcript, ns=(CHANGED, CHANGED))
        file = listed(str(self.transcript))
        assert file is not None
        return file

    def told(self, before: Told | None = None) -> Told:
        return SHELF.read(self.path, self.now(), before)

    def card(self, *entries: Entry | bytes) -> Card:
        self.write(whole(*entries))
        (card,) = self.told().cards
        return card

    def register(self, pid: object, entry: object) -> Told:
        path = self.root / "sessions" / f"{pid}.json"
        path.write_bytes(entry if isinstance(entry, bytes) else json.dumps(entry).encode())
        file = listed(str(path))
        assert file is not None
        return SHELF.read(self.path, file, None)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


# which files there are


@pytest.mark.requirement("SE-01")
def test_transcripts_and_the_registry_are_files_and_nothing_else_is(store: Store) -> None:
    store.write(whole(HELLO))
    other = store.root / "projects" / "-other"
    (other / SESSION / "subagents").mkdir(parents=True)
    for beside in (
        *(
            store.project / name
            for name in ("agent-1.jsonl", f"{SESSION}.json", "notes.jsonl", f"{SESSION}.jsonl.tmp", f"x{SESSION}.jsonl")
        ),
        other / SESSION / "subagents" / "agent-aec6684a181ab7ecc.jsonl",
        other / SESSION / f"{SESSION}.jsonl",
        store.root / "projects" / f"{SESSION}.jsonl",
        store.root / "sessions" / "12.c6df.key",
        store.root / "sessions" / "x.json",
        store.root / f"{SESSION}.jsonl",
    ):
        beside.write_bytes(b"{}\n")
    (other / f"{SESSION}.jsonl").mkdir()
    os.mkfifo(other / f"{SESSION[:-1]}3.jsonl")
    (other / f"{SESSION[:-1]}4.jsonl").symlink_to("nowhere")
    (other / f"{SESSION[:-1]}5.jsonl").symlink_to(store.transcript)
    (store.root / "projects" / "-loop").symlink_to("-loop")
    (store.root / "projects" / "-linked").symlink_to(store.project)
    (store.root / "sessions" / "7.json").write_bytes(b"{}")
    paths = {os.path.relpath(file.path, store.path) for file in SHELF.files(store.path)}
    assert paths == {
        f"projects/-work-a-b-c-d--/{SESSION}.jsonl",
        f"projects/-linked/{SESSION}.jsonl",
        f"projects/-other/{SESSION[:-1]}5.jsonl",
        "sessions/7.json",
    }
    assert all(SHELF.concerns(store.path, file.path) for file in SHELF.files(store.path))
    assert all(file == listed(file.path) for file in SHELF.files(store.path))
    every = {str(path) for path in store.root.rglob("*") if path.suffix in (".jsonl", ".json", ".key", ".tmp")}
    assert {os.path.relpath(path, store.path) for path in every if SHELF.concerns(store.path, path)} <= paths | {
        f"projects/-other/{SESSION}.jsonl",
        *(f"projects/-other/{SESSION[:-1]}{number}.jsonl" for number in (3, 4)),
    }


@pytest.mark.requirement("SE-01")
def test_a_store_that_is_not_there_is_watched_and_empty(tmp_path: Path) -> None:
    store = str(tmp_path / "none") + "/"
    assert list(SHELF.files(store)) == []
    assert list(SHELF.folders(store)) == [Folder(store), Folder(f"{store}projects", deep=True), Folder(f"{store}sessions")]
    assert SHELF.concerns(store, f"{store}sessions/1.json")
    assert not SHELF.concerns(store, "/elsewhere/sessions/1.json")


@pytest.mark.requirement("SE-05")
def test_what_is_no_file_or_cannot_be_read(store: Store) -> None:
    store.write(whole(HELLO))
    store.transcript.chmod(0)
    if os.geteuid():
        with pytest.raises(PermissionError):
            store.told()
    file = store.now()
    store.transcript.unlink()
    with pytest.raises(FileNotFoundError):
        SHELF.read(store.path, file, None)
    os.mkfifo(store.transcript)
    assert SHELF.read(store.path, file, None) == Told()
    store.transcript.unlink()
    store.transcript.mkdir()
    assert SHELF.read(store.path, file, None) == Told()


# what one session is


CALLED: dict[str, tuple[list[Entry | bytes], str, str]] = {
    "first words": ([HELLO, ANSWER], "", "hello"),
    "a name": ([HELLO, custom("Alpha")], "Alpha", "hello"),
    "a name before the first message": ([custom("Alpha"), HELLO], "Alpha", "hello"),
    "the last name": ([HELLO, custom("Alpha"), ANSWER, custom("Beta"), ANSWER], "Beta", "hello"),
    "a name taken away": ([HELLO, custom("Alpha"), custom("")], "", "hello"),
    "a name that is none": ([HELLO, custom("Alpha"), custom(7), custom(None)], "Alpha", "hello"),
    "a generated title": ([HELLO, generated("Made up"), ANSWER], "", "Made up"),
    "both": ([HELLO, custom("Alpha"), generated("Made up")], "Alpha", "Made up"),
    "an old summary in front": ([summary("Old"), HELLO], "", "Old"),
    "a summary at the end": ([HELLO, ANSWER, summary("So far")], "", "So far"),
    "a title beats a summary": ([summary("Old"), HELLO, generated("Made up"), summary("So far")], "", "Made up"),
    "a title in somebody's words": ([HELLO, says('{"type":"custom-title","customTitle":"x"}')], "", "hello"),
    "a title in a tool's result": ([HELLO, {**tool_result(), "toolUseResult": custom("x")}], "", "hello"),
    "with spaces": ([HELLO, b'{"type": "custom-title", "customTitle": "Alpha"}'], "Alpha", "hello"),
    "behind a command": ([command("clear"), HELLO], "", "hello"),
    "a command alone": ([command("clear")], "", "/clear"),
    "behind notes": (
        [prompt("<local-command-caveat>x", isMeta=True), interrupted(), tool_result(), prompt("<tick>"), HELLO], "", "hello",
    ),
    "behind a summary of its own": ([prompt("so far", isCompactSummary=True), HELLO], "", "hello"),
    "an opened file beside it": (
        [prompt("", message={"content": [text("<ide_opened_file>f</ide_opened_file>"), text("do it")], "role": "user"})],
        "", "do it",
    ),
    "on two lines": ([prompt("  one\ntwo  three\n")], "", "one two  three"),
    "cut off": ([prompt("x" * 500)], "", kept("x" * 500)),
    "half a character": ([HELLO, b'{"type":"custom-title","customTitle":"a\\ud83d"}'], "a\ufffd", "hello"),
}  # fmt: skip


@pytest.mark.requirement("SE-01", "SE-14")
@pytest.mark.parametrize(("entries", "name", "title"), CALLED.values(), ids=CALLED)
def test_what_a_session_is_called(store: Store, entries: list[Entry | bytes], name: str, title: str) -> None:
    card = store.card(*entries)
    assert (card.id, card.name, card.title, card.barred) == (SESSION, name, title, "")


@pytest.mark.requirement("SE-01", "SE-14")
@pytest.mark.parametrize(
    "name", ["e\u0301te\u0301", "👩‍👩‍👧 🤖", "\u202eמה\u200f", "two\nlines", "\x1b[31mred\x07", "n" * 500, " spaced ", '"\\']
)
@pytest.mark.parametrize("ascii_only", [True, False])
def test_a_name_is_kept_as_it_was_given(store: Store, name: str, ascii_only: bool) -> None:
    record = json.dumps(custom(name), ensure_ascii=ascii_only).encode()
    told = SHELF.read(store.path, store.write(whole(HELLO, record)), None)
    assert told.cards[0].name == name
    assert unpacked(packed(told)) == told
    again = SHELF.read(store.path, store.write(whole(HELLO, record, ANSWER)), told)
    assert again.cards[0].name == name


BARRED: dict[str, tuple[list[Entry | bytes], str]] = {
    "nothing": ([], NO_MESSAGE),
    "a name alone": ([custom("Alpha")], NO_MESSAGE),
    "what the agent noted": ([prompt("x", isMeta=True), interrupted(), {"type": "queue-operation", "content": "x"}], NO_MESSAGE),
    "a tool's result": ([tool_result()], NO_MESSAGE),
    "a sub-agent": ([prompt("x", isSidechain=True), says("y", isSidechain=True)], SUB_AGENT),
    "a sub-agent and a title": ([prompt("x", isSidechain=True), generated("Made up")], SUB_AGENT),
    "a sub-agent in a session": ([prompt("x", isSidechain=True), HELLO], ""),
    "a picture": ([prompt("", message={"role": "user", "content": [{"type": "image"}]})], ""),
    "an answer": ([ANSWER], ""),
    "a tool is at work": ([HELLO, uses_tool(), tool_result(), folded()], ""),
}  # fmt: skip


@pytest.mark.requirement("SE-01")
@pytest.mark.parametrize(("entries", "why"), BARRED.values(), ids=BARRED)
def test_why_a_session_is_no_target(store: Store, entries: list[Entry | bytes], why: str) -> None:
    assert store.card(*entries).barred == why


@pytest.mark.requirement("SE-01")
def test_the_directory_is_the_one_it_was_begun_in(store: Store) -> None:
    elsewhere = {**ANSWER, "cwd": "/work/other"}
    assert store.card(HELLO, elsewhere).cwd == "/work/a_b.c d é"
    assert store.card({"type": "mode"}, {"type": "system", "cwd": "/first"}, HELLO).cwd == "/first"
    assert store.card(prompt("x"), says("y")).cwd == ""
    assert store.card(prompt("x", cwd=7), elsewhere).cwd == "/work/other"


@pytest.mark.requirement("SE-01")
def test_it_moved_when_its_last_record_says(store: Store) -> None:
    quiet: list[Entry | bytes] = [
        {"type": "last-prompt"},
        {"type": "file-history-snapshot", "snapshot": {"timestamp": "2027-01-01T00:00:00Z"}},
    ]
    assert store.card(HELLO, *quiet).moved == MOMENT
    assert store.card(HELLO, *quiet).rank == MOMENT
    assert store.card(HELLO, says("z" * 40_000, timestamp="2026-11-30T10:00:02Z"), *quiet).moved == MOMENT + 1.5
    assert store.card(HELLO, tool_result("z" * 200_000), *quiet).moved == MOMENT
    assert store.card(prompt("x", timestamp="soon"), *quiet).moved == CHANGED / 1e9


@pytest.mark.requirement("SE-01", "SE-05")
@pytest.mark.parametrize("content", ["y" * 300_000, [{"type": "text", "text": "y" * 300_000}], "é\\\n" * 100_000])
def test_a_first_message_that_is_too_long_to_be_decoded(store: Store, content: Any) -> None:
    words = content if isinstance(content, str) else content[0]["text"]
    pasted = prompt("", cwd="/work", message={"role": "user", "content": content})
    card = store.card({"type": "mode"}, pasted, ANSWER)
    assert card.barred == ""
    assert card.title == cut(words.replace("\n", " "))
    picture = prompt("", message={"role": "user", "content": [{"type": "image", "data": "y" * 300_000}]})
    assert (store.card(picture).barred, store.card(picture, HELLO).title) == ("", "hello")
    aside = {"isSidechain": True, **{key: value for key, value in pasted.items() if key != "isSidechain"}}
    assert store.card(aside).barred == SUB_AGENT
    assert store.card(tool_result("y" * 300_000)).barred == NO_MESSAGE


@pytest.mark.requirement("SE-01")
def test_a_first_message_behind_the_head(store: Store) -> None:
    notes = [{"type": "attachment", "cwd": "/work", "rendered": [{"content": "z" * 50_000}]}] * 4
    assert store.card(*notes, tool_result(), HELLO, ANSWER).title == "hello"
    late = [tool_result()] * (facts.MOST_LOOKED_AT + 1)
    assert store.card(*late, HELLO).barred == NO_MESSAGE


# at any size


@pytest.mark.requirement("SE-05", "SE-14")
def test_a_name_in_the_middle_of_a_gigabyte(store: Store) -> None:
    store.write(whole(HELLO))
    with store.transcript.open("r+b") as file:
        file.seek(1 << 29)
        file.write(b"\n" + whole(custom("Alpha")))
        file.seek(1 << 30)
        file.write(b"\n" + whole(ANSWER))
    told = store.told()
    (card,) = told.cards
    assert (card.name, card.title, card.moved) == ("Alpha", "hello", MOMENT + 0.5)
    assert told.read == store.transcript.stat().st_size
    with store.transcript.open("ab") as file:
        file.write(whole(custom("Beta")) + b'{"type":"custom-title","customTi')
    again = store.told(told)
    assert again.cards == (card._replace(name="Beta"),)
    assert again == store.told()


@pytest.mark.requirement("SE-05", "SE-14")
def test_a_line_counts_when_it_is_whole(store: Store) -> None:
    store.write(whole(HELLO) + whole(custom("Alpha"))[:-1])
    told = store.told()
    assert (told.cards[0].name, told.read) == ("", len(whole(HELLO)))
    with store.transcript.open("ab") as file:
        file.write(b"\n")
    assert store.told(told).cards[0].name == "Alpha"


@pytest.mark.requirement("SE-14")
def test_a_file_that_did_not_only_grow_is_read_anew(store: Store) -> None:
    store.write(whole(HELLO, custom("Alpha")))
    told = store.told()
    store.write(whole(prompt("another, and longer than that"), custom("Beta"), ANSWER))
    assert store.told(told) == store.told()
    store.write(whole(HELLO))
    assert store.told(told) == store.told()
    for memory in ("", "{", "[]", "7", "[1,2]", '["",1,"","",true,false,1,"",""]'):
        assert store.told(store.told()._replace(memory=memory)) == store.told()


records = st.one_of(
    st.sampled_from(
        [HELLO, ANSWER, command("clear"), tool_result(), uses_tool(), interrupted(), summary("So far"), {"type": "mode"}]
    ),
    st.text(max_size=20).map(prompt),
    st.text(max_size=20).map(custom),
    st.text(max_size=20).map(generated),
    st.sampled_from([ENDS - 300, LONGEST_LINE - 60, LONGEST_LINE + 60, 30_000]).map(lambda size: prompt("z" * size)),
    st.sampled_from([ENDS, 30_000]).map(lambda size: {"type": "attachment", "cwd": "/x", "text": "z" * size}),
    st.integers(1, 9).map(lambda number: prompt("x", isSidechain=True, timestamp=f"2026-11-30T10:00:0{number}Z")),
)
contents = st.one_of(
    st.binary(max_size=400),
    st.lists(records, max_size=8).map(lambda entries: whole(*entries)),
    st.lists(st.one_of(records, st.binary(max_size=30)), max_size=8).map(lambda entries: whole(*entries)),
)


@pytest.fixture(scope="module")
def scratch() -> Iterator[Store]:
    with tempfile.TemporaryDirectory() as directory:
        yield Store(Path(directory) / "store")


@pytest.mark.requirement("SE-05", "SE-14")
@settings(max_examples=250, deadline=None)
@given(content=contents, cuts=st.lists(st.floats(0, 1), max_size=4))
def test_any_bytes_cut_anywhere_come_to_the_same(scratch: Store, content: bytes, cuts: list[float]) -> None:
    told = None
    for place in sorted(cuts):
        told = SHELF.read(scratch.path, scratch.write(content[: int(place * len(content))]), told)
        told = unpacked(packed(told))
    told = SHELF.read(scratch.path, scratch.write(content), told)
    assert told == SHELF.read(scratch.path, scratch.now(), None)
    assert told.read == content.rfind(b"\n") + 1
    assert told.cards[0].id == SESSION
    assert unpacked(packed(told)) == told


words = st.text(max_size=8) | st.sampled_from(["user", "assistant", "summary", "custom-title", "ai-title"])
leaves = st.none() | st.booleans() | st.integers() | st.floats() | words
fields = st.sampled_from(
    ["type", "message", "content", "text", "cwd", "timestamp", "summary", "customTitle", "aiTitle", "isMeta", "sessionId", "name"]
)
anything = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(fields, inner, max_size=6), max_leaves=12
)


@pytest.mark.requirement("SE-05")
@settings(max_examples=300, deadline=None)
@given(entry=anything)
def test_any_record_is_folded(entry: object) -> None:
    for line in (
        json.dumps(entry).encode(),
        b'{"role":' + json.dumps(entry).encode() + b',"summary":1}',
        json.dumps(entry).encode()[:-1],
    ):
        known = facts.glimpsed(facts.titled(facts.begun(facts.Facts(), line), line), line)
        assert facts.unpacked(known.packed()) == known
        facts.ending([line])
        facts.hold("7", line, 1.0)


@pytest.mark.requirement("SE-14")
@pytest.mark.parametrize("more", [b"", whole(ANSWER) * 3], ids=["as long", "longer"])
@pytest.mark.parametrize("where", ["beginning", "end"])
def test_a_transcript_that_was_written_anew_in_its_place_is_read_anew(store: Store, more: bytes, where: str) -> None:
    def content(name: str) -> bytes:
        middle = whole(*[ANSWER] * 100)
        return whole(HELLO, custom(name)) + middle if where == "beginning" else whole(HELLO) + middle + whole(custom(name))

    store.write(content("one"))
    before = store.told()
    assert before.cards[0].name == "one"
    with store.transcript.open("r+b") as file:
        file.write(content("two") + more)
    assert store.told(before).cards[0].name == "two"


@pytest.mark.requirement("SE-01")
@pytest.mark.parametrize("count", [600, 5000])
def test_a_conversation_behind_many_records_of_a_sub_agent_counts(store: Store, count: int) -> None:
    aside = {**says("beside", cwd="/work"), "isSidechain": True}
    store.write(whole(*[aside] * count))
    told = store.told()
    assert told.cards[0].barred == "a sub-agent's transcript"
    store.write(whole(*[aside] * count, HELLO, ANSWER))
    for known in (told, None):
        (card,) = store.told(known).cards
        assert (card.barred, card.title) == ("", "hello")


# who holds it


@pytest.mark.requirement("SE-09")
def test_what_the_registry_says(store: Store) -> None:
    entry = {"pid": 7, "sessionId": SESSION, "procStart": "123", "name": "work-9c", "nameSource": "derived"}
    assert store.register(7, entry).holds == (Hold(SESSION, 7, "123"),)
    assert store.register(7, {**entry, "nameSource": "user"}).holds == (Hold(SESSION, 7, "123", "work-9c"),)
    for start in (None, "", "Mon Nov 30 10:00:00 2026", [7]):
        (hold,) = store.register(7, {"sessionId": SESSION, "procStart": start}).holds
        assert hold == Hold(SESSION, 7, f"written {(store.root / 'sessions' / '7.json').stat().st_mtime:.3f}")
    assert store.register("0", entry).holds == store.register("9" * 10, entry).holds == ()
    for broken in (b"", b"{", b"[]", b"\xff", b"7", {**entry, "sessionId": None}, {**entry, "sessionId": ""}, b" " * (1 << 17)):
        assert store.register(7, broken).holds == ()


@pytest.mark.requirement("SE-09")
def test_an_entry_is_read_anew_as_a_whole(store: Store) -> None:
    before = store.register(7, {"sessionId": SESSION, "procStart": "123"})
    path = store.root / "sessions" / "7.json"
    path.write_text(json.dumps({"sessionId": SESSION[::-1], "procStart": "123", "status": "busy"}), encoding="utf-8")
    file = listed(str(path))
    assert file is not None
    told = SHELF.read(store.path, file, before)
    assert (told.read, told.holds) == (file.size, (Hold(SESSION[::-1], 7, "123"),))


@pytest.mark.requirement("SE-09")
def test_a_process_holds_a_session_only_if_it_is_the_one_that_was_registered() -> None:
    me, above = identify(os.getpid()), identify(os.getppid())
    assert me is not None
    assert above is not None
    mine = Hold(SESSION, me.pid, str(me.start))
    assert SHELF.holding("", [mine]) == {SESSION: (me,)}
    assert SHELF.holding("", [mine, Hold(SESSION, above.pid, str(above.start))]) == {SESSION: (me, above)}
    others = (
        Hold(SESSION, me.pid, str(me.start + 1)),
        Hold(SESSION, me.pid, "written 9999999999.000"),
        Hold(SESSION),
        Hold(SESSION, -1),
        Hold(SESSION, (1 << 31) - 1),
    )
    assert SHELF.holding("", others) == {}
