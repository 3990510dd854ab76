"""Stores whose directories are moved, linked or out of reach for a while: events tell, and nothing is forgotten that is there."""

from __future__ import annotations

import json
import os
import resource
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from shims.grok import tabs
from tests.integration.indexing import PROGRAM, Process, indexing, made
from tests.integration.made_up_stores import ClaudeStore, Stores

pytestmark = pytest.mark.requirement("SE-06")


def file_of(folder: Path, session: str) -> Path:
    (file,) = [path for path in folder.rglob("*") if path.is_file() and session in path.read_text()]
    return file


def until_known(index: Process, sessions: set[str]) -> None:
    index.until(lambda: {known.id for known in index.stores[0].recent()} == sessions)


# moved and replaced as a whole


@pytest.mark.parametrize("agent", ["claude", "codex", "grok"])
def test_a_store_that_is_moved_away_and_back_or_replaced_is_known(tmp_path: Path, agent: str) -> None:
    store, other = made(agent, tmp_path / "home" / "store"), made(agent, tmp_path / "other")
    store.add(name="one")
    other.add(name="two")
    with indexing(tmp_path / "index.sqlite", (agent, store.path)) as index:
        index.until_watched()
        index.until_named("one")
        store.path.rename(tmp_path / "away")
        index.until_named()
        other.path.rename(store.path)
        index.until_named("two")
        store.add("/new", name="three")
        index.until_named("two", "three")
        store.path.rename(tmp_path / "other")
        (tmp_path / "away").rename(store.path)  # at once
        index.until_named("one")
        store.add("/newer", name="four")
        index.until_named("one", "four")


# links


@pytest.mark.parametrize(
    ("agent", "depth"),
    [
        ("claude", 1),
        pytest.param("codex", 1, marks=pytest.mark.full),
        ("codex", 3),
        ("grok", 1),
        pytest.param("grok", 2, marks=pytest.mark.full),
    ],
)
def test_what_changes_behind_a_linked_directory_is_known(tmp_path: Path, agent: str, depth: int) -> None:
    """It was linked before the index begins, leads elsewhere, is gone and back, and another one is put where it leads."""
    store, other = made(agent, tmp_path / "store"), made(agent, tmp_path / "other")
    one, two = store.add("/w"), other.add("/w")
    folder = store.path.joinpath(*file_of(store.path, one).relative_to(store.path).parts[: depth + 1])
    later = other.path.joinpath(*file_of(other.path, two).relative_to(other.path).parts[: depth + 1])
    target = tmp_path / "elsewhere" / "target"
    target.parent.mkdir()
    folder.rename(target)
    folder.symlink_to(target)
    others = {two} if (agent, depth) != ("grok", 2) else set()  # a directory of Grok's that is called otherwise is no session
    with indexing(tmp_path / "index.sqlite", (agent, store.path)) as index:
        index.until_watched()
        until_known(index, {one})
        file = file_of(target, one)
        away = file.rename(tmp_path / file.name)
        until_known(index, set())
        away.rename(file)
        until_known(index, {one})
        (folder.parent / "new").symlink_to(later)
        (folder.parent / "new").rename(folder)
        until_known(index, others)
        folder.unlink()
        until_known(index, set())
        folder.symlink_to(target)
        until_known(index, {one})
        target.rename(tmp_path / "away")
        until_known(index, set())
        later.rename(target)
        until_known(index, others)


def test_a_linked_project_that_comes_later_is_known(tmp_path: Path) -> None:
    claude, other = ClaudeStore(tmp_path / "store"), ClaudeStore(tmp_path / "other")
    claude.add(name="first")
    session = other.add("/p", name="linked")
    with indexing(tmp_path / "index.sqlite", ("claude", claude.path)) as index:
        index.until_watched()
        (claude.path / "projects" / "-link").symlink_to(other.path / "projects" / "-p")
        index.until_named("first", "linked")
        other.rename(session, "renamed", "/p")
        index.until_named("first", "renamed")
        (claude.path / "projects" / "-link").rename(claude.path / "projects" / "-moved")
        index.until(lambda: index.ready[0] >= 3)
        other.rename(session, "again", "/p")
        index.until_named("first", "again")


