"""Who really holds a session: what a registry or a lock is worth, asked for one session and for all of a store alike."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path

import pytest

from broker.claims import _is_free_or_its
from broker.processes import ProcessId, identify
from shims.agent import agent
from shims.codex import live as codex
from shims.shelf import listed

pytestmark = pytest.mark.requirement("SE-09")

SESSION = "6f1b9d1e-0000-4000-8000-000000000001"


@contextmanager
def running(program: Path, *arguments: str, **variables: str) -> Iterator[ProcessId]:
    """A process whose executable is called so; it ends with its input. It has the file ``OPENS`` open."""
    program.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(os.path.realpath("/bin/sh"), program)
    (program.parent / arguments[0]).write_text('exec 3>>"${OPENS:-/dev/null}"; echo begun; read x\n')
    with subprocess.Popen(
        [program, *arguments], cwd=program.parent, env=variables, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        try:
            assert child.stdout is not None and child.stdout.readline()
            process = identify(child.pid)
            assert process is not None
            yield process
        finally:
            child.kill()


def holders(name: str, store: Path, *files: Path) -> list[ProcessId]:
    """Who holds the session; what is asked for one and for all of a store must be the same."""
    one = agent(name).holders(str(store), SESSION)
    shelf = agent(name).shelf
    found = [listed(str(path)) for path in files]
    holds = [hold for file in found if file is not None for hold in shelf.read(str(store), file, None).holds]
    assert list(shelf.holding(str(store), holds).get(SESSION, ())) == one
    return one


# Claude Code


@pytest.mark.parametrize("start", [None, "", "Mon Nov 30 10:00:00 2026"])
def test_a_record_without_a_start_time_is_worth_what_its_process_is(tmp_path: Path, start: str | None) -> None:
    (tmp_path / "sessions").mkdir()

    def registered(process: ProcessId) -> Path:
        path = tmp_path / "sessions" / f"{process.pid}.json"
        path.write_text(json.dumps({"pid": process.pid, "sessionId": SESSION, "procStart": start}))
        return path

    with running(tmp_path / "bin" / "claude", "x") as claude, running(tmp_path / "bin" / "another", "x") as other:
        mine, foreign = registered(claude), registered(other)
        assert holders("claude", tmp_path, mine, foreign) == [claude]
        old = time.time() - 3600
        os.utime(mine, (old, old))  # before the process was there: it has the pid of the one that wrote this
        assert holders("claude", tmp_path, mine, foreign) == []


def test_a_claude_that_an_interpreter_runs_is_one(tmp_path: Path) -> None:
    (tmp_path / "sessions").mkdir()
    with running(tmp_path / "bin" / "node", "../bin/claude") as claude, running(tmp_path / "bin" / "node2", "x") as other:
        records = [tmp_path / "sessions" / f"{process.pid}.json" for process in (claude, other)]
        for path in records:
            path.write_text(json.dumps({"pid": int(path.stem), "sessionId": SESSION}))
        assert holders("claude", tmp_path, *records) == [claude]


# Codex


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    path = tmp_path / "thread-writer-locks" / f"{SESSION}.lock"
    path.parent.mkdir()
    path.touch()
    return path


def test_a_lock_on_another_file_system_is_no_hold(tmp_path: Path, lock: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    me, inode = os.getpid(), str(lock.stat().st_ino)
    monkeypatch.setattr(codex, "_flocks", lambda: iter([codex._Flock("fe:fe", inode, me)]))
    assert holders("codex", tmp_path, lock) == []
    with lock.open():  # the kernel may count a file's locks by another device than it says of the file
        assert holders("codex", tmp_path, lock) == [identify(me)]


_ON_ANOTHER_FILE_SYSTEM = """
import fcntl, os, sys
sys.path.insert(0, sys.argv[1])
from shims.codex import live
one, other, session = sys.argv[2:]
os.makedirs(f"{one}/thread-writer-locks")
path = f"{one}/thread-writer-locks/{session}.lock"
open(path, "w").close()
inode = os.stat(path).st_ino
for number in range(1000):
    file = open(f"{other}/{number}", "w")
    if os.stat(file.fileno()).st_ino == inode:
        break
