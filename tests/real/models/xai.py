"""The chat completions API, as far as Grok Build needs it.

Owns the translation of a completions request into the order that a script has to follow and of steps into streamed chunks, and
the mapping of the MCP tools of a script onto Grok's one tool for all of them. Answers Grok's requests beside the conversation
(titles, the summary after each turn) without consuming a script.
"""

from __future__ import annotations

import json
import time
import uuid
from typing import TYPE_CHECKING, Any, Final

from .plan import Order, is_background, response
from .server import Exchange, Json, ModelRequest, ScriptedModel, ToolResult

if TYPE_CHECKING:
    from collections.abc import Iterator
    from email.message import Message

    from shims.script import Step

OPEN_QUERY: Final = "<user_query>\n"
CLOSE_QUERY: Final = "\n</user_query>"
TURN: Final = "x-grok-turn-idx"
"""The header of requests of a turn; titles and summaries come without it."""

MCP: Final = "mcp__"
MCP_CALL: Final = "use_tool"
MODEL: Final = "grok-4.6"
"""Grok asks this model for titles whatever else is listed; a missing one it would ask by another API."""

SIDE_ANSWER: Final = "Scripted"
USAGE: Final = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}


class XaiModel(ScriptedModel):
    """``url`` goes into ``GROK_MODELS_BASE_URL``."""

    @property
    def url(self) -> str:
        return super().url + "/v1"

    def look(self, path: str, headers: Message, body: Json) -> ModelRequest | None:
        if not path.split("?", 1)[0].endswith("/chat/completions"):
            return None
        messages = body.get("messages", [])
        start = max((at for at, message in enumerate(messages) if message["role"] == "assistant"), default=-1) + 1
        return ModelRequest(
            at=time.monotonic(),
            wall=time.time(),
            texts=tuple(text for message in messages[start:] for text in _texts(message)),
            results=tuple(_result(message) for message in messages[start:] if message["role"] == "tool"),
            tools=tuple(tool["function"]["name"] for tool in body.get("tools") or ()),
            side=TURN not in headers,
            body=body,
        )

    def answer(self, exchange: Exchange, request: ModelRequest) -> None:
        if request.side:
            self._say_beside(exchange, request.body)
            return
        steps = response(_order(request.body.get("messages", [])))
        if steps[-1].verb == "fail":
            exchange.send_json(400, _error(steps[-1].text))
            return
        answer = _Answer(exchange, request.body)
        for index, step in enumerate(steps):
            answer.step(step, "\n\n" if index else "")
        answer.finish()

    def answer_other(self, exchange: Exchange, path: str) -> None:
        if path.split("?", 1)[0].endswith("/models"):
            exchange.send_json(200, {"object": "list", "data": [{"id": MODEL, "object": "model", "created": 1, "owned_by": "x"}]})
        else:
            exchange.send_json(404, _error("not here"))

    def _say_beside(self, exchange: Exchange, body: Json) -> None:
        answer = _Answer(exchange, body)
        if "tool_choice" in body:
            function = body["tools"][0]["function"]
            answer.call(function["name"], dict.fromkeys(function["parameters"]["properties"], SIDE_ANSWER))
        else:
            answer.text(SIDE_ANSWER)
        answer.finish()


# Reading a request


def _texts(message: Json) -> Iterator[str]:
    """What somebody said in one message: the words in Grok's frame, or all where it has none, as a sub-agent's task."""
    content = message.get("content")
    if message["role"] != "user":
        return
    for text in [content] if isinstance(content, str) else [part.get("text", "") for part in content or ()]:
        _, framed, rest = text.partition(OPEN_QUERY)
        if framed:
            yield rest.rpartition(CLOSE_QUERY)[0]
        elif not is_background(text):
            yield text


def _result(message: Json) -> ToolResult:
    content = message.get("content")
    text = content if isinstance(content, str) else "".join(part.get("text", "") for part in content or ())
    return ToolResult(message.get("tool_call_id", ""), text)


def _order(messages: list[Json]) -> Order:
    """The newest message governs, whatever it says; each answer to it has been one step.

    Answers are counted, not tool results: when a sub-agent is done Grok begins a turn of its own, without a message of anybody.
    """
    text, done = "", 0
    for message in messages:
        if message["role"] == "assistant":
            done += 1
        for said in _texts(message):
            text, done = said, 0
    return Order(text, done)


# Writing an answer


def _error(text: str) -> Json:
    return {"error": {"message": text, "type": "invalid_request_error", "code": "scripted"}}


class _Answer:
    """One streamed answer of the model."""

    def __init__(self, exchange: Exchange, body: Json) -> None:
        self._exchange = exchange
        self._calls = 0
        self._head = {
            "id": "chatcmpl-" + uuid.uuid4().hex[:16],
            "object": "chat.completion.chunk",
            "created": int(time.time()),
            "model": body.get("model", MODEL),
        }
        exchange.start_events()
        self._chunk({"role": "assistant", "content": ""})

    def step(self, step: Step, separator: str) -> None:
        """One step of a script; ``separator`` parts its words from those before."""
        if step.verb == "tool":
            self.call(*_offered(step))
            return
        half = len(step.text) // 2
        self.text(separator + step.text[:half])
        if step.gate:
            self._exchange.pass_gate(step.gate)
        self.text(step.text[half:])

    def text(self, text: str) -> None:
        self._chunk({"content": text})

    def call(self, name: str, arguments: Any) -> None:
        function = {"name": name, "arguments": json.dumps(arguments)}
        call = {"index": self._calls, "id": "call_" + uuid.uuid4().hex[:16], "type": "function", "function": function}
        self._calls += 1
        self._chunk({"tool_calls": [call]})

    def finish(self) -> None:
        self._chunk({}, "tool_calls" if self._calls else "stop")
        self._exchange.data({**self._head, "choices": [], "usage": USAGE})
        self._exchange.data("[DONE]")

    def _chunk(self, delta: Json, reason: str | None = None) -> None:
        self._exchange.data({**self._head, "choices": [{"index": 0, "delta": delta, "finish_reason": reason}]})


def _offered(step: Step) -> tuple[str, Any]:
    """Name and arguments under which Grok takes the call that Claude Code takes as ``mcp__server__tool``."""
    if not step.tool.startswith(MCP):
        return step.tool, step.parsed_arguments()
    return MCP_CALL, {"tool_name": step.tool.removeprefix(MCP), "tool_input": step.parsed_arguments()}
