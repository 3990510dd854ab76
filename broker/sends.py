"""A send: from the call to the recorded delivery and its receipt (DE-01, DE-02, DE-03).

Owns the order of a send: repeated call, text, caller, guards, target, conversation, record. Everything after that belongs
to the carrier; the receipt comes back at once, whatever the target does.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

from broker import envelope, guards, receipts
from broker.beside import beside_the_loop
from broker.book import Book
from broker.callers import Caller
from broker.carrier import Carrier
from broker.clock import awake_clock, wall_clock
from broker.deliveries import Delivery, Kind, State, new_conversation_id, new_delivery_id, new_token
from broker.forgery import neutralised
from broker.pace import Pace
from broker.resolve import Asked, Seen, Selected, resolve
from broker.routes import Held, Open, Reach, Unreachable, Wait
from broker.routes.panel import PANEL
from broker.settings import DEFAULT_TIMEOUT, CallerSettings, Grants, caller_settings
from broker.sight import Sight
from broker.store import Transaction
from broker.turns.allowed import Allowed, allowed
from broker.turns.environment import in_memory, kept
from broker.turns.started import ROUTE as HEADLESS
from shims.agent import agent

log = logging.getLogger("broker.sends")

_MAY_GROW_TOO_LONG = 250_000
"""Characters from which on a text may become too long for some agent when each of its lines is quoted."""

_IDLE_POLICY = "a turn without output and without growth of its transcript for so long is ended"
_REPEAT_WINDOW = 60.0
"""Seconds after the cancellation of a call in which the same call is taken for its repetition (MC-09)."""


class Ways(Protocol):
    """What leads to sessions that are open (`broker.routes.choice.Routes`)."""

    async def find(self, agent: str, store: str, session: str) -> Open | Held | None: ...

    async def way_back(self, agent: str, store: str, session: str, *, panels: bool, doors: bool) -> str: ...


@dataclass(frozen=True, slots=True)
class SendCall:
    """What a caller asks for; ``key`` names the call for ever, ``origin`` the MCP session or client it came from."""

    target: str
    message: str
    key: str
    origin: str
    caller: Caller
    cwd: str
    scope: str = "cwd"
    session: str = ""
    new_session: bool = False
    conversation: str = ""
    timeout: float = 600.0
    raw: bool = False
    allow_same_agent: bool = False
    settings: dict[str, str] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    """What the caller's MCP process told of its environment: which stores it means (SE-13), what a started turn gets (EN-11)."""
    withheld: tuple[str, ...] = ()
    """Names of variables that authenticate, and are set there."""
    umask: int = 0o022

    def fingerprint(self) -> str:
        """The same for every call of this origin that says the same to the same target; tells nobody what it says."""
        said = (self.origin, self.target, self.session, self.new_session, self.conversation, self.raw, self.message)
        return hashlib.sha256("\0".join(map(str, said)).encode(errors="surrogatepass")).hexdigest()


@dataclass(slots=True)
class _UnderWay:
    """A call whose receipt is not there yet; ``cancelled`` is when its client did that, 0 if it did not."""

    fingerprint: str
    task: asyncio.Task[dict[str, Any]]
    cancelled: float = 0.0


