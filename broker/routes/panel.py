"""The panel route: a session that is live in an editor, behind a shim.

Owns the choice among panels that hold one session (SH-15) and the orders to shims. Knows who is there from `Panels`, and
from the presence records who is about to be (SH-22).
"""

from __future__ import annotations

from broker.clock import awake_clock, boot_clock
from broker.deliveries import Attempt, Delivery
from broker.failpoints import fail_point
from broker.panels import Panel, Panels
from broker.paths import Home
from broker.peers import Peers
from broker.routes import Reach, Unreachable, Wait
from broker.wire import Ask, Forget, Inject, Withdraw
from shims.agent import agent
from shims.presence import living

_TWO_HOLDERS = 15.0
"""Seconds that a reloading window gets until its old process is gone."""

REOPENED = 60.0
"""Seconds that a closed session is waited for: a reopened tab is found (DE-41)."""

_TITLE = 60


PANEL = "panel"


class PanelRoute:
    name = PANEL

    def __init__(self, home: Home, panels: Panels, peers: Peers, generation: int) -> None:
        self._home = home
        self._panels = panels
        self._peers = peers
        self._generation = generation

    async def reach(self, delivery: Delivery, waited: float) -> Reach | Wait | Unreachable:
        if not delivery.session:
            panel = self._panels.by_instance(delivery.instance)
            if panel is None or panel.closing:
                return Unreachable("panel_closed", "the panel that was to open the conversation has been closed")
            return _reach(panel)
        panels = self._panels.hosting(delivery.agent, delivery.session)
        staying = [panel for panel in panels if not panel.closing]
        if len(panels) > 1:
            if waited < _TWO_HOLDERS:
                return Wait(f"{len(panels)} panels hold the session", _TWO_HOLDERS - waited)
            if len(staying) > 1:
                both = " and ".join(f"process {panel.process.pid} in {panel.cwd}" for panel in staying)
                return Unreachable("session_open_twice", f"the session is open in two panels: {both}")
        if not staying:
            if waited >= REOPENED:
                return Unreachable("panel_closed", "the session's panel has been closed")
            return Wait("its panel is closed", REOPENED - waited, "panel_closed")
        panel = staying[0]
        state = panel.session(delivery.session)
        if state is None or not state.accepts:
            return Unreachable("not_accepting", f"the panel takes no messages: {state.why_not if state else 'no session'}")
        if state.turn_since and not state.accepts_busy:
            return Wait("a turn is running there", 0)
        return _reach(panel)

    async def hand_over(self, delivery: Delivery, attempt: Attempt, reach: Reach, text: str) -> bool:
        panel = self._panels.by_instance(reach.instance)
        if panel is None:
            return False  # it went between the choice and the commit, before its end could be told of this attempt
        title = f"{agent(delivery.sender_agent).product}: {delivery.summary}" if delivery.sender_agent else delivery.summary
        fail_point("broker.inject.before")
        self._peers.send(
            panel.peer,
            Inject(
                delivery=delivery.id,
                attempt=attempt.id,
                key=delivery.key,
                token=delivery.token,
                session=delivery.session,
                text=text,
                generation=self._generation,
                not_after=boot_clock() + delivery.deadline - awake_clock(),
                title=title[:_TITLE],
                cwd=delivery.cwd,
            ),
        )
        fail_point("broker.inject.after")
        return True

    def ask(self, attempt: Attempt) -> None:
        """Asks the instance what became of an attempt; one that never saw it refuses it from then on."""
        panel = self._panels.by_instance(attempt.instance)
        if panel is not None:
            self._peers.send(panel.peer, Ask(attempt.id, self._generation))

    def withdraw(self, attempt: Attempt) -> None:
        panel = self._panels.by_instance(attempt.instance)
        if panel is not None:
            self._peers.send(panel.peer, Withdraw(attempt.id, self._generation))

    def looked(self, attempt: Attempt | None) -> None:
        """Its shim tells what becomes of it."""

    def forget(self, attempt: Attempt) -> None:
        panel = self._panels.by_instance(attempt.instance)
        if panel is not None:
            self._peers.send(panel.peer, Forget(attempt.id, self._generation))

    def holds(self, agent: str, session: str) -> bool:
        """Whether a shim holds the session, registered or about to be (SH-22)."""
        if self._panels.hosting(agent, session):
            return True
        return any(p.agent == agent and session in p.sessions for p in living(self._home.shims))

    def is_live(self, agent: str, session: str) -> bool:
        states = [panel.session(session) for panel in self._panels.hosting(agent, session)]
        if states:
            return any(state is not None and not state.why_not for state in states)
        return any(p.agent == agent and session in p.sessions for p in living(self._home.shims))

    def is_idle(self, agent: str, session: str) -> bool:
        states = [panel.session(session) for panel in self._panels.hosting(agent, session)]
        return bool(states) and all(state is not None and not state.turn_since for state in states)

    def runs(self, attempt: Attempt) -> bool:
        panel = self._panels.by_instance(attempt.instance)
        return panel is not None and any(state.running == attempt.id for state in panel.sessions)


def _reach(panel: Panel) -> Reach:
    return Reach(PANEL, str(panel.process), str(panel.child or ""), panel.store)
