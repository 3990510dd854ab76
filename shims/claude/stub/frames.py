"""The frames that the Claude stub writes on stdout, in the shape of each generation.

Owns stdout and nothing else: every line that the stub prints goes through ``Frames``, whole and in order.
"""

from __future__ import annotations

import json
import os

from shims.stub_io import write_all
from shims.stub_values import iso_now, uuid4

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Final

    from shims.claude.stub.backlog import Message
    from shims.claude.stub.options import Options

TOOLS: Final = ("Task", "Bash", "Edit", "Glob", "Grep", "Read", "WebFetch", "WebSearch", "Write")
MODEL: Final = {True: "claude-opus-5-5", False: "claude-opus-4-8[1m]"}  # by generation
CAPABILITIES: Final = ("interrupt_receipt_v1", "msg_lifecycle_v1", "request_marker_lists_v1")
USAGE: Final = {"input_tokens": 5, "output_tokens": 7, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0}


class Frames:
    """Writes frames of one session; ``session_id`` is the one they carry."""

    def __init__(self, options: Options, session_id: str) -> None:
        self._options = options
        self._results = 0
        self.session_id = session_id
        self.silent = False
        self.failed = False
        """The last result was an error: the exit status at the end of input."""

    def write(self, frame: dict[str, Any]) -> None:
        """One line, exactly as given."""
        if not self.silent:
            write_all(1, json.dumps(frame, ensure_ascii=False, separators=(",", ":")).encode() + b"\n")

    def send(self, frame: dict[str, Any], *, uuid: str | None = None) -> str:
        """One frame of the session; returns its uuid."""
        identity = uuid or uuid4()
        self.write({**frame, "session_id": self.session_id, "uuid": identity})
        return identity

    # control

    def answer(self, request_id: Any, response: dict[str, Any] | None = None) -> None:
        inner: dict[str, Any] = {"subtype": "success", "request_id": request_id}
        if response is not None:
            inner["response"] = response
        self.write({"type": "control_response", "response": inner})

    def refuse(self, request_id: Any, error: str, code: str | None = None) -> None:
        inner: dict[str, Any] = {"subtype": "error", "request_id": request_id, "error": error}
        if code is not None and self._options.modern:
            inner["error_code"] = code
        self.write({"type": "control_response", "response": inner})

    # state

    def lifecycle(self, message: Message, state: str) -> None:
        """What became of a message that has a uuid (2.1.332 only)."""
        if self._options.modern and message.named:
            self.send({"type": "command_lifecycle", "command_uuid": message.uuid, "state": state})

    def state(self, state: str) -> None:
        """``running``, ``requires_action`` or ``idle``, where the client asked for it."""
        marks = self._options.state_frames
        if marks is not None:
            self.send({"type": "system", "subtype": "session_state_changed", "state": state, **marks})

    def title(self, title: str) -> None:
        if self._options.modern:
            self.send({"type": "system", "subtype": "session_title_changed", "title": title})

    def init(self, mode: str, servers: list[tuple[str, str]], mcp_tools: list[str]) -> None:
        """``system/init``, which opens every turn."""
        frame: dict[str, Any] = {
            "type": "system",
            "subtype": "init",
            "cwd": self._options.cwd,
            # 2.1.332 offers MCP tools behind a search and doesn't list them.
            "tools": [*TOOLS, *([] if self._options.modern else mcp_tools)],
            "mcp_servers": [{"name": name, "status": status} for name, status in servers],
            "model": MODEL[self._options.modern],
            "permissionMode": mode,
            "slash_commands": ["clear", "compact", "context", "usage"],
            "apiKeySource": "none",
            "claude_code_version": self._options.version,
            "output_style": "default",
            "agents": [],
            "skills": [],
            "plugins": [],
        }
        if self._options.modern:
            frame["capabilities"] = list(CAPABILITIES)
        self.send(frame)

    def requesting(self, uuids: list[str]) -> None:
        if self._options.partial:
            marks = {"user_message_uuids": uuids} if self._options.modern and uuids else {}
            self.send({"type": "system", "subtype": "status", "status": "requesting", **marks})

    def mode(self, mode: str) -> None:
        self.send({"type": "system", "subtype": "status", "status": None, "permissionMode": mode})

    def denied(self, tool: str, tool_use_id: str, reason: str) -> None:
        """A tool was denied without anybody having been asked (2.1.332 only)."""
        if self._options.modern:
            named = {"tool_name": tool, "tool_use_id": tool_use_id, "message": reason}
            self.send({"type": "system", "subtype": "permission_denied", **named})

    # conversation

    def echo(self, content: Any, uuid: str, *, again: bool = False) -> None:
        """The replay of a user message; ``again``: of one that makes no prompt of its own."""
        if not self._options.replay:
            return
        frame: dict[str, Any] = {
            "type": "user",
            "message": {"role": "user", "content": content},
            "parent_tool_use_id": None,
            "isReplay": True,
        }
        if not again:
            frame["timestamp"] = iso_now()
        self.send(frame, uuid=uuid)

    def event(self, event: dict[str, Any], marks: dict[str, Any]) -> None:
        if self._options.partial:
            self.send({"type": "stream_event", "event": event, "parent_tool_use_id": None, **marks})

    def assistant(
        self,
        message_id: str,
        content: list[dict[str, Any]],
        marks: dict[str, Any],
        uuid: str,
        *,
        stop_reason: str | None = None,
    ) -> None:
        """A message; one with a stop reason is the agent's own and not the model's."""
        message = assistant_message(message_id, content, stop_reason, modern=self._options.modern)
        if stop_reason is not None:
            message["model"] = "<synthetic>"
        self.send({"type": "assistant", "message": message, "parent_tool_use_id": None, **marks}, uuid=uuid)

    def user(self, content: list[dict[str, Any]], extra: dict[str, Any], uuid: str) -> None:
        """A user message of the agent's own making: a tool's result, a note of an interruption."""
        self.send(
            {
                "type": "user",
                "message": {"role": "user", "content": content},
                "parent_tool_use_id": None,
                "timestamp": iso_now(),
                **extra,
            },
            uuid=uuid,
        )

    def result(self, fields: dict[str, Any]) -> None:
        """The end of a turn. 2.1.332 writes ``type`` in the middle: nobody may match on the first bytes."""
        usage = {"usage": USAGE, "modelUsage": {}, "total_cost_usd": 0}
        frame = {"type": "result", **fields, **usage}
        if self._options.modern:
            frame = {**usage, **fields, "type": "result", "queued_turn_count": 0, "result_index": self._results}
        self._results += 1
        self.failed = frame["is_error"] is True
        self.send(frame)


def assistant_message(message_id: str, content: list[dict[str, Any]], stop_reason: str | None, *, modern: bool) -> dict[str, Any]:
    return {
        "id": message_id,
        "type": "message",
        "role": "assistant",
        "model": MODEL[modern],
        "content": content,
        "stop_reason": stop_reason,
        "stop_sequence": None,
        "usage": USAGE,
    }


def initialize_answer(options: Options, mode: str, state: str) -> dict[str, Any]:
    """What ``initialize`` is answered with: the pid is in it, the session id is not."""
    answer: dict[str, Any] = {
        "commands": [{"name": name, "description": "", "argumentHint": ""} for name in ("clear", "compact", "context")],
        "agents": [],
        "output_style": "default",
        "available_output_styles": ["default"],
        "models": [{"value": "default", "displayName": "Default", "description": "Scripted"}],
        "account": {"tokenSource": "none", "apiKeySource": "none", "apiProvider": "firstParty"},
        "pid": os.getpid(),
    }
    if options.modern:
        answer |= {
            "claude_code_version": options.version,
            "current_permission_mode": mode,
            "session_state": state,
            "capabilities": list(CAPABILITIES),
        }
    return answer
