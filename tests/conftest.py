"""What every test shares: a mark on each process that a run starts, and a state directory that is thrown away.

Owns the proof that nothing is left behind: each child inherits ``CROSS_AGENT_TEST_MARK``, and a run whose marked processes
outlive it has failed.
"""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.marked import MARK, end_left_behind

_LEFT = "left behind"
_FOUND = pytest.StashKey[list[str]]()

_GRACE = 5.0
"""Seconds that processes which are already ending get before they count as left behind."""


def pytest_configure(config: pytest.Config) -> None:
    del config
    os.environ[MARK] = uuid.uuid4().hex
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # put aside by a shell: no agent of this run could be interrupted
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Of several workers each looks for what it has started; the run that has them says what they found."""
    left = [f"left behind: {pid} {command}" for pid, command in end_left_behind(os.environ[MARK], _GRACE).items()]
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output[_LEFT] = left
        return
    found: list[str] = session.config.stash.get(_FOUND, [])
    left += found
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    for line in left:
        if reporter is not None:
            reporter.write_line(line, red=True)
    if left:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object | None) -> None:
    found = getattr(node, "workeroutput", {}).get(_LEFT, [f"a worker has ended: {error}"])
    node.config.stash[_FOUND] = [*node.config.stash.get(_FOUND, []), *found]


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A ``CROSS_AGENT_HOME`` with a path short enough for sockets; set for this process and what it starts."""
    root = Path(tempfile.mkdtemp(prefix="xa-", dir="/tmp"))
    monkeypatch.setenv("CROSS_AGENT_HOME", str(root))
    try:
        yield root
    finally:
        shutil.rmtree(root, ignore_errors=True)
