"""Messages and requests of ours on their way through one Codex app-server. No I/O.

Owns what is outstanding: each message between its first byte and the end of its turn (`Injection`), and each request of
ours until its answer. What the answers mean is `stream`'s.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from broker.wire import Inject
from shims.jsonrpc import OurRequest, OurRequests
from shims.stream import Finished, Progress, Rejected, Taken, Write


class Injection:
    """A message of ours between its first byte and the end of its turn."""

    __slots__ = ("order", "queue_id", "queued", "started_idle", "taken", "thread", "turn", "unwanted")

    def __init__(self, order: Inject) -> None:
        self.order = order
        self.thread = order.session
        self.queued = False
        """Handed to the agent's queue, and not started by us."""
        self.queue_id = ""
        self.started_idle = False
        self.taken = False
        self.turn = ""
        self.unwanted = False
        """To be taken back as soon as its place in the queue is known."""

    @property
    def attempt(self) -> str:
        return self.order.attempt

    @property
    def token(self) -> str:
        return self.order.token


class Injections:
    """Everything of ours that is outstanding; `progress` and `writes` are emptied by the panel."""

    def __init__(self) -> None:
        self.progress: list[Progress] = []
        self.writes: list[Write] = []
        self._open: dict[str, Injection] = {}
        self.requests = OurRequests({})

    # messages

    def begin(self, order: Inject) -> Injection:
        injection = self._open[order.attempt] = Injection(order)
        return injection

    def get(self, attempt: str) -> Injection | None:
        return self._open.get(attempt)

    def at(self, thread: str) -> Iterator[Injection]:
        """Those of one thread."""
        return iter([injection for injection in self._open.values() if injection.thread == thread])

    def by_key(self, key: str) -> Injection | None:
        return next((injection for injection in self._open.values() if injection.order.key == key), None)

    def taken(self, injection: Injection) -> None:
        if not injection.taken:
            injection.taken = True
            self.progress.append(Taken(injection.attempt, injection.thread, injection.turn))

    def finished(self, injection: Injection, status: str, text: str | None, turn: str) -> None:
        self.taken(injection)
        del self._open[injection.attempt]
        self.progress.append(Finished(injection.attempt, status, text, turn))

    def rejected(self, injection: Injection, code: str) -> None:
        del self._open[injection.attempt]
        self.progress.append(Rejected(injection.attempt, code))

    def dropped(self, attempt: str) -> None:
        """Its line was not written: there is no message, and no answer to wait for."""
        self.forgotten(attempt)
        self.requests.drop(attempt)

    def forgotten(self, attempt: str) -> None:
        """Nobody waits for its end here any more; answers to what was asked for it still come."""
        self._open.pop(attempt, None)

    # requests

    def request(
        self, method: str, parameters: dict[str, Any], *, attempt: str = "", thread: str = "", message: bool = False
    ) -> None:
        line = self.requests.line(method, parameters, OurRequest(method, attempt, thread, message))
        self.writes.append(Write(line, attempt, message))
