"""A panel of Claude Code: the public Python SDK as the client, everything it receives kept.

Owns one event loop in one thread, one SDK client in it, and the process that the client starts. One task reads for the whole
life of the panel, as the editor's extension does, so a turn that nobody asked for is seen like any other.
"""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from claude_agent_sdk import (
    AssistantMessage,
    ClaudeAgentOptions,
    ClaudeSDKClient,
    PermissionResultAllow,
    PermissionResultDeny,
    ResultMessage,
    TextBlock,
    UserMessage,
)
from claude_agent_sdk._internal.transport.subprocess_cli import SubprocessCLITransport

from .launcher import write_launcher
from .loop import LoopThread
from .record import WAIT, Received, Record

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence
    from pathlib import Path
    from types import TracebackType

    from claude_agent_sdk import Message, ToolPermissionContext
    from typing_extensions import Self

    from tests.real.homes import ClaudeHome

Frame = dict[str, Any]

START: Final = 60.0
"""Bound of the start: the client's own limit for the initialize answer."""

CLOSE: Final = 25.0
"""Bound of the end: the client waits 5 s after end of input, 5 s after SIGTERM, 5 s after SIGKILL."""

CLIENT_NAMES: Final = ("CLAUDE_CODE_ENTRYPOINT", "CLAUDE_AGENT_SDK_VERSION", "CLAUDE_CODE_SDK_READS_SESSION_STATE", "PWD")
"""What SDK 0.2.189 sets in the agent's environment by itself."""


@dataclass(frozen=True, slots=True)
class PermissionRequest:
    """A tool call that waits for the person in front of the panel."""

    number: int
    tool: str
    input: dict[str, Any]
    tool_use_id: str | None
    at: float
    answer: asyncio.Future[bool] = field(repr=False, compare=False)


class _Transport(SubprocessCLITransport):
    """The SDK's own transport, with a record of the raw frames: the SDK hides those that it does not know."""

    def __init__(self, options: ClaudeAgentOptions, frames: Record[Frame]) -> None:
        super().__init__(prompt=_nothing(), options=options)
        self._frames = frames

    @property
    def pid(self) -> int:
        if self._process is None:
            raise RuntimeError("the panel is closed")
        return self._process.pid

    async def read_messages(self) -> AsyncIterator[Frame]:
        async for frame in super().read_messages():
            self._frames.add(frame)
            yield frame


