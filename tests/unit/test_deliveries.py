"""Stories of deliveries: what happens to a message, in which order, and what can't happen."""

from __future__ import annotations

import asyncio
import re
import sqlite3
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker import failpoints
from broker.book import Book
from broker.deliveries import (
    EVIDENCE_ORDER,
    STATES,
    TRANSITIONS,
    Attempt,
    Event,
    Evidence,
    IllegalStepError,
    State,
    new_conversation_id,
    new_delivery_id,
    new_token,
    step,
)
from broker.store import Store
from tests.unit.engine import delivery, engine

QUEUED, DELIVERING, AWAITING, DELIVERED = State.QUEUED, State.DELIVERING, State.AWAITING, State.DELIVERED
FAILED, UNCERTAIN, WITHDRAWN = State.FAILED, State.UNCERTAIN, State.WITHDRAWN
TERMINAL = {DELIVERED, FAILED, UNCERTAIN, WITHDRAWN}

STORIES = {
    "asked and answered": [(Event.HAND_OVER, DELIVERING), (Event.TAKEN, AWAITING), (Event.ANSWERED, DELIVERED)],
    "a reply is not awaited": [(Event.HAND_OVER, DELIVERING), (Event.SETTLED, DELIVERED)],
    "busy at first": [(Event.HAND_OVER, DELIVERING), (Event.BUSY, QUEUED), (Event.HAND_OVER, DELIVERING)],
    "never arrived, sent again": [(Event.HAND_OVER, DELIVERING), (Event.NEVER, QUEUED), (Event.HAND_OVER, DELIVERING)],
    "nobody to hand it to": [(Event.REFUSED, FAILED)],
    "refused by the panel": [(Event.HAND_OVER, DELIVERING), (Event.REFUSED, FAILED)],
    "too late in the queue": [(Event.EXPIRED, FAILED)],
    "too late in the agent's queue": [(Event.HAND_OVER, DELIVERING), (Event.TAKEN, AWAITING), (Event.EXPIRED, FAILED)],
    "too late on the way": [(Event.HAND_OVER, DELIVERING), (Event.EXPIRED, FAILED)],
    "a turn without an answer": [(Event.HAND_OVER, DELIVERING), (Event.TAKEN, AWAITING), (Event.ENDED, FAILED)],
    "died on the way, no evidence": [(Event.HAND_OVER, DELIVERING), (Event.UNPROVEN, UNCERTAIN)],
    "died in its turn, no evidence": [(Event.HAND_OVER, DELIVERING), (Event.TAKEN, AWAITING), (Event.UNPROVEN, UNCERTAIN)],
    "taken back": [(Event.WITHDRAW, WITHDRAWN)],
    "taken back on the way": [(Event.HAND_OVER, DELIVERING), (Event.WITHDRAW, WITHDRAWN)],
    "taken back out of the agent's queue": [
        (Event.HAND_OVER, DELIVERING), (Event.TAKEN, AWAITING), (Event.WITHDRAW, WITHDRAWN),
    ],
}  # fmt: skip


@pytest.mark.requirement("DE-20")
@pytest.mark.parametrize("story", STORIES.values(), ids=STORIES)
def test_a_story(story: list[tuple[Event, State]]) -> None:
    state = QUEUED
    for event, expected in story:
        state = step(state, event)
        assert state is expected


@pytest.mark.requirement("DE-20")
def test_the_stories_tell_the_whole_table_and_nothing_else() -> None:
    told = set()
    for story in STORIES.values():
        state = QUEUED
        for event, after in story:
            told.add((state, event, after))
            state = after
    assert told == {(before, event, after) for (before, event), after in TRANSITIONS.items()}


@pytest.mark.requirement("DE-20")
@pytest.mark.parametrize(("state", "event"), [pair for pair in product(State, Event) if pair not in TRANSITIONS])
def test_what_the_table_does_not_know_happens_to_nobody(state: State, event: Event) -> None:
    with pytest.raises(IllegalStepError, match=f"{event.value} in state {state.value}") as caught:
        step(state, event)
    assert (caught.value.state, caught.value.event) == (state, event)


@pytest.mark.requirement("DE-20")
def test_every_state_has_a_meaning_and_only_the_ends_are_terminal() -> None:
    assert STATES.keys() == set(State)
    assert {state for state, meaning in STATES.items() if meaning.terminal} == TERMINAL
    assert {state for state, _ in TRANSITIONS} == set(State) - TERMINAL


@pytest.mark.requirement("DE-20")
def test_every_state_is_reached_and_every_event_leads_somewhere() -> None:
    assert set(TRANSITIONS.values()) == set(State)  # QUEUED by being sent back as well
    assert {event for _, event in TRANSITIONS} == set(Event)


@pytest.mark.requirement("DE-20")
def test_every_event_has_its_fail_points() -> None:
    assert set(failpoints.EVENTS) == {event.value for event in Event}


@pytest.mark.requirement("DE-20")
def test_the_words_are_those_of_the_receipt() -> None:
    words = ["queued", "delivering", "awaiting-peer", "delivered", "failed", "uncertain", "withdrawn"]
    assert [state.value for state in State] == words


@pytest.mark.requirement("DE-22")
@given(st.lists(st.sampled_from(Event)))
def test_whatever_comes_it_is_in_one_agents_hands_at_a_time(events: list[Event]) -> None:
    """A second hand-over only after proof that the first one is in nobody's hands; an end is the end."""
    state, in_hands = QUEUED, False
    for event in events:
        try:
            after = step(state, event)
        except IllegalStepError:
            continue
        assert state not in TERMINAL
        if event is Event.HAND_OVER:
            assert not in_hands
            in_hands = True
        elif event in (Event.BUSY, Event.NEVER):
            in_hands = False
        assert not (state is AWAITING and after is QUEUED), "what was taken is never handed over again"
        state = after


