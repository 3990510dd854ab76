"""What is shown of sessions, panels and deliveries: the data of `list_agent_sessions`, `bridge_status` and the commands.

Owns the shapes (MC-03, MC-04). Reads the registry and the book, changes nothing.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple, Protocol

from broker.book import Book
from broker.callers import Caller
from broker.clock import wall_clock
from broker.deliveries import STATES, Attempt, Delivery, Kind, State
from broker.envelope import shown, shown_path
from broker.errors import Refusal
from broker.index.catalogue import Known, Store
from broker.naming import is_here
from broker.panels import Panel, Panels
from broker.pins import Pin
from broker.processes import ProcessId
from broker.reader import Reader
from broker.replies import FLAG_LATE
from broker.resolve import Selected
from broker.routes import Held, Open
from broker.scope import Relation, lets_in, relation, within
from broker.settings import CallerSettings
from broker.wire import SessionState
from shims.agent import Found, agents

_RECENT = 20


@dataclass(frozen=True, slots=True)
class View:
    """What is shown to whom.

    Attributes:
        place: the directory that stands for the caller's, resolved; scope: which others are shown.
        stores: each agent's records, as the caller sees them; held: the sessions that living processes hold, by agent.
        active: seconds since its last record within which a session is active.
        starts: whether turns are started on a command line for this caller.
        turns: the sessions in which one runs that was, by agent and id.
        doors: what leads to those that a process holds without a shim, by agent and id.
    """

    panels: Panels
    caller: Caller
    place: str
    scope: str
    stores: Mapping[str, Store]
    held: Mapping[str, Mapping[str, tuple[ProcessId, ...]]]
    active: float
    starts: bool = False
    turns: AbstractSet[tuple[str, str]] = frozenset()
    doors: Mapping[tuple[str, str], Open | Held] = field(default_factory=dict)

    def record(self, panel: Panel, state: SessionState) -> Known | None:
        """What the records say of a session that is open, if the caller sees the same ones as the panel."""
        store = self.stores.get(panel.agent)
        return store.session(state.id) if store is not None and store.path == panel.store else None

    def shows(self, where: str) -> bool:
        return within(where, self.place, self.scope)


def panel_line(panel: Panel, state: SessionState, view: View) -> dict[str, Any]:
    """One session that a panel holds, as a list shows it; others may hold it as well."""
    now = wall_clock()
    caller = view.caller
    hosts = view.panels.hosting(panel.agent, state.id) if state.id else [panel]
    known = view.record(panel, state)
    given = state.name or (known.name if known is not None else "")
    name = given or state.title or (known.title if known is not None else "")
    moved = _moved(state, known)
    return {
        "id": state.id or None,
        "agent": panel.agent,
        "name": shown(name) or None,
        "name_kind": "given" if given else "generated" if name else None,
        "cwd": shown_path(state.cwd or panel.cwd),
        "live": True,
        "reached_by": f"panel of {'this' if is_here(panel, caller) else 'another'} window",
        "held_by_pid": panel.child.pid if panel.child is not None else None,
        "open_in": [{"window": _window(host, view), "pid": host.process.pid} for host in hosts],
        "active": now - moved <= view.active,
        "is_this_session": (panel.agent, state.id) == (caller.agent, caller.session),
        "empty": state.empty,
        "busy": bool(state.turn_since),
        "turn_seconds": int(now - state.turn_since) if state.turn_since else None,
        "awaiting_approval": approval(state),
        "accepts_messages": state.accepts and not panel.closing,
        "why_not": state.why_not or ("the panel is closing" if panel.closing else None),
        "queue_paused": state.queue_paused,
        "host_note": shown(state.host) or None,
        "last_activity_seconds_ago": max(0, int(now - moved)),
        "model": state.model or None,
    }


def record_line(known: Known, view: View) -> dict[str, Any]:
    """One session that no panel holds."""
    now = wall_clock()
    holders = view.held.get(known.agent, {}).get(known.id, ())
    runs = (known.agent, known.id) in view.turns
    door = view.doors.get((known.agent, known.id))
    opened = door if isinstance(door, Open) and not runs else None
    why_not = "" if runs or opened is not None else _why_unreachable(known.agent, holders, door, view)
    return {
        "id": known.id,
        "agent": known.agent,
        "name": shown(known.name or known.title) or None,
        "name_kind": "given" if known.name else "generated" if known.title else None,
        "cwd": shown_path(known.cwd) or None,
        "live": bool(holders) or runs,
        "reached_by": opened.door.name if opened is not None else None if why_not else "command line",
        "held_by_pid": holders[0].pid if holders else None,
        "open_in": [],
        "active": now - known.moved <= view.active,
        "is_this_session": (known.agent, known.id) == (view.caller.agent, view.caller.session),
        "empty": False,
        "busy": True if runs else opened.busy if opened is not None else None,
        "turn_seconds": None,
        "awaiting_approval": _asked_there(opened) if opened is not None else None,
        "accepts_messages": not why_not,
        "why_not": why_not or None,
        "queue_paused": None,
        "host_note": None,
        "last_activity_seconds_ago": max(0, int(now - known.moved)),
        "model": None,
    }


def _why_unreachable(agent: str, holders: tuple[ProcessId, ...], door: Open | Held | None, view: View) -> str:
    if holders:
        return f"a process holds it that no message reaches{f': {door.reason}' if isinstance(door, Held) else ''}"
    if not view.starts or agents()[agent].headless is None:
        return "it is not open in an editor panel"
    return ""


def approval(state: SessionState) -> dict[str, Any] | None:
    if state.approval is None:
        return None
    seconds = int(wall_clock() - state.approval.since)
    return {"tool": shown(state.approval.tool), "summary": shown(state.approval.summary), "seconds": seconds}


def _asked_there(opened: Open) -> dict[str, Any] | None:
    """What the person at a session without a shim is asked, as far as its agent tells."""
    if not opened.waits_for:
        return None
    seconds = int(wall_clock() - opened.since) if opened.since else None
    return {"tool": shown(opened.waits_for), "summary": None, "seconds": seconds}


def list_sessions(view: View, *, limit: int) -> list[dict[str, Any]]:
    """The nearest directory first, within that newest activity first (SE-11); open ones and others together."""
    rows = []
    opened = set()
    listed = set()
    for panel, state in sorted(view.panels.sessions(), key=lambda found: not is_here(found[0], view.caller)):
        session = (panel.agent, state.id)
        opened.add(session)
        near = relation(_place(panel, state), view.place)
        if panel.agent in view.stores and lets_in(view.scope, near) and session not in listed:
            listed.add(session)  # in this window, if it is open here and elsewhere
            rows.append(_Row(near, _moved(state, view.record(panel, state)), panel, state, None))
    for store in view.stores.values():
        rows += _nearest(store, view, opened, limit)
    rows.sort(key=lambda row: (row.relation, -row.moved))
    return [row.line(view) for row in rows[:limit]]


def _nearest(store: Store, view: View, opened: AbstractSet[tuple[str, str]], limit: int) -> list[_Row]:
    """Of the sessions that no panel holds, the first ones of a list. Thousands are looked at, a few hundred directories."""
    relations: dict[str, Relation] = {}
    by_relation: dict[Relation, list[_Row]] = {}
    for known in store.recent():
        near = relations.get(known.place)
        if near is None:
            near = relations[known.place] = relation(known.place, view.place)
        found = by_relation.setdefault(near, [])
        if len(found) < limit and not known.barred and (store.agent, known.id) not in opened and lets_in(view.scope, near):
            found.append(_Row(near, known.moved, None, None, known))
    return [row for near in sorted(by_relation) for row in by_relation[near]][:limit]


class _Row(NamedTuple):
    relation: Relation
    moved: float
    panel: Panel | None
    state: SessionState | None
    known: Known | None

    def line(self, view: View) -> dict[str, Any]:
        if self.panel is not None and self.state is not None:
            return panel_line(self.panel, self.state, view)
        assert self.known is not None
        return record_line(self.known, view)


def _moved(state: SessionState, known: Known | None) -> float:
    """When something last happened in a session that is open."""
    return max(state.last_human, state.opened, known.moved if known is not None else 0.0)


def _place(panel: Panel, state: SessionState) -> str:
    return os.path.realpath(state.cwd or panel.cwd)


def delivery_line(delivery: Delivery) -> dict[str, Any]:
    """One delivery's record; its text is not part of it."""
    return {
        "delivery_id": delivery.id,
        "kind": delivery.kind.value,
        "state": delivery.state.value,
        "is_finished": STATES[delivery.state].terminal,
        "safe_to_resend": delivery.safe_to_resend,
        "from_agent": delivery.sender_agent or None,
        "from_session": delivery.sender_session or None,
        "to_agent": delivery.agent,
        "to_session": delivery.session or None,
        "conversation_id": delivery.conversation,
        "hop": delivery.hop,
        "hops_remaining": max(0, delivery.max_hops - delivery.hop),
        "route": delivery.route,
        "age_seconds": int(wall_clock() - delivery.created),
        "summary": delivery.summary,
        "reply_preview": delivery.reply_preview or None,
        "denied": list(delivery.denied) or None,
        "code": delivery.error_code or None,
        "error": delivery.error or None,
        "parent": delivery.parent or None,
        "return_delivery_id": delivery.return_delivery or None,
        "late_reply_delivery_id": delivery.late_reply or None,
        "progress_delivery_id": delivery.progress_delivery or None,
        "progress_note": delivery.progress_note or None,
        "peer_note": delivery.peer_note or None,
        **dict.fromkeys(sorted(delivery.flags), True),
    }


