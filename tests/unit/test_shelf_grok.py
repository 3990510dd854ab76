"""Grok's store as the index reads it: summaries and updates as 1.0.41 and 1.0.5 wrote them, tabs' names as editors keep them."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import IO, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from broker.index.feed import packed_told as packed
from broker.index.feed import unpacked_told as unpacked
from broker.processes import ProcessId, identify
from shims.grok import summary, tabs
from shims.grok.shelf import SHELF
from shims.names import kept
from shims.shelf import Card, Folder, Hold, Told, listed

SESSION = "01a22e3a-8056-71a2-8a8e-cfe5a506653b"
OTHER = "01a22e3a-8548-7aa1-8900-00233062e624"
CWD = "/home/me/a work_tree.v2 ü"
SPOKEN = 1796071915.7
OPENED_AGAIN = "2026-11-30T20:59:59.694624198Z"
EXTENSION = "sahilrakhaiya.grok-build-gui"

NAMES = [
    "release notes",
    "e\u0301 not composed",
    "🙂👩‍👩‍👧",
    "\u202eright to left",
    "two\nlines",
    "\x1b[31mred\x1b[0m\x07",
    "n" * 500,
    " spaced ",
]

Object = dict[str, Any]


@pytest.fixture(autouse=True)
def no_editors(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The developer's own editors are not looked at."""
    monkeypatch.setenv(tabs.VARIABLE, str(tmp_path / "none"))


def said(**fields: Any) -> Object:
    """A summary after one turn; None takes a field out."""
    whole = {
        "info": {"id": SESSION, "cwd": CWD},
        "session_summary": "Scripted",
        "created_at": "2026-11-30T20:51:55.611444744Z",
        "updated_at": "2026-11-30T20:51:56.890607875Z",
        "num_messages": 3,
        "next_trace_turn": 1,
        "request_id": "f9e0a7ee-6483-4505-afd6-b65e47e3873e",
        "last_active_at": "2026-11-30T20:51:55.870748708Z",
        "generated_title": "Scripted",
        **fields,
    }
    return {name: value for name, value in whole.items() if value is not None}


def unprompted(**fields: Any) -> Object:
    taken = dict.fromkeys(("request_id", "last_active_at", "generated_title"))
    return said(**{"session_summary": "", "num_messages": 0, "next_trace_turn": 0, **taken, **fields})


def update(kind: str, when: float = SPOKEN, key: str = "", **more: Any) -> bytes:
    meta = {"agentTimestampMs": int(when * 1000), **({"promptId": key} if key else {})}
    parameters = {"sessionId": SESSION, "update": {"sessionUpdate": kind, **more}, "_meta": meta}
    return json.dumps({"timestamp": int(when), "method": "session/update", "params": parameters}).encode() + b"\n"


ASKED = update("user_message_chunk", SPOKEN - 2, content={"type": "text", "text": "hello"})
ANSWERED = update("agent_message_chunk", SPOKEN, "p1", content={"type": "text", "text": "hi"})
LOADED = update("background_tasks", SPOKEN + 900, tasks=[])
CUT_OFF = update("turn_completed", SPOKEN + 900, prompt_id="p1", stop_reason="interrupted")


def keep(store: Path, what: Object | bytes, updates: bytes = b"", session: str = SESSION, directory: str = "%2Fhome") -> Path:
    folder = store / "sessions" / directory / session
    folder.mkdir(parents=True, exist_ok=True)
    if updates:
        (folder / "updates.jsonl").write_bytes(updates)
    path = folder / "summary.json"
    path.write_bytes(what if isinstance(what, bytes) else json.dumps(what).encode())
    return path


def read(store: Path, path: Path, before: Told | None = None) -> Told:
    file = listed(str(path))
    assert file is not None
    return SHELF.read(str(store), file, before)


def card(store: Path, what: Object | bytes, updates: bytes = ASKED + ANSWERED, **where: str) -> Card:
    (found,) = read(store, keep(store, what, updates, **where)).cards
    return found


# A session's summary


@pytest.mark.requirement("SE-03")
def test_a_plain_session(tmp_path: Path) -> None:
    path = keep(tmp_path, said(), ASKED + ANSWERED)
    told = read(tmp_path, path)
    (found,) = told.cards
    assert found._replace(rank=0) == Card(SESSION, CWD, "", "Scripted", SPOKEN)
    assert (told.read, told.names, told.holds) == (path.stat().st_size, (), ())
    assert unpacked(packed(told)) == told
    assert read(tmp_path, path, told) == told


