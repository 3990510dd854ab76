"""Which processes hold which of Grok Build's sessions.

Owns what the entries of ``<store>/active_sessions.json`` are worth, and the look at who has a session's ``events.jsonl`` open;
never writes there. Only the terminal interface registers, and an entry stays behind after a kill; ``grok agent stdio`` and a
leader never do. But whoever has a session open keeps that file open, from ``session/new`` or ``session/load`` until it is
closed: panels, turns on the command line, terminals, and the leader in place of those that are its clients (1.0.5, 1.0.41).
Panels with a shim are known by that as well.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping

from broker.processes import ProcessId, all_pids, executable, had_begun, identify, open_files
from shims.grok import summary
from shims.shelf import Hold

PROGRAM = re.compile(r"/grok(-native|-\d[^/]*)?$")

_LONGEST_REGISTRY = 1 << 20
_VARIABLE = "GROK_HOME"
_KEPT_OPEN = "events.jsonl"


def store(environment: Mapping[str, str]) -> str:
    """Grok's data directory as a process with ``environment`` sees it."""
    return environment.get(_VARIABLE) or os.path.join(environment.get("HOME") or os.path.expanduser("~"), ".grok")


def leads(arguments: list[str]) -> bool:
    """Whether these are the arguments of a leader."""
    return arguments[1:3] == ["agent", "leader"]


def holding(holds: Iterable[Hold]) -> dict[str, tuple[ProcessId, ...]]:
    """Which processes hold which session, of those that are registered: a pid may be another one's by now, also a Grok's."""
    seen: dict[int, ProcessId | None] = {}
    found: dict[str, tuple[ProcessId, ...]] = {}
    for hold in holds:
        if hold.pid not in seen:
            seen[hold.pid] = _grok(hold.pid)
        process = seen[hold.pid]
        if process is not None and had_begun(process, summary.moment(hold.evidence)):
            found[hold.session] = tuple(dict.fromkeys((*found.get(hold.session, ()), process)))
    return found


def holders(store: str, session: str) -> list[ProcessId]:
    """Every living process that has ``session`` open, and those that have registered for it."""
    try:
        with open(os.path.join(store, "active_sessions.json"), "rb") as file:
            holds = summary.holds_of(file.read(_LONGEST_REGISTRY))
    except OSError:
        holds = ()
    registered = holding(hold for hold in holds if hold.session == session).get(session, ())
    return list(dict.fromkeys((*opened(store).get(session, ()), *registered)))


def opened(store: str) -> dict[str, tuple[ProcessId, ...]]:
    """Which processes have which sessions open. All processes are looked at; elsewhere than on Linux, psutil tells."""
    place = os.path.join(os.path.realpath(store), "sessions", "")
    found: dict[str, tuple[ProcessId, ...]] = {}
    for pid in all_pids():
        process = _grok(pid)
        for path in open_files(pid) if process is not None else ():
            parts = path.removeprefix(place).split("/") if path.startswith(place) else ()
            if process is not None and len(parts) == 3 and parts[2] == _KEPT_OPEN:
                found[parts[1]] = tuple(dict.fromkeys((*found.get(parts[1], ()), process)))
    return found


def _grok(pid: int) -> ProcessId | None:
    """The Grok that has ``pid`` now."""
    try:
        os.getpgid(pid)  # a tenth of what `identify` costs where nobody has it, as is usual after a while
    except OSError:
        return None
    if not PROGRAM.search(executable(pid) or ""):
        return None
    return identify(pid)
