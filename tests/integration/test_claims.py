"""A shim speaks only for sessions that its own agent holds (EN-05)."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.cli.calls import call, stop_broker
from broker.paths import Home
from broker.processes import ProcessId, identify
from broker.wire import SessionState
from tests.integration.scripted_shim import ScriptedShim

PATIENCE = 20.0


@pytest.fixture
def broker(home: Path) -> Iterator[Home]:
    state = Home(str(home))
    call(state, "status", start=True, patience=PATIENCE)
    yield state
    stop_broker(state)


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[ProcessId]:
    """A living process that is recorded as the holder of session `s`, and descends from no shim: its parent has left it."""
    command = 'sleep 600 >/dev/null & echo "$!"'
    started = subprocess.run(["/bin/sh", "-c", command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=True)
    held = identify(int(started.stdout))
    assert held is not None
    (tmp_path / "sessions").mkdir()
    record = {"pid": held.pid, "procStart": str(held.start), "sessionId": "s", "cwd": "/", "kind": "interactive"}
    (tmp_path / "sessions" / f"{held.pid}.json").write_text(json.dumps(record))
    yield held
    if held.alive():
        os.kill(held.pid, signal.SIGKILL)


def sessions(home: Home, after: int = -1) -> list[str]:
    """The ids that the broker believes in, once an event after ``after`` has happened."""
    if after >= 0:
        call(home, "next_event", after=after)
    return [session["id"] for panel in call(home, "overview")["ide_panels"] for session in panel["sessions"]]


@pytest.mark.requirement("EN-05", "SE-09")
def test_a_session_that_another_process_holds_is_not_believed(broker: Home, holder: ProcessId, tmp_path: Path) -> None:
    shim = ScriptedShim(broker, tmp_path, SessionState("s"), lambda *_: [], agent="claude")
    try:
        shim.wait_welcome()
        assert sessions(broker) == []

        os.kill(holder.pid, signal.SIGKILL)
        deadline = time.monotonic() + PATIENCE
        while sessions(broker) != ["s"]:
            assert time.monotonic() < deadline, "the claim is checked again when its holder may be gone"
            call(broker, "next_event", after=call(broker, "status")["event_sequence"])
    finally:
        shim.close()


@pytest.mark.requirement("EN-05")
def test_a_session_that_nobody_else_holds_is_the_shims(broker: Home, tmp_path: Path) -> None:
    shim = ScriptedShim(broker, tmp_path, SessionState("t"), lambda *_: [], agent="claude")
    try:
        shim.wait_welcome()
        deadline = time.monotonic() + PATIENCE
        while sessions(broker) != ["t"]:
            assert time.monotonic() < deadline
            call(broker, "next_event", after=call(broker, "status")["event_sequence"])
    finally:
        shim.close()


@pytest.mark.requirement("EN-05")
def test_the_sockets_are_the_users_alone(broker: Home) -> None:
    for name in os.listdir(broker.run):
        assert os.stat(os.path.join(broker.run, name)).st_mode & 0o077 == 0, name
