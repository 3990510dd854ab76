"""The index process over real stores: what changes in them is known, whatever becomes of directories, watches and processes."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import signal
import stat
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from broker.index import program
from broker.index.catalogue import Catalogue, Store
from broker.index.indexer import Indexer
from broker.index.watching import Watching
from broker.tasks import Tasks
from shims.shelf import Folder
from tests.integration.indexing import PATIENCE, PROGRAM, Process, indexing, made
from tests.integration.made_up_stores import ClaudeStore, Stores

pytestmark = pytest.mark.requirement("SE-06")


@pytest.fixture
def home(tmp_path: Path) -> Stores:
    return Stores(tmp_path)


@pytest.fixture
def claude(home: Stores) -> ClaudeStore:
    home.claude.add(name="first")
    return home.claude


@pytest.fixture
def index(tmp_path: Path, claude: ClaudeStore) -> Iterator[Process]:
    """Over a store with one session, which is watched."""
    with indexing(tmp_path / "index.sqlite", ("claude", claude.path)) as process:
        process.until_watched()
        process.until_named("first")
        yield process


# what changes


def test_a_new_session_and_a_new_directory_are_known(index: Process, claude: ClaudeStore) -> None:
    claude.add(name="second")
    index.until_named("first", "second")
    claude.add("/elsewhere", name="third")
    index.until_named("first", "second", "third")


@pytest.mark.requirement("SE-14")
def test_a_rename_is_known_wherever_it_comes_to_stand(index: Process, claude: ClaudeStore) -> None:
    session = claude.add(name="second")
    index.until_named("first", "second")
    claude.rename(session, "renamed")
    index.until_named("first", "renamed")
    with claude.transcript(session).open("ab") as file:  # in the middle, when it is looked at: more follows at once
        file.write(b'{"type":"custom-title","customTitle":"in the middle","sessionId":"%s"}\n' % session.encode())
        file.write(b'{"type":"progress","x":"' + b"x" * (2 << 20) + b'"}\n')
    index.until_named("first", "in the middle")


def test_a_deleted_file_and_a_deleted_directory_are_known(index: Process, claude: ClaudeStore) -> None:
    gone = claude.add(name="second")
    claude.add("/other", name="third")
    claude.add("/other", name="fourth")
    index.until_named("first", "second", "third", "fourth")
    claude.transcript(gone).unlink()
    index.until_named("first", "third", "fourth")
    shutil.rmtree(claude.path / "projects" / "-other")
    index.until_named("first")
    claude.add("/other", name="fifth")
    index.until_named("first", "fifth")


@pytest.mark.requirement("SE-03")
def test_a_file_that_is_replaced_as_a_whole_is_known(tmp_path: Path, home: Stores) -> None:
    session = home.grok.add(name="one")
    (summary,) = home.grok.path.glob(f"sessions/*/{session}/summary.json")
    with indexing(tmp_path / "index.sqlite", ("grok", home.grok.path)) as index:
        index.until_watched()
        index.until_named("one")
        other = summary.with_suffix(".tmp")
        other.write_text(summary.read_text().replace("one", "two"))
        other.replace(summary)
        index.until_named("two")
        home.grok.add("/new", name="three")
        index.until_named("two", "three")


@pytest.mark.requirement("SE-02")
def test_of_codex_names_archives_and_deletions_are_known(tmp_path: Path, home: Stores) -> None:
    thread = home.codex.add(name="one")
    with indexing(tmp_path / "index.sqlite", ("codex", home.codex.path)) as index:
        index.until_watched()
        index.until_named("one")
        home.codex.add(name="two")
        index.until_named("one", "two")
        home.codex.archive(thread)
        index.until(lambda: (known := index.stores[0].session(thread)) is not None and known.barred)
        names = home.codex.path / "session_index.jsonl"
        names.with_suffix(".new").write_text(names.read_text().replace("two", "three"))
        names.with_suffix(".new").replace(names)
        index.until_named("one", "three")


def test_a_moved_directory_is_known(index: Process, claude: ClaudeStore, tmp_path: Path) -> None:
    session = claude.add("/a", name="second")
    index.until_named("first", "second")
    (claude.path / "projects" / "-a").rename(claude.path / "projects" / "-b")
    claude.rename(session, "renamed", "/b")
    index.until_named("first", "renamed")
    (claude.path / "projects" / "-b").rename(tmp_path / "away")
    index.until_named("first")
    (tmp_path / "away").rename(claude.path / "projects" / "-c")
    index.until_named("first", "renamed")
    claude.rename(session, "again", "/c")
    index.until_named("first", "again")


# stores that come and go


@pytest.mark.parametrize(
    ("agent", "depth"),
    [
        ("claude", 0),
        pytest.param("claude", 1, marks=pytest.mark.full),
        pytest.param("claude", 3, marks=pytest.mark.full),
        pytest.param("codex", 0, marks=pytest.mark.full),
        ("codex", 3),
        pytest.param("grok", 0, marks=pytest.mark.full),
        pytest.param("grok", 3, marks=pytest.mark.full),
    ],
)
def test_a_store_that_comes_later_is_known(tmp_path: Path, agent: str, depth: int) -> None:
    path = tmp_path.joinpath(*map(str, range(depth)), "store")
    with indexing(tmp_path / "index.sqlite", (agent, path)) as index:
        index.until_watched()
        store = made(agent, path)
        store.add(name="one")  # all directories at once
        index.until_named("one")
        store.add("/other", name="two")
        index.until_named("one", "two")


@pytest.mark.full
def test_a_store_that_comes_step_by_step_is_known(tmp_path: Path) -> None:
    claude = ClaudeStore(tmp_path / "a" / "b" / "store")
    with indexing(tmp_path / "index.sqlite", ("claude", claude.path)) as index:
        index.until_watched()
        for directory in (tmp_path / "a", tmp_path / "a" / "b", claude.path, claude.path / "projects"):
            before = index.ready[0]
            directory.mkdir()
            index.until(lambda before=before: index.ready[0] > before)  # type: ignore[misc]
        claude.add(name="one")
        index.until_named("one")


@pytest.mark.parametrize("soon", [pytest.param(False, marks=pytest.mark.full), True], ids=["later", "at once"])
@pytest.mark.parametrize(
    ("what", "how"), [pytest.param("store", "deleted", marks=pytest.mark.full), ("projects", "deleted"), ("projects", "moved")]
)
def test_a_directory_that_another_one_follows_is_known(
    index: Process, claude: ClaudeStore, tmp_path: Path, what: str, how: str, soon: bool
) -> None:
    directory = claude.path if what == "store" else claude.path / "projects"
    for number in range(2):
        if how == "deleted":
            shutil.rmtree(directory)
        else:
            directory.rename(tmp_path / f"away{number}")
        if not soon:
            index.until_named()
        directory.mkdir()
        claude.add(name=f"one {number}")
        index.until_named(f"one {number}")
        session = claude.add("/other", name="two")
        index.until_named(f"one {number}", "two")
        claude.rename(session, "renamed", "/other")
        index.until_named(f"one {number}", "renamed")


@pytest.mark.parametrize("what", [pytest.param("store", marks=pytest.mark.full), "projects"])
def test_a_store_behind_a_link_is_known(tmp_path: Path, what: str) -> None:
    claude = ClaudeStore(tmp_path / "store")
    if what == "store":
        (tmp_path / "real").mkdir()
        claude.path.symlink_to("real")
    else:
        (tmp_path / "real").mkdir()
        claude.path.mkdir()
        (claude.path / "projects").symlink_to(tmp_path / "real")
    session = claude.add(name="first")
    with indexing(tmp_path / "index.sqlite", ("claude", claude.path)) as index:
        index.until_watched()
        claude.rename(session, "renamed")
        index.until_named("renamed")
        claude.add("/other", name="second")
        index.until_named("renamed", "second")


@pytest.mark.full
def test_a_link_that_leads_elsewhere_now_is_known(tmp_path: Path) -> None:
    one, other = ClaudeStore(tmp_path / "one"), ClaudeStore(tmp_path / "other")
    one.add(name="one")
    session = other.add(name="other")
    home = tmp_path / "home"
    home.mkdir()
    (home / "projects").symlink_to(one.path / "projects")
    with indexing(tmp_path / "index.sqlite", ("claude", home)) as index:
        index.until_watched()
        index.until_named("one")
        (home / "new").symlink_to(other.path / "projects")
        (home / "new").rename(home / "projects")
        index.until_named("other")
        other.rename(session, "renamed")
        index.until_named("renamed")


# how much is looked at


def test_a_storm_of_writes_is_looked_at_a_few_times(index: Process, claude: ClaudeStore) -> None:
    session = claude.add(name="second")
    index.until_named("first", "second")
    before, begin = index.batches, time.monotonic()
    for number in range(1000):
        claude.rename(session, f"name {number}")
    index.until_named("first", "name 999")
    assert index.batches - before <= 2 + (time.monotonic() - begin) / program._AGAIN


def test_a_storm_of_directories_is_looked_at_a_few_times(index: Process, claude: ClaudeStore) -> None:
    before, begin = index.ready[0], time.monotonic()
    for number in range(500):
        (claude.path / "projects" / "-w" / f"{number}").mkdir()
    claude.add("/last", name="last")
    index.until_named("first", "last")
    assert index.ready[0] - before <= 2 + (time.monotonic() - begin) / program._RELIST


@pytest.mark.full
def test_while_nothing_happens_nobody_wakes_up(index: Process, claude: ClaudeStore) -> None:
    claude.add(name="second")
    index.until_named("first", "second")
    process = psutil.Process(index.process.pid)
    time.sleep(2 * program._AGAIN)
    before = process.num_ctx_switches().voluntary, [thread.user_time for thread in process.threads()]
    time.sleep(5)
    assert (process.num_ctx_switches().voluntary, [thread.user_time for thread in process.threads()]) == before


# where the system tells nothing

NO_WATCHES = """
import errno, os, sys
sys.path.insert(0, {root!r})
from watchdog.observers import inotify_c
if {how!r} == "network":
    import broker.index.watching
    broker.index.watching.is_network = lambda path: True
