"""Which of several sessions was in use last, where no human was seen typing into any of them (SE-22).

Owns the question to the sessions' records: it is asked only when nothing else decides, as after a reload of the window, when
every shim is new. A turn of ours must not draw the next message to itself, so a session counts from the last turn that was not
ours. Ours is a turn whose message has the agent-side key of a delivery: what is told by time would be wrong for the turns of
replies, whose end nobody notes. Keys are known for as long as deliveries are kept.
"""

from __future__ import annotations

from collections.abc import Mapping

from broker.book import Book
from broker.callers import Caller
from broker.panels import Panels
from broker.reader import Reader
from broker.resolve import tied
from shims.agent import Agent

_KEYS = 200
"""The newest messages to a session whose turns are told from others': more than the end of its records holds turns."""


class Focus:
    """Asks the records."""

    def __init__(self, book: Book, panels: Panels, reader: Reader) -> None:
        self._book = book
        self._panels = panels
        self._reader = reader

    async def moved(self, target: Agent, caller: Caller) -> Mapping[str, float]:
        """When somebody other than us last moved each session that a send without an address may mean; empty: no need."""
        sessions = tied(target, caller, self._panels)
        if not sessions:
            return {}
        ours = [key for session in sessions for key in self._book.store.keys_to(target.name, session, _KEYS)]
        return await self._reader.moved(target.name, [(panel.store, session) for session, panel in sessions.items()], ours)
