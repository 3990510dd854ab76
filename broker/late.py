"""Watching for answers that come after their request has ended, and for sessions that will never give one.

Owns when to look into the records of a watched session, and when a watch is over: with its answer, with its time, or with its
session. What is watched for, and for how long, is `watches`; what is told of a find is `replies`. Watches are rows, and what
is here is only their timers: all of it is made anew from the rows by the next broker.

A look costs a process, so events decide: a panel tells that a turn ended, the index that records changed (not while a panel
runs a turn: its end is told). Besides, a session is looked at every half minute while something moves, and ever more rarely
while nothing does. Whatever the clocks say, no watch ends without a last look.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any

from broker.book import Book
from broker.clock import boot_clock, wall_clock
from broker.closing import closing_token
from broker.index.catalogue import Store
from broker.reader import Reader
from broker.replies import Replies
from broker.tasks import Tasks
from broker.watches import LateWatch
from shims.agent import Found, Record

log = logging.getLogger("broker.late")

_SOON = 1.0
"""Seconds after an event until its session is looked at: what was just said is being written."""

_BETWEEN = 5.0
"""Seconds between two looks at records that are written to all the time."""

_MOVING = 30.0
_STILL, _STILL_UNTOLD = 600.0, 120.0
"""Seconds between two looks while something moves, and at most: while nothing does; where nobody tells whether it does."""

_SLEPT = 60.0
"""Seconds between two looks that only the clock knows that counts suspend: the machine slept."""

_GONE_TWICE = 2
"""Looks, half a minute apart, that must find a session in no records: a directory may be unreadable for a moment."""

Place = tuple[str, str, str]
"""Agent, store, session."""


@dataclass(slots=True)
class _Looks:
    """The watches of one session, and its next look."""

    watches: dict[str, LateWatch] = field(default_factory=dict)
    timer: asyncio.TimerHandle | None = None
    pause: float = _MOVING
    looked: float = -_BETWEEN
    """When the last look began, on the loop's clock."""
    looked_awake: float = 0.0
    """The same on the clock that counts suspend as well."""
    looking: bool = False
    again: bool = False
    """Whether another look was due meanwhile."""
    moved: bool = False
    """Whether anything has happened there since the last look began."""
    missing: int = 0


