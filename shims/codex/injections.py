"""Messages and requests of ours on their way through one Codex app-server. No I/O.

Owns what is outstanding: each message between its first byte and the end of its turn (`Injection`), each request of ours
until its answer, and the rule that such an answer never reaches the editor (SH-33). What the answers mean is `stream`'s.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from broker.wire import Inject
from shims.codex.threads import identity
from shims.jsonline import parse_object
from shims.lines import DROP, HOLD, PASS
from shims.stream import Finished, Progress, Rejected, Taken, Write

_OURS = "xagent-"
_ID = b'{"id":"'
_ANSWER_TO_US = _ID + _OURS.encode()
_ERROR = b'{"error"'


class OurRequest(NamedTuple):
    """What a request of ours was for; ``attempt`` empty: for no message."""

    method: str
    attempt: str
    thread: str


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
        self._requests: dict[str, OurRequest] = {}
        self._number = 0

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

    def finished(self, injection: Injection, status: str, text: str, turn: str) -> None:
        self.taken(injection)
        del self._open[injection.attempt]
        self.progress.append(Finished(injection.attempt, status, text, turn))

    def rejected(self, injection: Injection, code: str) -> None:
        del self._open[injection.attempt]
        self.progress.append(Rejected(injection.attempt, code))

    def dropped(self, attempt: str) -> None:
        """Its line was not written: there is no message, and no answer to wait for."""
        self._open.pop(attempt, None)
        self._requests = {request: ours for request, ours in self._requests.items() if ours.attempt != attempt}

    # requests

    def request(
        self, method: str, parameters: dict[str, Any], *, attempt: str = "", thread: str = "", message: bool = False
    ) -> None:
        self._number += 1
        identifier = f"{_OURS}{self._number}"
        self._requests[identity(identifier)] = OurRequest(method, attempt, thread)
        line = {"method": method, "id": identifier, "params": parameters}
        self.writes.append(Write(json.dumps(line, separators=(",", ":")).encode() + b"\n", attempt, message))

    def answered(self, request: str) -> OurRequest | None:
        """The request of ours that has been answered, None when it was not ours."""
        return self._requests.pop(request, None)

    # the sieve

    def outstanding(self) -> bool:
        return bool(self._requests)

    def judge(self, start: bytes, whole: bool) -> str:
        if start.startswith(_ANSWER_TO_US):
            identifier, quote, _ = start[len(_ID) :].partition(b'"')
            if quote:
                return DROP if identity(identifier.decode(errors="replace")) in self._requests else PASS
        if not whole:
            # An error names its id last.
            undecided = start.startswith((_ANSWER_TO_US, _ERROR)) or _ANSWER_TO_US.startswith(start) or _ERROR.startswith(start)
            return HOLD if undecided else PASS
        if _OURS.encode() not in start:
            return PASS
        message = parse_object(start)
        return DROP if "method" not in message and identity(message.get("id")) in self._requests else PASS
