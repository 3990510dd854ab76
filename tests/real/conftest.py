"""Fixtures of the tests with real agents."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.real.exchange import World

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def world(tmp_path: Path, home: Path) -> Iterator[World]:
    """An empty world with a state directory of its own."""
    made = World(tmp_path, home)
    try:
        yield made
    finally:
        made.close()
