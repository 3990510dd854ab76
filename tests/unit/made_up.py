"""Panels that nobody runs: processes with pids that no kernel gives, in windows that no editor opened.

Owns nothing that outlives a test.
"""

from __future__ import annotations

from typing import Any

from broker.callers import Caller
from broker.index.catalogue import Store
from broker.index.feed import Change
from broker.index.feed import packed_told as packed
from broker.panels import Panel, Panels
from broker.peers import Peer
from broker.processes import ProcessId
from broker.wire import Register, SessionState
from shims.agent import Agent, agents
from shims.shelf import Card, Told

HERE = ProcessId(70_000_001, 1)
"""The editor process of the caller's window."""
THERE = ProcessId(70_000_002, 1)
"""That of another window."""

CLAUDE: Agent = agents()["claude"]
CODEX: Agent = agents()["codex"]

_FIRST_PID = 80_000_000
"""Above every pid that a kernel gives: whatever looks such a process up finds nothing."""


class World:
    """A registry that a test fills."""

    def __init__(self) -> None:
        self.panels = Panels(lambda _: None)
        self.stores = {agent: Store(agent, f"/h/{agent}") for agent in agents()}
        for store in self.stores.values():
            store.ready = store.watched = True

    def knows(self, identifier: str, agent: str = "claude", **facts: Any) -> None:
        """A session that stands in the records; ``facts`` are those of its card."""
        cwd = facts.pop("cwd", "/w")
        card = Card(identifier, cwd=cwd, place=cwd, **facts)
        self.stores[agent].apply([Change(len(self.stores[agent]) + 1, packed(Told(cards=(card,))))])

    def opens(
        self,
        *sessions: SessionState,
        agent: str = "claude",
        window: ProcessId | None = HERE,
        cwd: str = "/w",
        closing: bool = False,
    ) -> Panel:
        """A panel that has registered, with the sessions it hosts; that they are its own is proven."""
        process = ProcessId(_FIRST_PID + len(self.panels), 1)
        peer = Peer(str(process.pid).encode(), process, -1)
        message = Register(agent, "1", cwd, "stream-json", "/bin/x", process.pid + 500_000, sessions, closing, (), ())
        panel = self.panels.register(peer, message)
        for state in sessions:
            self.panels.prove(panel, state.id)
        panel.window = window
        return panel


def caller_in(panel: Panel, session: str = "") -> Caller:
    """Who calls from ``panel``."""
    return Caller(panel.agent, session or panel.sessions[0].id, "made up", panel)
