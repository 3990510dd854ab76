"""Calls that are no panel's go straight to the agent: as if the editor had called it, and nothing of the shim stays."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from shims.discover import OUTSIDE_PATH
from shims.loops import VARIABLE
from tests.integration.editor import PATIENCE
from tests.integration.installation import LAUNCHERS, Installation, Shim, make_child

PLAIN = {
    "claude": (
        ("--version",),
        ("plugin", "list", "--json"),
        ("mcp", "list"),
        ("mcp", "add", "x", "--", "server", "--input-format", "stream-json"),
        ("-p", "hello", "--output-format", "stream-json"),
        ("--input-format", "text", "-p"),
        ("doctor",),
        (),
    ),
    "codex": (
        ("--version",),
        ("exec", "--json", "-"),
        ("-c", "app-server=1", "exec", "x"),
        ("login", "status"),
        ("app-server", "daemon", "start"),
        ("-c", "a=b", "app-server", "proxy"),
        ("app-server", "--listen", "ws://127.0.0.1:0"),
        ("app-server", "generate-ts", "--out", "x"),
        ("app-server", "--help"),
        ("--", "app-server"),
        ("exec", "app-server"),
        (),
    ),
    "grok": (
        ("--version",),
        ("update",),
        ("mcp", "list"),
        ("-p", "stdio"),
        ("agent", "serve"),
        ("agent", "--agent-profile", "stdio", "headless"),
        ("agent", "leader"),
        ("-r", "agent", "stdio"),
        ("agent", "stdio", "--help"),
        ("--", "agent", "stdio"),
        (),
    ),
}
PANEL = {
    "claude": (
        ("--output-format", "stream-json", "--input-format", "stream-json"),
        ("--input-format=stream-json", "--resume", "x"),
        ("--input-format", "text", "--input-format", "stream-json"),
    ),
    "codex": (
        ("app-server",),
        ("app-server", "--analytics-default-enabled"),
        ("-c", "features.code_mode_host=true", "app-server", "--analytics-default-enabled"),
        ("--config=x=y", "--enable", "app-server", "-C", "exec", "app-server", "--listen", "stdio://"),
    ),
    "grok": (
        ("agent", "stdio"),
        ("agent", "--model", "grok-code", "--no-leader", "stdio"),
        ("--effort=high", "agent", "--leader", "stdio", "--debug"),
    ),
}
OF_EVERY_SHELL = ("PWD", "OLDPWD", "SHLVL", "_")
"""Variables that a POSIX shell sets anew, and exports."""
OURS = VARIABLE
"""The one variable of our own."""

INSTALLED_HERE = any(
    os.path.lexists(f"{directory}/{agent}") for directory in OUTSIDE_PATH if directory.startswith("/") for agent in PLAIN
)
CALLS = [(agent, arguments) for agent, calls in PLAIN.items() for arguments in calls]
PANEL_CALLS = [(agent, arguments) for agent, calls in PANEL.items() for arguments in calls]
BOTH_KINDS = [(agent, arguments) for agent, calls in PANEL.items() for arguments in (("--version",), calls[0])]
"""A plain call and a panel's, of each agent."""


def _run(command: Sequence[str], environment: Mapping[str, str]) -> tuple[int, dict[str, Any]]:
    """Pid and the report of the child behind ``command``."""
    with subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=-1, stderr=-1) as process:
        out, err = process.communicate(timeout=PATIENCE)
        assert (process.returncode, err) == (0, b"")
        report: dict[str, Any] = json.loads(out)
        for name in (*OF_EVERY_SHELL, OURS):
            report["environment"].pop(name, None)
        return process.pid, report


def _shim(agent: str, installation: Installation, home: Path) -> Shim:
    environment = {"PATH": os.environ["PATH"], "HOME": str(home), "CROSS_AGENT_HOME": str(home / "state"), "ODD": "a b\udcff"}
    mark = "CROSS_AGENT_TEST_MARK"
    return Shim(agent, installation, {**environment, "CROSS_AGENT_AUTOSTART": "off", mark: os.environ[mark]})


