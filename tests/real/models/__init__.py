"""Scripted model servers on 127.0.0.1: what a real agent talks to instead of its vendor's API.

``plan`` decides what to answer and does no I/O; ``server`` owns sockets, threads, the record of requests and the gates;
``anthropic``, ``openai`` and ``xai`` translate between the two and one vendor's API each.
"""

from __future__ import annotations

from .anthropic import AnthropicModel
from .openai import OpenAIModel
from .server import ModelRequest, ScriptedModel, ToolResult
from .xai import XaiModel

__all__ = ["AnthropicModel", "ModelRequest", "OpenAIModel", "ScriptedModel", "ToolResult", "XaiModel"]
