"""The answers of the handshake, made beforehand: ``handshake.json``, as the SDK itself gives them (MC-08).

Owns making them (``python -m mcp_server.handshake`` writes the file) and reading them. A test compares the file with the
SDK's answers, so that the two can't drift. Reading imports nothing heavy.
"""

from __future__ import annotations

import json
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

PATH = os.path.join(os.path.dirname(os.path.abspath(__file__)), "handshake.json")

MODERN = "2026-07-28"
"""The revision without a handshake: every request carries its version in ``_meta``."""

HANDSHAKE_VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")


def read() -> dict[str, Any]:
    """``{"initialize": {version: result}, "tools": {version: result}, "discover": result}``."""
    with open(PATH, encoding="utf-8") as file:
        answers: dict[str, Any] = json.load(file)
    return answers


def make() -> dict[str, Any]:
    """Asks the SDK. Needs the packages of the broker."""
    import asyncio

    return asyncio.run(_ask_sdk())


async def _ask_sdk() -> dict[str, Any]:
    answers: dict[str, Any] = {"initialize": {}, "tools": {}, "discover": {}}
    for version in HANDSHAKE_VERSIONS:
        parameters = {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
        initialized = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        results = await _converse(_request(1, "initialize", parameters), initialized, _request(2, "tools/list", {}))
        answers["initialize"][version], answers["tools"][version] = results
    meta = {
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientInfo": {"name": "x", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    answers["discover"], answers["tools"][MODERN] = await _converse(
        _request(1, "server/discover", {"_meta": meta}), _request(2, "tools/list", {"_meta": meta})
    )
    return answers


async def _converse(*messages: dict[str, Any]) -> list[Any]:
    """The results of the requests among ``messages``, from a session of the very code that the broker runs."""
    import asyncio

    from mcp_server.served import McpSessions

    class NoTools:
        async def call(self, *_: Any) -> dict[str, Any]:
            raise AssertionError("the handshake calls no tool")

        def cancelled(self, request_id: str) -> None:
            raise AssertionError(f"the handshake cancels nothing: {request_id}")

    answered: asyncio.Queue[Any] = asyncio.Queue()
    sessions = McpSessions()
    sessions.open("one", NoTools(), lambda line: answered.put_nowait(json.loads(line)))
    results = []
    for message in messages:
        sessions.line("one", json.dumps(message).encode())
        if "id" in message:
            results.append((await answered.get())["result"])
    sessions.close_all()
    return results


def _request(identifier: int, method: str, parameters: dict[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": identifier, "method": method, "params": parameters}


if __name__ == "__main__":
    with open(PATH, "w", encoding="utf-8") as file:
        json.dump(make(), file, ensure_ascii=False, indent=1, sort_keys=True)
        file.write("\n")