@pytest.mark.requirement("SE-03", "SE-14")
@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_kept_as_it_was_given(tmp_path: Path, name: str) -> None:
    assert card(tmp_path, said(generated_title=name, title_is_manual=True))[2:4] == (name, "")


@pytest.mark.requirement("SE-03")
@pytest.mark.parametrize(
    ("fields", "name", "title"),
    [
        ({"title_is_manual": True}, "Scripted", ""),
        ({"title_is_manual": False}, "", "Scripted"),
        ({"title_is_manual": "true"}, "", "Scripted"),
        ({"title_is_manual": 1}, "", "Scripted"),
        ({"generated_title": None}, "", "Scripted"),
        ({"generated_title": None, "title_is_manual": True}, "", "Scripted"),
        ({"generated_title": "", "title_is_manual": True}, "", "Scripted"),
        ({"generated_title": ["x"], "session_summary": 7}, "", ""),
        ({"generated_title": "t" * 300}, "", kept("t" * 300)),
    ],
)
def test_only_a_title_that_somebody_gave_is_a_name(tmp_path: Path, fields: Object, name: str, title: str) -> None:
    assert card(tmp_path, said(**fields))[2:4] == (name, title)


SUB_AGENT, SILENT = "a sub-agent's session", "no message yet"


@pytest.mark.requirement("SE-03")
@pytest.mark.parametrize(
    ("what", "updates", "barred"),
    [
        (said(), ASKED, ""),
        (said(session_kind="headless"), ANSWERED, ""),
        (said(session_kind="fork"), ANSWERED, ""),
        (said(session_kind=7), ANSWERED, ""),
        (said(session_kind="subagent", request_id=None), ANSWERED, SUB_AGENT),
        (said(session_kind="subagent_of_a_kind"), ANSWERED, SUB_AGENT),
        (unprompted(), b"", SILENT),
        # 1.0.41 counts what it writes when an unprompted session is opened again.
        (unprompted(num_messages=1, last_active_at=OPENED_AGAIN), LOADED, SILENT),
        # A person's words were written, and then the process was killed (1.0.5).
        (unprompted(), ASKED, ""),
        (unprompted(request_id="p1"), b"", ""),
        (unprompted(next_trace_turn=1), b"", ""),
        (unprompted(parent_session_id=OTHER), ASKED + ANSWERED, ""),
    ],
)
def test_what_is_no_target(tmp_path: Path, what: Object, updates: bytes, barred: str) -> None:
    assert card(tmp_path, what, updates).barred == barred


@pytest.mark.requirement("SE-03")
@pytest.mark.parametrize("opening", [b"", LOADED, CUT_OFF, LOADED + CUT_OFF + LOADED])
def test_opening_a_session_does_not_move_it(tmp_path: Path, opening: bytes) -> None:
    again = said(last_active_at=OPENED_AGAIN, updated_at=OPENED_AGAIN)
    assert card(tmp_path, again, ASKED + ANSWERED + opening).moved == SPOKEN


@pytest.mark.requirement("SE-03", "SE-05")
@pytest.mark.parametrize(
    ("what", "updates", "moved"),
    [
        (said(), ASKED, SPOKEN - 2),
        (said(), ASKED + ANSWERED[:-1], SPOKEN - 2),  # half written
        (said(), ANSWERED + b"\x00" * 200_000 + b"\n", SPOKEN),
        (said(), ANSWERED + b'"promptId"' * 20_000 + b"\n", SPOKEN),  # longer than what is decoded
        (said(), b"\x00" * 3_000_000 + b"\n" + ASKED, SPOKEN - 2),
        (said(), b'{"promptId"', "2026-11-30T20:51:55.870748708Z"),
        (said(), b"", "2026-11-30T20:51:55.870748708Z"),
        (said(last_active_at=None), b"", "2026-11-30T20:51:56.890607875Z"),
        (unprompted(updated_at=OPENED_AGAIN), b"", "2026-11-30T20:51:55.611444744Z"),
        (unprompted(created_at="yesterday"), b"", 0.0),
    ],
)
def test_when_it_moved(tmp_path: Path, what: Object, updates: bytes, moved: float | str) -> None:
    expected = moved if isinstance(moved, float) else summary.moment(moved)
    assert card(tmp_path, what, updates).moved == expected


