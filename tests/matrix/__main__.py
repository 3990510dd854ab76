"""``python -m tests.matrix [claude] [codex] [grok] [--versions a,b] [--last N] [--write] [--prune]``.

Plays every version of the agents that are named, by themselves all of them, newest first, and prints a table. Ends with 1 when
a cell is not as it must be.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tests.matrix import page, versions
from tests.matrix.columns import COLUMNS, Column
from tests.matrix.rows import Row, Stage, play_row
from tests.real.binaries import PACKAGES, BinaryMissingError, cache_directory, remove
from tests.real.stories import numbers

if TYPE_CHECKING:
    from collections.abc import Sequence

BOUND = 240.0


def parsed(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.matrix", description=__doc__)
    parser.add_argument("agents", nargs="*", metavar="agent", help=", ".join(PACKAGES))
    parser.add_argument("--versions", help="these, separated by commas")
    parser.add_argument("--last", type=int, help="so many of the newest, and no pinned ones beside them")
    parser.add_argument("--columns", help="only these, separated by commas")
    parser.add_argument(
        "--write", action="store_true", help="keep the rows in docs/compatibility.md, beside those of other versions"
    )
    parser.add_argument("--prune", action="store_true", help="remove a version after its row, unless the tests pin it")
    parser.add_argument("--bound", type=float, default=BOUND, help="seconds for one column")
    parser.add_argument(
        "--logs", type=Path, default=cache_directory().with_name("matrix"), help="where failures are told at length"
    )
    chosen = parser.parse_args(arguments)
    unknown = [agent for agent in chosen.agents if agent not in PACKAGES]
    if unknown:
        parser.error(f"unknown agent: {', '.join(unknown)}")
    if chosen.versions and len(chosen.agents) != 1:
        parser.error("--versions goes with exactly one agent")
    chosen.columns = _columns(chosen.columns)
    if not chosen.columns:
        parser.error(f"no such column; there are: {', '.join(column.heading for column in COLUMNS)}")
    if chosen.write and chosen.columns != COLUMNS:
        parser.error("--write needs all columns")
    return chosen


def _columns(named: str | None) -> tuple[Column, ...]:
    wanted = None if named is None else [name.strip() for name in named.split(",")]
    return tuple(column for column in COLUMNS if wanted is None or column.heading in wanted)


def wanted(agent: str, chosen: argparse.Namespace) -> list[str]:
    """The versions of ``agent`` to play, newest first."""
    if chosen.versions:
        return [version.strip() for version in chosen.versions.split(",")]
    if chosen.last is not None:
        return versions.published(agent)[: chosen.last]
    return versions.with_pinned(agent, versions.published(agent)[: versions.LAST])


def played(agent: str, version: str, stage: Stage) -> Row:
    """The row of one version, told cell by cell as it comes."""
    row = Row(agent, version, time.strftime("%Y-%m-%d"))
    for heading, cell in play_row(agent, version, stage):
        row.cells[heading] = cell
        print(f"{agent} {version}: {heading}: {cell.mark}{' ' if cell.note else ''}{cell.note}", flush=True)
    return row


def keep(new: Sequence[Row], replaced: Sequence[str]) -> None:
    """Put ``new`` rows on the page; all others of the agents in ``replaced`` go."""
    played_now = {(row.agent, row.version) for row in new}
    old = [row for row in page.read() if row.agent not in replaced and (row.agent, row.version) not in played_now]
    page.write(sorted([*old, *new], key=lambda row: numbers(row.version), reverse=True), COLUMNS)


def main() -> int:
    chosen = parsed(sys.argv[1:])
    stage = Stage(chosen.columns, chosen.bound, chosen.logs)
    rows: list[Row] = []
    for agent in chosen.agents or list(PACKAGES):
        own: list[Row] = []
        try:
            listed = wanted(agent, chosen)
        except BinaryMissingError as error:
            print(error, file=sys.stderr)
            return 1
        for version in listed:
            own.append(played(agent, version, stage))
            rows.append(own[-1])
            if chosen.write:
                keep(own, ())  # so that a run which is stopped has told what it found
            if chosen.prune:
                remove(f"{agent}-{version}")
        if chosen.write and not chosen.versions and chosen.last is None:
            keep(own, (agent,))
    print(page.text(rows, chosen.columns))
    kept = all(row.kept for row in rows)
    if not kept:
        print(f"what failed is told at length in {chosen.logs}", file=sys.stderr)
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
