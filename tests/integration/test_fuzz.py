"""The fuzzing that bin/test does: the command with a bound and one seed. Longer: ``python -m tests.fuzz``.

Where atheris has no wheel (pyproject.toml), hypothesis drives the same targets.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz import engines
from tests.fuzz.targets import TARGETS
from tests.integration.environments import ROOT

PLAYS = {"claude": 600, "codex": 500, "grok": 400, "lines": 2000, "pump": 800}
"""Some thousands in all, and about a second each."""


def fuzz(*arguments: str, root: Path = ROOT) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.fuzz", *arguments]
    return subprocess.run(command, cwd=root, capture_output=True, text=True, check=False, timeout=150)


@pytest.mark.requirement("SH-05", "SH-07", "SH-20", "SH-33")
@pytest.mark.parametrize("target", TARGETS)
def test_a_bounded_run_breaks_no_rule(tmp_path: Path, target: str) -> None:
    run = fuzz(target, "--runs", str(PLAYS[target]), "--keep", str(tmp_path))
    assert run.returncode == 0, run.stdout + run.stderr


@pytest.mark.requirement("SH-05")
def test_the_other_engine_plays_as_well(tmp_path: Path) -> None:
    run = fuzz("lines", "--runs", "100", "--engine", "hypothesis", "--keep", str(tmp_path))
    assert run.returncode == 0, run.stdout + run.stderr


@pytest.mark.parametrize("engine", sorted(engines.ENGINES))
def test_what_breaks_a_rule_is_kept_and_can_be_played_again(tmp_path: Path, engine: str) -> None:
    if engine == "atheris" and engines.best() != "atheris":
        pytest.skip("atheris is not installed: it has no wheel for this platform")
    copy = with_a_fault(tmp_path)
    run = fuzz("lines", "--runs", "1000", "--engine", engine, root=copy)
    assert run.returncode == 1, run.stdout + run.stderr
    assert "AssertionError" in run.stdout
    (found,) = (copy / ".fuzz" / "lines").glob("crash-*")
    again = fuzz("lines", "--replay", str(found), root=copy)
    assert again.returncode == 1
    assert "AssertionError" in again.stderr


def with_a_fault(directory: Path) -> Path:
    """A copy of what is fuzzed, in which a long line that is ours is passed to the editor from where it became too long."""
    for name in ("broker", "shims", "tests/fuzz"):
        shutil.copytree(ROOT / name, directory / name, ignore=shutil.ignore_patterns("__pycache__"))
    (directory / "tests" / "__init__.py").touch()
    lines = directory / "shims" / "lines.py"
    text = lines.read_text()
    faulty = text.replace("            self._swallowing = not whole\n", "            self._mid_line = not whole\n")
    assert faulty != text
    lines.write_text(faulty)
    return directory