def test_a_moment_has_nanoseconds() -> None:
    assert summary.moment("2026-11-30T20:51:55.870748708Z") == pytest.approx(1796071915.870748708)
    assert summary.moment("2026-11-30T20:51:55Z") == summary.moment("2026-11-30T22:51:55+02:00") == 1796071915
    assert summary.moment("2026-02-30T20:51:55Z") == summary.moment("0001-01-01T00:00:00+14:00") == summary.moment(None) == 0


def test_a_number_that_no_float_holds_is_no_time(tmp_path: Path) -> None:
    whole = json.loads(ANSWERED)
    whole["params"]["_meta"]["agentTimestampMs"] = 10**400
    assert card(tmp_path, said(), ASKED + json.dumps(whole).encode() + b"\n").moved == SPOKEN - 2


@pytest.mark.requirement("SE-03")
def test_a_copy_of_a_session_is_none(tmp_path: Path) -> None:
    """As ``grok sessions list`` has it."""
    assert read(tmp_path, keep(tmp_path, said(), ANSWERED, session=f"{SESSION}.bak")).cards == ()


@pytest.mark.requirement("SE-03")
def test_the_directory_of_a_session_that_does_not_say_it(tmp_path: Path) -> None:
    nowhere = said(info={"id": SESSION})
    assert card(tmp_path, nowhere, directory="%2Fhome%2Fme%2Fod%20d_.%C3%BC").cwd == "/home/me/od d_.ü"
    long = "zzz-6abb31789fbca94a"
    assert card(tmp_path, nowhere, directory=long).cwd == ""
    (tmp_path / "sessions" / long / ".cwd").write_text("/very/long/ü", encoding="utf-8")
    assert card(tmp_path, nowhere, directory=long).cwd == "/very/long/ü"


@pytest.mark.requirement("SE-05")
def test_a_summary_may_end_anywhere() -> None:
    whole = json.dumps(said()).encode()
    assert [summary.card_of(whole[:cut], SESSION, 0.0) for cut in range(len(whole))] == [None] * len(whole)


@pytest.mark.requirement("SE-05")
@pytest.mark.parametrize(
    "content", [b"", b"\x00\xff\xfe", b"[]", b"[" * 100_000, b'{"info":[]}', b'{"info":{"id":1}}', b"\x00" * (1 << 20)]
)
def test_what_is_no_summary_tells_nothing(tmp_path: Path, content: bytes) -> None:
    assert read(tmp_path, keep(tmp_path, content, ANSWERED)).cards == ()


@pytest.mark.requirement("SE-05", "SE-14")
def test_huge_files_cost_little(tmp_path: Path) -> None:
    path = keep(tmp_path, said(generated_title="renamed", title_is_manual=True))
    with open(path.with_name("updates.jsonl"), "wb") as file:
        file.truncate(1 << 30)
        file.seek(1 << 30)
        file.write(b"\n" + ANSWERED)
    before = time.process_time()
    (found,) = read(tmp_path, path).cards
    assert (found.name, found.moved) == ("renamed", SPOKEN)
    os.truncate(path, 1 << 30)
    assert read(tmp_path, path).cards == ()
    assert time.process_time() - before < 0.5


@pytest.mark.requirement("SE-05")
def test_what_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    path = keep(tmp_path, said())
    os.mkfifo(path.with_name("updates.jsonl"))
    assert read(tmp_path, path).cards[0].moved == summary.moment(said()["last_active_at"])
    path.with_name("updates.jsonl").unlink()
    path.with_name("updates.jsonl").mkdir()
    assert len(read(tmp_path, path).cards) == 1
    file = listed(str(path))
    assert file is not None
    path.unlink()
    with pytest.raises(OSError):
        SHELF.read(str(tmp_path), file, None)
    os.mkfifo(path)
    with pytest.raises(OSError):
        SHELF.read(str(tmp_path), file, None)
    assert list(SHELF.files(str(tmp_path))) == []


