"""What every test shares: a mark on each process that a run starts, and a state directory that is thrown away.

Owns the proof that nothing is left behind: each child inherits ``CROSS_AGENT_TEST_MARK``, and a run whose marked processes
outlive it has failed.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

_MARK = "CROSS_AGENT_TEST_MARK"
_GRACE = 5.0
"""Seconds that processes which are already ending get before they count as left behind."""


def pytest_configure(config: pytest.Config) -> None:
    del config
    os.environ[_MARK] = uuid.uuid4().hex


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    left = _outlive(time.monotonic() + _GRACE)
    if not left:
        return
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    for pid, command in left.items():
        if reporter is not None:
            reporter.write_line(f"left behind: {pid} {command}", red=True)
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue  # ended meanwhile, but too late all the same
    session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _outlive(deadline: float) -> dict[int, str]:
    """Marked processes that are still there at ``deadline``, with their command lines."""
    while marked := _marked_processes():
        left = deadline - time.monotonic()
        if left <= 0:
            break
        _wait_for_an_end(list(marked), left)
    return marked


def _wait_for_an_end(pids: list[int], seconds: float) -> None:
    watches = []
    try:
        for pid in pids:
            watches.append(os.pidfd_open(pid))
        select.select(watches, [], [], seconds)
    except ProcessLookupError:
        return
    finally:
        for watch in watches:
            os.close(watch)


def _marked_processes() -> dict[int, str]:
    if sys.platform != "linux":
        return {}
    needle = f"{_MARK}={os.environ[_MARK]}".encode()
    found = {}
    for entry in os.scandir("/proc"):
        if not entry.name.isdecimal() or int(entry.name) == os.getpid():
            continue
        try:
            environment = Path(entry.path, "environ").read_bytes()
            command = Path(entry.path, "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue  # gone, or somebody else's
        if needle in environment.split(b"\0"):
            found[int(entry.name)] = command.strip()
    return found


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A ``CROSS_AGENT_HOME`` with a path short enough for sockets; set for this process and what it starts."""
    root = Path(tempfile.mkdtemp(prefix="xa-", dir="/tmp"))
    monkeypatch.setenv("CROSS_AGENT_HOME", str(root))
    try:
        yield root
    finally:
        shutil.rmtree(root, ignore_errors=True)
