"""The models that the test's window offers to the agent host, answered by script.

Owns the translation between VS Code's own form of a model call (channel ``agentHostClientByokLm``, carried over HTTP by
``window.cjs``) and a script. One answer is one message: this form has no pieces, so a ``slow`` step holds the whole of it back.
"""

from __future__ import annotations

import re
import time
import uuid
from typing import TYPE_CHECKING, Any, Final

from tests.real.models.plan import Event, is_background, newest, response
from tests.real.models.server import Exchange, Json, ModelRequest, ScriptedModel, ToolResult

if TYPE_CHECKING:
    from collections.abc import Iterator
    from email.message import Message

    from shims.script import Step

VENDOR: Final = "scripted"
MODEL: Final = f"{VENDOR}/first"
OTHER_MODEL: Final = f"{VENDOR}/second"
EFFORTS: Final = ["low", "medium", "high"]
MCP: Final = "mcp__"
OWN_WORDS: Final = re.compile(r"\A(?:<(current_datetime|tools_changed_notice|side-chat-context)>.*?</\1>\n\n)+", re.DOTALL)
"""What the host itself puts in front of what somebody said: the time, that the model has changed, what a side chat is."""

OUTPUT: Final = "function_call_output"
USAGE: Final = {"inputTokens": 10, "outputTokens": 5}

_SIZES: Final = {"maxContextWindowTokens": 128_000, "maxPromptTokens": 100_000, "maxOutputTokens": 8_000}
MODELS: Final[list[Json]] = [
    {
        "vendor": VENDOR,
        "id": "first",
        "name": "First",
        "modelIdentifier": MODEL,
        "supportedReasoningEfforts": EFFORTS,
        "defaultReasoningEffort": "medium",
        **_SIZES,
    },
    {"vendor": VENDOR, "id": "second", "name": "Second", "modelIdentifier": OTHER_MODEL, **_SIZES},
]
"""Two, of which one has an option: what a chat has selected must not be lost by a message from elsewhere."""


class HostModel(ScriptedModel):
    """``url`` goes to the host as ``model_url``."""

    def look(self, path: str, headers: Message, body: Json) -> ModelRequest | None:
        del headers
        if path != "/chat":
            return None
        items = body.get("input", [])
        start = max((at for at, item in enumerate(items) if _is_from_model(item)), default=-1) + 1
        return ModelRequest(
            at=time.monotonic(),
            wall=time.time(),
            texts=tuple(text for item in items[start:] for text in _texts(item)),
            results=tuple(_result(item) for item in items[start:] if item.get("type") == OUTPUT),
            tools=tuple(tool["name"] for tool in body.get("tools") or ()),
            side=not body.get("tools"),
            body=body,
        )

    def answer(self, exchange: Exchange, request: ModelRequest) -> None:
        steps = response(newest(list(_events(request.body.get("input", [])))))
        for step in steps:
            if step.gate:
                exchange.pass_gate(step.gate)
        if steps[-1].verb == "fail":
            exchange.send_json(200, {"output": [], "error": steps[-1].text})
            return
        exchange.send_json(200, {"output": [_item(step, request.tools) for step in steps], "usage": USAGE})

    def answer_other(self, exchange: Exchange, path: str) -> None:
        if path == "/models":
            exchange.send_json(200, {"models": MODELS})
        else:
            exchange.send_json(404, {"output": [], "error": "not here"})


# Reading a request


def _is_from_model(item: Json) -> bool:
    return item.get("role") == "assistant" or item.get("type") == "function_call"


def _texts(item: Json) -> Iterator[str]:
    if item.get("type") != "message" or item.get("role") != "user":
        return
    content = item.get("content")
    for text in [content] if isinstance(content, str) else [part.get("text", "") for part in content or ()]:
        words = OWN_WORDS.sub("", text)
        if not is_background(words):
            yield words


def _result(item: Json) -> ToolResult:
    output: Any = item.get("output")
    if isinstance(output, list):
        output = "".join(part.get("text", "") for part in output)
    return ToolResult(item.get("callId", ""), output if isinstance(output, str) else str(output))


def _events(items: list[Json]) -> Iterator[Event]:
    for item in items:
        if item.get("type") == OUTPUT:
            yield Event("result", _result(item).text)
        for text in _texts(item):
            yield Event("text", text)


# Writing an answer


def _item(step: Step, offered: tuple[str, ...]) -> Json:
    if step.verb != "tool":
        return {"type": "message", "content": [{"text": step.text}]}
    call = "call_" + uuid.uuid4().hex[:16]
    return {"type": "function_call", "callId": call, "name": _offered(step.tool, offered), "argumentsJson": step.arguments}


def _offered(name: str, offered: tuple[str, ...]) -> str:
    """The name under which the host offers the tool that Claude Code calls ``mcp__server__tool``."""
    if not name.startswith(MCP):
        return name
    server, _, tool = name.removeprefix(MCP).partition("__")
    joined = f"{server}-{tool}"
    return next((each for each in offered if each == joined), name)
