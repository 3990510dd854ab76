"""Two sessions that keep each other busy are stopped, and nobody else is (DE-55)."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.clock import wall_clock
from broker.deliveries import Delivery, Event, Kind, State
from broker.errors import Refusal
from broker.pace import Pace
from tests.unit.engine import Engine, delivery, engine

pytestmark = pytest.mark.requirement("DE-55")

PACE = Pace(20, 120.0)
NOW = 1_800_000_000.0
A, B, C = ("claude", "a"), ("codex", "b"), ("grok", "c")
Session = tuple[str, str]


def between(sender: Session, target: Session, **fields: Any) -> Delivery:
    made = delivery(agent=target[0], session=target[1], sender_agent=sender[0], sender_session=sender[1])
    return replace(made, **{"created": NOW, "conversation": f"conv_{made.id}", **fields})


async def send(made: Engine, sender: Session, target: Session, pace: Pace = PACE, **fields: Any) -> str:
    """Empty: it was recorded; else the code of the refusal."""
    try:
        await made.book.add_request(between(sender, target, **fields), "text", lambda _: {}, pace=pace)
    except Refusal as refusal:
        return refusal.code
    return ""


def run(path: Path, *sends: tuple[Session, Session, float], pace: Pace = PACE) -> list[str]:
    async def story() -> list[str]:
        async with engine(path) as made:
            return [await send(made, one, other, pace, created=NOW + at) for one, other, at in sends]

    return asyncio.run(story())


def test_the_twenty_first_is_refused_whichever_way_it_goes(tmp_path: Path) -> None:
    sends = [(A, B, float(n)) if n % 2 else (B, A, float(n)) for n in range(20)]
    told = run(tmp_path, *sends, (A, B, 21.0), (B, A, 22.0), (A, C, 23.0), (C, B, 24.0), (A, B, 119.9), (A, B, 120.1))
    assert told == [""] * 20 + ["ping_pong", "ping_pong", "", "", "ping_pong", ""]


def test_a_new_broker_has_not_forgotten(tmp_path: Path) -> None:
    assert run(tmp_path, *[(A, B, 0.0)] * 20) == [""] * 20
    assert run(tmp_path, (B, A, 1.0)) == ["ping_pong"]


def test_many_at_once_are_no_way_past_it(tmp_path: Path) -> None:
    async def story() -> list[str]:
        async with engine(tmp_path) as made:
            return await asyncio.gather(*(send(made, *((A, B) if n % 2 else (B, A))) for n in range(50)))

    assert sorted(asyncio.run(story())) == [""] * 20 + ["ping_pong"] * 30


@pytest.mark.requirement("DE-50", "MC-05")
def test_what_is_refused_spends_no_hop_and_says_what_to_do(tmp_path: Path) -> None:
    async def story() -> Refusal:
        async with engine(tmp_path) as made:
            for _ in range(2):
                await send(made, A, B, Pace(2, 60.0), conversation="conv_x")
            with pytest.raises(Refusal) as caught:
                last = between(B, A, conversation="conv_x", created=NOW + 15.5)
                await made.book.add_request(last, "text", lambda _: {}, pace=Pace(2, 60.0))
            assert made.store.conversation("conv_x") == (2, 1000)
            assert len(made.store.open_deliveries()) == 2
            return caught.value

    error = asyncio.run(story())
    assert error.code == "ping_pong"
    assert str(error) == (
        "codex session b and claude session a have sent each other 2 requests within 60 s, which is as many as they may"
    )
    assert "may go in 45 s" in error.next_step
    assert error.retry_safe


def test_what_ended_counts_and_what_answers_does_not(tmp_path: Path) -> None:
    async def story() -> list[str]:
        async with engine(tmp_path) as made:
            pace = Pace(2, 60.0)
            one = await made.book.add_request(between(A, B), "text", lambda _: {})
            await made.book.apply(one, Event.WITHDRAW)
            answer = between(B, A, kind=Kind.REPLY, parent=one.id)
            await made.store.write(lambda transaction: transaction.add_delivery(answer, "text"))
            return [await send(made, A, B, pace), await send(made, B, A, pace)]

    assert asyncio.run(story()) == ["", "ping_pong"]


def test_whoever_is_not_known_is_no_pair(tmp_path: Path) -> None:
    """Neither the many that nobody knows, nor the many conversations that one caller opens; until they have an id."""

    async def story() -> None:
        async with engine(tmp_path) as made:
            pace = Pace(1, 60.0)
            for _ in range(3):
                assert await send(made, ("", ""), B, pace) == ""
                assert await send(made, ("codex", ""), A, pace) == ""
                assert await send(made, A, ("codex", ""), pace) == ""
            opened = await made.book.add_request(between(A, ("codex", ""), instance="1@1"), "text", lambda _: {})
            going = await made.book.apply(opened, Event.HAND_OVER)
            assert await send(made, B, A, pace, conversation="conv_1") == ""
            await made.book.apply(replace(going, state=State.DELIVERING), Event.TAKEN, session="b2")
            assert await send(made, ("codex", "b2"), A, pace) == "ping_pong"

    asyncio.run(story())


def test_half_a_character_in_an_id_stops_nobody(tmp_path: Path) -> None:
    assert run(tmp_path, (("codex", "\ud800"), B, 0.0), (("codex", "\ud800"), B, 1.0)) == ["", ""]


@pytest.mark.parametrize("set_back", [-3600.0, -130.0])
def test_a_clock_that_is_set_back_locks_nobody_out(tmp_path: Path, set_back: float) -> None:
    assert run(tmp_path, *[(A, B, 0.0)] * 20, (A, B, set_back)) == [""] * 21


STEPS = st.lists(
    st.tuples(st.sampled_from([(A, B), (B, A), (A, C), (C, A), (B, ("codex", "b2"))]), st.floats(0.0, 40.0)), max_size=40
)


@settings(max_examples=40, deadline=None)
@given(steps=STEPS, most=st.integers(1, 6), window=st.floats(0.0, 100.0))
def test_no_more_than_so_many_within_so_long_for_any_pair(
    steps: Sequence[tuple[tuple[Session, Session], float]], most: int, window: float
) -> None:
    at, sends = 0.0, []
    for (sender, target), pause in steps:
        at += pause
        sends.append((sender, target, at))
    with tempfile.TemporaryDirectory() as path:
        told = run(Path(path), *sends, pace=Pace(most, window))
    accepted: dict[frozenset[Session], list[float]] = {}
    for (sender, target, moment), code in zip(sends, told, strict=True):
        before = accepted.setdefault(frozenset((sender, target)), [])
        recent = [earlier for earlier in before if NOW + earlier > NOW + moment - window]
        assert code == ("ping_pong" if len(recent) >= most else "")
        if not code:
            before.append(moment)


def test_it_is_cheap_however_many_there_were(tmp_path: Path) -> None:
    """An index leads to those that count: what is looked at does not grow with what is remembered."""

    async def story() -> list[str]:
        async with engine(tmp_path) as made:
            plans: list[str] = []

            def look(transaction: Any) -> None:
                connection = transaction._connection
                connection.set_trace_callback(plans.append)
                transaction.requests_between(A, B, 0.0, wall_clock(), 20)
                connection.set_trace_callback(None)
                query = next(line for line in plans if "deliveries_between" in line)
                plans[:] = [str(row[-1]) for row in connection.execute(f"EXPLAIN QUERY PLAN {query}")]

            await made.store.write(look)
            return plans

    (plan,) = asyncio.run(story())
    assert plan.startswith("SEARCH deliveries USING INDEX deliveries_between (agent=? AND session=? AND <expr>=? AND <expr>=?")