elif {how!r} == "no thread":
    import threading
    def refused(thread):
        raise RuntimeError("can't start new thread")
    threading.Thread.start = refused
else:
    import ctypes
    left = [{left}]
    add = inotify_c.inotify_add_watch
    def limited(*arguments):
        left[0] -= 1
        if left[0] < 0:
            ctypes.set_errno(errno.ENOSPC)
            return -1
        return add(*arguments)
    inotify_c.inotify_add_watch = limited
    if {how!r} == "instances":
        def none(*arguments):
            ctypes.set_errno(errno.EMFILE)
            return -1
        inotify_c.inotify_init = none
from broker.index import program
program.main()
"""


def crippled(tmp_path: Path, how: str, left: int = 0) -> tuple[str, ...]:
    script = tmp_path / "crippled.py"
    script.write_text(NO_WATCHES.format(root=str(PROGRAM.parents[2]), how=how, left=left))
    return sys.executable, "-I", str(script)


@pytest.mark.parametrize(
    ("how", "left"),
    [
        pytest.param("watches", 0, marks=pytest.mark.full),
        ("watches", 3),
        pytest.param("instances", 0, marks=pytest.mark.full),
        ("network", 0),
        pytest.param("no thread", 0, marks=pytest.mark.full),
    ],
)
def test_where_no_watch_can_be_had_it_is_said_and_a_look_finds_what_changed(
    tmp_path: Path, claude: ClaudeStore, how: str, left: int
) -> None:
    for number in range(5):
        claude.add(f"/{number}", name=f"{number}")
    with indexing(tmp_path / "index.sqlite", ("claude", claude.path), before=crippled(tmp_path, how, left)) as index:
        index.until(lambda: index.ready[0] >= 2)
        assert not index.watched[0]
        session = claude.add("/4", name="new")
        gone = claude.add("/3", name="gone")
        index.look()
        assert index.names() == {"first", "0", "1", "2", "3", "4", "new", "gone"}
        claude.transcript(gone, "/3").unlink()
        claude.rename(session, "renamed", "/4")
        index.look()
        assert index.names() == {"first", "0", "1", "2", "3", "4", "renamed"}
        assert not index.watched[0]


def test_watches_that_run_out_later_are_missed(tmp_path: Path, claude: ClaudeStore) -> None:
    with indexing(tmp_path / "index.sqlite", ("claude", claude.path), before=crippled(tmp_path, "watches", 20)) as index:
        index.until_watched()
        for number in range(30):
            claude.add(f"/{number}", name=f"{number}")
        index.until(lambda: not index.watched[0])
        index.look()
        assert len(index.names()) == 31


def test_without_descriptors_it_is_said(tmp_path: Path, claude: ClaudeStore) -> None:
    script = tmp_path / "few.py"
    script.write_text(
        f"import resource, sys; sys.path.insert(0, {str(PROGRAM.parents[2])!r})\n"
        "from broker.index import program\n"
        "import broker.index.watching\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (10, 10))\n"
        "program.main()\n"
    )
    with indexing(tmp_path / "index.sqlite", ("claude", claude.path), before=(sys.executable, "-I", str(script))) as index:
        index.until(lambda: index.ready[0] >= 2)
        assert not index.watched[0]
        claude.add(name="second")
        index.look()
        assert index.names() == {"first", "second"}


def test_what_was_lost_is_looked_for_and_the_watches_stand_again(tmp_path: Path) -> None:
    """As when the system had more to tell than it keeps."""
    relisted, touched = threading.Event(), threading.Event()
    watching = Watching(lambda: [Folder(str(tmp_path), deep=True)], lambda _: touched.set(), relisted.set)
    watching.begin()
    assert watching.complete
    watching.lost()
    assert relisted.is_set()
    watching.begin()
    assert watching.complete
    (tmp_path / "file").write_text("x")
    assert touched.wait(PATIENCE)
    watching.close()


def test_only_files_that_are_written_are_told_not_those_that_are_read(tmp_path: Path) -> None:
    (tmp_path / "read").write_text("x")
    told: list[str] = []
    written = threading.Event()

    def touched(path: str) -> None:
        told.append(path)
        if path.endswith("written"):
            written.set()

    watching = Watching(lambda: [Folder(str(tmp_path), deep=True)], touched, lambda: None)
    watching.begin()
    (tmp_path / "read").read_text()
    os.listdir(tmp_path)
    (tmp_path / "written").write_text("x")
    assert written.wait(PATIENCE)
    watching.close()
    assert set(told) == {str(tmp_path / "written")}


# processes that end


def test_it_ends_with_its_broker(index: Process) -> None:
    assert index.process.stdin is not None
    index.process.stdin.close()
    assert index.process.wait(PATIENCE) == 0


@pytest.mark.full
def test_it_ends_with_a_broker_that_was_killed(tmp_path: Path, claude: ClaudeStore) -> None:
    """Its input ends, and nobody reads what it says: whichever it finds first."""
    with indexing(tmp_path / "index.sqlite", ("claude", claude.path)) as index:
        index.until_watched()
        assert index.process.stdin is not None
        claude.add(name="second")
        index.process.stdin.close()
        assert index.process.wait(PATIENCE) == 0


@pytest.mark.requirement("SE-14")
def test_the_second_life_tells_what_the_first_did(tmp_path: Path, home: Stores) -> None:
    home.codex.add(name="x")
    home.grok.add(name="g")
    session = home.claude.add(name="c")
    stores = (("claude", home.claude.path), ("codex", home.codex.path), ("grok", home.grok.path))
    with indexing(tmp_path / "index.sqlite", *stores) as first:
        first.until(lambda: all(first.ready))
        known = [store.recent() for store in first.stores]
        assert [len(store) for store in known] == [1, 1, 1]
    with indexing(tmp_path / "index.sqlite", *stores) as second:
        second.until(lambda: all(second.ready))
        assert [store.recent() for store in second.stores] == known
    home.claude.rename(session, "meanwhile")
    with indexing(tmp_path / "index.sqlite", *stores) as third:
        third.until_named("meanwhile")


def test_two_processes_with_one_database_both_know_everything(tmp_path: Path, claude: ClaudeStore) -> None:
    with (
        indexing(tmp_path / "index.sqlite", ("claude", claude.path)) as one,
        indexing(tmp_path / "index.sqlite", ("claude", claude.path)) as other,
    ):
        one.until_watched()
        other.until_watched()
        sessions = [claude.add(f"/{number}", name=f"{number}") for number in range(20)]
        names = {"first", *map(str, range(20))}
        for index in (one, other):
            index.until_named(*names)
        claude.rename(sessions[3], "renamed", "/3")
        for index in (one, other):
            index.until_named(*names - {"3"}, "renamed")


async def ended(tasks: Tasks) -> None:
    tasks.cancel()
    await asyncio.wait(asyncio.all_tasks() - {asyncio.current_task()}, timeout=PATIENCE)


def test_a_killed_process_is_started_again_and_what_it_told_stays(
    tmp_path: Path, claude: ClaudeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("broker.index.indexer._FIRST_PAUSE", 0.05)
    session, gone = claude.add(name="second"), claude.add(name="gone")
    heard: set[str] = set()

    async def story() -> None:
        tasks = Tasks(logging.getLogger("test"))
        catalogue = Catalogue(lambda _, sessions: heard.update(known.name for known in sessions))
        indexer = Indexer(str(tmp_path / "index.sqlite"), catalogue, tasks)
        store = indexer.open("claude", str(claude.path))
        other = indexer.open("grok", str(tmp_path / "nothing"))
        assert await indexer.ready([store, other], PATIENCE)

        def names() -> set[str]:
            return {known.name for known in store.recent()}

        async def until(condition: Callable[[], object]) -> None:
            async def wait() -> None:
                while not condition():
                    await indexer.news()
                    assert names() >= {"first"}, "at no moment it knows less than before"

            await asyncio.wait_for(wait(), PATIENCE)

        await until(lambda: store.watched)
        for damage in (False, True):
            first = indexer.pid
            os.kill(first, signal.SIGSTOP)
            claude.transcript(gone).unlink()
            claude.rename(session, f"renamed {damage}")
            if damage:
                (tmp_path / "index.sqlite").write_bytes(b"nothing")
            os.kill(first, signal.SIGKILL)
            while indexer.pid == first:
                await indexer.news()
            assert {"first", "gone"} <= names()
            assert not store.watched, "nobody tells of changes now"
            await until(lambda: store.watched)
            assert names() == {"first", f"renamed {damage}"}
            assert indexer.pid not in (0, first)
            gone_again = claude.transcript(gone)
            gone_again.write_text(claude.transcript(session).read_text().replace(session, gone).replace("renamed", "gone"))
            claude.rename(gone, "gone")
            await until(lambda: "gone" in names())
        assert heard >= {"renamed False", "renamed True", "gone"}
        shutil.rmtree(claude.path)
        (tmp_path / "index.sqlite").unlink()
        os.kill(indexer.pid, signal.SIGKILL)

        async def emptied() -> None:
            while len(store):
                await indexer.news()

        await asyncio.wait_for(emptied(), PATIENCE)
        await ended(tasks)

    asyncio.run(story())


def test_a_call_waits_for_the_look_where_nothing_is_watched_and_gives_up_where_nobody_answers(
    tmp_path: Path, claude: ClaudeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("broker.index.indexer._PROGRAM", crippled(tmp_path, "network")[-1])

    async def story() -> None:
        tasks = Tasks(logging.getLogger("test"))
        indexer = Indexer(str(tmp_path / "index.sqlite"), Catalogue(), tasks)
        store = indexer.open("claude", str(claude.path))
        assert await indexer.ready([store], PATIENCE)
        for number in range(3):
            claude.add(name=f"{number}")
            assert await indexer.ready([store], PATIENCE)
            assert store.called(f"{number}")
        os.kill(indexer.pid, signal.SIGSTOP)
        assert not await indexer.ready([store], 0.05)
        assert not store.ready
        os.kill(indexer.pid, signal.SIGCONT)
        assert await indexer.ready([store], PATIENCE)
        await ended(tasks)

    asyncio.run(story())


async def watched(indexer: Indexer, *stores: Store) -> None:
    async def wait() -> None:
        while not all(store.watched for store in stores):
            await indexer.news()

    await asyncio.wait_for(wait(), PATIENCE)


@pytest.mark.requirement("SE-24", "SE-25")
@pytest.mark.parametrize("hung", [False, True], ids=["dead", "hung"])
def test_what_nobody_tells_of_is_not_taken_for_current(
    tmp_path: Path, claude: ClaudeStore, monkeypatch: pytest.MonkeyPatch, hung: bool
) -> None:
    monkeypatch.setattr("broker.index.indexer._SILENT", 0.5)

    async def story() -> None:
        tasks = Tasks(logging.getLogger("test"))
        indexer = Indexer(str(tmp_path / "index.sqlite"), Catalogue(), tasks)
        store = indexer.open("claude", str(claude.path))
        assert await indexer.ready([store], PATIENCE)
        await watched(indexer, store)
        first = indexer.pid
        os.kill(first, signal.SIGSTOP)
        second = claude.add("/far", name="first")
        if hung:
            assert not await indexer.ready([store], 0.05)
        else:
            os.kill(first, signal.SIGKILL)
            while indexer.pid == first:
                await indexer.news()
        assert not store.ready
        assert store.session(second) is None
        assert store.called("first"), "what it said stays known"
        while indexer.pid in (0, first):
            await asyncio.wait_for(indexer.news(), PATIENCE)
        assert await indexer.ready([store], PATIENCE)
        assert len(store.called("first")) == 2
        await ended(tasks)

    asyncio.run(story())


@pytest.mark.requirement("SE-25")
def test_who_wakes_up_again_is_believed_again(tmp_path: Path, claude: ClaudeStore) -> None:
    async def story() -> None:
        tasks = Tasks(logging.getLogger("test"))
        indexer = Indexer(str(tmp_path / "index.sqlite"), Catalogue(), tasks)
        store = indexer.open("claude", str(claude.path))
        assert await indexer.ready([store], PATIENCE)
        await watched(indexer, store)
        process = indexer.pid
        os.kill(process, signal.SIGSTOP)
        begun = time.monotonic()
        assert not await indexer.ready([store], 0.5)
        for _ in range(3):
            assert not await indexer.ready([store], PATIENCE), "one call has waited for all of them"
        assert time.monotonic() - begun < PATIENCE
        os.kill(process, signal.SIGCONT)
        while not await indexer.ready([store], PATIENCE):
            pass
        assert indexer.pid == process
        await ended(tasks)

    asyncio.run(story())


_NEVER_WATCHES = """
import os, sys
sys.path.insert(0, {root!r})
from broker.index.feed import Frames, Look, Ready, packed
said, lives = open({log!r}, "a"), open({log!r}).read().split().count("life")
print("life", file=said, flush=True)
frames = Frames()
while data := os.read(0, 1 << 16):
    for frame in frames.feed(data):
        print(type(frame).__name__, file=said, flush=True)
        if lives == 0 and isinstance(frame, Look):
            sys.exit()
        if lives == 1:
            open({gate!r}).read()
        os.write(1, packed(Ready(0, False, 0)))
