"""VS Code's own window, as far as the agent host notices it: it makes chats, says something, approves, cancels.

Owns one WebSocket to the host and the thread that reads from it. Everything that goes over it, in either direction, stands in
``frames`` in its order. What the frames mean is ``protocol``.
"""

from __future__ import annotations

import threading
import time
import urllib.parse
import uuid
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, Final, Literal

from websockets.exceptions import ConnectionClosed
from websockets.sync.client import unix_connect

from tests.real.host.model import MODEL
from tests.real.host.protocol import ENDS, ROOT, VERSIONS, Action, Asked, Chat, Event, Json, RefusedError, Reply, Turn, Window
from tests.real.panels.record import WAIT, Record

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from pathlib import Path
    from types import TracebackType

    from typing_extensions import Self

    from tests.real.host.process import Endpoint

PROVIDER: Final = "copilotcli"


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame as it went over the socket; ``event`` is what the window makes of one that it got."""

    sent: bool
    text: str
    event: Event | None = None


class HostWindow:
    """A context manager around one connection.

    Args:
        endpoint: the host's.
        token: another than the endpoint's.
        versions: the protocol versions that are offered.

    Raises:
        websockets.exceptions.InvalidStatus: the host does not take the token.
        RefusedError: it takes none of the versions.
    """

    def __init__(self, endpoint: Endpoint, *, token: str | None = None, versions: tuple[str, ...] = VERSIONS) -> None:
        secret = urllib.parse.quote(endpoint.token if token is None else token, safe="")
        self._ended = ExitStack()
        self._socket = self._ended.enter_context(
            unix_connect(str(endpoint.socket), uri=f"ws://localhost/?tkn={secret}", max_size=None, compression=None)
        )
        self._window = Window(f"window-{uuid.uuid4()}")
        self._guard = threading.Lock()
        self.frames: Record[Frame] = Record("the agent host")
        self._reader = threading.Thread(target=self._read, name="window", daemon=True)
        self._reader.start()
        try:
            self.initialized: Json = self.call("initialize", self._window.hello(versions))
        except BaseException:
            self.close()
            raise

    @property
    def client(self) -> str:
        return self._window.client

    # Requests and actions

    def call(self, method: str, params: Json) -> Any:
        """The result of a request.

        Raises:
            RefusedError: the host answered by an error.
        """
        number = self._send(lambda: self._window.request(method, params))
        reply = self._wait(lambda event: isinstance(event, Reply) and event.number == number)
        assert isinstance(reply, Reply)
        if reply.error is not None:
            raise RefusedError(method, reply.error)
        return reply.result

    def dispatch(self, channel: str, action: Json, *, number: int | None = None) -> int:
        """The number of the action; the host answers none, at most there is an echo."""
        return self._send(lambda: self._window.dispatch(channel, action, number=number))

    def echo(self, number: int, after: int = 0, timeout: float = WAIT) -> Action:
        """The echo of an action of this window: the host has taken it."""
        found = self._wait(
            lambda event: isinstance(event, Action) and event.client == self.client and event.number == number, after, timeout
        )
        assert isinstance(found, Action)
        return found

    def wait_action(
        self, *kinds: str, channel: str | None = None, turn: str | None = None, after: int = 0, timeout: float = WAIT
    ) -> Action:
        """The first action of one of ``kinds``."""
        found = self._wait(
            lambda event: (
                isinstance(event, Action)
                and event.kind in kinds
                and channel in (None, event.channel)
                and turn in (None, event.turn)
            ),
            after,
            timeout,
        )
        assert isinstance(found, Action)
        return found

    def actions(self, channel: str, after: int = 0) -> list[Action]:
        """What has happened in ``channel`` so far."""
        events = [frame.event for frame in self.frames.messages()[after:]]
        return [event for event in events if isinstance(event, Action) and event.channel == channel]

    def settle(self) -> None:
        """Returns when the host has read, and answered, everything that this window has sent before."""
        self.call("listSessions", {"channel": ROOT})

    # What a person does in the window

    def wait_models(self) -> None:
        """Returns when the host knows the window's models; it asks for them after it has published its endpoint."""
        (snapshot,) = [each["state"] for each in self.initialized["snapshots"] if each["resource"] == ROOT]
        if not _has_models(snapshot.get("agents")):
            self._wait(
                lambda event: (
                    isinstance(event, Action) and event.kind == "root/agentsChanged" and _has_models(event.action.get("agents"))
                )
            )

    def wait_agent(self, session: str, agent: str) -> None:
        """Returns when the host has found a custom agent's file; a message that names it before is answered without it."""
        after = len(self.frames)
        if agent in str(self.session(session)["customizations"]):
            return
        self._wait(
            lambda event: (
                isinstance(event, Action)
                and event.channel == session
                and event.kind.startswith("session/customization")
                and agent in str(event.action)
            ),
            after,
        )

    def new_chat(self, cwd: Path, *, approvals: Literal["default", "autoApprove"] = "default") -> Chat:
        """A new session with its default chat, looked at."""
        self.wait_models()
        session = f"{PROVIDER}:/{uuid.uuid4()}"
        config = {"autoApprove": approvals, "mode": "interactive"}
        parameters = {"channel": session, "provider": PROVIDER, "workingDirectories": [cwd.as_uri()], "config": config}
        self.call("createSession", parameters)
        return self.open(session)

    def open(self, session: str) -> Chat:
        """The default chat of a session, looked at from now on."""
        state = self.session(session)
        return self.look_at(session, state["defaultChat"])

    def session(self, session: str) -> Json:
        """The state of a session, looked at from now on."""
        state: Json = self.call("subscribe", {"channel": session})["snapshot"]["state"]
        return state

    def look_at(self, session: str, chat: str) -> Chat:
        """A chat as the host has it now; the same object is kept up to date afterwards."""
        with self._guard:
            seen = self._window.look_at(session, chat)
        self.call("subscribe", {"channel": chat})
        return seen

    def turns(self, chat: Chat) -> list[Turn]:
        """The ended turns as the host has them now."""
        return list(self.look_at(chat.session, chat.uri).turns)

    def say(self, chat: Chat, text: str, *, model: Json | None = None, turn: str | None = None) -> str:
        """Begin a turn, as the window does in a chat that is idle; the id of the turn, which the host has taken."""
        action = turn_started(text, model=model, turn=turn)
        self.echo(self.dispatch(chat.uri, action))
        return str(action["turnId"])

    def queue(self, chat: Chat, text: str, *, kind: str = "queued") -> str:
        """Put a message behind the turn that runs; the id under which it waits."""
        pending = str(uuid.uuid4())
        self.echo(
            self.dispatch(chat.uri, {"type": "chat/pendingMessageSet", "kind": kind, "id": pending, "message": message(text)})
        )
        return pending

    def wait_turn(self, chat: Chat, turn: str, after: int = 0) -> Turn:
        """The turn, once it has ended."""
        self.wait_action(*ENDS, channel=chat.uri, turn=turn, after=after)
        with self._guard:
            return next(each for each in reversed(chat.turns) if each.id == turn)

    def wait_approval(self, chat: Chat, after: int = 0) -> Json:
        """The request for the person's word on a tool call of this chat."""
        found = self._wait(
            lambda event: (
                isinstance(event, Action)
                and event.kind == "session/inputNeededSet"
                and event.channel == chat.session
                and event.action["request"].get("chat") == chat.uri
            ),
            after,
        )
        assert isinstance(found, Action)
        request: Json = found.action["request"]
        return request

    def answer(self, chat: Chat, request: Json, *, approved: bool) -> None:
        """The person's word."""
        word = {"approved": True, "confirmed": "user-action"} if approved else {"approved": False, "reason": "denied"}
        call = {"turnId": request["turnId"], "toolCallId": request["toolCall"]["toolCallId"]}
        self.echo(self.dispatch(chat.uri, {"type": "chat/toolCallConfirmed", **call, **word}))

    def cancel(self, chat: Chat, turn: str) -> None:
        """Stop a turn that runs."""
        self.echo(self.dispatch(chat.uri, {"type": "chat/turnCancelled", "turnId": turn, "duration": 0}))

    def archive(self, session: str, *, archived: bool = True) -> None:
        """Put a session away, or take it back."""
        self.echo(self.dispatch(session, {"type": "session/isArchivedChanged", "isArchived": archived}))

    def configure(self, settings: Json) -> None:
        """Change the host's own settings."""
        self.echo(self.dispatch(ROOT, {"type": "root/configChanged", "config": settings}))

    def side_chat(self, chat: Chat, turn: str) -> Chat:
        """A chat beside ``chat``, about one of its turns, looked at."""
        uri = f"ahp-chat://{uuid.uuid4()}/{chat.uri.rpartition('/')[2]}"
        source = {"kind": "sideChat", "chat": chat.uri, "turnId": turn}
        self.call("createChat", {"channel": chat.session, "chat": uri, "source": source})
        return self.look_at(chat.session, uri)

    def attach(self, session: str) -> None:
        """Show a session, as the editor does: only so is a window one of its clients."""
        client = {"clientId": self.client, "displayName": "test window", "tools": []}
        self.echo(self.dispatch(session, {"type": "session/activeClientSet", "activeClient": client}))

    def leave(self, channel: str) -> None:
        """Look away from a session or a chat."""
        self._send(lambda: (0, self._window.notify("unsubscribe", {"channel": channel})))

    # The connection

    def wait_end(self, timeout: float = WAIT) -> None:
        """Returns when the host has closed the connection, by whatever way."""
        self._reader.join(timeout)
        if self._reader.is_alive():
            raise TimeoutError(f"the connection is open after {timeout} s")

    def close(self) -> None:
        self._ended.close()
        self._reader.join(WAIT)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _send(self, make: Callable[[], tuple[int, str]]) -> int:
        with self._guard:  # numbers and frames in one order
            number, text = make()
            self.frames.add(Frame(True, text))
            self._socket.send(text)
        return number

    def _read(self) -> None:
        try:
            for text in self._socket:
                self._received(str(text))
        except ConnectionClosed as error:
            self.frames.end(str(error))
        self.frames.end("closed")

    def _received(self, text: str) -> None:
        with self._guard:
            event = self._window.receive(text)
            self.frames.add(Frame(False, text, event))
            if isinstance(event, Asked):
                self.frames.add(Frame(True, event.answer))
                self._socket.send(event.answer)

    def _wait(self, predicate: Callable[[Event], bool], after: int = 0, timeout: float = WAIT) -> Event:
        found = self.frames.wait(lambda frame: frame.event is not None and predicate(frame.event), timeout, after=after)
        assert found.event is not None
        return found.event


def message(text: str, *, model: Json | None = None) -> Json:
    return {"text": text, "origin": {"kind": "user"}, "model": model or {"id": MODEL}}


def turn_started(text: str, *, model: Json | None = None, turn: str | None = None, without: Collection[str] = ()) -> Json:
    """The action that begins a turn, ``without`` some of its fields (``message.origin`` is called ``origin``)."""
    now = datetime.fromtimestamp(time.time(), tz=timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    said = {name: value for name, value in message(text, model=model).items() if name not in without}
    action = {"type": "chat/turnStarted", "turnId": turn or str(uuid.uuid4()), "startedAt": now, "message": said}
    return {name: value for name, value in action.items() if name not in without}


def _has_models(agents: list[Json] | None) -> bool:
    return any(model["id"] == MODEL for agent in agents or () for model in agent.get("models") or ())
