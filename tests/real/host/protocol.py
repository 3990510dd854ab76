"""The Agent Host Protocol as VS Code's window speaks it, without I/O.

Owns the numbering of requests and of actions, what a frame of the host means, and the state of the chats that the window looks
at: a snapshot, and the actions after it. What the window does not show is kept as it came and not interpreted.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Final

Json = dict[str, Any]

VERSIONS: Final = ("0.9.0",)
"""What the host of VS Code 1.139 speaks."""

ROOT: Final = "ahp-root://"
NO_METHOD: Final = -32601
ENDS: Final = {"chat/turnComplete": "complete", "chat/turnCancelled": "cancelled", "chat/error": "error"}
IN_PROGRESS: Final = 8
INPUT_NEEDED: Final = 24
ARCHIVED: Final = 64


class RefusedError(RuntimeError):
    """The host answered a request by an error."""

    def __init__(self, method: str, error: Json) -> None:
        super().__init__(f"{method}: {error}")
        self.code: int = error["code"]
        self.message: str = error["message"]


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer to request ``number``: ``result``, unless there is an ``error``."""

    number: int
    result: Any
    error: Json | None


@dataclass(frozen=True, slots=True)
class Action:
    """Something that happened in ``channel``; ``client`` and ``number`` say whose dispatch it echoes."""

    channel: str
    serial: int
    action: Json
    client: str | None
    number: int | None
    rejection: str | None

    @property
    def kind(self) -> str:
        return str(self.action["type"])

    @property
    def turn(self) -> str | None:
        return self.action.get("turnId")


@dataclass(frozen=True, slots=True)
class Notice:
    """A notification that is no action."""

    method: str
    params: Json


@dataclass(frozen=True, slots=True)
class Asked:
    """The host asks this client; nothing is known that it could want, and ``answer`` says so."""

    method: str
    answer: str


@dataclass(slots=True)
class Turn:
    """One turn of a chat: what was said, what was answered, and how it ended (None while it runs)."""

    id: str
    message: Json
    parts: list[Json] = field(default_factory=list)
    ended: str | None = None
    error: Json | None = None

    @classmethod
    def of(cls, state: Json) -> Turn:
        turn = cls(state["id"], state["message"], list(state.get("responseParts") or ()), state.get("state"))
        turn.error = next((part["error"] for part in turn.parts if part["kind"] == "error"), None)
        return turn

    @property
    def said(self) -> str:
        return str(self.message.get("text", ""))

    @property
    def text(self) -> str:
        """The words of the answer after its last tool call."""
        last = max((at for at, part in enumerate(self.parts) if part["kind"] == "toolCall"), default=-1)
        return "".join(part.get("content", "") for part in self.parts[last + 1 :] if part["kind"] == "markdown")


@dataclass(slots=True)
class Chat:
    """One chat as this window sees it."""

    uri: str
    session: str
    turns: list[Turn] = field(default_factory=list)
    active: Turn | None = None
    queued: list[Json] = field(default_factory=list)
    status: int = 0
    interactivity: str | None = None

    def take(self, state: Json) -> None:
        """A snapshot: what was known before is replaced."""
        self.turns = [Turn.of(each) for each in state.get("turns") or ()]
        active = state.get("activeTurn")
        self.active = None if active is None else Turn(active["id"], active["message"], list(active.get("responseParts") or ()))
        self.queued = list(state.get("queuedMessages") or ())
        self.status = state["status"]
        self.interactivity = state.get("interactivity")

    def apply(self, action: Json) -> None:
        """One action of the chat's own channel."""
        kind, turn = action["type"], action.get("turnId")
        if kind == "chat/turnStarted":
            self.active = Turn(action["turnId"], action["message"])
            self.queued = [each for each in self.queued if each.get("id") != action.get("queuedMessageId")]
        elif kind == "chat/pendingMessageSet":
            self.queued.append({"id": action["id"], "message": action["message"]})
        elif kind == "chat/pendingMessageRemoved":
            self.queued = [each for each in self.queued if each.get("id") != action.get("id")]
        elif self.active is not None and turn == self.active.id:
            self._go_on(self.active, action)

    def _go_on(self, turn: Turn, action: Json) -> None:
        kind = action["type"]
        if kind == "chat/responsePart":
            turn.parts.append(dict(action["part"]))
        elif kind == "chat/delta":
            for part in turn.parts:
                if part.get("id") == action.get("partId"):
                    part["content"] = part.get("content", "") + action["content"]
        elif kind == "chat/toolCallStart":
            turn.parts.append({"kind": "toolCall", "id": action["toolCallId"], "name": action.get("toolName")})
        elif kind in ENDS:
            turn.ended = ENDS[kind]
            if kind == "chat/error":
                turn.error = action["part"]["error"]
            self.turns.append(turn)
            self.active = None


Event = Reply | Action | Notice | Asked


class Window:
    """The state of one connection."""

    def __init__(self, client: str) -> None:
        self.client = client
        self.chats: dict[str, Chat] = {}
        self._requests = 0
        self._dispatched = 0

    # Frames to send

    def request(self, method: str, params: Json) -> tuple[int, str]:
        """The number of the request, and its frame."""
        self._requests += 1
        frame = {"jsonrpc": "2.0", "id": self._requests, "method": method, "params": params}
        return self._requests, json.dumps(frame)

    def dispatch(self, channel: str, action: Json, *, number: int | None = None) -> tuple[int, str]:
        """The number of the action, which its echo will carry, and its frame; ``number`` uses one anew."""
        if number is None:
            self._dispatched += 1
            number = self._dispatched
        params = {"channel": channel, "clientSeq": number, "action": action}
        return number, self.notify("dispatchAction", params)

    def notify(self, method: str, params: Json) -> str:
        """A frame to which there is no answer."""
        return json.dumps({"jsonrpc": "2.0", "method": method, "params": params})

    def hello(self, versions: tuple[str, ...] = VERSIONS) -> Json:
        """The parameters of ``initialize``."""
        return {
            "channel": ROOT,
            "protocolVersions": list(versions),
            "clientId": self.client,
            "clientInfo": {"name": "test window", "version": "1"},
            "initialSubscriptions": [ROOT],
        }

    # Frames received

    def receive(self, frame: str) -> Event:
        """What a frame means; chats that are looked at go on by it."""
        message = json.loads(frame)
        method = message.get("method")
        if method is None:
            return self._reply(message)
        if "id" in message:
            error = {"code": NO_METHOD, "message": "Method not found"}
            return Asked(method, json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": error}))
        if method != "action":
            return Notice(method, message.get("params") or {})
        return self._action(message["params"])

    def look_at(self, session: str, uri: str) -> Chat:
        """The chat that the next snapshot of ``uri`` fills, from then on kept by the actions that follow it."""
        return self.chats.setdefault(uri, Chat(uri, session))

    def _reply(self, message: Json) -> Reply:
        result = message.get("result")
        snapshot = result.get("snapshot") if isinstance(result, dict) else None
        chat = None if snapshot is None else self.chats.get(snapshot["resource"])
        if chat is not None and snapshot is not None:
            chat.take(snapshot["state"])
        return Reply(message["id"], result, message.get("error"))

    def _action(self, params: Json) -> Action:
        origin = params.get("origin") or {}
        told = Action(
            params["channel"],
            params["serverSeq"],
            params["action"],
            origin.get("clientId"),
            origin.get("clientSeq"),
            params.get("rejectionReason"),
        )
        chat = self.chats.get(told.channel)
        if chat is not None and told.rejection is None:
            chat.apply(told.action)
        return told
