"""Answers that come after the end of their request: looked for when something happened, told once, and not for ever."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from broker import late, watches
from broker.clock import boot_clock
from broker.closing import closing_token
from broker.deliveries import Attempt, Delivery, Event, Evidence, Kind, State
from broker.index.catalogue import Store
from broker.late import Late
from broker.replies import FLAG_INTERIM, FLAG_LATE, FLAG_RECOVERED, FLAG_STATUS_ONLY, Replies
from broker.watches import LateWatch
from shims.agent import Found, Record
from tests.unit.engine import Engine, engine

PATIENCE = 10.0
STORE = "/nowhere"


class Records:
    """The agents' files as a test has them: what finished turns said, by session."""

    def __init__(self) -> None:
        self.said: dict[str, list[str]] = {"s1": []}
        self.of_key: dict[str, Record] = {}
        self.looks: list[str] = []
        self.news = asyncio.Event()

    async def answers_naming(self, agent: str, store: str, session: str, tokens: Sequence[str]) -> list[Record]:
        assert (agent, store) == ("claude", STORE)
        self.looks.append(session)
        self.news.set()
        self.news = asyncio.Event()
        if session not in self.said:
            return [Record(Found.UNKNOWN)] * len(tokens)
        answers = {closing_token(text): text for text in self.said[session]}
        return [Record(Found.ANSWERED, answers[token]) if token in answers else Record(Found.ABSENT) for token in tokens]

    async def record(self, agent: str, store: str, session: str, key: str) -> Record:
        del agent, store, session
        return self.of_key.get(key, Record(Found.OPEN))


class House:
    """What of a broker has to do with late answers; requests from Codex thread t1 to Claude sessions."""

    def __init__(self, made: Engine, records: Records) -> None:
        self.made = made
        self.records = records
        self.live = True
        self.turns: set[str] = set()
        self.index = Store("claude", STORE)
        self.index.watched = True
        self.carried: list[Delivery] = []
        self.replies = Replies(made.book, self._way_back, self.carried.append)
        self.late = Late(made.book, records, self.replies, lambda *_: self.index, lambda _, s: s in self.turns)  # type: ignore[arg-type]
        self._count = 0

    async def _way_back(self, agent: str, store: str, session: str, *, panels: bool, doors: bool) -> str:
        del agent, store, session, panels, doors
        return "panel" if self.live else ""

    async def taken(self, session: str = "s1", **fields: Any) -> tuple[Delivery, Attempt]:
        self._count += 1
        number = self._count
        fields = {"sender_agent": "codex", "sender_session": "t1", "session": session, **fields}
        queued = await self.made.queued(token=f"req_1700000000000_{number:06x}", key=f"k{number}", **fields)
        attempt = Attempt(f"att_{number}", queued.id, "1@1", "", STORE, session, 1)
        delivering = await self.made.book.apply(queued, Event.HAND_OVER, attempt=attempt)
        attempt = replace(attempt, evidence=Evidence.TAKEN)
        return await self.made.book.apply(delivering, Event.TAKEN, attempt=attempt, handed_over=True), attempt

    async def interim(self, session: str = "s1", **fields: Any) -> Delivery:
        """A request whose first answer did not close with its id."""
        request, attempt = await self.taken(session, **fields)
        return await self.replies.answered(request, "I'll look.", attempt=replace(attempt, open=False))

    async def broken(self, event: Event, code: str, **fields: Any) -> Delivery:
        request, attempt = await self.taken(**fields)
        closed = replace(attempt, open=False)
        return await self.replies.failed(request, event, code, "its panel died", attempt=closed)

    def row(self, request: Delivery) -> Delivery:
        found = self.made.store.delivery(request.id)
        assert found is not None
        return found

    def told(self, request: Delivery) -> list[tuple[Delivery, str]]:
        """The late answers that went out."""
        messages = [m for m in self.carried if m.kind is Kind.LATE and m.parent == request.id]
        return [(message, self.made.store.body(message.id) or "") for message in messages]

    async def until(self, holds: Callable[[], bool]) -> None:
        deadline = asyncio.get_running_loop().time() + PATIENCE
        while not holds():
            assert asyncio.get_running_loop().time() < deadline
            await self.made.store.write(lambda _: None)
            await asyncio.sleep(0.001)

    async def looked(self, count: int = 1) -> None:
        """So many looks from now on have begun, and are over."""
        before = len(self.records.looks)
        while len(self.records.looks) < before + count:
            await asyncio.wait_for(self.records.news.wait(), PATIENCE)
        await self.until(lambda: not any(looks.looking for looks in self.late._places.values()))


