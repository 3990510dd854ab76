"""The launchers: an interpreter that is sure to start, or the agent without one, found in the stated order (SH-16)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.integration.editor import PATIENCE
from tests.integration.installation import PANEL_CALLS, ROOT, Installation, Shim, install, make_child

pytestmark = pytest.mark.requirement("SH-01", "SH-16")


@pytest.fixture
def own(tmp_path: Path) -> Installation:
    return install(tmp_path / "own installation")


def _report(shim: Shim, command: list[str], variables: dict[str, str]) -> tuple[int, dict[str, Any]]:
    environment = {**shim.environment, "PATH": "/usr/bin:/bin", **variables}
    with subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=-1, stderr=-1) as process:
        out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, err) == (0, b"")
    report: dict[str, Any] = json.loads(out)
    return process.pid, report


def _no_environment(own: Installation) -> None:
    own.stamp.unlink()


def _interpreter_gone(own: Installation) -> None:
    own.write_stamp("/nonexistent/bin/python")


def _interpreter_no_file(own: Installation) -> None:
    own.write_stamp("/usr")


def _library_gone(own: Installation) -> None:
    python, _ = own.stamp.read_text().split("\n", 1)
    own.write_stamp(python, "/nonexistent/os.py")


def _dangling_environment(own: Installation) -> None:
    (own.root / ".venv").rename(own.root / "moved")
    (own.root / ".venv").symlink_to("gone")


def _empty_stamp(own: Installation) -> None:
    own.stamp.write_text("")


def _half_a_stamp(own: Installation) -> None:
    own.stamp.write_text(own.stamp.read_text().split("\n")[0])


def _rooms_gone(own: Installation) -> None:
    (own.root / "shims").unlink()


def _interpreter(own: Installation, content: bytes) -> None:
    python = own.root / "python"
    python.write_bytes(content)
    python.chmod(0o755)
    own.write_stamp(str(python))


def _interpreter_without_its_interpreter(own: Installation) -> None:
    _interpreter(own, b"#!/nonexistent/python\n")


def _half_an_interpreter(own: Installation) -> None:
    _interpreter(own, Path(os.path.realpath("/bin/sh")).read_bytes()[:2000])


def _interpreter_that_does_not_load(own: Installation) -> None:
    """As when a library of it is missing."""
    _interpreter(own, b"#!/bin/sh\nexit 127\n")


@pytest.mark.parametrize(
    "spoil",
    [
        _interpreter_without_its_interpreter,
        _half_an_interpreter,
        _interpreter_that_does_not_load,
        _no_environment,
        _interpreter_gone,
        _interpreter_no_file,
        _library_gone,
        _dangling_environment,
        _empty_stamp,
        _half_a_stamp,
        _rooms_gone,
    ],
)
@pytest.mark.requirement("SH-07")
def test_without_a_usable_interpreter_a_panel_is_the_agent(shim: Shim, own: Installation, tmp_path: Path, spoil: Any) -> None:
    spoil(own)
    command, environment = Shim(shim.agent, own, shim.environment).panel(make_child("report", tmp_path))
    pid, report = _report(shim, command, environment)
    assert report["pid"] == pid


def test_the_order_of_fallbacks(shim: Shim, own: Installation, home: Path, tmp_path: Path) -> None:
    """Argument (Claude), variable, record of the last good one, PATH; each gone, the next."""
    _no_environment(own)
    agent, panel = shim.agent, list(PANEL_CALLS[shim.agent])
    places = {name: tmp_path / name for name in ("argument", "variable", "record", "path")}
    for place in places.values():
        place.mkdir()
        make_child("report", place, as_name=agent)
    binary = {name: place / agent for name, place in places.items()}
    record = home / "run" / f"real-{agent}"
    record.parent.mkdir()
    record.write_text(str(binary["record"]))  # no newline at its end, as the shim writes it
    variables = {f"CROSS_AGENT_REAL_{agent.upper()}": str(binary["variable"]), "PATH": f"{places['path']}:/usr/bin:/bin"}
    launcher = str(own.launcher(agent))
    wrapped = [str(binary["argument"])] if agent == "claude" else []
    for name in ("argument", "variable", "record", "path"):
        if name == "argument" and agent != "claude":
            continue
        _, report = _report(shim, [launcher, *wrapped, *panel], variables)
        assert report["argv"] == [str(binary[name]), *panel]
        binary[name].unlink()


def test_the_last_good_binary_is_recorded(shim: Shim, own: Installation, home: Path, tmp_path: Path) -> None:
    record = home / "run" / f"real-{shim.agent}"
    record.parent.mkdir()
    real = make_child("report", tmp_path, as_name="some name")
    record.write_text(str(real))
    _no_environment(own)
    _, report = _report(shim, [str(own.launcher(shim.agent)), "--version"], {})
    assert report["argv"] == [str(real), "--version"]


def test_links_are_followed_without_python(shim: Shim, own: Installation, tmp_path: Path) -> None:
    """The native installer of Claude Code leaves a link in ~/.local/bin."""
    _no_environment(own)
    real = make_child("report", tmp_path)
    (tmp_path / "first").symlink_to("second")
    (tmp_path / "second").symlink_to(real)
    command, environment = Shim(shim.agent, own, shim.environment).panel(tmp_path / "first")
    pid, report = _report(shim, command, environment)
    assert report["pid"] == pid


@pytest.mark.requirement("SH-04", "SH-07")
@pytest.mark.parametrize("place", [".local/bin", "an extension"])
def test_a_short_path_is_not_the_end(shim: Shim, own: Installation, tmp_path: Path, place: str) -> None:
    """Without Python and without a record: where installers put it, else what an editor's extension carries."""
    _no_environment(own)
    extensions = tmp_path / ".vscode-server" / "extensions"
    binary = {
        "claude": extensions / "anthropic.claude-code-2.1.332-linux-x64" / "resources" / "native-binary" / "claude",
        "codex": extensions / "openai.chatgpt-26.930.31730-linux-x64" / "bin" / "linux-x86_64" / "codex",
        "grok": tmp_path / ".grok" / "bin" / "grok",  # its extension carries none
    }[shim.agent]
    if place == ".local/bin":
        binary = tmp_path / place / shim.agent
    elif any(os.path.lexists(f"{directory}/{shim.agent}") for directory in ("/opt/homebrew/bin", "/usr/local/bin")):
        pytest.skip("this machine has the agent where package managers put it")
    binary.parent.mkdir(parents=True)
    make_child("report", binary.parent, as_name=shim.agent)
    arguments = list(PANEL_CALLS[shim.agent])
    _, report = _report(shim, [str(own.launcher(shim.agent)), *arguments], {"HOME": str(tmp_path)})
    assert report["argv"] == [str(binary), *arguments]


