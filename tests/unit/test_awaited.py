"""A turn whose end nobody reported is settled from the agent's records (DE-33)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from broker.clock import awake_clock, wall_clock
from broker.deliveries import Delivery, Kind, State
from broker.wire import StageName, StageReport
from shims.agent import Found, Record
from tests.unit.engine import Engine, engine

PATIENCE = 10.0


class Told:
    """A reader whose answer a test sets."""

    def __init__(self) -> None:
        self.record_is = Record(Found.OPEN)
        self.asked = asyncio.Event()

    async def record(self, agent: str, store: str, session: str, key: str) -> Record:
        del agent, store, session, key
        self.asked.set()
        return self.record_is

    async def answer_naming(self, agent: str, store: str, session: str, token: str) -> Record:
        del agent, store, session, token
        return Record(Found.ABSENT)


STAGES = (StageName.WRITTEN, StageName.TAKEN)


async def awaited(made: Engine, reader: Told, stages: tuple[StageName, ...] = STAGES, **fields: Any) -> Delivery:
    """A request that the agent has taken, and of which nothing more is reported."""
    made.carrier._watch._reader = reader  # type: ignore[assignment]
    delivery = await made.queued(**fields)
    made.carrier.begin()
    await asyncio.wait_for(made.route.news.wait(), PATIENCE)
    for number, stage in enumerate(stages):
        seen = asyncio.get_running_loop().create_future()
        made.carrier.staged(StageReport(number, made.route.handed_over[0].id, stage, session=delivery.session), seen)
        await asyncio.wait_for(seen, PATIENCE)
    return delivery


async def settled(made: Engine, delivery: Delivery) -> Delivery:
    deadline = asyncio.get_running_loop().time() + PATIENCE
    while (found := made.book.delivery(delivery.id)) is not None and found.open:
        assert asyncio.get_running_loop().time() < deadline
        await made.store.write(lambda _: None)
    assert found is not None
    return found


@pytest.mark.requirement("DE-33")
@pytest.mark.parametrize(
    ("record", "state"),
    [(Record(Found.ANSWERED, "pong"), State.DELIVERED), (Record(Found.INTERRUPTED), State.FAILED)],
)
def test_an_idle_session_whose_turn_was_not_reported_is_looked_up(tmp_path: Path, record: Record, state: State) -> None:
    async def story() -> None:
        async with engine(tmp_path) as made:
            reader = Told()
            delivery = await awaited(made, reader)
            reader.record_is = record

            made.carrier.session_idle(delivery.agent, delivery.session)

            found = await settled(made, delivery)
            assert found.state is state
            assert found.handed_over
            assert made.book.open_attempts() == [], "the session is free for the next message"

    asyncio.run(story())


@pytest.mark.requirement("DE-33")
def test_a_turn_that_the_records_show_as_open_goes_on(tmp_path: Path) -> None:
    async def story() -> None:
        async with engine(tmp_path) as made:
            reader = Told()
            delivery = await awaited(made, reader)

            made.carrier.session_idle(delivery.agent, delivery.session)
            await asyncio.wait_for(reader.asked.wait(), PATIENCE)
            await made.store.write(lambda _: None)

            found = made.book.delivery(delivery.id)
            assert found is not None
            assert found.state is State.AWAITING

    asyncio.run(story())


@pytest.mark.requirement("DE-33", "DE-45", "DE-04")
def test_a_reply_whose_end_was_never_reported_does_not_block_its_session(tmp_path: Path) -> None:
    async def story() -> None:
        async with engine(tmp_path) as made:
            reader = Told()
            reply = await awaited(made, reader, kind=Kind.REPLY)
            assert [attempt.delivery for attempt in made.book.open_attempts()] == [reply.id], "its turn runs"
            reader.record_is = Record(Found.ANSWERED, "noted")

            made.carrier.session_idle(reply.agent, reply.session)

            deadline = asyncio.get_running_loop().time() + PATIENCE
            while made.book.open_attempts():
                assert asyncio.get_running_loop().time() < deadline
                await made.store.write(lambda _: None)
            found = made.book.delivery(reply.id)
            assert found is not None
            assert found.state is State.DELIVERED

    asyncio.run(story())


@pytest.mark.requirement("SH-43", "DE-33")
@pytest.mark.parametrize("kind", [Kind.REQUEST, Kind.REPLY])
def test_a_message_that_nobody_saw_taken_is_found_in_the_records(tmp_path: Path, kind: Kind) -> None:
    """An agent that neither echoes nor names its turns: only its transcript has our key."""

    async def story() -> None:
        async with engine(tmp_path) as made:
            reader = Told()
            delivery = await awaited(made, reader, (StageName.WRITTEN,), kind=kind)
            reader.record_is = Record(Found.ANSWERED, "pong")

            made.carrier.session_idle(delivery.agent, delivery.session)

            deadline = asyncio.get_running_loop().time() + PATIENCE
            while made.book.open_attempts():
                assert asyncio.get_running_loop().time() < deadline
                await made.store.write(lambda _: None)
            found = made.book.delivery(delivery.id)
            assert found is not None
            assert found.state is State.DELIVERED
            assert [attempt.delivery for attempt in made.route.forgotten] == [delivery.id], "its shim need not wait either"

    asyncio.run(story())


@pytest.mark.requirement("DE-33", "DE-22")
def test_what_looks_like_an_end_while_the_turn_runs_is_believed_only_with_the_token(tmp_path: Path) -> None:
    async def story() -> None:
        async with engine(tmp_path) as made:
            reader = Told()
            delivery = await awaited(made, reader)
            made.route.running = True
            reader.record_is = Record(Found.ANSWERED, "I think I am done")

            made.carrier.session_idle(delivery.agent, delivery.session)
            await asyncio.wait_for(reader.asked.wait(), PATIENCE)
            async with made.carrier.lock(delivery.target):
                found = made.book.delivery(delivery.id)
                assert found is not None
                assert found.state is State.AWAITING

            reader.record_is = Record(Found.ANSWERED, f"done\n\n{delivery.token}")
            made.carrier.session_idle(delivery.agent, delivery.session)
            assert (await settled(made, delivery)).state is State.DELIVERED

    asyncio.run(story())


@pytest.mark.requirement("DE-22", "DE-31")
def test_after_a_boot_a_deadline_is_what_is_left_of_its_time(tmp_path: Path) -> None:
    """Row 15: the clock of the deadlines begins anew with each boot of the machine."""

    async def story() -> None:
        now = wall_clock()
        async with engine(tmp_path) as made:
            fresh = await made.queued(created=now - 60, deadline=awake_clock() + 1e7)
            await made.store.write(lambda t: t._connection.execute("UPDATE meta SET value = 'old' WHERE key = 'boot'"))
        async with engine(tmp_path) as made:
            made.book.load()
            loaded = made.book.delivery(fresh.id)
            assert loaded is not None
            assert 3500 < loaded.deadline - awake_clock() < 3545

    asyncio.run(story())
