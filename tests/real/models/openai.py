"""The OpenAI Responses API, as far as Codex needs it.

Owns the translation of a Responses request into plan events and of steps into its server-sent events, and the mapping of the
tool names of a script onto the form in which this Codex offers them.
"""

from __future__ import annotations

import time
import uuid
from typing import TYPE_CHECKING, Final

from .plan import Event, is_background, newest, response
from .server import Exchange, Json, ModelRequest, ScriptedModel, ToolResult

if TYPE_CHECKING:
    from collections.abc import Iterator
    from email.message import Message

    from shims.script import Step

OUTPUTS: Final = frozenset({"function_call_output", "custom_tool_call_output", "mcp_tool_call_output"})
SEPARATOR: Final = "__"
USAGE: Final = {
    "input_tokens": 10,
    "input_tokens_details": {"cached_tokens": 0},
    "output_tokens": 5,
    "output_tokens_details": {"reasoning_tokens": 0},
    "total_tokens": 15,
}


class OpenAIModel(ScriptedModel):
    """``url`` goes into ``base_url`` of a model provider with ``wire_api = "responses"``."""

    @property
    def url(self) -> str:
        return super().url + "/v1"

    def look(self, path: str, headers: Message, body: Json) -> ModelRequest | None:
        del headers
        if not path.split("?", 1)[0].endswith("/responses"):
            return None
        items = body.get("input", [])
        start = max((at for at, item in enumerate(items) if _is_from_model(item)), default=-1) + 1
        return ModelRequest(
            at=time.monotonic(),
            wall=time.time(),
            texts=tuple(text for item in items[start:] for text in _texts(item)),
            results=tuple(_result(item) for item in items[start:] if item.get("type") in OUTPUTS),
            tools=tuple(_flat_names(body)),
            side=not body.get("tools"),
            body=body,
        )

    def answer(self, exchange: Exchange, request: ModelRequest) -> None:
        steps = response(newest(list(_events(request.body.get("input", [])))))
        if steps[-1].verb == "fail":
            exchange.send_json(400, {"error": {"message": steps[-1].text, "type": "invalid_request_error", "code": "scripted"}})
            return
        answer = "resp_" + uuid.uuid4().hex[:16]
        exchange.start_events()
        exchange.event("response.created", response={"id": answer})
        items = [_item(exchange, index, step, request.body) for index, step in enumerate(steps)]
        exchange.event("response.completed", response={"id": answer, "output": items, "usage": USAGE})

    def answer_other(self, exchange: Exchange, path: str) -> None:
        if path.split("?", 1)[0].endswith("/models"):
            exchange.send_json(200, {"object": "list", "data": [], "models": []})
        else:
            exchange.send_json(404, {"error": {"message": "not here", "type": "invalid_request_error"}})


# Reading a request


def _is_from_model(item: Json) -> bool:
    return item.get("role") == "assistant" or item.get("type") in ("function_call", "custom_tool_call", "reasoning")


def _texts(item: Json) -> Iterator[str]:
    if item.get("type") == "agent_message":  # the task of a sub-agent of the second generation (0.171)
        yield "".join(part.get("encrypted_content", "") for part in item.get("content") or ())
        return
    if item.get("type", "message") != "message" or item.get("role") != "user":
        return
    content = item.get("content")
    for text in [content] if isinstance(content, str) else [part.get("text", "") for part in content or ()]:
        if not is_background(text):
            yield text


def _result(item: Json) -> ToolResult:
    output = item.get("output")
    if isinstance(output, list):
        output = "".join(part.get("text", "") for part in output)
    return ToolResult(item.get("call_id", ""), output if isinstance(output, str) else str(output))


def _events(items: list[Json]) -> Iterator[Event]:
    for item in items:
        if item.get("type") in OUTPUTS:
            yield Event("result", _result(item).text)
        for text in _texts(item):
            yield Event("text", text)


def _flat_names(body: Json) -> Iterator[str]:
    for tool in body.get("tools") or ():
        if tool.get("type") == "namespace":
            for inner in tool.get("tools") or ():
                yield _joined(tool["name"], inner.get("name", ""))
        else:
            yield tool.get("name") or tool.get("type") or ""


def _joined(namespace: str, name: str) -> str:
    return namespace.removesuffix(SEPARATOR) + SEPARATOR + name


# Writing an answer


def _item(exchange: Exchange, index: int, step: Step, body: Json) -> Json:
    item = _call(step, body) if step.verb == "tool" else _message(exchange, index, step)
    exchange.event("response.output_item.done", output_index=index, item=item)
    return item


def _message(exchange: Exchange, index: int, step: Step) -> Json:
    phase = "commentary" if step.verb == "comment" else "final_answer"
    item: Json = {"type": "message", "role": "assistant", "id": "msg_" + uuid.uuid4().hex[:16], "phase": phase}
    exchange.event("response.output_item.added", output_index=index, item={**item, "content": []})
    half = len(step.text) // 2
    for at, part in enumerate((step.text[:half], step.text[half:])):
        if at and step.gate:
            exchange.pass_gate(step.gate)
        exchange.event("response.output_text.delta", item_id=item["id"], output_index=index, content_index=0, delta=part)
    return {**item, "content": [{"type": "output_text", "text": step.text}]}


def _call(step: Step, body: Json) -> Json:
    identity = uuid.uuid4().hex[:16]
    namespace, name = _offered(step.tool, body)
    item: Json = {"type": "function_call", "id": "fc_" + identity, "call_id": "call_" + identity, "name": name}
    if namespace:
        item["namespace"] = namespace
    return {**item, "arguments": step.arguments}


def _offered(name: str, body: Json) -> tuple[str, str]:
    """Namespace and name under which Codex offers the tool that Claude Code calls ``mcp__server__tool``."""
    for tool in body.get("tools") or ():
        if tool.get("type") != "namespace":
            continue
        for inner in tool.get("tools") or ():
            if _plain(_joined(tool["name"], inner.get("name", ""))) == _plain(name):
                return tool["name"], inner["name"]
    for tool in body.get("tools") or ():
        if _plain(tool.get("name") or "") == _plain(name):
            return "", tool["name"]
    return "", name


def _plain(name: str) -> str:
    """Codex writes the dash of a server name as an underscore in some releases."""
    return name.replace("-", "_")
