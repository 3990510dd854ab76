"""Grok's shared leader as a door: a prompt for a session of a terminal that was started with ``use_leader``.

Owns the conversation with ``grok agent --leader stdio``, which joins the leader as one client more. Measured with 1.0.41
(protocols: grok.md, section 2):

* A session that a client has open is ``resident``; prompts from every client go into one queue, each a turn of its own, and
  survive the client that gave them. A session that no client has open is an ``unknown session id``: nothing runs.
* A prompt needs no ``session/load``; its ``_meta.promptId`` is on everything that comes of it, and in the records.
* Requests for permission go to every client, and the first answer counts: ours never answers.
* ``_x.ai/queue/remove``, a notification, takes back what waits.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from broker.processes import ProcessId, argv, executable
from shims.door import Door, Letter, Opening, Outcome, Said, Shut, Way, encoded
from shims.grok import live
from shims.jsonline import as_list, as_object, parse_object

_REMEDY = (
    "Set `use_leader = true` under [cli] in Grok's config.toml and start the terminal again, open the session in an editor "
    "panel, or close it."
)


def look(store: str, session: str, holders: Sequence[ProcessId]) -> Opening | Shut:
    del store, session
    leader = next((holder for holder in holders if live.leads(argv(holder.pid))), None)
    if leader is None:
        return Shut("a Grok session takes messages through a shared leader alone, and none has this one", _REMEDY)
    program = executable(leader.pid)
    if program is None:
        return Shut(f"which program process {leader.pid} runs cannot be told", _REMEDY)
    return Opening(leader, Way.PROGRAM, argv=(program, "agent", "--leader", *_place(argv(leader.pid)), "stdio"))


def _place(arguments: list[str]) -> tuple[str, ...]:
    """The socket of a leader that was started at another place than the usual one."""
    for at, word in enumerate(arguments):
        if word == "--leader-socket" and at + 1 < len(arguments):
            return word, arguments[at + 1]
        if word.startswith("--leader-socket="):
            return (word,)
    return ()


class _Conversation(ABC):
    """Introduces itself and looks whether the session is there; `_resident` goes on."""

    def __init__(self, session: str) -> None:
        self._session = session
        self._unanswered: dict[str, str] = {}
        """Steps by the ids of their requests: an answer counts once, or the words would go in twice, and nobody else's counts."""

    def begin(self) -> Said:
        client = {"name": "cross_agent", "version": "0"}
        parameters = {"protocolVersion": 1, "clientCapabilities": {}, "clientInfo": client}
        return Said((self._request("initialize", "initialize", parameters),))

    def heard(self, message: bytes) -> Said:
        told = parse_object(message)
        if "method" in told:
            return self._told(str(told["method"]), as_object(told.get("params")))
        step = self._unanswered.pop(str(told.get("id")), "")
        if not step:
            return Said()
        if "error" in told:
            error = as_object(told["error"])
            unknown = "unknown session" in f"{error.get('message')} {error.get('data')}"
            return Said(outcome=Outcome.REFUSED, code="elsewhere" if unknown else "agent_refused")
        result = as_object(told.get("result"))
        if step == "initialize":
            return Said((self._request("list", "_x.ai/sessions/list", {}),))
        return self._listed(result) if step == "list" else self._answered()

    def _listed(self, result: dict[str, Any]) -> Said:
        for listed in map(as_object, as_list(as_object(result.get("result")).get("sessions"))):
            if listed.get("sessionId") == self._session and listed.get("resident") is True:
                return self._resident(listed)
        return Said(outcome=Outcome.REFUSED, code="elsewhere")

    @abstractmethod
    def _resident(self, listed: dict[str, Any]) -> Said: ...

    def _told(self, method: str, parameters: dict[str, Any]) -> Said:
        del method, parameters
        return Said()

    def _answered(self) -> Said:
        """A request of the subclass's own."""
        return Said()

    def _request(self, step: str, method: str, parameters: dict[str, Any]) -> bytes:
        identifier = f"xagent-{step}"
        self._unanswered[identifier] = step
        return encoded({"jsonrpc": "2.0", "id": identifier, "method": method, "params": parameters})


class Prompting(_Conversation):
    def __init__(self, opening: Opening, letter: Letter) -> None:
        super().__init__(letter.session)
        del opening
        self._letter = letter

    def _resident(self, listed: dict[str, Any]) -> Said:
        del listed
        parameters = {
            "sessionId": self._session,
            "prompt": [{"type": "text", "text": self._letter.text}],
            "_meta": {"promptId": self._letter.key},
        }
        return Said((self._request("prompt", "session/prompt", parameters),), carries=True)

    def _told(self, method: str, parameters: dict[str, Any]) -> Said:
        """The leader shows that it has the prompt: as one that waits, or as one that runs."""
        if parameters.get("sessionId") != self._session:
            return Said()
        if method == "_x.ai/queue/changed":
            if parameters.get("runningPromptId") == self._letter.key:
                return Said(outcome=Outcome.ACCEPTED)
            return Said(outcome=Outcome.SAID) if self._letter.key in _waiting(parameters) else Said()
        update = as_object(parameters.get("update"))
        ids = [as_object(told.get("_meta")).get("promptId") for told in (parameters, update)]
        return Said(outcome=Outcome.ACCEPTED) if self._letter.key in ids else Said()

    def _answered(self) -> Said:
        return Said(outcome=Outcome.ACCEPTED)  # its turn is over already


class TakingBack(_Conversation):
    def __init__(self, session: str, key: str) -> None:
        super().__init__(session)
        self._key = key
        self._asked = False

    def _resident(self, listed: dict[str, Any]) -> Said:
        del listed
        self._asked = True
        notification = {"jsonrpc": "2.0", "method": "_x.ai/queue/remove", "params": {"sessionId": self._session, "id": self._key}}
        return Said((encoded(notification),))

    def _told(self, method: str, parameters: dict[str, Any]) -> Said:
        """The queue as it is after that: where the prompt runs, it is not taken back."""
        if not self._asked or method != "_x.ai/queue/changed" or parameters.get("sessionId") != self._session:
            return Said()
        if parameters.get("runningPromptId") == self._key:
            return Said(outcome=Outcome.REFUSED)
        if self._key in _waiting(parameters):  # from before the leader heard us
            return Said()
        return Said(outcome=Outcome.ACCEPTED)


class Asking(_Conversation):
    def _resident(self, listed: dict[str, Any]) -> Said:
        activity = str(listed.get("activity") or "")
        found: dict[str, object] = {"busy": activity not in ("", "idle")}
        if activity not in ("", "idle", "working"):
            found["waits_for"] = activity
        return Said(outcome=Outcome.ACCEPTED, found=found)


def _waiting(parameters: dict[str, Any]) -> list[object]:
    """The prompts of a queue, by their ids."""
    return [as_object(entry).get("id") for entry in as_list(parameters.get("entries"))]


DOOR = Door(
    name="grok-leader",
    look=look,
    give=Prompting,
    take_back=TakingBack,
    ask=Asking,
    explains={"elsewhere": f"the shared leader does not have it open. {_REMEDY}"},
    lets_go=True,
)
