"""The small MCP client of the stub agents: starts a stdio server, shakes hands, lists and calls its tools.

Owns the wire to one server process; decides neither which servers exist, nor their environment, nor who may call. It
speaks the handshake era only: a server that the real agent would talk to in a newer revision serves this one as well.
"""

from __future__ import annotations

import json

from shims.stub_io import Lines
from shims.stub_loop import Wait

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any, Final

    from shims.stub_loop import Child, Loop

METHOD_NOT_FOUND: Final = -32601


class McpError(Exception):
    """The server refused a request, or ended before it answered."""


class Manner:
    """How one agent behaves as a client: what it says of itself, and whether it gives its servers their own group."""

    __slots__ = ("capabilities", "client", "follows_list_changes", "own_group", "protocol")

    def __init__(
        self,
        *,
        protocol: str,
        client: dict[str, Any],
        capabilities: dict[str, Any],
        follows_list_changes: bool,
        own_group: bool,
    ) -> None:
        self.protocol = protocol
        self.client = client
        self.capabilities = capabilities
        self.follows_list_changes = follows_list_changes
        self.own_group = own_group


class Server:
    """One running server. ``ready`` happens when its tools are known, and fails if it never came up."""

    def __init__(
        self,
        loop: Loop,
        name: str,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: str,
        manner: Manner,
    ) -> None:
        self.name = name
        self.ready = Wait(loop)
        self.tools: dict[str, dict[str, Any]] = {}
        self._loop = loop
        self._cwd = cwd
        self._manner = manner
        self._next_id = 0
        self._progress = 0
        self._answers: dict[int, Wait] = {}
        self._child: Child = loop.spawn(argv, env=env, cwd=cwd, talk=True, own_group=manner.own_group)
        self._lines = Lines(loop, self._child.output, self._on_line, self._on_end)
        loop.start(self._shake_hands())

    @property
    def pid(self) -> int:
        return self._child.pid

    # requests

    async def call(self, tool: str, arguments: Any, meta: dict[str, Any], cancelled: Wait) -> dict[str, Any]:
        """One tool call; ``cancelled`` gives it up and tells the server so.

        Raises:
            McpError: refused, gone, or given up.
        """
        await self.ready
        self._progress += 1
        params = {"_meta": {**meta, "progressToken": self._progress}, "name": tool, "arguments": arguments}
        number, answer = self._request("tools/call", params)
        await self._loop.first(answer, cancelled)
        if not answer.done:
            self._answers.pop(number, None)
            self._send(
                {
                    "method": "notifications/cancelled",
                    "params": {"requestId": number, "reason": "MCP request cancelled by caller"},
                }
            )
            raise McpError("cancelled")
        result: dict[str, Any] = await answer
        return result

    def close(self) -> None:
        """Ends the server: end of input and SIGTERM, as the agents do. Nothing waits for it here."""
        self._child.end_input()
        self._child.signal(15)

    # private

    async def _shake_hands(self) -> None:
        try:
            await self._request(
                "initialize",
                {
                    "protocolVersion": self._manner.protocol,
                    "capabilities": self._manner.capabilities,
                    "clientInfo": self._manner.client,
                },
            )[1]
            self._send({"method": "notifications/initialized"})
            await self._list_tools()
        except McpError as error:
            self.ready.fail(error)
        else:
            self.ready.settle()

    async def _list_tools(self) -> None:
        tools: dict[str, dict[str, Any]] = {}
        cursor: str | None = None
        while True:
            page = await self._request("tools/list", {"cursor": cursor} if cursor else {})[1]
            for tool in page.get("tools", []):
                tools[tool["name"]] = tool
            cursor = page.get("nextCursor")
            if not cursor:
                break
        self.tools = tools

    async def _list_tools_again(self) -> None:
        try:
            await self._list_tools()
        except McpError:
            # The list that is known stays: the server is on its way out, and a call will say so.
            return

    def _request(self, method: str, params: dict[str, Any]) -> tuple[int, Wait]:
        number, self._next_id = self._next_id, self._next_id + 1
        answer = self._answers[number] = Wait(self._loop)
        if self._child.exited.done:
            answer.fail(McpError(f"server {self.name} has ended"))
        self._send({"id": number, "method": method, "params": params})
        return number, answer

    def _send(self, message: dict[str, Any]) -> None:
        self._child.send(json.dumps({"jsonrpc": "2.0", **message}, separators=(",", ":")).encode() + b"\n")

    def _on_line(self, line: bytes) -> None:
        try:
            message = json.loads(line)
        except ValueError:
            return  # servers print; clients skip what isn't JSON
        if not isinstance(message, dict):
            return
        if "method" in message:
            self._on_server_message(message)
            return
        number = message.get("id")
        answer = self._answers.pop(number, None) if isinstance(number, int) else None
        if answer is None:
            return
        if "error" in message:
            answer.fail(McpError(str(message["error"].get("message", "error"))))
        else:
            answer.settle(message.get("result", {}))

    def _on_server_message(self, message: dict[str, Any]) -> None:
        method = message["method"]
        if "id" not in message:
            if method == "notifications/tools/list_changed" and self._manner.follows_list_changes:
                self._loop.start(self._list_tools_again())
            return
        answers: dict[str, dict[str, Any]] = {"ping": {}}
        if "roots" in self._manner.capabilities:
            answers["roots/list"] = {"roots": [{"uri": "file://" + self._cwd}]}
        if "elicitation" in self._manner.capabilities:
            answers["elicitation/create"] = {"action": "cancel"}
        if method in answers:
            self._send({"id": message["id"], "result": answers[method]})
        else:
            self._send({"id": message["id"], "error": {"code": METHOD_NOT_FOUND, "message": "Method not found"}})

    def _on_end(self, _rest: bytes) -> None:
        waiting, self._answers = list(self._answers.values()), {}
        for answer in waiting:
            answer.fail(McpError(f"server {self.name} has ended"))


def text_of(result: dict[str, Any]) -> str:
    """What the model reads of a tool result: its text blocks."""
    return "\n".join(block.get("text", "") for block in result.get("content", []) if block.get("type") == "text")
