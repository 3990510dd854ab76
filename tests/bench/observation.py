"""What looking costs: an agent's flow of short lines, through a shim that observes it and through the same pump that does not."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from tests.bench.page import Figure
from tests.bench.processes import peak_mib
from tests.bench.stage import BARE, CHILDREN, Stage, end, python_child, stage

_AGENTS = ("claude", "codex", "grok")
_MIB = 256
_BURST_MIB = 500
_TURNS = 15


def figures() -> Iterator[Figure]:
    for agent in _AGENTS:
        with stage(autostart=True) as here:
            flood = python_child(here.path, "flood.py", agent, str(_MIB))
            pairs = [(_rate(_blind(here, flood)), _rate(_seen(here, flood, agent))) for _ in range(_TURNS)]
            share = median(seen for _, seen in pairs) / median(blind for blind, _ in pairs) * 100
            yield Figure(f"observation of {agent}'s 200-byte lines, share of unobserved", share, "%", 60, more_is_better=True)
            yield Figure(f"  unobserved, {agent}'s lines", median(blind for blind, _ in pairs), "MiB/s")
            burst = python_child(here.path, "flood.py", agent, str(_BURST_MIB))
            yield Figure(f"{agent} shim: memory after {_BURST_MIB} MiB of them", _peak(_seen(here, burst, agent)), "MiB", 40)


def _blind(here: Stage, flood: Path) -> subprocess.Popen[bytes]:
    return here.spawn((*BARE, str(CHILDREN / "pump.py"), str(flood)))


def _seen(here: Stage, flood: Path, agent: str) -> subprocess.Popen[bytes]:
    """A linked shim: until its tracker is there, nothing is parsed, and what passes is only kept."""
    process = here.shim(flood, agent=agent)
    here.wait_for_panels(1)
    return process


def _rate(process: subprocess.Popen[bytes]) -> float:
    begin = time.perf_counter()
    _let_flow(process, _MIB)
    taken = time.perf_counter() - begin
    end(process)
    return _MIB / taken


def _peak(process: subprocess.Popen[bytes]) -> float:
    _let_flow(process, _BURST_MIB)
    peak = peak_mib(process.pid)
    end(process)
    return peak


def _let_flow(process: subprocess.Popen[bytes], mib: int) -> None:
    """Says go, and reads that much."""
    assert process.stdin is not None and process.stdout is not None
    os.write(process.stdin.fileno(), b"{}\n")
    left = mib << 20
    while left > 0:
        left -= len(os.read(process.stdout.fileno(), 1 << 20))
