"""What is watched for after the end of a request, and that no clock ends all watches at once or keeps one for ever."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.deliveries import Attempt, Delivery, Event
from broker.settings import late_watch_of
from broker.watches import RECOVERY, LateWatch, watch_after
from tests.unit.engine import delivery

ATTEMPT = Attempt("att_1", "dlv_1", "1@1", "", "/store", "s1", 1)
THREE_HOURS = 3 * 3600.0
GRACE = 300.0
seconds = st.floats(0, 1e7)


def left_by(
    event: Event, *, confirmed: bool = False, code: str = "", attempt: Attempt | None = ATTEMPT, **fields: object
) -> LateWatch | None:
    request: Delivery = delivery(**fields)
    return watch_after(request, event, attempt, confirmed=confirmed, code=code, reason="for a reason", wall=1e9, boot=50.0)


@pytest.mark.requirement("DE-43")
def test_an_interim_answer_is_watched_for_as_long_as_the_caller_says() -> None:
    watch = left_by(Event.ANSWERED)
    assert watch is not None
    assert (watch.place, watch.token, watch.key) == (("claude", "/store", "s1"), delivery().token, "k1")
    assert (watch.begun, watch.lasts, watch.deadline) == (1e9, THREE_HOURS, 50 + THREE_HOURS)
    assert not watch.is_recovering(50.0)
    short = left_by(Event.ANSWERED, settings={"CROSS_AGENT_LATE_ANSWER_WATCH": "60"})
    assert short is not None and short.lasts == 60.0


@pytest.mark.requirement("DE-43", "DE-10")
@pytest.mark.parametrize(
    "left",
    [
        left_by(Event.ANSWERED, confirmed=True),
        left_by(Event.ANSWERED, raw=True),
        left_by(Event.UNPROVEN, raw=True, code="uncertain"),
        left_by(Event.ANSWERED, settings={"CROSS_AGENT_LATE_ANSWER_WATCH": "0"}),
        left_by(Event.REFUSED, attempt=None),
        left_by(Event.EXPIRED, code="peer_busy"),
        left_by(Event.UNPROVEN, code="uncertain", session="", attempt=replace(ATTEMPT, session="")),
    ],
    ids=["confirmed", "raw", "raw and broken", "off", "never handed over", "taken back", "no session"],
)
def test_nothing_is_left_to_watch_for(left: LateWatch | None) -> None:
    assert left is None


@pytest.mark.requirement("DE-34")
@pytest.mark.parametrize(("event", "code"), [(Event.UNPROVEN, "uncertain"), (Event.ENDED, "interrupted")])
def test_after_a_broken_transport_an_answer_counts_as_recovered_for_a_quarter_of_an_hour(event: Event, code: str) -> None:
    watch = left_by(event, code=code, settings={"CROSS_AGENT_LATE_ANSWER_WATCH": "0"})
    assert watch is not None
    assert (watch.lasts, watch.failure) == (RECOVERY, "for a reason")
    longer = left_by(event, code=code)
    assert longer is not None and longer.lasts == THREE_HOURS
    assert longer.is_recovering(50 + RECOVERY - 1)
    assert not longer.is_recovering(50 + RECOVERY + 1)


@pytest.mark.requirement("DE-34")
def test_a_turn_that_a_person_stopped_is_no_broken_transport() -> None:
    watch = left_by(Event.ENDED, code="no_answer")
    assert watch is not None and not watch.is_recovering(50.0)


@pytest.mark.parametrize(
    ("asked", "holds"), [("", 10800), ("0", 0), ("-5", 0), ("12.5", 12.5), ("soon", 10800), ("inf", 10800), ("nan", 10800)]
)
@pytest.mark.requirement("DE-43")
def test_the_setting(asked: str, holds: float) -> None:
    assert late_watch_of({"CROSS_AGENT_LATE_ANSWER_WATCH": asked}) == holds
    assert late_watch_of({}) == 10800


@pytest.mark.requirement("DE-43")
@given(lasts=st.floats(1, 1e6), jump=st.floats(-1e10, 1e10), boot=seconds)
def test_a_boot_neither_ends_a_watch_at_once_nor_makes_it_longer(lasts: float, jump: float, boot: float) -> None:
    watch = LateWatch("dlv_1", "claude", "/s", "s1", "t", "k", begun=1e9, lasts=lasts, deadline=5 + lasts)
    left = watch.after_boot(1e9 + jump, boot).left(boot)
    assert min(GRACE, lasts) - 1e-3 <= left <= lasts + 1e-3
    if GRACE <= lasts - jump <= lasts:
        assert left == pytest.approx(lasts - jump, abs=1e-3)


@pytest.mark.requirement("DE-43")
@given(lasts=st.floats(1, 1e6), slept=seconds)
def test_a_night_leaves_a_watch_a_moment(lasts: float, slept: float) -> None:
    watch = LateWatch("dlv_1", "claude", "/s", "s1", "t", "k", begun=1e9, lasts=lasts, deadline=5 + lasts)
    woken = watch.after_sleep(5 + slept)
    assert woken.left(5 + slept) == pytest.approx(max(lasts - slept, min(GRACE, lasts)), abs=1e-3)
