"""The wheel, and every entry point of both layouts where everything around it is hostile (EN-09, SH-01, SH-16)."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import stat
import subprocess
import sys
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.integration.environments import (
    PATIENCE,
    ROOMS,
    ROOT,
    base_python,
    checkout,
    executable,
    link_packages,
    make_venv,
    stamp,
)
from tests.integration.hostile import Hostile, make_hostile
from tests.integration.installation import PANEL_CALLS

pytestmark = pytest.mark.requirement("EN-09")

LAUNCHERS = ("cross-agent", "claude-shim", "codex-shim", "grok-shim")

_CHILD = """
import json, os, sys
sys.stdout.write(sys.stdin.readline())
print(json.dumps(open(f"/proc/{os.getppid()}/cmdline").read().split(chr(0))))
"""

_INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}},
}


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the launchers are, which interpreter they are to take, and which programs."""

    bin: Path
    python: Path
    programs: Path


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built without a build environment of its own, so that no registry is asked."""
    target = tmp_path_factory.mktemp("wheel")
    done = subprocess.run(
        [sys.executable, "-I", "-m", "hatchling", "build", "--target", "wheel", "--directory", str(target)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (built,) = target.glob("*.whl")
    return built


@pytest.fixture(scope="session")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Layout:
    """The wheel in an environment of its own, as `uv tool` and `pipx` install it."""
    tool = tmp_path_factory.mktemp("tool") / "tool"
    packages = make_venv(tool, linked=False)
    if importlib.util.find_spec("pip"):
        command = [
            sys.executable,
            "-I",
            "-m",
            "pip",
            "--python",
            str(tool / "bin" / "python"),
            "install",
            "--quiet",
            "--no-index",
        ]
    elif uv := shutil.which("uv"):
        command = [uv, "pip", "install", "--quiet", "--offline", "--python", str(tool / "bin" / "python")]
    else:
        subprocess.run([base_python(), "-I", "-m", "venv", str(tool)], check=True, stdin=subprocess.DEVNULL, timeout=PATIENCE)
        command = [str(tool / "bin" / "python"), "-I", "-m", "pip", "install", "--quiet", "--no-index"]
    subprocess.run([*command, "--no-deps", str(wheel)], check=True, stdin=subprocess.DEVNULL, timeout=PATIENCE)
    link_packages(packages)
    return Layout(tool / "bin", tool / "bin" / "python", packages)


@pytest.fixture(scope="session")
def checked_out(tmp_path_factory: pytest.TempPathFactory) -> Layout:
    parent = tmp_path_factory.mktemp("checkout")
    made = checkout(parent, locks=True)
    make_venv(parent / "venv")
    stamp(made, parent / "venv")
    return Layout(made.root / "bin", parent / "venv" / "bin" / "python", made.root)


@pytest.fixture(params=["installed", "checked_out"])
def layout(request: pytest.FixtureRequest) -> Layout:
    found = request.getfixturevalue(request.param)
    assert isinstance(found, Layout)
    return found


@pytest.fixture
def hostile(tmp_path: Path) -> Hostile:
    return make_hostile(tmp_path)


@pytest.fixture
def run(hostile: Hostile, home: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs a command in the hostile directory, with hostile variables."""

    def start(command: list[str], words: str = "", **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            input=words,
            capture_output=True,
            text=True,
            cwd=hostile.directory,
            env={**hostile.environment(), "CROSS_AGENT_AUTOSTART": "off", "CROSS_AGENT_HOME": str(home), **variables},
            timeout=PATIENCE,
            check=False,
        )

    return start


# --- The wheel


@pytest.mark.requirement("SH-01", "SH-16")
def test_the_wheel_holds_the_rooms_and_the_launchers_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        scripts = {entry.filename.rpartition("/")[2]: entry for entry in archive.infolist() if ".data/scripts/" in entry.filename}
        assert set(scripts) == set(LAUNCHERS)
        assert not any(stat.S_ISLNK(entry.external_attr >> 16) for entry in archive.infolist())
        for name, entry in scripts.items():
            assert archive.read(entry) == (ROOT / "bin" / name).read_bytes()
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.startswith("cross_agent-")} <= set(ROOMS)
    assert "shims/claude/__main__.py" in names
    assert not any(name.endswith("entry_points.txt") for name in names), "an installer's own launcher heeds PYTHONPATH"


