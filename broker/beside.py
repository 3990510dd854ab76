"""Work on long texts, beside the event loop: it must not stand still for a message of a megabyte (EN-25)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import ParamSpec, TypeVar

T = TypeVar("T")
P = ParamSpec("P")

_LONG = 1 << 16
"""Characters from which on composing a text takes longer than handing it to a thread."""


async def beside_the_loop(size: int, work: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
    """The result of ``work``, from a thread when ``size`` characters make it long."""
    if size < _LONG:
        return work(*arguments, **named)
    return await asyncio.get_running_loop().run_in_executor(None, lambda: work(*arguments, **named))
