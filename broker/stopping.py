"""How the broker is ended by hand (EN-06): not while work is open, or when that is done, or at once with all that it started.

Owns the three ways. A signal is none of them: it ends the broker alone, and what it has started goes on.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

from broker.book import Book
from broker.deliveries import Delivery
from broker.errors import Refusal
from broker.events import Events
from broker.turns.started import StartedTurns

_LISTED = 5
_LOOK_AGAIN = 60.0
_GROUPS_GONE = 20.0
"""Seconds that started turns get to end."""


class How(Enum):
    ASK = "ask"
    """Only if nothing is open."""
    DRAIN = "drain"
    """When nothing is open any more; nothing new is taken meanwhile."""
    FORCE = "force"
    """Now; started turns are ended, and their deliveries say so. What is in panels goes on with the next broker."""


class Stopping:
    """Args: end: ends the broker, soon."""

    def __init__(self, book: Book, turns: StartedTurns, events: Events, end: Callable[[], None]) -> None:
        self._book = book
        self._turns = turns
        self._events = events
        self._end = end
        self.draining = False

    def check_open(self) -> None:
        """Raises Refusal when nothing new is taken."""
        if self.draining:
            raise Refusal(
                "stopping", "the broker is ending and takes nothing new", "Call again in a moment: the next one starts by itself."
            )

    async def stop(self, how: How) -> None:
        """Raises Refusal: work is open."""
        work = self._open()
        if how is How.ASK and work:
            shown = "; ".join(f"{d.id}, {d.state.value}, to {d.agent} {d.session}" for d in work[:_LISTED])
            more = f" and {len(work) - _LISTED} more" if len(work) > _LISTED else ""
            raise Refusal(
                "work_open",
                f"{len(work)} deliveries are open: {shown}{more}",
                "`cross-agent broker stop --drain` waits for them; `--force` ends the turns that were started for them.",
            )
        if how is How.DRAIN:
            self.draining = True
            while self._open():
                await self._events.next(self._events.sequence, _LOOK_AGAIN)
        elif how is How.FORCE:
            await self._end_turns()
        self._end()

    def _open(self) -> list[Delivery]:
        return [delivery for delivery in self._book.deliveries() if delivery.open]

    async def _end_turns(self) -> None:
        for attempt in self._book.open_attempts():
            self._turns.stop(attempt.id, "the broker is stopped")
        await self._turns.all_ended(_GROUPS_GONE)
