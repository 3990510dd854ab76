"""Which panels live, what sessions they host, and in which window: the registry behind the panel route.

Owns the registrations of shims. Who replaces whom is decided here, by process and not by connection: a shim that connects
again is the same panel. No I/O of its own; told by `app` what arrives and who is gone.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from broker.peers import Peer
from broker.processes import SHELLS, ProcessId, ancestors, argv, executable
from broker.wire import Register, SessionState

_LAUNCHERS = SHELLS | {"env", "node"}
"""Programs that stand between an editor and a shim without being either."""


class KnownName(NamedTuple):
    """What the agent's files call a session; ``first``: a name of theirs counts more than the stream's."""

    name: str
    title: str
    first: bool = False

    def of(self, state: SessionState) -> SessionState:
        name = self.name if self.first and self.name else state.name or self.name
        return state._replace(name=name, title=state.title if state.name else state.title or self.title)


@dataclass(eq=False, slots=True)
class Panel:
    """One intercepted agent process."""

    peer: Peer
    agent: str
    cwd: str
    mode: str
    real: str
    version: str
    store: str
    child: ProcessId | None
    window: ProcessId | None
    """The process of the editor that started the shim: panels of one window share it."""
    claimed: tuple[SessionState, ...]
    """What the shim says; `sessions` are those of them that it may speak for."""
    closing: bool
    attempts: frozenset[str]
    known_names: dict[str, KnownName] = field(default_factory=dict)
    """From the agent's files, for sessions whose stream tells none."""

    proven: set[str] = field(default_factory=set)
    """Ids of the claimed sessions that no other process holds."""
    sessions: tuple[SessionState, ...] = ()

    @property
    def process(self) -> ProcessId:
        return self.peer.process

    def session(self, identifier: str) -> SessionState | None:
        return next((state for state in self.sessions if state.id == identifier), None)

    def empty_session(self) -> SessionState | None:
        """The session of a panel that has no conversation yet."""
        return next((state for state in self.sessions if state.empty), None)


class Panels:
    """The living panels of the user.

    Args:
        changed: called with a panel after it registered or its sessions changed.
    """

    def __init__(self, changed: Callable[[Panel], None]) -> None:
        self._panels: dict[ProcessId, Panel] = {}
        self._changed = changed
        self._news = asyncio.Event()

    def __iter__(self) -> Iterator[Panel]:
        return iter(tuple(self._panels.values()))

    def __len__(self) -> int:
        return len(self._panels)

    def register(self, peer: Peer, message: Register) -> Panel:
        """A shim has (again) introduced itself. Its pid is the kernel's, its child must be its child."""
        line = ancestors(message.child)
        child = line[0] if peer.process in line else None
        panel = Panel(
            peer,
            message.agent,
            message.cwd,
            message.mode,
            message.real,
            message.version,
            os.path.join(message.cwd, message.store) if message.store else "",  # a relative one is meant from where it works
            child,
            window_of(peer.process),
            message.sessions,
            message.closing,
            frozenset(message.attempts),
        )
        self._panels[peer.process] = panel
        self._renew(panel)
        return panel

    def update(self, peer: Peer, sessions: tuple[SessionState, ...], closing: bool) -> Panel | None:
        panel = self._panels.get(peer.process)
        if panel is not None:
            panel.claimed = sessions
            panel.closing = closing
            self._renew(panel)
        return panel

    def prove(self, panel: Panel, session: str) -> bool:
        """The shim may speak for ``session``. False: the panel is not there any more."""
        if self._panels.get(panel.process) is not panel:
            return False
        panel.proven.add(session)
        self._renew(panel)
        return True

    def name(self, process: ProcessId, session: str, known: KnownName) -> None:
        """What the agent's files say of a session's name; the stream's own word, once it comes, is newer where it counts."""
        panel = self._panels.get(process)
        if panel is not None:
            panel.known_names[session] = known
            self._renew(panel)

    def remove(self, peer: Peer) -> Panel | None:
        """A connection is gone; the panel goes with it unless it has connected anew meanwhile."""
        panel = self._panels.get(peer.process)
        if panel is None or panel.peer is not peer:
            return None
        self._tell()
        return self._panels.pop(peer.process)

    def is_ready(self, process: ProcessId) -> bool:
        """Whether the shim ``process`` has registered, and may speak for what it hosts."""
        panel = self._panels.get(process)
        return panel is not None and (not panel.claimed or bool(panel.sessions))

    async def change(self, deadline: float) -> bool:
        """Waits for the next change of any panel; False when ``deadline`` (of the loop's clock) has passed."""
        left = deadline - asyncio.get_running_loop().time()
        if left <= 0:
            return False
        try:
            await asyncio.wait_for(self._news.wait(), left)
        except asyncio.TimeoutError:
            return False
        return True

    def by_process(self, process: ProcessId) -> Panel | None:
        return self._panels.get(process)

    def by_instance(self, instance: str) -> Panel | None:
        return next((panel for panel in self._panels.values() if str(panel.process) == instance), None)

    def hosting(self, agent: str, session: str) -> list[Panel]:
        """The panels that hold ``session``: usually one, two for a while when a window reloads (SH-15)."""
        return [panel for panel in self._panels.values() if panel.agent == agent and panel.session(session) is not None]

    def sessions(self, agent: str | None = None) -> Iterator[tuple[Panel, SessionState]]:
        """Every hosted conversation; panels without one yet are not listed."""
        for panel in self._panels.values():
            if agent in (None, panel.agent):
                for state in panel.sessions:
                    if state.id and not state.empty:
                        yield panel, state

    def _renew(self, panel: Panel) -> None:
        """What is believed of a panel follows from what it says and what is proven."""
        believed = (state for state in panel.claimed if not state.id or state.id in panel.proven)
        panel.sessions = _named(tuple(believed), panel.known_names)
        self._changed(panel)
        self._tell()

    def _tell(self) -> None:
        """Whoever waits for a change looks again."""
        self._news.set()
        self._news = asyncio.Event()


def _named(sessions: tuple[SessionState, ...], known: dict[str, KnownName]) -> tuple[SessionState, ...]:
    return tuple(known[s.id].of(s) if s.id in known else s for s in sessions)


def window_of(shim: ProcessId) -> ProcessId | None:
    """The editor process behind ``shim``: its nearest ancestor that is no shell and no launcher.

    Editors run one extension host per window, and that is what starts the shims.
    """
    for process in ancestors(shim.pid)[1:]:
        name = (executable(process.pid) or "").rsplit("/", 1)[-1]
        if name not in _LAUNCHERS or _is_extension_host(process.pid):
            return process
    return None


def _is_extension_host(pid: int) -> bool:
    """A remote server's extension host is a node process like any launcher; its arguments tell."""
    return any("extensionHost" in argument or "bootstrap-fork" in argument for argument in argv(pid))
