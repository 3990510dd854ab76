"""A started turn that sends messages itself: who it is, which conversation goes on, where the answer is (DE-03, DE-50, EN-13)."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.brokers import Brokers
from tests.integration.command_lines import Turns
from tests.integration.lines import Json
from tests.integration.startable import AGENTS
from tests.integration.world import MCP, ROOT
from tests.real.homes import ClaudeHome, CodexHome, GrokHome


@pytest.fixture
def world(home: Path, brokers: Brokers) -> Iterator[Turns]:
    built = Turns(home, brokers)
    for kind in (ClaudeHome, CodexHome, GrokHome):
        kind(built.user, "http://127.0.0.1:9", MCP, built.settings, shell="allow", git=False)
    look_like_agents(built)
    try:
        yield built
        assert built.left() == []
    finally:
        built.close()


def look_like_agents(world: Turns) -> None:
    """An agent is known by its executable (EN-20): copies of the interpreter, in whose names the stubs run."""
    place = world.bin.parent / "interpreters"
    place.mkdir()
    interpreter = os.path.realpath(sys.executable)
    (place / "pyvenv.cfg").write_text(f"home = {os.path.dirname(interpreter)}\n")
    for agent in AGENTS:
        shutil.copy(interpreter, place / agent)
        stub = ROOT / "shims" / agent / "stub" / "__main__.py"
        (world.bin / agent).write_text(f'#!/bin/sh\nexec {place / agent} -I -S {stub} "$@"\n')


def passed_on(world: Turns, agent: str, session: str = "") -> tuple[Json, Json, Json]:
    """The request to a turn that sends one itself, that one, and the receipt that the turn got for it."""
    other = "codex" if agent == "claude" else "claude"  # Codex does not pass on the key that Grok wants
    call = {"message": world.message("M2"), "new_session": True, "cwd": str(world.work)}
    script = f"tool mcp__cross-agent__send_to_{other} {json.dumps(call)} ;; reply sent"
    receipt = world.send(world.client, agent, world.message("M1", script), session, new_session=not session)
    world.ended(receipt)
    world.until(
        lambda: any("M2" in record["summary"] and record["id"] != receipt["delivery_id"] for record in _sent(world)), "M2"
    )
    second = next(record for record in _sent(world) if "ping M2" in record["summary"])
    world.ended({"delivery_id": second["id"]})
    return world.delivery(receipt), world.delivery({"delivery_id": second["id"]}), second["receipt"]


def _sent(world: Turns) -> list[Json]:
    return [record for record in world.requests() if record["summary"].startswith("ping M2")]


@pytest.mark.requirement("DE-50", "EN-13", "DE-41", "EN-20")
@pytest.mark.parametrize(
    ("agent", "new"),
    [
        *((agent, False) for agent in AGENTS),
        ("claude", True),
        ("grok", True),
        ("codex", True),
    ],
)
def test_its_sender_is_known_and_its_conversation_goes_on(world: Turns, agent: str, *, new: bool) -> None:
    session = "" if new else world.opened(world.client, agent)["session"]
    first, second, _ = passed_on(world, agent, session)
    assert first["state"] == "delivered", first
    assert (second["sender_agent"], second["sender_session"]) == (agent, first["session"])
    assert (second["conversation"], second["hop"]) == (first["conversation"], first["hop"] + 1)
    assert second["state"] == "delivered"
    assert "is_return_status_only" in second["flags"]


@pytest.mark.requirement("DE-03")
def test_it_is_told_where_the_answer_will_be(world: Turns) -> None:
    """A turn on the command line is over before an answer comes, and nobody reads its session then."""
    _, _, receipt = passed_on(world, "claude")
    codes = {warning["code"] for warning in receipt["warnings"]}
    assert "headless_caller" in codes, receipt
    assert "bridge_status" in receipt["warning"]
