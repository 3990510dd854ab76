"""The database as other processes and a crash see it: durable before it is told, removed when it is removed."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sqlite3
import stat
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker import store as store_module
from broker.book import Book
from broker.clock import wall_clock
from broker.deliveries import Attempt, Delivery, Event, Evidence, Kind, State
from broker.errors import Fenced, Refusal
from broker.store import Store, Transaction
from tests.unit.engine import Silent, delivery

PATIENCE = 10.0
SECRET = "only the reader of this message may know it; " * 400
"""More than a page of the database, and more than a summary keeps."""


@asynccontextmanager
async def opened(path: Path) -> AsyncIterator[Store]:
    """A store of the next generation; its failures are raised at the end."""
    failures: list[BaseException] = []
    store = Store(str(path / "broker.sqlite"), failures.append)
    store.begin_generation()
    try:
        yield store
    finally:
        store.close()
    assert failures == []


def outside(path: Path, query: str) -> list[Any]:
    """What another process reads."""
    with closing(sqlite3.connect(path / "broker.sqlite")) as connection:
        return connection.execute(query).fetchall()


def adding(made: Delivery, body: str = "text") -> store_module.Change[Delivery]:
    return lambda transaction: transaction.add_delivery(made, body)


def on_disk(path: Path, text: str) -> list[str]:
    """The files below ``path`` that hold the bytes of ``text``."""
    return [file.name for file in sorted(path.iterdir()) if text.encode() in file.read_bytes()]


def occupied(store: Store) -> tuple[threading.Event, asyncio.Future[bool]]:
    """The writer is in the middle of a change, until the event is set: what is written now waits together."""
    began, goes_on = threading.Event(), threading.Event()
    future = store.write(lambda _: (began.set(), goes_on.wait(PATIENCE))[1])  # type: ignore[func-returns-value]
    assert began.wait(PATIENCE)
    return goes_on, future


@pytest.fixture
def commits(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """One entry for each transaction that has been committed."""
    passed: list[str] = []
    monkeypatch.setattr(store_module, "fail_point", lambda name: passed.append(name) if name == "broker.commit.after" else None)
    yield passed


# durability


@pytest.mark.requirement("DE-20")
def test_what_is_told_survives_the_loss_of_the_process(tmp_path: Path) -> None:
    """The files as they are at the moment when the future resolves, opened by somebody else."""
    kept = tmp_path / "kept"

    async def story() -> Delivery:
        async with opened(tmp_path) as store:
            added = await store.write(adding(delivery(), "the text"))
            kept.mkdir()
            for file in tmp_path.glob("broker.sqlite*"):
                shutil.copy(file, kept)
            assert outside(tmp_path, "SELECT id, state FROM deliveries") == [(added.id, "queued")]
            return added

    async def afterwards(added: Delivery) -> None:
        async with opened(kept) as store:
            assert store.open_deliveries() == [added]
            assert store.body(added.id) == "the text"

    asyncio.run(afterwards(asyncio.run(story())))


@pytest.mark.requirement("DE-20")
def test_the_database_is_what_a_power_cut_can_not_hurt(tmp_path: Path) -> None:
    async def story() -> None:
        async with opened(tmp_path) as store:
            for connection in (store._reader, store_module._connect(store._path)):
                for pragma, value in (("journal_mode", "wal"), ("synchronous", 2), ("secure_delete", 1)):
                    assert connection.execute(f"PRAGMA {pragma}").fetchone() == (value,)
            await store.write(adding(delivery()))
            for file in tmp_path.glob("broker.sqlite*"):
                assert stat.S_IMODE(file.stat().st_mode) == 0o600

    old = os.umask(0)
    try:
        asyncio.run(story())
    finally:
        os.umask(old)


@pytest.mark.requirement("DE-20")
def test_what_waits_together_is_committed_together(tmp_path: Path, commits: list[str]) -> None:
    async def story() -> None:
        async with opened(tmp_path) as store:
            busy, first = occupied(store)
            others = [store.write(adding(delivery(session=str(number)))) for number in range(50)]
            busy.set()
            assert await asyncio.wait_for(first, PATIENCE)
            added = await asyncio.wait_for(asyncio.gather(*others), PATIENCE)
            assert len(commits) == 2
            assert [one.sequence for one in added] == list(range(1, 51))
            assert store.open_deliveries() == added

    asyncio.run(story())


@pytest.mark.requirement("DE-20")
def test_a_change_that_fails_is_undone_alone(tmp_path: Path, commits: list[str]) -> None:
    def failing(transaction: Transaction) -> None:
        transaction.add_delivery(delivery(id="dlv_half"), SECRET)
        transaction.spend_hop("conv_half", 4, 0.0)
        raise Refusal("hop_limit", "no", "nothing")

    async def story() -> None:
        async with opened(tmp_path) as store:
            busy, _ = occupied(store)
            results: list[asyncio.Future[Any]] = [
                store.write(adding(delivery(id="dlv_1"))),
                store.write(failing),
                store.write(adding(delivery(id="dlv_2"))),
            ]
            busy.set()
            told = await asyncio.wait_for(asyncio.gather(*results, return_exceptions=True), PATIENCE)
            assert isinstance(told[1], Refusal)
            assert [one.id for one in store.open_deliveries()] == ["dlv_1", "dlv_2"]
            assert store.body("dlv_half") is None
            assert store.conversation("conv_half") is None
            assert len(commits) == 2

    asyncio.run(story())


@pytest.mark.requirement("DE-21")
def test_whoever_no_longer_waits_does_not_stop_the_others(tmp_path: Path) -> None:
    async def story() -> None:
        async with opened(tmp_path) as store:
            given_up = store.write(adding(delivery(id="dlv_1")))
            given_up.cancel()
            await store.write(adding(delivery(id="dlv_2")))
            assert [one.id for one in store.open_deliveries()] == ["dlv_1", "dlv_2"]

    asyncio.run(story())


@pytest.mark.requirement("DE-20")
def test_what_is_queued_at_the_end_is_still_written(tmp_path: Path) -> None:
    async def story() -> None:
        async with opened(tmp_path) as store:
            for number in range(20):
                store.write(adding(delivery(id=f"dlv_{number}")))
        assert len(outside(tmp_path, "SELECT id FROM deliveries")) == 20

    asyncio.run(story())


# generations


@pytest.mark.requirement("EN-08")
def test_every_broker_has_a_generation_of_its_own(tmp_path: Path) -> None:
    async def story() -> None:
        for generation in (1, 2, 3):
            async with opened(tmp_path) as store:
                assert store.generation == generation
                await store.write(adding(delivery(id=f"dlv_{generation}")))
                assert len(store.open_deliveries()) == generation

    asyncio.run(story())


@pytest.mark.requirement("EN-08")
def test_a_broker_that_was_replaced_writes_nothing_more_and_is_told(tmp_path: Path) -> None:
    async def story() -> None:
        loop = asyncio.get_running_loop()
        told: asyncio.Future[BaseException] = loop.create_future()
        old = Store(str(tmp_path / "broker.sqlite"), told.set_result)
        old.begin_generation()
        made = await old.write(adding(delivery()))
        async with opened(tmp_path) as new:
            late = [old.write(lambda t: t.update_delivery(replace(made, state=State.FAILED), State.QUEUED)), old.checkpoint()]
            for future in late:
                with pytest.raises(Fenced):
                    await asyncio.wait_for(future, PATIENCE)
            assert isinstance(await asyncio.wait_for(told, PATIENCE), Fenced)
            assert new.delivery(made.id) == made
            await new.write(lambda t: t.update_delivery(replace(made, state=State.WITHDRAWN), State.QUEUED))
        old.close()

    asyncio.run(story())


@pytest.mark.requirement("DE-20")
def test_a_row_that_moved_meanwhile_is_not_overwritten(tmp_path: Path) -> None:
    async def story() -> None:
        async with opened(tmp_path) as store:
            made = await store.write(adding(delivery()))
            moved = replace(made, state=State.DELIVERING)
            await store.write(lambda t: t.update_delivery(moved, State.QUEUED))
            with pytest.raises(LookupError):
                await store.write(lambda t: t.update_delivery(replace(made, state=State.FAILED), State.QUEUED))
            assert store.delivery(made.id) == moved

    asyncio.run(story())


# what is there once


@pytest.mark.requirement("DE-20", "MC-09")
def test_a_call_causes_one_delivery_and_spends_one_hop(tmp_path: Path) -> None:
    async def story() -> None:
        async with opened(tmp_path) as store:
            book = Book(store, Silent())  # type: ignore[arg-type]
            first = await book.add_request(delivery(id="dlv_1", request_key="m/1"), "text", lambda _: {"ok": True})
            with pytest.raises(sqlite3.IntegrityError):
                await book.add_request(delivery(id="dlv_2", request_key="m/1"), "text", lambda _: {})
            assert store.by_request_key("m/1") == first
            assert first.receipt == {"ok": True}
            assert store.conversation(first.conversation) == (1, first.max_hops)
            assert store.by_request_key("m/2") is None

    asyncio.run(story())


@pytest.mark.requirement("MC-09")
def test_a_call_that_was_cancelled_is_repeated_once(tmp_path: Path) -> None:
    """Whichever broker hears of it: the next one has it from the disk."""

    async def first() -> Delivery:
        async with opened(tmp_path) as store:
            book = Book(store, Silent())  # type: ignore[arg-type]
            made = await book.add_request(delivery(id="dlv_1", request_key="m/1"), "text", lambda _: {}, "f")
            assert store.cancelled_call("f", 0) is None
            await store.write(lambda t: t.cancel_call("m/1", 100.0))
            await store.write(lambda t: t.cancel_call("m/1", 150.0))
            return made

    async def second(made: Delivery) -> None:
        async with opened(tmp_path) as store:
            assert store.cancelled_call("f", 99.0) == "dlv_1"
            assert store.cancelled_call("f", 100.0) is None, "the first cancellation counts"
            assert store.cancelled_call("g", 99.0) is None
            assert await store.write(lambda t: t.repeat_call("dlv_1", "m/2"))
            assert not await store.write(lambda t: t.repeat_call("dlv_1", "m/3"))
            assert store.by_request_key("m/1") == store.by_request_key("m/2") == made
            assert store.by_request_key("m/3") is None
            await store.write(lambda t: t.cancel_call("m/1", 100.0))
            assert store.cancelled_call("f", 0) is None, "its place is taken"
            await store.write(lambda t: t.cancel_call("m/2", 200.0))
            assert store.cancelled_call("f", 199.0) == "dlv_1"

    asyncio.run(second(asyncio.run(first())))


@pytest.mark.requirement("DE-40", "DE-30")
@pytest.mark.parametrize("kind", [Kind.REPLY, Kind.NOTICE, Kind.PROGRESS])
def test_a_request_has_one_message_of_each_kind_at_most(tmp_path: Path, kind: Kind) -> None:
    async def story() -> None:
        async with opened(tmp_path) as store:
            await store.write(adding(delivery(id="dlv_1", kind=kind, parent="dlv_0")))
            with pytest.raises(sqlite3.IntegrityError):
                await store.write(adding(delivery(id="dlv_2", kind=kind, parent="dlv_0")))
            await store.write(adding(delivery(id="dlv_3", kind=kind, parent="dlv_9")))

    asyncio.run(story())


@pytest.mark.requirement("DE-50", "DE-54")
def test_the_budget_of_a_conversation_is_that_of_its_first_request(tmp_path: Path) -> None:
    async def story() -> None:
        async with opened(tmp_path) as store:
            assert await store.write(lambda t: t.spend_hop("conv_1", 2, 0.0)) == (1, 2)
            assert await store.write(lambda t: t.spend_hop("conv_1", 99, 0.0)) == (2, 2)
            book = Book(store, Silent())  # type: ignore[arg-type]
            with pytest.raises(Refusal) as caught:
                await book.add_request(delivery(max_hops=99), "text", lambda _: {})
            assert caught.value.code == "hop_limit"
            assert store.conversation("conv_1") == (2, 2), "a refused request spends nothing"
            assert store.conversation("conv_2") is None

    asyncio.run(story())


# what is kept, and what is not


@pytest.mark.requirement("DE-23")
@pytest.mark.parametrize("last", [Event.TAKEN, Event.SETTLED, Event.REFUSED, Event.WITHDRAW])
def test_a_text_that_is_not_needed_any_more_is_nowhere_on_the_disk(tmp_path: Path, last: Event) -> None:
    async def story() -> None:
        async with opened(tmp_path) as store:
            book = Book(store, Silent())  # type: ignore[arg-type]
            made = await book.add_request(delivery(), SECRET, lambda _: {})
            assert on_disk(tmp_path, SECRET[:300])
            made = await book.apply(made, Event.HAND_OVER)
            assert store.body(made.id) == SECRET
            made = await book.apply(made, Event.BUSY)
            made = await book.apply(made, Event.HAND_OVER)
            assert store.body(made.id) == SECRET
            await book.apply(made, last)
            assert store.body(made.id) is None
            for _ in range(2):  # the second is written after the checkpoint that the book has asked for
                await store.write(lambda _: None)
            assert on_disk(tmp_path, SECRET[:300]) == []

    asyncio.run(story())


@pytest.mark.requirement("DE-23")
def test_a_checkpoint_is_told_when_it_has_been_made(tmp_path: Path) -> None:
    async def story() -> None:
        async with opened(tmp_path) as store:
            for _ in range(20):
                made = await store.write(adding(delivery(), SECRET))
                await store.write(lambda t, gone=made.id: t.remove_body(gone))  # type: ignore[misc]
                await store.checkpoint()
                assert on_disk(tmp_path, SECRET[:300]) == []
                assert (tmp_path / "broker.sqlite-wal").stat().st_size == 0

    asyncio.run(story())


@pytest.mark.requirement("DE-23")
def test_what_is_finished_is_forgotten_some_time_after_its_end_and_what_is_open_is_not(tmp_path: Path) -> None:
    now = wall_clock()

    async def story() -> None:
        async with opened(tmp_path) as store:
            for state in State:
                for age in (1000.0, 10.0):
                    made = delivery(id=f"{state.value} {age:.0f}", state=state, created=now - 2000, updated=now - age)
                    await store.write(adding(made))
                    attempt = Attempt(made.id, made.id, "1@1", "", "/s", "s1", 1, open=False)
                    await store.write(lambda t, attempt=attempt: t.save_attempt(attempt))  # type: ignore[misc]
                    await store.write(lambda t, made=made: t.add_call(made.id, made.id, "f"))  # type: ignore[misc]
            assert await store.write(lambda t: t.expire(now - 100)) == 4
            left = {one.id for one in store.recent_deliveries(100)}
            still_open = {f"{state} 1000" for state in ("queued", "delivering", "awaiting-peer")}
            assert left == {f"{state.value} 10" for state in State} | still_open
            assert {row[0] for row in outside(tmp_path, "SELECT delivery FROM attempts")} == left
            assert {row[0] for row in outside(tmp_path, "SELECT delivery FROM bodies")} == left
            assert {row[0] for row in outside(tmp_path, "SELECT delivery FROM calls")} == left

    asyncio.run(story())


@pytest.mark.requirement("DE-20", "DE-22")
def test_every_field_comes_back(tmp_path: Path) -> None:
    async def story() -> None:
        async with opened(tmp_path) as store:
            made = delivery(
                kind=Kind.REPLY, raw=True, parent="dlv_0", flags=("a", "b"), receipt={"warnings": [{"code": "x"}]},
                settings={"CROSS_AGENT_SCOPE": "tree"}, cwd=os.fsdecode(b"/w/\xff"), target_name="é\ud83d", handed_over=True,
            )  # fmt: skip
            added = await store.write(adding(made))
            assert added == replace(made, sequence=1)
            assert store.delivery(made.id) == added
            attempt = Attempt("att_1", made.id, "1@2", "3@4", "/s", "s1", 7, Evidence.TAKEN, turn="t", created=5.0)
            await store.write(lambda t: t.save_attempt(attempt))
            assert store.open_attempts() == store.attempts_of(made.id) == [attempt]
            closed = replace(attempt, open=False, evidence=Evidence.ANSWERED)
            await store.write(lambda t: t.save_attempt(closed))
            assert store.open_attempts() == []
            assert store.attempts_of(made.id) == [closed]

    asyncio.run(story())


@pytest.mark.requirement("DE-20")
@given(body=st.text(st.characters(), max_size=50))
@settings(max_examples=40, deadline=None)
def test_any_text_is_kept_and_half_a_character_costs_only_itself(tmp_path_factory: pytest.TempPathFactory, body: str) -> None:
    async def story() -> None:
        async with opened(tmp_path_factory.mktemp("any")) as store:
            made = await store.write(adding(delivery(), body))
            assert store.body(made.id) == body.encode("utf-16", "surrogatepass").decode("utf-16", "replace")

    asyncio.run(story())


@pytest.mark.requirement("EN-08")
def test_rows_of_an_earlier_or_later_version_are_read(tmp_path: Path) -> None:
    """Migrations only add: a field that a row has not has its default, one that we do not know is not ours."""

    async def story() -> None:
        async with opened(tmp_path) as store:
            made = await store.write(adding(delivery()))
            attempt = Attempt("att_1", made.id, "1@2", "", "/s", "s1", 7)
            await store.write(lambda t: t.save_attempt(attempt))
            with closing(sqlite3.connect(tmp_path / "broker.sqlite")) as connection:
                for table, dropped in (("deliveries", "progress_delivery"), ("attempts", "turn")):
                    (text,) = connection.execute(f"SELECT record FROM {table}").fetchone()
                    record = {**json.loads(text), "a_field_of_2031": 1}
                    del record[dropped]
                    connection.execute(f"UPDATE {table} SET record = ?", (json.dumps(record),))
                connection.commit()
            assert store.open_deliveries() == [made]
            assert store.open_attempts() == [attempt]

    asyncio.run(story())
