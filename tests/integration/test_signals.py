"""Signals reach the agent once, and a shim ends as its agent did."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tests.integration.conftest import HEAVY, OpenPanel
from tests.integration.editor import Editor
from tests.integration.installation import ROOT, Shim, make_child
from tests.integration.processes import gone_within, reaches_state

pytestmark = [
    pytest.mark.requirement("SH-06"),
    pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="looks into /proc"),
]

FORWARDED = ("TERM", "INT", "HUP", "QUIT", "USR1", "USR2", "WINCH", "CONT")


def _listener(open_panel: OpenPanel) -> Editor:
    editor = open_panel("signals")
    editor.read_line()
    return editor


@pytest.mark.parametrize("name", FORWARDED)
@pytest.mark.parametrize("to_group", [False, True], ids=["to the shim", "to its group"])
def test_a_signal_arrives_once(open_panel: OpenPanel, name: str, to_group: bool) -> None:
    editor = _listener(open_panel)
    number = getattr(signal, f"SIG{name}")
    send = editor.send_group_signal if to_group else editor.send_signal
    send(number)
    assert editor.read_line() == b"SIG" + name.encode()
    assert editor.nothing_comes(0.15)
    editor.close_input()
    assert editor.wait() == 0
    assert editor.errors() == b""


def test_signals_in_a_row_all_arrive(open_panel: OpenPanel) -> None:
    editor = _listener(open_panel)
    for _ in range(30):
        sent = [f"SIG{name}".encode() for name in FORWARDED]
        for name in FORWARDED:
            editor.send_signal(getattr(signal, f"SIG{name}"))
        assert sorted(editor.read_line() for _ in sent) == sorted(sent)
    editor.close_input()
    assert editor.wait() == 0


@HEAVY
def test_a_signal_right_after_the_start_is_not_lost(open_panel: OpenPanel) -> None:
    """Whatever the moment: either the shim is not there yet and dies of it, or the agent gets it."""
    for delay in range(40):
        editor = open_panel("pid")
        editor.nothing_comes(delay / 1000)
        editor.send_signal(signal.SIGTERM)
        assert editor.wait(5) == -signal.SIGTERM
        assert editor.errors() == b""


def test_an_interrupt_leaves_no_traceback(open_panel: OpenPanel) -> None:
    editor = open_panel("pid")
    editor.read_line()
    editor.send_signal(signal.SIGINT)
    assert editor.wait(5) == -signal.SIGINT
    assert editor.errors() == b""


def test_stop_and_continue(open_panel: OpenPanel) -> None:
    editor = open_panel("pid")
    child = int(editor.read_line().split()[0])
    editor.send_signal(signal.SIGTSTP)
    assert reaches_state(child, "T", 5)
    assert reaches_state(editor.pid, "T", 5)
    editor.send_signal(signal.SIGCONT)
    assert reaches_state(child, "SR", 5)
    assert reaches_state(editor.pid, "SR", 5)
    editor.close_input()
    assert editor.wait() == 0


def test_what_the_editor_ignores_the_agent_ignores(open_panel: OpenPanel) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        editor = open_panel("pid")
    finally:
        signal.signal(signal.SIGHUP, before)
    child = int(editor.read_line().split()[0])
    editor.send_signal(signal.SIGHUP)
    os.kill(child, signal.SIGHUP)
    assert editor.nothing_comes(0.15)
    editor.close_input()
    assert editor.wait() == 0


def test_an_editor_that_reaps_no_children_still_gets_the_status(open_panel: OpenPanel) -> None:
    """SIGCHLD that came ignored would make the kernel forget how the agent ended."""
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        editor = open_panel("ends", ENDS="exit:7")
    finally:
        signal.signal(signal.SIGCHLD, before)
    editor.write(b"\n")
    assert editor.wait() == 7
    assert editor.errors() == b""


def _state(command: list[str], environment: Mapping[str, str], spoil: Callable[[], None]) -> list[str]:
    """What an agent that is started so ignores, catches and has blocked."""

    def prepare() -> None:
        for number in (signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        spoil()

    done = subprocess.run(
        command, env=environment, stdin=-3, stdout=-1, text=True, timeout=20, restore_signals=False, preexec_fn=prepare
    )
    return [line for line in done.stdout.splitlines() if line.startswith(("SigBlk", "SigIgn", "SigCgt"))]


@pytest.mark.parametrize("panel", [False, True], ids=["plain", "panel"])
@pytest.mark.parametrize("python", [False, True], ids=["by sh", "by Python"])
@pytest.mark.parametrize(
    "spoil",
    [
        lambda: None,
        lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN),
    ],
    ids=["nothing", "HUP ignored"],
)
@pytest.mark.requirement("SH-03", "SH-06")
def test_signals_are_as_the_editor_left_them(
    shim: Shim, tmp_path: Path, panel: bool, python: bool, spoil: Callable[[], None]
) -> None:
    """The child is no Python, which would ignore some by itself."""
    child = tmp_path / shim.agent
    child.write_text("#!/bin/sh\nexec cat /proc/$$/status\n")
    child.chmod(0o755)
    command, environment = shim.panel(child) if panel else shim.plain(child, "--version")
    if python and shim.agent == "claude":
        command[1:2] = []
    if python:
        environment.pop(f"CROSS_AGENT_REAL_{shim.agent.upper()}", None)
        environment["PATH"] = f"{tmp_path}:/usr/bin:/bin"
        environment["HOME"] = str(tmp_path)
    assert _state(command, environment, spoil) == _state([str(child)], environment, spoil) != []


def test_what_came_blocked_and_ignored_stays_so(shim: Shim, tmp_path: Path) -> None:
    """As far as it is ours to keep: by the program alone, since dash keeps neither."""
    command, environment = shim.panel(make_child("report", tmp_path))

    def spoil() -> None:
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1, signal.SIGTERM, signal.SIGALRM])

    program = [sys.executable, "-I", "-S", str(ROOT / "shims" / shim.agent / "__main__.py"), *command[1:]]
    shimmed, direct = (
        json.loads(subprocess.run(line, env=environment, stdin=-3, stdout=-1, timeout=20, preexec_fn=spoil).stdout)
        for line in (program, [str(tmp_path / "report")])
    )
    assert (shimmed["blocked"], shimmed["ignored"]) == (direct["blocked"], direct["ignored"])
    assert int(direct["blocked"], 16) and int(signal.SIGCHLD) in direct["ignored"]


@pytest.mark.parametrize("code", [0, 1, 3, 7, 126, 255])
@pytest.mark.requirement("SH-13")
def test_the_exit_code_is_the_agents(open_panel: OpenPanel, code: int) -> None:
    editor = open_panel("ends", ENDS=f"exit:{code}")
    editor.write(b"\n")
    assert editor.read_rest() == b"last words"
    assert editor.wait(5) == code


@pytest.mark.parametrize("name", ["KILL", "TERM", "SEGV", "ABRT", "HUP", "PIPE", "USR2", "XFSZ"])
def test_the_death_is_the_agents(open_panel: OpenPanel, name: str) -> None:
    number = getattr(signal, f"SIG{name}")
    limits = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, limits[1]))
    try:
        editor = open_panel("ends", ENDS=f"signal:{int(number)}")
    finally:
        resource.setrlimit(resource.RLIMIT_CORE, limits)
    editor.write(b"\n")
    assert editor.read_rest() == b"last words"
    assert editor.wait(5) == -number
    assert editor.errors() == b""


@pytest.mark.requirement("SH-11")
def test_an_agent_does_not_outlive_a_killed_shim(open_panel: OpenPanel) -> None:
    editor = open_panel("pid")
    child, parent, group = map(int, editor.read_line().split())
    assert parent == editor.pid
    assert group == child, "a signal to the shim's group would reach the agent twice"
    editor.send_signal(signal.SIGKILL)
    assert gone_within(child, 2)
    assert editor.wait() == -signal.SIGKILL


@pytest.mark.requirement("SH-11")
def test_termination_right_after_end_of_file(open_panel: OpenPanel) -> None:
    editor = open_panel("pid")
    child = int(editor.read_line().split()[0])
    editor.close_input()
    editor.send_signal(signal.SIGTERM)
    assert editor.wait(5) in (0, -signal.SIGTERM)
    assert gone_within(child, 2)
