"""``config.toml`` of the Codex stub: approval policy, sandbox and MCP servers.

Owns what that one file means.
"""

from __future__ import annotations

import os

from shims.stub_toml import read

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class McpEntry:
    """One ``[mcp_servers.<name>]`` table."""

    __slots__ = ("approvals", "argv", "default_approval", "env", "env_vars", "name", "required", "startup_seconds")

    def __init__(self, name: str, table: dict[str, Any]) -> None:
        self.name = name
        self.argv = [table["command"], *table.get("args", [])]
        self.env: dict[str, str] = table.get("env", {})
        self.env_vars: list[str] = [entry for entry in table.get("env_vars", []) if isinstance(entry, str)]
        self.required: bool = table.get("required", False)
        self.startup_seconds: float = table.get("startup_timeout_sec", 10)
        self.default_approval: str = table.get("default_tools_approval_mode", "auto")
        self.approvals: dict[str, str] = {
            tool: settings["approval_mode"] for tool, settings in table.get("tools", {}).items() if "approval_mode" in settings
        }

    def approval(self, tool: str) -> str:
        return self.approvals.get(tool, self.default_approval)


class Config:
    """What of the file concerns a scripted agent."""

    __slots__ = ("approval_policy", "mcp_servers", "sandbox_mode")

    def __init__(self, codex_home: str) -> None:
        values = read(os.path.join(codex_home, "config.toml"))
        self.approval_policy: str = values.get("approval_policy", "on-request")
        self.sandbox_mode: str = values.get("sandbox_mode", "workspace-write")
        self.mcp_servers = [
            McpEntry(name, table)
            for name, table in values.get("mcp_servers", {}).items()
            if "command" in table and table.get("enabled", True)
        ]