def story(path: Path, told: Callable[[House], Coroutine[Any, Any, None]], records: Records | None = None) -> None:
    async def run() -> None:
        async with engine(path) as made:
            house = House(made, records or Records())
            try:
                await told(house)
            finally:
                house.late.close()

    asyncio.run(run())


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(late, "_SOON", 0.01)
    monkeypatch.setattr(late, "_BETWEEN", 0.02)


# found


@pytest.mark.requirement("DE-43", "DE-11", "DE-45")
def test_a_later_turn_that_closes_with_the_id_is_told_as_a_late_answer(tmp_path: Path) -> None:
    async def told(house: House) -> None:
        request = await house.interim(hop=1, max_hops=4)
        assert [watch.request for watch in house.made.store.late_watches()] == [request.id]
        assert [shown["delivery_id"] for shown in house.late.shown()] == [request.id]
        house.records.said["s1"] = [f"Now it is done.\n{request.token}"]
        house.late.turn_ended("claude", "s1")
        await house.until(lambda: bool(house.told(request)))
        ((message, body),) = house.told(request)
        after = house.row(request)
        assert (after.state, after.late_reply, after.reply_preview) == (State.DELIVERED, message.id, "Now it is done.")
        assert set(after.flags) == {FLAG_INTERIM, FLAG_LATE}
        assert (message.target, message.token, message.state) == (("codex", "t1", ""), "", State.QUEUED)
        assert body.startswith("=== CROSS-AGENT BRIDGE LATE ANSWER ===\nfrom: Claude Code")
        assert f"\nlate answer to: delivery {request.id}\n" in body
        assert "\n\nNow it is done.\n\n" in body
        assert request.token not in body and "RECOVERED" not in body and "interim" not in body
        assert house.made.store.late_watches() == [] and len(house.late) == 0

    story(tmp_path, told)


@pytest.mark.requirement("DE-43")
def test_several_requests_to_one_session_are_watched_by_one_look(tmp_path: Path) -> None:
    async def told(house: House) -> None:
        requests = [await house.interim() for _ in range(3)]
        others = await house.interim("s2")
        house.records.said["s1"] = [f"the second\n{requests[1].token}", f"the first\n{requests[0].token}"]
        house.late.turn_ended("claude", "s1")
        await house.until(lambda: len(house.late) == 2)
        assert house.records.looks == ["s1"]
        assert [len(house.told(request)) for request in (*requests, others)] == [1, 1, 0, 0]
        assert "\n\nthe first\n\n" in house.told(requests[0])[0][1]
        assert {watch.request for watch in house.made.store.late_watches()} == {requests[2].id, others.id}

    story(tmp_path, told)


@pytest.mark.requirement("DE-43", "DE-12")
def test_an_answer_that_closes_with_the_id_of_another_request_is_that_ones(tmp_path: Path) -> None:
    """Never the one's whose turn it was: that one has no answer, and is watched for as well."""

    async def told(house: House) -> None:
        first = await house.interim()
        second, attempt = await house.taken()
        ended = await house.replies.answered(second, f"The first is done.\n{first.token}", attempt=attempt)
        assert (ended.state, ended.error_code, ended.reply_preview) == (State.FAILED, "no_answer", "")
        assert first.id in ended.error
        assert [m.kind for m in house.carried if m.parent == second.id] == [Kind.NOTICE]
        house.records.said["s1"] = [f"The first is done.\n{first.token}"]
        house.late.turn_ended("claude", "s1")
        await house.until(lambda: bool(house.told(first)))
        assert house.told(second) == []
        assert [watch.request for watch in house.made.store.late_watches()] == [second.id]

    story(tmp_path, told)