print("end", file=said, flush=True)
"""


def test_of_a_new_life_nothing_is_asked_before_it_has_told_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A look that is asked for while everything is read anyway would be made a second time, and waited for."""
    log, gate, program = tmp_path / "said", tmp_path / "gate", tmp_path / "program.py"
    log.touch()
    os.mkfifo(gate)
    program.write_text(_NEVER_WATCHES.format(root=str(PROGRAM.parents[2]), log=str(log), gate=str(gate)))
    monkeypatch.setattr("broker.index.indexer._PROGRAM", str(program))

    async def story() -> None:
        tasks = Tasks(logging.getLogger("test"))
        indexer = Indexer(str(tmp_path / "index.sqlite"), Catalogue(), tasks)
        store = indexer.open("claude", str(tmp_path))
        assert await indexer.ready([store], PATIENCE)
        assert not await indexer.ready([store], 0.05)  # it is asked to look, and dies of it
        open_gate = asyncio.to_thread(gate.open, "w")  # which waits for who reads there: the second life
        with await asyncio.wait_for(open_gate, PATIENCE):
            assert not await indexer.ready([store], 0.05)
        assert await indexer.ready([store], PATIENCE)
        indexer.close()
        while indexer.pid:
            await asyncio.wait_for(indexer.news(), PATIENCE)
        assert log.read_text().split() == ["life", "Open", "Look", "life", "Open", "end"]
        await ended(tasks)

    asyncio.run(story())


