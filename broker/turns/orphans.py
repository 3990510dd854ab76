"""Ending an agent whose runner died, with everything that it has started (crash table, row 12). In the broker."""

from __future__ import annotations

import asyncio
import os
import signal

from broker.holders import gone
from broker.processes import ProcessId, identify
from broker.turns.group import below, kill

_MERCY = 10.0
"""Seconds that it gets after it was interrupted."""

_AFTER_KILL = 5.0


async def end_group(leader: ProcessId, interrupt: int) -> None:
    """Ends the agent's whole group; what it has written until then is in its records."""
    descendants = await asyncio.to_thread(below, leader.pid) if leader.alive() else []
    await _end(leader, interrupt)
    await asyncio.to_thread(kill, descendants)


async def _end(leader: ProcessId, interrupt: int) -> None:
    for number, seconds in ((interrupt, _MERCY), (signal.SIGKILL, _AFTER_KILL)):
        if not leader.alive():
            break
        _signal_group(leader, number)
        if await gone(leader, asyncio.get_running_loop().time() + seconds):
            break
    if identify(leader.pid) is None:  # a group that has members left keeps its leader's pid from being used again
        _signal_group(leader, signal.SIGKILL)


def _signal_group(leader: ProcessId, number: int) -> None:
    try:
        os.killpg(leader.pid, number)
    except (ProcessLookupError, PermissionError):
        pass  # nobody is left
