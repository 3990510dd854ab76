"""Which files are read, from where on, and what of it lives on: counted, not timed."""

from __future__ import annotations

import errno
import os
import sqlite3
import stat
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.index.catalogue import Store
from broker.index.feed import Change, unpacked_told
from broker.index.kept import Kept
from broker.index.leaves import Leaves
from shims.shelf import shelf
from tests.integration.made_up_stores import ClaudeStore, CodexStore
from tests.unit.made_up_shelf import END, MadeUpShelf

LONG_AGO = 1_700_000_000_000_000_000


class Life:
    """One life of the index process, over one store."""

    def __init__(self, root: Path, kept: Kept | None = None) -> None:
        self.shelf = MadeUpShelf()
        self.path = root / "store"
        self.path.mkdir(exist_ok=True)
        self.kept = kept if kept is not None else Kept(str(root / "index.sqlite"))
        self.leaves = Leaves(self.kept, self.shelf, "made_up", str(self.path))
        self.catalogue = Store("made_up", str(self.path))
        self.clock = LONG_AGO

    def load(self) -> None:
        self.catalogue.apply(self.leaves.load())

    def look(self) -> dict[str, str]:
        """The names of all sessions after a look at everything."""
        self.told(self.leaves.survey())
        return self.names()

    def told(self, changes: Iterator[Change]) -> list[Change]:
        made = list(changes)
        self.catalogue.apply(made)
        return made

    def names(self) -> dict[str, str]:
        return {known.id: known.name for known in self.catalogue.recent()}

    def file(self, session: str) -> Path:
        return self.path / f"{session}{END}"

    def write(self, **sessions: str) -> None:
        for session, content in sessions.items():
            self.file(session).write_text(content)
            self.rest(session)

    def append(self, session: str, content: str) -> None:
        with self.file(session).open("a") as file:
            file.write(content)
        self.rest(session)

    def rest(self, session: str) -> None:
        """Nothing has been written for a while; no two writes have the same time."""
        self.clock += 1_000_000_000
        os.utime(self.file(session), ns=(self.clock, self.clock))

    def reads(self) -> list[tuple[str, int]]:
        """What was read since this was asked last."""
        made = list(self.shelf.reads)
        self.shelf.reads.clear()
        return made

    def next(self, root: Path) -> Life:
        self.kept.close()
        return Life(root)


@pytest.fixture
def life(tmp_path: Path) -> Life:
    made = Life(tmp_path)
    made.write(a="one\n", b="two\n", c="three\n")
    assert made.look() == {"a": "one", "b": "two", "c": "three"}
    assert made.reads() == [("a", 0), ("b", 0), ("c", 0)]
    return made


@pytest.mark.requirement("SE-06")
def test_a_file_that_has_not_changed_is_not_read_again(life: Life) -> None:
    assert life.told(life.leaves.survey()) == []
    assert life.told(life.leaves.touched([str(life.file("a")), str(life.file("b"))])) == []
    assert life.reads() == []


@pytest.mark.requirement("SE-14")
def test_a_file_that_has_grown_is_read_from_where_it_was(life: Life) -> None:
    life.append("b", "new\n")
    assert life.look()["b"] == "new"
    assert life.reads() == [("b", 4)]
    life.append("b", "newer\n")
    assert [change.told is not None for change in life.told(life.leaves.touched([str(life.file("b"))]))] == [True]
    assert life.reads() == [("b", 8)]
    assert life.names()["b"] == "newer"


@pytest.mark.requirement("SE-14")
def test_a_file_that_was_cut_is_read_anew(life: Life) -> None:
    life.write(b="2\n")
    assert life.look()["b"] == "2"
    assert life.reads() == [("b", 0)]


@pytest.mark.requirement("SE-14")
def test_another_file_in_its_place_is_read_anew_even_a_longer_one(life: Life) -> None:
    other = life.path / "other"
    other.write_text("something\nelse\n")
    os.replace(other, life.file("b"))
    assert life.look()["b"] == "else"
    assert life.reads() == [("b", 0)]


@pytest.mark.requirement("SE-06")
def test_a_file_whose_time_alone_has_changed_is_looked_at_and_tells_nothing_new(life: Life) -> None:
    os.utime(life.file("a"), ns=(1, 1))
    assert life.told(life.leaves.survey()) == []
    assert life.reads() == [("a", 4)]
    assert life.told(life.leaves.survey()) == []
    assert life.reads() == []


