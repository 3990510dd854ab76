"""A search is not made twice for nothing, and never trusted when something changed: the launcher and the note (SH-16)."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from shims.found import VARIABLES
from tests.integration.editor import PATIENCE
from tests.integration.installation import Installation, install

pytestmark = pytest.mark.requirement("SH-04", "SH-16")

SHELL = os.path.realpath("/bin/sh")
"""Stands in for the agent: a native program that can say by which name it was started."""
NONE: Mapping[str, str] = {}
SAY_NAME = ("-c", 'echo "$0"')


class Machine:
    """A home with agents in it, a launcher whose Python is counted, and a state directory."""

    def __init__(self, path: Path) -> None:
        self.home, self.state, self.log = path / "home", path / "state", path / "log"
        (self.state / "run").mkdir(parents=True)
        self.installation: Installation = install(path / "installation")
        counting = path / "python"
        counting.write_text(f'#!/bin/sh\n[ "$1" = -V ] || echo >>"{self.log}"\nexec "{sys.executable}" "$@"\n')
        counting.chmod(0o755)
        self.installation.write_stamp(str(counting))
        self.environment = {"HOME": str(self.home), "CROSS_AGENT_HOME": str(self.state), "PATH": "/usr/bin:/bin"}

    @property
    def note(self) -> Path:
        return self.state / "run" / "found-codex"

    def put(self, place: str) -> str:
        path = self.home / place
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(SHELL, path)
        return str(path)

    def age(self) -> None:
        """All that is there has been there for a while: file systems and shells may count in whole seconds."""
        past = time.time() - 100
        for directory, _, files in os.walk(self.home):
            for name in (".", *files):
                os.utime(os.path.join(directory, name), (past, past), follow_symlinks=False)

    def call(
        self, agent: str = "codex", *, through: tuple[str, ...] = (), variables: Mapping[str, str] = NONE
    ) -> tuple[str, int]:
        """What a plain call started, and how often Python was needed."""
        self.log.write_text("")
        command = [*through, str(self.installation.launcher(agent)), *SAY_NAME]
        done = subprocess.run(command, env={**self.environment, **variables}, capture_output=True, text=True, timeout=PATIENCE)
        assert done.stderr == ""
        return done.stdout.strip(), self.log.read_text().count("\n")


def _codex(editor: str, version: str) -> str:
    return f"{editor}/extensions/openai.chatgpt-{version}-linux-x64/bin/linux-x86_64/codex"


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    made = Machine(tmp_path)
    made.put(_codex(".vscode", "26.506.1"))
    made.age()
    return made


CODEX = _codex(".vscode", "26.506.1")


def test_the_second_call_needs_no_python(machine: Machine) -> None:
    real = str(machine.home / CODEX)
    assert [machine.call() for _ in range(3)] == [(real, 1), (real, 0), (real, 0)]
    assert machine.note.stat().st_mode & 0o777 == 0o600
    assert [path.name for path in machine.note.parent.iterdir()] == ["found-codex"]


def test_claude_without_a_bundled_binary(machine: Machine) -> None:
    real = machine.put(".local/bin/claude")
    machine.age()
    assert [machine.call("claude") for _ in range(2)] == [(real, 1), (real, 0)]


def test_an_update_that_moves_a_link(machine: Machine) -> None:
    """Grok Build keeps each release as a file, and a link to the one in use."""
    link = machine.home / ".grok/bin/grok"
    machine.put(".grok/bin/grok-1.0.9")
    link.symlink_to("grok-1.0.9")
    machine.age()
    assert [machine.call("grok") for _ in range(2)] == [(str(link), 1), (str(link), 0)]
    machine.put(".grok/bin/grok-1.0.41")
    (link.parent / "new").symlink_to("grok-1.0.41")
    (link.parent / "new").replace(link)
    assert machine.call("grok") == (str(link), 1)


def test_no_note_where_there_is_no_run_directory(machine: Machine) -> None:
    shutil.rmtree(machine.state)
    assert [machine.call()[1] for _ in range(2)] == [1, 1]
    assert not machine.state.exists()


def test_a_run_directory_that_cannot_be_written(machine: Machine) -> None:
    shutil.rmtree(machine.state / "run")
    (machine.state / "run").write_text("")
    assert machine.call() == (str(machine.home / CODEX), 1)


def test_a_panel_call_leaves_no_note(machine: Machine) -> None:
    command = [str(machine.installation.launcher("codex")), "app-server"]
    environment = machine.environment | {"CROSS_AGENT_AUTOSTART": "off"}
    subprocess.run(command, env=environment, capture_output=True, timeout=PATIENCE, stdin=subprocess.DEVNULL)
    assert not machine.note.exists()


# whatever changes, Python looks again, and what it finds is started


def _a_newer_version(machine: Machine) -> str:
    return machine.put(_codex(".vscode", "26.930.1"))


def _a_newer_version_in_another_editor(machine: Machine) -> str:
    return machine.put(_codex(".cursor-server", "26.930.1"))


def _an_older_version(machine: Machine) -> str:
    machine.put(_codex(".cursor", "26.1.1"))
    return CODEX


def _it_is_gone(machine: Machine) -> str:
    other = machine.put(".local/bin/codex")
    (machine.home / CODEX).unlink()
    return other


def _it_may_not_be_run(machine: Machine) -> str:
    other = machine.put(".local/bin/codex")
    (machine.home / CODEX).chmod(0o644)
    return other


def _it_became_a_shim(machine: Machine) -> str:
    other = machine.put(".local/bin/codex")
    (machine.home / CODEX).write_bytes(machine.installation.launcher("codex").read_bytes())
    return other


def _it_became_a_link_to_a_shim(machine: Machine) -> str:
    other = machine.put(".local/bin/codex")
    (machine.home / CODEX).unlink()
    (machine.home / CODEX).symlink_to(machine.installation.launcher("codex"))
    return other


def _it_was_uninstalled(machine: Machine) -> str:
    name = CODEX.split("/")[2]
    other = machine.put(_codex(".cursor", "26.1.1"))
    (machine.home / ".vscode/extensions/.obsolete").write_text(f'{{"{name}":true}}')
    return other


@pytest.mark.parametrize(
    "change",
    [
        _a_newer_version,
        _a_newer_version_in_another_editor,
        _an_older_version,
        _it_is_gone,
        _it_may_not_be_run,
        _it_became_a_shim,
        _it_became_a_link_to_a_shim,
        _it_was_uninstalled,
    ],
)
def test_what_changed_is_seen(machine: Machine, change: Callable[[Machine], str]) -> None:
    machine.call()
    assert machine.call()[1] == 0
    expected = str(machine.home / change(machine))
    assert machine.call() == (expected, 1)


def test_a_newer_version_that_is_still_being_unpacked(machine: Machine) -> None:
    machine.call()
    newer = machine.home / _codex(".vscode", "26.930.1")
    newer.parent.mkdir(parents=True)
    assert machine.call() == (str(machine.home / CODEX), 1)
    machine.put(_codex(".vscode", "26.930.1"))
    assert machine.call() == (str(newer), 1)


@pytest.mark.parametrize("place", ["first", ".local/bin"])
def test_a_better_place_than_the_path(machine: Machine, place: str) -> None:
    shutil.rmtree(machine.home / ".vscode")
    (machine.home / "first").mkdir()
    real = machine.put("second/codex")
    machine.age()
    path = f"{machine.home}/first:{machine.home}/second:/usr/bin:/bin"
    assert [machine.call(variables={"PATH": path}) for _ in range(2)] == [(real, 1), (real, 0)]
    assert machine.call(variables={"PATH": path}) == (real, 0)
    better = machine.put(f"{place}/codex")
    assert machine.call(variables={"PATH": path}) == (better, 1)


@pytest.mark.parametrize("name", VARIABLES)
def test_other_variables_are_another_search(machine: Machine, name: str) -> None:
    machine.call()
    assert machine.call()[1] == 0
    value = "/usr/bin:/bin:/opt" if name == "PATH" else str(shutil.copytree(machine.home, machine.home.parent / "other"))
    assert machine.call(variables={name: value})[1] == 1


def test_another_parent_is_another_search(machine: Machine) -> None:
    """Who started us may have been told of other extensions."""
    machine.call()
    assert machine.call()[1] == 0
    assert machine.call(through=("/bin/sh", "-c", '"$@"; exit "$?"', "sh")) == (str(machine.home / CODEX), 1)


def test_the_variable_of_the_person_comes_first(machine: Machine) -> None:
    machine.call()
    mine = machine.put("mine")
    assert machine.call(variables={"CROSS_AGENT_REAL_CODEX": mine}) == (mine, 0)
    useless = {"CROSS_AGENT_REAL_CODEX": str(machine.installation.launcher("codex"))}
    assert machine.call(variables=useless) == (str(machine.home / CODEX), 1)


def _cut(lines: int) -> Callable[[Path], None]:
    def cut(note: Path) -> None:
        note.write_text("\n".join(note.read_text().split("\n")[:lines]) + "\n")

    cut.__name__ = f"cut after {lines} lines"
    return cut


def _emptied(note: Path) -> None:
    note.write_text("")


def _a_fifo(note: Path) -> None:
    note.unlink()
    os.mkfifo(note)


def _a_directory(note: Path) -> None:
    note.unlink()
    note.mkdir()


def _noise(note: Path) -> None:
    note.write_bytes(bytes(range(256)) * 4)


def _without_its_end(note: Path) -> None:
    note.write_text(note.read_text().removesuffix(".\n"))


@pytest.mark.parametrize(
    "damage",
    [_cut(1), _cut(2), _cut(5), _emptied, _a_fifo, _a_directory, _noise, _without_its_end],
    ids=lambda damage: damage.__name__,
)
def test_a_damaged_note_is_no_note(machine: Machine, damage: Callable[[Path], None]) -> None:
    machine.call()
    damage(machine.note)
    assert machine.call() == (str(machine.home / CODEX), 1)
