"""How a broker is found, waited for and started: records that lie, bells, one starter, and when to stop trying."""

from __future__ import annotations

import fcntl
import json
import os
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker import rendezvous
from broker.errors import BrokerUnreachable
from broker.paths import Home
from broker.processes import ProcessId, identify
from broker.rendezvous import (
    BrokerRecord,
    WakeUp,
    clean_end,
    publish_record,
    read_record,
    start_broker,
    wait_for_broker,
    withdraw_record,
)

PATIENCE = 10.0
NOBODY = 2**22 + 7
"""No kernel gives this pid."""


def me() -> ProcessId:
    found = identify(os.getpid())
    assert found is not None
    return found


def record_of(process: ProcessId, generation: int = 1) -> BrokerRecord:
    return BrokerRecord("ipc:///x", "ipc:///y", process.pid, process.start, generation, 1, "0")


@pytest.fixture
def place(home: Path) -> Home:
    made = Home(str(home))
    made.prepare()
    return made


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The descriptors of the start locks that brokers would have been spawned with."""
    locks: list[int] = []

    def spawn(home: Home, lock: int) -> int:
        del home
        locks.append(lock)
        return os.getpid()

    monkeypatch.setattr(rendezvous, "_spawn", spawn)
    return locks


@pytest.fixture
def dead() -> ProcessId:
    """A process that has ended."""
    with subprocess.Popen([sys.executable, "-I", "-S", "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE) as child:
        found = identify(child.pid)
        assert found is not None
    return found


# the record


@pytest.mark.requirement("EN-08", "EN-04")
def test_a_broker_that_lives_is_found(place: Home) -> None:
    publish_record(place, record_of(me()))
    assert read_record(place) == record_of(me())
    assert stat.S_IMODE(os.stat(place.broker_record).st_mode) == 0o600
    assert os.listdir(place.run).count("broker.json") == 1
    assert not [name for name in os.listdir(place.run) if name.startswith("broker.json.")], "the draft has been renamed"


@pytest.mark.requirement("EN-08")
def test_a_broker_that_died_is_not_found(place: Home, dead: ProcessId) -> None:
    publish_record(place, record_of(dead))
    assert read_record(place) is None


@pytest.mark.requirement("EN-08")
def test_a_pid_that_somebody_else_has_now_is_no_broker(place: Home) -> None:
    publish_record(place, record_of(me()._replace(start=me().start - 1)))
    assert read_record(place) is None


@pytest.mark.requirement("EN-08", "EN-10")
@pytest.mark.parametrize(
    "content",
    ["", "{", "null", "[]", "7", '"x"', "{}", '{"pid": 1}', "\x00"],
)
def test_a_record_that_is_none_is_no_broker(place: Home, content: str) -> None:
    Path(place.broker_record).write_text(content)
    assert read_record(place) is None


@pytest.mark.requirement("EN-08")
def test_a_record_of_a_later_version_may_say_more(place: Home) -> None:
    Path(place.broker_record).write_text(json.dumps({**record_of(me())._asdict(), "more": 1}))
    assert read_record(place) == record_of(me())


@pytest.mark.requirement("EN-10")
@pytest.mark.parametrize("pid", [None, "1", [], -1, 0, 1.5, NOBODY])
def test_a_record_of_an_impossible_process_is_no_broker(place: Home, pid: object) -> None:
    Path(place.broker_record).write_text(json.dumps({**record_of(me())._asdict(), "pid": pid}))
    assert read_record(place) is None


@pytest.mark.requirement("EN-08")
def test_a_broker_removes_its_own_record_and_no_other(place: Home) -> None:
    publish_record(place, record_of(me(), 2))
    withdraw_record(place, record_of(me(), 1))
    assert read_record(place) == record_of(me(), 2)
    withdraw_record(place, record_of(me(), 2))
    assert not os.path.exists(place.broker_record)
    withdraw_record(place, record_of(me(), 2))


# being woken


@pytest.mark.requirement("EN-10", "MC-31")
def test_whoever_waits_is_woken_when_a_broker_publishes_itself(place: Home) -> None:
    found: list[BrokerRecord | None] = []
    bells = WakeUp(place)  # the same pipe: it exists from here on
    waiting = threading.Thread(target=lambda: found.append(wait_for_broker(place, time.monotonic() + PATIENCE)))
    waiting.start()
    began = time.monotonic()
    publish_record(place, record_of(me()))
    waiting.join(PATIENCE)
    assert found == [record_of(me())]
    assert time.monotonic() - began < PATIENCE / 2
    bells.close()


@pytest.mark.requirement("EN-10")
def test_waiting_has_an_end_and_leaves_nothing_behind(place: Home) -> None:
    assert wait_for_broker(place, time.monotonic() + 0.05) is None
    assert os.listdir(place.wake) == []


@pytest.mark.requirement("EN-10")
def test_a_broker_that_lives_already_is_not_waited_for(place: Home) -> None:
    publish_record(place, record_of(me()))
    assert wait_for_broker(place, 0.0) == record_of(me())


@pytest.mark.requirement("EN-10")
def test_bells_are_heard_once_and_never_block_who_rings(place: Home) -> None:
    bell = WakeUp(place)
    os.write(bell.fd, b"\n" * 65536)  # full
    publish_record(place, record_of(me()))
    bell.drain()
    with pytest.raises(BlockingIOError):
        os.read(bell.fd, 1)
    bell.close()
    bell_again = WakeUp(place)
    publish_record(place, record_of(me()))
    assert os.read(bell_again.fd, 9) == b"\n"
    bell_again.close()


@pytest.mark.requirement("EN-10")
def test_the_bell_of_a_process_that_died_is_removed(place: Home, dead: ProcessId) -> None:
    os.mkfifo(os.path.join(place.wake, str(dead)))
    publish_record(place, record_of(me()))
    assert os.listdir(place.wake) == []


@pytest.mark.requirement("EN-10", "MC-31")
def test_the_bell_of_a_process_that_is_about_to_listen_stays(place: Home) -> None:
    """It has made its pipe and not opened it yet: without it nobody would ever wake it."""
    os.mkfifo(os.path.join(place.wake, str(me())))
    publish_record(place, record_of(me()))
    assert os.listdir(place.wake) == [str(me())]
    bell = WakeUp(place)
    publish_record(place, record_of(me()))
    assert os.read(bell.fd, 9) == b"\n"
    bell.close()


@pytest.mark.requirement("EN-10")
def test_a_bell_that_vanishes_while_it_is_rung_ends_no_broker(place: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its process ends between our look and our removal."""
    os.mkfifo(os.path.join(place.wake, f"{NOBODY}@1"))
    really = os.unlink

    def both(path: str) -> None:
        really(path)
        really(path)

    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", both)
        publish_record(place, record_of(me()))
    assert os.listdir(place.wake) == []


