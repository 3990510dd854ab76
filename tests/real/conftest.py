"""Fixtures of the tests with real agents."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.real.exchange import World
from tests.real.host.scene import Scene, set_up
from tests.real.started import StartingWorld
from tests.real.terminals import TerminalWorld

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytest.register_assert_rewrite("tests.real.stories")


@pytest.fixture
def world(tmp_path: Path, home: Path) -> Iterator[World]:
    """An empty world with a state directory of its own; a test that fails shows the logs of broker and shims."""
    made = World(tmp_path, home)
    try:
        yield made
    finally:
        made.close()
        for log in sorted((home / "logs").glob("*.log")):
            print(f"--- {log.name}", log.read_text(encoding="utf-8"), sep="\n")


@pytest.fixture
def starting(tmp_path: Path, home: Path) -> Iterator[StartingWorld]:
    """A world in which turns are started, with the newest release of each agent."""
    with StartingWorld(tmp_path, home) as made:
        yield made


@pytest.fixture
def terminals(tmp_path: Path, home: Path) -> Iterator[TerminalWorld]:
    """A world in which the person sits at terminals."""
    with TerminalWorld(tmp_path, home) as made:
        yield made


@pytest.fixture
def scene(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Scene]:
    """A real agent host with a window and a new chat in it, recorded under the test's name."""
    with set_up(tmp_path, request.node.name.removeprefix("test_")) as made:
        yield made
