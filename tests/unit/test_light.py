"""What is loaded when: a shim imports nothing heavy before its agent runs, an MCP process nothing before it can answer."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

HEAVY = frozenset(
    ("asyncio", "dataclasses", "enum", "json", "logging", "msgpack", "re", "signal", "subprocess", "threading", "typing", "zmq")
)


def loaded(*modules: str) -> set[str]:
    """What is in memory after ``modules`` were imported the way a launcher starts them."""
    program = f"import sys; sys.path.insert(0, {str(ROOT)!r}); import {', '.join(modules)}; print(*sys.modules)"
    told = subprocess.run([sys.executable, "-I", "-S", "-c", program], stdout=subprocess.PIPE, text=True, check=True)
    return set(told.stdout.split())


@pytest.mark.requirement("SH-09")
@pytest.mark.parametrize("agent", ["claude", "codex", "grok"])
def test_a_shim_starts_its_agent_with_nothing_heavy_in_memory(agent: str) -> None:
    assert loaded("shims.program", f"shims.{agent}.command") & HEAVY == set()


@pytest.mark.requirement("SH-09", "MC-08")
def test_an_mcp_process_answers_the_handshake_without_the_wire() -> None:
    assert loaded("mcp_server.process") & {"asyncio", "dataclasses", "logging", "mcp", "msgpack", "subprocess", "zmq"} == set()
