"""A panel of Grok Build: the public Python SDK of the Agent Client Protocol as the client, every message of the agent kept.

Owns one event loop in one thread, one SDK client in it, and the process that the client starts. Permission requests are kept
aside until a test answers them, so that nothing else has to wait.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, cast

from acp import PROTOCOL_VERSION, RequestError, text_block
from acp._transport import NdjsonTransport
from acp.client.connection import ClientSideConnection
from acp.schema import AllowedOutcome, ClientCapabilities, DeniedOutcome, Implementation, RequestPermissionResponse
from acp.task import MessageSender, TaskSupervisor
from acp.transports import spawn_stdio_transport

from .grok_turns import GrokTurn, Json, ends_turn, turns_of
from .launcher import write_launcher
from .loop import LoopThread
from .record import WAIT, Received, Record

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence
    from pathlib import Path
    from types import TracebackType

    from acp import Client
    from acp.schema import PermissionOption, ToolCallUpdate
    from typing_extensions import Self

    from tests.real.homes import GrokHome

Decision = Literal["allow_once", "allow_always", "reject_once", "reject_always", "cancelled"]

REAL: Final = "CROSS_AGENT_REAL_GROK"
ECHO: Final = "x.ai/userMessageEcho"
MCP_CALL: Final = "use_tool"
MCP_READY: Final = "_x.ai/mcp_initialized"

PATIENCE: Final = 2.0
"""Seconds that the SDK waits for the end after end of input, before it sends SIGTERM; Grok takes up to 4."""

CLOSE: Final = 25.0
"""Bound of the end: three times the patience, and a loaded machine."""

LINE: Final = 64 << 20
"""Bytes of one line that the client takes; a replay holds whole conversations."""


@dataclass(frozen=True, slots=True)
class GrokPermission:
    """A tool call that waits for the person in front of the panel. ``options`` are its answers: kind to id."""

    number: int
    session_id: str
    tool: str
    title: str
    options: dict[str, str]
    answer: asyncio.Future[Decision] = field(repr=False, compare=False)


class _Wire(NdjsonTransport):
    """The SDK's own framing, with a record of what it moves in either direction."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, received: Record[Json], sent: Record[Json]
    ) -> None:
        super().__init__(reader, MessageSender(writer, TaskSupervisor(source="panel")))
        self._received = received
        self._sent = sent
        self.ended = asyncio.Event()

    async def send(self, message: Json) -> None:
        self._sent.add(message)
        await super().send(message)

    async def receive(self) -> Json | None:
        message = await super().receive()
        if message is None:
            self.ended.set()
        else:
            self._received.add(message)
        return message


class _Person:
    """What the agent asks of its client. Files and terminals it keeps to itself, as the client declares neither."""

    def __init__(self, asked: Record[GrokPermission]) -> None:
        self._asked = asked

    async def request_permission(
        self, session_id: str, tool_call: ToolCallUpdate, options: list[PermissionOption], **_: Any
    ) -> RequestPermissionResponse:
        kinds: dict[str, str] = {option.kind: option.option_id for option in options}
        title = tool_call.title or ""
        tool = str((tool_call.field_meta or {}).get("x.ai/tool", {}).get("name", ""))
        answer: asyncio.Future[Decision] = asyncio.get_running_loop().create_future()
        name = title if tool == MCP_CALL else tool
        self._asked.add(GrokPermission(len(self._asked), session_id, name, title, kinds, answer))
        decision = await answer
        if decision == "cancelled":
            return RequestPermissionResponse(outcome=DeniedOutcome(outcome="cancelled"))
        return RequestPermissionResponse(outcome=AllowedOutcome(outcome="selected", option_id=kinds[decision]))

    async def session_update(self, **_: Any) -> None:
        """Kept as it came, by the wire."""

    async def ext_method(self, method: str, _: Json) -> Json:
        raise RequestError.method_not_found(method)

    async def ext_notification(self, _: str, __: Json) -> None:
        """Kept as it came, by the wire."""


