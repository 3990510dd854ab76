"""How the broker is ended by hand (EN-06): not while work is open, or when that is done, or at once with all that it started.

Owns the three ways. A signal is none of them: it ends the broker alone, and what it has started goes on.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

from broker.book import Book
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
    """Ends one broker.

    Args:
        watches: how many requests are watched for an answer that may still come.
        end: ends the broker, soon.
    """

    def __init__(
        self, book: Book, turns: StartedTurns, events: Events, watches: Callable[[], int], end: Callable[[], None]
    ) -> None:
        self._book = book
        self._turns = turns
        self._events = events
        self._watches = watches
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
        if how is How.ASK and (work := self._listed()):
            raise Refusal(
                "work_open",
                f"work is open: {work}",
                "`cross-agent broker stop --drain` waits for it; `--force` ends the turns that were started here.",
            )
        if how is How.DRAIN:
            self.draining = True
            while self._listed():
                await self._events.next(self._events.sequence, _LOOK_AGAIN)
        elif how is How.FORCE:
            self.draining = True
            await self._turns.end_all("the broker was stopped", _GROUPS_GONE)
        self._end()

    def _listed(self) -> str:
        """What is open, in words; empty: nothing."""
        work = [delivery for delivery in self._book.deliveries() if delivery.open]
        shown = [f"{d.id}, {d.state.value}, to {d.agent} {d.session}" for d in work[:_LISTED]]
        if len(work) > _LISTED:
            shown.append(f"{len(work) - _LISTED} deliveries more")
        if watches := self._watches():
            shown.append(f"{watches} watched for a late answer")
        return "; ".join(shown)