def caller_line(view: View) -> dict[str, Any]:
    """Who is calling. A guess by what moved last in the caller's directory is shown as one, and used for nothing (EN-20)."""
    caller = view.caller
    line: dict[str, Any] = {
        "agent": caller.agent or None,
        "session": caller.session or None,
        "identified_by": caller.how,
        "window_pid": caller.window.pid if caller.window is not None else None,
    }
    store = view.stores.get(caller.agent)
    if caller.session or store is None:
        return line
    latest = next((known for known in store.recent() if known.place == view.place and not known.barred), None)
    if latest is not None and wall_clock() - latest.moved <= view.active:
        line["guessed_session"] = latest.id
    return line


def pin_line(pin: Pin) -> dict[str, Any]:
    return {
        "agent": pin.agent,
        "cwd": shown_path(pin.place),
        "store": shown_path(pin.store),
        "session": pin.session,
        "set_by": "caller" if pin.by_caller else "bridge",
    }


def settings_line(settings: CallerSettings, scope: str) -> dict[str, Any]:
    """Every setting of a call by its name; ``scope`` is the one that the call itself may have named. Times in seconds."""
    return {**asdict(settings), "scope": scope, "notes": list(settings.notes)}


def queue_lines(deliveries: Iterable[Delivery]) -> list[dict[str, Any]]:
    """For each session that messages wait for: how many, and since when the first does."""
    now = wall_clock()
    waiting: dict[tuple[str, str, str], list[Delivery]] = {}
    for delivery in deliveries:
        if delivery.state is State.QUEUED:
            waiting.setdefault(delivery.target, []).append(delivery)
    return [
        {"agent": agent, "session": session or None, "ahead": len(queue), "oldest_seconds": int(now - queue[0].created)}
        for (agent, session, _), queue in waiting.items()
    ]


