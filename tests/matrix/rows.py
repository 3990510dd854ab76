"""One row of the matrix: every column with one version, one after the other, each in a process of its own with a bound.

Owns those processes, their directories and the logs of the columns that failed. A failed column stops nothing.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

from tests.marked import MARK, end_left_behind
from tests.matrix.differences import difference
from tests.real.binaries import BinaryMissingError, binary

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.matrix.columns import Column

ROOT: Final = Path(__file__).resolve().parents[2]
GRACE: Final = 10.0
"""Seconds that the processes of a column get to end after it."""
TELL: Final = 15.0
"""Seconds before its bound at which a column writes down where it hangs."""


@dataclass(frozen=True, slots=True)
class Cell:
    """What came of one column: ✓, ✗ with what happened, – where it was not played; ``note`` is shown as a footnote."""

    mark: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    """One version. ``day`` is when it was played."""

    agent: str
    version: str
    day: str
    cells: dict[str, Cell] = field(default_factory=dict)

    @property
    def kept(self) -> bool:
        return all(cell.mark != "✗" for cell in self.cells.values())


@dataclass(frozen=True, slots=True)
class Stage:
    """How columns are played: ``bound`` in seconds for each, ``logs`` of those that failed."""

    columns: Sequence[Column]
    bound: float
    logs: Path


def play_row(agent: str, version: str, stage: Stage) -> Iterator[tuple[str, Cell]]:
    """Each column with its result, as soon as it is there."""
    try:
        binary(f"{agent}-{version}")
    except BinaryMissingError as error:
        missing = Cell("✗", str(error).split("\n", 1)[0])
        yield from ((column.heading, missing) for column in stage.columns)
        return
    for column in stage.columns:
        yield column.heading, _cell(agent, version, column.heading, stage)


def _cell(agent: str, version: str, heading: str, stage: Stage) -> Cell:
    known = difference(agent, version, heading)
    if known is not None and not known.handled:
        return Cell("–", known.reason)
    failure = _play(f"{agent}-{version}", heading, stage)
    if failure:
        return Cell("✗", failure)
    return Cell("✓", known.reason if known is not None else "")


def _play(release: str, heading: str, stage: Stage) -> str:
    """What went wrong, in a few words; empty for nothing."""
    stage.logs.mkdir(parents=True, exist_ok=True)
    log = stage.logs / f"{release}, {heading}.log"
    with tempfile.TemporaryDirectory(prefix="xm-", dir="/tmp", ignore_cleanup_errors=True) as place, log.open("wb") as output:
        began = time.monotonic()
        failure = _outcome([release, heading, place, str(stage.bound - TELL)], stage.bound, output)
        for written in sorted(Path(place, "s", "logs").glob("*.log")):
            output.write(f"--- {written.name}\n".encode() + written.read_bytes())
        output.write(f"--- {time.monotonic() - began:.1f} s: {failure or 'as it must be'}\n".encode())
    if not failure:
        log.unlink()
    return failure


def _outcome(arguments: Sequence[str], bound: float, output: IO[bytes]) -> str:
    """Plays a column; whatever comes of it, none of its processes is left when this returns."""
    mark = uuid.uuid4().hex
    place = Path(arguments[2])
    child = subprocess.Popen(
        [sys.executable, "-m", "tests.matrix.play", *arguments],
        cwd=ROOT,
        env={**os.environ, MARK: mark},
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    failure, grace = "", 0.0
    try:
        failure = _failure(child.wait(bound), place)
        grace = GRACE
    except subprocess.TimeoutExpired:
        failure = f"not over within {bound:.0f} s"
    finally:
        left = end_left_behind(mark, grace)
        child.wait()
    return failure or (f"left behind: {'; '.join(left.values())}" if left else "")


def _failure(status: int, place: Path) -> str:
    if status == 0:
        return ""
    words = place / "words"
    return words.read_text(encoding="utf-8") if words.exists() else f"the process that played it ended with status {status}"
