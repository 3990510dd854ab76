"""The open deliveries and attempts, in memory as they are in the database. Every change of one is made here.

Owns the rule that a change is durable before anything outside can see it (DE-20): `apply` writes first, then remembers,
then publishes. Knows nothing of routes or panels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from broker.clock import awake_clock, wall_clock
from broker.deliveries import EVIDENCE_ORDER, Attempt, Delivery, Event, Evidence, State, step
from broker.events import Events
from broker.failpoints import fail_point
from broker.guards import hop_limit
from broker.pace import Pace
from broker.settings import wait_of
from broker.store import Store, Transaction

_CHECKPOINT_AFTER = 16
"""Bodies removed until the log is emptied at once; less often while traffic flows, in any case with the last body."""

_WITH_BODY = (State.QUEUED, State.DELIVERING)
"""What may have to be handed over, perhaps again, has its text stored; nothing else has (DE-23)."""


class Book:
    """What is under way."""

    def __init__(self, store: Store, events: Events) -> None:
        self.store = store
        self._events = events
        self._deliveries: dict[str, Delivery] = {}
        self._attempts: dict[str, Attempt] = {}
        self._bodies_removed = 0

    def load(self) -> None:
        """Takes over what an earlier broker left under way."""
        for delivery in self.store.open_deliveries():
            self._deliveries[delivery.id] = delivery if self.store.same_boot else _rebased(delivery)
        for attempt in self.store.open_attempts():
            self._attempts[attempt.id] = attempt
            if attempt.delivery not in self._deliveries:
                delivery_of = self.store.delivery(attempt.delivery)
                if delivery_of is not None:
                    self._deliveries[delivery_of.id] = delivery_of

    # looking

    def delivery(self, identifier: str) -> Delivery | None:
        """The delivery as it is now, open or long finished."""
        return self._deliveries.get(identifier) or self.store.delivery(identifier)

    def deliveries(self) -> Iterable[Delivery]:
        """Those that are open, or whose turn still runs, oldest first."""
        return sorted(self._deliveries.values(), key=lambda delivery: delivery.sequence)

    def attempt(self, identifier: str) -> Attempt | None:
        return self._attempts.get(identifier)

    def open_attempts(self) -> list[Attempt]:
        return list(self._attempts.values())

    def open_attempt_of(self, delivery: str) -> Attempt | None:
        return next((attempt for attempt in self._attempts.values() if attempt.delivery == delivery), None)

    def open_attempt_at(self, target: tuple[str, str, str]) -> Attempt | None:
        """The hand-over that a session is occupied with: its turn has not ended."""
        for attempt in self._attempts.values():
            delivery = self._deliveries.get(attempt.delivery)
            if delivery is not None and (delivery.target == target or _opens(delivery, attempt, target)):
                return attempt
        return None

    def started_turns(self) -> set[tuple[str, str]]:
        """The sessions, by agent and id, in which a turn runs that was started on a command line."""
        started = [attempt for attempt in self._attempts.values() if not attempt.instance]
        found = [(attempt, self._deliveries.get(attempt.delivery)) for attempt in started]
        return {(delivery.agent, delivery.session or attempt.session) for attempt, delivery in found if delivery is not None}

    def queue(self, target: tuple[str, str, str]) -> list[Delivery]:
        """What waits for one session, in order."""
        return [delivery for delivery in self.deliveries() if delivery.target == target and delivery.state is State.QUEUED]

    # changing

    async def add_request(
        self,
        delivery: Delivery,
        body: str,
        receipt: Callable[[Delivery], dict[str, Any]],
        fingerprint: str = "",
        pace: Pace | None = None,
    ) -> Delivery:
        """Records a request: it spends a hop of its conversation, and carries the receipt that a repeated call gets.

        Args:
            fingerprint: what tells a repetition of its call from another call.
            pace: how many requests its two sessions may send each other.

        Raises:
            Refusal: no hop is left, or the two sessions have sent each other too much.
            sqlite3.IntegrityError: the request key is known.
        """

        def change(transaction: Transaction) -> Delivery:
            if pace is not None:
                pace.check(transaction, delivery)
            hop, allowed = transaction.spend_hop(delivery.conversation, delivery.max_hops, delivery.created)
            if hop > allowed:
                raise hop_limit(delivery.conversation, allowed)
            numbered = replace(delivery, hop=hop, max_hops=allowed)
            if fingerprint:
                transaction.add_call(delivery.id, delivery.request_key, fingerprint)
            return transaction.add_delivery(replace(numbered, receipt=receipt(numbered)), body)

        fail_point("broker.request.before")
        added = await self.store.write(change)
        fail_point("broker.request.after")
        self.admit(added)
        return added

    def admit(self, delivery: Delivery) -> None:
        """A delivery that was recorded together with a change of another one."""
        self._deliveries[delivery.id] = delivery
        self._publish(delivery)

    async def apply(
        self,
        delivery: Delivery,
        event: Event,
        *,
        attempt: Attempt | None = None,
        also: Callable[[Transaction], None] | None = None,
        **fields: Any,
    ) -> Delivery:
        """Moves ``delivery`` by ``event``, together with its attempt and with whatever ``also`` does.

        Raises:
            IllegalStepError: the event does not fit the state; nothing has happened.
        """
        changed = replace(delivery, state=step(delivery.state, event), updated=wall_clock(), **fields)
        body_done = delivery.state in _WITH_BODY and changed.state not in _WITH_BODY

        def change(transaction: Transaction) -> None:
            transaction.update_delivery(changed, delivery.state)
            if attempt is not None:
                transaction.save_attempt(attempt)
            if body_done:
                transaction.remove_body(changed.id)
            if also is not None:
                also(transaction)

        fail_point(f"broker.{event.value}.before")
        await self.store.write(change)
        fail_point(f"broker.{event.value}.after")
        self._deliveries[changed.id] = changed
        if attempt is not None:
            self._remember(attempt)
        if body_done:
            self._body_removed()
        self._publish(changed)
        self._forget(changed.id)
        return changed

    async def annotate(self, delivery: Delivery, also: Callable[[Transaction], None] | None = None, **fields: Any) -> Delivery:
        """Changes what is noted of a delivery without moving it."""
        changed = replace(delivery, updated=wall_clock(), **fields)

        def change(transaction: Transaction) -> None:
            transaction.update_delivery(changed, delivery.state)
            if also is not None:
                also(transaction)

        await self.store.write(change)
        if changed.id in self._deliveries:
            self._deliveries[changed.id] = changed
        self._publish(changed)
        return changed

    async def amend(
        self, identifier: str, change: Callable[[Delivery], Delivery], also: Callable[[Transaction], None] | None = None
    ) -> Delivery:
        """As `annotate`, for one that may be changed from two sides at once: ``change`` gets the row as it is then.

        Raises:
            LookupError: it is forgotten.
        """

        def amend(transaction: Transaction) -> Delivery:
            amended = transaction.amend_delivery(identifier, change)
            if also is not None:
                also(transaction)
            return amended

        changed = await self.store.write(amend)
        if identifier in self._deliveries:
            self._deliveries[identifier] = changed
        self._publish(changed)
        return changed

    async def save_attempt(self, attempt: Attempt) -> None:
        await self.store.write(lambda transaction: transaction.save_attempt(attempt))
        self._remember(attempt)
        self._forget(attempt.delivery)

    def advanced(self, attempt: Attempt, evidence: Evidence, **fields: Any) -> Attempt:
        """``attempt`` with at least this evidence: it never shrinks."""
        if EVIDENCE_ORDER.index(evidence) < EVIDENCE_ORDER.index(attempt.evidence):
            evidence = attempt.evidence
        return replace(attempt, evidence=evidence, **fields)

    def _remember(self, attempt: Attempt) -> None:
        if attempt.open:
            self._attempts[attempt.id] = attempt
        else:
            self._attempts.pop(attempt.id, None)

    def _forget(self, identifier: str) -> None:
        delivery = self._deliveries.get(identifier)
        if delivery is not None and not delivery.open and self.open_attempt_of(identifier) is None:
            del self._deliveries[identifier]

    def _body_removed(self) -> None:
        """Removed bodies leave the log as well, soon (DE-23)."""
        self._bodies_removed += 1
        last = not any(delivery.state in _WITH_BODY for delivery in self._deliveries.values())
        if last or self._bodies_removed >= _CHECKPOINT_AFTER:
            self._bodies_removed = 0
            self.store.checkpoint()

    def _publish(self, delivery: Delivery) -> None:
        self._events.publish(
            "delivery",
            delivery=delivery.id,
            state=delivery.state.value,
            delivery_kind=delivery.kind.value,
            from_agent=delivery.sender_agent,
            from_session=delivery.sender_session,
            to_agent=delivery.agent,
            to_session=delivery.session,
            conversation=delivery.conversation,
            hop=delivery.hop,
            parent=delivery.parent,
            code=delivery.error_code,
        )


def _rebased(delivery: Delivery) -> Delivery:
    """After a boot: what is left of its time, by the wall clock, on the clock that has begun anew (crash table, row 15)."""
    left = delivery.created + wait_of(delivery.settings) - wall_clock()
    return replace(delivery, deadline=awake_clock() + max(0.0, left))


def _opens(delivery: Delivery, attempt: Attempt, target: tuple[str, str, str]) -> bool:
    """Whether the conversation that an attempt opens is the target: its id may be known before its turn has begun."""
    return bool(attempt.session) and (delivery.agent, attempt.session, "") == target
