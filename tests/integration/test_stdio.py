"""Whatever stdio is, a shim serves it, and leaves it as it found it."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from pathlib import Path

import pytest

from tests.integration.conftest import OpenPanel
from tests.integration.editor import PATIENCE, STDIO
from tests.integration.installation import Shim, make_child

DATA = b'{"type":"user","text":"' + "日".encode() * 1000 + b'"}\n' + b"\x00\xff\r\n"


@pytest.mark.parametrize("stdio", STDIO)
@pytest.mark.requirement("SH-05", "SH-11")
def test_kinds_of_stdio(open_panel: OpenPanel, stdio: str) -> None:
    editor = open_panel("echo", stdio=stdio)
    assert editor.exchange(DATA * 20) == DATA * 20
    if stdio != "pty":
        editor.close_input()
        assert editor.read_rest() == b""
        assert editor.wait() == 0
    assert editor.errors() == b""


@pytest.mark.requirement("SH-05")
def test_files(shim: Shim, tmp_path: Path) -> None:
    source, sink = tmp_path / "in", tmp_path / "out"
    source.write_bytes(DATA * 100)
    command, environment = shim.panel(make_child("echo", tmp_path))
    with source.open("rb") as stdin, sink.open("wb") as stdout:
        assert subprocess.run(command, stdin=stdin, stdout=stdout, env=environment, timeout=PATIENCE).returncode == 0
    assert sink.read_bytes() == DATA * 100


@pytest.mark.requirement("SH-05")
def test_nothing_at_all(shim: Shim, tmp_path: Path) -> None:
    command, environment = shim.panel(make_child("echo", tmp_path))
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, env=environment, timeout=PATIENCE)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


@pytest.mark.parametrize("closed", [0, 1, 2])
@pytest.mark.requirement("SH-07")
def test_a_descriptor_that_is_closed_at_the_start(shim: Shim, tmp_path: Path, closed: int) -> None:
    """There is no editor to stand between: the agent is called as it would have been."""
    command, environment = shim.panel(make_child("report", tmp_path))
    process = subprocess.Popen(
        command,
        env=environment,
        stdin=None if closed == 0 else subprocess.DEVNULL,
        stdout=None if closed == 1 else subprocess.PIPE,
        stderr=None if closed == 2 else subprocess.PIPE,
        preexec_fn=lambda: os.close(closed),
    )
    out, err = process.communicate(timeout=PATIENCE)
    report = json.loads(err if closed == 1 else out)
    assert process.returncode == 0
    assert report["pid"] == process.pid
    assert closed not in report["descriptors"]


@pytest.mark.parametrize("blocking", [True, False])
@pytest.mark.requirement("SH-06")
def test_inherited_descriptors_keep_their_mode(shim: Shim, tmp_path: Path, blocking: bool) -> None:
    """The open file description is the editor's as well: what the shim sets in it, the editor has."""
    command, environment = shim.panel(make_child("echo", tmp_path))
    agent_in, to_agent = socket.socketpair()
    agent_out, from_agent = socket.socketpair()
    agent_in.setblocking(blocking)
    agent_out.setblocking(blocking)
    data = DATA * 2000
    process = subprocess.Popen(command, stdin=agent_in.fileno(), stdout=agent_out.fileno(), env=environment)
    writer = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=to_agent.fileno())
    to_agent.close()
    from_agent.settimeout(PATIENCE)
    received = bytearray()
    assert writer.stdin is not None
    pid = os.fork()
    if pid == 0:
        writer.stdin.write(data)
        writer.stdin.close()
        os._exit(0)
    writer.stdin.close()
    while len(received) < len(data):
        received += from_agent.recv(65536)
    assert bytes(received) == data
    assert os.get_blocking(agent_in.fileno()) is blocking
    assert os.get_blocking(agent_out.fileno()) is blocking
    os.waitpid(pid, 0)
    assert writer.wait(PATIENCE) == 0
    assert process.wait(PATIENCE) == 0
    for end in (agent_in, agent_out, from_agent):
        end.close()
