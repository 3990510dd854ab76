"""What is shown of sessions, panels and deliveries: the data of `list_agent_sessions`, `bridge_status` and the commands.

Owns the shapes (MC-03, MC-04). Reads the registry and the book, changes nothing.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from broker.book import Book
from broker.callers import Caller
from broker.clock import wall_clock
from broker.deliveries import STATES, Delivery, Kind
from broker.envelope import sanitised
from broker.errors import Refusal
from broker.panels import Panel, Panels
from broker.reader import Reader
from broker.wire import SessionState
from shims.agent import Found

_RECENT = 20


def in_scope(where: str, cwd: str, scope: str) -> bool:
    """Whether a session that works in ``where`` is within ``scope`` of ``cwd``; paths are compared resolved (SE-10)."""
    if scope == "any":
        return True
    there, here = os.path.realpath(where), os.path.realpath(cwd)
    below = there == here or there.startswith(here.rstrip("/") + "/")
    return below or (scope == "tree" and here.startswith(there.rstrip("/") + "/"))


def session_line(panel: Panel, state: SessionState, caller: Caller) -> dict[str, Any]:
    """One session as a list shows it."""
    now = wall_clock()
    same = caller.window is not None and panel.window == caller.window
    name = state.name or state.title
    return {
        "id": state.id or None,
        "agent": panel.agent,
        "name": _shown(name) or None,
        "name_kind": "given" if state.name else "generated" if state.title else None,
        "cwd": state.cwd or panel.cwd,
        "live": True,
        "reached_by": f"panel of {'this' if same else 'another'} window",
        "is_this_session": (panel.agent, state.id) == (caller.agent, caller.session),
        "empty": state.empty,
        "busy": bool(state.turn_since),
        "turn_seconds": int(now - state.turn_since) if state.turn_since else None,
        "awaiting_approval": approval(state),
        "accepts_messages": state.accepts and not panel.closing,
        "why_not": state.why_not or ("the panel is closing" if panel.closing else None),
        "queue_paused": state.queue_paused,
        "host_note": _shown(state.host) or None,
        "last_activity_seconds_ago": int(now - max(state.last_human, state.opened)),
        "model": state.model or None,
    }


def approval(state: SessionState) -> dict[str, Any] | None:
    if state.approval is None:
        return None
    seconds = int(wall_clock() - state.approval.since)
    return {"tool": _shown(state.approval.tool), "summary": _shown(state.approval.summary), "seconds": seconds}


def list_sessions(
    panels: Panels, caller: Caller, *, which: Iterable[str], cwd: str, scope: str, limit: int
) -> list[dict[str, Any]]:
    """Newest activity first; the nearest directory before others (SE-11)."""
    wanted = frozenset(which)
    found = [
        (panel, state)
        for panel, state in panels.sessions()
        if panel.agent in wanted and in_scope(state.cwd or panel.cwd, cwd, scope)
    ]
    found.sort(key=lambda item: (item[1].cwd == cwd, max(item[1].last_human, item[1].opened)), reverse=True)
    return [session_line(panel, state, caller) for panel, state in found[:limit]]


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
        "code": delivery.error_code or None,
        "error": delivery.error or None,
        "parent": delivery.parent or None,
        "return_delivery_id": delivery.return_delivery or None,
        "progress_delivery_id": delivery.progress_delivery or None,
        **dict.fromkeys(sorted(delivery.flags), True),
    }


def overview(book: Book, panels: Panels, caller: Caller, *, cwd: str, scope: str) -> dict[str, Any]:
    """`bridge_status` without a delivery."""
    under_way = list(book.deliveries())
    mine = [d for d in under_way if caller.session and (d.agent, d.session) == (caller.agent, caller.session) and d.open]
    return {
        "caller": {"agent": caller.agent or None, "session": caller.session or None, "identified_by": caller.how},
        "ide_panels": [
            {
                "agent": panel.agent,
                "window": "this" if caller.window is not None and panel.window == caller.window else "other",
                "cwd": panel.cwd,
                "version": panel.version,
                "sessions": [session_line(panel, s, caller) for s in panel.sessions if in_scope(s.cwd or panel.cwd, cwd, scope)],
            }
            for panel in panels
        ],
        "deliveries": {
            "pending": [delivery_line(delivery) for delivery in under_way if delivery.open],
            "earlier": [delivery_line(delivery) for delivery in book.store.recent_deliveries(_RECENT) if not delivery.open],
        },
        "waiting_for_this_session": [delivery_line(delivery) for delivery in mine],
    }


async def detail(book: Book, panels: Panels, reader: Reader, identifier: str) -> dict[str, Any]:
    """`bridge_status` of one delivery: its record, and the peer as it is at this moment.

    Raises:
        Refusal: no such delivery.
    """
    delivery = book.delivery(identifier)
    if delivery is None:
        raise Refusal(
            "unknown_delivery",
            f"no delivery has the id {identifier[:40]}",
            "Take delivery_id from a receipt; finished deliveries are forgotten after 7 days.",
        )
    result: dict[str, Any] = {"delivery": delivery_line(delivery)}
    if delivery.return_delivery and (returned := book.delivery(delivery.return_delivery)) is not None:
        result["return_delivery"] = delivery_line(returned)
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
    if delivery.kind is Kind.REQUEST and attempts and delivery.session:
        record = await reader.record(delivery.agent, attempts[-1].store, delivery.session, delivery.key)
        result["peer_transcript"] = {
            "is_working": record.found in (Found.OPEN, Found.WAITING) and bool(hosts),
            "answer": record.text or None,
        }
    return result


def _shown(text: str) -> str:
    return " ".join(sanitised(text).split())[:200]
