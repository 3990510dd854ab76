"""What the end of a started turn means for its delivery. Pure; no I/O.

Owns the reading of evidence: the agent's documented end record first, then what its records say of the message, never an
exit status (EN-14). What nothing proves is uncertain, and is not sent again (DE-22).
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from broker.turns.files import DONE, FORBIDDEN, INACTIVE, TOLD, Ended
from shims.agent import Found, Record
from shims.headless import Said

KILLED = "killed_by_timeout"


class Fate(Enum):
    ANSWERED = "answered"
    NO_ANSWER = "no answer"
    """The agent had the message, and there is no answer."""
    REFUSED = "refused"
    """It never became part of a conversation, and trying again would not help."""
    HELD = "held"
    """As REFUSED, but somebody else has the session at this moment."""
    NEVER = "never"
    """Proven: it never reached the agent."""
    UNKNOWN = "unknown"


class Verdict(NamedTuple):
    """``recovered``: why the answer was found in the records and not received; empty when it was. ``later``: see `Said.later`."""

    fate: Fate
    session: str = ""
    text: str = ""
    code: str = ""
    reason: str = ""
    recovered: str = ""
    denied: tuple[str, ...] = ()
    later: tuple[str, ...] = ()
    turn: str = ""
    """By which the agent's records have its answer, where that is not the message's key."""


def of_ended(ended: Ended) -> Verdict:
    """By the word of the runner, who has seen the turn to its end."""
    said = ended.said
    if said.ended and not said.code and said.text.strip():
        return Verdict(Fate.ANSWERED, said.session, said.text, denied=said.denied, later=said.later, turn=said.turn)
    if said.code == FORBIDDEN:
        return Verdict(Fate.NEVER)
    if said.untouched:
        return Verdict(Fate.HELD if said.code == "session_held" else Fate.REFUSED, said.session, "", said.code, said.reason)
    if ended.stopped == INACTIVE:
        return Verdict(
            Fate.NO_ANSWER, said.session, "", KILLED, "its turn gave no sign of life for its whole idle limit and was ended"
        )
    if ended.stopped == TOLD:  # by nobody here: as at a shutdown
        return Verdict(Fate.NO_ANSWER, said.session, "", "interrupted", "what ran its turn was told to end, and the turn with it")
    if ended.stopped and ended.stopped != DONE:
        return Verdict(Fate.NO_ANSWER, said.session, "", "stopped", f"its turn was ended: {ended.stopped}")
    if said.code:
        return Verdict(Fate.NO_ANSWER, said.session, "", said.code, said.reason, denied=said.denied)
    if said.ended:
        return Verdict(
            Fate.NO_ANSWER, said.session, "", "no_answer", "its turn ended without a final message", denied=said.denied
        )
    return Verdict(Fate.NO_ANSWER, said.session, "", "interrupted", "the agent ended in the middle of its turn")


def by_records(said: Said, record: Record, *, decisive: bool) -> Verdict:
    """The end of the turn was not seen, and its process is gone: by what is left of its output, and by the agent's records.

    Args:
        record: what the records say of the message, or of an answer that closes with its token.
        decisive: they would show the message, had it been taken.
    """
    if said.ended:
        return of_ended(Ended(said, None))
    if record.found is Found.ANSWERED and record.text.strip():
        return Verdict(Fate.ANSWERED, said.session, record.text, recovered="the end of its turn was not seen")
    if said.begun or record.found in (Found.OPEN, Found.INTERRUPTED, Found.ANSWERED):
        return Verdict(Fate.NO_ANSWER, said.session, "", "interrupted", "what ran its turn died, and the turn with it")
    if decisive and record.found is Found.ABSENT:
        return Verdict(Fate.NEVER)
    return Verdict(Fate.UNKNOWN, said.session, "", "uncertain", "what ran its turn died, and no record tells how far it came")
