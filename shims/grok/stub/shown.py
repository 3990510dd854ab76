"""What the Grok stub tells of itself and of a session: the long answers of ``initialize`` and of the session methods.

Owns these shapes, as the real agent gives them, without what no client needs to see of a scripted one.
"""

from __future__ import annotations

import os

from shims.grok.stub.options import VERSION
from shims.grok.stub.store import MODEL
from shims.stub_values import uuid4

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, Final

    from shims.grok.stub.options import Options
    from shims.grok.stub.session import Session

_MODELS: Final = [{"modelId": MODEL, "name": MODEL, "_meta": {"totalContextTokens": 256000, "agentType": "grok-build-plan"}}]
COMMANDS: Final = {
    "compact": "Compress conversation history to save context window",
    "always-approve": "Toggle always-approve mode (skip all permission prompts)",
    "context": "Show context window usage and session stats",
    "session-info": "Show session details (model, turns, context usage)",
    "goal": "Set, manage, or check an autonomous goal",
    "feedback": "Send feedback about the current session",
}
TOOLS: Final = ("run_terminal_command", "use_tool")


def initialized(options: Options) -> dict[str, Any]:
    """The result of ``initialize``. There is no ``agentInfo``."""
    key = {"id": "xai.api_key", "name": "xai.api_key", "description": "XAI_API_KEY or api_key/env_key in config.toml"}
    login = {"id": "grok.com", "name": "Grok", "description": "Sign in with Grok"}
    return {
        "protocolVersion": 1,
        "agentCapabilities": {
            "loadSession": True,
            "promptCapabilities": {"image": False, "audio": False, "embeddedContext": True},
            "mcpCapabilities": {"http": True, "sse": True},
            "sessionCapabilities": {"list": {}, "resume": {}, "close": {}},
            "auth": {},
        },
        "authMethods": [key, login] if options.signed_in else [login],
        "_meta": {
            "grokShell": True,
            "defaultAuthMethodId": "xai.api_key" if options.signed_in else None,
            "currentWorkingDirectory": options.cwd,
            "agentVersion": VERSION,
            "agentInstanceId": uuid4(),
            "hostname": os.uname().nodename,
            "modelState": {"currentModelId": MODEL, "availableModels": _MODELS if options.signed_in else []},
            "availableCommands": _commands(),
        },
    }


def opened(session: Session, *, new: bool) -> dict[str, Any]:
    """The result of ``session/new``, or of ``session/load`` and ``session/resume``, which name the session in ``_meta``."""
    detail = {"sessionId": session.session_id, "kind": "build", "cwd": session.cwd, "currentModelId": MODEL}
    title = session.title
    named: dict[str, Any] = {"sessionId": session.session_id}
    return {
        **(named if new else {}),
        "models": {"currentModelId": MODEL, "availableModels": _MODELS},
        "configOptions": [
            {
                "id": "model",
                "name": "Model",
                "category": "model",
                "type": "select",
                "currentValue": MODEL,
                "options": [{"value": MODEL, "name": MODEL}],
            }
        ],
        "_meta": {
            **({"currentWorkingDirectory": session.server.options.cwd} if new else named),
            "codebaseIndexed": [],
            "x.ai/sessionDetail": {**detail, "title": title} if title else detail,
            "x.ai/memoryMode": "legacy",
        },
    }


def commands_update(mcp_tools: Sequence[str]) -> dict[str, Any]:
    """What comes after every opening and after every response of the model."""
    tools = {"tools": [*TOOLS, *mcp_tools]}
    return {"sessionUpdate": "available_commands_update", "availableCommands": _commands(), "_meta": tools}


def listed(summary: dict[str, Any]) -> dict[str, Any]:
    """One row of ``session/list``."""
    cwd = summary["info"]["cwd"]
    kind = {"kind": "build", "facets": {"cwd": cwd, "kind": "build"}}
    title = summary.get("generated_title")
    row = {"sessionId": summary["info"]["id"], "cwd": cwd, "title": title, "updatedAt": summary["updated_at"]}
    return {**row, "_meta": {"x.ai/session": kind}}


def activity_row(summary: dict[str, Any], activity: str, *, title: str | None = None) -> dict[str, Any]:
    """One row of ``_x.ai/sessions/list`` and ``_x.ai/sessions/changed``; the latter leaves the title out (1.0.41)."""
    return {
        "sessionId": summary["info"]["id"],
        "title": title,
        "cwd": summary["info"]["cwd"],
        "isWorktree": False,
        "modelId": MODEL,
        "yolo": False,
        "activity": activity,
        "resident": activity != "dormant",
        "origin": {"kind": "local"},
    }


def _commands() -> list[dict[str, Any]]:
    return [{"name": name, "description": words, "input": None} for name, words in COMMANDS.items()]
