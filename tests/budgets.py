"""What each folder of tests took, against what it may take on two cores; a plugin that bin/test loads.

Owns the budgets. Fails nothing: a slow machine is not a broken program.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import pytest

BUDGETS: Final = {"unit": 120, "integration": 700, "real": 750}
"""Seconds for all tests below ``tests/<folder>`` together, set-up and tear-down of fixtures included; two run at a time."""

_spent: defaultdict[str, float] = defaultdict(float)
_tests: defaultdict[str, int] = defaultdict(int)


def folder_of(node: str) -> str:
    """``unit`` for ``tests/unit/test_lines.py::test_…``."""
    parts = node.split("::")[0].split("/")
    return parts[1] if parts[0] == "tests" and len(parts) > 2 else "other"


def line(folder: str, tests: int, seconds: float) -> str:
    budget = BUDGETS.get(folder)
    verdict = "" if budget is None else f" of {budget} s" + (", over budget" if seconds > budget else "")
    return f"tests/{folder}: {tests} tests, {seconds:.0f} s{verdict}"


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    folder = folder_of(report.nodeid)
    _spent[folder] += report.duration
    _tests[folder] += report.when == "call"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    terminalreporter.section("time per folder")
    for folder, seconds in _spent.items():
        terminalreporter.write_line(line(folder, _tests[folder], seconds))