def test_a_directory_that_is_linked_elsewhere_is_resolved_anew(tmp_path: Path) -> None:
    """Also for sessions of which no file has changed, and in another life of the index (SE-10)."""
    claude = ClaudeStore(tmp_path / "store")
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
    link = tmp_path / "link"
    link.symlink_to("one")
    session = claude.add(str(link), name="first")

    def place(index: Process) -> str:
        known = index.stores[0].session(session)
        return known.place if known is not None else ""

    with indexing(tmp_path / "index.sqlite", ("claude", claude.path)) as index:
        index.until_watched()
        assert place(index) == str((tmp_path / "one").resolve())
        link.unlink()
        link.symlink_to("other")
        index.look()
        assert place(index) == str((tmp_path / "other").resolve())
    link.unlink()
    link.symlink_to("one")
    with indexing(tmp_path / "index.sqlite", ("claude", claude.path)) as index:
        index.until_watched()
        assert place(index) == str((tmp_path / "one").resolve())


# what cannot be looked at


@contextmanager
def without_descriptors(index: Process) -> Iterator[None]:
    """The process cannot open anything more (EMFILE)."""
    limits = resource.prlimit(index.process.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(index.process.pid, resource.RLIMIT_NOFILE, (3, limits[1]))
    try:
        yield
    finally:
        resource.prlimit(index.process.pid, resource.RLIMIT_NOFILE, limits)


@pytest.mark.skipif(sys.platform != "linux", reason="the limit of another process is set by Linux alone")
@pytest.mark.requirement("SE-05")
@pytest.mark.parametrize("agent", ["claude", "codex", "grok"])
def test_without_descriptors_nothing_is_forgotten_and_it_is_looked_again_soon(tmp_path: Path, agent: str) -> None:
    store = made(agent, tmp_path / "store")
    one, gone = store.add(), store.add("/gone")
    with indexing(tmp_path / "index.sqlite", (agent, store.path)) as index:
        index.until_watched()
        until_known(index, {one, gone})
        with without_descriptors(index):
            new = store.add("/new")
            file_of(store.path, gone).unlink()
            index.look()
            assert one in {known.id for known in index.stores[0].recent()}
        until_known(index, {one, new})


AS_ANYBODY = """
import ctypes, os, sys
for ability in (1, 2):  # root may read whatever it likes by CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH, until it has them no more
    ctypes.CDLL(None).prctl(24, ability, 0, 0, 0)
os.execv(sys.executable, [sys.executable, "-I", *sys.argv[1:]])
"""


@pytest.mark.skipif(sys.platform != "linux" and os.geteuid() == 0, reason="everything is readable to root")
@pytest.mark.requirement("SE-05")
def test_a_directory_without_rights_hides_nothing_that_was_known(tmp_path: Path) -> None:
    claude = ClaudeStore(tmp_path / "store")
    session = claude.add("/a", name="one")
    claude.add("/b", name="two")
    before = (sys.executable, "-I", "-c", AS_ANYBODY, str(PROGRAM)) if sys.platform == "linux" else ()
    with indexing(tmp_path / "index.sqlite", ("claude", claude.path), before=before) as index:
        index.until_watched()
        (claude.path / "projects" / "-a").chmod(0)
        index.look()
        assert index.names() == {"one", "two"}
        (claude.path / "projects" / "-a").chmod(0o700)
        claude.rename(session, "renamed", "/a")
        index.until_named("renamed", "two")


# the names that an editor keeps


@pytest.mark.requirement("SE-03")
@pytest.mark.parametrize("linked", [False, True], ids=["as it is", "linked"])
def test_a_tab_whose_name_only_the_log_of_the_database_has_is_known(
    tmp_path: Path, home: Stores, linked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = home.grok.add(name="of the summary")
    path = tmp_path / "editor" / "state.vscdb"
    path.parent.mkdir()
    monkeypatch.setenv(tabs.VARIABLE, str(path))
    if linked:
        path.symlink_to(tmp_path / "real.vscdb")
    with closing(sqlite3.connect(path, isolation_level=None)) as editor:
        editor.execute("PRAGMA journal_mode = WAL")
        editor.execute("PRAGMA wal_autocheckpoint = 0")
        editor.execute("CREATE TABLE ItemTable (key TEXT UNIQUE ON CONFLICT REPLACE, value BLOB)")
        with indexing(tmp_path / "index.sqlite", ("grok", home.grok.path)) as index:
            index.until_watched()
            index.until_named("of the summary")
            before = path.stat()
            for name in ("mine", "mine now", "and again"):
                meta = {"grok.sessionMeta": {session: {"customName": name}}}
                editor.execute("INSERT INTO ItemTable VALUES (?, ?)", ("sahilrakhaiya.grok-build-gui", json.dumps(meta)))
                index.until_named(name)
            assert (path.stat().st_size, path.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)


@pytest.fixture
def home(tmp_path: Path) -> Stores:
    return Stores(tmp_path)
