"""Brokers that are there at once: forked from a process that has loaded all that a broker loads.

Owns that process, one a run. A broker spends a second of CPU on loading the SDK, which tests that are about something else
would spend with each world. What starts after the first one's death is started by its clients, as everywhere. A world may
name a program of its own by which these brokers, and no later ones, run turns.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from tests.integration.lines import PATIENCE

_ROOT = Path(__file__).resolve().parents[2]

_FORKER = """
import gc, json, os, sys
sys.path.insert(0, sys.argv[1])
import anyio, mcp_types, mcp.server.lowlevel, mcp.server.subscriptions, mcp.shared.message
from broker.daemon import run
from broker.paths import find_home

gc.freeze()  # a look of the collector would copy every page
for line in sys.stdin:
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        continue
    if os.fork():  # nobody's child, as one that was spawned by a client that ended
        os._exit(0)
    try:
        os.setsid()
        for descriptor in (0, 1, 2):
            os.dup2(os.open(os.devnull, os.O_RDWR), descriptor)
        os.chdir("/")
        os.umask(0o077)
        os.environ.update(json.loads(line))
        if "CROSS_AGENT_TEST_RUNNER" in os.environ:
            from broker.turns import started
            started._PROGRAM = os.environ["CROSS_AGENT_TEST_RUNNER"]
        run(find_home(), detached=False)
    finally:
        os._exit(0)
"""

_SETTINGS = MappingProxyType({"CROSS_AGENT_FAIL_POINTS": "1"})
"""What brokers read while they are loaded."""


class Brokers:
    """Starts brokers."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-c", _FORKER, str(_ROOT)], env={**os.environ, **_SETTINGS}, stdin=subprocess.PIPE, text=True
        )

    def start(self, environment: Mapping[str, str]) -> None:
        """Starts a broker with ``environment`` beside our own; it is there when it has published itself."""
        assert self._process.stdin is not None
        print(json.dumps(dict(environment)), file=self._process.stdin, flush=True)

    def close(self) -> None:
        self._process.communicate(timeout=PATIENCE)
