"""Grok Build's registry of terminals: which process holds which session, as far as Grok itself tells.

Owns reading of ``<store>/active_sessions.json``; never writes there. Only the terminal interface registers, and an entry
stays behind after a kill; ``grok agent stdio`` never does (1.0.41; protocols: grok.md, section 3). Panels are known by
their shims' records alone.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping

from broker.processes import ProcessId, identify
from shims.jsonline import as_list, as_object


def store(environment: Mapping[str, str]) -> str:
    """Grok's data directory as a process with ``environment`` sees it."""
    return environment.get("GROK_HOME") or os.path.join(os.path.expanduser("~"), ".grok")


def holders(store: str, session: str) -> list[ProcessId]:
    """Every living process that has registered for ``session``."""
    try:
        with open(os.path.join(store, "active_sessions.json"), encoding="utf-8") as file:
            entries = [as_object(entry) for entry in as_list(json.load(file))]
    except (OSError, ValueError):
        return []
    pids = [entry.get("pid") for entry in entries if entry.get("session_id") == session]
    found = (identify(pid) for pid in pids if isinstance(pid, int))
    return [process for process in found if process is not None]