@pytest.mark.requirement("DE-41", "DE-43")
def test_without_a_live_session_a_late_answer_stays_with_the_record(tmp_path: Path) -> None:
    async def told(house: House) -> None:
        request = await house.interim()
        house.live = False
        house.records.said["s1"] = [f"Done.\n{request.token}"]
        house.late.turn_ended("claude", "s1")
        await house.until(lambda: not house.made.store.late_watches())
        after = house.row(request)
        assert (after.late_reply, after.reply_preview) == ("", "Done.")
        assert {FLAG_LATE, FLAG_STATUS_ONLY} <= set(after.flags)
        assert house.told(request) == []

    story(tmp_path, told)


@pytest.mark.requirement("DE-41", "DE-43")
def test_a_late_answer_that_could_not_be_delivered_is_on_the_record(tmp_path: Path) -> None:
    async def told(house: House) -> None:
        request = await house.interim()
        house.records.said["s1"] = [f"Done.\n{request.token}"]
        house.late.turn_ended("claude", "s1")
        await house.until(lambda: bool(house.told(request)))
        ((message, _),) = house.told(request)
        await house.replies.failed(message, Event.REFUSED, "panel_closed", "it was closed", attempt=None)
        assert {FLAG_LATE, FLAG_STATUS_ONLY} <= set(house.row(request).flags)

    story(tmp_path, told)


# after a broken transport


@pytest.mark.requirement("DE-34", "DE-11")
@pytest.mark.parametrize(("event", "code"), [(Event.ENDED, "interrupted"), (Event.UNPROVEN, "uncertain")])
@pytest.mark.parametrize("by", ["id", "turn"])
def test_what_is_found_after_a_broken_transport_is_marked_as_recovered(tmp_path: Path, event: Event, code: str, by: str) -> None:
    async def told(house: House) -> None:
        request = await house.broken(event, code)
        if by == "id":
            house.records.said["s1"] = [f"Done.\n{request.token}"]
        else:
            house.records.of_key[request.key] = Record(Found.ANSWERED, "Done.")
        house.late.turn_ended("claude", "s1")
        await house.until(lambda: bool(house.told(request)))
        ((_, body),) = house.told(request)
        assert " | recovered from transcript\n" in body
        assert "\ntransport failure: its panel died\nRECOVERED, NOT RECEIVED\n" in body
        assert ("NO REQUEST ID" in body) is (by == "turn")
        after = house.row(request)
        assert {FLAG_LATE, FLAG_RECOVERED} <= set(after.flags)
        assert after.state is (State.FAILED if event is Event.ENDED else State.UNCERTAIN), "an end is an end"

    story(tmp_path, told)


@pytest.mark.requirement("DE-34", "DE-43")
@pytest.mark.parametrize("named", ["req_1700000000009_abcdef", ""])
def test_another_id_and_an_old_break_recover_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: str) -> None:
    if not named:
        monkeypatch.setattr(watches, "RECOVERY", 0.001)

    async def told(house: House) -> None:
        request = await house.broken(Event.UNPROVEN, "uncertain")
        await asyncio.sleep(0.002)  # the measured thing itself
        house.records.of_key[request.key] = Record(Found.ANSWERED, f"Done.\n{named}")
        house.late.turn_ended("claude", "s1")
        await house.looked()
        assert house.told(request) == [] and len(house.late) == 1
        house.records.said["s1"] = [f"Done.\n{request.token}"]
        house.late.turn_ended("claude", "s1")
        await house.until(lambda: bool(house.told(request)))
        assert ("RECOVERED" in house.told(request)[0][1]) is bool(named)

    story(tmp_path, told)


# when is looked


