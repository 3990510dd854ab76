"""`cross-agent demo`: with the stand-ins, and with the agents that are installed."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Container, Sequence
from pathlib import Path

import pytest

from tests.real.binaries import CLAUDE_VERSIONS, CODEX_VERSIONS, binary
from tests.real.homes import MARK, ClaudeHome, CodexHome
from tests.real.models import AnthropicModel, OpenAIModel, anthropic
from tests.real.models.plan import Event, Order, newest_script

ROOT = Path(__file__).parents[2]
PATIENCE = 120


def demo(*options: str, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    command = (str(ROOT / "bin" / "cross-agent"), "demo", *options)
    environment = {**environment, MARK: os.environ.get(MARK, "")}
    return subprocess.run(command, env=environment, text=True, capture_output=True, timeout=PATIENCE, check=False)


@pytest.mark.requirement("MC-25")
def test_the_demo_needs_no_account_and_leaves_nothing(tmp_path: Path) -> None:
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "TMPDIR": str(tmp_path)}

    played = demo(environment=environment)

    assert played.returncode == 0, played.stderr
    told = [line.split("│", 1)[1].strip() for line in played.stdout.splitlines() if "│" in line]
    asked, answered = told.index("=== CROSS-AGENT BRIDGE MESSAGE ==="), told.index("=== CROSS-AGENT BRIDGE REPLY ===")
    assert "No: 2026 is not divisible by 4." in told[asked:answered], "Codex has answered before the reply is there"
    assert told[-1] == "No: 2026 is not divisible by 4.", "the asking panel has the answer"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.requirement("MC-25")
def test_the_demo_plays_with_the_installed_agents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def plan(events: Sequence[Event], spent: Container[str] = ()) -> Order:
        """Claude's model does what the demo asks for in words."""
        order = newest_script(events, spent)
        asked = re.search(r"Use the tool send_to_codex .* session_id (\S+) and the message \"(.*)\" Then", order.message)
        if asked is None:
            return order
        arguments = json.dumps({"session_id": asked[1], "message": asked[2]})
        return Order(f"[[tool mcp__cross-agent__send_to_codex {arguments} ;; say Asked.]]", order.done)

    monkeypatch.setattr(anthropic, "newest_script", plan)
    with AnthropicModel() as claude_model, OpenAIModel() as codex_model:
        claude, codex = ClaudeHome(tmp_path / "h", claude_model.url), CodexHome(tmp_path / "h", codex_model.url)
        environment = {
            **claude.environment(),
            **codex.environment(),
            "CROSS_AGENT_REAL_CLAUDE": str(binary(f"claude-{CLAUDE_VERSIONS[0]}")),
            "CROSS_AGENT_REAL_CODEX": str(binary(f"codex-{CODEX_VERSIONS[0]}")),
        }

        played = demo("--real", "--yes", environment=environment)

        assert played.returncode == 0, played.stdout + played.stderr
        assert "=== CROSS-AGENT BRIDGE REPLY ===" in played.stdout
        turns = [request for request in codex_model.requests if not request.side]
        assert len(turns) == 1, "one turn of the Codex account, as announced"
