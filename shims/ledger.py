"""What a shim knows of every attempt it was given: at most one hand-over each, every stage told until it is heard.

Owns the states of attempts inside one shim instance and the stages that no broker has acknowledged yet (SH-30 to SH-32).
No I/O, no clock. An attempt that this instance was asked about and never saw is entombed: it is refused from then on, so
that the broker may hand the message over again elsewhere.

    ACCEPTED ──WRITTEN──▶ WRITTEN ──TAKEN──▶ TAKEN ──FINISHED──▶ FINISHED
       │  └────────────TAKEN───────────────────▲ │
       ├──REJECTED──▶ REJECTED ◀──REJECTED──┘    ├──LOST──▶ LOST
    (asked, unknown) ──NEVER──▶ ENTOMBED         (WRITTEN ──LOST──▶ LOST)
"""

from __future__ import annotations

from collections import OrderedDict
from enum import Enum

from broker.wire import StageName, StageReport

_REMEMBERED = 2000
"""Ended attempts kept, to know a repeated order as repeated; far more than a broker has open at once."""


class AttemptState(Enum):
    ACCEPTED = "accepted"
    WRITTEN = "written"
    TAKEN = "taken"
    FINISHED = "finished"
    REJECTED = "rejected"
    LOST = "lost"
    ENTOMBED = "entombed"


_A, _S = AttemptState, StageName
TRANSITIONS: dict[tuple[AttemptState, StageName], AttemptState] = {
    (_A.ACCEPTED, _S.WRITTEN): _A.WRITTEN,
    (_A.ACCEPTED, _S.TAKEN): _A.TAKEN,  # the agent's echo may be seen before the pump says that it wrote
    (_A.ACCEPTED, _S.REJECTED): _A.REJECTED,
    (_A.ACCEPTED, _S.LOST): _A.LOST,
    (_A.WRITTEN, _S.TAKEN): _A.TAKEN,
    (_A.WRITTEN, _S.REJECTED): _A.REJECTED,
    (_A.WRITTEN, _S.LOST): _A.LOST,
    (_A.TAKEN, _S.FINISHED): _A.FINISHED,
    (_A.TAKEN, _S.REJECTED): _A.REJECTED,  # Codex gives an item of its queue back
    (_A.TAKEN, _S.LOST): _A.LOST,
}
"""Every step there is; anything else is a late or doubled fact and changes nothing."""

OPEN = frozenset({_A.ACCEPTED, _A.WRITTEN, _A.TAKEN})


class Ledger:
    """The attempts of one shim instance."""

    def __init__(self) -> None:
        self._states: OrderedDict[str, AttemptState] = OrderedDict()
        self._reports: OrderedDict[int, StageReport] = OrderedDict()
        self._told: dict[str, list[StageReport]] = {}
        """For a broker that asks once more; an answer that one has on disk is not kept here as well."""
        self._number = 0
        self._unsent: list[int] = []

    def accept(self, attempt: str) -> bool:
        """Notes a new order. False: this attempt is known or entombed, do nothing with it."""
        if attempt in self._states:
            return False
        self._states[attempt] = AttemptState.ACCEPTED
        self._forget_old()
        return True

    def state(self, attempt: str) -> AttemptState | None:
        return self._states.get(attempt)

    def report(
        self,
        attempt: str,
        stage: StageName,
        *,
        session: str = "",
        code: str = "",
        status: str = "",
        text: str | None = None,
        turn: str = "",
        shown: bool = True,
    ) -> bool:
        """Notes that ``attempt`` reached ``stage``. False: it could not have from where it was."""
        state = self._states.get(attempt)
        if state is None or (state, stage) not in TRANSITIONS:
            return False
        self._states[attempt] = TRANSITIONS[state, stage]
        self._tell(StageReport(0, attempt, stage, session=session, code=code, status=status, text=text, turn=turn, shown=shown))
        return True

    def ask(self, attempt: str) -> None:
        """The broker asks what became of ``attempt``: its stages are told again, or it is entombed."""
        if attempt not in self._states:
            self._states[attempt] = AttemptState.ENTOMBED
            self._forget_old()
            self._tell(StageReport(0, attempt, StageName.NEVER))
            return
        for earlier in self._told.get(attempt, ()):
            self._reports[earlier.number] = earlier
            if earlier.number not in self._unsent:
                self._unsent.append(earlier.number)

    def settle(self, attempt: str) -> bool:
        """The broker has found the attempt's end elsewhere: nothing more is told of it. False: it had ended here."""
        if self._states.get(attempt) not in OPEN:
            return False
        self._states[attempt] = AttemptState.FINISHED
        return True

    def open_attempts(self) -> list[str]:
        """Attempts that have not come to an end here."""
        return [attempt for attempt, state in self._states.items() if state in OPEN]

    def attempts(self) -> tuple[str, ...]:
        return tuple(self._states)

    def unacknowledged(self) -> tuple[StageReport, ...]:
        """For a registration: everything that no broker has said to have seen, in order. Counts as sent."""
        self._unsent.clear()
        return tuple(self._reports[number] for number in sorted(self._reports))

    def take_unsent(self) -> list[StageReport]:
        """Stages to send now."""
        unsent, self._unsent = self._unsent, []
        return [self._reports[number] for number in sorted(unsent) if number in self._reports]

    def seen(self, number: int) -> None:
        """A broker has it on disk. Whoever asks again finds an answer there, or in the agent's records."""
        report = self._reports.pop(number, None)
        told = self._told.get(report.attempt) if report is not None and report.text is not None else None
        if told is not None:
            told[:] = [earlier._replace(text=None) if earlier.number == number else earlier for earlier in told]

    def settled(self) -> bool:
        """Whether every stage has been acknowledged."""
        return not self._reports

    def _tell(self, report: StageReport) -> None:
        self._number += 1
        numbered = report._replace(number=self._number)
        self._reports[self._number] = numbered
        self._told.setdefault(report.attempt, []).append(numbered)
        self._unsent.append(self._number)

    def _forget_old(self) -> None:
        if len(self._states) <= _REMEMBERED:
            return
        for attempt, state in self._states.items():
            if state not in OPEN:
                del self._states[attempt]
                self._told.pop(attempt, None)
                return