class GrokPanel:
    """One open panel, which may show several sessions; a context manager.

    ``messages`` holds every message from the agent: answers, notifications and requests. ``sent`` holds what the client said.
    """

    def __init__(
        self,
        wrapper: Path,
        real: Path,
        home: GrokHome,
        *,
        arguments: Sequence[str] = (),
        client_name: str | None = None,
        echo: bool = False,
        extra_env: dict[str, str] | None = None,
        patience: float = PATIENCE,
    ) -> None:
        """Start the agent and initialize it.

        Args:
            wrapper: what the editor's setting names as the executable.
            real: the real executable, handed over in the environment.
            home: where the agent lives.
            arguments: words between ``agent`` and ``stdio``.
            client_name: ``clientInfo.name``; None sends no ``clientInfo``, as the editor's extension does.
            echo: whether the client asks for its prompts back, as the editor's extension does not.
            extra_env: environment over the home's.
            patience: seconds between end of input and SIGTERM when the panel is closed.
        """
        self.home = home
        self.messages: Record[Json] = Record("messages of the panel")
        self.sent: Record[Json] = Record("messages to the agent")
        self.stderr: list[str] = []
        self.exit_status: int | None = None
        self._asked: Record[GrokPermission] = Record("permission requests of the panel")
        self._answered: set[int] = set()
        self._stack = AsyncExitStack()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._closed = False
        environment = {**home.environment(), REAL: str(real), **(extra_env or {})}
        launcher = write_launcher(home.path, [str(wrapper)], environment)
        self._loop = LoopThread("grok-panel")
        try:
            self._loop.call(self._start([str(launcher), "agent", *arguments, "stdio"], environment, patience))
            capabilities = ClientCapabilities(field_meta={ECHO: True} if echo else None)
            info = None if client_name is None else Implementation(name=client_name, version="1")
            self._loop.call(self._connection.initialize(PROTOCOL_VERSION, capabilities, info))
        except BaseException:
            self.close()
            raise
        self.initialized: Json = self.messages.wait(lambda message: "result" in message)["result"]

    # What the person does

    def start_session(self, **meta: Any) -> str:
        """Open a new session; its id. Returns when its MCP servers are there, if the home wants them."""
        before = len(self.messages)
        session: str = self._loop.call(self._connection.new_session(str(self.home.cwd), mcp_servers=[], **meta)).session_id
        self._wait_for_mcp(session, before)
        return session

    def load_session(self, session_id: str, cwd: str | None = None) -> str:
        """Open a stored session and have its conversation shown; its id."""
        before = len(self.messages)
        self._loop.call(self._connection.load_session(cwd or str(self.home.cwd), session_id, mcp_servers=[]))
        self._wait_for_mcp(session_id, before)
        return session_id

    def resume_session(self, session_id: str, cwd: str | None = None) -> str:
        """Open a stored session without a replay; its id."""
        before = len(self.messages)
        self._loop.call(self._connection.resume_session(session_id, cwd or str(self.home.cwd), mcp_servers=[]))
        self._wait_for_mcp(session_id, before)
        return session_id

    def close_session(self, session_id: str) -> None:
        self._loop.call(self._connection.close_session(session_id))

    def say(self, session_id: str, text: str, **meta: Any) -> None:
        """Type ``text``; does not wait for an answer. ``meta`` becomes the prompt's ``_meta``."""
        prompt = self._connection.prompt(session_id, [text_block(text)], **meta)
        self._loop.soon(lambda: self._keep(prompt))

    def interrupt(self, session_id: str) -> None:
        """Press stop; what waits for an approval is withdrawn, as the protocol wants it of a client."""
        self._loop.call(self._connection.cancel(session_id))
        for received in self.permissions():
            if received.message.session_id == session_id:
                self._settle(received.message, "cancelled")

    def answer_permission(self, decision: Decision = "allow_once", request: GrokPermission | None = None) -> None:
        """Answer ``request``, by default the oldest that is open."""
        self._settle(request or self.wait_permission(), decision)

    def call(self, method: str, params: Json) -> Any:
        """One of the agent's extension requests, as ``x.ai/sessions/list``."""
        return self._loop.call(self._connection.ext_method(method, params))

    def notify(self, method: str, params: Json) -> None:
        """One of the agent's extension notifications, as ``x.ai/queue/remove``."""
        self._loop.call(self._connection.ext_notification(method, params))

    def close(self) -> None:
        """Close the panel as the SDK does: end of input, then time to finish, then signals."""
        if self._closed:
            return
        self._closed = True
        try:
            self._loop.call(self._stop(), CLOSE)
        finally:
            self._loop.stop(CLOSE)
            self._end("the panel was closed")

    # What the person sees

    def wait(self, predicate: Callable[[Json], bool], timeout: float = WAIT, *, after: int = 0) -> Json:
        """The first message at position ``after`` or later that satisfies ``predicate``."""
        return self.messages.wait(predicate, timeout, after=after)

    def wait_notification(self, method: str, session_id: str, timeout: float = WAIT, *, after: int = 0) -> Json:
        """The params of the first notification of that method and session."""

        def wanted(message: Json) -> bool:
            return message.get("method") == method and message["params"].get("sessionId") == session_id

        params: Json = self.messages.wait(wanted, timeout, after=after)["params"]
        return params

    def wait_update(self, kind: str, session_id: str, timeout: float = WAIT, *, after: int = 0) -> Json:
        """The first ``session/update`` of that kind and session."""

        def wanted(message: Json) -> bool:
            params = message.get("params") or {}
            return (
                message.get("method") == "session/update"
                and params["sessionId"] == session_id
                and params["update"]["sessionUpdate"] == kind
            )

        update: Json = self.messages.wait(wanted, timeout, after=after)["params"]["update"]
        return update

    def wait_turn(
        self,
        session_id: str,
        predicate: Callable[[GrokTurn], bool] = lambda turn: True,  # noqa: ARG005
        timeout: float = WAIT,
    ) -> GrokTurn:
        """The first turn of the session that ended and satisfies ``predicate``."""

        def wanted(message: Json) -> bool:
            return ends_turn(message, session_id) and any(map(predicate, self.turns(session_id)))

        self.messages.wait(wanted, timeout)
        return next(turn for turn in self.turns(session_id) if predicate(turn))

    def turns(self, session_id: str) -> list[GrokTurn]:
        """Every turn of the session that this panel saw end, in order."""
        return turns_of(self.messages.messages(), session_id)

    def wait_permission(self, timeout: float = WAIT) -> GrokPermission:
        """The oldest permission request that is not answered yet."""
        return self._asked.wait(lambda request: request.number not in self._answered, timeout)

    def permissions(self) -> list[Received[GrokPermission]]:
        """Every permission request so far, answered or not."""
        return self._asked.snapshot()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    # Inside

    def _wait_for_mcp(self, session_id: str, after: int) -> None:
        if self.home.mcp_required:
            self.wait_notification(MCP_READY, session_id, after=after)

    def _settle(self, request: GrokPermission, decision: Decision) -> None:
        self._answered.add(request.number)
        self._loop.soon(_answer, request.answer, decision)

    def _keep(self, prompt: Coroutine[Any, Any, Any]) -> None:
        """Begin a prompt; how it ends, also with an error, is among the messages."""
        task = asyncio.create_task(prompt)
        self._tasks.add(task)
        task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
        task.add_done_callback(self._tasks.discard)

    def _end(self, why: str) -> None:
        for record in (self.messages, self.sent, self._asked):
            record.end(why)

    async def _start(self, command: list[str], environment: dict[str, str], patience: float) -> None:
        transport = spawn_stdio_transport(*command, env=environment, cwd=self.home.cwd, limit=LINE, shutdown_timeout=patience)
        reader, writer, self._process = await self._stack.enter_async_context(transport)
        self.shim_pid = self._process.pid
        self._wire = _Wire(reader, writer, self.messages, self.sent)
        # The agent is offered no files and no terminals, so it asks only for what this person answers.
        self._connection = ClientSideConnection(cast("Client", _Person(self._asked)), self._wire)
        self._watching = [asyncio.create_task(work) for work in (self._watch(), self._read_stderr())]

    async def _watch(self) -> None:
        await self._wire.ended.wait()
        self._end("the agent ended its output")

    async def _read_stderr(self) -> None:
        assert self._process.stderr is not None
        async for line in self._process.stderr:
            self.stderr.append(line.decode(errors="replace").rstrip("\n"))

    async def _stop(self) -> None:
        await self._stack.aclose()
        if hasattr(self, "_connection"):
            await asyncio.gather(*self._watching)
            await self._connection.close()
            self.exit_status = self._process.returncode


def _answer(answer: asyncio.Future[Decision], decision: Decision) -> None:
    if not answer.done():
        answer.set_result(decision)
