"""The headless route: a turn on the agent's own command line, for a session that nobody holds, or for a new conversation.

Owns what has to be true before one may be started, looked at when the delivery's turn has come: allowed, held by nobody, a
program to start, and everything there that its environment needs (DE-52, EN-11). The start itself is `broker.turns`.
"""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import Callable

from broker.deliveries import Attempt, Delivery
from broker.routes import Reach, Unreachable, Wait
from broker.settings import Grants, caller_settings
from broker.turns.allowed import Allowed, allowed, find_program
from broker.turns.environment import child_environment
from broker.turns.files import Run
from broker.turns.started import ROUTE, StartedTurns
from broker.turns.unwritten import Unwritten
from shims.agent import Agent, agent
from shims.headless import Headless, Order

_HELD = 30.0
"""Seconds that somebody who took the session meanwhile is waited for: a look at it on the command line is soon over."""

_LOOK_AGAIN = 3.0

_TOLD_AGAIN = 5.0
"""Seconds that an MCP process gets to find a new broker, which it tells again what is not written down."""

_LOOK_FOR_VALUES = 0.2


class HeadlessRoute:
    """Starts turns.

    Args:
        holds: whether a shim holds a session.
        grants: the person's, as they are now.
    """

    name = ROUTE

    def __init__(
        self,
        turns: StartedTurns,
        holds: Callable[[str, str], bool],
        grants: Callable[[], Grants],
        unwritten: Unwritten,
    ) -> None:
        self._turns = turns
        self._holds = holds
        self._grants = grants
        self._unwritten = unwritten

    async def reach(self, delivery: Delivery, waited: float) -> Reach | Wait | Unreachable:
        target, headless = _described(delivery)
        grants = self._grants()
        if self._turns.ending:
            return Wait(self._turns.ending, 0)
        if headless is None or not caller_settings(delivery.settings, grants).headless:
            return Unreachable("headless_disabled", "it is not open, and this registration starts no turns on the command line")
        if delivery.session and (held := await self._held(target, delivery)):
            if waited >= _HELD:
                return Unreachable("session_held", held)
            return Wait(held, min(_LOOK_AGAIN, _HELD - waited), "session_held")
        missing = [name for name in delivery.unwritten if name not in self._unwritten.of(delivery.origin)]
        if missing and waited < _TOLD_AGAIN:
            return Wait("values of its environment are not told yet", _LOOK_FOR_VALUES)
        if missing:
            names = ", ".join(missing)
            return Unreachable("environment_lost", f"the values of {names} went with the process that it came from")
        may = allowed(target.name, headless, delivery.settings, grants.values)
        environment = self._environment(delivery, "")
        program = await asyncio.to_thread(find_program, headless.product, may.binary, environment)
        if program is None:
            where = may.binary or f"no {headless.product.program} on its PATH"
            return Unreachable("no_program", f"{target.product} cannot be started: {where}")
        new = str(uuid.uuid4()) if headless.chooses_id and not delivery.session else ""
        return Reach(ROUTE, "", "", delivery.store, new, program)

    async def hand_over(self, delivery: Delivery, attempt: Attempt, reach: Reach, text: str) -> bool:
        target, headless = _described(delivery)
        assert headless is not None
        may = allowed(target.name, headless, delivery.settings, self._grants().values)
        mode = await asyncio.to_thread(_mode, headless, may, delivery)
        order = Order(
            delivery.session, reach.session, delivery.key, self._turns.prompt(attempt.id), delivery.cwd, may.model, mode
        )
        environment = self._environment(delivery, attempt.session)
        run = Run(
            agent=target.name,
            store=delivery.store,
            session=delivery.session,
            expected=attempt.session,
            argv=(reach.program, *headless.arguments(order)),
            by_file=headless.by_file,
            cwd=delivery.cwd,
            names=tuple(environment),
            idle=delivery.idle,
            token=delivery.token,
            umask=delivery.umask,
        )
        await self._turns.start(attempt, run, headless.input(text, delivery.key), environment)
        return True

    def withdraw(self, attempt: Attempt) -> None:
        """What has been started is not taken back (DE-26)."""

    def runs(self, attempt: Attempt) -> bool:
        return self._turns.runs(attempt.id)

    def looked(self, attempt: Attempt | None) -> None:
        """Its runner tells what becomes of it."""

    def forget(self, attempt: Attempt) -> None:
        """Its files go when its runner has ended."""

    async def _held(self, target: Agent, delivery: Delivery) -> str:
        """Who holds the session, in words; empty: nobody."""
        if self._holds(target.name, delivery.session):
            return "a panel holds it"
        holders = await asyncio.to_thread(target.holders, delivery.store, delivery.session)
        return f"process {holders[0].pid} holds it" if holders else ""

    def _environment(self, delivery: Delivery, session: str) -> dict[str, str]:
        values = self._unwritten.of(delivery.origin)
        described, baseline = agent(delivery.agent), dict(delivery.environment)
        if delivery.store != described.store_in(baseline):
            baseline[described.store_variable] = delivery.store
        return child_environment(
            baseline,
            delivery.settings,
            {name: values[name] for name in delivery.unwritten if name in values},
            agent=delivery.agent,
            session=session,
            conversation=delivery.conversation,
            trusted_path=os.environ.get("PATH", ""),
        )


def _mode(headless: Headless, may: Allowed, delivery: Delivery) -> str:
    """The strictest of what was asked for and what the session is in (EN-17)."""
    if not delivery.session:
        return may.mode
    asked = "" if headless.new_only else may.mode
    modes = [mode for mode in (asked, headless.resumed_mode(delivery.store, delivery.session)) if mode]
    return min(modes, key=lambda mode: headless.modes.index(mode) if mode in headless.modes else 0, default="")


def _described(delivery: Delivery) -> tuple[Agent, Headless | None]:
    described = agent(delivery.agent)
    return described, described.headless
