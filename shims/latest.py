"""The latest state of a session, folded from what its records tell of turns (SE-08). No I/O.

Owns what counts as the last answer and as an open turn. Which record says what is the agent's to know (its `transcript`).
"""

from __future__ import annotations

from shims.agent import Latest


class Fold:
    """Turns of one session as its records tell of them, oldest first. Times are wall-clock seconds."""

    def __init__(self, after: float) -> None:
        """``after``: what the agent says later than that is kept."""
        self._after = after
        self._open = False
        self._words = ""
        self._answer, self._ended = "", 0.0
        self._since: list[str] = []

    def begins(self) -> None:
        """A turn begins, whether or not the one before it ever ended."""
        self._open, self._words = True, ""

    def works(self) -> None:
        """Something that only stands in a turn; where it began may be out of sight."""
        self._open = True

    def says(self, words: str, when: float) -> None:
        """The agent says something that people see: its last words so far."""
        self._open, self._words = True, words
        if when > self._after:
            self._since.append(words)

    def ends(self, when: float, words: str = "") -> None:
        """The turn is finished; ``words`` if the record names its answer. One that said nothing, a compaction say, is none."""
        words = words or self._words
        if words:
            self._answer, self._ended = words, when
        self.breaks()

    def breaks(self) -> None:
        """The turn is over without an answer: interrupted, or failed."""
        self._open, self._words = False, ""

    def latest(self) -> Latest:
        return Latest(self._answer, self._ended, self._open, "\n\n".join(self._since))