@pytest.mark.parametrize(("agent", "arguments"), CALLS, ids=lambda part: part if isinstance(part, str) else " ".join(part))
@pytest.mark.parametrize("way", ["by sh", "by a link", "by Python"])
@pytest.mark.requirement("SH-02", "SH-03", "SH-12")
def test_a_plain_call_is_the_agent_itself(
    installation: Installation, home: Path, tmp_path: Path, agent: str, arguments: tuple[str, ...], way: str
) -> None:
    child = make_child("report", tmp_path)
    if way == "by a link":
        (tmp_path / "link").symlink_to(child)
        child = tmp_path / "link"
    command, environment = _shim(agent, installation, home).plain(child, *arguments)
    if way == "by Python" and agent == "claude":  # which looks for what is not in the arguments
        command, environment["PATH"] = [command[0], *arguments], f"{tmp_path}:{environment['PATH']}"
        child = child.rename(tmp_path / "claude")
    elif way == "by Python":
        del environment[f"CROSS_AGENT_REAL_{agent.upper()}"]
        environment["PATH"] = f"{tmp_path}:{environment['PATH']}"
        child = child.rename(tmp_path / agent)
    _, direct = _run([str(child), *arguments], environment)
    pid, shimmed = _run(command, environment)
    assert shimmed["pid"] == pid
    assert {**shimmed, "pid": 0} == {**direct, "pid": 0}
    assert list(home.iterdir()) == [], "a plain call leaves no trace"


@pytest.mark.parametrize(("agent", "arguments"), PANEL_CALLS, ids=lambda part: part if isinstance(part, str) else " ".join(part))
@pytest.mark.requirement("SH-03", "SH-12")
def test_a_panel_call_is_intercepted(
    installation: Installation, home: Path, tmp_path: Path, agent: str, arguments: tuple[str, ...]
) -> None:
    child = make_child("report", tmp_path)
    command, environment = _shim(agent, installation, home).plain(child, *arguments)
    _, direct = _run([str(child), *arguments], environment)
    pid, shimmed = _run(command, environment)
    assert shimmed["parent"] == pid
    # Whatever else it sees is what it would have seen.
    assert {**shimmed, "pid": 0, "parent": 0} == {**direct, "pid": 0, "parent": 0}


@pytest.mark.parametrize(("agent", "arguments"), BOTH_KINDS, ids=lambda part: part if isinstance(part, str) else " ".join(part))
@pytest.mark.parametrize("broken", [{}, {"CROSS_AGENT_SHIM_BROKEN": "1"}], ids=["", "broken"])
@pytest.mark.requirement("SH-03", "SH-07")
@pytest.mark.skipif(not os.path.exists("/proc/self/environ"), reason="looks into /proc")
def test_the_environment_is_the_editors(
    installation: Installation, home: Path, tmp_path: Path, agent: str, arguments: tuple[str, ...], broken: dict[str, str]
) -> None:
    """Byte for byte, as the kernel hands it over, but for our mark; no locale is set, and names are what a script may use."""
    child = tmp_path / agent
    child.write_text("#!/bin/sh\nexec cat /proc/$$/environ\n")
    child.chmod(0o755)
    command, environment = _shim(agent, installation, home).plain(child, *arguments)
    names = "agent name run self end line link head python system panel note previous argument directory rest key root here found"
    environment |= dict.fromkeys((*names.split(), "_", "LC_MESSAGES"), "theirs") | {"PWD": str(tmp_path), "SHLVL": "3"}
    for locale in ({}, {"LC_CTYPE": "POSIX"}, {"LC_CTYPE": "C.UTF-8"}, {"LC_CTYPE": ""}, {"LC_ALL": "C"}):
        seen = [
            sorted(subprocess.run(line, env=told, stdin=-3, stdout=-1, cwd=tmp_path, timeout=PATIENCE).stdout.split(b"\0"))
            for line, told in (([str(child)], {**environment, **locale}), (command, {**environment, **locale, **broken}))
        ]
        assert [entry for entry in seen[1] if not entry.startswith(OURS.encode())] == seen[0]


@pytest.mark.requirement("SH-02")
def test_claude_without_a_bundled_binary(installation: Installation, home: Path, tmp_path: Path) -> None:
    """Such a build passes the arguments alone; and `install` is a sub-command, whatever the PATH has of that name."""
    child = make_child("report", tmp_path, as_name="claude")
    shim = _shim("claude", installation, home)
    for variables in ({"CROSS_AGENT_REAL_CLAUDE": str(child)}, {"PATH": f"{tmp_path}:{os.environ['PATH']}"}):
        for arguments in (["--version"], ["install", "stable"], ["--input-format", "stream-json"]):
            _, report = _run([str(shim.launcher), *arguments], {**shim.environment, **variables})
            assert report["argv"] == [str(child), *arguments]


