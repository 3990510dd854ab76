"""``docs/compatibility.md``: how the rows of the matrix are written, and read again.

Owns that page. Rows of other versions stay on it, each with its day, so that the whole need not be played for one of them.
"""

from __future__ import annotations

import platform
import re
import sys
from typing import TYPE_CHECKING, Final

from tests.matrix.rows import ROOT, Cell, Row

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tests.matrix.columns import Column

PATH: Final = ROOT / "docs" / "compatibility.md"
TITLES: Final = {"claude": "Claude Code", "codex": "Codex", "grok": "Grok Build"}
NOTED: Final = re.compile(r"(✓|✗|–)(?:\[\^(\d+)\])?")

_HEAD: Final = """\
# Compatibility

What was played with the agents' own published releases, from npm, against scripted models: the real agent behind its shim, in
a client of its maker's protocol, and as its partner the newest release of another agent that the tests pin. ✓ is all that the
column says, ✗ is a failure; a number leads to a note, where a version does it in another way.

To repeat it: `python -m tests.matrix [claude] [codex] [grok] [--versions 1.2.3,1.2.4] [--last N] --write`. By itself it takes
the last ten finished releases of each, and those that the tests pin. {platform}.
"""


def text(rows: Iterable[Row], columns: Sequence[Column]) -> str:
    """The whole page."""
    notes: dict[str, int] = {}
    rows = list(rows)
    parts = [_HEAD.format(platform=_platform())]
    for agent, title in TITLES.items():
        own = [row for row in rows if row.agent == agent]
        if own:
            parts.append(f"## {title}\n\n{_table(own, columns, notes)}")
    parts.append(
        "## What the columns mean\n\n" + "\n".join(f"- **{column.heading}**: {column.meaning}" for column in columns) + "\n"
    )
    if notes:
        parts.append("\n".join(f"[^{number}]: {note}" for note, number in notes.items()) + "\n")
    return "\n".join(parts)


def rows_of(page: str) -> list[Row]:
    """The rows of a page; the opposite of `text`."""
    notes = dict(re.findall(r"^\[\^(\d+)\]: (.*)$", page, re.MULTILINE))
    agents = {title: agent for agent, title in TITLES.items()}
    rows: list[Row] = []
    agent, headings = "", [""]
    for line in page.splitlines():
        if line.startswith("## "):
            agent = agents.get(line[3:], "")
        elif agent and line.startswith("| version "):
            headings = _cells(line)[1:-1]
        elif agent and line.startswith("| "):
            version, *marks, day = _cells(line)
            rows.append(Row(agent, version, day, dict(_read(headings, marks, notes))))
    return rows


def read() -> list[Row]:
    return rows_of(PATH.read_text(encoding="utf-8")) if PATH.exists() else []


def write(rows: Iterable[Row], columns: Sequence[Column]) -> None:
    PATH.write_text(text(rows, columns), encoding="utf-8")


def _table(rows: Sequence[Row], columns: Sequence[Column], notes: dict[str, int]) -> str:
    headings = [column.heading for column in columns]
    lines = [_line(["version", *headings, "played"]), "|---" * (len(headings) + 2) + "|"]
    for row in rows:
        marks = [_mark(row.cells.get(heading), notes) for heading in headings]
        lines.append(_line([row.version, *marks, row.day]))
    return "\n".join(lines) + "\n"


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def _mark(cell: Cell | None, notes: dict[str, int]) -> str:
    if cell is None:
        return ""
    if not cell.note:
        return cell.mark
    note = " ".join(cell.note.split())
    return f"{cell.mark}[^{notes.setdefault(note, len(notes) + 1)}]"


def _read(headings: Sequence[str], marks: Sequence[str], notes: dict[str, str]) -> Iterable[tuple[str, Cell]]:
    for heading, shown in zip(headings, marks, strict=True):
        found = NOTED.fullmatch(shown)
        if found is not None:
            yield heading, Cell(found[1], notes.get(found[2] or "", ""))


def _platform() -> str:
    python = ".".join(map(str, sys.version_info[:3]))
    return f"Played on {platform.system()} {platform.machine()} with Python {python}"
