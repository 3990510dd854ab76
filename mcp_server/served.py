"""The MCP sessions that the broker serves, with the SDK, each in a task of its own.

Owns the meeting of the SDK with the broker: lines in, lines out, tool calls to a `ToolHost`. The SDK is loaded once, in a
thread, after the broker answers already; lines that come before wait. One bad session can't end another (EN-25), and no
exception text ever reaches a client (MC-05).
"""

from __future__ import annotations

import asyncio
import gc
import json
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from broker import VERSION
from broker.beside import beside_the_loop
from broker.errors import CrossAgentError, Fenced, InternalError
from mcp_server import packing, surface

if TYPE_CHECKING:
    from mcp.server.lowlevel import Server

log = logging.getLogger("mcp_server.served")

_INBOX_BYTES = 64 * 1024 * 1024
"""Of one session's lines that wait to be served, while the SDK is loaded for one; its client is hostile beyond that."""

_LINE_BYTES = 100
"""What a line costs besides its own bytes."""

_NOT_READ = b'{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"the line is too long to be read"}}'

_STREAM = 1000
"""Messages between the SDK and a session's line queue."""


class ToolHost(Protocol):
    """What the tools do. One per session: it knows who is behind it."""

    async def call(self, tool: str, arguments: dict[str, Any], meta: Mapping[str, Any], request_id: str) -> dict[str, Any]:
        """The result of a call. Raises CrossAgentError."""
        ...

    def cancelled(self, request_id: str) -> None:
        """The client has cancelled a call; it may have been answered meanwhile."""
        ...


class McpSessions:
    """Every MCP session of one broker."""

    def __init__(self) -> None:
        self._sessions: dict[object, _Session] = {}
        self._sdk: asyncio.Future[_Sdk] | None = None

    def load(self) -> None:
        """Begins to load the SDK; a second of CPU that nobody waits for."""
        self._loading()

    async def loaded(self) -> None:
        """Waits until the SDK is there, or cannot be had."""
        await asyncio.wait((self._loading(),))

    def open(self, owner: object, host: ToolHost, send: Callable[[bytes], None]) -> None:
        """Begins a session for ``owner``; one that it had is over."""
        self.close(owner)
        self._sessions[owner] = _Session(self._loading(), host, send)

    def line(self, owner: object, line: bytes) -> None:
        session = self._sessions.get(owner)
        if session is not None:
            session.line(line)

    def close(self, owner: object) -> None:
        session = self._sessions.pop(owner, None)
        if session is not None:
            session.end()

    def close_all(self) -> None:
        for owner in tuple(self._sessions):
            self.close(owner)

    def __len__(self) -> int:
        return len(self._sessions)

    def _loading(self) -> asyncio.Future[_Sdk]:
        if self._sdk is None:
            self._sdk = asyncio.get_running_loop().run_in_executor(None, _Sdk)
        return self._sdk


class _Sdk:
    """The SDK's names that are used here, imported when this is made: over a second of CPU, 60 MiB.

    What it brings stays for good, so the collector of garbage never looks at it: a look costs 50 to 80 ms (measured), during
    which the loop stands still (EN-25).
    """

    def __init__(self) -> None:
        gc.disable()
        try:
            self._load()
            gc.freeze()
        finally:
            gc.enable()

    def _load(self) -> None:
        import anyio
        import mcp_types
        from mcp.server.lowlevel import NotificationOptions, Server
        from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler
        from mcp.shared.message import SessionMessage

        self.anyio = anyio
        self.types = mcp_types
        self.server = Server
        self.options = NotificationOptions(tools_changed=True)
        self.message = SessionMessage
        self.bus = InMemorySubscriptionBus
        self.listen = ListenHandler


class _Session:
    def __init__(self, sdk: asyncio.Future[_Sdk], host: ToolHost, send: Callable[[bytes], None]) -> None:
        self._sdk = sdk
        self._host = host
        self._send = send
        self._lines: asyncio.Queue[bytes] = asyncio.Queue()
        self._waiting = 0
        self._ended = False
        self._task = asyncio.get_running_loop().create_task(self._run())

    def line(self, line: bytes) -> None:
        if self._ended:
            return
        self._waiting += len(line) + _LINE_BYTES
        if self._waiting > _INBOX_BYTES:
            log.warning("an MCP session has sent %d bytes that could not be served; it is ended", self._waiting)
            self.end()
        else:
            self._lines.put_nowait(line)

    def end(self) -> None:
        self._ended = True
        self._task.cancel()

    def _refuse(self, data: bytes) -> None:
        """Answers a request that the SDK can't read; garbage ends nothing, and is owed no answer."""
        identifier = _requested(data)
        if identifier is not None:
            error = {"code": -32600, "message": "Invalid Request"}
            self._send(json.dumps({"jsonrpc": "2.0", "id": identifier, "error": error}).encode())

    async def _run(self) -> None:
        try:
            await self._serve(await asyncio.shield(self._sdk))
        except asyncio.CancelledError:
            raise
        except Exception as error:  # whatever one session does, the others go on
            log.error("an MCP session ended by %s", type(error).__name__, exc_info=error)

    async def _serve(self, sdk: _Sdk) -> None:
        server = make_server(sdk, self._host)
        to_server, from_client = sdk.anyio.create_memory_object_stream[Any](_STREAM)
        to_client, from_server = sdk.anyio.create_memory_object_stream[Any](_STREAM)

        async def feed() -> None:
            async with to_server:
                while True:
                    line = await self._lines.get()
                    self._waiting -= len(line) + _LINE_BYTES
                    try:
                        message = _parse(sdk, line)
                    except packing.TooLong as error:  # no thin process of ours sends it, so nobody here knows its id
                        log.warning("an MCP session sent %s; it was not read", error)
                        self._send(_NOT_READ)
                        continue
                    except (ValueError, RecursionError):
                        self._refuse(line)
                        continue
                    if isinstance(message, sdk.types.JSONRPCNotification) and message.method == "notifications/cancelled":
                        self._host.cancelled(_identity((message.params or {}).get("requestId")))
                    await to_server.send(sdk.message(message))

        async def drain() -> None:
            async for message in from_server:
                answer = message.message.model_dump(mode="json", by_alias=True, exclude_unset=True)
                self._send(await beside_the_loop(_characters(answer), _line, answer))

        async with sdk.anyio.create_task_group() as group:
            group.start_soon(feed)
            group.start_soon(drain)
            await server.run(from_client, to_client, server.create_initialization_options(sdk.options))
            group.cancel_scope.cancel()