@pytest.mark.requirement("SE-05")
@pytest.mark.skipif(os.geteuid() == 0, reason="everything is readable to root")
def test_what_may_not_be_read_is_left_out(tmp_path: Path) -> None:
    path = keep(tmp_path, said(), ANSWERED)
    path.with_name("updates.jsonl").chmod(0)
    assert len(read(tmp_path, path).cards) == 1
    path.chmod(0)
    with pytest.raises(PermissionError):
        read(tmp_path, path)
    path.parents[1].chmod(0)
    try:
        assert list(SHELF.files(str(tmp_path))) == []
    finally:
        path.parents[1].chmod(0o700)


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
stamps = st.datetimes().map(lambda when: when.isoformat() + "Z") | anything


@pytest.mark.requirement("SE-05")
@given(
    st.binary()
    | st.dictionaries(st.sampled_from(sorted(said())), anything).map(lambda fields: json.dumps({**said(), **fields}).encode())
)
def test_any_bytes_are_a_summary_or_none(content: bytes) -> None:
    found = summary.card_of(content, SESSION, 0.0)
    if found is not None:
        assert unpacked(packed(Told(cards=(found,)))).cards == (found,)
    summary.holds_of(content)


@pytest.mark.requirement("SE-05")
@given(stamps, st.lists(st.binary() | st.sampled_from([ASKED, ANSWERED, LOADED, CUT_OFF])), st.integers(0, 400))
def test_any_lines_have_a_time_or_none(stamp: object, lines: list[bytes], cut: int) -> None:
    assert 0 <= summary.moment(stamp) < 1e11
    assert 0 <= summary.last_spoken([*lines, ANSWERED[:cut] + b'"promptId"']) < 1e11


@pytest.mark.requirement("SE-05")
@given(st.dictionaries(st.sampled_from(["timestamp", "params", "_meta", "update", "promptId", "agentTimestampMs"]), anything))
def test_any_update_has_a_time_or_none(fields: Object) -> None:
    meta = {"promptId": "p", "agentTimestampMs": fields.get("agentTimestampMs")}
    lines = [
        {"params": {"_meta": meta}, **fields},
        {"params": {"_meta": meta, "update": {"sessionUpdate": "user_message_chunk"}}, "timestamp": fields.get("timestamp")},
    ]
    assert 0 <= summary.last_spoken([json.dumps(line).encode() for line in lines]) < 1e11


# Which files there are


@pytest.mark.requirement("SE-03")
def test_the_files_of_a_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = tmp_path / "editor" / "state.vscdb"
    names.parent.mkdir()
    names.write_bytes(b"")
    monkeypatch.setenv(tabs.VARIABLE, f"{names}:{tmp_path}/missing/state.vscdb")
    store = tmp_path / "home"
    registry = store / "active_sessions.json"
    kept = {names, registry, keep(store, said(), ANSWERED), keep(store, said(), session=OTHER, directory="%2Fother")}
    registry.write_bytes(b"[]")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    linked = store / "sessions" / "%2Flinked"
    linked.symlink_to(elsewhere)
    kept.add(keep(store, said(), directory="%2Flinked"))
    (store / "sessions" / "session_search.sqlite").write_bytes(b"")
    (store / "sessions" / "%2Fother" / "prompt_history.jsonl").write_bytes(b"")
    (store / "sessions" / "%2Fother" / "loop").symlink_to(store / "sessions")
    (store / "sessions" / "%2Fother" / "directory" / "summary.json").mkdir(parents=True)
    found = list(SHELF.files(str(store)))
    assert {Path(file.path) for file in found} == kept
    assert found == [listed(file.path) for file in found]
    assert all(SHELF.concerns(str(store), file.path) for file in found)
    for other in ("sessions/%2Fhome/x/updates.jsonl", "sessions/x/summary.json", "summary.json", "logs/active_sessions.json"):
        assert not SHELF.concerns(str(store), str(store / other))
    order = list(SHELF.folders(str(store)))
    assert order == [
        Folder(str(store)),
        Folder(str(store / "sessions"), deep=True),
        *sorted([Folder(str(linked), deep=True), Folder(str(store / "sessions" / "%2Fother" / "loop"))], key=order.index),
        Folder(str(names.parent)),
        Folder(str(tmp_path / "missing")),
    ]


@pytest.mark.requirement("SE-03")
def test_a_store_behind_a_link_and_one_that_is_not_there(tmp_path: Path) -> None:
    keep(tmp_path / "real", said(), ANSWERED)
    (tmp_path / "link").symlink_to("real")
    (file,) = SHELF.files(str(tmp_path / "link"))
    assert file.path.startswith(str(tmp_path / "link"))
    assert SHELF.concerns(str(tmp_path / "link"), file.path)
    assert SHELF.read(str(tmp_path / "link"), file, None).cards[0].id == SESSION
    assert list(SHELF.files(str(tmp_path / "nowhere"))) == []


