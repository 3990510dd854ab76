"""Codex's queue as a door: a message for a thread that a process without a shim of ours has loaded.

Owns the conversation with an app-server that runs no turn: one of our own, which writes into the queue on disk, or the shared
daemon that holds the thread. Whoever has the thread loaded runs what is queued as a turn of its own: at once when a turn ends
there, else within 10 s; the daemon at once. Measured with codex-cli 0.154.0 and 0.171.0 (protocols: codex.md, sections 2, 4):

* ``thread/queue/add`` answers when the item is on disk; it outlives every process. The turn has its ``clientUserMessageId``.
* After a turn that was interrupted the queue stands still until the person speaks there.
* ``codex exec`` ends with its turn: what was queued meanwhile lies there until somebody opens the thread.
* The daemon's socket speaks WebSocket; a terminal of 0.158 and later keeps its threads there unless told otherwise.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from broker.processes import ProcessId, argv, executable
from shims.codex.stream import QUEUE_SINCE
from shims.codex.threads import server_version
from shims.door import Door, Letter, Opening, Outcome, Said, Shut, Way, encoded
from shims.jsonline import as_list, as_object, parse_object

_SOCKET = os.path.join("app-server-control", "app-server-control.sock")
_CLIENT = {"name": "cross_agent", "title": None, "version": "0"}
_MOST_WAITING = 100
"""Items of a queue that are looked through for ours."""


def look(store: str, thread: str, holders: Sequence[ProcessId]) -> Opening | Shut:
    del thread
    holder = holders[0]
    program = executable(holder.pid)
    arguments = argv(holder.pid)
    socket = os.path.realpath(os.path.join(store, _SOCKET))
    if "app-server" in arguments and any(word.startswith("unix:") for word in arguments) and os.path.exists(socket):
        return Opening(holder, Way.WEBSOCKET, socket=socket, listener=holder)
    if "exec" in arguments[1:] or arguments[1:2] == ["e"]:
        return Shut("it runs one turn on the command line, after which it takes nothing more", "Call again when that has ended.")
    if program is None:
        return Shut(f"which program process {holder.pid} runs cannot be told", "Close it there, or open it in an editor panel.")
    return Opening(holder, Way.PROGRAM, argv=(program, "app-server"))


class _Conversation(ABC):
    """Introduces itself, and goes on with `_introduced` when it was heard. Subclasses say what for."""

    def __init__(self) -> None:
        self._calls = 0
        self._unanswered: dict[str, str] = {}
        """Methods by the ids of their calls: an answer counts once, or the words would go in twice."""

    def begin(self) -> Said:
        return Said((self._call("initialize", {"clientInfo": _CLIENT, "capabilities": {"experimentalApi": True}}),))

    def heard(self, message: bytes) -> Said:
        answer = parse_object(message)
        method = self._answered(answer)
        if not method:
            return Said()
        if "error" in answer:
            error = str(as_object(answer["error"]).get("message"))
            return Said(outcome=Outcome.REFUSED, code=_code(error))
        result = as_object(answer.get("result"))
        if method != "initialize":
            return self._goes_on(method, result)
        if server_version(str(result.get("userAgent") or "")) < QUEUE_SINCE:
            return Said(outcome=Outcome.REFUSED, code="too_old")
        said = self._introduced()
        return said._replace(messages=(encoded({"method": "initialized"}), *said.messages))

    @abstractmethod
    def _introduced(self) -> Said: ...

    @abstractmethod
    def _goes_on(self, method: str, result: dict[str, Any]) -> Said: ...

    def _call(self, method: str, parameters: dict[str, Any]) -> bytes:
        self._calls += 1
        identifier = f"xagent-{self._calls}"
        self._unanswered[identifier] = method
        return encoded({"id": identifier, "method": method, "params": parameters})

    def _answered(self, answer: dict[str, Any]) -> str:
        """The method that this answers, empty when it is no answer."""
        return "" if "method" in answer else self._unanswered.pop(str(answer.get("id")), "")


class Adding(_Conversation):
    def __init__(self, opening: Opening, letter: Letter) -> None:
        super().__init__()
        del opening
        self._letter = letter

    def _introduced(self) -> Said:
        parameters = {
            "threadId": self._letter.session,
            "clientUserMessageId": self._letter.key,
            "input": [{"type": "text", "text": self._letter.text}],
        }
        return Said((self._call("thread/queue/add", parameters),), carries=True)

    def _goes_on(self, method: str, result: dict[str, Any]) -> Said:
        del method, result
        return Said(outcome=Outcome.ACCEPTED)


class TakingBack(_Conversation):
    def __init__(self, thread: str, key: str) -> None:
        super().__init__()
        self._thread = thread
        self._key = key

    def _introduced(self) -> Said:
        return Said((self._call("thread/queue/list", {"threadId": self._thread, "limit": _MOST_WAITING}),))

    def _goes_on(self, method: str, result: dict[str, Any]) -> Said:
        if method == "thread/queue/delete":
            return Said(outcome=Outcome.ACCEPTED if result.get("deleted") is True else Outcome.REFUSED)
        for item in map(as_object, as_list(result.get("data"))):
            if item.get("clientUserMessageId") == self._key:
                parameters = {"threadId": self._thread, "queuedSubmissionId": item.get("id")}
                return Said((self._call("thread/queue/delete", parameters),))
        return Said(outcome=Outcome.REFUSED, code="not_waiting")


class Asking(_Conversation):
    """What is in the way: the last turn tells whether the queue stands still, a thread that is loaded here what it waits for."""

    def __init__(self, thread: str) -> None:
        super().__init__()
        self._thread = thread
        self._found: dict[str, object] = {}

    def _introduced(self) -> Said:
        return Said((self._call("thread/read", {"threadId": self._thread}),))

    def _goes_on(self, method: str, result: dict[str, Any]) -> Said:
        if method == "thread/read":
            status = as_object(as_object(result.get("thread")).get("status"))
            flags = as_list(status.get("activeFlags"))
            if status.get("type") in ("active", "idle"):
                self._found["busy"] = status["type"] == "active"
            if flags:
                self._found["waits_for"] = ", ".join(str(flag) for flag in flags)
            latest = {"threadId": self._thread, "limit": 1, "sortDirection": "desc", "itemsView": "notLoaded"}
            return Said((self._call("thread/turns/list", latest),))
        turns = as_list(result.get("data"))
        self._found["paused"] = bool(turns) and as_object(turns[0]).get("status") == "interrupted"
        return Said(outcome=Outcome.ACCEPTED, found=self._found)


def _code(error: str) -> str:
    if "direct app-server input is not allowed" in error:
        return "no_direct_input"
    return "unknown_to_agent" if "no rollout found" in error or "thread not found" in error else "agent_refused"


DOOR = Door(
    name="codex-queue",
    look=look,
    give=Adding,
    take_back=TakingBack,
    ask=Asking,
    explains={
        "too_old": "the Codex that holds the thread is older than 0.148 and has no queue",
        "no_direct_input": "the thread takes no direct input: it is a sub-agent's",
        "unknown_to_agent": "Codex knows no such thread",
    },
)
