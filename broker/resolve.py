"""Which session is meant (SE-20). Pure: what is known in, one target or one clear refusal out.

Owns the order of resolution, which is `ORDER`: each step finds a target, finds nothing and leaves it to the next one, or
refuses. A named session that does not exist is never replaced by another one, and a conversation that can be gone on with is
preferred to a new one. What only the sessions' records tell of the person's focus, `focus` finds out before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from broker.callers import Caller
from broker.envelope import shown_path
from broker.errors import Refusal
from broker.index.catalogue import Known, Store
from broker.naming import Candidate, check_ready, identified, is_here, named
from broker.panels import Panel, Panels
from broker.pins import Pin
from broker.processes import ProcessId
from broker.scope import relation, within
from broker.settings import DEFAULT_ACTIVE
from broker.wire import SessionState
from shims.agent import Agent


@dataclass(frozen=True, slots=True)
class Asked:
    """What a call says of its target.

    Attributes:
        session: an id, an exact name, or nothing.
        new: it wants a new conversation.
        place: the directory that stands for the caller's, resolved; scope: which others count (SE-10).
        now: wall-clock seconds; active: seconds for which a session counts as active.
        starts: a conversation may be opened on the target's command line (DE-52); panels_only: what nobody named must be in a
            panel; doors_are_panels: or behind a live door (DE-53).
        doors: sessions without a shim are reached by their agents' live doors (LD-07).
    """

    target: Agent
    caller: Caller
    session: str = ""
    new: bool = False
    place: str = ""
    scope: str = "cwd"
    now: float = 0.0
    active: float = DEFAULT_ACTIVE
    starts: bool = False
    panels_only: bool = False
    doors: bool = True
    doors_are_panels: bool = False


@dataclass(frozen=True, slots=True)
class Seen:
    """What there is to choose from.

    Attributes:
        store: the target agent's sessions, as the caller sees them (SE-13).
        held: which living processes hold which session, by the agent's own registry.
        doors: those of them that are reached by a live door.
        moved: when somebody other than us last moved the sessions that are `tied`, as far as is known.
    """

    panels: Panels
    store: Store
    pin: Pin | None = None
    held: Mapping[str, tuple[ProcessId, ...]] = field(default_factory=dict)
    doors: AbstractSet[str] = frozenset()
    moved: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Selected:
    """A target.

    Attributes:
        panel: where it is open; None: in no panel.
        state: the session as its panel shows it; None with a panel: a conversation that is yet to be opened there.
        known: the session as its records show it, where they do; with neither panel nor this it is yet to be opened.
        by: `caller`, `pin`, `panel-focus`, `discovery` or `new`.
    """

    target: Agent
    panel: Panel | None
    state: SessionState | None
    known: Known | None
    by: str

    @property
    def session(self) -> str:
        if self.state is not None:
            return self.state.id
        return self.known.id if self.known is not None and self.panel is None else ""

    @property
    def name(self) -> str:
        given = self.state.name if self.state is not None else ""
        return given or (self.known.name if self.known is not None else "")


def resolve(asked: Asked, seen: Seen) -> Selected:
    """The session that a send goes to.

    Raises:
        Refusal: contradictory, unknown, ambiguous, barred, or nobody there.
    """
    if asked.session and asked.new:
        raise Refusal(
            "contradictory_target",
            "both session_id and new_session were given",
            "Name the session, or ask for a new one, not both.",
        )
    for step in ORDER:
        selected = step(asked, seen)
        if selected is not None:
            return selected
    raise _nobody(asked)


def tied(target: Agent, caller: Caller, panels: Panels) -> dict[str, Panel]:
    """This window's sessions, by id, among which only their records tell which was in use last; empty when they need not."""
    here = focusable(target, caller, panels)
    if any(state.last_human for _, state in here):
        return {}
    sessions = {state.id: panel for panel, state in here}
    return sessions if len(sessions) > 1 else {}


def _named(asked: Asked, seen: Seen) -> Selected | None:
    """The session that the caller named, in this window, in another one, or in the records (SE-20 1)."""
    if not asked.session:
        return None
    return _selected(asked, named(asked.target, asked.caller, seen.panels, seen.store, asked.session), "caller")


def _asked_for_new(asked: Asked, seen: Seen) -> Selected | None:
    """A new conversation, because the caller wants one; not past a pin (SE-31)."""
    if not asked.new:
        return None
    if seen.pin is not None and seen.pin.by_caller:
        raise Refusal(
            "pinned",
            f"messages to {asked.target.product} from {shown_path(asked.place)} are pinned to session {seen.pin.session}",
            "Send without new_session, or take the pin away first: pin_agent_session with an empty session_id.",
        )
    selected = _opening(asked, seen)
    if selected is None:
        raise _nobody(asked)
    return selected


