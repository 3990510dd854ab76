"""The tools of the Grok stub: ``run_terminal_command``, and MCP servers by ``use_tool`` or by ``server__tool``.

Owns the running and the updates of a call, and the MCP servers of one session. A script may also name a tool as the other
agents do, ``mcp__server__tool``; like the scripted model servers, the stub's model then calls it Grok's way.
"""

from __future__ import annotations

import json
import os
import time

from shims.grok.stub import permissions
from shims.grok.stub.options import VERSION
from shims.stub_io import run_shell
from shims.stub_mcp import Manner, McpError, Server, text_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, Final

    from shims.grok.stub.session import Session
    from shims.grok.stub.turn import Turn
    from shims.script import Step

_SHOWN: Final = {
    "run_terminal_command": {"kind": "execute", "namespace": "grok_build", "label": "Run Command"},
    "use_tool": {"kind": "use_tool", "namespace": "grok_build", "label": "Use Tool"},
}
_MCP_TOOL: Final = {"kind": "other", "namespace": "mcp", "label": "Tool"}


async def run_tool(turn: Turn, step: Step) -> None:
    """Runs one call of the model; whatever goes wrong in it is told to the model, which goes on."""
    name, text = step.tool, step.arguments
    if name.startswith("mcp__"):
        name, text = "use_tool", f'{{"tool_name":{json.dumps(name[len("mcp__") :])},"tool_input":{text}}}'
    call = Call(turn, name)
    try:
        arguments = json.loads(text)
    except ValueError as error:
        arguments = str(error)
    call.announce(arguments)
    if not isinstance(arguments, dict):
        call.misread(f"invalid type, expected a map: {arguments}", text)
    elif name == "run_terminal_command":
        await call.run_command(arguments, text)
    elif name == "use_tool":
        await call.use_tool(arguments, text)
    elif call.server_of(name) is not None:
        await call.ask_and_call(name, "MCPTool", arguments)
    else:
        call.missing(name, text)


class Call:
    """One call."""

    def __init__(self, turn: Turn, name: str) -> None:
        self._turn = turn
        self._session = turn.session
        self._name = name
        self._id = f"call_{os.urandom(4).hex()}"

    # told to the client

    def announce(self, arguments: Any) -> None:
        update = {"sessionUpdate": "tool_call", "toolCallId": self._id, "title": self._name, "rawInput": arguments}
        self._turn.update({**update, **self._marks()}, "ToolCall")

    def misread(self, why: str, text: str, *, title: str = "") -> None:
        """The arguments, or the name, make no sense."""
        words = f"Failed to parse arguments for tool `{self._name}`: {why}\n\nYour original arguments:\n{text}"
        named: dict[str, Any] = {"title": title} if title else {}
        self._update("failed", content=_content(words), **named)

    def missing(self, name: str, text: str) -> None:
        self.misread(f"Tool not found: {name}", text, title=f"Agent tried calling a tool that doesn't exist: {name}")

    def _update(self, status: str, *, kept: bool = True, **facts: Any) -> None:
        update = {"sessionUpdate": "tool_call_update", "toolCallId": self._id, "status": status, **facts}
        self._turn.update(update, "ToolCallUpdate", kept=kept)

    def _marks(self) -> dict[str, Any]:
        """How the tool is shown; nothing for one that there isn't."""
        shown = _SHOWN.get(self._name) or (_MCP_TOOL if self.server_of(self._name) is not None else None)
        if shown is None:
            return {}
        return {"_meta": {"x.ai/tool": {"version": 1, "name": self._name, **shown, "read_only": False}}}

    # commands

    async def run_command(self, arguments: dict[str, Any], text: str) -> None:
        for field in ("command", "description"):
            if not isinstance(arguments.get(field), str):
                self.misread(f"missing field `{field}`", text)
                return
        command = arguments["command"]
        unasked = self._session.server.config.lets_run(command)
        shown = {
            "toolCallId": self._id,
            "kind": "execute",
            "title": f"Execute `{command}`",
            "content": _content(arguments["description"]),
            "locations": [],
            "rawInput": {"variant": "Bash", **arguments, "is_background": False},
            **self._marks(),
        }
        refused = await permissions.refusal(self._turn, self._name, command, shown, permissions.FOR_COMMANDS, unasked=unasked)
        if self._refused(refused):
            return
        self._update("in_progress", kept=False, content=_content(""), rawOutput=self._output(command, "", 0))
        loop, env = self._session.server.loop, self._session.server.options.env
        env = {**env, "GROK_SESSION_ID": self._session.session_id, "GROK_AGENT": "1"}
        output, code = await run_shell(loop, command, env=env, cwd=self._session.cwd, interrupted=self._turn.stopped)
        if not self._turn.stopped.done:
            self._update("completed", content=_content(output), rawOutput=self._output(command, output, code))

    def _output(self, command: str, output: str, code: int) -> dict[str, Any]:
        return {
            "type": "Bash",
            "output": list(output.encode()),
            "output_for_prompt": f"exit: {code}\n{output}",
            "exit_code": code,
            "command": command,
            "current_dir": self._session.cwd,
        }

    def _refused(self, words: str | None) -> bool:
        if words is not None and not self._turn.stopped.done:
            self._update("failed", content=_content(words))
        return words is not None

    # MCP

    def server_of(self, name: str) -> tuple[Server, str] | None:
        return None if self._session.servers is None else self._session.servers.find(name)

    async def use_tool(self, arguments: dict[str, Any], text: str) -> None:
        name, handed = arguments.get("tool_name"), arguments.get("tool_input")
        if not isinstance(name, str) or not isinstance(handed, dict):
            self.misread("use exactly one of {tool_name,tool_input}, {tool_name,tool_input_file}, or {file}", text)
            return
        await self.ask_and_call(name, "UseTool", handed)

    async def ask_and_call(self, name: str, variant: str, handed: dict[str, Any]) -> None:
        shown = {
            "toolCallId": self._id,
            "kind": "other",
            "title": name,
            "locations": [],
            "rawInput": {"variant": variant, "tool_name": name, "tool_input": handed},
            **self._marks(),
        }
        unasked = self._session.server.config.lets_call(name)
        refused = await permissions.refusal(self._turn, self._name, name, shown, permissions.FOR_MCP, unasked=unasked)
        if not self._refused(refused):
            await self._call_server(name, handed)

    async def _call_server(self, name: str, handed: dict[str, Any]) -> None:
        found = self.server_of(name)
        stopped = self._turn.stopped
        if found is not None:
            # A real model takes seconds to answer, a script none: so the stub waits for a server that is still starting.
            await self._session.server.loop.first(found[0].ready, stopped)
        if stopped.done:
            return
        if found is None or found[0].ready.error is not None or found[1] not in found[0].tools:
            self._failed(name, f"Tool not found: {name}")
            return
        server, tool = found
        try:
            result = await server.call(tool, handed, {}, stopped)
        except McpError as error:
            if not stopped.done:
                self._failed(name, str(error))
            return
        self._tell_result(server, tool, result)

    def _failed(self, name: str, why: str) -> None:
        words = f"Tool `{name}` failed via `{self._name}`: {why}"
        self._update("failed", content=_content(words), rawOutput={"error": "tool_execution_failed", "message": why})

    def _tell_result(self, server: Server, tool: str, result: dict[str, Any]) -> None:
        """What the model reads: the text, and the structured content as one more line of it."""
        text = text_of(result)
        if result.get("structuredContent") is not None:
            text += "\n" + json.dumps(result["structuredContent"], ensure_ascii=False, separators=(",", ":"))
        raw: dict[str, Any] = {"type": "MCP", "tool_name": tool, "server_name": server.name}
        if result.get("isError"):
            self._update("failed", rawOutput={**raw, "output": {"Error": text}, "is_error": True})
        else:
            self._update("completed", rawOutput={**raw, "output": {"OkayOutput": text}})


