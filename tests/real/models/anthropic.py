"""The Anthropic Messages API, as far as Claude Code needs it.

Owns the translation of a Messages request into plan events and of steps into its server-sent events. Answers Claude Code's
requests beside the conversation (title, quota, token count) without consuming a script.
"""

from __future__ import annotations

import json
import time
import uuid
from typing import TYPE_CHECKING, Any, Final

from .plan import FOLDED, Event, is_background, newest_script, response, unfold
from .server import Exchange, Json, ModelRequest, ScriptedModel, ToolResult

if TYPE_CHECKING:
    from collections.abc import Iterator
    from email.message import Message

    from shims.script import Step

INTERRUPTED: Final = "[Request interrupted by user"
USAGE: Final = {"input_tokens": 10, "output_tokens": 5}
SIDE_ANSWER: Final = "Scripted"


class AnthropicModel(ScriptedModel):
    """``url`` goes into ``ANTHROPIC_BASE_URL``."""

    def __init__(self) -> None:
        self._failed: set[str] = set()
        super().__init__()

    def look(self, path: str, headers: Message, body: Json) -> ModelRequest | None:
        del headers
        if not path.split("?", 1)[0].endswith("/v1/messages"):
            return None
        fresh = list(_since_answer(body.get("messages", [])))
        return ModelRequest(
            at=time.monotonic(),
            wall=time.time(),
            texts=tuple(text for message in fresh for text in _texts(message)),
            results=tuple(result for message in fresh for result in _results(message)),
            tools=tuple(tool.get("name", "") for tool in body.get("tools") or ()),
            side=not body.get("tools"),
            body=body,
        )

    def answer(self, exchange: Exchange, request: ModelRequest) -> None:
        model = request.body.get("model", "scripted")
        if request.side:
            self._say_beside(exchange, request, model)
            return
        order = newest_script(list(_events(request.body.get("messages", []))), self._failed)
        steps = response(order)
        if steps[-1].verb == "fail":
            self._failed.add(order.message)
            exchange.send_json(400, _error("invalid_request_error", steps[-1].text))
            return
        exchange.start_events()
        _start(exchange, model)
        for index, step in enumerate(steps):
            _block(exchange, index, step)
        _finish(exchange, "tool_use" if steps[-1].verb == "tool" else "end_turn")

    def answer_other(self, exchange: Exchange, path: str) -> None:
        if "count_tokens" in path:
            exchange.send_json(200, {"input_tokens": 10})
        else:
            exchange.send_json(404, _error("not_found_error", "not here"))

    def _say_beside(self, exchange: Exchange, request: ModelRequest, model: str) -> None:
        if not request.body.get("stream"):
            content = [{"type": "text", "text": SIDE_ANSWER}]
            exchange.send_json(200, {**_message(model), "content": content, "stop_reason": "end_turn"})
            return
        exchange.start_events()
        _start(exchange, model)
        _text(exchange, 0, [SIDE_ANSWER])
        _finish(exchange, "end_turn")


# Reading a request


def _since_answer(messages: list[Json]) -> list[Json]:
    last = max((at for at, message in enumerate(messages) if message["role"] == "assistant"), default=-1)
    return messages[last + 1 :]


def _blocks(message: Json) -> list[Json]:
    content = message.get("content")
    return [{"type": "text", "text": content}] if isinstance(content, str) else list(content or ())


def _texts(message: Json) -> Iterator[str]:
    """What somebody said in one message; what Claude Code itself adds is left out, as the newline of 2.1.197 between two."""
    for block in _blocks(message):
        if block.get("type") != "text":
            continue
        text = block["text"]
        # 2.1.197 folds a message in as role "system"; everything else in that role is Claude Code's own.
        if message["role"] == "system" and not text.startswith(FOLDED):
            continue
        if not is_background(text):
            yield unfold(text).rstrip("\n")


def _results(message: Json) -> Iterator[ToolResult]:
    for block in _blocks(message):
        if block.get("type") == "tool_result":
            content = block.get("content")
            text = content if isinstance(content, str) else "".join(part.get("text", "") for part in content or ())
            yield ToolResult(block.get("tool_use_id", ""), text, bool(block.get("is_error")))


def _events(messages: list[Json]) -> Iterator[Event]:
    for message in messages:
        if message["role"] == "assistant":
            if not any(block.get("type") == "tool_use" for block in _blocks(message)):
                yield Event("end")
            continue
        for result in _results(message):
            yield Event("result", result.text)
        for text in _texts(message):
            yield Event("end") if text.startswith(INTERRUPTED) else Event("text", text)


# Writing an answer


def _error(kind: str, text: str) -> Json:
    return {"type": "error", "error": {"type": kind, "message": text}}


def _message(model: str) -> Json:
    return {
        "id": "msg_" + uuid.uuid4().hex[:16],
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": USAGE,
    }


def _start(exchange: Exchange, model: str) -> None:
    exchange.event("message_start", message=_message(model))


def _finish(exchange: Exchange, reason: str) -> None:
    exchange.event("message_delta", delta={"stop_reason": reason, "stop_sequence": None}, usage=USAGE)
    exchange.event("message_stop")


def _block(exchange: Exchange, index: int, step: Step) -> None:
    if step.verb == "tool":
        block: dict[str, Any] = {"type": "tool_use", "id": "toolu_" + uuid.uuid4().hex[:16], "name": step.tool, "input": {}}
        exchange.event("content_block_start", index=index, content_block=block)
        arguments = json.dumps(step.parsed_arguments())
        exchange.event("content_block_delta", index=index, delta={"type": "input_json_delta", "partial_json": arguments})
        exchange.event("content_block_stop", index=index)
        return
    half = len(step.text) // 2
    _text(exchange, index, [step.text[:half], step.text[half:]], step.gate)


def _text(exchange: Exchange, index: int, parts: list[str], gate: str = "") -> None:
    exchange.event("content_block_start", index=index, content_block={"type": "text", "text": ""})
    for at, part in enumerate(parts):
        if at and gate:
            exchange.pass_gate(gate)
        exchange.event("content_block_delta", index=index, delta={"type": "text_delta", "text": part})
    exchange.event("content_block_stop", index=index)
