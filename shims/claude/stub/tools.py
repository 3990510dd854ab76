"""What the tools of the Claude stub do: ``Bash`` runs a shell command, ``mcp__server__tool`` calls an MCP server.

Owns the running of one call up to its result; asks nobody for permission and writes no frame.
"""

from __future__ import annotations

from shims.stub_io import run_shell
from shims.stub_mcp import Manner, McpError, Server, text_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from shims.claude.stub.options import Options
    from shims.stub_loop import Loop, Wait


class Outcome:
    """What the model reads of a call, and what the client's frame carries beside it."""

    __slots__ = ("detail", "is_error", "text")

    def __init__(self, text: str, *, is_error: bool = False, detail: Any = None) -> None:
        self.text = text
        self.is_error = is_error
        self.detail = f"Error: {text}" if detail is None else detail


class Toolbox:
    """The tools of one process; MCP servers are started with it and end with it."""

    def __init__(self, loop: Loop, options: Options, session_id: str) -> None:
        self._loop = loop
        self._options = options
        manner = Manner(
            protocol="2025-11-25",
            client={"name": "claude-code", "title": "Claude Code", "version": options.version},
            capabilities={"roots": {}, "elicitation": {}},
            follows_list_changes=True,
            own_group=False,
        )
        self._env = {
            **options.env,
            "CLAUDECODE": "1",
            "CLAUDE_CODE_ENTRYPOINT": options.entrypoint,
            "CLAUDE_PROJECT_DIR": options.cwd,
            "AI_AGENT": f"claude-code_{options.version}_harness",
        }
        self.servers = {
            name: Server(
                loop,
                name,
                [server["command"], *server.get("args", [])],
                # The id of the moment: it goes stale when /clear changes it, as it does for the real one.
                env={**self._env, "CLAUDE_CODE_SESSION_ID": session_id, **(server.get("env") or {})},
                cwd=options.cwd,
                manner=manner,
            )
            for name, server in options.mcp_servers.items()
        }

    def states(self) -> list[tuple[str, str]]:
        """Each server with its state, for ``system/init``."""
        return [(name, state_of(server.ready)) for name, server in self.servers.items()]

    def names(self) -> list[str]:
        """The MCP tools as the model knows them."""
        return [f"mcp__{name}__{tool}" for name, server in self.servers.items() for tool in server.tools]

    def find_server(self, tool: str) -> tuple[Server, str] | None:
        """Server and bare tool name of ``mcp__server__tool``."""
        for name, server in self.servers.items():
            prefix = f"mcp__{name}__"
            if tool.startswith(prefix):
                return server, tool[len(prefix) :]
        return None

    def knows(self, tool: str) -> bool:
        return tool == "Bash" or self.find_server(tool) is not None

    async def run(self, tool: str, arguments: Any, tool_use_id: str, session_id: str, interrupted: Wait) -> Outcome:
        """Runs one call that is allowed; ``interrupted`` cuts it short."""
        if tool == "Bash":
            return await self._shell(str(arguments.get("command", "")), session_id, interrupted)
        found = self.find_server(tool)
        if found is None:
            return no_such_tool(tool)
        server, name = found
        await self._loop.first(server.ready, interrupted)
        if interrupted.done:
            return Outcome("interrupted", is_error=True)
        if server.ready.error is not None or name not in server.tools:
            return no_such_tool(tool)
        try:
            result = await server.call(name, arguments, {"claudecode/toolUseId": tool_use_id}, interrupted)
        except McpError as error:
            return Outcome(str(error), is_error=True)
        text = text_of(result)
        return Outcome(text, is_error=bool(result.get("isError")), detail=result.get("content", []))

    async def _shell(self, command: str, session_id: str, interrupted: Wait) -> Outcome:
        env = {**self._env, "CLAUDE_CODE_SESSION_ID": session_id}
        printed, code = await run_shell(self._loop, command, env=env, cwd=self._options.cwd, interrupted=interrupted)
        text = printed.rstrip("\n")
        if code:
            return Outcome(f"Exit code {code}" + (f"\n{text}" if text else ""), is_error=True)
        detail = {"stdout": text, "stderr": "", "interrupted": False, "isImage": False, "noOutputExpected": False}
        return Outcome(text, detail=detail)


def state_of(ready: Wait) -> str:
    if not ready.done:
        return "pending"
    return "connected" if ready.error is None else "failed"


def no_such_tool(tool: str) -> Outcome:
    return Outcome(f"<tool_use_error>Error: No such tool available: {tool}</tool_use_error>", is_error=True)
