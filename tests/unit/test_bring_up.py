"""What a command is told of the broker that it has started."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from broker.cli import calls
from broker.cli.calls import bring_up
from broker.errors import BrokerUnreachable
from broker.paths import Home
from broker.processes import ProcessId, identify
from broker.rendezvous import BrokerRecord, bury, publish_record

PATIENCE = 10.0


@pytest.fixture
def place(home: Path) -> Home:
    made = Home(str(home))
    made.prepare()
    return made


def child(program: str) -> ProcessId:
    """A child of this process that has ended, and that nobody has buried."""
    pid = os.posix_spawn(sys.executable, [sys.executable, "-I", "-S", "-c", program], {})
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    return ProcessId(pid, 0)


def record_of(pid: int) -> BrokerRecord:
    process = identify(pid)
    assert process is not None
    return BrokerRecord("ipc:///x", "ipc:///y", process.pid, process.start, 1, 1, "0")


def starts(monkeypatch: pytest.MonkeyPatch, started: ProcessId | None) -> None:
    def start(home: Home, *, by_hand: bool) -> ProcessId | None:
        del home, by_hand
        return started

    monkeypatch.setattr(calls, "start_broker", start)


def is_reaped(process: ProcessId) -> bool:
    try:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return True
    return False


@pytest.mark.requirement("MC-32", "MC-05")
@pytest.mark.parametrize(
    ("program", "says"),
    [("raise SystemExit(3)", "with exit status 3"), ("import os; os.kill(os.getpid(), 9)", "by signal 9")],
)
def test_one_that_ends_at_once_is_no_broker_that_was_running(
    place: Home, monkeypatch: pytest.MonkeyPatch, program: str, says: str
) -> None:
    ended = child(program)
    starts(monkeypatch, ended)
    began = time.monotonic()
    with pytest.raises(BrokerUnreachable, match=f"the broker that was started has ended {says}") as caught:
        bring_up(place, began + PATIENCE)
    assert time.monotonic() - began < PATIENCE / 2
    assert f"{place.logs}/broker.log" in caught.value.next_step
    assert is_reaped(ended)


@pytest.mark.requirement("MC-32")
def test_one_that_ends_while_another_lives_is_told_of_all_the_same(place: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    starts(monkeypatch, child("raise SystemExit(1)"))
    publish_record(place, record_of(os.getpid()))
    found = bring_up(place, time.monotonic() + PATIENCE)
    assert (found.record.pid, found.started) == (os.getpid(), False)
    assert found.ended == "the broker that was started has ended with exit status 1"


@pytest.mark.requirement("EN-10")
def test_one_that_met_another_is_no_failure(place: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    starts(monkeypatch, child(""))
    publish_record(place, record_of(os.getpid()))
    assert bring_up(place, time.monotonic() + PATIENCE) == (record_of(os.getpid()), False, "")


@pytest.mark.requirement("EN-10")
def test_one_that_lives_is_ours(place: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    read, write = os.pipe()
    os.set_inheritable(read, True)
    pid = os.posix_spawn(sys.executable, [sys.executable, "-I", "-S", "-c", f"import os; os.read({read}, 1)"], {})
    started = identify(pid)
    assert started is not None
    try:
        starts(monkeypatch, started)
        publish_record(place, record_of(pid))
        assert bring_up(place, time.monotonic() + PATIENCE) == (record_of(pid), True, "")
        assert bury(started) is None, "it runs"
    finally:
        os.close(read)
        os.close(write)
        os.waitpid(pid, 0)


@pytest.mark.requirement("EN-10")
def test_where_nobody_comes_up_the_wait_has_an_end(place: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    starts(monkeypatch, None)
    with pytest.raises(BrokerUnreachable, match="no broker came up in time"):
        bring_up(place, time.monotonic() + 0.05)


def test_what_is_no_child_is_not_waited_for() -> None:
    assert bury(ProcessId(1, 1)) is None