def overview(book: Book, view: View, chosen: Sequence[Selected], late_watches: Sequence[dict[str, Any]] = ()) -> dict[str, Any]:
    """`bridge_status` without a delivery. ``chosen``: whom a send without an address would go to, for each agent."""
    caller = view.caller
    under_way = list(book.deliveries())
    mine = [d for d in under_way if caller.session and (d.agent, d.session) == (caller.agent, caller.session) and d.open]
    return {
        "caller": caller_line(view),
        "ide_panels": [
            {
                "agent": panel.agent,
                "window": _window(panel, view),
                "cwd": shown_path(panel.cwd),
                "version": panel.version,
                "sessions": [panel_line(panel, s, view) for s in panel.sessions if view.shows(_place(panel, s))],
                "selection": next((_selection(found) for found in chosen if found.panel is panel), None),
            }
            for panel in view.panels
        ],
        "other_window_sessions": _elsewhere(view),
        "queues": queue_lines(under_way),
        "deliveries": {
            "pending": [delivery_line(delivery) for delivery in under_way if delivery.open],
            "earlier": [delivery_line(delivery) for delivery in book.store.recent_deliveries(_RECENT) if not delivery.open],
            "watching_for_late_answers": late_watches,
        },
        "waiting_for_this_session": [delivery_line(delivery) for delivery in mine],
    }


