"""A panel of Codex: the public Python SDK's client, every message of the app server kept.

Owns one SDK client and the process that it starts. The SDK answers server requests inside its reader; here they are kept aside
until a test answers them, so that nothing else has to wait.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeVar

from openai_codex.client import CodexClient, CodexConfig
from openai_codex.generated.v2_all import ThreadResumeResponse, ThreadStartResponse, TurnStartResponse

from .launcher import write_launcher
from .record import WAIT, Received, Record

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path
    from types import TracebackType

    from typing_extensions import Self

    from tests.real.homes import CodexHome

T = TypeVar("T")
Json = dict[str, Any]

ELICITATION: Final = "mcpServer/elicitation/request"
"""The approval of an MCP tool call comes as this request and wants another answer than the approvals of commands."""

REAL: Final = "CROSS_AGENT_REAL_CODEX"
CALLS: Final = 8
"""Requests that may be under way at once: more than a test ever has."""


@dataclass(frozen=True, slots=True)
class ApprovalRequest:
    """A request of the app server to the person in front of the panel."""

    id: int | str
    method: str
    thread_id: str
    turn_id: str
    params: Json = field(repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class CompletedTurn:
    """One turn as the panel saw it end."""

    id: str
    thread_id: str
    status: str
    user_texts: tuple[str, ...]
    client_ids: tuple[str | None, ...]
    text: str
    error: Json | None


class _Client(CodexClient):
    """The SDK's client with a record of what it reads."""

    def __init__(self, config: CodexConfig, messages: Record[Json], asked: Record[ApprovalRequest]) -> None:
        super().__init__(config)
        self._messages = messages
        self._asked = asked

    @property
    def pid(self) -> int:
        if self._proc is None:
            raise RuntimeError("the panel is closed")
        return self._proc.pid

    def answer(self, request: int | str, result: Json) -> None:
        self._write_message({"id": request, "result": result})

    def raw_request(self, method: str, params: Json | None) -> Any:
        return self._request_raw(method, params)

    def stderr(self) -> list[str]:
        return list(self._stderr_lines)

    def _read_message(self) -> Json:
        while True:
            try:
                message: Json = super()._read_message()
            except BaseException as error:
                self._messages.end(str(error))
                self._asked.end(str(error))
                raise
            self._messages.add(message)
            if "method" not in message or "id" not in message:
                return message
            params = message.get("params") or {}
            identity = (params.get("threadId", ""), params.get("turnId") or "")
            self._asked.add(ApprovalRequest(message["id"], message["method"], *identity, params))


