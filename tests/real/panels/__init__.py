"""Real editor-side clients that stand in for an editor's panel, for tests that are not asynchronous.

``ClaudePanel`` is a ``claude_agent_sdk`` client, ``CodexPanel`` an ``openai_codex`` client; both start the agent through a
wrapper exactly as an editor does, and both keep every message they ever receive.
"""

from __future__ import annotations

from .claude import ClaudePanel, PermissionRequest
from .codex import ApprovalRequest, CodexPanel, CompletedTurn
from .record import Received, Record, StreamEndedError

__all__ = [
    "ApprovalRequest",
    "ClaudePanel",
    "CodexPanel",
    "CompletedTurn",
    "PermissionRequest",
    "Received",
    "Record",
    "StreamEndedError",
]