def unknown_delivery(identifier: str) -> Refusal:
    return Refusal(
        "unknown_delivery",
        f"no delivery has the id {identifier[:40]}",
        "Take delivery_id from a receipt; finished deliveries are forgotten after 7 days.",
    )


def _selection(chosen: Selected) -> dict[str, Any]:
    """``session`` None: one that would be opened."""
    return {"session": chosen.session or None, "selected_by": chosen.by}


def _elsewhere(view: View) -> list[dict[str, Any]]:
    """The sessions that are open in other windows alone: they are reached when they are named, and never chosen otherwise."""
    here = {(panel.agent, state.id) for panel, state in view.panels.sessions() if is_here(panel, view.caller)}
    found = {
        (panel.agent, state.id): {"agent": panel.agent, "id": state.id, "name": shown(state.name or state.title) or None}
        for panel, state in view.panels.sessions()
        if (panel.agent, state.id) not in here and view.shows(_place(panel, state))
    }
    return list(found.values())


def _window(panel: Panel, view: View) -> str:
    return "this" if is_here(panel, view.caller) else "other"


class Finding(Protocol):
    """What leads to a session that no panel holds (`broker.routes.choice.Routes`)."""

    async def find(self, agent: str, store: str, session: str) -> Open | Held | None: ...


async def detail(book: Book, panels: Panels, reader: Reader, doors: Finding, identifier: str) -> dict[str, Any]:
    """`bridge_status` of one delivery: its record, and the peer as it is at this moment.

    Raises:
        Refusal: no such delivery.
    """
    delivery = book.delivery(identifier)
    if delivery is None:
        raise unknown_delivery(identifier)
    result: dict[str, Any] = {"delivery": delivery_line(delivery)}
    for name, message in (("return_delivery", delivery.return_delivery), ("late_reply_delivery", delivery.late_reply)):
        if message and (returned := book.delivery(message)) is not None:
            result[name] = delivery_line(returned)
    attempts = book.store.attempts_of(identifier)
    result["attempts"] = [
        {"instance": a.instance, "evidence": a.evidence.value, "open": a.open, "generation": a.generation} for a in attempts
    ]
    hosts = panels.hosting(delivery.agent, delivery.session) if delivery.session else []
    state = hosts[0].session(delivery.session) if hosts else None
    if state is not None:
        result["peer_panel"] = {
            "turn_running": bool(state.turn_since),
            "awaiting_approval": approval(state),
            "queue_paused": state.queue_paused,
        }
    door = await _door(doors, delivery) if state is None and attempts and attempts[-1].by_door else None
    if door is not None:
        result["peer_panel"] = {
            "turn_running": door.busy,
            "awaiting_approval": _asked_there(door),
            "queue_paused": door.paused,
        }
    if delivery.kind is Kind.REQUEST and attempts and delivery.session:
        live = bool(hosts) or door is not None
        result["peer_transcript"] = await _peer_transcript(reader, delivery, attempts, live=live)
    return result


async def _door(doors: Finding, delivery: Delivery) -> Open | None:
    found = await doors.find(delivery.agent, delivery.store, delivery.session)
    return found if isinstance(found, Open) else None


async def _peer_transcript(reader: Reader, delivery: Delivery, attempts: Sequence[Attempt], *, live: bool) -> dict[str, Any]:
    """What the peer's records say of the request at this moment. ``live``: a panel holds its session."""
    last = attempts[-1]
    where = (delivery.agent, last.store, delivery.session)
    record = await reader.record(*where, last.turn if last.turn and not last.instance else delivery.key)
    # A turn that was killed, or ended without an answer, may stand open in the records for ever (DE-36).
    working = record.found in (Found.OPEN, Found.WAITING) and delivery.state is not State.FAILED
    if record.found in (Found.ABSENT, Found.UNKNOWN) and live:  # whose turn it is may not be told, that one runs is
        working = (await reader.latest(*where, wall_clock())).open
    if FLAG_LATE in delivery.flags:
        late = await reader.answer_naming(*where, delivery.token)
        record = late if late.found is Found.ANSWERED else record
    started = last.open and not last.instance
    return {"is_working": started or (working and live), "answer": record.text or None}
