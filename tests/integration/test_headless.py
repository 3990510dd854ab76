"""Turns on command lines, the whole way: a caller, the broker, a runner, and the stub of the agent (DE-24, EN-11 to EN-16)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.brokers import Brokers
from tests.integration.panels import McpClient
from tests.integration.world import World

AGENTS = ("claude", "codex", "grok")
each_agent = pytest.mark.parametrize("agent", AGENTS)


class CommandLines(World):
    """A world in which turns may be started, with the stubs as the agents' programs."""

    def __init__(self, home: Path, brokers: Brokers) -> None:
        self.bin = home / "agents" / "bin"
        super().__init__(home, brokers, CROSS_AGENT_DISABLE_HEADLESS="0", PATH=f"{self.bin}{os.pathsep}{os.environ['PATH']}")
        for agent in AGENTS:
            self._stub(agent)
        self.user = home / "user"
        self.work = home / "work"
        for place in (self.user, self.work):
            place.mkdir()
        Path(self.home.config).write_text('[grants]\nchild_env = ["XAI_API_KEY"]\n')

    def caller(self, **variables: str) -> McpClient:
        """Somebody who is no agent, whose registration passes on the one key that a stub asks for."""
        own = {"HOME": str(self.user), "XAI_API_KEY": "k", "CROSS_AGENT_CHILD_ENV": "XAI_API_KEY"}
        client = self.mcp(**{**own, **variables})
        client.shake_hands()
        return client

    def opened(self, client: McpClient, agent: str, text: str = "begin [[reply begun]]") -> dict[str, Any]:
        """A first conversation of ``agent``, over."""
        count = len(self.requests())
        receipt = self.send(client, agent, text, new_session=True)
        self.finished(count + 1)
        return {**receipt, **self.requests()[count]}

    def send(self, client: McpClient, agent: str, text: str, session: str = "", **arguments: Any) -> dict[str, Any]:
        asked: dict[str, Any] = {
            "message": text,
            "cwd": str(self.work),
            **({"session_id": session} if session else {}),
            **arguments,
        }
        answer: dict[str, Any] = client.call(f"send_to_{agent}", **asked)
        return answer


@pytest.fixture
def world(home: Path, brokers: Brokers) -> Iterator[CommandLines]:
    built = CommandLines(home, brokers)
    try:
        yield built
    finally:
        built.close()


@pytest.mark.requirement("SE-40", "EN-14", "DE-02", "DE-03")
@each_agent
def test_a_conversation_is_opened_and_gone_on_with(world: CommandLines, agent: str) -> None:
    client = world.caller()
    first = world.opened(client, agent)
    assert (first["route"], first["target_selected_by"], first["will_create_session"]) == ("headless", "new", True), first
    assert first["idle_limit_seconds"] == 600
    assert {"new_conversation", "unknown_caller"} <= {warning["code"] for warning in first["warnings"]}
    assert (first["state"], first["reply_preview"]) == ("delivered", "begun")
    session = first["session"]
    assert session

    second = world.send(client, agent, "go on [[reply went on]]")
    assert (second["target_session_id"], second["target_selected_by"]) == (session, "pin"), second
    world.finished(2)
    answered = world.requests()[1]
    assert (answered["state"], answered["reply_preview"], answered["session"]) == ("delivered", "went on", session)
    status = client.call("bridge_status", delivery_id=second["delivery_id"])
    assert status["peer_transcript"] == {"is_working": False, "answer": status["peer_transcript"]["answer"]}
    assert "went on" in status["peer_transcript"]["answer"]
    assert os.listdir(world.home.turns) == []