@pytest.mark.requirement("SE-06")
@pytest.mark.parametrize("how", ["survey", "touched"])
def test_what_is_written_in_the_moment_in_which_a_file_was_read_is_found_by_the_next_look(
    life: Life, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file's time moves in steps of some milliseconds: two writes of the same length in one step look like one."""
    life.shelf.whole = True
    monkeypatch.setattr("broker.index.leaves._GRAIN", 60_000_000_000)
    when = time.time_ns()
    for name in ("two.1", "two.2", "two.3"):
        life.file("b").write_text(f"{name}\n")
        os.utime(life.file("b"), ns=(when, when))
        life.told(life.leaves.survey() if how == "survey" else life.leaves.touched([str(life.file("b"))]))
        assert life.names()["b"] == name
    life.rest("b")
    life.look()
    life.reads()
    assert life.told(life.leaves.survey()) == []
    assert life.reads() == []


@pytest.mark.requirement("SE-06")
def test_a_file_from_the_future_is_not_read_at_each_look(life: Life) -> None:
    os.utime(life.file("b"), ns=(2 * LONG_AGO, 2 * LONG_AGO))
    life.look()
    life.reads()
    life.look()
    assert life.reads() == []


@pytest.mark.requirement("SE-06")
@pytest.mark.parametrize("how", ["survey", "touched"])
def test_a_file_that_is_gone_is_told(life: Life, how: str) -> None:
    life.file("b").unlink()
    changes = life.leaves.survey() if how == "survey" else life.leaves.touched([str(life.file("b")), str(life.file("a"))])
    assert [change.told for change in life.told(changes)] == [None]
    assert life.names() == {"a": "one", "c": "three"}
    life.write(b="back\n")
    assert life.look()["b"] == "back"


@pytest.mark.requirement("SE-06")
def test_a_directory_in_the_place_of_a_file_is_no_file(life: Life) -> None:
    life.file("b").unlink()
    life.file("b").mkdir()
    assert life.look() == {"a": "one", "c": "three"}


@pytest.mark.requirement("SE-06")
def test_what_concerns_nobody_is_not_looked_at(life: Life) -> None:
    (life.path / "notes.txt").write_text("x")
    assert life.told(life.leaves.touched([str(life.path / "notes.txt"), "/elsewhere/a.log"])) == []
    assert life.reads() == []


@pytest.mark.requirement("SE-05")
def test_of_a_file_that_cannot_be_read_now_stands_what_was_known(life: Life, tmp_path: Path) -> None:
    life.shelf.refused = {"b", "new"}
    life.write(b="two\nand more\n", new="x\n", d="four\n")
    assert life.look() == {"a": "one", "b": "two", "c": "three", "d": "four"}
    life.reads()
    assert life.look() == {"a": "one", "b": "two", "c": "three", "d": "four"}
    assert [session for session, _ in life.reads()] == ["b", "new"], "each look tries again"
    life.shelf.refused.clear()
    assert life.look() == {"a": "one", "b": "and more", "c": "three", "d": "four", "new": "x"}
    second = life.next(tmp_path)
    second.load()
    assert second.look() == life.names()
    assert second.reads() == []


@pytest.mark.requirement("SE-05")
@pytest.mark.parametrize("how", ["survey", "touched"])
@pytest.mark.parametrize("what", ["store", "file"])
def test_what_cannot_be_looked_at_now_is_not_gone(life: Life, tmp_path: Path, how: str, what: str) -> None:
    hidden = str(life.path) if what == "store" else str(life.file("b"))
    life.shelf.hidden = {hidden}
    life.write(b="two\nand more\n")
    for _ in range(2):
        paths = [str(life.file(session)) for session in "abc"]
        assert life.told(life.leaves.survey() if how == "survey" else life.leaves.touched(paths)) == []
        assert life.leaves.unread >= {str(life.file("b")) if how == "touched" else hidden}
    second = life.next(tmp_path)
    second.shelf.hidden = {hidden}
    second.load()
    assert second.look() == {"a": "one", "b": "two", "c": "three"}
    second.shelf.hidden = set()
    assert second.look() == {"a": "one", "b": "and more", "c": "three"}
    assert second.leaves.unread == set()


@pytest.mark.requirement("SE-05")
def test_what_could_not_be_looked_at_is_tried_for_what_it_is(life: Life, monkeypatch: pytest.MonkeyPatch) -> None:
    file, directory, gone = str(life.file("b")), str(life.path), str(life.path / "gone")
    for unread, expected in (({file}, (False, {file})), ({file, directory}, (True, {file})), ({gone}, (True, set()))):
        life.leaves.unread = unread
        assert life.leaves.readable_again() == expected

    def refused(path: str, flags: int) -> int:
        raise OSError(errno.EMFILE, "no descriptors", path, flags)

    monkeypatch.setattr("os.open", refused)
    life.leaves.unread = {file, directory, gone}
    assert life.leaves.readable_again() == (False, set())


@pytest.mark.requirement("SE-05")
def test_a_file_that_is_written_while_it_is_read_is_to_be_looked_at_once_more(
    life: Life, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert life.leaves.unsettled == set()
    monkeypatch.setattr("broker.index.leaves._GRAIN", 60_000_000_000)
    life.file("b").write_text("new\n")
    os.utime(life.file("b"), ns=(time.time_ns(), time.time_ns()))
    life.told(life.leaves.touched([str(life.file("b"))]))
    assert life.leaves.unsettled == {str(life.file("b"))}


@pytest.mark.requirement("SE-05")
def test_a_file_at_which_a_shelf_fails_costs_this_file_alone(life: Life, caplog: pytest.LogCaptureFixture) -> None:
    life.shelf.broken = {"b"}
    life.write(b="two and more\n", d="four\n")
    assert life.look() == {"a": "one", "c": "three", "d": "four"}
    assert len(caplog.records) == 1
    life.look()
    assert len(caplog.records) == 1, "not once more for each look"


@pytest.mark.requirement("SE-14")
def test_the_second_life_knows_what_the_first_did_and_reads_what_has_changed(life: Life, tmp_path: Path) -> None:
    life.append("a", "grown\n")
    life.file("c").unlink()
    life.write(d="four\n")
    second = life.next(tmp_path)
    second.load()
    assert second.names() == {"a": "one", "b": "two", "c": "three"}
    assert second.look() == {"a": "grown", "b": "two", "d": "four"}
    assert second.reads() == [("a", 4), ("d", 0)]
    third = second.next(tmp_path)
    third.load()
    assert third.names() == second.names()
    assert third.told(third.leaves.survey()) == []
    assert third.reads() == []


@pytest.mark.requirement("SE-14")
def test_lives_tell_of_files_by_the_same_order(tmp_path: Path) -> None:
    """Of several files that name a session the one that was known last counts, in each life (see `catalogue`)."""
    life = Life(tmp_path)
    for session in "zyx":
        life.write(**{session: "1\n"})
        life.look()
    life.write(z="2\n")
    life.look()
    second = life.next(tmp_path)
    order = [unpacked_told(change.told).cards[0].id for change in second.leaves.load() if change.told is not None]
    assert order == ["z", "y", "x"]


@pytest.mark.requirement("SE-10")
def test_a_directory_is_told_resolved(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    life = Life(tmp_path)
    life.write(a="x\n")
    read = life.shelf.read
    life.shelf.read = lambda *given: (told := read(*given))._replace(  # type: ignore[method-assign]
        cards=tuple(card._replace(cwd=str(tmp_path / "link" / "below")) for card in told.cards)
    )
    life.look()
    (known,) = life.catalogue.recent()
    assert (known.cwd, known.place) == (str(tmp_path / "link" / "below"), str((tmp_path / "real").resolve() / "below"))


@pytest.mark.requirement("SE-10")
def test_a_directory_that_leads_elsewhere_now_is_told_anew(tmp_path: Path) -> None:
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
    link = tmp_path / "link"
    link.symlink_to("one")

    def begun(life: Life) -> Life:
        read = life.shelf.read
        life.shelf.read = lambda *given: (told := read(*given))._replace(  # type: ignore[method-assign]
            cards=tuple(card._replace(cwd=str(link) if card.id == "a" else "/w\udcff\ud83d") for card in told.cards)
        )
        return life

    def places(life: Life) -> dict[str, str]:
        return {known.id: known.place for known in life.catalogue.recent()}

    life = begun(Life(tmp_path))
    life.write(a="x\n", b="y\n")
    life.look()
    assert life.told(life.leaves.relocated()) == []
    link.unlink()
    link.symlink_to("other")
    assert len(life.told(life.leaves.relocated())) == 1
    assert places(life) == {"a": str(tmp_path / "other"), "b": "/w\udcff\ud83d"}
    assert life.told(life.leaves.relocated()) == []
    life.append("a", "more\n")
    link.unlink()
    link.symlink_to("one")
    life.told(life.leaves.touched([str(life.file("a"))]))
    assert places(life)["a"] == str(tmp_path / "one"), "what is read now is resolved now"
    life.kept.close()
    link.unlink()
    link.symlink_to("other")
    second = begun(Life(tmp_path))
    second.load()
    second.look()
    assert second.reads() == []
    assert len(second.told(second.leaves.relocated())) == 1
    assert places(second)["a"] == str(tmp_path / "other")


# two processes with one database


@pytest.mark.requirement("SE-06")
@pytest.mark.parametrize("network", [False, True], ids=["local", "network"])
def test_two_processes_with_one_database_know_the_same_and_tell_their_own_broker_all_of_it(
    tmp_path: Path, network: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("broker.index.kept.is_network", lambda _: network)
    life = Life(tmp_path)
    life.write(a="one\n", b="two\n", c="three\n")
    life.look()
    assert (tmp_path / "index.sqlite-wal").exists() is not network, "the memory of two machines is not shared"
    other = Life(tmp_path)
    other.load()
    assert other.look() == life.names()
    for number in range(3):
        life.write(**{f"new{number}": "x\n"})
        life.append("a", f"{number}\n")
        first, second = (life, other) if number % 2 else (other, life)
        assert first.look() == second.look()
        assert first.names()["a"] == str(number)
    life.file("b").unlink()
    assert life.look() == other.look()
    life.write(b="again\n")
    assert other.look() == life.look()
    third = life.next(tmp_path)
    third.load()
    assert third.look() == other.names()
    assert third.reads() == []


@pytest.mark.requirement("SE-06")
def test_while_another_process_writes_for_long_files_are_read_but_not_kept(
    life: Life, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("broker.index.kept._PATIENCE", 0.0)
    busy = sqlite3.connect(tmp_path / "index.sqlite", isolation_level=None)
    busy.execute("BEGIN IMMEDIATE")
    second = life.next(tmp_path)
    second.load()
    second.write(d="four\n")
    assert second.look() == {"a": "one", "b": "two", "c": "three", "d": "four"}
    busy.execute("ROLLBACK")
    busy.close()
    third = second.next(tmp_path)
    third.load()
    assert third.look() == second.names()
    assert third.reads() == [("d", 0)]


# databases that are none


def overwritten(database: Path) -> None:
    database.write_bytes(b"no database at all" * 100)


def cut(database: Path) -> None:
    os.truncate(database, database.stat().st_size // 2)


def zeros(database: Path) -> None:
    content = bytearray(database.read_bytes())
    content[4096:] = bytes(len(content) - 4096)
    database.write_bytes(content)


def changed_bytes(database: Path) -> None:
    content = database.read_bytes()
    assert content.count(b"one") == 1
    database.write_bytes(content.replace(b"one", b"eno"))


def another_form(database: Path) -> None:
    with sqlite3.connect(database) as connection:
        connection.execute("DROP TABLE leaves")
        connection.execute("CREATE TABLE leaves (other TEXT)")
        connection.execute("PRAGMA user_version = 999")


def empty(database: Path) -> None:
    database.write_bytes(b"")


@pytest.mark.requirement("SE-05", "SE-14")
@pytest.mark.parametrize(
    "damage", [overwritten, cut, zeros, changed_bytes, another_form, empty], ids=lambda damage: damage.__name__
)
def test_a_broken_database_is_made_anew(life: Life, tmp_path: Path, damage: object) -> None:
    life.kept.close()
    database = tmp_path / "index.sqlite"
    with sqlite3.connect(database) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    assert callable(damage)
    damage(database)
    second = Life(tmp_path)
    second.load()
    second.catalogue = Store("made_up", str(second.path)) if damage is changed_bytes else second.catalogue
    second.look()
    third = second.next(tmp_path)
    third.load()
    third.look()
    third.reads()
    fourth = third.next(tmp_path)
    fourth.load()
    assert fourth.names() == {"a": "one", "b": "two", "c": "three"}
    assert fourth.look() == {"a": "one", "b": "two", "c": "three"}
    assert fourth.reads() == []


@pytest.mark.requirement("SE-05")
def test_a_row_that_was_changed_on_the_disk_is_not_believed(life: Life, tmp_path: Path) -> None:
    life.kept.close()
    with sqlite3.connect(tmp_path / "index.sqlite") as connection:
        connection.execute("UPDATE leaves SET told = x'00' WHERE path LIKE '%b.log'")
    connection.close()
    second = Life(tmp_path)
    second.load()
    assert second.look() == {"a": "one", "b": "two", "c": "three"}


@pytest.mark.requirement("SE-14")
def test_a_transaction_that_was_not_finished_is_as_if_it_had_not_begun(life: Life, tmp_path: Path) -> None:
    other = sqlite3.connect(tmp_path / "index.sqlite", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    other.execute("DELETE FROM leaves")
    copy = tmp_path / "copy"
    copy.mkdir()
    for name in ("index.sqlite", "index.sqlite-wal"):  # what a killed process leaves behind
        (copy / name).write_bytes((tmp_path / name).read_bytes())
    other.close()
    second = Life(tmp_path, Kept(str(copy / "index.sqlite")))
    second.load()
    assert second.look() == life.names()
    assert second.reads() == []


@pytest.mark.requirement("SE-05")
@pytest.mark.parametrize("what", ["directory", "nowhere", "fifo-directory"])
def test_where_no_database_can_be_the_index_works_without(tmp_path: Path, what: str) -> None:
    path = tmp_path / "database"
    if what == "directory":
        path.mkdir()
    elif what == "fifo-directory":
        path.write_text("a file")
        path /= "index.sqlite"
    else:
        path = path / "not" / "there"
    life = Life(tmp_path, Kept(str(path)))
    life.load()
    life.write(a="one\n")
    assert life.look() == {"a": "one"}
    life.append("a", "more\n")
    assert life.look() == {"a": "more"}
    assert life.reads() == [("a", 0), ("a", 4)]


@pytest.mark.requirement("SE-05")
def test_a_database_that_breaks_under_its_process_costs_no_session(life: Life, tmp_path: Path) -> None:
    database = tmp_path / "index.sqlite"
    with sqlite3.connect(database) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    database.write_bytes(b"\xff" * database.stat().st_size)
    for number in range(5):
        life.write(**{f"s{number}": "x\n"})
        life.append("a", f"{number}\n")
        assert life.look()["a"] == str(number)
    assert len(life.names()) == 8


@pytest.mark.requirement("SE-05")
def test_the_database_is_its_owners_alone(life: Life, tmp_path: Path) -> None:
    assert life.names()
    assert {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.glob("index.sqlite*")} == {0o600}


# many names, and times that are still to come


@pytest.mark.requirement("EN-25", "SE-14")
def test_of_thousands_of_names_only_those_near_the_one_that_has_changed_are_told(tmp_path: Path) -> None:
    codex = CodexStore(tmp_path)
    codex.path.mkdir(exist_ok=True)
    names = tmp_path / "session_index.jsonl"
    ids = [f"01a22cf3-742a-7fdb-bc3e-{number:012}" for number in range(20_000)]
    names.write_text("".join(f'{{"id":"{each}","thread_name":"name {each}"}}\n' for each in ids))
    thread = codex.add(name="mine")
    leaves = Leaves(Kept(str(tmp_path / "index.sqlite")), shelf("codex"), "codex", str(tmp_path))
    store = Store("codex", str(tmp_path))
    store.apply(leaves.survey())
    assert [known.id for known in store.called("mine")] == [thread]
    for name in ("renamed", "again"):
        with names.open("a") as file:
            file.write(f'{{"id":"{thread}","thread_name":"{name}"}}\n')
        changes = list(leaves.touched([str(names)]))
        assert sum(len(change.told or b"") for change in changes) < 64 << 10
        store.apply(changes)
        assert [known.id for known in store.called(name)] == [thread]
    again = Leaves(Kept(str(tmp_path / "index.sqlite")), shelf("codex"), "codex", str(tmp_path))
    loaded = Store("codex", str(tmp_path))
    loaded.apply(again.load())
    assert [known.id for known in loaded.called("again")] == [thread]
    names.write_text(f'{{"id":"{thread}","thread_name":"alone"}}\n')
    store.apply(leaves.touched([str(names)]))
    assert [known.id for known in store.called("alone")] == [thread]
    names.unlink()
    store.apply(leaves.touched([str(names)]))
    assert (store.called("alone"), [known.name for known in store.recent()]) == ([], [""])


@pytest.mark.requirement("SE-07", "SE-11")
def test_a_record_of_a_time_that_is_still_to_come_was_written_when_its_file_was(tmp_path: Path) -> None:
    claude = ClaudeStore(tmp_path)
    session = claude.add(ago=-1e9)
    hour_ago = time.time() - 3600
    os.utime(claude.transcript(session), (hour_ago, hour_ago))
    other = claude.add(ago=-1e9)
    os.utime(claude.transcript(other), (hour_ago + 1e9, hour_ago + 1e9))
    store = Store("claude", str(tmp_path))
    store.apply(Leaves(Kept(str(tmp_path / "index.sqlite")), shelf("claude"), "claude", str(tmp_path)).survey())
    known, late = store.session(session), store.session(other)
    assert known is not None and abs(known.moved - hour_ago) < 2
    assert late is not None and abs(late.moved - time.time()) < 60
