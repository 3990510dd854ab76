"""Taking a delivery back (DE-26).

Owns the answer to whoever asks for it: withdrawn, or why not and in which state it is. What waits in our own queue is given
up at once; what waits inside the agent only when the agent confirms that it has given it back; what has begun never.
"""

from __future__ import annotations

import asyncio

from broker.book import Book
from broker.carrier import Carrier
from broker.deliveries import Delivery, State
from broker.errors import Refusal
from broker.events import Events
from broker.replies import FLAG_WAITING
from broker.routes import Route
from broker.status import unknown_delivery

_PATIENCE = 5.0
"""Seconds in which an agent answers whether it has given a message back."""


class Withdrawal:
    """Takes deliveries back for those who ask."""

    def __init__(self, book: Book, carrier: Carrier, route: Route, events: Events) -> None:
        self._book = book
        self._carrier = carrier
        self._route = route
        self._events = events

    async def withdraw(self, identifier: str) -> Delivery:
        """The delivery, withdrawn; asked for once more, it is so still.

        Raises:
            Refusal: it is not known, has begun or ended, or its agent does not confirm.
        """
        if self._found(identifier).open:
            await self._carrier.withdraw(identifier)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _PATIENCE
        while True:
            seen = self._events.sequence
            delivery = self._found(identifier)
            if delivery.state is State.WITHDRAWN:
                return delivery
            why = self._why_not(delivery)
            if why:
                raise _refused(delivery, code="not_withdrawn", why=why)
            left = deadline - loop.time()
            if left <= 0:
                raise _refused(delivery, code="not_confirmed", why="its agent has not said that it gives it back, and may yet")
            await self._events.next(seen, left)

    def _found(self, identifier: str) -> Delivery:
        delivery = self._book.delivery(identifier)
        if delivery is None:
            raise unknown_delivery(identifier)
        return delivery

    def _why_not(self, delivery: Delivery) -> str:
        """Why it will not be taken back any more; empty: it may be."""
        if not delivery.open:
            return "it has ended"
        attempt = self._book.open_attempt_of(delivery.id)
        if attempt is not None and self._route.runs(attempt):
            return "its turn has begun, and what runs is never cut"
        if FLAG_WAITING in delivery.flags:
            return "it waits in the queue of an agent that is not running, which gives nothing back"
        return ""


def _refused(delivery: Delivery, *, code: str, why: str) -> Refusal:
    return Refusal(
        code,
        f"delivery {delivery.id} is {delivery.state.value}: {why}",
        "Look at it with bridge_status(delivery_id); a turn that runs is stopped by the person at that session.",
    )
