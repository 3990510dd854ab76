"""When the agents' records are looked into, and when that would only have cost a process."""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from broker import watch
from broker.deliveries import Attempt, Delivery, State
from broker.processes import identify
from broker.replies import FLAG_FROM_TRANSCRIPT, FLAG_RECOVERED
from broker.routes import Reach
from broker.wire import StageName, StageReport
from shims.agent import Found, Record, agents
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


# behind a door nobody reports


class Elsewhere:
    """Records of several sessions, and the one that the process has now."""

    def __init__(self, made: Engine, monkeypatch: pytest.MonkeyPatch, *, now_at: str, **found: Record) -> None:
        self.looked: list[str] = []
        self._found = found
        self._made = made
        monkeypatch.setattr(made.reader, "record", self._record)
        monkeypatch.setattr(made.reader, "answer_naming", self._naming)
        monkeypatch.setattr(watch, "agent", lambda name: replace(agents()[name], held_by=lambda *_: now_at))

    async def _record(self, agent: str, store: str, session: str, key: str) -> Record:
        del agent, store, key
        self.looked.append(session)
        return self._found.get(session, Record(Found.ABSENT))

    async def _naming(self, agent: str, store: str, session: str, token: str) -> Record:
        del agent, store, token
        return self._found.get(f"{session}_named", Record(Found.ABSENT))


async def handed_in(made: Engine, instance: str, child: str) -> tuple[Delivery, Attempt]:
    made.route.reached = Reach("claude-inbox", instance, child, "/nowhere")
    queued, attempt = await handed_over(made)
    await told(made, attempt, StageName.WRITTEN)
    return queued, attempt


async def looked_at(made: Engine, request: Delivery) -> Delivery:
    """One look, to its end."""
    made.carrier._watch.now(request.id)
    while others := asyncio.all_tasks() - {asyncio.current_task()}:
        await asyncio.wait(others, timeout=PATIENCE)
    found = made.store.delivery(request.id)
    assert found is not None
    return found


DONE = Record(Found.ANSWERED, "done")


@pytest.mark.requirement("LD-02", "LD-06")
@pytest.mark.parametrize(
    ("now_at", "found", "session", "state"),
    [
        ("s2", {"s2": DONE}, "s2", State.DELIVERED),
        ("s2", {"s1": Record(Found.UNKNOWN), "s2": DONE}, "s2", State.DELIVERED),  # nothing was ever said in the first one
        ("s2", {"s2": Record(Found.OPEN)}, "s2", State.AWAITING),
        ("s2", {"s2": Record(Found.OPEN), "s2_named": DONE}, "s2", State.DELIVERED),
        ("s2", {"s2": Record(Found.INTERRUPTED)}, "s2", State.FAILED),
        ("s2", {}, "s1", State.DELIVERING),  # it waits still
        ("s2", {"s2": Record(Found.UNKNOWN)}, "s1", State.DELIVERING),
        ("s2", {"s1": Record(Found.OPEN), "s2": DONE}, "s1", State.AWAITING),  # it ran where it was handed in
        ("s2", {"s1_named": DONE}, "s1", State.DELIVERED),  # its key is not there, and its token is
        ("s1", {"s2": DONE}, "s1", State.DELIVERING),
        ("", {"s2": DONE}, "s1", State.DELIVERING),
    ],
)
def test_a_message_that_went_with_its_process_to_another_session_is_found_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, now_at: str, found: dict[str, Record], session: str, state: State
) -> None:
    """`/clear` keeps what waits (2.1.332)."""
    me = str(identify(os.getpid()))

    async def story() -> None:
        async with engine(tmp_path) as made:
            records = Elsewhere(made, monkeypatch, now_at=now_at, **found)
            request, _ = await handed_in(made, me, me)
            ended = await looked_at(made, request)
            assert len(records.looked) == len(set(records.looked)), "a look costs a process of its own"
            assert (ended.session, ended.state) == (session, state)
            if state is State.DELIVERED:
                assert set(ended.flags) >= {FLAG_FROM_TRANSCRIPT}
                assert FLAG_RECOVERED not in ended.flags, "its process lives"

    asyncio.run(story())


@pytest.mark.requirement("LD-02", "LD-06")
def test_a_panels_message_is_looked_for_in_its_own_session_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        async with engine(tmp_path) as made:
            records = Elsewhere(made, monkeypatch, now_at="s2", s2=DONE)
            request, _ = await handed_in(made, str(identify(os.getpid())), "9@9")
            assert (await looked_at(made, request)).state is State.DELIVERING
            assert set(records.looked) == {"s1"}

    asyncio.run(story())


@pytest.mark.requirement("LD-06", "DE-33")
@pytest.mark.parametrize("by_door", [True, False])
def test_behind_a_door_records_that_change_are_read_sooner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, by_door: bool
) -> None:
    """Nobody reports: they are all that tells."""
    monkeypatch.setattr(watch, "_SOON", 60.0)
    monkeypatch.setattr(watch, "_AT_A_DOOR", 0.01)
    me = str(identify(os.getpid()))

    async def story() -> None:
        async with engine(tmp_path) as made:
            looks = Looks(made, monkeypatch, Record(Found.ABSENT))
            request, attempt = await handed_in(made, me, me if by_door else "9@9")
            assert attempt.by_door is by_door
            made.carrier.records_moved("claude", {"s1"})
            if by_door:
                await asyncio.wait_for(looks.news.wait(), PATIENCE)
            else:
                with pytest.raises(asyncio.TimeoutError):
                    await asyncio.wait_for(looks.news.wait(), SOON)
            made.carrier._watch.stop(request.id)

    asyncio.run(story())


@pytest.mark.requirement("LD-04", "DE-22")
def test_each_look_is_told_to_the_route(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is let go of without a word is seen by it."""
    me = str(identify(os.getpid()))

    async def story() -> None:
        async with engine(tmp_path) as made:
            Elsewhere(made, monkeypatch, now_at="s1")
            request, attempt = await handed_in(made, me, me)
            await looked_at(made, request)
            (told_of,) = made.route.looks
            assert told_of is not None and told_of.id == attempt.id

    asyncio.run(story())
