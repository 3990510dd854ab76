"""Real agents that no editor's panel shows: headless, in a terminal, or in the shell of another agent.

Owns their homes and their processes. What the bridge takes them for is read where they read it themselves: in the answer of
``bridge_status``, as their model gets it.
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from typing import TYPE_CHECKING, Any, Final

from tests.real.binaries import binary
from tests.real.exchange import MCP
from tests.real.homes import ClaudeHome, CodexHome, GrokHome
from tests.real.panels.record import WAIT
from tests.real.party import calling

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.real.exchange import World
    from tests.real.homes import Home
    from tests.real.models import ScriptedModel

ASK: Final = f"who is asking [[{calling('bridge_status')} ;; say asked]]"
"""A turn in which the bridge is asked once for whom it takes the caller."""

STRANGER: Final = "5f1b9d1e-0000-4000-8000-00000000000f"
"""The session that everything which proves nothing names."""


def lies(agent: str, session: str = STRANGER) -> dict[str, str]:
    """Every variable by which ``agent``, and any other, may be told its session, each naming ``session``."""
    told = {f"{name}_SESSION_ID": session for name in ("CLAUDE_CODE", "GROK", "COPILOT_AGENT")}
    return {**told, "CODEX_THREAD_ID": session, "CROSS_AGENT_SELF_SESSION": f"{agent}:{session}"}


class Alone:
    """One agent without a panel.

    Args:
        name: ``claude-2.1.332``, ``codex-0.171.0``, ``grok-1.0.41`` …
        told: further environment of its own process, ``registered`` of its MCP server.
    """

    def __init__(
        self, world: World, name: str, *, told: Mapping[str, str] | None = None, registered: Mapping[str, str] | None = None
    ) -> None:
        self.agent, _, self.version = name.partition("-")
        kind, model = _KINDS[self.agent]
        self.model: ScriptedModel = getattr(world, model)
        own = {"CROSS_AGENT_HOME": str(world.state)}
        self.home: Home = kind(
            world.directory / f"alone-{name}",
            self.model.url,
            MCP,
            {**own, **(registered or {})},
            {**own, **(told or {})},
            shell="allow",
        )
        self.real = binary(name)

    def line(self, *words: str) -> list[str]:
        """The command line of a headless turn."""
        before, after = _LINES[self.agent]
        return [str(self.real), *before, *words, *after]

    def run(self, *words: str) -> str:
        """One headless turn; the session that the agent itself names at its end."""
        done = subprocess.run(
            self.line(*words),
            cwd=self.home.cwd,
            env={**self.home.environment(), "PWD": str(self.home.cwd)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=WAIT,
            check=False,
        )
        assert done.returncode == 0, done.stdout
        return session_in(done.stdout)

    def script(self, *words: str) -> str:
        """A line of shell that runs a headless turn, in the environment of this home and in no other."""
        environment = [f"{name}={value}" for name, value in self.home.environment().items()]
        inner = shlex.join(["env", "-i", *environment, *self.line(*words)])
        return f"cd {shlex.quote(str(self.home.cwd))} && {inner} </dev/null 2>&1"

    def callers(self) -> list[dict[str, Any]]:
        """For whom the bridge took each caller of this agent's kind, in the order in which they asked."""
        return callers(self.model)


def callers(model: ScriptedModel) -> list[dict[str, Any]]:
    found = []
    for request in model.requests:
        for result in request.results:
            text = result.text.replace('\\"', '"')
            found += [json.loads(caller) for caller in re.findall(r'"caller": ?(\{[^}]*\})', text)[:1]]
    return found


def session_in(output: str) -> str:
    """The session that an agent's own output names."""
    found = re.findall(r'"(?:session_id|thread_id|sessionId)": ?"([0-9a-f-]{36})"', output)
    assert found, output
    return str(found[-1])


_KINDS: Final[dict[str, tuple[Any, str]]] = {
    "claude": (ClaudeHome, "anthropic"),
    "codex": (CodexHome, "openai"),
    "grok": (GrokHome, "xai"),
}

_LINES: Final[dict[str, tuple[list[str], list[str]]]] = {
    "claude": (["-p", "--output-format", "json"], []),
    "codex": (["exec", "--json"], []),
    "grok": (["--output-format", "json"], []),
}
