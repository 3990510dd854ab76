"""Looking into the agents' records for the end of a turn that nobody has reported (DE-33, SH-43).

Owns when to look, at least every half minute while a hand-over is open, soon after its session fell idle, and when its records
change while nobody is there to tell of its end; and what may be concluded: a finished turn of our message, found by its
key, or one that closes with its token. While the turn is seen to run, only the token counts, since what looks like an end may
be an interim one. What is found when the instance that had it in hand is gone is recovered, not received (DE-34).
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Protocol

from broker.book import Book
from broker.closing import closes_with
from broker.deliveries import Attempt, Delivery, Evidence, State
from broker.processes import parse_process_id
from broker.reader import Reader
from broker.replies import FLAG_WAITING, Replies
from broker.routes import Route
from shims.agent import Found, Record, agent

_AGAIN = 30.0
"""Seconds between two looks into the records of a peer (DE-33)."""

_SOON = 1.0
"""Seconds that the end of a turn gets to be reported, once its session is idle: a look costs a process of its own."""

_AT_A_DOOR = 0.2
"""The same where nobody reports: the records are all that tells."""

_BETWEEN = 5.0
"""Seconds between two looks at records that are written to all the time."""

_ENDED = (Found.ANSWERED, Found.INTERRUPTED)


class Hands(Protocol):
    """What the watch asks of the carrier."""

    def lock(self, target: tuple[str, str, str]) -> asyncio.Lock: ...

    async def taken(self, delivery: Delivery, attempt: Attempt, session: str, turn: str) -> Delivery: ...

    async def without_answer(self, delivery: Delivery, attempt: Attempt, reason: str) -> None: ...

    def ended(self, delivery: Delivery) -> None: ...

    def spawn(self, work: Coroutine[Any, Any, None]) -> None: ...


class Watch:
    """Every hand-over that is open."""

    def __init__(self, book: Book, route: Route, reader: Reader, replies: Replies, hands: Hands) -> None:
        self._book = book
        self._route = route
        self._reader = reader
        self._replies = replies
        self._hands = hands
        self._looks: dict[str, asyncio.TimerHandle] = {}
        self._looks_soon: dict[str, asyncio.TimerHandle] = {}
        """Not put off by what happens meanwhile: a turn that was taken late may have ended early."""
        self._missing: dict[str, float] = {}
        """When a message was first found neither waiting nor run; it may just be on its way from the one to the other."""

        self._looked: dict[str, float] = {}

    def later(self, delivery: Delivery) -> None:
        """Looks in half a minute, unless the turn's end is reported before."""
        _cancel(self._looks, delivery.id)
        self._looks[delivery.id] = asyncio.get_running_loop().call_later(_AGAIN, self.now, delivery.id)

    def soon(self, identifier: str) -> None:
        """Looks in a moment, unless the turn's end is reported before."""
        if identifier not in self._looks_soon and self._book.open_attempt_of(identifier) is not None:
            self._looks_soon[identifier] = asyncio.get_running_loop().call_later(_SOON, self.now, identifier)

    def moved(self, identifier: str) -> None:
        """The records have changed: of a turn whose panel tells its end, that end will be told."""
        attempt = self._book.open_attempt_of(identifier)
        if attempt is None or self._route.runs(attempt):
            return
        loop = asyncio.get_running_loop()
        wait = self._looked.get(identifier, loop.time() - _BETWEEN) + _BETWEEN - loop.time()
        if identifier not in self._looks_soon:
            self._looks_soon[identifier] = loop.call_later(
                max(wait, _AT_A_DOOR if attempt.by_door else _SOON), self.now, identifier
            )

    def now(self, identifier: str) -> None:
        _cancel(self._looks_soon, identifier)
        self._hands.spawn(self._look(identifier))

    def stop(self, identifier: str) -> None:
        self._looked.pop(identifier, None)
        _cancel(self._looks, identifier)
        _cancel(self._looks_soon, identifier)

    def close(self) -> None:
        for timer in (*self._looks.values(), *self._looks_soon.values()):
            timer.cancel()

    async def _look(self, identifier: str) -> None:
        delivery, attempt = self._open(identifier)
        if delivery is None or attempt is None or not attempt.instance:  # a started turn is seen to its end by its runner
            return
        self._looked[identifier] = asyncio.get_running_loop().time()
        self.later(delivery)  # whatever this look comes to, or fails by
        session, record = await self._find(delivery, attempt)
        async with self._hands.lock(delivery.target):
            delivery, attempt = self._open(identifier)
            if delivery is not None and attempt is not None:
                await self._conclude(delivery, attempt, session, record)
        self._route.looked(attempt)

    async def _find(self, delivery: Delivery, attempt: Attempt) -> tuple[str, Record]:
        """What the records say, and of which session: what waits in a process goes with it to another one (LD-02)."""
        session = delivery.session
        record = await self._reader.record(delivery.agent, attempt.store, session, delivery.key)
        holder = parse_process_id(attempt.instance) if attempt.by_door else None
        if record.found in (Found.ABSENT, Found.UNKNOWN) and holder is not None:
            moved = await asyncio.to_thread(agent(delivery.agent).held_by, attempt.store, holder)
            if moved not in ("", session):
                elsewhere = await self._reader.record(delivery.agent, attempt.store, moved, delivery.key)
                session, record = (moved, elsewhere) if elsewhere.found in (Found.OPEN, *_ENDED) else (session, record)
        if record.found in _ENDED or not delivery.token:
            return session, record
        named = await self._reader.answer_naming(delivery.agent, attempt.store, session, delivery.token)
        return session, named if named.found is Found.ANSWERED else record

    async def _conclude(self, delivery: Delivery, attempt: Attempt, session: str, record: Record) -> None:
        if delivery.state is State.DELIVERING:
            if record.found not in (Found.OPEN, *_ENDED):
                return
            delivery = await self._hands.taken(delivery, attempt, session or attempt.session, record.turn)
            attempt = self._book.attempt(attempt.id) or attempt
        if self._may_be_interim(delivery, attempt, record):
            return
        gone = self._is_gone_from_a_dead_queue(delivery, attempt, record)
        if record.found not in _ENDED and not gone:
            return
        closed = self._book.advanced(attempt, Evidence.ANSWERED, open=False)
        if delivery.state is not State.AWAITING:
            await self._book.save_attempt(closed)  # the turn of a reply is over: the session is free
        elif record.found is Found.ANSWERED and record.text.strip():
            recovered = _broken(delivery, attempt)
            await self._replies.answered(delivery, record.text, attempt=closed, by_transcript=True, recovered=recovered)
        else:
            await self._hands.without_answer(delivery, closed, _reason(record))
        self._missing.pop(delivery.id, None)
        self._route.forget(attempt)
        self._hands.ended(delivery)

    def _may_be_interim(self, delivery: Delivery, attempt: Attempt, record: Record) -> bool:
        if record.found is not Found.ANSWERED or not self._route.runs(attempt):
            return False
        return not closes_with(record.text, delivery.token)

    def _is_gone_from_a_dead_queue(self, delivery: Delivery, attempt: Attempt, record: Record) -> bool:
        """It waited in a queue of the agent's that outlives its process, and was taken out there by hand."""
        instance = parse_process_id(attempt.instance)
        # A shim that lives tells of its own queue.
        lives = instance is not None and instance.alive() and not (attempt.by_door and agent(delivery.agent).queue_outlives)
        if record.found is not Found.ABSENT or not delivery.handed_over or lives:
            self._missing.pop(delivery.id, None)
            return False
        now = asyncio.get_running_loop().time()
        return now - self._missing.setdefault(delivery.id, now) >= _AGAIN

    def _open(self, identifier: str) -> tuple[Delivery | None, Attempt | None]:
        """The delivery and its hand-over, while the agent may have it and its turn has not been seen to end."""
        delivery, attempt = self._book.delivery(identifier), self._book.open_attempt_of(identifier)
        if delivery is None or attempt is None or attempt.evidence is Evidence.NONE:
            return None, None
        return delivery, attempt


def _cancel(timers: dict[str, asyncio.TimerHandle], identifier: str) -> None:
    timer = timers.pop(identifier, None)
    if timer is not None:
        timer.cancel()


def _broken(delivery: Delivery, attempt: Attempt) -> str:
    """How the transport broke, empty if it holds; what waits in its agent's own queue is nobody's hand-over any more."""
    instance = parse_process_id(attempt.instance)
    if FLAG_WAITING in delivery.flags or instance is None or instance.alive():
        return ""
    return "the process that handed it over ended before its answer was received"


def _reason(record: Record) -> str:
    if record.found is Found.ANSWERED:
        return "its turn ended without a final message"
    if record.found is Found.INTERRUPTED:
        return "its turn was interrupted"
    return "it was taken out of the agent's queue"
