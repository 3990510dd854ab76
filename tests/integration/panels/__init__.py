"""Panels of stub agents, and MCP clients, driven line by line as their editors and agents would.

Each module owns what one agent's protocol looks like from a client's side, and the reading of that agent's own files. A
panel's lines are what its editor sees; its prompts come from the transcript, over all the processes that wrote to it.
"""

from __future__ import annotations

from tests.integration.panels.claude import ClaudePanel
from tests.integration.panels.codex import CodexPanel
from tests.integration.panels.grok import GrokPanel
from tests.integration.panels.mcp import McpClient
from tests.integration.panels.panel import Panel, Target, children

__all__ = ["ClaudePanel", "CodexPanel", "GrokPanel", "McpClient", "Panel", "Target", "children"]
