"""The processes of a started turn that are not in its group any more: agents give their tools sessions of their own (EN-16).

Owns finding them, while their parents are there to tell, and ending them; by identity, for a pid may be somebody else's by then.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable

from broker.processes import ProcessId, identify


def below(pid: int) -> list[ProcessId]:
    """Everything that descends from ``pid`` at this moment."""
    import psutil  # it takes a moment, and most turns end by themselves

    try:
        children = psutil.Process(pid).children(recursive=True)
    except psutil.Error:
        return []
    found = (identify(child.pid) for child in children)
    return [process for process in found if process is not None]


def kill(processes: Iterable[ProcessId]) -> None:
    for process in processes:
        if process.alive():
            try:
                os.kill(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