class Late:
    """Every watch.

    Args:
        store: the index's knowledge of a store.
        busy: whether a panel runs a turn in a session: its end will be told.
    """

    def __init__(
        self, book: Book, reader: Reader, replies: Replies, store: Callable[[str, str], Store], busy: Callable[[str, str], bool]
    ) -> None:
        self._book = book
        self._reader = reader
        self._replies = replies
        self._store = store
        self._busy = busy
        self._places: dict[Place, _Looks] = {}
        self._tasks = Tasks(log)
        replies.begin_watch = self.begin

    def __len__(self) -> int:
        return sum(len(looks.watches) for looks in self._places.values())

    # from outside

    def load(self) -> None:
        """Takes over the watches of earlier brokers. An answer may have come since: each is looked for soon."""
        store = self._book.store
        watches = store.late_watches()
        if not store.same_boot:
            watches = [watch.after_boot(wall_clock(), boot_clock()) for watch in watches]
        for watch in watches:
            self._add(watch)
            self._look_in(_SOON, self._places[watch.place], watch.place)
            if not store.same_boot:
                self._tasks.spawn(self._save(watch))

    def begin(self, watch: LateWatch) -> None:
        """A watch has been recorded."""
        self._add(watch)
        looks = self._places[watch.place]
        looks.pause = _MOVING
        self._look_in(min(_MOVING, watch.left(boot_clock())), looks, watch.place)

    def turn_ended(self, agent: str, session: str) -> None:
        """A panel runs no turn there any more."""
        for place, looks in self._places.items():
            if (place[0], place[2]) == (agent, session):
                self._happened(place, looks, _SOON)

    def records_moved(self, store: Store, sessions: Collection[str]) -> None:
        """Something was written into the records of these sessions, or they are gone."""
        for place, looks in self._places.items():
            if place[:2] == (store.agent, store.path) and place[2] in sessions:
                if self._busy(place[0], place[2]):
                    looks.moved = True
                else:
                    self._happened(place, looks, max(_SOON, looks.looked + _BETWEEN - asyncio.get_running_loop().time()))

    def shown(self) -> list[dict[str, Any]]:
        """Every watch, as `bridge_status` shows it; the one that ends first before the others."""
        now, boot = wall_clock(), boot_clock()
        watches = [watch for looks in self._places.values() for watch in looks.watches.values()]
        return [
            {
                "delivery_id": watch.request,
                "agent": watch.agent,
                "session": watch.session,
                "since_seconds": max(0, int(now - watch.begun)),
                "seconds_left": int(watch.left(boot)),
                "after_transport_failure": watch.failure or None,
            }
            for watch in sorted(watches, key=lambda watch: watch.deadline)
        ]

    def close(self) -> None:
        for looks in self._places.values():
            if looks.timer is not None:
                looks.timer.cancel()
        self._tasks.cancel()

    # when to look

    def _add(self, watch: LateWatch) -> None:
        self._places.setdefault(watch.place, _Looks()).watches[watch.request] = watch
        self._store(watch.agent, watch.store)  # is read from now on

    def _happened(self, place: Place, looks: _Looks, seconds: float) -> None:
        looks.moved = True
        self._look_in(seconds, looks, place)

    def _look_in(self, seconds: float, looks: _Looks, place: Place) -> None:
        """Looks then, unless that is to be sooner anyway."""
        loop = asyncio.get_running_loop()
        if looks.timer is not None:
            if looks.timer.when() <= loop.time() + seconds:
                return
            looks.timer.cancel()
        looks.timer = loop.call_later(seconds, self._due, place)

    def _due(self, place: Place) -> None:
        looks = self._places.get(place)
        if looks is not None:
            looks.timer = None
            if looks.looking:
                looks.again = True
            else:
                self._tasks.spawn(self._look(place, looks))

    async def _look(self, place: Place, looks: _Looks) -> None:
        moved = looks.moved or self._busy(place[0], place[2])
        looks.looking, looks.moved, looks.again = True, False, False
        now, boot = asyncio.get_running_loop().time(), boot_clock()
        asleep = (boot - looks.looked_awake) - (now - looks.looked) if looks.looked_awake else 0.0
        looks.looked, looks.looked_awake = now, boot
        try:
            if asleep > _SLEPT:
                await self._woke(looks, boot)
            await self._judge(place, looks)
        finally:
            looks.looking = False
            self._go_on(place, looks, moved or looks.moved or looks.missing > 0)

    def _go_on(self, place: Place, looks: _Looks, moved: bool) -> None:
        if not looks.watches:
            if looks.timer is not None:
                looks.timer.cancel()
            if self._places.get(place) is looks:
                del self._places[place]
            return
        store = self._store(place[0], place[1])
        if moved:
            looks.pause = _MOVING
        else:
            looks.pause = min(2 * looks.pause, _STILL if store.watched else _STILL_UNTOLD)
        boot = boot_clock()
        first = min(watch.left(boot) for watch in looks.watches.values())
        self._look_in(_SOON if looks.again else min(looks.pause, max(_SOON, first)), looks, place)

    async def _woke(self, looks: _Looks, boot: float) -> None:
        """The machine slept, and whoever may still answer did as well."""
        for watch in list(looks.watches.values()):
            longer = looks.watches[watch.request] = watch.after_sleep(boot)
            if longer != watch:
                await self._save(longer)

    async def _save(self, watch: LateWatch) -> None:
        await self._book.store.write(lambda transaction: transaction.update_watch(watch))

    # what to make of it

    async def _judge(self, place: Place, looks: _Looks) -> None:
        """One look, at all that is watched for in a session."""
        watches, boot = list(looks.watches.values()), boot_clock()
        records = await self._reader.answers_naming(*place, [watch.token for watch in watches])
        for watch, record in zip(watches, records, strict=True):
            found = record if record.found is Found.ANSWERED else await self._of_the_turn_itself(watch, boot)
            if found is not None and found.text.strip():
                await self._found(looks, watch, found.text, boot)
            elif not watch.left(boot):
                await self._over(looks, watch, "its time is over")
        if all(record.found is Found.UNKNOWN for record in records) and self._is_gone(place):
            looks.missing += 1
        else:
            looks.missing = 0
        if looks.missing >= _GONE_TWICE:
            for watch in list(looks.watches.values()):
                await self._over(looks, watch, "its session is gone")

    async def _of_the_turn_itself(self, watch: LateWatch, boot: float) -> Record | None:
        """After a broken transport: the message's own turn, if it has ended with no other request's id."""
        if not watch.is_recovering(boot) or self._busy(watch.agent, watch.session):
            return None
        record = await self._reader.record(watch.agent, watch.store, watch.session, watch.key)
        if record.found is not Found.ANSWERED or closing_token(record.text) not in (None, watch.token):
            return None
        return record

    async def _found(self, looks: _Looks, watch: LateWatch, answer: str, boot: float) -> None:
        recovered = watch.failure if watch.is_recovering(boot) else ""
        try:
            await self._replies.came_late(watch, answer, recovered=recovered)
            looks.watches.pop(watch.request, None)
        except LookupError as error:
            await self._over(looks, watch, str(error))

    async def _over(self, looks: _Looks, watch: LateWatch, why: str) -> None:
        log.debug("%s is not watched any more: %s", watch.request, why)
        await self._book.store.write(lambda transaction: transaction.remove_watch(watch.request))
        looks.watches.pop(watch.request, None)

    def _is_gone(self, place: Place) -> bool:
        """Whether the index knows for certain that no record of the session is left."""
        store = self._store(place[0], place[1])
        return store.ready and store.session(place[2]) is None
