"""Scripts that lead back to a shim by ways that no look at them tells: what is started in the end is the agent (SH-04)."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.integration.editor import PATIENCE
from tests.integration.installation import PANEL_CALLS, Installation, install

pytestmark = pytest.mark.requirement("SH-04", "SH-07")

HEADER = "# a licence, as long as licences are\n" * 200
WRAPPERS = {
    "by a path that it puts together": '#!/bin/sh\nexec "$HOME/links/cx" "$@"\n',
    "by the PATH": '#!/bin/sh\nexec cx "$@"\n',
    "behind a long header": f'#!/bin/sh\n{HEADER}exec codex-shim "$@"\n',
    "without a first line": 'exec codex-shim "$@"\n',
    "in a process of its own": '#!/bin/sh\ncx "$@"\n',
    "in Python": f"#!{sys.executable} -IS\nimport os, sys\nos.execvp('cx', ['cx', *sys.argv[1:]])\n",
}


@pytest.fixture(scope="module")
def without_python(tmp_path_factory: pytest.TempPathFactory) -> Installation:
    made = install(tmp_path_factory.mktemp("bare") / "root")
    made.stamp.unlink()
    return made


class Machine:
    """A home with links to the launchers, an agent's directory and a wrapper's."""

    def __init__(self, home: Path, installation: Installation, wrapper: str) -> None:
        self.home, self.launcher = home, installation.launcher("codex")
        for directory in ("links", "wrapper", "real"):
            (home / directory).mkdir()
        (home / "links" / "cx").symlink_to(self.launcher)
        (home / "links" / "codex-shim").symlink_to(self.launcher)
        self.put("wrapper/codex", wrapper)
        self.put("real/codex", '#!/bin/sh\necho "real $*"\n')

    def put(self, place: str, text: str) -> None:
        (self.home / place).write_text(text)
        (self.home / place).chmod(0o755)

    def run(self, *arguments: str, path: str = "wrapper:links:real", **variables: str) -> subprocess.CompletedProcess[str]:
        places = ":".join([*(f"{self.home}/{place}" for place in path.split(":")), "/usr/bin:/bin"])
        environment: Mapping[str, str] = {"HOME": str(self.home), "PATH": places, "CROSS_AGENT_AUTOSTART": "off", **variables}
        return subprocess.run(
            [str(self.launcher), *arguments],
            env={**environment, "CROSS_AGENT_HOME": str(self.home / "state")},
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=PATIENCE,
        )


@pytest.mark.parametrize("arguments", [("--version",), PANEL_CALLS["codex"]], ids=["plain", "panel"])
@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_a_wrapper_that_leads_back_is_left_out(
    installation: Installation, tmp_path: Path, wrapper: str, arguments: tuple[str, ...]
) -> None:
    machine = Machine(tmp_path, installation, WRAPPERS[wrapper])
    named = str(tmp_path / "wrapper" / "codex")
    for variables in ({}, {"CROSS_AGENT_REAL_CODEX": named}):
        done = machine.run(*arguments, **variables)
        assert (done.returncode, done.stdout, done.stderr) == (0, f"real {arguments[0]}\n", "")


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_the_same_without_python(without_python: Installation, tmp_path: Path, wrapper: str) -> None:
    text = WRAPPERS[wrapper]
    done = Machine(tmp_path, without_python, text).run("app-server")
    assert (done.returncode, done.stdout, done.stderr) == (0, "real app-server\n", "")


@pytest.mark.parametrize("python", [True, False], ids=["with Python", "without"])
@pytest.mark.parametrize("arguments", [("--version",), PANEL_CALLS["codex"]], ids=["plain", "panel"])
def test_nothing_but_wrappers(
    installation: Installation, without_python: Installation, tmp_path: Path, arguments: tuple[str, ...], python: bool
) -> None:
    machine = Machine(tmp_path, installation if python else without_python, WRAPPERS["by the PATH"])
    done = machine.run(*arguments, path="wrapper:links")
    assert (done.returncode, done.stdout) == (127, "")
    assert "lead back" in done.stderr
    assert "CROSS_AGENT_REAL_CODEX" in done.stderr


def test_a_wrapper_that_hides_behind_other_processes_comes_to_an_end(installation: Installation, tmp_path: Path) -> None:
    machine = Machine(tmp_path, installation, '#!/bin/sh\nsh -c \'cx "$@"; exit "$?"\' sh "$@"\n')
    done = machine.run("--version")
    assert (done.returncode, done.stdout) == (127, "")
    assert "started within itself" in done.stderr


@pytest.mark.parametrize("between", ["", "sh -c '\"$@\"; exit $?' sh "], ids=["directly", "through a shell"])
def test_an_agent_that_starts_its_own_kind_is_not_mistaken(installation: Installation, tmp_path: Path, between: str) -> None:
    """As often as anybody would; through a shell, oftener than a wrapper would be let."""
    levels = 5 if between else 2
    machine = Machine(tmp_path, installation, WRAPPERS["by the PATH"])
    own_kind = f'{between}cx "$@"\n'
    machine.put("real/codex", f'#!/bin/sh\necho real\nset -- x "$@"\n[ $# -gt {levels} ] && exit\n{own_kind}exit\n')
    done = machine.run("x", path="real:links")
    assert (done.returncode, done.stdout.count("real")) == (0, levels)
    assert done.stderr == ""
