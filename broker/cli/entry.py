"""Where `cross-agent` starts: the MCP server at once and without weight, everything else by `commands`."""

from __future__ import annotations

import os
import sys


def main() -> None:
    if sys.argv[1:2] == ["mcp"]:
        root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
        program = os.path.join(root, "mcp_server", "__main__.py")
        os.execv(sys.executable, [sys.executable, "-I", "-S", program, *sys.argv[2:]])
    from broker.cli.commands import cli

    cli(prog_name="cross-agent")
