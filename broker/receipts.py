"""The receipt of a send, and what it warns of (DE-02, DE-03). Pure; no I/O.

Owns every word of it. A receipt is made before its delivery is recorded and kept with it, so that a repeated call gets the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from broker.callers import Caller
from broker.clock import wall_clock
from broker.deliveries import Delivery
from broker.envelope import shown
from broker.resolve import Selected
from broker.routes import Open
from broker.turns.started import ROUTE as HEADLESS

_DORMANT = 24 * 3600.0
"""Seconds after which a session that is not open may not be the one that was meant."""

_IDLE_POLICY = "a turn without output and without growth of its transcript for so long is ended"


def warnings(
    caller: Caller,
    selected: Selected,
    opened: Open | None,
    *,
    returns: bool,
    runs: bool,
    notes: Sequence[str],
    changes: Sequence[str],
) -> list[dict[str, str]]:
    """What the caller should know, by code and text.

    Args:
        opened: the door of the agent's by which it is reached, where no panel holds it.
        returns: a message reaches the caller's session live at this moment.
        runs: the session, which no panel holds, runs a turn that was started here.
        notes: what was asked for and is not granted; changes: what of the text was changed.
    """
    found: list[dict[str, str]] = []

    def warn(code: str, text: str) -> None:
        found.append({"code": code, "text": text})

    if selected.by in ("panel-focus", "pin", "discovery"):
        warn("unaddressed", "No session_id was given: compare target_session_id before you report this as done.")
    if selected.by == "new":
        where = "in the panel" if selected.panel is not None else "on the command line, where nobody watches it"
        warn("new_conversation", f"No conversation was there to go on with: the message opens a new one {where}.")
    elif selected.panel is None and opened is None:
        warn("not_open", "The session is not open: its turn runs on the command line, without anybody to approve anything.")
    if _runs_turn(selected, opened, runs):
        warn("peer_busy", "The peer is in the middle of a turn; the message waits for its end.")
    elif selected.state is not None and selected.state.queue_paused:
        warn("peer_paused", "The peer's last turn was interrupted: the message waits until somebody speaks in its panel.")
    elif opened is not None and opened.paused:
        warn("peer_paused", "The peer's last turn was interrupted: the message waits until somebody speaks there.")
    if opened is not None and opened.waits_for:
        warn("peer_awaits_person", f"The peer waits for the person at it: {shown(opened.waits_for)}.")
    if opened is None and _dormant(selected):
        warn("peer_dormant", "Nobody has that session open, and nothing moved in it for over 24 h: is it the one you mean?")
    if caller.headless:
        warn(
            "headless_caller",
            "You are a turn that the bridge has started on the command line. Its end does not stop this delivery, but the "
            "answer can only be read from the record: bridge_status(delivery_id).",
        )
    elif not caller.session:
        warn(
            "unknown_caller",
            f"Your own session is not known ({caller.how}): read the answer with bridge_status(delivery_id).",
        )
    elif not returns:
        warn("no_return_route", "No message reaches your session live: read the answer with bridge_status(delivery_id).")
    if selected.state is not None and not selected.state.shows_message:
        warn("message_not_shown", "The peer's panel shows the answer but not your message.")
    for change in changes:
        warn("text_changed", f"To be harmless on arrival, the text was changed: {change}.")
    for note in notes:
        warn("not_granted", note)
    return found


def receipt(
    delivery: Delivery,
    selected: Selected,
    opened: Open | None,
    ahead: Sequence[Delivery],
    *,
    returns: str,
    runs: bool,
    warned: list[dict[str, str]],
) -> dict[str, Any]:
    """Every field of DE-02, but for the hop, which is only known when it is spent. ``returns``: the route back, or empty."""
    now = wall_clock()
    state = selected.state
    approval = state.approval if state is not None else None
    where = "It will come to this session as a new message" if returns else "It is kept with the delivery"
    return {
        "ok": True,
        "accepted": True,
        "delivery_id": delivery.id,
        "state": delivery.state.value,
        "conversation_id": delivery.conversation,
        "hop": 0,
        "hops_remaining": 0,
        "note": f"Queued; there is no answer yet. {where}; do not wait for it in this turn.",
        "target_agent": delivery.agent,
        "target_session_id": delivery.session or None,
        "target_name": shown(delivery.target_name) or None,
        "target_selected_by": delivery.selected_by,
        "caller_supplied_session_id": delivery.selected_by == "caller",
        "route": delivery.route,
        "sender_agent": delivery.sender_agent or None,
        "reply_lands_in_session": delivery.sender_session or None,
        "return_panel_available_now": bool(returns),
        "return_route": returns or None,
        "queue_depth": len(ahead),
        "peer_queue": {
            "ahead": len(ahead),
            "oldest_seconds": int(now - ahead[0].created) if ahead else 0,
            "runs_turn": _runs_turn(selected, opened, runs),
            "awaits_approval": approval.tool if approval is not None else (opened.waits_for or None) if opened else None,
        },
        "will_create_session": not delivery.session,
        "target_last_activity_seconds_ago": _ago(now, _last_activity(selected)),
        "idle_limit_seconds": delivery.idle if delivery.route == HEADLESS else None,
        "idle_limit_policy": _IDLE_POLICY if delivery.route == HEADLESS else None,
        "warnings": warned,
        "warning": " ".join(warning["text"] for warning in warned),
    }


def _runs_turn(selected: Selected, opened: Open | None, runs: bool) -> bool:
    return runs or bool(selected.state is not None and selected.state.turn_since) or bool(opened is not None and opened.busy)


def receipt_for(key: str, delivery: Delivery) -> dict[str, Any]:
    """What the call named ``key`` is told of the delivery that it stands for."""
    receipt = delivery.receipt
    if key == delivery.request_key:
        return receipt
    return {**receipt, "note": f"{receipt['note']} This repeats a cancelled call: nothing was sent again."}


def numbered(receipt: dict[str, Any], delivery: Delivery) -> dict[str, Any]:
    return {**receipt, "hop": delivery.hop, "hops_remaining": max(0, delivery.max_hops - delivery.hop)}


def _last_activity(selected: Selected) -> float:
    """When anything last happened in the target, as far as its panel and its records tell; 0: nothing is known."""
    seen = max(selected.state.turn_since, selected.state.last_human) if selected.state is not None else 0.0
    return max(seen, selected.known.moved if selected.known is not None else 0.0)


def _dormant(selected: Selected) -> bool:
    """Neither live nor recent: what its reader takes up again may be long forgotten (DE-03)."""
    last = _last_activity(selected)
    return selected.panel is None and last > 0 and wall_clock() - last > _DORMANT


def _ago(now: float, moment: float) -> int | None:
    return int(now - moment) if moment else None