class Sends:
    """Accepts sends.

    Args:
        routes: what leads to sessions that are open.
        startable: whether a turn could be started for a delivery at this moment.
    """

    def __init__(
        self,
        book: Book,
        carrier: Carrier,
        sight: Sight,
        grants: Callable[[], Grants],
        routes: Ways,
        startable: Callable[[Delivery], Awaitable[Reach | Wait | Unreachable]],
    ) -> None:
        self._book = book
        self._carrier = carrier
        self._sight = sight
        self._grants = grants
        self._routes = routes
        self._startable = startable
        self._under_way: dict[str, _UnderWay] = {}
        """Calls by their key."""
        self._notes: set[asyncio.Future[None]] = set()
        """Cancellations on their way to the disk."""

    async def send(self, call: SendCall) -> dict[str, Any]:
        """The receipt of ``call``; a call that was made before gets the receipt it got then.

        Raises:
            Refusal: nothing was queued and no hop was spent.
        """
        known = self._book.store.by_request_key(call.key)
        if known is not None:
            return receipts.receipt_for(call.key, known)
        under_way = self._under_way.get(call.key)
        if under_way is None:
            fingerprint = call.fingerprint()
            before = [other.task for other in self._under_way.values() if other.cancelled and other.fingerprint == fingerprint]
            task = asyncio.get_running_loop().create_task(self._answer(call, fingerprint, before))
            under_way = self._under_way[call.key] = _UnderWay(fingerprint, task)
        try:
            # A client that cancels the call does not stop the delivery: it is the broker's from here on (DE-21).
            return await asyncio.shield(under_way.task)
        except asyncio.CancelledError:
            self.cancelled(call.key)  # told before the call was begun
            raise

    def cancelled(self, key: str) -> None:
        """The client has cancelled a call, whether or not it was answered: it may repeat it without sending twice (MC-09).

        Told again by each process that meets a new broker, of the calls that it remembers.
        """
        under_way = self._under_way.get(key)
        if under_way is None:
            self._note_cancelled(key, wall_clock())
        elif not under_way.cancelled:
            under_way.cancelled = wall_clock()

    def _note_cancelled(self, key: str, at: float) -> None:
        note = self._book.store.write(lambda transaction: transaction.cancel_call(key, at))
        self._notes.add(note)
        note.add_done_callback(self._noted)

    def _noted(self, note: asyncio.Future[None]) -> None:
        self._notes.discard(note)
        if not note.cancelled():
            note.exception()  # the store has told the broker, which ends

    async def _answer(self, call: SendCall, fingerprint: str, before: list[asyncio.Task[dict[str, Any]]]) -> dict[str, Any]:
        """The receipt of a new call. ``before``: cancelled calls that say the same, and may or may not be recorded yet."""
        try:
            if before:
                await asyncio.wait(before)
            repeated = await self._repeated(call.key, fingerprint)
            return repeated if repeated is not None else await self._accept(call, fingerprint)
        finally:
            if at := self._under_way.pop(call.key).cancelled:
                self._note_cancelled(call.key, at)

    async def _repeated(self, key: str, fingerprint: str) -> dict[str, Any] | None:
        """The receipt of the cancelled call that this one repeats, and from now on stands for: one repetition each."""
        store = self._book.store
        if self._notes:
            await asyncio.wait(self._notes)
        while (identifier := store.cancelled_call(fingerprint, wall_clock() - _REPEAT_WINDOW)) is not None:
            if await store.write(partial(Transaction.repeat_call, delivery=identifier, key=key)):
                delivery = self._book.delivery(identifier)
                return receipts.receipt_for(key, delivery) if delivery is not None else None
        return None

    async def _accept(self, call: SendCall, fingerprint: str) -> dict[str, Any]:
        guards.check_text(call.message)
        settings = caller_settings(call.settings, self._grants())
        guards.check_any_route(settings)
        guards.check_explicit_target(settings, session=call.session, new=call.new_session)
        target = agent(call.target)
        guards.check_same_agent(target, call.caller, session=call.session, allowed=call.allow_same_agent)
        changes, length = await beside_the_loop(len(call.message), _as_sent, target.name, call.message, raw=call.raw)
        guards.check_fits(target, length)
        asked = Asked(
            target,
            call.caller,
            call.session.strip(),
            call.new_session,
            os.path.realpath(call.cwd),
            call.scope,
            wall_clock(),
            settings.active,
            starts=settings.headless and target.headless is not None,
            panels_only=settings.require_panel,
            doors=settings.use_doors,
            doors_are_panels=settings.doors_are_panels,
        )
        seen = await self._sight.seen(asked, call.environment)
        selected = resolve(asked, seen)
        log.debug("%s selected by %s, of %d in its store", selected.session or "a new one", selected.by, len(seen.store))
        guards.check_not_self(call.caller, selected)
        runs = self._runs_turn(selected)
        found = await self._found(selected, seen, settings) if not runs else None
        guards.check_reachable(selected, found, settings)
        guards.check_accepts(selected)
        may = allowed(target.name, target.headless, call.settings, self._grants().values) if target.headless else Allowed()
        conversation, max_hops = self._conversation(call, settings)
        idle = settings.timeout if call.timeout == DEFAULT_TIMEOUT else call.timeout
        now = wall_clock()
        token = new_token(now)
        identifier = new_delivery_id()
        delivery = Delivery(
            id=identifier,
            kind=Kind.REQUEST,
            state=State.QUEUED,
            agent=target.name,
            session=selected.session,
            instance="" if selected.session else str(selected.panel.process) if selected.panel is not None else identifier,
            conversation=conversation,
            hop=0,
            max_hops=max_hops,
            created=now,
            deadline=awake_clock() + max(idle, settings.patience),
            target_name=selected.name,
            selected_by=selected.by,
            sender_agent=call.caller.agent,
            sender_session=call.caller.session,
            sender_cwd=call.caller.panel.cwd if call.caller.panel is not None else call.cwd,
            sender_store=call.caller.stores.get(call.caller.agent, ""),
            token=token,
            key=target.new_key(identifier, token),
            raw=call.raw,
            request_key=call.key,
            updated=now,
            summary=envelope.summary(call.message),
            settings=call.settings,
            cwd=_directory(call, selected),
            route=_route(selected, found, settings),
            store=seen.store.path,
            idle=idle,
            environment=kept(call.environment),
            unwritten=tuple(sorted(in_memory(call.environment, may.named))),
            withheld=tuple(name for name in call.withheld if name not in may.named),
            origin=call.origin,
            umask=call.umask,
        )
        if delivery.route == HEADLESS and not runs:
            guards.check_startable(selected, await self._startable(delivery))
        caller, ahead = call.caller, self._book.queue(delivery.target)
        returns = await self._way_back(caller, settings)
        notes = (*settings.notes, *(may.notes if delivery.route == HEADLESS else ()))
        opened = found if isinstance(found, Open) else None
        warned = receipts.warnings(caller, selected, opened, returns=bool(returns), runs=runs, notes=notes, changes=changes)
        receipt = receipts.receipt(delivery, selected, opened, ahead, returns=returns, runs=runs, warned=warned)
        pace = Pace(settings.max_exchanges, settings.exchange_window)
        added = await self._book.add_request(
            delivery, call.message, lambda added: receipts.numbered(receipt, added), fingerprint, pace
        )
        self._carrier.carry(added)
        return added.receipt

    def _conversation(self, call: SendCall, settings: CallerSettings) -> tuple[str, int]:
        """The conversation that this send belongs to, and the hops it has (DE-50). Raises Refusal."""
        if call.conversation:
            found = self._book.store.conversation(call.conversation)
            if found is None:
                raise guards.unknown_conversation(call.conversation)
            if found[0] >= found[1]:
                raise guards.hop_limit(call.conversation, found[1])
            return call.conversation, found[1]
        running = self._runs_in(call.caller)  # a forgetful peer can't open a fresh budget in the middle of a chain
        found = self._book.store.conversation(running) if running else None
        if found is None:
            return new_conversation_id(), settings.max_hops
        if found[0] >= found[1]:
            raise guards.hop_limit(running, found[1])
        return running, found[1]

    def _runs_in(self, caller: Caller) -> str:
        """The conversation whose injected or started turn the caller's session is running; empty: none, or none known.

        What is under way is known here, and counts more than what a started turn was told.
        """
        state = caller.panel.session(caller.session) if caller.panel is not None else None
        if state is not None and (state.running or state.turn_since):
            running = self._book.attempt(state.running) if state.running else None
        elif state is not None or caller.headless:  # who calls runs a turn; of one that has just begun a shim may not have told
            running = self._book.open_attempt_at((caller.agent, caller.session, ""))
        else:
            running = self._book.open_attempt_at((*caller.within, "")) if caller.within is not None else None
        delivery = self._book.delivery(running.delivery) if running is not None else None
        return delivery.conversation if delivery is not None else caller.conversation

    async def _found(self, selected: Selected, seen: Seen, settings: CallerSettings) -> Open | Held | None:
        """What leads to a session by a door of its agent's, where no panel does; None: nobody holds it."""
        by_panel = selected.panel is not None and settings.use_panels
        if by_panel or not selected.session:
            return None
        if not settings.use_doors:
            holders = seen.held.get(selected.session, ())
            return Held(holders[0], *_DOORS_OFF) if holders else None
        return await self._routes.find(selected.target.name, seen.store.path, selected.session)

    async def _way_back(self, caller: Caller, settings: CallerSettings) -> str:
        if not caller.session or caller.headless:
            return ""
        store = caller.stores.get(caller.agent, "")
        return await self._routes.way_back(
            caller.agent, store, caller.session, panels=settings.use_panels, doors=settings.use_doors
        )

    def _runs_turn(self, selected: Selected) -> bool:
        """Whether the session, which no panel holds, runs a turn that was started here."""
        if selected.panel is not None or not selected.session:
            return False
        attempt = self._book.open_attempt_at((selected.target.name, selected.session, ""))
        return attempt is not None and not attempt.by_door


