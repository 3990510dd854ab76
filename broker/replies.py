"""Return traffic: what a sender is told when its request ends, and how that finds its way back.

Owns answers, failure notices and progress notices as deliveries of their own (DE-40 to DE-46). A reply is recorded in the
same transaction as the end of its request, so that there is never one without the other (crash table, row 10). Replies
are never answered, spend no hop and start no process. What may still come after the end is watched for by `late`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Any, Protocol

from broker import envelope
from broker.beside import beside_the_loop
from broker.book import Book
from broker.clock import awake_clock, boot_clock, wall_clock
from broker.closing import closes_with, closing_token, without_closing_token
from broker.deliveries import Attempt as AttemptRecord
from broker.deliveries import Delivery, Event, Kind, State, new_delivery_id
from broker.envelope import Sender, Thread
from broker.settings import uses_doors, uses_panels, wait_of
from broker.store import Transaction
from broker.watches import LateWatch, watch_after
from shims.agent import agent


class WayBack(Protocol):
    def __call__(self, agent: str, store: str, session: str, *, panels: bool, doors: bool) -> Awaitable[str]: ...


PREVIEW = 2000
"""Characters of an answer that stay on the record (DE-23)."""

FLAG_CONFIRMED = "is_reply_confirmed_by_token"
FLAG_FROM_TRANSCRIPT = "is_reply_confirmed_by_transcript"
FLAG_RECOVERED = "is_reply_recovered"
FLAG_INTERIM = "is_possibly_interim"
FLAG_STATUS_ONLY = "is_return_status_only"
FLAG_UNDELIVERED = "is_undelivered"
FLAG_KILLED = "is_killed_by_timeout"
FLAG_LATE = "is_answered_late"
FLAG_UNWANTED = "is_withdrawal_wanted"
"""Somebody has asked for it back: when its agent gives it back, it is withdrawn, and nobody's fault."""
FLAG_WAITING = "is_waiting_in_agent"
"""Its agent ended with the message in a queue that outlives it; until the request ends."""