@pytest.mark.requirement("SH-02")
def test_claude_by_an_interpreter(installation: Installation, home: Path, tmp_path: Path) -> None:
    node = make_child("report", tmp_path, as_name="node")
    shim = _shim("claude", installation, home)
    environment = {**shim.environment, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    for arguments in (["cli.js", "--version"], ["cli.js", "--input-format", "stream-json"]):
        _, report = _run([str(shim.launcher), "node", *arguments], environment)
        assert report["argv"] == [str(node), *arguments]


@pytest.mark.requirement("SH-04")
@pytest.mark.parametrize("python", [True, False], ids=["with Python", "without"])
@pytest.mark.parametrize(("agent", "arguments"), BOTH_KINDS, ids=lambda part: part if isinstance(part, str) else " ".join(part))
def test_a_shim_never_calls_itself(
    installation: Installation, home: Path, tmp_path: Path, agent: str, arguments: tuple[str, ...], python: bool
) -> None:
    """By the variable, by a link, a copy or a script on the PATH: what is called in the end is the agent."""
    shim = _shim(agent, installation, home)
    names = [tmp_path / name for name in ("linked", "copied", "twice", "calls it", "calls a link", "real")]
    for directory in names:
        directory.mkdir()
    (names[0] / agent).symlink_to(shim.launcher)
    (names[1] / agent).write_bytes(shim.launcher.read_bytes())
    (names[1] / agent).chmod(0o755)
    (names[2] / agent).symlink_to(names[0] / agent)
    for directory, called in ((names[3], shim.launcher), (names[4], names[2] / agent)):
        (directory / agent).write_text(f'#!/bin/sh\nexec "{called}" "$@"\n')
        (directory / agent).chmod(0o755)
    real = make_child("report", names[5], as_name=agent)
    path = ":".join(map(str, [*names, "/usr/bin", "/bin"]))
    broken = {} if python else {"CROSS_AGENT_SHIM_BROKEN": "1"}
    for named in (shim.launcher, *(directory / agent for directory in names[:5])):
        environment = {**shim.environment, **broken, "PATH": path, f"CROSS_AGENT_REAL_{agent.upper()}": str(named)}
        command = [str(shim.launcher), str(named), *arguments] if agent == "claude" else [str(shim.launcher), *arguments]
        _, report = _run(command, environment)
        assert report["argv"] == [str(real), *arguments]


@pytest.mark.requirement("SH-04", "SH-07")
@pytest.mark.parametrize("agent", LAUNCHERS)
@pytest.mark.parametrize("python", [True, False], ids=["with Python", "without"])
@pytest.mark.skipif(INSTALLED_HERE, reason="this machine has agents where package managers put them")
def test_no_binary_anywhere_is_said(installation: Installation, home: Path, agent: str, python: bool) -> None:
    shim = _shim(agent, installation, home)
    broken = {} if python else {"CROSS_AGENT_SHIM_BROKEN": "1"}
    done = subprocess.run(
        [str(shim.launcher), "--version"],
        env={**shim.environment, **broken, "PATH": "/usr/bin:/bin"},
        capture_output=True,
        timeout=20,
    )
    assert done.returncode == 127
    assert f"CROSS_AGENT_REAL_{agent.upper()}".encode() in done.stderr
    assert done.stdout == b""


@pytest.mark.requirement("SH-07")
@pytest.mark.parametrize(("agent", "arguments"), BOTH_KINDS, ids=lambda part: part if isinstance(part, str) else " ".join(part))
def test_an_agent_without_a_first_line(
    installation: Installation, home: Path, tmp_path: Path, agent: str, arguments: tuple[str, ...]
) -> None:
    """A script of sh, to editors as well."""
    script = tmp_path / "script"
    script.write_text('echo "started $*"\n')
    script.chmod(0o755)
    command, environment = _shim(agent, installation, home).plain(script, *arguments)
    done = subprocess.run(command, env=environment, capture_output=True, timeout=PATIENCE, stdin=subprocess.DEVNULL, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"started {' '.join(arguments)}\n", "")


@pytest.mark.requirement("SH-07")
@pytest.mark.parametrize(("agent", "arguments"), BOTH_KINDS, ids=lambda part: part if isinstance(part, str) else " ".join(part))
def test_a_binary_that_cannot_be_started(
    installation: Installation, home: Path, tmp_path: Path, agent: str, arguments: tuple[str, ...]
) -> None:
    bad = tmp_path / "bad"
    bad.write_text("#!/nonexistent/interpreter\n")
    bad.chmod(0o755)
    command, environment = _shim(agent, installation, home).plain(bad, *arguments)
    done = subprocess.run(command, env=environment, capture_output=True, timeout=PATIENCE, stdin=subprocess.DEVNULL)
    assert done.returncode in (126, 127)
    assert str(bad).encode() in done.stderr
    assert b"Traceback" not in done.stderr
