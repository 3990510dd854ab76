"""Carries queued deliveries to their sessions: one queue and one hand-over at a time for each.

Owns the way from QUEUED to the end of the turn: choosing when the head of a queue goes out, what each stage that a route
reports means, deadlines (DE-04, DE-30, DE-31). An end that nobody reports is found by `watch`; what became of a message whose
carrier or agent died is found out by `settlement`; what the sender is told is `replies`.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import defaultdict
from collections.abc import Collection, Coroutine
from dataclasses import replace
from typing import Any

from broker import envelope, rejections
from broker.beside import beside_the_loop
from broker.book import Book
from broker.clock import awake_clock, wall_clock
from broker.deliveries import Attempt, Delivery, Event, Evidence, IllegalStepError, Kind, State
from broker.pins import Pins
from broker.reader import Reader
from broker.replies import FLAG_UNWANTED, Replies, sender_of, thread_of
from broker.routes import Reach, Route, Unreachable, Wait
from broker.settings import wait_of
from broker.tasks import Tasks
from broker.watch import Watch
from broker.wire import StageName, StageReport
from shims.agent import agent

log = logging.getLogger("broker.carrier")

Target = tuple[str, str, str]

_WITHDRAW_AGAIN = 30.0
"""Seconds after which a message that could not be taken back at its deadline is looked at once more."""

_DOOR_TRIES = 5
"""Times that a door is knocked at which nothing could be said through."""

_RETURN_RETRY = 60.0
"""Seconds that return traffic tries a route that refuses it (DE-41)."""


class Carrier:
    """Every delivery that is under way."""

    def __init__(self, book: Book, pins: Pins, route: Route, reader: Reader, generation: int) -> None:
        self._book = book
        self._pins = pins
        self._route = route
        self._generation = generation
        self._replies = Replies(book, route.way_back, self.carry)
        self._watch = Watch(book, route, reader, self._replies, self)
        self._locks: defaultdict[Target, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._waiting_since: dict[str, tuple[str, float]] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._asked_back: set[str] = set()
        """Deliveries that were asked back at their deadline, and have not come."""
        self._tasks = Tasks(log)
        self._open_for_business = False

    @property
    def replies(self) -> Replies:
        return self._replies

    # from outside

    def begin(self) -> None:
        """Hand-overs may start: every living shim has had its chance to register (DE-25)."""
        self._open_for_business = True
        for delivery in self._book.deliveries():
            if delivery.open:
                self.carry(delivery)
            else:
                self._watch.later(delivery)

    def carry(self, delivery: Delivery) -> None:
        """A delivery has been recorded: it goes out when its turn comes."""
        self._watch_deadline(delivery)
        if delivery.state in (State.DELIVERING, State.AWAITING):
            self._watch.later(delivery)
        self.drive(delivery.target)

    def watch(self, delivery: Delivery) -> None:
        """Its end will be in the records, if anywhere."""
        self._watch.later(delivery)

    def drive(self, target: Target) -> None:
        """Something changed at a session: its queue may go on."""
        if self._open_for_business and self._book.queue(target):
            self.spawn(self._drive(target))

    def staged(self, report: StageReport, seen: asyncio.Future[None]) -> None:
        """A route reports a stage; ``seen`` is resolved when it is in the database."""
        self.spawn(self._staged(report, seen))

    def session_idle(self, agent_name: str, session: str) -> None:
        """No turn runs there any more: the end of a message's turn that was not reported must be in the records (case 26)."""
        for delivery in self._book.deliveries():
            if (delivery.agent, delivery.session) == (agent_name, session):
                self._watch.soon(delivery.id)

    def records_moved(self, agent_name: str, sessions: Collection[str]) -> None:
        """Something was written into the records of these sessions (DE-33)."""
        for delivery in self._book.deliveries():
            if delivery.agent == agent_name and delivery.session in sessions:
                self._watch.moved(delivery.id)

    async def withdraw(self, identifier: str) -> None:
        """Somebody wants a message back: it is, if it is still ours; else its agent has been asked for it, if it only waits."""
        delivery = self._book.delivery(identifier)
        if delivery is None:
            return
        async with self._locks[delivery.target]:
            delivery = self._book.delivery(identifier)
            attempt = self._book.open_attempt_of(identifier)
            if delivery is None or not delivery.open:
                return
            if delivery.state is State.QUEUED:
                await self._replies.withdrawn(delivery, attempt=None)
                self.ended(delivery)
            elif attempt is not None and not self._route.runs(attempt):
                if FLAG_UNWANTED not in delivery.flags:
                    await self._book.annotate(delivery, flags=(*delivery.flags, FLAG_UNWANTED))
                self._route.withdraw(attempt)

    def lock(self, target: Target) -> asyncio.Lock:
        """Held while anything about one session's deliveries is changed."""
        return self._locks[target]

    def close(self) -> None:
        self._watch.close()
        for timer in self._timers.values():
            timer.cancel()
        self._tasks.cancel()

    # the queue of one session

    async def _drive(self, target: Target) -> None:
        async with self._locks[target]:
            if self._book.open_attempt_at(target) is not None:
                return
            queue = self._book.queue(target)
            if queue:
                await self._try(queue[0])

    async def _try(self, delivery: Delivery) -> None:
        if FLAG_UNWANTED in delivery.flags:  # it was on its way when it was asked back, and has come back by itself
            await self._replies.withdrawn(delivery, attempt=None)
            self.ended(delivery)
            return
        if self._replies.is_pointless(delivery):
            await self._book.apply(delivery, Event.WITHDRAW)
            self.ended(delivery)
            return
        if awake_clock() > delivery.deadline:
            await self._expire(delivery, None)
            return
        reach = await self._reach(delivery)
        if isinstance(reach, Wait):
            if reach.seconds:
                self.again_in(reach.seconds, delivery)
            return
        self._waiting_since.pop(delivery.id, None)
        if isinstance(reach, Unreachable):
            await self._refuse(delivery, code=reach.code, reason=reach.reason)
            return
        text = await self._text(delivery)
        if text is None:
            await self._refuse(delivery, code="text_lost", reason="its text is not stored any more")
            return
        target = agent(delivery.agent)
        if target.longest is not None and len(text) > target.longest:
            reason = f"with its frame it has {len(text):,} characters, and {target.product} takes {target.longest:,}"
            await self._refuse(delivery, code="message_too_long", reason=reason)
            return
        attempt = Attempt(
            id=f"att_{secrets.token_hex(8)}",
            delivery=delivery.id,
            instance=reach.instance,
            child=reach.child,
            store=reach.store,
            session=reach.session or delivery.session,
            generation=self._generation,
            created=wall_clock(),
            route=reach.route,
        )
        delivery = await self._book.apply(delivery, Event.HAND_OVER, attempt=attempt, route=reach.route)
        if not await self._route.hand_over(delivery, attempt, reach, text):
            await self._never(delivery, attempt)

    async def _refuse(self, delivery: Delivery, *, code: str, reason: str) -> None:
        """It can't be handed over at all; what is queued behind it may be."""
        await self._replies.failed(delivery, Event.REFUSED, code, reason, attempt=None)
        self.ended(delivery)

    async def _reach(self, delivery: Delivery) -> Reach | Wait | Unreachable:
        """How the session is reached; each reason to wait has a time of its own."""
        now = awake_clock()
        reason, since = self._waiting_since.get(delivery.id, ("", now))
        reach = await self._route.reach(delivery, now - since)
        if isinstance(reach, Wait) and reach.reason != reason:
            reach = await self._route.reach(delivery, 0.0)
            since = now
        if isinstance(reach, Wait):
            self._waiting_since[delivery.id] = (reach.reason, since)
        return reach

    async def _text(self, delivery: Delivery) -> str | None:
        """What the agent gets: framed, and with nothing in it that would act on arrival."""
        body = self._book.store.body(delivery.id)
        return None if body is None else await beside_the_loop(len(body), _composed, delivery, body)

    # stages

    async def _staged(self, report: StageReport, seen: asyncio.Future[None]) -> None:
        attempt = self._book.attempt(report.attempt)
        delivery = self._book.delivery(attempt.delivery) if attempt is not None else None
        if attempt is not None and delivery is not None:
            async with self._locks[delivery.target]:
                attempt = self._book.attempt(report.attempt)
                delivery = self._book.delivery(delivery.id)
                if attempt is not None and delivery is not None:
                    try:
                        await self._react(report, delivery, attempt)
                    except IllegalStepError as error:
                        log.info("%s: late %s: %s", delivery.id, report.stage.value, error)
        if not seen.done():
            seen.set_result(None)

    async def _react(self, report: StageReport, delivery: Delivery, attempt: Attempt) -> None:
        stage = report.stage
        if stage is StageName.WRITTEN:
            await self._book.save_attempt(self._book.advanced(attempt, Evidence.WRITTEN))
            self._watch.later(delivery)
        elif stage is StageName.TAKEN:
            await self.taken(delivery, attempt, report.session or attempt.session, report.turn)
        elif stage is StageName.FINISHED:
            await self._finished(delivery, attempt, report)
        elif stage is StageName.NEVER:
            await self._never(delivery, attempt)
        elif stage is StageName.REJECTED:
            await self._rejected(delivery, attempt, report.code)
        # LOST: the instance's end is told by the kernel, and `settlement` looks at the records then

    async def held_by_peer(self, attempt_id: str, note: str) -> None:
        """The agent has the message, and a person there is asked about it: that is no delivery yet (LD-02)."""
        attempt = self._book.attempt(attempt_id)
        delivery = self._book.delivery(attempt.delivery) if attempt is not None else None
        if delivery is not None and delivery.state is State.DELIVERING:
            await self._book.annotate(delivery, peer_note=note)

    async def taken(self, delivery: Delivery, attempt: Attempt, session: str, turn: str) -> Delivery:
        attempt = self._book.advanced(attempt, Evidence.TAKEN, session=session, turn=turn)
        if delivery.state is not State.DELIVERING:
            await self._book.save_attempt(attempt)
            return delivery
        event = Event.TAKEN if delivery.kind is Kind.REQUEST else Event.SETTLED
        old = delivery.target
        delivery = await self._book.apply(delivery, event, attempt=attempt, session=session, handed_over=True, peer_note="")
        if event is Event.SETTLED:
            self._stop_timers(delivery.id)
        self._watch.later(delivery)
        if delivery.selected_by == "new":
            await self._pins.opened(delivery.agent, delivery.cwd, delivery.session, attempt.store)
        if delivery.target != old:
            self.drive(old)
        return delivery

    async def _finished(self, delivery: Delivery, attempt: Attempt, report: StageReport) -> None:
        delivery = await self.taken(delivery, attempt, report.session or attempt.session, report.turn)
        closed = self._book.advanced(attempt, Evidence.ANSWERED, open=False, turn=report.turn, session=delivery.session)
        if delivery.state is not State.AWAITING:
            await self._book.save_attempt(closed)  # the turn of a reply: nobody answers that (DE-45)
        elif report.text is None:
            self._watch.now(delivery.id)  # its words were not seen: the records have them, now or soon
            return
        elif report.status == "completed" and report.text.strip():
            await self._replies.answered(delivery, report.text, attempt=closed)
        else:
            await self.without_answer(delivery, closed, rejections.why_no_answer(report.status))
        self.ended(delivery)

    async def without_answer(self, delivery: Delivery, attempt: Attempt, reason: str) -> None:
        await self._replies.failed(delivery, Event.ENDED, "no_answer", reason, attempt=attempt)

    async def _never(self, delivery: Delivery, attempt: Attempt) -> None:
        closed = replace(attempt, open=False)
        if delivery.state is State.DELIVERING:
            await self._book.apply(delivery, Event.NEVER, attempt=closed)
        else:
            await self._book.save_attempt(closed)
        self.drive(delivery.target)

    async def _rejected(self, delivery: Delivery, attempt: Attempt, code: str) -> None:
        closed = replace(attempt, open=False)
        if delivery.state not in (State.DELIVERING, State.AWAITING):
            await self._book.save_attempt(closed)
            return
        if code == "withdrawn" and FLAG_UNWANTED in delivery.flags:
            await self._replies.withdrawn(delivery, attempt=closed)
            self.ended(delivery)
        elif code in rejections.LATE and (code == "withdrawn" or awake_clock() >= delivery.deadline):
            await self._expire(delivery, closed)
        elif delivery.state is State.AWAITING:
            await self.without_answer(delivery, closed, f"the agent gave it up: {code}")
            self.ended(delivery)
        elif code in (*rejections.UNTOUCHED, *rejections.LATE) or self._may_retry(delivery, code):
            await self._book.apply(delivery, Event.BUSY, attempt=closed)
            self.again_in(rejections.pause(code), delivery)  # what it waits for may have happened meanwhile
        else:
            reason = rejections.reason(code)
            await self._replies.failed(delivery, Event.REFUSED, code, reason, attempt=closed)
            self.ended(delivery)

    def _may_retry(self, delivery: Delivery, code: str) -> bool:
        """Return traffic tries for a while (DE-41), and so does what found a door that was just being closed."""
        if code == "door_failed":
            return len(self._book.store.attempts_of(delivery.id)) < _DOOR_TRIES
        age = awake_clock() - (delivery.deadline - wait_of(delivery.settings))
        return delivery.kind is not Kind.REQUEST and code not in rejections.ANSWERED_BY_A_PERSON and age < _RETURN_RETRY

    async def _expire(self, delivery: Delivery, attempt: Attempt | None) -> None:
        waited = int((wall_clock() - delivery.created) // 60)
        reason = f"the session was busy or away for {waited} min and never took it"
        await self._replies.failed(delivery, Event.EXPIRED, "peer_busy", reason, attempt=attempt)
        self.ended(delivery)

    def ended(self, delivery: Delivery) -> None:
        self._stop_timers(delivery.id)
        self.drive(delivery.target)

    # time

    def _watch_deadline(self, delivery: Delivery) -> None:
        self._stop_timers(delivery.id)
        left = delivery.deadline - awake_clock()
        self._timers[delivery.id] = asyncio.get_running_loop().call_later(max(0.0, left), self._due, delivery.id)

    def _due(self, identifier: str) -> None:
        """The deadline of a hand-over, and the end of the patience with a running turn, are the same moment."""
        del self._timers[identifier]
        self.spawn(self._overdue(identifier))

    async def _overdue(self, identifier: str) -> None:
        delivery = self._book.delivery(identifier)
        if delivery is None or not delivery.open:
            return
        if awake_clock() < delivery.deadline:  # the loop's clock ran ahead of the one that counts
            self._watch_deadline(delivery)
            return
        async with self._locks[delivery.target]:
            delivery = self._book.delivery(identifier)
            if delivery is None or not delivery.open:
                return
            attempt = self._book.open_attempt_of(identifier)
            if delivery.state is State.QUEUED:
                await self._expire(delivery, None)
            elif attempt is None:
                return
            elif delivery.state is State.AWAITING and self._route.runs(attempt):
                await self._tell_progress(delivery)
            else:
                # What has begun meanwhile can't be taken back: then there is progress to tell of.
                if attempt.by_door and identifier in self._asked_back:
                    await self._tell_progress(delivery)
                self._asked_back.add(identifier)
                self._route.withdraw(attempt)
                loop = asyncio.get_running_loop()
                self._timers[identifier] = loop.call_later(_WITHDRAW_AGAIN, self._due, identifier)

    async def _tell_progress(self, delivery: Delivery) -> None:
        """The turn runs, for however long; its sender is told once, when it can read (DE-30)."""
        if delivery.kind is Kind.REQUEST and not delivery.progress_note:
            idle = await self._route.is_idle(delivery.sender_agent, delivery.sender_store, delivery.sender_session)
            began = delivery.state is State.AWAITING
            state = delivery.peer_note or ("the peer is at work on it" if began else "it waits there, and has not begun")
            await self._replies.still_working(delivery, state, to_sender=idle)

    def again_in(self, seconds: float, delivery: Delivery) -> None:
        """Looks again after what it waits for had some time."""
        asyncio.get_running_loop().call_later(seconds, self.drive, delivery.target)

    def _stop_timers(self, identifier: str) -> None:
        self._asked_back.discard(identifier)
        self._watch.stop(identifier)
        timer = self._timers.pop(identifier, None)
        if timer is not None:
            timer.cancel()

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.spawn(work)


def _composed(delivery: Delivery, body: str) -> str:
    body, _ = agent(delivery.agent).disarm(body)
    if delivery.raw:
        return envelope.unframed(body)[0]
    if delivery.kind is not Kind.REQUEST:
        return body
    sender = sender_of(delivery.sender_agent, delivery.sender_session) if delivery.sender_agent else None
    return envelope.request(sender, thread_of(delivery), delivery.token, body, written=delivery.created, now=wall_clock())
