"""Stories of attempts: each is handed over at most once, and each stage told until it is heard."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.wire import StageName
from shims.ledger import OPEN, TRANSITIONS, AttemptState, Ledger

WRITTEN, TAKEN, FINISHED = StageName.WRITTEN, StageName.TAKEN, StageName.FINISHED
REJECTED, LOST, NEVER = StageName.REJECTED, StageName.LOST, StageName.NEVER


def _accepted(attempt: str = "a") -> Ledger:
    ledger = Ledger()
    assert ledger.accept(attempt)
    return ledger


def _stages(ledger: Ledger) -> list[StageName]:
    return [report.stage for report in ledger.take_unsent()]


@pytest.mark.requirement("SH-30")
def test_the_whole_way() -> None:
    ledger = _accepted()
    assert ledger.report("a", WRITTEN)
    assert ledger.report("a", TAKEN, session="s", turn="t")
    assert ledger.report("a", FINISHED, status="completed", text="answer")
    assert ledger.state("a") is AttemptState.FINISHED
    assert ledger.open_attempts() == []
    assert _stages(ledger) == [WRITTEN, TAKEN, FINISHED]
    assert _stages(ledger) == [], "each is sent once"


@pytest.mark.requirement("SH-30")
def test_the_echo_may_come_before_the_pump_says_that_it_wrote() -> None:
    ledger = _accepted()
    assert ledger.report("a", TAKEN)
    assert not ledger.report("a", WRITTEN)
    assert _stages(ledger) == [TAKEN]


@pytest.mark.requirement("SH-30")
@pytest.mark.parametrize("doubled", [WRITTEN, TAKEN, FINISHED])
def test_a_stage_is_told_once(doubled: StageName) -> None:
    ledger = _accepted()
    for stage in (WRITTEN, TAKEN, FINISHED):
        ledger.report("a", stage)
        if stage is doubled:
            assert not ledger.report("a", stage)
    assert _stages(ledger) == [WRITTEN, TAKEN, FINISHED]


@pytest.mark.requirement("SH-32")
def test_an_order_is_taken_once() -> None:
    ledger = _accepted()
    assert not ledger.accept("a")
    ledger.report("a", REJECTED, code="busy")
    assert not ledger.accept("a"), "rejected is an end as well"


@pytest.mark.requirement("SH-32")
def test_asked_about_one_it_never_saw_it_refuses_that_one_for_ever() -> None:
    ledger = Ledger()
    ledger.ask("a")
    assert _stages(ledger) == [NEVER]
    assert not ledger.accept("a")
    assert not ledger.report("a", WRITTEN)
    ledger.ask("a")
    assert _stages(ledger) == [NEVER]


@pytest.mark.requirement("SH-30", "SH-32")
def test_asked_about_one_it_knows_it_tells_all_stages_again_in_order() -> None:
    ledger = _accepted()
    ledger.report("a", WRITTEN)
    for report in ledger.take_unsent():
        ledger.seen(report.number)
    ledger.report("a", TAKEN)
    ledger.ask("a")
    assert _stages(ledger) == [WRITTEN, TAKEN]
    assert [report.stage for report in ledger.unacknowledged()] == [WRITTEN, TAKEN]


@pytest.mark.requirement("SH-30")
def test_an_answer_is_kept_until_a_broker_has_it_and_no_longer() -> None:
    ledger = _accepted()
    ledger.report("a", TAKEN, session="s")
    ledger.report("a", FINISHED, status="completed", text="answer")
    _, told = ledger.take_unsent()
    ledger.ask("a")
    assert [report.text for report in ledger.take_unsent()] == [None, "answer"], "nobody has said to have it"
    ledger.seen(told.number)
    assert "answer" not in [report.text for reports in ledger._told.values() for report in reports]
    ledger.ask("a")
    taken, finished = ledger.take_unsent()
    assert (taken.stage, taken.session) == (TAKEN, "s")
    assert finished == told._replace(text=None)


@pytest.mark.requirement("SH-30")
def test_an_answer_that_is_heard_when_its_attempt_is_forgotten_leaves_nothing() -> None:
    ledger = _accepted()
    ledger.report("a", TAKEN)
    ledger.report("a", FINISHED, status="completed", text="answer")
    (*_, told) = ledger.take_unsent()
    for number in range(2001):
        ledger.accept(f"a{number}")
    assert ledger.state("a") is None
    ledger.seen(told.number)
    assert "a" not in ledger._told


@pytest.mark.requirement("SH-30")
def test_stages_survive_until_they_are_seen() -> None:
    ledger = _accepted()
    ledger.report("a", WRITTEN)
    ledger.report("a", TAKEN)
    first, second = ledger.take_unsent()
    ledger.seen(first.number)
    assert not ledger.settled()
    assert ledger.unacknowledged() == (second,), "what a new broker is told"
    ledger.seen(second.number)
    ledger.seen(second.number)
    assert ledger.settled()
    assert ledger.unacknowledged() == ()


def test_what_a_registration_tells_is_not_sent_a_second_time() -> None:
    ledger = _accepted()
    ledger.report("a", WRITTEN)
    assert len(ledger.unacknowledged()) == 1
    assert _stages(ledger) == []


def test_a_stage_that_is_not_told_any_more_is_not_sent() -> None:
    ledger = _accepted()
    ledger.report("a", WRITTEN)
    ledger.seen(1)
    assert _stages(ledger) == []


@pytest.mark.parametrize("stage", list(StageName))
@pytest.mark.parametrize("state", list(AttemptState))
def test_only_the_steps_of_the_table_are_steps(state: AttemptState, stage: StageName) -> None:
    ledger = _accepted()
    ledger._states["a"] = state
    assert ledger.report("a", stage) == ((state, stage) in TRANSITIONS)
    assert ledger.state("a") is TRANSITIONS.get((state, stage), state)


def test_an_unknown_attempt_has_no_stages() -> None:
    ledger = Ledger()
    assert not ledger.report("a", WRITTEN)
    assert ledger.state("a") is None


def test_old_ends_are_forgotten_and_open_ones_never() -> None:
    ledger = _accepted("open")
    for number in range(2100):
        ledger.accept(f"a{number}")
        ledger.report(f"a{number}", REJECTED)
    assert len(ledger.attempts()) <= 2001
    assert ledger.state("open") is AttemptState.ACCEPTED
    assert not ledger.accept("open")


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from([*StageName, "accept", "ask", "seen", "take"])), max_size=40))
@pytest.mark.requirement("SH-30", "SH-32")
def test_whatever_happens_each_stage_of_an_attempt_has_one_number(steps: list[tuple[str, object]]) -> None:
    ledger = Ledger()
    told: dict[tuple[str, StageName], set[int]] = {}
    for attempt, step in steps:
        if step == "accept":
            ledger.accept(attempt)
        elif step == "ask":
            ledger.ask(attempt)
        elif step == "seen":
            for report in ledger.unacknowledged()[:1]:
                ledger.seen(report.number)
        elif step == "take":
            numbers = [report.number for report in ledger.take_unsent()]
            assert numbers == sorted(numbers)
        elif isinstance(step, StageName):
            ledger.report(attempt, step)
        for report in ledger.unacknowledged():
            told.setdefault((report.attempt, report.stage), set()).add(report.number)
    assert all(len(numbers) == 1 for numbers in told.values())
    ends = {FINISHED, REJECTED, LOST, NEVER}
    for attempt in "abc":
        assert len({stage for name, stage in told if name == attempt} & ends) <= 1
        assert (ledger.state(attempt) in OPEN) == (attempt in ledger.open_attempts())
