"""The debug mode that notes a loop standing still."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time

import pytest

from broker.gaps import LONGEST, Gaps

pytestmark = [pytest.mark.requirement("EN-25"), pytest.mark.alone]


def test_a_loop_that_stands_still_is_noted_and_one_that_runs_is_not(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        gaps = Gaps()
        await asyncio.sleep(0.1)
        assert caplog.records == []
        time.sleep(LONGEST * 3)  # noqa: ASYNC251 - what must never happen
        await asyncio.sleep(0.05)
        gaps.close()

    with caplog.at_level(logging.WARNING, "broker.gaps"):
        asyncio.run(story())
    (record,) = caplog.records
    assert "stood still" in record.message


@pytest.mark.parametrize("call", range(3, 7))
@pytest.mark.parametrize("first", [True, False], ids=["before the look", "after it"])
def test_want_of_a_processor_in_the_middle_of_a_beat_is_nobodys_fault(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, call: int, first: bool
) -> None:
    """The kernel lets us wait between our looking at the time and at what it says of waiting, either way round."""
    thread = str(threading.get_native_id())
    waited, calls = 0.0, 0

    def look(_: Gaps) -> dict[str, float]:
        nonlocal waited, calls
        calls += 1
        found = waited
        if calls == call:
            time.sleep(LONGEST * 2)
            waited += LONGEST * 2
        return {thread: waited if first else found}

    async def story() -> None:
        gaps = Gaps()
        await asyncio.sleep(LONGEST * 5)
        gaps.close()

    monkeypatch.setattr(Gaps, "_processor_waited", look)
    with caplog.at_level(logging.WARNING, "broker.gaps"):
        asyncio.run(story())
    assert calls > call
    assert caplog.records == []


def test_a_thread_that_ends_meanwhile_hides_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "listdir", lambda _: ["0", str(threading.get_native_id())])

    async def story() -> None:
        gaps = Gaps()
        assert gaps._processor_waited().keys() == {str(threading.get_native_id())}
        gaps.close()

    asyncio.run(story())
