"""The script language of scripted agents and scripted model servers.

Owns the notation by which a message tells a scripted model what to do; does no I/O. The stub agents of the demo and the
model servers of the tests read the same notation, so that one message drives a stub and a real agent alike.

A message holds at most one script, ``[[ step ;; step ]]``, brackets balanced so that a message that is sent on may carry
a script of its own. The first model request after the message runs the first step, the next request the second, and so on:

``say TEXT``           a finished answer
``reply TEXT``         a finished answer whose last line is the request id found in the message
``comment TEXT``       words that are not a finished answer (Codex: ``phase: commentary``)
``slow GATE TEXT``     like ``say``, but half of TEXT, then wait for GATE, then the other half
``slowreply GATE TEXT``
``tool NAME {json}``   one tool call
``fail TEXT``          the model request fails

GATE is a number of seconds, or the path of a FIFO: the step goes on when somebody has opened it for writing and closed it.
"""

from __future__ import annotations

import json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Final

OPEN: Final = "[["
CLOSE: Final = "]]"
SEPARATOR: Final = ";;"
REQUEST_LINE: Final = "request: req_"


class Step:
    """One step: ``verb`` as in the table above, with what belongs to it."""

    __slots__ = ("arguments", "gate", "text", "tool", "verb")

    def __init__(self, verb: str, *, text: str = "", gate: str = "", tool: str = "", arguments: str = "{}") -> None:
        self.verb = verb
        self.text = text
        self.gate = gate
        self.tool = tool
        self.arguments = arguments

    def __repr__(self) -> str:
        return f"Step({self.verb!r}, text={self.text!r}, gate={self.gate!r}, tool={self.tool!r})"

    def parsed_arguments(self) -> Any:
        return json.loads(self.arguments)


def request_id(text: str) -> str | None:
    """The id that a framed message asks its reader to echo: the first ``request: req_…`` line, None without one."""
    for line in text.splitlines():
        if line.startswith(REQUEST_LINE):
            return line.split(": ", 1)[1].strip()
    return None


def find_script(text: str) -> str | None:
    """What stands between the first ``[[`` and its matching ``]]``, None if the message holds no script."""
    start = text.find(OPEN)
    if start < 0:
        return None
    depth, at = 0, start
    while at < len(text) - 1:
        pair = text[at : at + 2]
        if pair == OPEN:
            depth, at = depth + 1, at + 2
        elif pair == CLOSE:
            depth, at = depth - 1, at + 2
            if depth == 0:
                return text[start + 2 : at - 2]
        else:
            at += 1
    return None


def split_steps(script: str) -> list[str]:
    """The steps of a script: split at ``;;`` outside of any nested ``[[ ]]``."""
    steps, depth, at, begin = [], 0, 0, 0
    while at < len(script):
        pair = script[at : at + 2]
        if pair == OPEN:
            depth, at = depth + 1, at + 2
        elif pair == CLOSE:
            depth, at = depth - 1, at + 2
        elif pair == SEPARATOR and depth == 0:
            steps.append(script[begin:at].strip())
            at += 2
            begin = at
        else:
            at += 1
    steps.append(script[begin:].strip())
    return [step for step in steps if step]


def parse_step(step: str, message: str) -> Step:
    """One step as data; ``message`` is the text that holds the script (its request id closes a ``reply``)."""
    verb, _, rest = step.partition(" ")
    rest = rest.strip()
    gate = ""
    if verb in ("slow", "slowreply"):
        gate, _, rest = rest.partition(" ")
    if verb in ("reply", "slowreply"):
        token = request_id(message)
        return Step(verb, text=f"{rest}\n\n{token}" if token else rest, gate=gate)
    if verb == "tool":
        name, _, arguments = rest.partition(" ")
        return Step(verb, tool=name, arguments=arguments.strip() or "{}")
    if verb in ("say", "slow", "comment", "fail"):
        return Step(verb, text=rest, gate=gate)
    raise ValueError(f"unknown script verb {verb!r}")


def next_step(message: str, done: int) -> Step:
    """The step for the model request that follows ``done`` finished steps of ``message``.

    Without a script the answer is ``echo: <message>``; past the last step it is ``done``.
    """
    script = find_script(message)
    if script is None:
        return Step("say", text="echo: " + message[:300])
    steps = split_steps(script)
    if done >= len(steps):
        return Step("say", text="done")
    return parse_step(steps[done], message)