ELF = b"\x7fELF\x02\x01\x01" + bytes(9) + b"\x02\0"
FOREIGN = ELF + (b"\xb7\0" if os.uname().machine == "x86_64" else b">\0") + b"\x01\0\0\0" + bytes(40) + b"\n"
BAD = {
    "of another processor": FOREIGN,
    "of macOS": b"\xcf\xfa\xed\xfe\x0c\0\0\1" + bytes(40) + b"\n",
    "a script without its interpreter": b"#!/nonexistent/node\n",
    "a script whose interpreter is not on the PATH": b"#!/usr/bin/env -S no-such-node --flag\n",
    "a copy of a launcher": (ROOT / "bin" / "claude-shim").read_bytes(),
    "nothing": b"",
}


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.requirement("SH-07")
def test_one_that_cannot_run_is_not_the_end(own: Installation, home: Path, tmp_path: Path, bad: str) -> None:
    """Neither by the variable nor first on the PATH; and a script may say what it likes of shims."""
    _no_environment(own)
    for directory in ("bad", "good"):
        (tmp_path / directory).mkdir()
    (tmp_path / "bad" / "codex").write_bytes(BAD[bad])
    (tmp_path / "bad" / "codex").chmod(0o755)
    good = make_child("report", tmp_path / "good", as_name="codex")
    good.write_text(good.read_text().replace("\n", "\n# loads es-module-shims first\n", 1))
    shim = Shim("codex", own, {"HOME": str(tmp_path), "CROSS_AGENT_HOME": str(home)})
    path = {"PATH": f"{tmp_path}/bad:{tmp_path}/good:/usr/bin:/bin"}
    for variables in (path, {**path, "CROSS_AGENT_REAL_CODEX": str(tmp_path / "bad" / "codex")}):
        _, report = _report(shim, [str(own.launcher("codex")), "app-server"], variables)
        assert report["argv"] == [str(good), "app-server"]


