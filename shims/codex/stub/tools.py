"""The tools of the Codex stub: ``exec_command`` runs a shell command, ``mcp__server__tool`` calls an MCP server.

Owns approval, running and the items of a call, and the MCP servers of one thread. The approval table is the measured
one: policy, sandbox, the server's approval mode and the tool's annotations decide.
"""

from __future__ import annotations

from shims.stub_io import complain, run_shell
from shims.stub_mcp import Manner, McpError, Server, text_of
from shims.stub_values import iso_now

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Final

    from shims.codex.stub.config import McpEntry
    from shims.codex.stub.thread import Thread
    from shims.codex.stub.turn import Turn
    from shims.script import Step

PASSED_ON: Final = ("HOME", "LANG", "PATH", "TERM", "USER")  # all that an MCP server gets of the environment
ASKING: Final = ("on-request", "untrusted")
NOT_ESCALATED: Final = (
    "approval policy is Never; reject command — you cannot ask for escalated permissions if the approval policy is Never"
)


async def run_tool(turn: Turn, step: Step, call_id: str) -> str:
    """Runs one call of the model; returns what the model reads."""
    try:
        arguments = step.parsed_arguments()
    except ValueError as error:
        return f"failed to parse function arguments: {error}"
    if not isinstance(arguments, dict):
        return "failed to parse function arguments: not an object"
    if step.tool == "exec_command":
        return await run_command(turn, arguments, call_id)
    servers = turn.thread.servers
    found = None if servers is None else servers.find(step.tool)
    if servers is None or found is None:
        return f"unsupported call: {step.tool}"
    entry, server, tool = found
    # A real model takes seconds to answer, a script none: so the stub waits for a server that is still starting.
    await turn.thread.server.loop.first(server.ready, turn.interrupted)
    if not server.ready.done or server.ready.error is not None or tool not in server.tools:
        return f"unsupported call: {step.tool}"
    return await call_server(turn, entry, server, tool, arguments, call_id)


# commands


async def run_command(turn: Turn, arguments: dict[str, Any], call_id: str) -> str:
    thread = turn.thread
    command = str(arguments.get("cmd", ""))
    escalated = arguments.get("sandbox_permissions") == "require_escalated"
    shown = "/bin/bash -lc " + quoted(command)
    item: dict[str, Any] = {
        "type": "commandExecution",
        "id": call_id,
        "command": shown,
        "cwd": thread.cwd,
        "processId": None,
        "source": "agent",
        "status": "inProgress",
        "commandActions": [{"type": "unknown", "command": command}],
        "aggregatedOutput": None,
        "exitCode": None,
        "durationMs": None,
    }
    if escalated and thread.approval_policy == "never":
        complain(f"{iso_now()} ERROR codex_core::tools::router: error={NOT_ESCALATED}")
        return NOT_ESCALATED
    if thread.approval_policy in ASKING and (escalated or thread.approval_policy == "untrusted"):
        thread.set_status("active", ["waitingOnApproval"])
        turn.start_item(item)
        decision = await ask_for_command(turn, item, command, arguments.get("justification"))
        if decision in ("decline", "cancel", None):
            turn.complete_item({**item, "status": "declined"})
            if decision is not None:
                thread.set_status("active", [])
            if decision == "cancel":
                turn.interrupt()
            return "exec command rejected by user"
        thread.set_status("active", [])
    else:
        turn.start_item({**item, "source": "unifiedExecStartup"})
    env = {**thread.server.options.env, "CODEX_THREAD_ID": thread.thread_id, "CODEX_CI": "1"}
    output, code = await run_shell(thread.server.loop, command, env=env, cwd=thread.cwd, interrupted=turn.interrupted)
    status = "failed" if code else "completed"
    done = {"source": "unifiedExecStartup", "status": status, "aggregatedOutput": output, "exitCode": code}
    turn.complete_item({**item, **done})
    return f"Process exited with code {code}\nOutput:\n{output}"


async def ask_for_command(turn: Turn, item: dict[str, Any], command: str, reason: Any) -> Any:
    """The client's decision: a word or an object that means yes; None if the turn was interrupted."""
    words = command.split()
    amendment = {"acceptWithExecpolicyAmendment": {"execpolicy_amendment": words}}
    kind = {"kind": "command"} if turn.thread.server.options.has_queue else {}
    answer = await turn.approval(
        "item/commandExecution/requestApproval",
        {
            **kind,
            "itemId": item["id"],
            "reason": reason,
            "command": item["command"],
            "cwd": item["cwd"],
            "commandActions": item["commandActions"],
            "proposedExecpolicyAmendment": words,
            "availableDecisions": ["accept", amendment, "cancel"],
        },
    )
    # An answer that isn't one (an error, a wrong shape) is no consent.
    return None if turn.interrupted.done else answer.get("decision", "decline")


def quoted(command: str) -> str:
    return "'" + command.replace("'", "'\\''") + "'"


# MCP


