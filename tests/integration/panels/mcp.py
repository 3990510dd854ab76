"""An MCP client of nobody's."""

from __future__ import annotations

from typing import Any

from tests.integration.lines import PATIENCE, Json, Lines


class McpClient(Lines):
    """A client of the handshake era, by hand."""

    _requests = 0

    def shake_hands(self, version: str = "2025-11-25") -> Json:
        client = {"name": "t", "version": "1"}
        parameters = {"protocolVersion": version, "capabilities": {}, "clientInfo": client}
        answer = self.request("initialize", parameters)
        self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return answer

    def post(self, method: str, parameters: Json | None = None) -> int:
        """Sends a request and returns its id."""
        self._requests += 1
        message = {"jsonrpc": "2.0", "id": self._requests, "method": method}
        self.send(message if parameters is None else {**message, "params": parameters})
        return self._requests

    def answer(self, number: int, timeout: float = PATIENCE) -> Json:
        return self.wait(lambda m: m.get("id") == number and "method" not in m, f"answer {number}", timeout=timeout)

    def request(self, method: str, parameters: Json | None = None, timeout: float = PATIENCE) -> Json:
        return self.answer(self.post(method, parameters), timeout)

    def call(self, tool: str, timeout: float = PATIENCE, **arguments: Any) -> Json:
        """What a tool answers, as data."""
        answer = self.request("tools/call", {"name": tool, "arguments": arguments}, timeout)
        assert "result" in answer, answer
        result: Json = answer["result"]["structuredContent"]
        return result
