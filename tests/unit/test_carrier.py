"""What the carrier makes of a route's answers, and what settlement makes of the dead."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from broker.clock import awake_clock
from broker.deliveries import Delivery, Event, Kind, State
from broker.processes import ProcessId, identify
from broker.routes import Reach
from broker.settlement import Settlement
from broker.store import Transaction
from broker.wire import StageName, StageReport
from tests.unit.engine import Engine, engine
from tests.unit.engine import delivery as made_up

PATIENCE = 10.0


@pytest.fixture
def sleeper() -> Iterator[ProcessId]:
    """A process that lives as long as the test."""
    process = subprocess.Popen([sys.executable, "-I", "-S", "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
    identity = identify(process.pid)
    assert identity is not None
    yield identity
    process.kill()
    process.communicate()


async def _handed_over(made: Engine, count: int) -> None:
    while len(made.route.handed_over) < count:
        made.route.news.clear()
        await asyncio.wait_for(made.route.news.wait(), PATIENCE)


@pytest.mark.requirement("DE-22")
def test_an_instance_that_goes_before_the_order_leaves_is_no_hand_over(tmp_path: Path) -> None:
    """It ended before the attempt was known, so nobody will ever settle that attempt but who could not send."""

    async def story() -> None:
        async with engine(tmp_path) as made:
            made.route.goes_out = [False, True]
            made.carrier.begin()
            queued = await made.queued()
            made.carrier.carry(queued)
            await _handed_over(made, 2)
            first, second = made.route.handed_over
            assert first.id != second.id
            assert [attempt.id for attempt in made.book.open_attempts()] == [second.id]
            delivery = made.book.delivery(queued.id)
            assert delivery is not None
            assert delivery.state is State.DELIVERING

    asyncio.run(story())


@pytest.mark.requirement("DE-05", "DE-47")
def test_what_its_agent_does_not_take_is_not_handed_over_and_holds_nothing_up(tmp_path: Path) -> None:
    async def story() -> None:
        async with engine(tmp_path) as made:
            made.carrier.begin()
            long = await made.book.add_request(made_up(agent="codex"), "x" * (1 << 20), lambda _: {})
            short = await made.queued(agent="codex", key="k2")
            made.carrier.carry(long)
            await _handed_over(made, 1)
            assert [attempt.delivery for attempt in made.route.handed_over] == [short.id]
            failed = made.store.delivery(long.id)
            assert failed is not None
            assert (failed.state, failed.error_code, failed.handed_over) == (State.FAILED, "message_too_long", False)
            assert "Codex takes 1,048,576" in failed.error

    asyncio.run(story())


class _Panels:
    """The registry as settlement sees it: who is attended."""

    def __init__(self) -> None:
        self.attended: set[ProcessId] = set()

    def by_process(self, process: ProcessId) -> object | None:
        return object() if process in self.attended else None


@pytest.mark.requirement("DE-22", "DE-35")
def test_a_reloaded_window_settles_when_its_new_shim_registers(tmp_path: Path, sleeper: ProcessId) -> None:
    """The new agent is in the registry of sessions before its shim is in ours: a stranger at first, and then none."""
    sessions = tmp_path / "claude" / "sessions"
    sessions.mkdir(parents=True)
    record = {"pid": sleeper.pid, "sessionId": "s1", "procStart": str(sleeper.start)}
    (sessions / f"{sleeper.pid}.json").write_text(json.dumps(record))
    transcript = tmp_path / "claude" / "projects" / "-w" / "s1.jsonl"
    transcript.parent.mkdir(parents=True)
    transcript.write_text('{"type":"user","uuid":"somebody else\'s"}\n')

    async def story() -> None:
        async with engine(tmp_path) as made:
            panels: Any = _Panels()
            settlement = Settlement(made.book, made.carrier, made.route, panels, made.reader)  # type: ignore[arg-type]
            dead = ProcessId(1, 1)
            made.route.reached = Reach("panel", str(dead), "", str(tmp_path / "claude"))
            made.carrier.begin()
            made.carrier.carry(await made.queued())
            await _handed_over(made, 1)
            settlement.instance_gone(dead)
            panel: Any = SimpleNamespace(process=ProcessId(2, 2), attempts=frozenset())
            settlement.registered(panel)  # somebody else's
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(_handed_over(made, 2), 0.3)
            panels.attended.add(sleeper)
            settlement.registered(panel)
            await _handed_over(made, 2)
            settlement.close()

    asyncio.run(story())


@pytest.mark.requirement("DE-30")
def test_a_progress_notice_that_has_waited_until_the_answer_is_not_handed_over(tmp_path: Path) -> None:
    async def story() -> None:
        async with engine(tmp_path) as made:
            request = await made.queued(state=State.QUEUED)
            ended = await made.book.apply(request, Event.WITHDRAW)
            fields = {"token": "", "session": "t1", "agent": "codex", "sender_agent": "claude"}
            notice = made_up(kind=Kind.PROGRESS, parent=ended.id, **fields)
            reply = made_up(kind=Kind.REPLY, parent=ended.id, **fields)
            for message in (notice, reply):
                made.book.admit(await made.store.write(partial(_add, message)))
            made.carrier.begin()
            await _handed_over(made, 1)
            assert [attempt.delivery for attempt in made.route.handed_over] == [reply.id]
            dropped = made.store.delivery(notice.id)
            assert dropped is not None and dropped.state is State.WITHDRAWN

    asyncio.run(story())


def _add(message: Delivery, transaction: Transaction) -> Delivery:
    return transaction.add_delivery(message, "text")


@pytest.mark.requirement("DE-41", "DE-47")
@pytest.mark.parametrize(("age", "again"), [(1.0, True), (61.0, False)])
def test_return_traffic_that_is_refused_is_tried_for_a_minute_of_a_clock_that_nobody_sets(
    tmp_path: Path, age: float, again: bool
) -> None:
    async def story() -> None:
        async with engine(tmp_path) as made:
            request = await made.queued()
            ended = await made.book.apply(request, Event.WITHDRAW, return_delivery="dlv_back")
            fields = {"token": "", "session": "t1", "agent": "codex", "created": 0.0, "deadline": awake_clock() + 3600 - age}
            reply = made_up(id="dlv_back", kind=Kind.REPLY, parent=ended.id, **fields)
            made.book.admit(await made.store.write(partial(_add, reply)))
            made.carrier.begin()
            await _handed_over(made, 1)
            seen: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            report = StageReport(1, made.route.handed_over[0].id, StageName.REJECTED, code="closed")
            made.carrier.staged(report, seen)
            await asyncio.wait_for(seen, PATIENCE)
            after, told = made.store.delivery(reply.id), made.store.delivery(ended.id)
            assert after is not None and told is not None
            assert after.state is (State.QUEUED if again else State.FAILED)
            assert ("is_return_status_only" in told.flags) is not again
            assert ("is_undelivered" in after.flags) is not again

    asyncio.run(story())


@pytest.mark.requirement("DE-31", "DE-35")
@pytest.mark.parametrize(("left", "state"), [(3600.0, State.QUEUED), (-1.0, State.FAILED)])
def test_an_order_that_slept_with_the_machine_is_too_late_and_its_message_is_not(
    tmp_path: Path, left: float, state: State
) -> None:
    """The shim counts sleep, for what it is told to do; patience does not."""

    async def story() -> None:
        async with engine(tmp_path) as made:
            request = await made.queued(deadline=awake_clock() + 3600)
            made.carrier.begin()
            await _handed_over(made, 1)
            open_now = made.book.delivery(request.id)
            assert open_now is not None
            await made.book.annotate(open_now, deadline=awake_clock() + left)
            seen: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            made.carrier.staged(StageReport(1, made.route.handed_over[0].id, StageName.REJECTED, code="too_late"), seen)
            await asyncio.wait_for(seen, PATIENCE)
            after = made.store.delivery(request.id)
            assert after is not None and after.state is state

    asyncio.run(story())


@pytest.mark.requirement("DE-26")
def test_what_was_asked_back_on_its_way_and_comes_back_by_itself_is_not_sent_again(tmp_path: Path) -> None:
    async def story() -> None:
        async with engine(tmp_path) as made:
            request = await made.queued()
            made.carrier.begin()
            await _handed_over(made, 1)
            await made.carrier.withdraw(request.id)
            seen: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            made.carrier.staged(StageReport(1, made.route.handed_over[0].id, StageName.NEVER), seen)
            await asyncio.wait_for(seen, PATIENCE)
            for _ in range(1000):
                after = made.store.delivery(request.id)
                if after is not None and after.state is State.WITHDRAWN:
                    break
                await asyncio.sleep(0.01)
            assert after is not None and after.state is State.WITHDRAWN
            assert len(made.route.handed_over) == 1

    asyncio.run(story())