class ThreadServers:
    """The MCP servers of one thread: each thread has processes of its own."""

    def __init__(self, thread: Thread) -> None:
        self._thread = thread
        options = thread.server.options
        manner = Manner(
            protocol="2025-06-18",
            client={"name": "codex-mcp-client", "title": "Codex", "version": options.version},
            capabilities={"experimental": {"codex/auth-change": {}}, "elicitation": {"form": {}, "url": {}}},
            follows_list_changes=False,
            own_group=True,
        )
        self.running: list[tuple[McpEntry, Server]] = []
        for entry in thread.server.config.mcp_servers:
            env = scrubbed(options.env, entry)
            server = Server(thread.server.loop, entry.name, entry.argv, env=env, cwd=thread.cwd, manner=manner)
            self.running.append((entry, server))
            thread.server.loop.start(self._report(entry, server))

    def announce(self) -> None:
        """Tells that they are starting."""
        for entry, _server in self.running:
            self._tell(entry, "starting", None)

    def required(self) -> list[tuple[McpEntry, Server]]:
        return [(entry, server) for entry, server in self.running if entry.required]

    def find(self, tool: str) -> tuple[McpEntry, Server, str] | None:
        for entry, server in self.running:
            prefix = f"mcp__{entry.name}__"
            if tool.startswith(prefix):
                return entry, server, tool[len(prefix) :]
        return None

    def close(self) -> None:
        for _entry, server in self.running:
            server.close()

    async def _report(self, entry: McpEntry, server: Server) -> None:
        await self._thread.server.loop.first(server.ready)
        error = server.ready.error
        self._tell(entry, "ready" if error is None else "failed", None if error is None else str(error))

    def _tell(self, entry: McpEntry, status: str, error: str | None) -> None:
        params = {"name": entry.name, "status": status, "error": error, "failureReason": None}
        self._thread.server.wire.notify("mcpServer/startupStatus/updated", {"threadId": self._thread.thread_id, **params})


def scrubbed(env: Any, entry: McpEntry) -> dict[str, str]:
    passed = {name: env[name] for name in (*PASSED_ON, *entry.env_vars) if name in env}
    return {**passed, **entry.env}


def needs_approval(entry: McpEntry, tool: str, annotations: dict[str, Any]) -> bool:
    """Whether a call is to be asked for."""
    mode = entry.approval(tool)
    if mode == "approve":
        return False
    if mode == "prompt":
        return True
    if annotations.get("readOnlyHint") is True:
        return False
    if mode == "writes":
        return True
    return not (annotations.get("destructiveHint") is False and annotations.get("openWorldHint") is False)


async def call_server(turn: Turn, entry: McpEntry, server: Server, tool: str, arguments: dict[str, Any], call_id: str) -> str:
    thread = turn.thread
    annotations = server.tools[tool].get("annotations") or {}
    item: dict[str, Any] = {
        "type": "mcpToolCall",
        "id": call_id,
        "server": entry.name,
        "tool": tool,
        "status": "inProgress",
        "arguments": arguments,
        "result": None,
        "error": None,
        "durationMs": None,
    }
    turn.start_item(item)
    refusal = None
    if needs_approval(entry, tool, annotations) and thread.sandbox_mode != "danger-full-access":
        if thread.approval_policy in ASKING:
            refusal = await ask_for_call(turn, entry, server, tool, arguments)
        else:
            refusal = "MCP tool call requires approval, but approval policy is never"
            if not thread.server.options.has_queue:
                refusal = "user cancelled MCP tool call"  # 0.147
    if refusal is None:
        try:
            result = await server.call(tool, arguments, call_meta(turn, call_id), turn.interrupted)
        except McpError as error:
            refusal = str(error)
        else:
            status = "failed" if result.get("isError") else "completed"
            shown = {"content": result.get("content", []), "structuredContent": result.get("structuredContent")}
            turn.complete_item({**item, "status": status, "result": shown})
            return text_of(result)
    turn.complete_item({**item, "status": "failed", "error": {"message": refusal}})
    return f"tool call error: {refusal}"


async def ask_for_call(turn: Turn, entry: McpEntry, server: Server, tool: str, arguments: dict[str, Any]) -> str | None:
    """Why the call may not be made, None if it may."""
    turn.thread.set_status("active", ["waitingOnApproval"])
    display = [{"name": name, "value": value, "display_name": name} for name, value in arguments.items()]
    answer = await turn.approval(
        "mcpServer/elicitation/request",
        {
            "serverName": entry.name,
            "mode": "form",
            "_meta": {
                "codex_approval_kind": "mcp_tool_call",
                "persist": ["session", "always"],
                "tool_name": tool,
                "tool_description": server.tools[tool].get("description"),
                "tool_params": arguments,
                "tool_params_display": display,
            },
            "message": f'Allow the {entry.name} MCP server to run tool "{tool}"?',
            "requestedSchema": {"type": "object", "properties": {}},
        },
    )
    if turn.interrupted.done:
        return "cancelled"
    turn.thread.set_status("active", [])
    action = answer.get("action")
    if action == "accept":
        return None
    return "user rejected MCP tool call" if action == "decline" else "user cancelled MCP tool call"


def call_meta(turn: Turn, call_id: str) -> dict[str, Any]:
    """What tells the server who calls."""
    thread = turn.thread
    options = thread.server.options
    root = thread.parent_id or thread.thread_id
    metadata: dict[str, Any] = {
        "session_id": root,
        "thread_id": thread.thread_id,
        "turn_id": turn.turn_id,
        "model": "scripted",
        "turn_started_at_unix_ms": (turn.record.started_at or 0) * 1000,
        "sandbox": "seccomp",
        "workspaces": {thread.cwd: {"has_changes": False}},
    }
    meta: dict[str, Any] = {"x-codex-turn-metadata": metadata, "threadId": thread.thread_id}
    if options.has_queue:
        metadata |= {"sandbox_mode": thread.sandbox_mode, "codex_version": options.version}
        meta |= {"callId": call_id, "itemId": "fc_" + call_id.removeprefix("call_")}
    if thread.server.source == "exec":
        metadata |= {"thread_source": "user", **({"turn_trigger": "exec"} if options.preempts else {})}
    if options.preempts:
        meta |= {"sessionId": root, "windowId": f"{thread.thread_id}:0"}
    return meta