@pytest.mark.parametrize("agent", ["claude", "codex"])
def test_the_newest_is_the_one_of_the_highest_version(own: Installation, home: Path, tmp_path: Path, agent: str) -> None:
    """Whenever it was unpacked."""
    if any(os.path.lexists(f"{directory}/{agent}") for directory in ("/opt/homebrew/bin", "/usr/local/bin")):
        pytest.skip("this machine has the agent where package managers put it")
    _no_environment(own)
    name, inside = {
        "claude": ("anthropic.claude-code", "resources/native-binary/claude"),
        "codex": ("openai.chatgpt", f"bin/{'linux' if sys.platform == 'linux' else 'macos'}-x86_64/codex"),
    }[agent]
    for editor, version in ((".vscode", "2.10.9"), (".cursor", "2.9.332"), (".cursor", "2.9.1000"), (".kiro", "1.99.0")):
        binary = tmp_path / editor / "extensions" / f"{name}-{version}-linux-x64" / inside
        binary.parent.mkdir(parents=True)
        make_child("report", binary.parent, as_name=agent)
        if version == "2.10.9":
            newest = binary
            os.utime(binary, (1, 1))
    shim = Shim(agent, own, {"HOME": str(tmp_path), "CROSS_AGENT_HOME": str(home)})
    _, report = _report(shim, [str(own.launcher(agent)), *PANEL_CALLS[agent]], {})
    assert report["argv"][0] == str(newest)


@pytest.mark.requirement("SH-04")
@pytest.mark.parametrize("path", [None, "", ":", "."])
def test_the_workspace_never_says_what_is_started(own: Installation, home: Path, tmp_path: Path, path: str | None) -> None:
    if any(os.path.lexists(f"{directory}/codex") for directory in ("/opt/homebrew/bin", "/usr/local/bin")):
        pytest.skip("this machine has the agent where package managers put it")
    _no_environment(own)
    make_child("report", tmp_path, as_name="codex")
    environment = {"HOME": str(tmp_path / "empty"), "CROSS_AGENT_HOME": str(home), "CROSS_AGENT_REAL_CODEX": "codex"}
    environment |= {} if path is None else {"PATH": path}
    for arguments in (["app-server"], ["--version"]):
        command = [str(own.launcher("codex")), *arguments]
        done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, timeout=PATIENCE)
        assert (done.returncode, done.stdout) == (127, b"")


@pytest.mark.requirement("SH-02")
@pytest.mark.parametrize(
    ("line", "dropped"),
    [
        (["/gone/claude", "--version"], 1),
        (["/gone/node", "/x/cli.js", "--version"], 2),
        (["/gone/node", "-p", "hi"], 0),
        (["--settings=/tmp/x", "-p", "hi"], 0),
        (["fix src/foo.py"], 0),
        (["/init"], 0),
    ],
)
@pytest.mark.parametrize("python", [True, False], ids=["with Python", "without"])
def test_only_a_binary_is_dropped(
    own: Installation, home: Path, tmp_path: Path, line: list[str], dropped: int, python: bool
) -> None:
    if not python:
        _no_environment(own)
    if os.path.exists("/init") and line == ["/init"]:
        pytest.skip("a program here")
    real = make_child("report", tmp_path, as_name="some name")
    shim = Shim("claude", own, {"HOME": str(tmp_path), "CROSS_AGENT_HOME": str(home)})
    _, report = _report(shim, [str(own.launcher("claude")), *line], {"CROSS_AGENT_REAL_CLAUDE": str(real)})
    assert report["argv"] == [str(real), *line[dropped:]]