def test_the_wheel_asks_for_what_is_pinned(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (metadata,) = (archive.read(name).decode() for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
    asked = [line.removeprefix("Requires-Dist: ") for line in metadata.splitlines() if line.startswith("Requires-Dist: ")]
    assert any(line.startswith("pyzmq") for line in asked)
    assert not any(line.startswith("pytest") for line in asked)


@pytest.mark.requirement("SH-01")
def test_an_installer_puts_all_launchers_beside_the_interpreter(installed: Layout) -> None:
    for name in LAUNCHERS:
        assert os.access(installed.bin / name, os.X_OK)
        assert (installed.bin / name).read_text().startswith("#!/bin/sh\n")


def test_outside_a_tool_environment_it_says_how_to_install(installed: Layout, tmp_path: Path) -> None:
    shutil.copy(installed.bin / "cross-agent", tmp_path / "cross-agent")
    done = subprocess.run([str(tmp_path / "cross-agent"), "list"], capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 127
    assert done.stderr == "cross-agent: not installed as a tool of its own; install it with uv tool install or pipx install\n"


# --- Every entry point, in a hostile place


@pytest.mark.skipif(sys.platform != "linux", reason="asks /proc for the parent's command")
@pytest.mark.requirement("SH-01", "SH-16")
@pytest.mark.parametrize("linked", [False, True], ids=["direct", "by a link"])
@pytest.mark.parametrize("agent", ["claude", "codex", "grok"])
def test_a_shim_starts_from_its_own_place(
    layout: Layout,
    hostile: Hostile,
    run: Callable[..., subprocess.CompletedProcess[str]],
    tmp_path: Path,
    agent: str,
    linked: bool,
) -> None:
    launcher = layout.bin / f"{agent}-shim"
    if linked:
        (tmp_path / launcher.name).symlink_to(launcher)
        launcher = tmp_path / launcher.name
    child = executable(tmp_path / "agent", f"#!{base_python()} -IS\n{_CHILD}")
    if agent == "claude":
        done = run([str(launcher), str(child), *PANEL_CALLS[agent]], "{}\n")
    else:
        done = run([str(launcher), *PANEL_CALLS[agent]], "{}\n", **{f"CROSS_AGENT_REAL_{agent.upper()}": str(child)})
    echoed, parent = done.stdout.splitlines()
    assert (done.returncode, echoed, done.stderr) == (0, "{}", "")
    interpreter, *flags = (command := json.loads(parent))[:4]
    assert Path(interpreter).parent.samefile(layout.python.parent)
    assert flags == ["-I", "-S", "-c"]
    assert Path(command[7]).samefile(layout.programs / "shims" / agent / "__main__.py")
    assert hostile.heard() == ""


def test_the_mcp_server_answers(layout: Layout, hostile: Hostile, run: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    done = run([str(layout.bin / "cross-agent"), "mcp"], json.dumps(_INITIALIZE) + "\n")
    answer = json.loads(done.stdout.splitlines()[0])
    assert answer["id"] == 1
    assert answer["result"]["serverInfo"]["name"] == "cross-agent"
    assert hostile.heard() == ""


def test_the_command_line_answers(layout: Layout, hostile: Hostile, run: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    done = run([str(layout.bin / "cross-agent"), "--version"])
    assert (done.returncode, done.stderr) == (0, "")
    assert "cross-agent" in done.stdout
    assert hostile.heard() == ""


def test_the_broker_starts_and_stops(
    layout: Layout, hostile: Hostile, run: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    started = run([str(layout.bin / "cross-agent"), "broker", "start"])
    status = run([str(layout.bin / "cross-agent"), "broker", "status"])
    stopped = run([str(layout.bin / "cross-agent"), "broker", "stop"])
    assert [done.returncode for done in (started, status, stopped)] == [0, 0, 0], started.stderr + status.stderr + stopped.stderr
    assert hostile.heard() == ""


def test_the_hostile_directory_is_one(hostile: Hostile, run: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    """Without isolation the same surroundings do harm; else the tests above would show nothing."""
    for command in (["-c", "import json"], ["-m", "mcp_server"]):
        done = run([base_python(), *command], PYTHONHOME="", PYTHONPLATLIBDIR="lib")
        assert done.returncode != 0
        assert hostile.heard() != ""
        hostile.log.unlink()
