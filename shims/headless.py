"""A turn on an agent's command line: how it is started, and what its output says. One interface, one description each in
``shims/<agent>/resume.py``.

Owns the interface. Argument lists and the reading of output are sans-I/O; only what looks into the agent's files blocks,
and runs in the runner of a turn (`broker.turns`), right before it starts the agent.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from broker.envelope import one_line
from shims.launch import Product

LONGEST_FAILURE = 300
"""Characters of an agent's own words on a failure that are kept."""


NOTHING_RAN = "nothing_ran"
"""It ended well, and no turn began: the records tell whether the agent had the message before."""

CODES = (
    "turn_failed", "turn_cancelled", "approval_needed", "not_logged_in", "unknown_session", "session_held",
    "session_archived", "directory_not_trusted", "wrong_session", "queue_not_empty", "queue_unknown", NOTHING_RAN,
)  # fmt: skip
"""Why a turn has no answer, as `Said.code` and `Hindrance.code` name it."""


def in_short(words: str) -> str:
    """An agent's own words as they may stand in a `Said.reason`."""
    return one_line(words[: 4 * LONGEST_FAILURE])[:LONGEST_FAILURE]


class Order(NamedTuple):
    """What is to be run.

    Attributes:
        session: the conversation that goes on; empty: a new one is opened.
        new: the id of that new one, where the agent lets us choose it (`Headless.chooses_id`).
        key: the agent-side key of the message.
        prompt: path of the file, for us alone, that holds what `Headless.input` made of the text.
        cwd: the directory that it runs in; only told to agents that want to be told.
        model: empty: the agent's own default.
        mode: permission mode or sandbox, as the agent calls it; empty: its own default.
    """

    session: str
    new: str
    key: str
    prompt: str
    cwd: str
    model: str = ""
    mode: str = ""


class Said(NamedTuple):
    """What a turn's output has said so far.

    Attributes:
        session: the conversation's id, as the agent names it.
        begun: the agent has the message, and has begun to work on it.
        ended: the documented end record was there. An exit status is none.
        text: the final message of a turn that was completed.
        code: why there is no answer, one of `CODES`; empty when there is one.
        reason: the same in a sentence, of one line and at most `LONGEST_FAILURE` characters; names the agent's own command
            or the setting that mends it, where there is one.
        untouched: it is certain that the message never became part of a conversation: sending it again is safe.
        denied: tools that were refused for want of an approval, in order, each once.
        later: the final messages of turns that the agent ran by itself after ours, while it was still there: what it had left
            in the background was over. One of them may be the answer, where `text` does not close as it was asked to.
        turn: the agent's id for the turn, where its output names it: by it `Agent.record` finds the answer, and that one counts
            before `text`, which may hold a sub-agent's words where the output does not mark them.
    """

    session: str = ""
    begun: bool = False
    ended: bool = False
    text: str = ""
    code: str = ""
    reason: str = ""
    untouched: bool = False
    denied: tuple[str, ...] = ()
    later: tuple[str, ...] = ()
    turn: str = ""


class Hindrance(NamedTuple):
    """Why a turn must not be started now: a stable code, and a sentence."""

    code: str
    reason: str


class Output(Protocol):
    """Reads the output of one turn, line by line; foreign and broken lines are passed over."""

    def feed(self, line: bytes) -> None:
        """One line of standard output, without its end."""
        ...

    def said(self) -> Said:
        """What there is so far."""
        ...

    def closed(self, status: int, errors: str) -> Said:
        """The process has ended. ``status``: of its exit, negative when a signal ended it; ``errors``: its last words on stderr.

        Where no end record was there, `code` and `reason` say what is known.
        """
        ...


@dataclass(frozen=True, slots=True)
class Headless:
    """An agent's command line.

    Attributes:
        product: what its program is called, and where it may lie.
        arguments: what follows the program's name.
        input: the bytes of the prompt's file, from text and key. Where `by_file` is off they are the process's whole stdin, and
            come through a pipe: Claude Code 2.1.197 takes nothing from a file.
        by_file: the prompt is named among the arguments, and stdin is empty.
        output: a reader for one turn's output; its argument is the id that the conversation should have, empty when unknown.
        hindrance: what forbids to go on with a session now, beside its being held: (store, session) → why, or None. Blocking.
        transcript: the file that grows while a turn of a session runs: (store, session) → path, or empty. Blocking.
        chooses_id: the id of a new conversation is ours to choose.
        keyed: the key stands in the agent's records, so that they tell what became of the message.
        interrupt: the signal that ends a turn so that it is recorded as interrupted.
        newest: the agent's id for the message that a session accepted last, empty where there was none yet, None where that
            cannot be told: (store, session) → id. Blocking. Where it is the same before a turn was started and when its process
            is gone, the message never got in; else it is a key for `Agent.record`, if nobody else held the session meanwhile.
            Itself None where the agent's records do not have such an id.
        resumed_mode: the mode in which a session has to go on because the agent would forget it: (store, session) → what belongs
            into `Order.mode`, empty where nothing does. Blocking.
        noise: whether a line of output is no sign of life (DE-32).
        mode_setting: the setting that names a mode; modes: those that it may name, the strictest first; default_mode: what
            a new conversation gets where none is named, empty where the agent decides; new_only: the mode is for those alone.
    """

    product: Product
    arguments: Callable[[Order], list[str]]
    input: Callable[[str, str], bytes]
    by_file: bool
    output: Callable[[str], Output]
    hindrance: Callable[[str, str], Hindrance | None]
    transcript: Callable[[str, str], str]
    chooses_id: bool
    keyed: bool
    mode_setting: str
    modes: tuple[str, ...]
    default_mode: str = ""
    new_only: bool = False
    interrupt: int = signal.SIGINT
    newest: Callable[[str, str], str | None] | None = None
    resumed_mode: Callable[[str, str], str] = lambda _store, _session: ""
    noise: Callable[[bytes], bool] = lambda _line: False
