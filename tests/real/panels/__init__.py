"""Real editor-side clients that stand in for an editor's panel, for tests that are not asynchronous.

``ClaudePanel`` is a ``claude_agent_sdk`` client, ``CodexPanel`` an ``openai_codex`` client, ``GrokPanel`` an ``acp`` client; each
starts the agent through a wrapper exactly as an editor does, and keeps every message it ever receives.
"""

from __future__ import annotations

from .claude import ClaudePanel, PermissionRequest
from .codex import ApprovalRequest, CodexPanel, CompletedTurn
from .grok import GrokPanel, GrokPermission
from .grok_turns import GrokTurn
from .record import Received, Record, StreamEndedError

__all__ = [
    "ApprovalRequest",
    "ClaudePanel",
    "CodexPanel",
    "CompletedTurn",
    "GrokPanel",
    "GrokPermission",
    "GrokTurn",
    "PermissionRequest",
    "Received",
    "Record",
    "StreamEndedError",
]