def inotify_instances(pid: int) -> int:
    links = (os.readlink(entry.path) for entry in os.scandir(f"/proc/{pid}/fd"))
    return sum("inotify" in link for link in links)


@pytest.mark.requirement("SE-13")
@pytest.mark.skipif(sys.platform != "linux", reason="counts inotify instances")
def test_stores_that_nobody_asks_for_are_let_go_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("broker.index.indexer._MOST_STORES", 3)
    made_up = [made("claude", tmp_path / f"{number}") for number in range(5)]
    for number, each in enumerate(made_up):
        each.add(name=f"name {number}")

    async def story() -> None:
        tasks = Tasks(logging.getLogger("test"))
        catalogue = Catalogue()
        used = ("claude", str(made_up[0].path))
        indexer = Indexer(str(tmp_path / "index.sqlite"), catalogue, tasks, lambda: {used})
        stores: list[Store] = []
        for each in made_up:
            store = indexer.open("claude", str(each.path))
            stores.append(store)
            assert await indexer.ready([store], PATIENCE)
            await watched(indexer, store)
        assert {store.path for store in catalogue.stores()} == {str(made_up[number].path) for number in (0, 3, 4)}
        assert not stores[1].ready
        assert await indexer.ready([stores[4]], PATIENCE)  # what was said before has been done
        assert inotify_instances(indexer.pid) == 3
        again = indexer.open("claude", str(made_up[1].path))
        assert await indexer.ready([again], PATIENCE)
        assert again.called("name 1")
        made_up[0].add(name="another")
        assert await indexer.ready([stores[0]], PATIENCE)
        while not stores[0].called("another"):
            await asyncio.wait_for(indexer.news(), PATIENCE)
        await ended(tasks)

    asyncio.run(story())


