"""A page of figures: how it is written, read again, and compared with the last one."""

from __future__ import annotations

import os
import platform
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

PATH = Path(__file__).resolve().parents[2] / "docs" / "bench.md"

_HARNESS = (
    "Medians, against the same child run directly, in one run. Harness: `python -m tests.bench`, CPython "
    "reading and writing pipes with `os.read` and `os.write`; the writer of the throughput figures writes 1 MiB blocks of "
    "whole lines from a second thread; the echo child is CPython as well. Clock: `time.perf_counter`; across processes "
    "`CLOCK_MONOTONIC`. CPU is the scheduler's (`/proc/<pid>/task/*/schedstat`), memory is resident, shared pages included."
)


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured value; ``limit`` is what the project promises."""

    name: str
    value: float
    unit: str
    limit: float | None = None
    more_is_better: bool = False

    def kept(self) -> bool:
        if self.limit is None:
            return True
        return self.value >= self.limit if self.more_is_better else self.value <= self.limit

    def row(self) -> str:
        sign = "≥" if self.more_is_better else "≤"
        limit = "" if self.limit is None else f"{sign} {self.limit:g} {self.unit}".rstrip()
        verdict = "" if self.limit is None else "yes" if self.kept() else "**no**"
        return f"| {self.name} | {self.value:.1f} {self.unit} | {limit} | {verdict} |"


def write(figures: Iterable[Figure]) -> None:
    cores = os.cpu_count()
    head = [
        "# Figures",
        "",
        _HARNESS,
        "",
        f"Measured {time.strftime('%Y-%m-%d')} on {cores} cores, {platform.system()} {platform.machine()}, "
        f"Python {'.'.join(map(str, sys.version_info[:3]))}.",
        "",
        "| figure | measured | promised | kept |",
        "|---|---|---|---|",
    ]
    PATH.write_text("\n".join([*head, *(figure.row() for figure in figures)]) + "\n", encoding="utf-8")


def read() -> dict[str, float]:
    """The figures of the last page by name; empty when there is none."""
    if not PATH.exists():
        return {}
    rows = [line.split("|")[1:3] for line in PATH.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    return {name.strip(): float(value.split()[0]) for name, value in rows if value.split()[0].lstrip("-")[0].isdigit()}


def worse(figure: Figure, last: float) -> bool:
    """Whether ``figure`` is twice as bad as it was; small absolute changes are noise."""
    if figure.more_is_better:
        return figure.value < last / 2
    return figure.value > max(2 * last, last + 1)
