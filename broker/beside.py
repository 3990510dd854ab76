"""Work on long texts, beside the event loop: it must not stand still for a message of a megabyte (EN-25).

Owns the processes in which that work is done: one a piece of work, a few at a time, bounded in time; the program is
`worker`. A thread would not do: folding, translating or searching a text is one step of the interpreter, and no other
thread runs before it is done (0.2 s for a million characters, measured).
"""

from __future__ import annotations

import asyncio
import logging
import os
import pickle
import sys
from collections.abc import Callable
from functools import partial
from typing import ParamSpec, TypeVar
from weakref import WeakKeyDictionary

log = logging.getLogger("broker.beside")

T = TypeVar("T")
P = ParamSpec("P")

_LONG = 1 << 16
"""Characters from which on work on a text takes longer than the loop may wait for it."""

_AT_ONCE = 2
_PATIENCE = 60.0
_PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "worker.py")

_places: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()


async def beside_the_loop(size: int, work: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
    """The result of ``work``, a function of a module's, from another process when ``size`` characters make it long.

    Raises:
        asyncio.TimeoutError: it takes for ever.
    """
    if size < _LONG:
        return work(*arguments, **named)
    places = _places.setdefault(asyncio.get_running_loop(), asyncio.Semaphore(_AT_ONCE))
    called = partial(work, *arguments, **named)
    async with places:
        output = await _output(pickle.dumps(called))
    if output is None:  # no process can be had: late is better than never
        return await asyncio.get_running_loop().run_in_executor(None, called)
    result: T = pickle.loads(output)
    return result


async def _output(data: bytes) -> bytes | None:
    """What the worker makes of ``data``; None when there is none, or it fails."""
    try:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", _PROGRAM),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
    except OSError as error:
        log.warning("no process for a long text: %s", error.strerror)
        return None
    try:
        output, _ = await asyncio.wait_for(process.communicate(data), _PATIENCE)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode != 0:
        log.warning("a process for a long text ended with %s", process.returncode)
        return None
    return output