@pytest.mark.requirement("SE-03")
def test_where_editors_keep_names() -> None:
    state = "User/globalStorage/state.vscdb"
    linux = tabs.databases({"HOME": "/h"}, "linux")
    assert linux == [f"/h/.config/{editor}/{state}" for editor in ("Code", "Code - Insiders", "VSCodium", "Cursor", "Windsurf")]
    assert tabs.databases({"HOME": "/h", "XDG_CONFIG_HOME": "/h/.config"}, "linux") == linux
    moved = tabs.databases({"HOME": "/h", "XDG_CONFIG_HOME": "/x"}, "linux")
    assert (moved[0], moved[5:]) == (f"/x/Code/{state}", linux)
    assert tabs.databases({"HOME": "/h"}, "darwin")[3] == f"/h/Library/Application Support/Cursor/{state}"
    assert tabs.databases({"HOME": "/h", tabs.VARIABLE: "/a:/b b::/a"}, "linux") == ["/a", "/b b"]
    assert tabs.databases({"HOME": "/h", tabs.VARIABLE: ""}, "linux") == linux


# The names of tabs

TABLE = "CREATE TABLE ItemTable (key TEXT UNIQUE ON CONFLICT REPLACE, value BLOB)"


def state(names: dict[str, Any]) -> str:
    return json.dumps(
        {"grok.sessionMeta": {session: {"customName": name, "autoName": "other"} for session, name in names.items()}}
    )


def editor_database(path: Path, value: object, key: str = EXTENSION) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(TABLE)
        connection.executemany("INSERT INTO ItemTable VALUES (?, ?)", [("other.extension", "{"), (key, value)])
    return path


def names(path: Path) -> dict[str, str]:
    return dict(read(path.parent, path).names)


@pytest.mark.requirement("SE-03")
def test_tabs_that_were_named(tmp_path: Path) -> None:
    given = {f"{SESSION}-{number}": name for number, name in enumerate(NAMES)}
    path = editor_database(
        tmp_path / "an editor?#%41" / "state.vscdb", state({**given, OTHER: "", "x": 7, "y": None, "z": ["n"]})
    )
    assert names(path) == given
    assert os.listdir(path.parent) == ["state.vscdb"]
    link = tmp_path / "state.vscdb"
    link.symlink_to(path)
    assert names(link) == given


@pytest.mark.requirement("SE-03")
@pytest.mark.parametrize(
    ("value", "key"),
    [
        (state({SESSION: "mine"}).encode(), EXTENSION),
        (state({SESSION: "mine"}), "SahilRakhaiya.grok-build-gui"),
        (json.dumps({"grok": {"sessionMeta": {SESSION: {"customName": "mine"}}}}), EXTENSION),
        (
            json.dumps({"grok.sessionMeta": {SESSION: {"customName": "mine", "plans": ["p" * (2 << 20)]}, "a": [], "b": 1}}),
            EXTENSION,
        ),
    ],
)
def test_forms_of_an_extensions_state(tmp_path: Path, value: object, key: str) -> None:
    assert names(editor_database(tmp_path / "state.vscdb", value, key)) == {SESSION: "mine"}


@pytest.mark.requirement("SE-03", "SE-05")
@pytest.mark.parametrize(
    "value",
    [None, 7, "", "{", "[]", '"x"', '{"grok.sessionMeta":[1]}', b"\xff\x00{", "[" * 5000, '{"a":' * 5000, " " * (17 << 20)],
)
def test_a_state_without_names(tmp_path: Path, value: object) -> None:
    assert names(editor_database(tmp_path / "state.vscdb", value)) == {}
    assert names(editor_database(tmp_path / "another.vscdb", state({SESSION: "x"}), "somebody.else")) == {}


@pytest.mark.requirement("SE-05")
@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(anything)
def test_any_state_is_looked_at(tmp_path: Path, value: object) -> None:
    for number, content in enumerate((value, {"grok.sessionMeta": value}, {"grok.sessionMeta": {SESSION: value}})):
        path = tmp_path / f"{number}.vscdb"
        path.unlink(missing_ok=True)
        names(editor_database(path, json.dumps(content)))


