"""One column with one version, in a process of its own: ``python -m tests.matrix.play <release> <column> <directory>``.

Owns nothing that outlives it. Below ``directory`` it makes the world in ``w`` and the state directory in ``s``, and leaves in
``words`` a few words on what went wrong.
"""

from __future__ import annotations

import faulthandler
import os
import sys
import traceback
from pathlib import Path
from typing import Final

from tests.matrix.columns import COLUMNS
from tests.real.exchange import World

WORDS: Final = 160


def main(release: str, heading: str, place: str, bound: str) -> int:
    directory = Path(place)
    state, stage = directory / "s", directory / "w"
    for made in (state, stage):
        made.mkdir(mode=0o700)
    os.environ["CROSS_AGENT_HOME"] = str(state)
    faulthandler.dump_traceback_later(float(bound))
    column = next(column for column in COLUMNS if column.heading == heading)
    try:
        world = World(stage, state)
        try:
            column.play(world, release)
        finally:
            world.close()
    except Exception as error:
        traceback.print_exc()
        (directory / "words").write_text(words(error), encoding="utf-8")
        return 1
    return 0


def words(error: BaseException) -> str:
    """What happened in one line; an assertion that says nothing is told by its source."""
    said = str(error).strip().split("\n", 1)[0]
    if not said:
        said = (traceback.extract_tb(error.__traceback__)[-1].line or "").removeprefix("assert ")
    named = said if isinstance(error, AssertionError) else f"{type(error).__name__}: {said}"
    return named if len(named) <= WORDS else named[:WORDS] + " …"


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
