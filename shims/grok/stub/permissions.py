"""Whether a tool of the Grok stub may run, and the question that is asked if that isn't settled.

Owns the one open ``session/request_permission`` of a turn, its options and what each answer means; runs no tool. Whatever is
no consent ends the turn.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Final

    from shims.grok.stub.turn import Turn

_ALLOW_ALWAYS: Final = ("always-allow", "allow_always")
_ALLOW: Final = ("allow-once", "allow_once")
_REJECT: Final = ("reject-once", "reject_once")
_REJECT_ALWAYS: Final = ("reject-always", "reject_always")
FOR_COMMANDS: Final = (
    (*_ALLOW_ALWAYS, "Yes, and don't ask again for bash commands"),
    (*_ALLOW, "Yes, proceed"),
    (*_REJECT, "No, and tell Grok what to do differently"),
    (*_REJECT_ALWAYS, "No, and don't ask again for this command"),
)
FOR_MCP: Final = ((*_ALLOW_ALWAYS, "always allow"), (*_ALLOW, "allow once"), (*_REJECT, "reject once"))


async def refusal(turn: Turn, tool: str, subject: str, call: dict[str, Any], options: Any, *, unasked: bool) -> str | None:
    """Why the call may not be made, None if it may; the turn is over if it may not, or was stopped meanwhile."""
    session = turn.session
    identifier = {"tool_call_id": call["toolCallId"]}
    allowed = unasked or session.approves_all or subject in session.approved
    session.notify_own({"sessionUpdate": "pending_interaction", **identifier, "kind": "permission"})
    turn.update({"sessionUpdate": "tool_call_update", **call}, "ToolCallUpdate")
    words = None if allowed else await _ask(turn, tool, subject, call, options)
    session.notify_own({"sessionUpdate": "interaction_resolved", **identifier})
    return words


async def _ask(turn: Turn, tool: str, subject: str, call: dict[str, Any], options: Any) -> str | None:
    session = turn.session
    asked = session.server.wire.ask(
        "session/request_permission",
        {
            "sessionId": session.session_id,
            "toolCall": {name: value for name, value in call.items() if name not in ("content", "locations")},
            "options": [{"optionId": option, "name": name, "kind": kind} for option, kind, name in options],
        },
    )
    await session.server.loop.first(asked.answer, turn.stopped)
    if turn.stopped.done:
        return "stopped"
    return _decided(turn, tool, subject, asked.answer.value, [option for option, _, _ in options])


def _decided(turn: Turn, tool: str, subject: str, answer: dict[str, Any], options: list[str]) -> str | None:
    """What an answer means; None: go on."""
    result = answer.get("result")
    outcome = result.get("outcome") if isinstance(result, dict) else None
    kind = outcome.get("outcome") if isinstance(outcome, dict) else None
    if kind == "cancelled":
        turn.decline("PermissionCancelled")
        return f"User cancelled the execution for tool `{tool}`"
    option = outcome.get("optionId") if kind == "selected" and isinstance(outcome, dict) else None
    if option in options and option in ("always-allow", "allow-once"):
        if option == "always-allow":
            turn.session.approved.add(subject)
        return None
    if option == "reject-once":
        reason = "User rejected the execution"
    elif option in options:
        reason = f"User rejected the execution and excluded `{subject}` from future runs in this project"
    else:
        unknown = "unknown permission option" if option is not None else "failed to request permission"
        reason = f"Failed to request permission from user: {unknown}"
    turn.decline("PermissionRejected", cancellationContext={"tool_name": tool, "reason": reason})
    return f"{reason} for tool `{tool}`"