@pytest.mark.requirement("SE-05")
def test_a_database_may_be_broken_anywhere(tmp_path: Path) -> None:
    whole = editor_database(tmp_path / "state.vscdb", state({SESSION: "mine"})).read_bytes()
    broken = tmp_path / "broken.vscdb"
    for cut in [*range(0, 120, 7), *range(120, len(whole), 997)]:
        for content in (whole[:cut], whole[:cut] + os.urandom(64) + whole[cut + 64 :]):
            broken.write_bytes(content)
            try:
                read(tmp_path, broken)
            except OSError:
                pass
    for content in (b"", b"no database at all, whatever it is called", b"SQLite format 3\x00", b"\x00" * 4096):
        broken.write_bytes(content)
        assert names(broken) == {}
    with closing(sqlite3.connect(tmp_path / "empty.vscdb")) as connection, connection:
        connection.execute("CREATE TABLE something (else_ TEXT)")
    assert names(tmp_path / "empty.vscdb") == {}


EDITOR = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=1)
for line in sys.stdin:
    try:
        connection.execute(*eval(line)).fetchall()
        print("done", flush=True)
    except sqlite3.Error as error:
        print(error, flush=True)
"""


class Editor:
    """A program that has a database open, in a process of its own: locks within one process mean nothing."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.process: subprocess.Popen[str] = subprocess.Popen(
            [sys.executable, "-c", EDITOR, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def do(self, statement: str, *values: object) -> None:
        incoming, outgoing = self._pipes()
        incoming.write(f"{(statement, values)!r}\n")
        incoming.flush()
        assert outgoing.readline() == "done\n"

    def keep(self, given: dict[str, str]) -> None:
        self.do("INSERT INTO ItemTable VALUES (?, ?)", EXTENSION, state(given))

    def close(self) -> None:
        self._pipes()[0].close()
        self._end()

    def kill(self) -> None:
        self.process.kill()
        self._end()

    def _end(self) -> None:
        self.process.wait(10)
        for pipe in self._pipes():
            pipe.close()

    def _pipes(self) -> tuple[IO[str], IO[str]]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        return self.process.stdin, self.process.stdout


@contextmanager
def editing(path: Path, journal: str) -> Iterator[Editor]:
    path.parent.mkdir(exist_ok=True)
    editor = Editor(path)
    try:
        editor.do(f"PRAGMA journal_mode = {journal}")
        editor.do(TABLE)
        yield editor
    finally:
        if editor.process.returncode is None:
            editor.kill()


def beside(path: Path) -> list[str]:
    return sorted(os.listdir(path.parent))


@pytest.mark.requirement("SE-03", "SE-14")
@pytest.mark.parametrize("journal", ["DELETE", "WAL", "TRUNCATE"])
def test_names_are_read_while_an_editor_has_them_open(tmp_path: Path, journal: str) -> None:
    path = tmp_path / "editor" / "state.vscdb"
    with editing(path, journal) as editor:
        for number in range(3):
            os.utime(path, (1, 1))  # a clock may tell the same time twice
            changed = tabs.listed_with_log(str(path))
            editor.keep({SESSION: f"name {number}"})
            assert tabs.listed_with_log(str(path)) != changed
            files = beside(path)
            assert names(path) == {SESSION: f"name {number}"}
            assert beside(path) == files
        editor.close()
        files = beside(path)
        assert f"{path.name}{tabs.LOG}" not in files
        assert names(path) == {SESSION: "name 2"}
        assert beside(path) == files


@pytest.mark.requirement("SE-03")
def test_an_editor_was_killed(tmp_path: Path) -> None:
    path = tmp_path / "editor" / "state.vscdb"
    with editing(path, "WAL") as editor:
        editor.keep({SESSION: "mine"})
        editor.kill()
    files = ["state.vscdb", "state.vscdb-shm", "state.vscdb-wal"]
    assert beside(path) == files
    assert names(path) == {SESSION: "mine"}
    assert beside(path) == files
    os.unlink(f"{path}-shm")
    with pytest.raises(OSError):
        names(path)
    assert beside(path) == ["state.vscdb", "state.vscdb-wal"]


@pytest.mark.requirement("SE-03")
@pytest.mark.parametrize("journal", ["DELETE", "WAL"])
def test_an_editor_that_writes_is_not_disturbed(tmp_path: Path, journal: str) -> None:
    path = tmp_path / "editor" / "state.vscdb"
    with editing(path, journal) as editor:
        editor.keep({SESSION: "old"})
        editor.do("BEGIN IMMEDIATE")
        editor.keep({SESSION: "new"})
        assert names(path) == {SESSION: "old"}
        editor.do("COMMIT")
        assert names(path) == {SESSION: "new"}
        editor.do("BEGIN EXCLUSIVE")
        if journal == "DELETE":
            with pytest.raises(OSError):
                names(path)
        editor.keep({SESSION: "newest"})
        editor.do("COMMIT")
        assert names(path) == {SESSION: "newest"}


# The registry of processes


def registry(store: Path, *entries: object) -> Path:
    path = store / "active_sessions.json"
    path.write_text(json.dumps(list(entries)), encoding="utf-8")
    return path


def entry(pid: object, session: object = SESSION, opened: object = "2026-11-30T20:57:34.020650677Z") -> Object:
    return {"session_id": session, "pid": pid, "cwd": CWD, "opened_at": opened}


@pytest.mark.requirement("SE-09", "SE-05")
def test_what_the_registry_says(tmp_path: Path) -> None:
    odd = [
        entry("7"),
        entry(True),
        entry(-1),
        entry(0),
        entry(2**31),
        entry(1.5),
        entry(7, 7),
        entry(7, opened=None),
        [],
        7,
        None,
    ]
    assert read(tmp_path, registry(tmp_path, entry(7), *odd, entry(8, OTHER))).holds == (
        Hold(SESSION, 7, "2026-11-30T20:57:34.020650677Z"),
        Hold(OTHER, 8, "2026-11-30T20:57:34.020650677Z"),
    )
    whole = registry(tmp_path, entry(7)).read_bytes()
    for cut in range(len(whole)):
        assert summary.holds_of(whole[:cut]) == ()


def stamp(ago: float = 0.0) -> str:
    return (datetime.now(timezone.utc) - timedelta(seconds=ago)).isoformat().replace("+00:00", "123Z")


@contextmanager
def running(program: Path) -> Iterator[ProcessId]:
    program.parent.mkdir(exist_ok=True)
    if not program.exists():
        shutil.copy(shutil.which("sleep") or "", program)
    with subprocess.Popen([program, "60"]) as child:
        try:
            process = identify(child.pid)
            assert process is not None
            yield process
        finally:
            child.kill()


def held(*holds: Hold) -> dict[str, tuple[ProcessId, ...]]:
    return dict(SHELF.holding("", holds))


@pytest.mark.requirement("SE-09")
@pytest.mark.parametrize("name", ["grok", "grok-native", "grok-1.0.41"])
def test_who_holds_a_session(tmp_path: Path, name: str) -> None:
    with running(tmp_path / "bin" / name) as process, running(tmp_path / "bin" / "grok") as second:
        holds = [Hold(SESSION, process.pid, stamp()), Hold(SESSION, process.pid, stamp()), Hold(OTHER, process.pid, stamp())]
        assert held(*holds) == {SESSION: (process,), OTHER: (process,)}
        assert held(*holds, Hold(SESSION, second.pid, stamp())) == {SESSION: (process, second), OTHER: (process,)}
        os.unlink(tmp_path / "bin" / name)  # as an update does
        assert held(holds[0]) == {SESSION: (process,)}
    assert held(*holds) == {}


@pytest.mark.requirement("SE-09")
def test_a_pid_that_was_used_again_holds_nothing(tmp_path: Path) -> None:
    with running(tmp_path / "bin" / "grok") as process, running(tmp_path / "bin" / "another") as other:
        assert held(Hold(SESSION, process.pid, stamp(ago=60)), Hold(SESSION, other.pid, stamp())) == {}
        assert held(Hold(SESSION, process.pid, "whenever"), Hold(SESSION, process.pid), Hold(SESSION, os.getpid(), stamp())) == {}


@pytest.mark.requirement("SE-09")
def test_an_entry_that_a_kill_left_behind_holds_nothing(tmp_path: Path) -> None:
    with running(tmp_path / "bin" / "grok") as process:
        left = Hold(SESSION, process.pid, stamp())
    many = [Hold(str(number), 2**31 - 1 - number, stamp()) for number in range(500)]
    before = time.process_time()
    assert held(left, *many) == {}
    assert time.process_time() - before < 0.05
