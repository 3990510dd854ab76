"""Which processes hold which of Grok Build's sessions, as far as Grok itself tells.

Owns what the entries of ``<store>/active_sessions.json`` are worth; never writes there. Only the terminal interface registers,
and an entry stays behind after a kill; ``grok agent stdio`` never does (1.0.41; protocols: grok.md, section 3). Panels are known
by their shims' records alone.

A leader (``grok agent leader``) serves the sessions of its clients and registers none of them: no file tells which. It writes
the records of each that it opens, so that it may hold whatever was written since it began, and nothing else. Who is about to
write into a session takes it for a holder of that; nobody else is told of it, for it is no more than possible.
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterable, Mapping

from broker.processes import ProcessId, all_pids, argv, executable, had_begun, identify, variables
from shims.grok import summary
from shims.shelf import Hold

PROGRAM = re.compile(r"/grok(-native|-\d[^/]*)?$")

_LONGEST_REGISTRY = 1 << 20
_VARIABLE = "GROK_HOME"
_WRITTEN = ("summary.json", "updates.jsonl")


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
    """Every living process that has registered for ``session``, and the leaders that may hold it."""
    try:
        with open(os.path.join(store, "active_sessions.json"), "rb") as file:
            holds = summary.holds_of(file.read(_LONGEST_REGISTRY))
    except OSError:
        holds = ()
    registered = holding(hold for hold in holds if hold.session == session).get(session, ())
    written = _last_written(store, session)
    leading = leaders(store) if written else []
    return [*registered, *(leader for leader in leading if had_begun(leader, written))]


def _last_written(store: str, session: str) -> float:
    """When the records of a session were written last; 0 where there are none. Opening a session writes its summary (1.0.41)."""
    folders = glob.glob(os.path.join(glob.escape(store), "sessions", "*", glob.escape(session)))
    written = [0.0]
    for folder in folders:
        for name in _WRITTEN:
            try:
                written.append(os.stat(os.path.join(folder, name)).st_mtime)
            except OSError:
                continue
    return max(written)


def leaders(place: str) -> list[ProcessId]:
    """The leaders whose data directory is ``place``; their sockets may be anywhere, so that all processes are looked at."""
    found = []
    for pid in all_pids():
        process = _grok(pid)
        if process is not None and leads(argv(pid)):
            environment = variables(pid, ("HOME", _VARIABLE))
            if environment is None or os.path.realpath(store(environment)) == os.path.realpath(place):
                found.append(process)
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
