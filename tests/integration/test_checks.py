"""bin/test and .ci/run: every check runs, from the root, and a failure is one; the pinned requirements belong together."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
import tomli

from tests import budgets
from tests.integration.environments import LOCKS, PATIENCE, ROOT, checkout, executable, make_venv, stamp

pytestmark = pytest.mark.requirement("EN-09")


def test_bin_test_runs_every_check_from_the_root_and_fails_if_one_does(tmp_path: Path) -> None:
    made = checkout(tmp_path)
    make_venv(tmp_path / "venv")
    stamp(made, tmp_path / "venv")
    (tmp_path / "venv" / "bin" / "python").unlink()
    log = tmp_path / "log"
    executable(
        tmp_path / "venv" / "bin" / "python",
        f'#!/bin/sh\nprintf "%s|" "$PWD" "${{PYTHONPATH-none}}" "$@" >>"{log}"; echo >>"{log}"; [ "$2" != "${{FAILS-}}" ]\n',
    )
    for fails in ("", "mypy"):
        log.unlink(missing_ok=True)
        done = subprocess.run(
            [str(made.root / "bin" / "test"), "-k", "some thing", "--full", "-x"],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env=made.environment(FAILS=fails, PYTHONPATH=str(tmp_path)),
            timeout=PATIENCE,
            check=False,
        )
        lines = [line.rstrip("|").split("|") for line in log.read_text().splitlines()]
        assert all(line[:3] == [str(made.root), "none", "-m"] for line in lines)
        assert [line[3] for line in lines] == ["tests.real.binaries", "ruff", "ruff", "mypy", "pytest", "pytest"]
        chosen = ["(full or not full) and not alone", "(full or not full) and alone"]
        assert [line[-5:] for line in lines[-2:]] == [["-m", which, "-k", "some thing", "-x"] for which in chosen]
        assert done.returncode == (1 if fails else 0)
        assert done.stdout.endswith("FAILED: types\n") == bool(fails)


def test_ci_calls_bin_test(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "bin").mkdir(parents=True)
    executable(root / "bin" / "test", '#!/bin/sh\necho "$PWD|$#"; exit 7\n')
    (root / ".ci").mkdir()
    shutil.copy(ROOT / ".ci" / "run", root / ".ci" / "run")
    done = subprocess.run(
        [str(root / ".ci" / "run")], capture_output=True, text=True, cwd=tmp_path, timeout=PATIENCE, check=False
    )
    assert (done.returncode, done.stdout) == (7, f"{root}|0\n")


def test_requirements_for_running_and_for_testing_agree() -> None:
    runtime, test = (pins(ROOT / lock) for lock in LOCKS)
    assert runtime and runtime <= test
    project = tomli.loads((ROOT / "pyproject.toml").read_text())
    for asked, locked in ((project["project"]["dependencies"], runtime), (project["dependency-groups"]["test"], test)):
        assert {name_of(requirement) for requirement in asked} <= {pin.split("==")[0] for pin in locked}


def pins(lock: Path) -> set[str]:
    """Name and version of each, whatever the platform."""
    lines = [line.split(";")[0].strip() for line in lock.read_text().splitlines()]
    found = {line for line in lines if line and not line.startswith("#")}
    assert all("==" in line and "://" not in line for line in found)
    return found


def name_of(requirement: str) -> str:
    return "".join(letter if letter.isalnum() or letter in "-_." else " " for letter in requirement).split()[0].lower()


def test_time_is_counted_per_folder() -> None:
    assert budgets.folder_of("tests/unit/test_lines.py::test_a[b/c]") == "unit"
    assert budgets.folder_of("tests/test_all.py::test_a") == "other"
    assert budgets.line("unit", 3, 119.6) == "tests/unit: 3 tests, 120 s of 120 s"
    assert budgets.line("unit", 3, 121) == "tests/unit: 3 tests, 121 s of 120 s, over budget"
    assert budgets.line("bench", 1, 5) == "tests/bench: 1 tests, 5 s"
