"""``config.toml`` of the Grok stub: MCP servers, and the rules for what may run unasked.

Owns what that one file means.
"""

from __future__ import annotations

import os

from shims.stub_toml import read

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Final

UNASKED: Final = frozenset(("cat", "echo", "ls", "mkdir", "printf", "pwd", "sleep", "touch", "wc"))
"""Commands that ran unasked where no rule named them; `true`, `env`, `python3`, `curl` and all others ask."""
NEVER_ASKED: Final = ["sleep"]
ALWAYS_ASKED: Final = frozenset(("rm",))
"""Commands that ask whatever a rule allows; a redirection asks as well."""


class McpEntry:
    """One ``[mcp_servers.<name>]`` table."""

    __slots__ = ("argv", "env", "name")

    def __init__(self, name: str, table: dict[str, Any]) -> None:
        self.name = name
        self.argv: list[str] = [table["command"], *table.get("args", [])]
        self.env: dict[str, str] = table.get("env", {})

    def shown(self) -> dict[str, Any]:
        command, *arguments = self.argv
        env = [{"name": name, "value": value} for name, value in self.env.items()]
        return {"name": self.name, "source": "local", "type": "stdio", "command": command, "args": arguments, "env": env}


class Config:
    """What of the file concerns a scripted agent."""

    __slots__ = ("_allow", "_ask", "approves_all", "mcp_servers")

    def __init__(self, home: str) -> None:
        values = read(os.path.join(home, "config.toml"))
        rules = values.get("permission", {})
        self.approves_all: bool = values.get("ui", {}).get("permission_mode") == "always-approve"
        self._allow: list[str] = rules.get("allow", [])
        self._ask: list[str] = rules.get("ask", [])
        self.mcp_servers = [
            McpEntry(name, table)
            for name, table in values.get("mcp_servers", {}).items()
            if "command" in table and table.get("enabled", True)
        ]

    def lets_run(self, command: str) -> bool:
        """Whether a shell command runs unasked."""
        words = _programs(command)
        if words == NEVER_ASKED:
            return True
        if ">" in command or not ALWAYS_ASKED.isdisjoint(words) or any(_matches(rule, "Bash", command) for rule in self._ask):
            return False
        return UNASKED.issuperset(words) or any(_matches(rule, "Bash", command) for rule in self._allow)

    def lets_call(self, tool: str) -> bool:
        """Whether a tool of an MCP server, ``server__tool``, is called unasked."""
        if any(_matches(rule, "MCPTool", tool) for rule in self._ask):
            return False
        return any(_matches(rule, "MCPTool", tool) for rule in self._allow)


def _programs(command: str) -> list[str]:
    """The first word of each command in a line of them."""
    for separator in ("&", "|", "\n"):
        command = command.replace(separator, ";")
    return [part.split()[0] for part in command.split(";") if part.strip()]


def _matches(rule: str, kind: str, subject: str) -> bool:
    """``Bash``, ``Bash(git *)``, ``MCPTool(server__*)``."""
    name, bracket, pattern = rule.partition("(")
    if name != kind or not bracket:
        return name == kind
    pattern = pattern.removesuffix(")")
    return subject.startswith(pattern[:-1]) if pattern.endswith("*") else subject == pattern
