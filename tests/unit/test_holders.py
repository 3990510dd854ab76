"""A session that has been opened again since its agent died: what its records do not say yet may be said in a moment."""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from broker import holders
from broker.deliveries import Delivery, Evidence, State
from broker.processes import ProcessId, identify
from broker.routes import Reach
from broker.settlement import Settlement
from broker.wire import SessionState
from shims.agent import Found, Record
from tests.unit.engine import Engine, engine

PATIENCE = 10.0
DEAD = ProcessId(1, 1)
"""No process has this start time."""
SESSION = "s1"

pytestmark = pytest.mark.requirement("DE-22", "DE-35")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[str]:
    """A Codex home in which this process holds the session."""
    locks = tmp_path / "codex" / "thread-writer-locks"
    locks.mkdir(parents=True)
    with (locks / f"{SESSION}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield str(tmp_path / "codex")


class _Panels:
    """The registry, with one panel, which is this process."""

    def __init__(self, turn_since: float) -> None:
        self.state = SessionState(SESSION, turn_since=turn_since)
        self.news = asyncio.Event()

    def by_process(self, process: ProcessId) -> object | None:
        return object() if process == identify(os.getpid()) else None

    def hosting(self, agent: str, session: str) -> list[Any]:
        del agent
        return [SimpleNamespace(session=lambda _: self.state)] if session == SESSION else []

    async def change(self, deadline: float) -> bool:
        try:
            await asyncio.wait_for(self.news.wait(), max(0.0, deadline - asyncio.get_running_loop().time()))
        except asyncio.TimeoutError:
            return False
        self.news.clear()
        return True


class _Reader:
    """Records that say one thing after the other, the last one for ever."""

    def __init__(self, *found: Record) -> None:
        self._found = list(found)
        self.looks = 0

    async def record(self, *question: str) -> Record:
        del question
        self.looks += 1
        return self._found.pop(0) if len(self._found) > 1 else self._found[0]


ABSENT, OPEN, ANSWERED = Record(Found.ABSENT), Record(Found.OPEN), Record(Found.ANSWERED, "pong", "t2")


def story(path: Path, store: str, reader: _Reader, evidence: Evidence, *, turn_since: float = 0.0) -> tuple[State, str, int]:
    """The message's state and error, and how often it was handed over, when everything about it has been said."""

    async def told() -> tuple[State, str, int]:
        async with engine(path) as made:
            panels: Any = _Panels(turn_since)
            settlement = Settlement(made.book, made.carrier, made.route, panels, reader)  # type: ignore[arg-type]
            made.route.reached = Reach("panel", str(DEAD), "", store)
            made.carrier.begin()
            queued = await made.queued(agent="codex", session=SESSION)
            made.carrier.carry(queued)
            await _quiet(PATIENCE)
            if evidence is Evidence.TAKEN:
                await made.carrier.taken(_delivery(made, queued.id), made.route.handed_over[0], SESSION, "")
            settlement.instance_gone(DEAD)
            if turn_since:
                assert not await _quiet(10 * holders._STILL)
                assert reader.looks <= 1
                assert _delivery(made, queued.id).open
                panels.state = panels.state._replace(turn_since=0.0)
                panels.news.set()
            assert await _quiet(PATIENCE)
            delivery = _delivery(made, queued.id)
            return delivery.state, delivery.error_code, len(made.route.handed_over)

    return asyncio.run(told())


def _delivery(made: Engine, identifier: str) -> Delivery:
    found = made.book.delivery(identifier)
    assert found is not None
    return found


async def _quiet(patience: float) -> bool:
    """Waits until nothing is under way any more; False: something is, after ``patience`` seconds."""
    while others := asyncio.all_tasks() - {asyncio.current_task()}:
        done, _ = await asyncio.wait(others, timeout=patience)
        if not done:
            return False
    return True


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(holders, "_STILL", 0.03)


@pytest.mark.parametrize("evidence", [Evidence.NONE, Evidence.TAKEN])
def test_a_message_between_the_queue_and_its_turn_is_not_absent(tmp_path: Path, store: str, evidence: Evidence) -> None:
    found = story(tmp_path, store, _Reader(ABSENT, OPEN, ANSWERED), evidence)
    assert found == (State.DELIVERED, "", 1)


def test_a_message_that_is_still_absent_is_handed_over_again(tmp_path: Path, store: str) -> None:
    reader = _Reader(ABSENT)
    assert story(tmp_path, store, reader, Evidence.NONE) == (State.DELIVERING, "", 2)
    assert reader.looks == 2


def test_an_open_turn_that_nobody_runs_is_a_dead_one(tmp_path: Path, store: str) -> None:
    reader = _Reader(OPEN)
    assert story(tmp_path, store, reader, Evidence.TAKEN) == (State.FAILED, "interrupted", 1)
    assert reader.looks == 2


def test_nothing_is_judged_while_a_turn_runs(tmp_path: Path, store: str) -> None:
    """It may be the one of our message."""
    found = story(tmp_path, store, _Reader(OPEN, ANSWERED), Evidence.TAKEN, turn_since=1.0)
    assert found == (State.DELIVERED, "", 1)


def test_whose_queue_dies_with_it_is_judged_at_once(tmp_path: Path) -> None:
    sessions = tmp_path / "claude" / "sessions"
    sessions.mkdir(parents=True)
    mine = identify(os.getpid())
    assert mine is not None
    (sessions / f"{mine.pid}.json").write_text(f'{{"pid":{mine.pid},"sessionId":"{SESSION}","procStart":"{mine.start}"}}')

    async def told() -> bool:
        return await holders.Holders(_Panels(1.0)).opened_again("claude", str(tmp_path / "claude"), SESSION)  # type: ignore[arg-type]

    assert not asyncio.run(told())
