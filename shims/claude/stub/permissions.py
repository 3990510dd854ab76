"""Whether a tool of the Claude stub may run, and the question that is asked if that isn't settled.

Owns the rules and the one open ``can_use_tool`` request; runs no tool.
"""

from __future__ import annotations

from shims.stub_loop import Wait
from shims.stub_values import uuid4

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from shims.claude.stub.frames import Frames
    from shims.claude.stub.options import Options
    from shims.stub_loop import Loop


class Question:
    """An open ``can_use_tool`` request; ``answer`` happens with the client's response object."""

    __slots__ = ("_frames", "answer", "request_id")

    def __init__(self, loop: Loop, frames: Frames, tool: str, arguments: Any, tool_use_id: str) -> None:
        self._frames = frames
        self.answer = Wait(loop)
        self.request_id = uuid4()
        request: dict[str, Any] = {
            "subtype": "can_use_tool",
            "tool_name": tool,
            "display_name": tool,
            "input": arguments,
            "permission_suggestions": [
                {
                    "type": "addRules",
                    "rules": [rule_for(tool, arguments)],
                    "behavior": "allow",
                    "destination": "localSettings",
                }
            ],
            "tool_use_id": tool_use_id,
        }
        if tool == "Bash":
            request["description"] = arguments.get("command", "")
        frames.write({"type": "control_request", "request_id": self.request_id, "request": request})

    def withdraw(self) -> None:
        """Tells the client that nobody waits for its answer any more."""
        if not self.answer.done:
            self._frames.write({"type": "control_cancel_request", "request_id": self.request_id})


def rule_for(tool: str, arguments: Any) -> dict[str, Any]:
    rule: dict[str, Any] = {"toolName": tool}
    if tool == "Bash":
        rule["ruleContent"] = arguments.get("command", "")
    return rule


def verdict(options: Options, mode: str, tool: str, arguments: Any) -> str:
    """``allow``, ``ask`` or ``deny``. ``ask`` without anybody to ask is ``deny``."""
    if mode == "bypassPermissions" or any(permits(rule, tool, arguments) for rule in options.allowed):
        return "allow"
    if mode == "acceptEdits" and tool == "Bash":
        return "allow"
    if mode == "dontAsk" or not options.can_ask:
        return "deny"
    return "ask"


def permits(rule: str, tool: str, arguments: Any) -> bool:
    """One rule of ``permissions.allow``: a tool, a whole MCP server, or ``Bash(command)`` / ``Bash(prefix:*)``."""
    name, bracket, content = rule.partition("(")
    if tool.startswith("mcp__"):
        server = "__".join(tool.split("__")[:2])
        return rule in (tool, server, f"{server}__*")
    if name != tool:
        return False
    if not bracket:
        return True
    pattern = content.removesuffix(")")
    command = str(arguments.get("command", ""))
    return command.startswith(pattern[:-2]) if pattern.endswith(":*") else command == pattern
