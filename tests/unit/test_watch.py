"""When the agents' records are looked into, and when that would only have cost a process."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from broker import watch
from broker.deliveries import Attempt, Delivery, State
from broker.processes import identify
from broker.replies import FLAG_FROM_TRANSCRIPT, FLAG_RECOVERED
from broker.routes import Reach
from broker.wire import StageName, StageReport
from shims.agent import Found, Record
from tests.unit.engine import Engine, engine

PATIENCE = 10.0
SOON = 0.2


class Looks:
    """Stands in for the reader; each look is one process of it."""

    def __init__(self, made: Engine, monkeypatch: pytest.MonkeyPatch, found: Record) -> None:
        self.count = 0
        self.news = asyncio.Event()
        self._found = found
        monkeypatch.setattr(made.reader, "record", self._record)

    async def _record(self, *question: str) -> Record:
        del question
        self.count += 1
        self.news.set()
        return self._found


async def handed_over(made: Engine) -> tuple[Delivery, Attempt]:
    made.carrier.begin()
    queued = await made.queued()
    made.carrier.carry(queued)
    await asyncio.wait_for(made.route.news.wait(), PATIENCE)
    return queued, made.route.handed_over[0]


async def told(made: Engine, attempt: Attempt, stage: StageName, **detail: Any) -> None:
    seen: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    made.carrier.staged(StageReport(1, attempt.id, stage, **detail), seen)
    await asyncio.wait_for(seen, PATIENCE)


@pytest.mark.requirement("DE-33", "SH-43")
def test_an_end_that_is_reported_as_its_session_falls_idle_costs_no_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "_SOON", SOON)

    async def story() -> None:
        async with engine(tmp_path) as made:
            looks = Looks(made, monkeypatch, Record(Found.OPEN))
            request, attempt = await handed_over(made)
            await told(made, attempt, StageName.TAKEN, session="s1")
            made.carrier.session_idle("claude", "s1")
            await told(made, attempt, StageName.FINISHED, status="completed", text=f"done\n{request.token}")
            delivery = made.book.delivery(request.id)
            assert delivery is None or delivery.state is State.DELIVERED
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(looks.news.wait(), 2 * SOON)

    asyncio.run(story())


@pytest.mark.requirement("DE-33", "SH-43")
@pytest.mark.parametrize("taken_late", [False, True])
def test_an_end_that_nobody_reports_is_found_soon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, taken_late: bool) -> None:
    """Also when the report that it was taken comes only after the session was idle again."""
    monkeypatch.setattr(watch, "_SOON", SOON)

    async def story() -> None:
        async with engine(tmp_path) as made:
            looks = Looks(made, monkeypatch, Record(Found.ANSWERED, "done"))
            _, attempt = await handed_over(made)
            if not taken_late:
                await told(made, attempt, StageName.TAKEN, session="s1")
            made.carrier.session_idle("claude", "s1")
            made.carrier.session_idle("claude", "s1")
            if taken_late:
                await told(made, attempt, StageName.TAKEN, session="s1")
            assert looks.count == 0
            await asyncio.wait_for(looks.news.wait(), PATIENCE)
            assert looks.count == 1

    asyncio.run(story())


@pytest.mark.requirement("DE-33")
def test_a_session_without_a_message_of_ours_is_not_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "_SOON", SOON)

    async def story() -> None:
        async with engine(tmp_path) as made:
            looks = Looks(made, monkeypatch, Record(Found.OPEN))
            made.carrier.begin()
            await made.queued()  # recorded, and not handed over
            made.carrier.session_idle("claude", "s1")
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(looks.news.wait(), 2 * SOON)

    asyncio.run(story())


@pytest.mark.requirement("DE-33", "DE-34")
@pytest.mark.parametrize("seen_running", [True, False])
def test_records_that_change_are_read_when_nobody_is_there_to_tell_of_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, seen_running: bool
) -> None:
    """What is read then was not received: the instance that had it in hand is gone."""
    monkeypatch.setattr(watch, "_SOON", SOON)

    async def story() -> None:
        async with engine(tmp_path) as made:
            looks = Looks(made, monkeypatch, Record(Found.ANSWERED, "done"))
            request, attempt = await handed_over(made)
            await told(made, attempt, StageName.TAKEN, session="s1")
            made.route.running = seen_running
            made.carrier.records_moved("claude", {"s1", "s2"})
            made.carrier.records_moved("codex", {"s1"})
            if seen_running:
                with pytest.raises(asyncio.TimeoutError):
                    await asyncio.wait_for(looks.news.wait(), 2 * SOON)
                return
            await asyncio.wait_for(looks.news.wait(), PATIENCE)
            made.carrier.records_moved("claude", {"s1"})
            while made.book.open_attempts():
                await made.store.write(lambda _: None)
            ended = made.store.delivery(request.id)
            assert ended is not None
            assert {FLAG_FROM_TRANSCRIPT, FLAG_RECOVERED} <= set(ended.flags)
            assert looks.count == 1, "not at every line that is written"

    asyncio.run(story())


@pytest.mark.requirement("DE-33", "DE-34")
def test_what_a_living_panel_did_not_report_is_not_called_recovered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "_SOON", SOON)
    me = identify(os.getpid())

    async def story() -> None:
        async with engine(tmp_path) as made:
            made.route.reached = Reach("panel", str(me), "", "/nowhere")
            Looks(made, monkeypatch, Record(Found.ANSWERED, "done"))
            request, attempt = await handed_over(made)
            await told(made, attempt, StageName.TAKEN, session="s1")
            made.carrier.session_idle("claude", "s1")
            while made.book.open_attempts():
                await made.store.write(lambda _: None)
            ended = made.store.delivery(request.id)
            assert ended is not None
            assert FLAG_FROM_TRANSCRIPT in ended.flags and FLAG_RECOVERED not in ended.flags

    asyncio.run(story())