_DOORS_OFF = (
    "live doors are switched off for this registration (CROSS_AGENT_LIVE_DOORS)",
    "Remove CROSS_AGENT_LIVE_DOORS from the registration, open the session in an editor panel, or close it.",
)


def _route(selected: Selected, found: Open | Held | None, settings: CallerSettings) -> str:
    """By which the delivery is expected to go; looked at again when its turn has come."""
    if selected.panel is not None and settings.use_panels:
        return PANEL
    return found.door.name if isinstance(found, Open) else HEADLESS


def _directory(call: SendCall, selected: Selected) -> str:
    """Where the session works; a conversation that is yet to be opened: where the caller wants it."""
    if selected.by == "new" and not selected.session:
        return call.cwd
    told = selected.state.cwd if selected.state is not None else ""
    return told or (selected.known.cwd if selected.known is not None else "") or call.cwd


def _as_sent(target: str, message: str, *, raw: bool) -> tuple[tuple[str, ...], int]:
    """What of the message must be changed for it to be harmless at ``target``, and its length then, without a frame."""
    text, changes = agent(target).disarm(message)
    if raw:
        text, prefixed = envelope.unframed(text)
        return (*changes, *prefixed), len(text)
    return changes, len(neutralised(text)) if len(text) > _MAY_GROW_TOO_LONG else len(text)