class Replies:
    """Ends requests, and sends word of it.

    Args:
        way_back: the route by which a session can be reached live: (agent, store, session, whether panels and doors
            are used) → name, or empty.
        carry: begins to carry a delivery that has been recorded.
    """

    def __init__(self, book: Book, way_back: WayBack, carry: Callable[[Delivery], None]) -> None:
        self._book = book
        self._way_back = way_back
        self._carry = carry
        self.begin_watch: Callable[[LateWatch], None] = lambda _: None
        """Told of each watch that an end has left, when it is in the database."""

    async def answered(
        self,
        request: Delivery,
        answer: str,
        *,
        attempt: AttemptRecord | None,
        recovered: str = "",
        by_transcript: bool = False,
        denied: tuple[str, ...] = (),
    ) -> Delivery:
        """The request's turn has ended with ``answer``. Raises IllegalStepError when the request has ended already.

        Args:
            denied: tools that its turn was refused, which its reader must know (EN-15).
        """
        if other := self._belongs_to(request, answer, recovered=bool(recovered)):
            reason = f"its turn closed with the id of another request ({other}), which that answer belongs to"
            return await self.failed(request, Event.ENDED, "no_answer", reason, attempt=attempt)
        confirmed = closes_with(answer, request.token)
        text = without_closing_token(answer, request.token) if confirmed else answer
        flags = {FLAG_CONFIRMED} if confirmed else set() if request.raw else {FLAG_INTERIM}
        flags |= {FLAG_FROM_TRANSCRIPT} if by_transcript else set()
        flags |= {FLAG_RECOVERED} if recovered else set()
        body = await _framed(request, text, confirmed=confirmed or request.raw, recovered=recovered, denied=denied)
        return await self._end(
            request,
            Event.ANSWERED,
            attempt,
            Kind.REPLY,
            body,
            text,
            flags,
            reply_preview=_preview(text),
            handed_over=True,
            denied=denied,
        )

    def _belongs_to(self, request: Delivery, answer: str, *, recovered: bool) -> str:
        """The other request that an answer closes with (DE-43); one that nobody made counts where nobody saw the turn (DE-34)."""
        named = closing_token(answer)
        if request.raw or named in (None, request.token):
            return ""
        known = self._book.store.request_named(request.agent, request.session, named or "")
        return known or (f"{named}, unknown here" if recovered else "")

    async def came_late(self, watch: LateWatch, answer: str, *, recovered: str = "") -> None:
        """What was watched for has been found: it is told as a message of its own, and the watch is over (DE-43).

        Raises:
            LookupError: the request is forgotten, or its watch was over already; nothing has happened.
        """
        request = self._book.delivery(watch.request)
        if request is None:
            raise LookupError(f"{watch.request} is forgotten")
        confirmed = closes_with(answer, request.token)
        text = without_closing_token(answer, request.token) if confirmed else answer
        body = await _framed(request, text, confirmed=confirmed, recovered=recovered, late=True)
        returns = await self._returns(request)
        message = self._message(request, Kind.LATE, text)
        flags = {FLAG_LATE} | ({FLAG_RECOVERED} if recovered else set()) | (set() if returns else {FLAG_STATUS_ONLY})
        added: list[Delivery] = []

        def also(transaction: Transaction) -> None:
            if not transaction.remove_watch(watch.request):
                raise LookupError(f"{watch.request} is not watched any more")
            if returns:
                added.append(transaction.add_delivery(message, body))

        def change(row: Delivery) -> Delivery:
            return replace(
                _flagged(row, flags),
                late_reply=message.id if returns else "",
                reply_preview=_preview(text),
                updated=wall_clock(),
            )

        await self._book.amend(request.id, change, also)
        self._go_out(added)

    async def failed(
        self,
        request: Delivery,
        event: Event,
        code: str,
        reason: str,
        *,
        attempt: AttemptRecord | None,
        flags: AbstractSet[str] = frozenset(),
    ) -> Delivery:
        """The delivery ends without an answer. A failed reply or notice has nobody to be told.

        Raises IllegalStepError when it has ended already.
        """
        if event is Event.UNPROVEN:
            outcome = envelope.UNCERTAIN
        elif event is Event.ENDED:
            outcome = envelope.NO_ANSWER
        else:
            outcome = envelope.NOT_DELIVERED
        flags = {*flags} if event in (Event.ENDED, Event.UNPROVEN) else {*flags, FLAG_UNDELIVERED}
        fields: dict[str, Any] = {"error_code": code, "error": reason}
        if event is Event.ENDED:
            fields["handed_over"] = True
        elif event is not Event.UNPROVEN:
            fields["handed_over"] = False  # an agent's queue has given it back
        if request.kind is not Kind.REQUEST:
            ended = await self._book.apply(request, event, attempt=attempt, flags=tuple({*request.flags, *flags}), **fields)
            await self._tell_parent(ended)
            return ended
        body = envelope.failure(
            sender_of(request.agent, request.session), thread_of(request), request.summary, reason, outcome=outcome
        )
        return await self._end(request, event, attempt, Kind.NOTICE, body, reason, flags, **fields)

    async def withdrawn(self, delivery: Delivery, *, attempt: AttemptRecord | None) -> Delivery:
        """The delivery was taken back before its turn. Whoever wanted that knows it; nobody else is told."""
        flags = tuple({*delivery.flags, FLAG_UNDELIVERED} - {FLAG_UNWANTED, FLAG_WAITING})
        ended = await self._book.apply(delivery, Event.WITHDRAW, attempt=attempt, flags=flags, handed_over=False)
        await self._tell_parent(ended)
        return ended

    async def still_working(self, request: Delivery, state: str, *, to_sender: bool = True) -> None:
        """One note on the record, and one notice to a session that can read it now (DE-30)."""
        if request.progress_note:
            return
        minutes = int((wall_clock() - request.created) // 60)
        note = f"after {minutes} min there is no answer yet: {state}"
        if not to_sender:
            await self._book.annotate(request, progress_note=note)
            return
        body = envelope.progress(sender_of(request.agent, request.session), thread_of(request), request.summary, minutes, state)
        notice = self._message(request, Kind.PROGRESS, state)
        added: list[Delivery] = []
        await self._book.annotate(
            request,
            also=lambda transaction: added.append(transaction.add_delivery(notice, body)),
            progress_delivery=notice.id,
            progress_note=note,
        )
        self._go_out(added)

    def is_pointless(self, message: Delivery) -> bool:
        """Whether it would tell of a turn that goes on, and that turn is over (DE-30)."""
        request = self._book.delivery(message.parent) if message.kind is Kind.PROGRESS else None
        return request is not None and not request.open

    async def _end(
        self,
        request: Delivery,
        event: Event,
        attempt: AttemptRecord | None,
        kind: Kind,
        body: str,
        words: str,
        flags: set[str],
        **fields: Any,
    ) -> Delivery:
        """Ends a request and records its return message, which says ``words`` in its frame, in one transaction."""
        returns = await self._returns(request)
        if not returns:
            flags = flags | {FLAG_STATUS_ONLY}
        message = self._message(request, kind, words)
        added: list[Delivery] = []
        watch = watch_after(
            request,
            event,
            attempt,
            confirmed=FLAG_CONFIRMED in flags,
            code=fields.get("error_code", ""),
            reason=words,
            wall=wall_clock(),
            boot=boot_clock(),
        )

        def also(transaction: Transaction) -> None:
            if returns:
                added.append(transaction.add_delivery(message, body))
            if watch is not None:
                transaction.add_watch(watch)

        ended = await self._book.apply(
            request,
            event,
            attempt=attempt,
            also=also,
            flags=tuple({*request.flags, *flags} - {FLAG_WAITING}),
            return_delivery=message.id if returns else "",
            **fields,
        )
        self._go_out(added)
        if watch is not None:
            self.begin_watch(watch)
        return ended

    async def _returns(self, request: Delivery) -> bool:
        """Whether a message finds its way back at this moment (DE-41)."""
        if not request.sender_session:
            return False
        where = (request.sender_agent, request.sender_store, request.sender_session)
        panels, doors = uses_panels(request.settings), uses_doors(request.settings)
        return bool(await self._way_back(*where, panels=panels, doors=doors))

    def _go_out(self, messages: list[Delivery]) -> None:
        """They are in the database."""
        for message in messages:
            self._book.admit(message)
            self._carry(message)

    async def _tell_parent(self, ended: Delivery) -> None:
        """A return message that could not be delivered leaves its request with the record alone (DE-41)."""
        request = self._book.delivery(ended.parent) if ended.parent else None
        if request is None or ended.state not in (State.FAILED, State.WITHDRAWN):
            return
        if ended.id in (request.return_delivery, request.late_reply):
            await self._book.amend(request.id, lambda row: _flagged(row, {FLAG_STATUS_ONLY}))

    def _message(self, request: Delivery, kind: Kind, words: str) -> Delivery:
        """The way back: from the request's target to its sender."""
        now = wall_clock()
        identifier = new_delivery_id()
        return Delivery(
            id=identifier,
            kind=kind,
            state=State.QUEUED,
            agent=request.sender_agent,
            session=request.sender_session,
            conversation=request.conversation,
            hop=request.hop,
            max_hops=request.max_hops,
            created=now,
            deadline=awake_clock() + wait_of(request.settings),  # a busy sender is waited for as a busy peer is (DE-31)
            selected_by="return",
            sender_agent=request.agent,
            sender_session=request.session,
            sender_cwd=request.cwd,
            key=agent(request.sender_agent).new_key(identifier, "") if request.sender_agent else "",
            parent=request.id,
            updated=now,
            summary=envelope.summary(words),
            cwd=request.sender_cwd,
            store=request.sender_store,
            settings=request.settings,
        )


async def _framed(
    request: Delivery, text: str, *, confirmed: bool, recovered: str, late: bool = False, denied: tuple[str, ...] = ()
) -> str:
    return await beside_the_loop(
        len(text),
        envelope.reply,
        sender_of(request.agent, request.session),
        thread_of(request),
        request.summary,
        text,
        confirmed=confirmed,
        recovered=recovered,
        longest=agent(request.sender_agent).longest if request.sender_agent else None,
        delivery=request.id,
        late=late,
        denied=denied,
    )


def _preview(text: str) -> str:
    return envelope.sanitised(text[: 2 * PREVIEW])[:PREVIEW]


def _flagged(delivery: Delivery, flags: Collection[str]) -> Delivery:
    return replace(delivery, flags=tuple({*delivery.flags, *flags}))


def sender_of(name: str, session: str) -> Sender:
    """A session as the envelope names it."""
    described = agent(name)
    return Sender(described.product, name, session, described.tool)


def thread_of(delivery: Delivery) -> Thread:
    return Thread(delivery.conversation, delivery.hop, delivery.max_hops)