class CodexPanel:
    """One open panel, which may show several threads; a context manager.

    ``messages`` holds every message from the app server: answers, notifications and server requests.
    """

    def __init__(
        self,
        wrapper: Path,
        real: Path,
        home: CodexHome,
        *,
        config_overrides: Sequence[str] = (),
        client_name: str | None = None,
        experimental: bool = True,
        extra_env: dict[str, str] | None = None,
    ) -> None:
        """Start the app server and initialize it.

        Args:
            wrapper: what the editor's setting names as the executable.
            real: the real executable, handed over in the environment.
            home: where the agent lives.
            config_overrides: ``key=value`` pairs that the client passes with ``--config``.
            client_name: ``clientInfo.name``, by default the SDK's own.
            experimental: whether the client declares the experimental API.
            extra_env: environment over the home's.
        """
        self.home = home
        self.messages: Record[Json] = Record("messages of the panel")
        self._asked: Record[ApprovalRequest] = Record("approval requests of the panel")
        self._answered: set[int | str] = set()
        environment = {**home.environment(), REAL: str(real), **(extra_env or {})}
        launcher = write_launcher(home.path, [str(wrapper)], environment)
        config = CodexConfig(
            codex_bin=str(launcher),
            config_overrides=tuple(config_overrides),
            cwd=str(home.cwd),
            env=environment,
            experimental_api=experimental,
        )
        if client_name is not None:
            config.client_name = client_name
        self._client = _Client(config, self.messages, self._asked)
        self._calls = ThreadPoolExecutor(CALLS, thread_name_prefix="codex-panel")
        self._closed = False
        self._client.start()
        self.shim_pid = self._client.pid
        try:
            self.user_agent = self._call(lambda: self._client.initialize().userAgent or "")
        except BaseException:
            self.close()
            raise

    # What the person does

    def start_thread(self, **params: Any) -> str:
        """Open a new thread; its id."""
        return self._call(lambda: self._client.request("thread/start", params, response_model=ThreadStartResponse).thread.id)

    def resume_thread(self, thread_id: str, **params: Any) -> str:
        """Open a stored thread; its id."""
        payload = {"threadId": thread_id, **params}
        return self._call(lambda: self._client.request("thread/resume", payload, response_model=ThreadResumeResponse).thread.id)

    def say(self, thread_id: str, text: str, *, client_id: str | None = None) -> str:
        """Type ``text``; the turn id that the app server names, without waiting for the turn."""
        payload: Json = {"threadId": thread_id, "input": [{"type": "text", "text": text}]}
        if client_id is not None:
            payload["clientUserMessageId"] = client_id
        return self._call(lambda: self._client.request("turn/start", payload, response_model=TurnStartResponse).turn.id)

    def interrupt(self, thread_id: str) -> None:
        """Stop the running turn of the thread."""
        self.call("turn/interrupt", {"threadId": thread_id, "turnId": self.running_turn(thread_id)})

    def answer_approval(self, decision: Any = "accept", request: ApprovalRequest | None = None) -> None:
        """Answer ``request``, by default the oldest that is open: ``accept``, ``decline``, ``cancel`` …"""
        chosen = request or self.wait_approval()
        self._answered.add(chosen.id)
        if chosen.method == ELICITATION:
            self._client.answer(chosen.id, {"action": decision, "content": {}, "_meta": None})
        else:
            self._client.answer(chosen.id, {"decision": decision})

    def call(self, method: str, params: Json | None = None, timeout: float = WAIT) -> Any:
        """Any other request; its result as it came."""
        return self._call(lambda: self._client.raw_request(method, params), timeout)

    def close(self) -> None:
        """Close the panel as the SDK does: end of input and SIGTERM together, SIGKILL two seconds later."""
        if self._closed:
            return
        self._closed = True
        self._client.close()
        self.messages.end("the panel was closed")
        self._asked.end("the panel was closed")
        self._calls.shutdown(wait=True, cancel_futures=True)

    # What the person sees

    def wait(self, predicate: Callable[[Json], bool], timeout: float = WAIT, *, after: int = 0) -> Json:
        """The first message at position ``after`` or later that satisfies ``predicate``."""
        return self.messages.wait(predicate, timeout, after=after)

    def wait_notification(self, method: str, thread_id: str | None = None, timeout: float = WAIT, *, after: int = 0) -> Json:
        """The params of the first notification of that method, of that thread if one is named."""

        def wanted(message: Json) -> bool:
            if message.get("method") != method or "id" in message:
                return False
            return thread_id is None or message["params"].get("threadId") == thread_id

        params: Json = self.messages.wait(wanted, timeout, after=after)["params"]
        return params

    def wait_turn(
        self,
        thread_id: str,
        predicate: Callable[[CompletedTurn], bool] = lambda turn: True,  # noqa: ARG005
        timeout: float = WAIT,
        *,
        after: int = 0,
    ) -> CompletedTurn:
        """The first completed turn of the thread, from position ``after`` of ``messages`` on, that satisfies ``predicate``."""

        def wanted(message: Json) -> bool:
            return _ends_turn(message, thread_id) and predicate(self._turn(message))

        return self._turn(self.messages.wait(wanted, timeout, after=after))

    def turns(self, thread_id: str) -> list[CompletedTurn]:
        """Every turn of the thread that this panel saw end, in order."""
        return [self._turn(message) for message in self.messages.messages() if _ends_turn(message, thread_id)]

    def running_turn(self, thread_id: str) -> str:
        """The id of the turn that was started and has not ended.

        Raises:
            LookupError: none is running.
        """
        running = ""
        for message in self.messages.messages():
            params = message.get("params") or {}
            if message.get("method") in ("turn/started", "turn/completed") and params.get("threadId") == thread_id:
                running = params["turn"]["id"] if message["method"] == "turn/started" else ""
        if not running:
            raise LookupError(f"no turn is running in thread {thread_id}")
        return running

    def wait_approval(self, timeout: float = WAIT) -> ApprovalRequest:
        """The oldest server request that is not answered yet."""
        return self._asked.wait(lambda request: request.id not in self._answered, timeout)

    def approvals(self) -> list[Received[ApprovalRequest]]:
        """Every server request so far, answered or not."""
        return self._asked.snapshot()

    def stderr(self) -> list[str]:
        """The newest lines of the agent's standard error."""
        return self._client.stderr()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    # Inside

    def _call(self, work: Callable[[], T], timeout: float = WAIT) -> T:
        # The SDK waits for an answer without a bound; a worker thread gives it one and is released by ``close``.
        return self._calls.submit(work).result(timeout)

    def _turn(self, end: Json) -> CompletedTurn:
        turn = end["params"]["turn"]
        items = [
            message["params"]["item"]
            for message in self.messages.messages()
            if message.get("method") == "item/completed" and message["params"].get("turnId") == turn["id"]
        ]
        said = [item for item in items if item["type"] == "userMessage"]
        final = [item for item in turn["items"] if item["type"] == "agentMessage"]
        # A turn whose messages are all commentary ends without items: the last one is what the person read.
        spoken = final or [item for item in items if item["type"] == "agentMessage"]
        return CompletedTurn(
            id=turn["id"],
            thread_id=end["params"]["threadId"],
            status=turn["status"],
            user_texts=tuple("".join(part.get("text", "") for part in item["content"]) for item in said),
            client_ids=tuple(item.get("clientId") for item in said),
            text=spoken[-1]["text"] if spoken else "",
            error=turn.get("error"),
        )


def _ends_turn(message: Json, thread_id: str) -> bool:
    return message.get("method") == "turn/completed" and message["params"].get("threadId") == thread_id