def test_the_state_directory_is_in_the_home_that_was_noted(own: Installation, tmp_path: Path) -> None:
    """That of the passwd entry, whatever HOME says: there the shims leave what the launcher reads."""
    _no_environment(own)
    record = tmp_path / "passwd home" / ".cross-agent" / "run" / "real-codex"
    record.parent.mkdir(parents=True)
    real = make_child("report", tmp_path, as_name="some name")
    record.write_text(str(real))
    (own.root / ".venv" / "cross-agent-home").write_text(f"{tmp_path / 'passwd home'}\n")
    shim = Shim("codex", own, {"HOME": str(tmp_path / "other")})
    _, report = _report(shim, [str(own.launcher("codex")), "app-server"], {})
    assert report["argv"] == [str(real), "app-server"]


def test_called_by_sh_in_its_own_directory(own: Installation, home: Path, tmp_path: Path) -> None:
    real = make_child("report", tmp_path, as_name="some name")
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(home), "CROSS_AGENT_REAL_CODEX": str(real)}
    done = subprocess.run(["/bin/sh", "codex-shim", "x"], cwd=own.root / "bin", env=environment, capture_output=True)
    assert json.loads(done.stdout)["argv"] == [str(real), "x"]


def test_links_that_lead_in_a_circle_are_no_agent(shim: Shim, own: Installation, tmp_path: Path) -> None:
    (tmp_path / "circle").symlink_to("circle")
    real = make_child("report", tmp_path, as_name=shim.agent)
    _no_environment(own)
    variables = {f"CROSS_AGENT_REAL_{shim.agent.upper()}": str(tmp_path / "circle"), "PATH": f"{tmp_path}:/usr/bin:/bin"}
    _, report = _report(shim, [str(own.launcher(shim.agent)), "--version"], variables)
    assert report["argv"] == [str(real), "--version"]


@pytest.mark.parametrize("how", ["relative", "by PATH", "by a link", "by a chain of links", "as an argument of sh"])
def test_ways_to_call_a_launcher(shim: Shim, own: Installation, tmp_path: Path, how: str) -> None:
    command, environment = Shim(shim.agent, own, shim.environment).panel(make_child("report", tmp_path))
    launcher = own.launcher(shim.agent)
    links = tmp_path / "links"
    links.mkdir()
    cwd = None
    if how == "relative":
        command[0], cwd = f"./{launcher.name}", launcher.parent
    elif how == "by PATH":
        command[0] = launcher.name
        environment["PATH"] = f"{launcher.parent}:/usr/bin:/bin"
    elif how == "as an argument of sh":
        command = ["/bin/sh", str(launcher), *command[1:]]
    else:
        (links / "mine").symlink_to(launcher)
        (links / "yours").symlink_to("mine")
        command[0] = str(links / ("mine" if how == "by a link" else "yours"))
    process = subprocess.run(command, env=environment, cwd=cwd, capture_output=True, stdin=-3, timeout=PATIENCE)
    report = json.loads(process.stdout)
    assert process.stderr == b""
    assert os.path.basename(report["argv"][0]) == "report"
    assert report["argv"][1:] == list(PANEL_CALLS[shim.agent])


def test_an_environment_is_never_built(shim: Shim, own: Installation, tmp_path: Path) -> None:
    _no_environment(own)
    before = sorted(path.relative_to(own.root) for path in own.root.rglob("*"))
    command, environment = Shim(shim.agent, own, shim.environment).panel(make_child("report", tmp_path))
    _report(shim, command, environment)
    assert sorted(path.relative_to(own.root) for path in own.root.rglob("*")) == before