# files that are none


def sparse(path: Path) -> None:
    path.touch()
    os.truncate(path, 1 << 30)


def unreadable(path: Path) -> None:
    path.write_text("{}\n")
    path.chmod(0)


DAMAGES: tuple[Callable[[Path], object], ...] = (
    sparse,
    unreadable,
    lambda path: path.write_bytes(b""),
    lambda path: path.write_bytes(bytes(range(256)) * 1000),
    lambda path: path.write_bytes(b'{"type":"user","message":{"role":"us'),
    lambda path: path.write_bytes(b"[" * 60_000 + b"\n"),
    lambda path: path.write_bytes(b'[{"pid":%s,"session_id":"x","moved":1e999}]\n' % (b"9" * 4000)),
    lambda path: path.write_bytes(b'[{"pid":36893488147419103232,"session_id":"x"}]\n'),
    lambda path: path.write_bytes(b"\0" * 100_000),
    os.mkfifo,
    os.mkdir,
    lambda path: path.symlink_to(path.name),
    lambda path: path.symlink_to("nothing"),
    lambda path: os.mknod(path, stat.S_IFSOCK | 0o600),
)
"""What may stand in the place of a file that would be read."""


UUID = "6f1b9d1e-0000-4000-8000-0000000000%02d"
READ = {
    "claude": ("projects/-w/" + UUID + ".jsonl", "sessions/10%02d.json"),
    "codex": ("sessions/2026/11/30/rollout-2026-11-30T10-00-00-" + UUID + ".jsonl", "thread-writer-locks/" + UUID + ".lock"),
    "grok": ("sessions/%%2Fw/" + UUID + "/summary.json", "sessions/%%2Fx%02d"),
}
"""Files that each agent's shelf would read, by a number."""
SINGLE = {"claude": "projects/-loop", "codex": "session_index.jsonl", "grok": "active_sessions.json"}


@pytest.mark.requirement("SE-05")
@pytest.mark.parametrize("agent", ["claude", "codex", "grok"])
def test_files_that_are_no_use_hide_no_session(tmp_path: Path, agent: str) -> None:
    store = made(agent, tmp_path / "store")
    session = store.add()
    for form in READ[agent]:
        for number in range(len(DAMAGES)):
            path = store.path / (form % number)
            path.parent.mkdir(parents=True, exist_ok=True)
            DAMAGES[number](path)
    with indexing(tmp_path / "index.sqlite", (agent, store.path)) as index:

        def known() -> set[str]:
            return {each.id for each in index.stores[0].recent()}

        index.until_watched()
        assert session in known()
        first = index.process.pid
        for damage in DAMAGES:
            _clear(store.path / SINGLE[agent])
            damage(store.path / SINGLE[agent])
            added = store.add("/new")
            index.look()
            assert {session, added} <= known()
        assert index.process.poll() is None
        assert index.process.pid == first


def _clear(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        path.rmdir()
    else:
        path.unlink(missing_ok=True)