fcntl.flock(file, fcntl.LOCK_EX)
print(os.stat(file.fileno()).st_ino == inode, live.holders(one, session))
mine = open(path)
fcntl.flock(mine, fcntl.LOCK_EX)
print([process.pid for process in live.holders(one, session)] == [os.getpid()])
"""


@pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="mounts two file systems of its own")
def test_of_two_file_systems_with_the_same_inodes_the_right_one_counts(tmp_path: Path) -> None:
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
    places = [str(tmp_path / name) for name in ("one", "other")]
    mounted = "".join(f"mount -t tmpfs none {place} && " for place in places)
    root = str(Path(__file__).parents[2])
    command = [sys.executable, "-I", "-S", "-c", _ON_ANOTHER_FILE_SYSTEM, root, *places, SESSION]
    done = subprocess.run(["unshare", "-m", "sh", "-c", f'{mounted} exec "$@"', "sh", *command], capture_output=True, text=True)
    if "mount" in done.stderr or "unshare" in done.stderr:
        pytest.skip("nothing may be mounted here")
    assert done.stdout.splitlines() == ["True []", "True"], done.stderr


def test_a_lock_is_a_hold_for_as_long_as_it_is_held(tmp_path: Path, lock: Path) -> None:
    assert holders("codex", tmp_path, lock) == []
    with lock.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert holders("codex", tmp_path, lock) == [identify(os.getpid())]


# Grok Build


def registry(store: Path, process: ProcessId, ago: float = 0.0) -> Path:
    opened = datetime.fromtimestamp(time.time() - ago, timezone.utc).isoformat().replace("+00:00", "Z")
    path = store / "active_sessions.json"
    path.write_text(json.dumps([{"session_id": SESSION, "pid": process.pid, "opened_at": opened}]))
    return path


def test_an_entry_of_somebody_elses_pid_is_no_hold(tmp_path: Path) -> None:
    with running(tmp_path / "bin" / "grok", "x") as grok, running(tmp_path / "bin" / "another", "x") as other:
        assert holders("grok", tmp_path, registry(tmp_path, other)) == []
        assert holders("grok", tmp_path, registry(tmp_path, grok, ago=3600)) == []
        assert holders("grok", tmp_path, registry(tmp_path, grok)) == [grok]


def test_whoever_has_groks_events_open_holds_that_session(tmp_path: Path) -> None:
    """A panel, a turn on the command line or a leader registers nowhere, and keeps this file open (1.0.5, 1.0.41)."""
    folder = tmp_path / "g" / "sessions" / "%2Fw" / SESSION
    folder.mkdir(parents=True)
    events, updates = folder / "events.jsonl", folder / "updates.jsonl"
    store, link = tmp_path / "g", tmp_path / "link"
    link.symlink_to(store)
    with running(tmp_path / "bin" / "grok", "agent", "stdio", OPENS=str(events)) as panel:
        assert holders("grok", store) == holders("grok", link) == [panel]
        assert agent("grok").holders(str(store), str(uuid.uuid4())) == []
        assert not _is_free_or_its("grok", {str(store)}, SESSION, ProcessId(1, 1))
        assert _is_free_or_its("grok", {str(store)}, SESSION, panel)
    with (
        running(tmp_path / "bin" / "another", "x", OPENS=str(events)),
        running(tmp_path / "bin" / "grok", "x", OPENS=str(updates)),
    ):
        assert holders("grok", store) == []
    with running(tmp_path / "bin" / "grok", "agent", "leader", OPENS=str(events)) as leader:
        assert holders("grok", store) == [leader]
        assert _is_free_or_its("grok", {str(store)}, SESSION, ProcessId(1, 1)), "who shows it may be a client of the leader"