# one starter


@pytest.fixture
def held(place: Home) -> Iterator[int]:
    """The start lock, held as by another client."""
    lock = os.open(place.start_lock, os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    yield lock
    os.close(lock)


@pytest.mark.requirement("EN-10")
def test_the_first_client_starts_one_and_hands_its_lock_on(place: Home, started: list[int]) -> None:
    assert start_broker(place)
    assert len(started) == 1
    assert stat.S_IMODE(os.stat(place.start_lock).st_mode) == 0o600


@pytest.mark.requirement("EN-10")
def test_while_somebody_starts_one_nobody_else_does(place: Home, started: list[int], held: int) -> None:
    assert not start_broker(place)
    assert not start_broker(place, by_hand=True)
    assert started == []
    assert not os.path.exists(place.starts)
    fcntl.flock(held, fcntl.LOCK_UN)
    assert start_broker(place)


@pytest.mark.requirement("EN-10")
def test_where_one_lives_none_is_started(place: Home, started: list[int]) -> None:
    publish_record(place, record_of(me()))
    assert not start_broker(place)
    assert started == []


@pytest.mark.requirement("EN-10")
def test_of_many_clients_at_once_one_starts_one(place: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[int] = []

    def slowly(home: Home, lock: int) -> int:
        del home
        kept.append(os.dup(lock))  # as the broker's own, until it has published itself
        return os.getpid()

    monkeypatch.setattr(rendezvous, "_spawn", slowly)
    results: list[bool] = []
    clients = [threading.Thread(target=lambda: results.append(start_broker(place) is not None)) for _ in range(10)]
    for client in clients:
        client.start()
    for client in clients:
        client.join(PATIENCE)
    assert sorted(results) == [False] * 9 + [True]
    for lock in kept:
        os.close(lock)


@pytest.mark.requirement("EN-10")
def test_a_broker_that_can_not_be_spawned_is_an_error_with_a_code(place: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(BrokerUnreachable, match="no broker could be started") as caught:
        start_broker(place)
    assert caught.value.code == "broker_unreachable"


# when to stop trying


def starts(place: Home, *ages: float) -> None:
    Path(place.starts).write_text(json.dumps([time.time() - age for age in ages]))


@pytest.mark.requirement("MC-32")
def test_a_broker_that_keeps_dying_is_not_started_again_by_itself(place: Home, started: list[int]) -> None:
    for _ in range(4):
        assert start_broker(place)
    for _ in range(2):
        with pytest.raises(BrokerUnreachable, match="died 4 times within 60 s") as caught:
            start_broker(place)
        assert caught.value.code == "broker_keeps_dying"
        assert "logs/broker.log" in caught.value.next_step
        assert "cross-agent broker start" in caught.value.next_step
    assert len(started) == 4


@pytest.mark.requirement("MC-32")
def test_a_person_may_start_it_all_the_same(place: Home, started: list[int]) -> None:
    starts(place, 1, 2, 3, 4, 5)
    assert start_broker(place, by_hand=True)
    assert start_broker(place), "and the count has begun anew"
    assert len(started) == 2


@pytest.mark.requirement("MC-32")
def test_a_clean_end_is_no_death(place: Home, started: list[int]) -> None:
    for _ in range(10):
        assert start_broker(place)
        clean_end(place)
    clean_end(place)
    assert len(started) == 10


@pytest.mark.requirement("MC-32")
@pytest.mark.parametrize(
    ("ages", "tries"),
    [((59, 58, 57, 56), False), ((61, 62, 63, 64), True), ((1, 2, 3), True), ((1, 2, 3, 61), True), ((-99, -99, -99, -99), True)],
    ids=["within the minute", "before it", "three", "three and an old one", "of a clock that was set back"],
)
def test_what_counts_is_the_last_minute(place: Home, started: list[int], ages: tuple[float, ...], *, tries: bool) -> None:
    starts(place, *ages)
    if tries:
        assert start_broker(place)
    else:
        with pytest.raises(BrokerUnreachable):
            start_broker(place)
    assert len(started) == tries


@pytest.mark.requirement("MC-32")
@pytest.mark.parametrize("content", ["", "{", "7", '["x"]', '{"a": 1}', "null", "[null]"])
def test_a_count_that_can_not_be_read_begins_anew(place: Home, started: list[int], content: str) -> None:
    Path(place.starts).write_text(content)
    assert start_broker(place)
    assert len(started) == 1
    assert len(json.loads(Path(place.starts).read_text())) == 1
