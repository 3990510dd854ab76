"""A tiny MCP server on stdio, standard library only: tool ``echo`` gives back its ``text`` and proves who called.

Run as a plain script by a real agent. Owns no state; each answer carries the request's ``_meta`` and, as ``env``, the variables
that its own argv names.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

NO_METHOD = -32601
ECHO = {
    "name": "echo",
    "description": "Gives the text back.",
    "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
}


def call(params: dict[str, Any], names: list[str]) -> dict[str, Any]:
    """The result of ``tools/call``."""
    said = {
        "text": params["arguments"]["text"],
        "meta": params.get("_meta", {}),
        "env": {name: os.environ.get(name) for name in names},
        "cwd": os.getcwd(),
    }
    return {"content": [{"type": "text", "text": json.dumps(said)}], "isError": False}


def answer(method: str, params: dict[str, Any], names: list[str]) -> dict[str, Any] | None:
    """The result for one request, None for a method this server does not know."""
    if method == "initialize":
        return {
            "protocolVersion": params["protocolVersion"],
            "capabilities": {"tools": {"listChanged": False}},
            "serverInfo": {"name": "small", "version": "1"},
        }
    if method == "tools/list":
        return {"tools": [ECHO]}
    if method == "tools/call":
        return call(params, names)
    return {} if method == "ping" else None


def main(names: list[str]) -> None:
    for line in sys.stdin:
        message = json.loads(line)
        if "id" not in message or "method" not in message:
            continue
        reply: dict[str, Any] = {"jsonrpc": "2.0", "id": message["id"]}
        result = answer(message["method"], message.get("params") or {}, names)
        if result is None:
            reply["error"] = {"code": NO_METHOD, "message": "Method not found"}
        else:
            reply["result"] = result
        print(json.dumps(reply), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
