"""Whether a shim may speak for a session it names (EN-05).

Owns the check against the agents' own registries and locks: a session that some living process holds is believed only of
the shim which that process descends from. Where nobody is recorded as its holder, the shim's word stands. Looks at files, so
it runs beside the loop; a claim counts for nothing until it is checked, and one that fails is checked again, since a
reloaded window resumes a session while its old process still ends.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from broker.panels import Panel, Panels
from broker.processes import ProcessId, ancestors, argv
from shims.agent import agent

log = logging.getLogger("broker.claims")

_AGAIN = (0.2, 0.5, 1.0, 2.0, 4.0, 8.0, *(15.0,) * 40)
"""Seconds between checks of a claim that failed, for ten minutes; then it is given up until the shim tells of a change."""


class Claims:
    """Checks what shims claim.

    Args:
        stores: the data directories of an agent that are in use, as far as is known.
        settled: told when a claim has been found true.
    """

    def __init__(self, panels: Panels, stores: Callable[[str], set[str]], settled: Callable[[Panel], None]) -> None:
        self._panels = panels
        self._stores = stores
        self._settled = settled
        self._tasks: dict[tuple[ProcessId, str], asyncio.Task[None]] = {}

    def check(self, panel: Panel) -> None:
        """Begins to check the sessions of ``panel`` that are claimed and not checked yet."""
        for state in panel.claimed:
            key = (panel.process, state.id)
            if state.id and state.id not in panel.proven and key not in self._tasks:
                task = asyncio.get_running_loop().create_task(self._check(panel.process, state.id))
                self._tasks[key] = task
                task.add_done_callback(lambda _, key=key: self._tasks.pop(key, None))  # type: ignore[misc]

    def close(self) -> None:
        for task in self._tasks.values():
            task.cancel()

    async def _check(self, shim: ProcessId, session: str) -> None:
        loop = asyncio.get_running_loop()
        for pause in (*_AGAIN, None):
            panel = self._panels.by_process(shim)  # it may have registered anew
            if panel is None:
                return
            stores = self._stores(panel.agent) | {panel.store}
            if await loop.run_in_executor(None, _is_free_or_its, panel.agent, stores, session, shim):
                panel = self._panels.by_process(shim)
                if panel is not None and self._panels.prove(panel, session):
                    self._settled(panel)
                return
            if pause is not None:
                await asyncio.sleep(pause)
        log.warning("%s claims a session that another process holds", shim)


def _is_free_or_its(name: str, stores: set[str], session: str, shim: ProcessId) -> bool:
    described = agent(name)
    holders = [holder for store in stores for holder in described.holders(store, session)]
    holders = [holder for holder in holders if not described.leads(argv(holder.pid))]  # the panel may be its client
    return not holders or any(shim in ancestors(holder.pid) for holder in holders)
