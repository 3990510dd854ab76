"""What is fuzzed, by name: each target takes any bytes, and fails if they break a rule.

Owns the table of targets and the fuzzing of the trackers; the line splitter and the pump have modules of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from shims import lines
from tests.fuzz import pumping, splitting
from tests.fuzz.parts import Claude, Codex, Grok
from tests.fuzz.play import read
from tests.fuzz.stage import SMALL, Part, Stage, replaced


def tracker(part: Part) -> Callable[[bytes], None]:
    """A target: the tracker never raises, its facts do not depend on the cuts, and the editor gets what SH-05 says.

    Flags of every tracker's play: ``s`` small bounds for long lines, ``l`` the tracker is loaded when the play is under way,
    ``r`` nothing was said before.
    """

    def fuzzed(data: bytes) -> None:
        flags, steps = read(data)
        play = steps if b"r" in flags else [*part.opening(flags), *steps]
        with replaced(lines, SMALL if b"s" in flags else {}):
            told = []
            for cut in (True, False):
                stage = Stage(part, flags, cut=cut)
                stage.play(play, attach_late=b"l" in flags)
                told.append(stage.told)
        assert told[0] == told[1], "what was told depends on how the streams were cut"

    return fuzzed


TARGETS: Final[dict[str, Callable[[bytes], None]]] = {
    "claude": tracker(Claude()),
    "codex": tracker(Codex()),
    "grok": tracker(Grok()),
    "lines": splitting.fuzzed,
    "pump": pumping.fuzzed,
}
