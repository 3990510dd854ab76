"""What a file is by its first bytes: for which platform, run by what, and whether it would only come back to a shim."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from shims.executable import beginning, interpreter, is_native, is_real, is_script, this_host

pytestmark = pytest.mark.requirement("SH-04")

LAUNCHERS = Path(__file__).resolve().parents[2] / "bin"


def _file(path: Path, content: bytes, mode: int = 0o755) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    path.chmod(mode)
    return path


def test_this_interpreter_is_native_here() -> None:
    assert is_native(beginning(os.path.realpath(sys.executable)), *this_host())


@pytest.mark.parametrize(
    ("head", "runs_on"),
    [
        (b"\x7fELF\x02\x01" + bytes(12) + b"\x3e\0", {("Linux", "x86_64")}),
        (b"\x7fELF\x02\x01" + bytes(12) + b"\xb7\0", {("Linux", "aarch64")}),
        (b"\x7fELF\x01\x01" + bytes(12) + b"\x28\0", {("Linux", "arm")}),
        (b"\x7fELF\x01\x02" + bytes(12) + b"\0\x28", {("Linux", "arm")}),
        (b"\xcf\xfa\xed\xfe\x07\0\0\x01", {("Darwin", "x86_64")}),
        (b"\xcf\xfa\xed\xfe\x0c\0\0\x01", {("Darwin", "aarch64")}),
        (b"\xca\xfe\xba\xbe\0\0\0\1\1\0\0\x0c", {("Darwin", "aarch64")}),
        (b"\xca\xfe\xba\xbe\0\0\0\2\1\0\0\x07" + bytes(16) + b"\1\0\0\x0c", {("Darwin", "aarch64"), ("Darwin", "x86_64")}),
        (b"\xca\xfe\xba\xbf\0\0\0\2\1\0\0\x07" + bytes(28) + b"\1\0\0\x0c", {("Darwin", "aarch64"), ("Darwin", "x86_64")}),
        (b"\xca\xfe\xba\xbe\xff\xff\xff\xff", set()),
        (b"MZ\x90\0", set()),
        (b"\x7fEL", set()),
        (b"echo", set()),
        (b"", set()),
    ],
)
def test_a_program_says_where_it_runs(head: bytes, runs_on: set[tuple[str, str]]) -> None:
    hosts = [(system, machine) for system in ("Linux", "Darwin") for machine in ("x86_64", "aarch64", "arm")]
    assert {host for host in hosts if is_native(head, *host)} == runs_on


@pytest.mark.parametrize(
    ("line", "name"),
    [
        (b"#!/bin/sh\nexit", "/bin/sh"),
        (b"#! /bin/bash -e\n", "/bin/bash"),
        (b"#!/usr/bin/env node\n", "node"),
        (b"#!/usr/bin/env -S A=b node --flag\n", "node"),
        (b"#!/usr/bin/env\n", ""),
        (b"#!\n", ""),
    ],
)
def test_what_runs_a_script(line: bytes, name: str) -> None:
    assert is_script(line)
    assert interpreter(line) == name


def test_what_is_no_executable_file_is_no_agent(tmp_path: Path) -> None:
    (tmp_path / "dangling").symlink_to("nowhere")
    (tmp_path / "loop").symlink_to("loop")
    os.mkfifo(tmp_path / "fifo", 0o755)
    _file(tmp_path / "plain", b"\x7fELF", 0o644)
    _file(tmp_path / "empty", b"")
    for path in (tmp_path, *tmp_path.iterdir(), tmp_path / "none", Path("a\0b")):
        assert not is_real(str(path))


@pytest.mark.parametrize("agent", ["claude", "codex", "grok"])
def test_a_launcher_is_no_agent_by_whatever_way(tmp_path: Path, agent: str) -> None:
    launcher = LAUNCHERS / f"{agent}-shim"
    (tmp_path / "link").symlink_to(launcher)
    (tmp_path / "link of a link").symlink_to("link")
    _file(tmp_path / "copy", launcher.read_bytes())
    (tmp_path / agent).symlink_to("copy")
    _file(tmp_path / "calls it", f'#!/bin/sh\nexec {agent}-shim "$@"\n'.encode())
    for path in (launcher, *tmp_path.iterdir()):
        assert not is_real(str(path)), path


def test_a_script_that_calls_the_agent_is_the_agent(tmp_path: Path) -> None:
    real = _file(tmp_path / "real" / "claude", b"\x7fELF")
    assert is_real(str(_file(tmp_path / "claude", f'#!/bin/sh\nexec "{real}" "$@"\n'.encode())))


@pytest.mark.timeout(5)
def test_what_a_script_calls_is_not_looked_into(tmp_path: Path) -> None:
    """Where scripts name each other, all ways through them are more than anybody can walk."""
    scripts = [tmp_path / f"script{number}" for number in range(12)]
    for script in scripts:
        _file(script, b"#!/bin/sh\n" + b"\n".join(bytes(each) for each in scripts))
    assert is_real(str(scripts[0]))


def test_a_program_that_nobody_may_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: str, flags: int) -> int:
        raise PermissionError(path, flags)

    program = _file(tmp_path / "claude", b"\x7fELF")
    (tmp_path / "link").symlink_to(_file(tmp_path / "claude-shim", b"#!/bin/sh\n"))
    monkeypatch.setattr(os, "open", refuse)
    assert is_real(str(program))
    assert not is_real(str(tmp_path / "link"))
