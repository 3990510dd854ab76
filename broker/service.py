"""What clients may ask: the tools of an MCP session, and the operations of commands.

Owns the way from a call to the part that answers it. Who is calling is found out here once per call; everything else is
decided by `sends`, `status` and the book.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from broker import status
from broker.book import Book
from broker.callers import Caller, descent_of, identify_caller
from broker.errors import Refusal
from broker.events import Events
from broker.panels import Panels
from broker.paths import Home
from broker.processes import ProcessId, ancestors
from broker.reader import Reader
from broker.sends import SendCall, Sends
from broker.wire import McpOpen
from shims.agent import agents
from shims.presence import is_shim

_CALLER_PATIENCE = 2.0
"""Seconds that a call waits for the shim behind it to register: both may have just met a new broker."""


class Service:
    """Everything that can be asked of one broker.

    Args:
        gathered: set when the shims that live have had their chance to register (DE-25): before, a session that is open
            could be taken for unknown.
        facts: what is told of the broker process.
        stop: ends it soon.
    """

    def __init__(
        self,
        home: Home,
        panels: Panels,
        book: Book,
        reader: Reader,
        events: Events,
        sends: Sends,
        *,
        gathered: asyncio.Event,
        facts: Callable[[], dict[str, Any]],
        stop: Callable[[], None],
    ) -> None:
        self._home = home
        self._panels = panels
        self._book = book
        self._reader = reader
        self._events = events
        self._sends = sends
        self._gathered = gathered
        self._facts = facts
        self._stop = stop

    async def caller(self, process: ProcessId, meta: Mapping[str, Any], opened: McpOpen) -> Caller:
        """Who is behind an MCP process; waits briefly for shims that are known to be on their way."""
        await self._gathered.wait()
        behind = [ancestor for ancestor in ancestors(process.pid) if is_shim(self._home.shims, ancestor)]
        deadline = asyncio.get_running_loop().time() + _CALLER_PATIENCE
        while behind and not any(self._panels.is_ready(shim) for shim in behind):
            if not await self._panels.change(deadline):
                break
        descent = await asyncio.get_running_loop().run_in_executor(None, descent_of, process)
        return identify_caller(descent, meta, {**opened.environment, **opened.settings}, self._panels)

    async def send(self, call: SendCall) -> dict[str, Any]:
        return await self._sends.send(call)

    def cancelled(self, key: str) -> None:
        self._sends.cancelled(key)

    def sessions(self, caller: Caller, which: str, cwd: str, scope: str, limit: int) -> dict[str, Any]:
        names = {"all": tuple(agents()), "both": ("claude", "codex")}.get(which, (which,))
        listed = status.list_sessions(self._panels, caller, which=names, cwd=cwd, scope=scope, limit=limit)
        return {"ok": True, "sessions": listed, "scope": scope, "cwd": cwd}

    async def status(self, caller: Caller, cwd: str, scope: str, delivery: str, client: ProcessId) -> dict[str, Any]:
        if delivery:
            return {"ok": True, **await status.detail(self._book, self._panels, self._reader, delivery)}
        shown = status.overview(self._book, self._panels, caller, cwd=cwd, scope=scope)
        return {"ok": True, **shown, "server_process": {**self._facts(), "mcp_process": client.pid}}

    async def operation(self, operation: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
        """What a command asks. Raises CrossAgentError."""
        if operation == "status":
            return self._facts()
        if operation == "overview":
            shown = status.overview(self._book, self._panels, Caller(), cwd="/", scope="any")
            return {**shown, "server_process": self._facts()}
        if operation == "delivery":
            return await status.detail(self._book, self._panels, self._reader, str(parameters.get("id")))
        if operation == "events":
            missed = self._events.since(int(parameters.get("after", 0)))
            return {"sequence": self._events.sequence, "events": missed}
        if operation == "next_event":
            after, patience = int(parameters.get("after", 0)), float(parameters.get("patience", 1.0))
            return {"sequence": await self._events.next(after, patience)}
        if operation == "stop":
            self._stop()
            return self._facts()
        raise Refusal("unknown_operation", f"the broker does not know {operation[:40]}", "Update cross-agent.")


class Tools:
    """The tools of one MCP session."""

    def __init__(self, service: Service, process: ProcessId, opened: McpOpen) -> None:
        self._service = service
        self._process = process
        self._opened = opened

    async def call(self, tool: str, arguments: dict[str, Any], meta: Mapping[str, Any], request_id: str) -> dict[str, Any]:
        opened = self._opened
        caller = await self._service.caller(self._process, meta, opened)
        cwd = arguments["cwd"] or opened.cwd
        scope = arguments["scope"] or opened.settings.get("CROSS_AGENT_SCOPE") or "cwd"
        if tool == "list_agent_sessions":
            return self._service.sessions(caller, arguments["agent"], cwd, scope, arguments["limit"])
        if tool == "bridge_status":
            return await self._service.status(caller, cwd, scope, arguments["delivery_id"], self._process)
        return await self._service.send(
            SendCall(
                target=tool.removeprefix("send_to_"),
                message=arguments["message"],
                key=self._key(request_id),
                origin=opened.instance,
                caller=caller,
                cwd=cwd,
                session=arguments["session_id"],
                new_session=arguments["new_session"],
                conversation=arguments["conversation_id"].strip(),
                timeout=float(arguments["timeout"]),
                raw=arguments["raw"],
                allow_same_agent=arguments.get("allow_same_agent", False),
                settings=opened.settings,
            )
        )

    def cancelled(self, request_id: str) -> None:
        self._service.cancelled(self._key(request_id))

    def _key(self, request_id: str) -> str:
        """Names a call for ever: the MCP process and the id that its client gave."""
        return f"{self._opened.instance}/{request_id}"
