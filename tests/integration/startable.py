"""A world in which agents may be started on their command lines, and a caller who may have it done.

Owns the stubs in the agents' place, and what their start needs: a home, a directory to work in, the grants.
"""

from __future__ import annotations

import os
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

    def __init__(self, home: Path, brokers: Brokers, **settings: str) -> None:
        self.bin = home / "agents" / "bin"
        path = f"{self.bin}{os.pathsep}{os.environ['PATH']}"
        super().__init__(home, brokers, CROSS_AGENT_DISABLE_HEADLESS="0", PATH=path, **settings)
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
