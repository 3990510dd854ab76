"""What it means when a message was given back, or its turn had no answer, by the code that a route reports. Data; no I/O.

Owns the words for people, and which rejections are none for good. What is done about them is the carrier's.
"""

from __future__ import annotations

from shims.agent import agents
from shims.door import News

REFUSALS = {
    **{code: words for described in agents().values() for door in described.doors for code, words in door.explains.items()},
    "door_failed": "the agent's own door could not be spoken through",
    "closed": "the panel was closed before it could take the message",
    "session_closed": "the session was closed before it could take the message",
    "not_accepting": "the panel takes no messages",
    "not_observed": "the panel's shim has lost track of the agent's stream",
    "wrong_session": "the panel has moved to another session",
    "no_direct_input": "the thread takes no direct input: it is a sub-agent's",
    "agent_refused": "the agent refused the message",
    "no_new_conversation": "the agent opened no new conversation",
    "stale_generation": "the order came from a broker that has been replaced",
}

LATE = ("too_late", "withdrawn")
"""Rejections of what was looked at after its time; an order that slept with the machine is too late, and its delivery is not."""

UNTOUCHED = frozenset(("busy", "ended_waiting", News.CROWDED.value, "elsewhere"))
"""After which the message goes out again: it was not written, or its process let go of it while it only waited there."""

ANSWERED_BY_A_PERSON = frozenset(news.value for news in (News.DECLINED, News.REFUSED, News.EXPIRED, News.DROPPED))
"""Trying again would only ask the person again."""

_ENDS = {
    "completed": "its turn ended without a final message",
    "interrupted": "its turn was interrupted by the person at that session",
    "closed": "the session was closed in the middle of its turn",
    "declined": "the person at that session declined what its turn asked for, which ended it",
    "failed": "its turn failed: the agent or its model reported an error",
}


def reason(code: str) -> str:
    return REFUSALS.get(code, f"it was refused: {code}")


def why_no_answer(status: str) -> str:
    """By the status that a shim reported of a turn's end."""
    return _ENDS.get(status, _ENDS["failed"])


def pause(code: str) -> float:
    """Seconds after which it is tried again: what it waits for may have happened meanwhile."""
    return 5.0 if code == News.CROWDED.value else 1.0
