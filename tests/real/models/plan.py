"""What a scripted model answers to a conversation; pure, no I/O.

Owns the choice of the message that is answered and of the steps that one model response consists of. A dialect hands the
conversation over as ``Event`` records, oldest first; the script language itself is ``shims.script``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from shims.script import Step, find_script, parse_step, split_steps

if TYPE_CHECKING:
    from collections.abc import Container, Sequence

FOLDED: Final = "The user sent a new message while you were working:\n"
FOLDED_ENDS: Final = (
    "\n\nIMPORTANT: After completing your current task",  # 2.1.197
    "\n\nThis is how Claude Code surfaces messages",  # 2.1.332
)
"""Claude Code appends an instruction to a folded message; the words of the user end here."""


@dataclass(frozen=True, slots=True)
class Event:
    """One piece of a conversation: words for the model, a tool result, or the ``end`` of an earlier turn."""

    kind: Literal["text", "result", "end"]
    text: str = ""


@dataclass(frozen=True, slots=True)
class Order:
    """The message that governs a model request, and how many of its tool calls have come back."""

    message: str
    done: int


def unfold(text: str) -> str:
    """The user's own words of a message that Claude Code folded into a running turn; any other text unchanged."""
    if not text.startswith(FOLDED):
        return text
    words = text[len(FOLDED) :]
    for end in FOLDED_ENDS:
        words = words.split(end, 1)[0]
    return words.rstrip("\n")


def is_background(text: str) -> bool:
    """Whether an agent, not a person or a peer, wrote this user text (``<system-reminder>``, ``<environment_context>`` …)."""
    return text.lstrip().startswith("<")


def newest(events: Sequence[Event]) -> Order:
    """The newest message governs, whatever it says: Codex, where a steered message replaces the one before it."""
    last = max((at for at, event in enumerate(events) if event.kind == "text"), default=None)
    if last is None:
        return Order("", 0)
    return Order(events[last].text, sum(event.kind == "result" for event in events[last:]))


def newest_script(events: Sequence[Event], spent: Container[str] = ()) -> Order:
    """The newest message of the turn that holds a script governs, else the newest: Claude Code, which folds and merges.

    ``spent`` holds messages that were answered by a failure. Claude Code sends them again in front of the next message, with
    no answer in between, so nothing else tells that their turn is over.
    """
    start = max((at for at, event in enumerate(events) if event.kind == "end"), default=-1) + 1
    turn = events[start:]
    scripts = [
        at
        for at, event in enumerate(turn)
        if event.kind == "text" and find_script(event.text) is not None and event.text not in spent
    ]
    if not scripts:
        return newest([event for event in turn if event.text not in spent] or turn)
    at = scripts[-1]
    return Order(turn[at].text, sum(event.kind == "result" for event in turn[at:]))


def response(order: Order) -> list[Step]:
    """The steps of one model response: any comments, then one other step.

    A comment alone would end the turn in both agents, so it travels with the step after it; only comments at the very end of
    a script are an answer of their own.
    """
    script = find_script(order.message)
    if script is None:
        return [Step("say", text="echo: " + order.message[:300])]
    answered = 0
    steps: list[Step] = []
    for step in (parse_step(part, order.message) for part in split_steps(script)):
        steps.append(step)
        if step.verb == "comment":
            continue
        if answered == order.done:
            return steps
        answered, steps = answered + 1, []
    return steps or [Step("say", text="done")]