@pytest.mark.requirement("DE-20", "DE-31")
@pytest.mark.parametrize(
    ("state", "handed_over", "safe"),
    [
        (QUEUED, False, False),
        (DELIVERING, False, False),
        (AWAITING, True, False),
        (DELIVERED, True, False),
        (FAILED, False, True),
        (FAILED, True, False),
        (UNCERTAIN, False, False),
        (UNCERTAIN, True, False),
        (WITHDRAWN, False, True),
    ],
)
def test_sending_again_is_safe_only_when_nothing_can_run_twice(state: State, handed_over: bool, safe: bool) -> None:
    made = delivery(state=state, handed_over=handed_over)
    assert made.safe_to_resend is safe
    assert made.open is (state not in TERMINAL)


@pytest.mark.requirement("DE-04")
def test_one_queue_for_a_session_and_one_for_a_conversation_to_come() -> None:
    assert delivery(session="s", instance="1@1").target == delivery(session="s", instance="2@2").target
    assert delivery(session="", instance="1@1").target != delivery(session="", instance="2@2").target
    assert delivery(session="s").target != delivery(session="s", agent="codex").target


@pytest.mark.requirement("DE-10")
def test_ids_have_their_form_and_do_not_repeat() -> None:
    for make, form in (
        (new_delivery_id, r"dlv_[0-9a-f]{12}"),
        (new_conversation_id, r"conv_[0-9a-f]{12}"),
        (lambda: new_token(1_700_000_000.5), r"req_1700000000500_[0-9a-f]{6}"),
    ):
        made = {make() for _ in range(50)}
        assert len(made) == 50
        for identifier in made:
            assert re.fullmatch(form, identifier)


# evidence


def attempt(**fields: Any) -> Attempt:
    return replace(Attempt("att_1", "dlv_1", "1@1", "", "/store", "s1", 1), **fields)


@pytest.mark.requirement("DE-22")
@given(st.lists(st.sampled_from(Evidence)))
def test_evidence_only_grows(facts: list[Evidence]) -> None:
    nothing: Any = None
    book = Book(nothing, nothing)
    made = attempt()
    for fact in facts:
        before = made.evidence
        made = book.advanced(made, fact)
        assert EVIDENCE_ORDER.index(made.evidence) == max(EVIDENCE_ORDER.index(before), EVIDENCE_ORDER.index(fact))


# durable before it is seen


class Witness:
    """A reader of the event stream that looks into the database by itself, as another process would."""

    def __init__(self, database: Path) -> None:
        self._database = database
        self.told: list[tuple[str, str]] = []

    def publish(self, kind: str, **facts: object) -> None:
        assert kind == "delivery"
        connection = sqlite3.connect(self._database)
        try:
            row = connection.execute("SELECT state FROM deliveries WHERE id = ?", (facts["delivery"],)).fetchone()
        finally:
            connection.close()
        self.told.append((str(facts["state"]), row[0] if row else "absent"))


@pytest.mark.requirement("DE-20")
def test_whoever_hears_of_a_change_finds_it_in_the_database(tmp_path: Path) -> None:
    async def story() -> None:
        store = Store(str(tmp_path / "d.sqlite"), lambda _: None)
        store.begin_generation()
        witness: Any = Witness(tmp_path / "d.sqlite")
        book = Book(store, witness)
        made = await book.add_request(delivery(), "text", lambda _: {})
        made = await book.apply(made, Event.HAND_OVER, attempt=attempt(delivery=made.id))
        made = await book.apply(made, Event.TAKEN, handed_over=True)
        await book.apply(made, Event.ANSWERED)
        assert witness.told == [(word, word) for word in ("queued", "delivering", "awaiting-peer", "delivered")]
        store.close()

    asyncio.run(story())


@pytest.mark.requirement("DE-20")
def test_a_fact_that_comes_too_late_changes_nothing(tmp_path: Path) -> None:
    async def story() -> None:
        async with engine(tmp_path) as made:
            queued = await made.queued()
            ended = await made.book.apply(queued, Event.WITHDRAW)
            with pytest.raises(IllegalStepError):
                await made.book.apply(ended, Event.TAKEN)
            with pytest.raises(LookupError):
                await made.book.apply(queued, Event.HAND_OVER, attempt=attempt(delivery=queued.id))  # from an older look
            assert made.store.delivery(queued.id) == ended
            assert made.store.attempts_of(queued.id) == []

    asyncio.run(story())


@pytest.mark.requirement("DE-20", "DE-04")
def test_a_new_broker_finds_what_is_under_way_in_order(tmp_path: Path) -> None:
    async def before() -> list[str]:
        async with engine(tmp_path) as made:
            queued = [await made.queued(session=session) for session in ("a", "b", "a")]
            await made.book.apply(queued[1], Event.HAND_OVER, attempt=attempt(delivery=queued[1].id, session="b"))
            await made.book.apply(queued[0], Event.WITHDRAW)
            return [one.id for one in queued]

    async def after(ids: list[str]) -> None:
        async with engine(tmp_path) as made:
            made.book.load()
            assert [(d.id, d.state) for d in made.book.deliveries()] == [(ids[1], DELIVERING), (ids[2], QUEUED)]
            assert made.book.open_attempt_of(ids[1]) == attempt(delivery=ids[1], session="b")
            assert [d.id for d in made.book.queue(("claude", "a", ""))] == [ids[2]]

    asyncio.run(after(asyncio.run(before())))
