"""Work on long texts never holds the loop up, and is done even where no process can be had."""

from __future__ import annotations

import asyncio
import logging
import sys
from pathlib import Path

import pytest

from broker import beside
from broker.beside import beside_the_loop
from broker.forgery import neutralised
from broker.gaps import Gaps

pytestmark = pytest.mark.requirement("EN-25")

LONG = 1_000_000


@pytest.mark.parametrize("letter", ["\U0001f600", "\u0301", "\u202e", "\ufb01"], ids=["emoji", "mark", "override", "ligature"])
def test_a_text_of_the_greatest_size_is_composed_while_the_loop_runs(letter: str, caplog: pytest.LogCaptureFixture) -> None:
    """One line: a thread would hold the interpreter for a fifth of a second."""

    async def story() -> str:
        gaps = Gaps()
        composed = await beside_the_loop(LONG, neutralised, "a" + letter * LONG)
        gaps.close()
        return composed

    with caplog.at_level(logging.WARNING):
        assert asyncio.run(story()) == "a" + letter * LONG
    assert caplog.records == []


def test_what_is_short_is_done_at_once() -> None:
    async def story() -> None:
        assert await beside_the_loop(10, lambda: 7) == 7

    asyncio.run(story())


def test_an_error_is_the_callers() -> None:
    async def story() -> None:
        with pytest.raises(ZeroDivisionError):
            await beside_the_loop(LONG, divmod, 1, 0)

    asyncio.run(story())


@pytest.mark.parametrize("program", ["no such program", sys.executable], ids=["not started", "failing"])
def test_without_a_process_it_is_done_all_the_same(program: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(beside, "_PROGRAM", "no such file")
    monkeypatch.setattr(sys, "executable", program)

    async def story() -> None:
        assert await beside_the_loop(LONG, str.upper, "a" * LONG) == "A" * LONG

    asyncio.run(story())


def test_work_that_takes_for_ever_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "hangs.py"
    program.write_text("import threading; threading.Event().wait()\n")
    monkeypatch.setattr(beside, "_PROGRAM", str(program))
    monkeypatch.setattr(beside, "_PATIENCE", 0.2)

    async def story() -> None:
        with pytest.raises(asyncio.TimeoutError):
            await beside_the_loop(LONG, str.upper, "a" * LONG)

    asyncio.run(story())