class ClaudePanel:
    """One open panel; a context manager.

    ``messages`` holds every message of the SDK, ``frames`` every raw frame (also control frames and those the SDK hides).
    """

    def __init__(
        self,
        wrapper: Path,
        real: Path,
        home: ClaudeHome,
        *,
        resume: str | None = None,
        extra_args: Sequence[str] = (),
        replays: bool = True,
        on_permission: Callable[[PermissionRequest], bool | None] | None = None,
    ) -> None:
        """Start the agent and wait for its initialize answer.

        Args:
            wrapper: what the editor's setting names as process wrapper.
            real: the real executable, the wrapper's first argument.
            home: where the agent lives.
            resume: session id to resume.
            extra_args: words put after the client's own arguments.
            replays: whether the client asks for the echo of user messages, as the editor's extension does and the SDK does not.
            on_permission: answers a permission request at once, or returns None to leave it to ``answer_permission``.
        """
        self.home = home
        self.messages: Record[Message] = Record("messages of the panel")
        self.frames: Record[Frame] = Record("frames of the panel")
        self.stderr: list[str] = []
        self._asked: Record[PermissionRequest] = Record("permission requests of the panel")
        self._answered: set[int] = set()
        self._on_permission = on_permission
        environment = home.environment()
        launcher = write_launcher(home.path, [str(wrapper), str(real)], environment, client_names=CLIENT_NAMES, extra=extra_args)
        options = ClaudeAgentOptions(
            cli_path=launcher,
            cwd=home.cwd,
            env=environment,
            resume=resume,
            can_use_tool=self._may_use,
            include_partial_messages=True,
            setting_sources=["user", "project", "local"],
            extra_args={"replay-user-messages": None} if replays else {},
            stderr=self.stderr.append,
        )
        # As the SDK itself sets it up when it is given a can_use_tool callback.
        prompting = replace(options, can_use_tool=None, permission_prompt_tool_name="stdio")
        self._transport = _Transport(prompting, self.frames)
        self._client = ClaudeSDKClient(options, transport=self._transport)
        self._loop = LoopThread("claude-panel")
        self._reader: asyncio.Task[None] | None = None
        self._closed = False
        try:
            self._loop.call(self._start(), START)
            self.shim_pid = self._transport.pid
        except BaseException:
            self.close()
            raise

    # What the person does

    def say(self, text: str, *, uuid: str | None = None) -> None:
        """Type ``text``; does not wait for an answer."""
        if uuid is None:
            self._loop.call(self._client.query(text))
        else:
            self._loop.call(self._client.query(_one_line(text, uuid)))

    def interrupt(self) -> None:
        """Press stop."""
        self._loop.call(self._client.interrupt())

    def rename(self, title: str) -> None:
        """Give the session a name, as an editor does in its list; the SDK has no call for it."""
        assert self._client._query is not None
        self._loop.call(self._client._query._send_control_request({"subtype": "rename_session", "title": title}))

    def answer_permission(self, allow: bool, request: PermissionRequest | None = None) -> None:
        """Answer ``request``, by default the oldest that is open."""
        chosen = request or self.wait_permission()
        self._answered.add(chosen.number)
        self._loop.soon(_settle, chosen.answer, allow)

    def end_input(self) -> None:
        """The window is reloaded: end of input, and no signal yet."""
        self._loop.call(self._transport.end_input())

    def close(self) -> None:
        """Close the panel as an editor does: end of input, then time to finish, then signals."""
        if self._closed:
            return
        self._closed = True
        try:
            self._loop.call(self._stop(), CLOSE)
        finally:
            self._loop.stop(CLOSE)
            self.messages.end("the panel was closed")
            self.frames.end("the panel was closed")
            self._asked.end("the panel was closed")

    # What the person sees

    def wait(self, predicate: Callable[[Message], bool], timeout: float = WAIT, *, after: int = 0) -> Message:
        """The first message at position ``after`` or later that satisfies ``predicate``."""
        return self.messages.wait(predicate, timeout, after=after)

    def wait_result(
        self, which: int | Callable[[ResultMessage], bool] = 1, timeout: float = WAIT, *, after: int = 0
    ) -> ResultMessage:
        """The ``which``-th result from position ``after`` on (counted from 1), or the first that satisfies ``which``."""
        seen = 0

        def wanted(message: Message) -> bool:
            nonlocal seen
            if not isinstance(message, ResultMessage):
                return False
            seen += 1
            return seen == which if isinstance(which, int) else which(message)

        found = self.messages.wait(wanted, timeout, after=after)
        assert isinstance(found, ResultMessage)
        return found

    def wait_permission(self, timeout: float = WAIT) -> PermissionRequest:
        """The oldest permission request that is neither answered nor withdrawn."""
        return self._asked.wait(lambda request: request.number not in self._answered and not request.answer.done(), timeout)

    def permissions(self) -> list[Received[PermissionRequest]]:
        """Every permission request so far, answered or not."""
        return self._asked.snapshot()

    def results(self) -> list[str]:
        """The text of every result, in order; empty for a result without one."""
        return [message.result or "" for message in self.messages.messages() if isinstance(message, ResultMessage)]

    def texts(self) -> list[str]:
        """Every finished text of the agent, in order."""
        return [
            block.text
            for message in self.messages.messages()
            if isinstance(message, AssistantMessage)
            for block in message.content
            if isinstance(block, TextBlock)
        ]

    def user_texts(self) -> list[str]:
        """What the agent took in as user messages, typed here or not, in order (replayed lines)."""
        return [
            text for message in self.messages.messages() if isinstance(message, UserMessage) for text in _spoken(message.content)
        ]

    @property
    def agent_pid(self) -> int:
        """The pid of the real agent, from its initialize answer."""
        return int(self.initialized["pid"])

    @property
    def initialized(self) -> Frame:
        """The agent's initialize answer."""
        answer: Frame | None = self._loop.call(self._client.get_server_info())
        return answer or {}

    @property
    def session_id(self) -> str:
        """The current session id: of the newest frame, before any of the live registry."""
        for frame in reversed(self.frames.messages()):
            if frame.get("session_id"):
                return str(frame["session_id"])
        entry = json.loads((self.home.config / "sessions" / f"{self.agent_pid}.json").read_text(encoding="utf-8"))
        return str(entry["sessionId"])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    # Inside the loop

    async def _start(self) -> None:
        await self._client.connect()
        self._reader = asyncio.create_task(self._read())

    async def _read(self) -> None:
        why = "the agent ended its output"
        try:
            async for message in self._client.receive_messages():
                self.messages.add(message)
        except Exception as error:
            # Kept as the reason that every waiter is told; the agent's exit is an error to the SDK.
            why = repr(error)
        finally:
            self.messages.end(why)
            self.frames.end(why)
            self._asked.end(why)

    async def _stop(self) -> None:
        await self._client.disconnect()
        if self._reader is not None:
            await self._reader

    async def _may_use(
        self, tool: str, given: dict[str, Any], context: ToolPermissionContext
    ) -> PermissionResultAllow | PermissionResultDeny:
        number, answer = len(self._asked), asyncio.get_running_loop().create_future()
        request = PermissionRequest(number, tool, given, context.tool_use_id, time.monotonic(), answer)
        decision = None if self._on_permission is None else self._on_permission(request)
        if decision is not None:
            request.answer.set_result(decision)
        self._asked.add(request)
        if await request.answer:
            return PermissionResultAllow(updated_input=given)
        return PermissionResultDeny(message="the person said no")


def _settle(answer: asyncio.Future[bool], allow: bool) -> None:
    if not answer.done():
        answer.set_result(allow)


def _spoken(content: str | list[Any]) -> list[str]:
    if isinstance(content, str):
        return [content]
    return [block.text for block in content if isinstance(block, TextBlock)]


async def _nothing() -> AsyncIterator[Frame]:
    return
    yield {}  # type: ignore[unreachable]


async def _one_line(text: str, uuid: str) -> AsyncIterator[Frame]:
    yield {
        "type": "user",
        "message": {"role": "user", "content": text},
        "parent_tool_use_id": None,
        "uuid": uuid,
    }