@pytest.mark.requirement("DE-43", "DE-33")
def test_changed_records_are_looked_at_unless_a_panel_tells_the_end(tmp_path: Path) -> None:
    async def told(house: House) -> None:
        await house.interim()
        house.turns = {"s1"}
        house.late.records_moved(house.index, {"s1"})
        house.late.records_moved(Store("claude", "/elsewhere"), {"s1"})
        house.late.records_moved(house.index, {"s2"})
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(house.records.news.wait(), 0.1)
        house.turns = set()
        house.late.records_moved(house.index, {"s1"})
        await asyncio.wait_for(house.records.news.wait(), PATIENCE)

    story(tmp_path, told)


@pytest.mark.requirement("DE-43")
def test_records_that_change_all_the_time_cost_few_looks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(late, "_BETWEEN", 0.2)

    async def told(house: House) -> None:
        await house.interim()
        begun = asyncio.get_running_loop().time()
        while asyncio.get_running_loop().time() < begun + 0.5:
            house.late.records_moved(house.index, {"s1"})
            await asyncio.sleep(0.005)
        assert 1 <= len(house.records.looks) <= 4

    story(tmp_path, told)


@pytest.mark.requirement("DE-43")
def test_a_session_in_which_nothing_moves_is_looked_at_ever_more_rarely(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(late, "_MOVING", 0.05)

    async def told(house: House) -> None:
        await house.interim()
        (looks,) = house.late._places.values()
        pauses = []
        for _ in range(4):
            await house.looked()
            pauses.append(looks.pause)
        assert pauses == pytest.approx([0.1, 0.2, 0.4, 0.8])
        house.late.turn_ended("claude", "s1")
        await house.looked()
        assert looks.pause == 0.05
        await house.looked()
        assert looks.pause == 0.1
        house.turns = {"s1"}
        await house.looked()
        assert looks.pause == 0.05, "a turn runs"

    story(tmp_path, told)


# the end of a watch


@pytest.mark.requirement("DE-43")
@pytest.mark.parametrize("comes", [False, True])
def test_a_watch_ends_with_its_time_and_not_without_a_last_look(tmp_path: Path, *, comes: bool) -> None:
    async def told(house: House) -> None:
        request = await house.interim(settings={"CROSS_AGENT_LATE_ANSWER_WATCH": "0.3"})
        if comes:
            house.records.said["s1"] = [f"Done.\n{request.token}"]  # nobody tells of it
        await house.until(lambda: len(house.late) == 0)
        assert len(house.told(request)) == comes
        assert house.made.store.late_watches() == [] and not house.late._places

    story(tmp_path, told)


@pytest.mark.requirement("DE-43")
def test_a_watch_ends_with_its_session_when_the_index_knows_that_it_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(late, "_MOVING", 0.05)

    async def told(house: House) -> None:
        await house.interim()
        del house.records.said["s1"]
        await house.looked(3)
        assert len(house.late) == 1, "an index that is not ready knows nothing"
        house.index.ready = True
        house.late.records_moved(house.index, {"s1"})
        await house.until(lambda: len(house.late) == 0)
        assert house.made.store.late_watches() == []

    story(tmp_path, told)


@pytest.mark.requirement("DE-43", "DE-23")
def test_a_request_that_is_forgotten_is_not_watched_any_more(tmp_path: Path) -> None:
    async def told(house: House) -> None:
        request = await house.interim()
        await house.made.store.write(lambda transaction: transaction.expire(request.updated + 1))
        assert house.made.store.late_watches() == []
        house.records.said["s1"] = [f"Done.\n{request.token}"]
        house.late.turn_ended("claude", "s1")
        await house.until(lambda: len(house.late) == 0)
        assert house.told(request) == []

    story(tmp_path, told)


# the next broker


@pytest.mark.requirement("DE-43")
@pytest.mark.parametrize("booted", [False, True])
def test_watches_survive_their_broker(tmp_path: Path, *, booted: bool) -> None:
    records = Records()
    requests: list[Delivery] = []

    async def before(house: House) -> None:
        requests.append(await house.interim())
        if booted:
            await house.made.store.write(lambda t: t._connection.execute("UPDATE meta SET value = 'old' WHERE key = 'boot'"))

    async def after(house: House) -> None:
        (kept,) = house.made.store.late_watches()
        house.late.load()
        (request,) = requests
        (shown,) = house.late.shown()
        assert shown["delivery_id"] == request.id
        assert 10_700 < shown["seconds_left"] <= 10_800
        if booted:
            await house.until(lambda: house.made.store.late_watches() != [kept])
        records.said["s1"] = [f"Done.\n{request.token}"]
        if booted:  # what load() looks for soon may have been looked for while that was written
            house.late.turn_ended("claude", "s1")
        await house.until(lambda: bool(house.told(request)))

    story(tmp_path, before, records)
    story(tmp_path, after, records)


@pytest.mark.requirement("DE-43")
def test_a_night_does_not_end_a_watch_before_anybody_could_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def told(house: House) -> None:
        await house.interim()
        house.late.turn_ended("claude", "s1")
        await house.looked()
        morning = boot_clock() + 8 * 3600
        monkeypatch.setattr(late, "boot_clock", lambda: morning)
        house.late.turn_ended("claude", "s1")
        await house.looked()
        (watch,) = house.made.store.late_watches()
        assert watch.left(morning) == pytest.approx(300)
        monkeypatch.setattr(late, "boot_clock", lambda: morning + 300)  # and the loop's clock with it, as far as one can tell
        (looks,) = house.late._places.values()
        looks.looked_awake = 0.0
        house.late.turn_ended("claude", "s1")
        await house.until(lambda: len(house.late) == 0)

    story(tmp_path, told)


@pytest.mark.requirement("DE-43", "DE-12")
@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_whatever_is_said_in_whatever_order_each_answer_is_told_once_and_for_its_own(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Turns that close with some request's id or none, looks and restarts, in any order."""
    steps = data.draw(st.lists(st.one_of(st.integers(0, 3), st.sampled_from(["look", "restart", "none"])), max_size=12))
    path = tmp_path_factory.mktemp("late")
    records = Records()
    requests: list[Delivery] = []
    told: list[tuple[Delivery, str]] = []

    async def open_all(house: House) -> None:
        requests.extend([await house.interim() for _ in range(4)])

    async def go_on(house: House) -> None:
        house.late.load()
        while steps and (step := steps.pop(0)) != "restart":
            if step == "look":
                house.late.turn_ended("claude", "s1")
                await asyncio.sleep(0.015)
            else:
                records.said["s1"].append(f"{step} is done\n{requests[step].token if isinstance(step, int) else 'no id'}")
        if not steps:
            house.late.turn_ended("claude", "s1")
            named = {closing_token(text) for text in records.said["s1"]}
            await house.until(lambda: not {w.token for w in house.made.store.late_watches()} & named)
            await house.until(lambda: not any(looks.looking for looks in house.late._places.values()))

    async def count(house: House) -> None:
        """By the rows: what was recorded as its broker ended goes out with the next one."""
        rows = house.made.store.recent_deliveries(99)
        told.extend((row, house.made.store.body(row.id) or "") for row in rows if row.kind is Kind.LATE)

    story(path, open_all, records)
    story(path, go_on, records)
    while steps:
        story(path, go_on, records)
    story(path, count, records)
    said = {number for number in range(4) if any(requests[number].token in text for text in records.said["s1"])}
    numbers = {request.id: number for number, request in enumerate(requests)}
    assert sorted(numbers[message.parent] for message, _ in told) == sorted(said)
    assert all(f"\n\n{numbers[message.parent]} is done\n\n" in body for message, body in told)


def test_a_watch_of_a_later_version_is_read(tmp_path: Path) -> None:
    """Migrations only add."""

    async def told(house: House) -> None:
        await house.interim()
        added = "UPDATE late_watches SET record = json_set(record, '$.added_later', 1)"
        await house.made.store.write(lambda t: t._connection.execute(added))
        assert [type(watch) for watch in house.made.store.late_watches()] == [LateWatch]

    story(tmp_path, told)
