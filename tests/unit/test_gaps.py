"""The debug mode that notes a loop standing still."""

from __future__ import annotations

import asyncio
import logging
import time

import pytest

from broker.gaps import LONGEST, Gaps

pytestmark = pytest.mark.requirement("EN-25")


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
