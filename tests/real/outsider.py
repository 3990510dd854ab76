"""A program that is no agent and asks the bridge: one MCP process of the product, spoken to in plain lines.

Owns that process. It descends from no panel, so the bridge knows it as nobody; what it asks is seen from outside of every
session.
"""

from __future__ import annotations

import json
import subprocess
import threading
from typing import TYPE_CHECKING, Any, Final

from tests.real.panels.record import WAIT, Record

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Json = dict[str, Any]

PROTOCOL: Final = "2025-11-25"


class Outsider:
    """One client of ``cross-agent mcp``."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self._answers: Record[Json] = Record("answers of the MCP process")
        self._number = 0
        self._process = subprocess.Popen(
            list(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=dict(environment)
        )
        self._reader = threading.Thread(target=self._read, name="outsider", daemon=True)
        self._reader.start()
        self._request(
            "initialize", {"protocolVersion": PROTOCOL, "capabilities": {}, "clientInfo": {"name": "o", "version": "1"}}
        )
        self._write({"method": "notifications/initialized"})

    def call(self, tool: str, **arguments: Any) -> Json:
        """What ``tool`` answers: a result, or the refusal of a tool error."""
        result: Json = self._request("tools/call", {"name": tool, "arguments": arguments})["structuredContent"]
        return result

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(WAIT)
        finally:
            self._process.kill()
            self._process.wait()
            self._reader.join(WAIT)

    def _request(self, method: str, params: Json) -> Json:
        self._number += 1
        number = self._number
        self._write({"id": number, "method": method, "params": params})
        answer = self._answers.wait(lambda answer: answer.get("id") == number)
        result: Json = answer["result"]
        return result

    def _write(self, message: Json) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        self._process.stdin.flush()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                self._answers.add(json.loads(line))
        self._answers.end("the MCP process ended")
