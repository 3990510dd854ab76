"""What a send must satisfy before anything is looked up or spent, and what it may never do. Pure; no I/O.

Owns size, emptiness, own session, same agent, explicit target, sessions that take nothing, hop budget and ping-pong (DE-05,
DE-47, DE-50, DE-51, DE-55, SE-29). Each refusal has a code, says what happened, and what to do instead.
"""

from __future__ import annotations

from math import ceil

from broker.callers import Caller
from broker.envelope import FRAME_AT_MOST, shown
from broker.errors import Refusal
from broker.resolve import Selected
from broker.routes import Held, Open, Reach, Unreachable, Wait
from broker.settings import CallerSettings
from shims.agent import Agent, SameAgent, agents

MAX_CHARACTERS = 1_000_000
"""Of one message; with its envelope it stays under Codex's 1,048,576 (measured on 0.171.0), unless much of it is quoted."""

_WRITE_A_FILE = "Write the material to a file and send its path with a summary."


def check_text(message: str) -> None:
    if not message.strip():
        raise Refusal("empty_message", "the message is empty", "Write what the peer should do or know.")
    if len(message) > MAX_CHARACTERS:
        raise Refusal(
            "message_too_long",
            f"the message has {len(message):,} characters, the limit is {MAX_CHARACTERS:,}",
            _WRITE_A_FILE,
        )


def check_fits(target: Agent, length: int) -> None:
    """``length``: of the message as it is handed over, without its frame."""
    if target.longest is not None and length > target.longest - FRAME_AT_MOST:
        raise Refusal(
            "message_too_long",
            f"with what must be quoted in it the message has {length:,} characters, "
            f"and {target.product} takes {target.longest - FRAME_AT_MOST:,}",
            _WRITE_A_FILE,
        )


def check_explicit_target(settings: CallerSettings, *, session: str, new: bool) -> None:
    if settings.require_explicit_target and not session.strip() and not new:
        raise Refusal(
            "explicit_target_required",
            "this registration demands that every send names its target (CROSS_AGENT_REQUIRE_EXPLICIT_TARGET)",
            "Pass session_id, or new_session=true.",
        )


def check_any_route(settings: CallerSettings) -> None:
    if not settings.use_panels and not settings.use_doors and not settings.headless:
        raise Refusal(
            "no_route",
            "this registration switches panels off (CROSS_AGENT_UI_HOOK=off), live doors (CROSS_AGENT_LIVE_DOORS) and turns on "
            "the command line as well (CROSS_AGENT_DISABLE_HEADLESS)",
            "Remove one of the three from the registration.",
        )


def check_same_agent(target: Agent, caller: Caller, *, session: str, allowed: bool) -> None:
    """A send to one's own kind must be meant (DE-51)."""
    if caller.agent != target.name or session.strip():
        return
    if allowed and target.same_agent is SameAgent.ALLOWED_OR_NAMED:
        return
    others = ", ".join(other.tool for other in agents().values() if other.name != target.name)
    how = "Pass session_id" + (", or allow_same_agent=true" if target.same_agent is SameAgent.ALLOWED_OR_NAMED else "")
    raise Refusal(
        "same_agent",
        f"this would go from a {target.product} session to another {target.product} session that was not named",
        f"{how}. Other agents are reached by {others}.",
    )


def check_not_self(caller: Caller, selected: Selected) -> None:
    if selected.session and (caller.agent, caller.session) == (selected.target.name, selected.session):
        raise Refusal(
            "own_session",
            f"session {selected.session} is the one that is calling",
            "Name another session: list_agent_sessions shows them.",
        )


def check_reachable(selected: Selected, found: Open | Held | None, settings: CallerSettings) -> None:
    """A session that no message gets to is said to be so, with who holds it, and nothing is opened in its place.

    Args:
        found: what leads to it where no panel does; None: nobody holds it.
    """
    product = selected.target.product
    name = f" (“{shown(selected.name)}”)" if selected.name else ""
    session = f"{product} session {selected.session}{name}"
    if isinstance(found, Open):
        return
    if selected.panel is not None:
        if not settings.use_panels:
            raise Refusal(
                "session_held",
                f"{session} is open in a panel, which this registration does not use (CROSS_AGENT_UI_HOOK=off)",
                "Remove CROSS_AGENT_UI_HOOK from the registration, or close the panel.",
            )
    elif isinstance(found, Held):
        raise Refusal(
            "session_held",
            f"{session} is known, but process {found.process.pid} holds it, which no message reaches: {found.reason}",
            f"{found.remedy} Or name another session: list_agent_sessions shows which are open.",
        )
    elif not settings.headless or selected.target.headless is None:
        raise Refusal(
            "headless_disabled",
            f"{session} is known, but not open, and this registration starts no turns on the command line "
            "(CROSS_AGENT_DISABLE_HEADLESS)",
            "Open it in an editor panel, or name another session: list_agent_sessions shows which are open.",
        )


def check_startable(selected: Selected, reach: Reach | Wait | Unreachable) -> None:
    """What is known to hinder a turn on the command line by now is said in the receipt and not in a notice later (DE-47)."""
    code = "" if isinstance(reach, Reach) else reach.code
    if code and not isinstance(reach, Reach):
        what = f"{selected.target.product} session {selected.session}" if selected.session else selected.target.product
        raise Refusal(code, f"no turn can be started for {what}: {reach.reason}", _STARTABLE.get(code, _STARTABLE[""]))


_STARTABLE = {
    "session_held": "Close it there, open it in an editor panel, or name another session.",
    "no_program": "Install it, put it on the PATH, or open the session in an editor panel.",
    "": "Open the session in an editor panel.",
}


def check_accepts(selected: Selected) -> None:
    """A panel that never takes a message says so in the receipt and not in a notice later (DE-47)."""
    state = selected.state
    if state is not None and state.why_not:
        raise Refusal(
            "not_accepting",
            f"session {state.id} takes no messages: {state.why_not}",
            "Name another session: list_agent_sessions shows which of them accept messages.",
        )


def hop_limit(conversation: str, allowed: int) -> Refusal:
    return Refusal(
        "hop_limit",
        f"conversation {conversation} has spent its {allowed} hops",
        "Keep the result in your own final message, or ask the person whether a new conversation should begin.",
    )


def too_many_exchanges(between: tuple[str, str], allowed: int, window: float, wait: float) -> Refusal:
    """Two sessions that keep each other busy are stopped before their people notice it by the bill (DE-55).

    ``wait``: seconds until the next request between them may be sent.
    """
    one, other = between
    return Refusal(
        "ping_pong",
        f"{one} and {other} have sent each other {allowed} requests within {window:g} s, which is as many as they may",
        f"Stop answering back and forth: put what is left into your own final message. The next one may go in {ceil(wait)} s; "
        "CROSS_AGENT_MAX_EXCHANGES and CROSS_AGENT_EXCHANGE_WINDOW are the limits.",
    )


def unknown_conversation(conversation: str) -> Refusal:
    return Refusal(
        "unknown_conversation",
        f"no conversation has the id {conversation[:40]}",
        "Pass the conversation_id of a receipt or of a message's frame, or none to begin a new one.",
    )