def make_server(sdk: _Sdk, host: ToolHost) -> Server[Any]:
    """The SDK's server for one session."""
    types = sdk.types
    listed = [
        types.Tool(
            name=tool.name,
            title=tool.title,
            description=tool.description,
            input_schema=tool.input_schema(),
            annotations=types.ToolAnnotations(
                read_only_hint=tool.read_only, destructive_hint=False, idempotent_hint=tool.read_only, open_world_hint=False
            ),
        )
        for tool in surface.TOOLS
    ]

    async def list_tools(context: Any, parameters: Any) -> Any:
        del context, parameters
        return types.ListToolsResult(tools=listed)

    async def call_tool(context: Any, parameters: Any) -> Any:
        meta = {str(name): value for name, value in dict(context.meta or {}).items()}
        result, failed = await _call(host, parameters.name, parameters.arguments or {}, meta, context.request_id)
        result = _encodable(result)
        text = json.dumps(result, ensure_ascii=False)
        return types.CallToolResult(
            content=[types.TextContent(type="text", text=text)], structured_content=result, is_error=failed
        )

    return sdk.server(
        surface.NAME,
        version=VERSION,
        title="cross-agent",
        instructions=surface.INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_subscriptions_listen=sdk.listen(sdk.bus()),
    )


async def _call(
    host: ToolHost, name: str, arguments: dict[str, Any], meta: Mapping[str, Any], request_id: object
) -> tuple[dict[str, Any], bool]:
    """The one place where an error becomes what a client reads (MC-05)."""
    try:
        checked = surface.tool(name).arguments(arguments)
        return await host.call(name, checked, meta, _identity(request_id)), False
    except Fenced:
        # This broker ends now, and the call is owed no answer of its: the thin process makes it again at the next one.
        await asyncio.get_running_loop().create_future()
        raise
    except CrossAgentError as error:
        return error.as_result(), True
    except Exception as error:  # a fault of ours: its text may quote the message, so only its kind is told
        log.error("%s failed by %s", name, type(error).__name__, exc_info=error)
        return InternalError().as_result(), True


def _identity(request_id: object) -> str:
    """A JSON-RPC id as a name: 1 and "1" are different requests."""
    return f"{type(request_id).__name__}:{request_id}"


def _requested(data: bytes) -> str | int | None:
    """The id of a request that is none of JSON-RPC's, None when nobody waits for its answer."""
    try:
        message = json.loads(data.partition(b"\n")[0])
    except (ValueError, RecursionError):
        return None
    if not isinstance(message, dict) or not isinstance(message.get("method"), str):
        return None
    identifier = message.get("id")
    return identifier if isinstance(identifier, (str, int)) and not isinstance(identifier, bool) else None


def _parse(sdk: _Sdk, data: bytes) -> Any:
    """One message. Half a character, as an agent that cuts text may send it, is replaced; the SDK refuses it.

    Raises:
        TooLong: it must not be decoded in the loop.
        ValueError, RecursionError: it is no message.
    """
    line, text = packing.unpack(data)
    try:
        message = sdk.types.jsonrpc_message_adapter.validate_json(line)
    except ValueError:
        message = sdk.types.jsonrpc_message_adapter.validate_python(_encodable(json.loads(line)))
    if text is not None:
        arguments = (getattr(message, "params", None) or {}).get("arguments")
        if not isinstance(arguments, dict):
            raise ValueError("a text that belongs to no call")
        arguments["message"] = text
    return message


def _line(message: dict[str, Any]) -> bytes:
    return json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode()


def _characters(value: Any) -> int:
    """How long the texts in ``value`` are together: what writing it as JSON takes the time for."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, dict):
        return sum(map(_characters, value.values()))
    if isinstance(value, list):
        return sum(map(_characters, value))
    return 0


def _encodable(value: Any) -> Any:
    """``value`` without what UTF-8 can't hold: half characters, and the bytes of odd paths."""
    if isinstance(value, str):
        return value.encode(errors="replace").decode() if not value.isascii() else value
    if isinstance(value, dict):
        return {_encodable(key): _encodable(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_encodable(item) for item in value]
    return value
