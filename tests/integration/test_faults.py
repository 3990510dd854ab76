"""What becomes of a call that the broker fails at: its caller is told at once, and nothing of its content is."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.cli.calls import call
from broker.errors import CrossAgentError, InternalError
from tests.integration.world import World


@pytest.fixture
def world(home: Path) -> Iterator[World]:
    built = World(home)
    try:
        yield built
    finally:
        built.close()


@pytest.mark.requirement("MC-05", "EN-24")
def test_a_command_that_the_broker_fails_at_is_answered_at_once(world: World) -> None:
    call(world.home, "status", start=True, patience=20)
    began = time.monotonic()
    with pytest.raises(CrossAgentError) as caught:
        call(world.home, "events", after="secret words")
    assert time.monotonic() - began < 5
    told, expected = caught.value, InternalError()
    assert told.as_result() == expected.as_result()
    assert (told.code, told.retry_safe) == ("internal_error", False)
    log = world.log()
    assert "events failed by ValueError" in log
    assert "ValueError at service.py:" in log, "where it failed"
    assert "secret words" not in log
    assert call(world.home, "status")["generation"] == 1, "the broker goes on"