def _content(text: str) -> list[dict[str, Any]]:
    return [{"type": "content", "content": {"type": "text", "text": text}}]


class SessionServers:
    """The MCP servers of one session: each session has processes of its own, in the directory of the agent's process."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._began = time.monotonic()
        server = session.server
        self._running = [
            Server(
                server.loop,
                entry.name,
                entry.argv,
                env={**server.options.env, "GROK_SESSION_ID": session.session_id, **entry.env},
                cwd=server.options.cwd,
                manner=_manner(entry.name),
            )
            for entry in server.config.mcp_servers
        ]
        self._progress()
        server.loop.start(self._report())

    def find(self, name: str) -> tuple[Server, str] | None:
        """The server and its own name for the tool ``server__tool``."""
        for server in self._running:
            if name.startswith(f"{server.name}__"):
                return server, name[len(server.name) + 2 :]
        return None

    def tools(self) -> list[str]:
        return [f"{server.name}__{tool}" for server in self._ready() for tool in server.tools]

    def pids(self) -> list[int]:
        return [server.pid for server in self._running]

    def _ready(self) -> Iterator[Server]:
        return (server for server in self._running if server.ready.done and server.ready.error is None)

    async def _report(self) -> None:
        for server in self._running:
            await self._session.server.loop.first(server.ready)
            self._progress()
        spent = int((time.monotonic() - self._began) * 1000)
        counted = {"sessionId": self._session.session_id, "mcpToolCount": len(self.tools()), "elapsedMs": spent}
        self._session.server.wire.notify("_x.ai/mcp_initialized", counted)

    def _progress(self) -> None:
        if self._running:
            connected = {"total": len(self._running), "connected": len(list(self._ready()))}
            self._session.server.wire.notify("_x.ai/mcp/init_progress", {**connected, "sessionId": self._session.session_id})


def _manner(name: str) -> Manner:
    return Manner(
        protocol="2025-11-25",
        client={"name": f"grok-shell-{name}", "version": VERSION},
        capabilities={
            "extensions": {"io.modelcontextprotocol/ui": {"mimeTypes": ["text/html;profile=mcp-app"]}},
            "elicitation": {"form": {"schemaValidation": True}, "url": {}},
        },
        follows_list_changes=False,
        own_group=True,
    )
