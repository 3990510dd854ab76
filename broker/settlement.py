"""What became of a message whose carrier died: found out from the agent's own records, after everybody who could still
write them is gone.

Owns rows 3 to 9 of the crash table. An instance that lives is asked, and only it may say `never`; one that is dead is
judged by the agent's key, once its child and every other holder of the session are proven gone (DE-22). What can't be
proven is uncertain, and is not sent again; missing records prove nothing (the agent's folder says when they do).
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace

from broker.book import Book
from broker.carrier import Carrier
from broker.deliveries import Attempt, Delivery, Event, Evidence, IllegalStepError, Kind, State
from broker.holders import Holders, gone
from broker.panels import Panel, Panels
from broker.processes import ProcessId, parse_process_id
from broker.reader import Reader
from broker.replies import FLAG_WAITING
from broker.routes.panel import PanelRoute
from shims.agent import Found, Record

log = logging.getLogger("broker.settlement")

_UNSETTLED = (Found.ABSENT, Found.OPEN)
"""What the records may say of a message that is just on its way out of the agent's queue, or whose turn runs again."""


class Settlement:
    """Settles attempts whose instance is gone, and asks instances about attempts that an earlier broker began."""

    def __init__(self, book: Book, carrier: Carrier, route: PanelRoute, panels: Panels, reader: Reader) -> None:
        self._book = book
        self._carrier = carrier
        self._route = route
        self._holders = Holders(panels)
        self._reader = reader
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._watched: dict[ProcessId, asyncio.Task[None]] = {}
        self._let_go: dict[str, asyncio.Task[Found | None]] = {}

    def registered(self, panel: Panel) -> None:
        """A shim has (again) registered: attempts of its that it does not know are asked about (row 3)."""
        self._holders.registered()
        for attempt in self._book.open_attempts():
            if attempt.instance == str(panel.process) and attempt.id not in panel.attempts:
                self._route.ask(attempt)

    def instance_gone(self, process: ProcessId) -> None:
        """A shim has ended, or was let go: what it had in hand must be settled, once it has ended."""
        for attempt in self._book.open_attempts():
            if attempt.instance == str(process):
                self._settle(attempt)

    def handed_in(self, attempt: Attempt) -> None:
        """At an agent's own door: nobody else tells of its process's end. One watch for all that it was ever given."""
        process = parse_process_id(attempt.instance)
        if process is not None and process not in self._watched:
            task = asyncio.get_running_loop().create_task(self._ended(process))
            self._watched[process] = task
            task.add_done_callback(lambda _: self._watched.pop(process, None))

    async def _ended(self, process: ProcessId) -> None:
        await gone(process, None)
        self.instance_gone(process)

    def let_go(self, attempt: Attempt) -> None:
        """The process that had it lives on without the session: its records say now what they will ever say."""
        if attempt.id not in self._let_go:
            task = asyncio.get_running_loop().create_task(self._settled_now(attempt.id, still_there=False))
            self._let_go[attempt.id] = task
            task.add_done_callback(lambda _: self._let_go.pop(attempt.id, None))

    def recover(self) -> None:
        """At start: what living instances have is told when they register; one that never does ends at some time (row 5)."""
        for attempt in self._book.open_attempts():
            if attempt.by_door:
                self.handed_in(attempt)
            elif attempt.instance:
                self._settle(attempt)

    def close(self) -> None:
        for task in (*self._tasks.values(), *self._let_go.values(), *self._watched.values()):
            task.cancel()

    def _settle(self, attempt: Attempt) -> None:
        if attempt.id not in self._tasks:
            task = asyncio.get_running_loop().create_task(self._settled(attempt.id))
            self._tasks[attempt.id] = task
            task.add_done_callback(lambda _: self._tasks.pop(attempt.id, None))

    async def _settled(self, identifier: str) -> None:
        attempt = self._book.attempt(identifier)
        instance = parse_process_id(attempt.instance) if attempt is not None else None
        if instance is not None:
            await gone(instance, None)  # while it lives, only it can tell, however long that takes
        while await self._settled_now(identifier) is Found.WAITING:
            attempt = self._book.attempt(identifier)
            delivery = self._book.delivery(attempt.delivery) if attempt is not None else None
            if attempt is None or delivery is None:
                return
            # Whoever opens the session runs it, and `watch` finds the end of its turn; unless that one dies as well.
            await self._holders.opened_and_closed(delivery.agent, attempt.store, delivery.session)

    async def _settled_now(self, identifier: str, *, still_there: bool = True) -> Found | None:
        """Settles by what the records say now, and returns it; None: it is settled already.

        Args:
            still_there: whoever could still write the records may be there, and is waited for.
        """
        attempt = self._book.attempt(identifier)
        delivery = self._book.delivery(attempt.delivery) if attempt is not None else None
        if attempt is None or delivery is None:
            return None
        if still_there:
            record = await self._look(attempt, delivery)
        else:
            record = await self._reader.record(delivery.agent, attempt.store, delivery.session, delivery.key)
        session, record = await self._where(attempt, delivery, record)
        async with self._carrier.lock(delivery.target):
            attempt = self._book.attempt(identifier)
            delivery = self._book.delivery(delivery.id)
            if attempt is None or delivery is None:
                return None
            log.info("%s: %s in state %s: %s", attempt.id, delivery.id, delivery.state.value, record.found.value)
            try:
                await self._judge(replace(attempt, session=session), delivery, record)
            except IllegalStepError as error:
                log.info("%s: settled meanwhile: %s", delivery.id, error)
        self._carrier.drive(delivery.target)
        return record.found

    async def _look(self, attempt: Attempt, delivery: Delivery) -> Record:
        """What the records say when everybody who could still write them is gone, or writes nothing of this message."""
        child, session = parse_process_id(attempt.child), attempt.session or delivery.session
        earlier: Record | None = None
        while await self._holders.gone(child, delivery.agent, attempt.store, session):
            if not session:  # a conversation that was to be opened and never named itself: nothing heard is not nothing written
                break
            record = await self._reader.record(delivery.agent, attempt.store, session, delivery.key)
            if record == earlier or record.found not in _UNSETTLED:
                return record
            if not await self._holders.opened_again(delivery.agent, attempt.store, session):
                return record
            earlier = record
            await self._holders.stands_still(delivery.agent, session)
        return Record(Found.UNKNOWN)

    async def _where(self, attempt: Attempt, delivery: Delivery, record: Record) -> tuple[str, Record]:
        """What waited in a process went with it to another session: the message is looked for there before it counts as lost."""
        if not attempt.by_door or record.found not in (Found.ABSENT, Found.UNKNOWN):
            return attempt.session, record
        session = await self._reader.went_to(delivery.agent, attempt.store, delivery.key, attempt.created)
        if session in ("", delivery.session):
            return attempt.session, record
        return session, await self._reader.record(delivery.agent, attempt.store, session, delivery.key)

    async def _judge(self, attempt: Attempt, delivery: Delivery, record: Record) -> None:
        closed = replace(attempt, open=False)
        if not delivery.open:
            await self._book.save_attempt(closed)
        elif record.found is Found.UNKNOWN:
            await self._end(delivery, Event.UNPROVEN, "uncertain", "its session ended and its records do not tell", closed)
        elif record.found is Found.WAITING:
            await self._waits_in_agent(delivery, attempt)
        elif record.found is Found.ABSENT and delivery.state is State.DELIVERING:
            await self._book.apply(delivery, Event.NEVER, attempt=closed)
        elif delivery.kind is not Kind.REQUEST:
            await self._book.apply(delivery, Event.SETTLED, attempt=closed, handed_over=True)
        else:
            await self._had_it(delivery, closed, record)

    async def _had_it(self, delivery: Delivery, closed: Attempt, record: Record) -> None:
        """The agent had the message: its turn has an answer, or never will have one."""
        if delivery.state is State.DELIVERING:
            session = closed.session or delivery.session
            delivery = await self._book.apply(
                delivery, Event.TAKEN, attempt=replace(closed, open=True), session=session, handed_over=True, peer_note=""
            )
        if record.found is Found.ANSWERED and record.text.strip():
            answered = self._book.advanced(closed, Evidence.ANSWERED)
            await self._carrier.replies.answered(
                delivery, record.text, attempt=answered, recovered="the session ended before its answer was received"
            )
        else:
            await self._end(delivery, Event.ENDED, "interrupted", "the session ended in the middle of its turn", closed)

    async def _waits_in_agent(self, delivery: Delivery, attempt: Attempt) -> None:
        """Codex keeps it and runs it when the session is opened next: it stays awaited, read from the records."""
        if delivery.state is State.DELIVERING:
            attempt = self._book.advanced(attempt, Evidence.TAKEN)
            event = Event.TAKEN if delivery.kind is Kind.REQUEST else Event.SETTLED
            delivery = await self._book.apply(delivery, event, attempt=attempt, handed_over=True)
        if delivery.open and FLAG_WAITING not in delivery.flags:
            delivery = await self._book.annotate(delivery, flags=(*delivery.flags, FLAG_WAITING))
        self._carrier.watch(delivery)

    async def _end(self, delivery: Delivery, event: Event, code: str, reason: str, closed: Attempt) -> None:
        await self._carrier.replies.failed(delivery, event, code, reason, attempt=closed)
