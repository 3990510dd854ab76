"""The MCP process's connection to the broker: loaded in a thread while the handshake is answered already.

Owns what is handed over to the broker about this process (EN-11, MC-01): values that hold no secret, and of secrets the
names alone. Who is calling is decided in the broker.
"""

from __future__ import annotations

import _thread
import os
import time
from collections import deque
from typing import TYPE_CHECKING, Any

from broker import VERSION
from broker.baseline import (
    AUTH_NAMES,
    CHILD_ENV,
    IDENTITY_NAMES,
    carries_credentials,
    is_baseline,
    is_proxy,
    is_setting,
    listed_names,
)
from broker.client import Client
from broker.errors import CrossAgentError
from broker.paths import find_home
from broker.wire import Failure, McpLine, McpOpen, McpPost, McpPosted, McpReady, Message

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mcp_server.process import Process


_POST_PATIENCE = 3.0


class BrokerConnection:
    """Keeps a thin session served, by whichever broker lives."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._instance = f"mcp_{os.urandom(8).hex()}"
        self._lines: deque[bytes] = deque()
        self._posted: deque[McpPosted] = deque()
        self._ready = False
        self._had_broker = False
        self._cwd = _working_directory()
        self._umask = os.umask(0o077)
        os.umask(self._umask)
        self._client = Client(
            find_home(),
            hello=self._hello,
            received=self._received,
            woken=self._woken,
            autostart=os.environ.get("CROSS_AGENT_AUTOSTART", "").lower() not in ("0", "false", "no", "off"),
            note=lambda _: None,
        )

    def run(self) -> None:
        self._client.run()

    def send(self, lines: list[bytes], *, wanted: bool) -> None:
        """Lines for the broker that is there now; ``wanted``: somebody waits, so one may be started at once.

        Called from the main thread.
        """
        self._lines.extend(lines)
        if wanted and self._client.record is None:
            self._client.start_now()
        elif lines:
            self._client.wake()

    def trouble(self) -> dict[str, Any] | None:
        """Why no broker is there, as far as is known."""
        error = self._client.trouble
        return error.as_result() if error is not None else None

    def vanish(self) -> None:
        """The process ends at this moment; from any thread."""
        self._client.vanish()

    # in the thread of the client

    def _hello(self) -> McpOpen:
        self._ready = False
        self._had_broker = True
        environment = os.environ
        return McpOpen(
            instance=self._instance,
            version=VERSION,
            cwd=self._cwd,
            surface=self._process.surface,
            settings={name: value for name, value in environment.items() if is_setting(name)},
            environment=_told(environment),
            auth_names=tuple(name for name in AUTH_NAMES if environment.get(name)),
            umask=self._umask,
            posts=True,
        )

    def _received(self, message: Message) -> None:
        process = self._process
        if isinstance(message, McpReady):
            with process.lock:
                process.trouble = None  # of an earlier broker
                self._lines.clear()  # whatever was meant for an earlier one is said again as far as it is open
                lines = process.session.connected(time.monotonic())
                self._ready = True
            for line in lines:
                self._client.send(McpLine(line))
        elif isinstance(message, McpLine):
            with process.lock:
                passed = process.session.from_broker(message.line)
                all_answered = process.session.next_deadline() is None
            if passed is not None:
                process.write([passed])
                if all_answered:
                    process.answered()
        elif isinstance(message, McpPost):
            _thread.start_new_thread(self._post, (message,))
        elif isinstance(message, Failure):
            refused = CrossAgentError(
                message.message, code=message.code, next_step=message.next_step, retry_safe=message.retry_safe
            )
            process.give_up(refused.as_result(), for_good=not self._ready)

    def _woken(self) -> None:
        if self._client.record is None:
            with self._process.lock:
                self._process.trouble = None  # it was about a broker that is no more
                self._process.session.disconnected()
                self._ready = False
                waiting = self._process.session.next_deadline() is not None
            if self._had_broker and waiting:
                self._client.start_now()  # it died with a call of ours in its hands
            self._had_broker = False
            if self._client.trouble is not None:
                with self._process.lock:
                    answers = self._process.session.unavailable(self._client.trouble.as_result())
                self._process.write(answers)
            return
        if self._client.trouble is not None:  # the broker that is there can't be talked to
            self._process.give_up(self._client.trouble.as_result())
        while self._ready and self._lines:
            self._client.send(McpLine(self._lines.popleft()))
        while self._ready and self._posted:
            self._client.send(self._posted.popleft())

    # in a thread of its own

    def _post(self, order: McpPost) -> None:
        """Writes to a socket of the agent's, which takes from its own child what it holds back from strangers (LD-08)."""
        import socket  # costs memory that most of these processes never need

        carried = False
        try:
            with socket.socket(socket.AF_UNIX) as made:
                made.settimeout(_POST_PATIENCE)
                made.connect(order.socket)
                carried = True
                made.sendall(order.data)
        except OSError:
            pass  # the broker looks into the agent's records for what came of it
        self._posted.append(McpPosted(order.number, carried))
        self._client.wake()


def _working_directory() -> str:
    """Where the agent works, kept from the start on: the directory may be removed meanwhile, as worktrees are."""
    try:
        return os.getcwd()
    except FileNotFoundError:
        return os.environ.get("PWD") or "/"


def _told(environment: Mapping[str, str]) -> dict[str, str]:
    """What the broker is told of this process's environment: names and values that may leave it (EN-11)."""
    named = {*IDENTITY_NAMES, *listed_names(environment.get(CHILD_ENV, ""))}
    return {
        name: value
        for name, value in environment.items()
        if is_baseline(name) or name in named or (is_proxy(name) and not carries_credentials(value))
    }
