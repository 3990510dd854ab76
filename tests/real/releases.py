"""Which of an agent's releases a test plays in every run, and which in a full one alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Sequence


def newest_first(names: Sequence[object]) -> list[Any]:
    """For `pytest.mark.parametrize`: the first of ``names``, or tuples of them, in every run, the others in a full one."""
    first, *others = names
    return [
        first,
        *(pytest.param(*(other if isinstance(other, tuple) else (other,)), marks=pytest.mark.full) for other in others),
    ]


def every(versions: Sequence[str]) -> pytest.MarkDecorator:
    """A test of each release of one agent, the newest one first."""
    return pytest.mark.parametrize("version", newest_first(versions))