def _pinned(asked: Asked, seen: Seen) -> Selected | None:
    """What a caller has pinned (SE-27); never another one in its place (SE-31)."""
    return _by_pin(asked, seen, seen.pin) if seen.pin is not None and seen.pin.by_caller else None


def _focused(asked: Asked, seen: Seen) -> Selected | None:
    """This window's panels: the one a human typed into last, else the one that moved last, else the one opened last (SE-22)."""
    here = focusable(asked.target, asked.caller, seen.panels)
    if not here:
        return None
    panel, state = max(here, key=lambda found: (found[1].last_human, seen.moved.get(found[1].id, 0.0), found[1].opened))
    return Selected(asked.target, panel, state, seen.store.session(state.id), "panel-focus")


def _created(asked: Asked, seen: Seen) -> Selected | None:
    """The conversation that a message from here opened before, while it is there and active (SE-27)."""
    pin = seen.pin
    if pin is None or pin.by_caller or (asked.target.name, pin.session) == (asked.caller.agent, asked.caller.session):
        return None
    known = seen.store.session(pin.session)
    latest = max(pin.set, known.moved if known is not None else 0.0)
    if asked.now - latest > asked.active:
        return None
    try:
        found = identified(asked.target, asked.caller, seen.panels, seen.store, pin.session)
    except Refusal as refusal:
        if refusal.code in _GONE:
            return None  # nobody has asked for this pin, so it is in nobody's way
        raise
    return _selected(asked, found, "pin")


def _discovered(asked: Asked, seen: Seen) -> Selected | None:
    """The active session in scope that moved last, the nearest directory first (SE-11); none that is held and not reached."""
    if asked.panels_only and not asked.doors_are_panels:
        return None
    check_ready(asked.target, seen.store)  # one that is not read yet may have moved later, and is preferred to a new one
    elsewhere = {state.id for _, state in seen.panels.sessions(asked.target.name)} | (seen.held.keys() - seen.doors)
    found = [
        known
        for known in seen.store.recent()
        if asked.now - known.moved <= asked.active
        and not known.barred
        and known.id not in elsewhere
        and (known.id in seen.doors or not asked.panels_only)
        and (asked.target.name, known.id) != (asked.caller.agent, asked.caller.session)
        and within(known.place, asked.place, asked.scope)
    ]
    if not found:
        return None
    known = min(found, key=lambda known: (relation(known.place, asked.place), -known.moved))
    return Selected(asked.target, None, None, known, "discovery")


def _opening(asked: Asked, seen: Seen) -> Selected | None:
    """A panel of this window that can open a conversation, else the command line (SE-40)."""
    for panel in seen.panels:
        if panel.agent != asked.target.name or panel.closing or not is_here(panel, asked.caller):
            continue
        empty = panel.empty_session()
        if empty is not None and empty.accepts:
            return Selected(asked.target, panel, empty if empty.id else None, None, "new")
        if asked.target.opens_any_panel:
            return Selected(asked.target, panel, None, None, "new")
    return Selected(asked.target, None, None, None, "new") if asked.starts and not asked.panels_only else None


_GONE = ("unknown_session", "not_a_target")
"""With what a pinned session is refused that is not there any more, or takes no messages for good."""

Step = Callable[[Asked, Seen], Selected | None]

ORDER: tuple[Step, ...] = (_named, _asked_for_new, _pinned, _focused, _created, _discovered, _opening)


def _by_pin(asked: Asked, seen: Seen, pin: Pin) -> Selected:
    try:
        found = identified(asked.target, asked.caller, seen.panels, seen.store, pin.session)
    except Refusal as refusal:
        if refusal.code not in _GONE:
            raise
        raise Refusal(
            "pin_is_gone",
            f"messages to {asked.target.product} from {shown_path(pin.place)} are pinned to session {pin.session}, and {refusal}",
            "Pin another session with pin_agent_session, take the pin away with an empty session_id, or name a session.",
        ) from None
    return _selected(asked, found, "pin")


def _selected(asked: Asked, found: Candidate, by: str) -> Selected:
    return Selected(asked.target, found.panel, found.state, found.known, by)


def focusable(target: Agent, caller: Caller, panels: Panels) -> list[tuple[Panel, SessionState]]:
    """The sessions of this window's panels that may be chosen without being named; never the caller's own (SE-30)."""
    return [
        (panel, state)
        for panel, state in panels.sessions(target.name)
        if is_here(panel, caller) and state.id != caller.session and state.accepts and not panel.closing
    ]


def _nobody(asked: Asked) -> Refusal:
    place = shown_path(asked.place) or "this directory"
    where = "in this window" if asked.caller.window is not None else "that this caller could be shown to share a window with"
    return Refusal(
        "no_session",
        f"no {asked.target.product} panel is open {where}, and no session of it is active in {place}",
        "Open one in the editor, or name a session: list_agent_sessions shows them.",
    )
