"""An agent's own live door: how a session is reached where it runs when no shim of ours stands before it (LD-01 to LD-06).

Owns the interface. An agent says which doors it has; each looks whether it is open for a session at this moment, and holds the
conversation through it, sans-I/O: messages in, messages and an outcome out. Sockets and processes are the broker's. That the
agent took the words proves nothing yet: its records tell the turn that they became.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple, Protocol

from broker.processes import ProcessId


class Way(str, Enum):
    """What carries the conversation; a message is one line, or one frame of a WebSocket."""

    SOCKET = "socket"
    WEBSOCKET = "websocket"
    PROGRAM = "program"


@dataclass(frozen=True, slots=True)
class Opening:
    """A door that is open now.

    Attributes:
        holder: the process that has the session, and whose end ends what waits in it.
        socket: the path of the UNIX socket, SOCKET and WEBSOCKET; listener: the process that must be behind it.
        argv: what is started to speak with it, PROGRAM.
        secret: proves to the agent who speaks.
        notices: where the agent will tell what became of the message, if it does: the path of a socket for us to listen at.
        busy: a turn runs there now; waits_for: what a person is asked there, empty: nothing that is known; since: wall-clock
            seconds, 0 where that is not known.
    """

    holder: ProcessId
    way: Way
    socket: str = ""
    listener: ProcessId | None = None
    argv: tuple[str, ...] = ()
    secret: str = field(default="", repr=False)
    notices: str = ""
    busy: bool | None = None
    waits_for: str = ""
    since: float = 0.0


@dataclass(frozen=True, slots=True)
class Shut:
    """The door is not there: why, and what the person could do about it."""

    reason: str
    remedy: str


@dataclass(frozen=True, slots=True)
class Letter:
    """What is handed in. ``key``: the agent-side key, by which its records name the turn."""

    session: str
    key: str
    text: str = field(repr=False)
    notices: str = ""


class Outcome(str, Enum):
    """How a conversation stands."""

    OPEN = "open"
    SAID = "said"
    """All is said, and the agent answers nothing."""
    ACCEPTED = "accepted"
    """The agent says that it has done what was asked."""
    REFUSED = "refused"
    """The agent says that it has not, and keeps nothing."""


class Said(NamedTuple):
    """What is to be sent next, and how the conversation stands after it.

    Attributes:
        carries: the last of ``messages`` is the one that hands the words in.
        code: why it was refused; found: what was asked for.
    """

    messages: Sequence[bytes] = ()
    carries: bool = False
    outcome: Outcome = Outcome.OPEN
    code: str = ""
    found: Mapping[str, object] = {}


class Talk(Protocol):
    """One conversation through a door."""

    def begin(self) -> Said: ...

    def heard(self, message: bytes) -> Said:
        """A message of the agent's, without its line end. What means nothing here is passed over."""
        ...


class News(str, Enum):
    """What an agent tells of a message that it has."""

    HELD = "held"
    """A person is asked whether it may be delivered."""
    DECLINED = "declined"
    REFUSED = "refused"
    EXPIRED = "expired"
    CROWDED = "crowded"
    """It was not let in, and may be later."""
    DROPPED = "dropped"
    """It was not let in, and never will be."""


class Notice(NamedTuple):
    """One message at `Opening.notices`, about the messages with these keys."""

    keys: tuple[str, ...]
    news: News


def encoded(message: Mapping[str, object]) -> bytes:
    """A message of ours, without its line end. Half a character, as an agent that cuts text may send it, is replaced."""
    return json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode(errors="replace")


@dataclass(frozen=True, slots=True)
class Door:
    """One door of an agent's.

    Attributes:
        name: of the route, as receipts show it.
        look: whether it is open for a session: (store, session, its holders) → Opening or Shut. Blocking, quick.
        give: hands words in.
        take_back: takes back what still waits: (session, key) → Talk; None: the agent gives nothing back.
        ask: whether the session is there, and what stands in its way: session → Talk; None: `look` has told all. Its outcome is
            REFUSED where the door leads elsewhere; ``found`` may hold ``busy`` (bool), ``paused`` (bool) and ``waits_for`` (str).
        notice: reads a message at `Opening.notices`.
        held_back: whether a person at the session has been asked about any message since then: (store, session, wall-clock
            seconds). Blocking.
        went_to: the session that has a message, of all that were written to since then: (store, key, wall-clock seconds) → id,
            or empty. What waits in a process goes with it to another session. Blocking; run in the reader process.
        child_secret: the variable by which an agent tells its own children what proves them: what such a child writes to the
            same socket, SOCKET, is let in where a stranger's words are held. Empty: they are strangers.
        lets_go: its process may let go of a session and live on; what waited there is gone then.
        explains: what a refused or declined message needs, in words, by code.
    """

    name: str
    look: Callable[[str, str, Sequence[ProcessId]], Opening | Shut]
    give: Callable[[Opening, Letter], Talk]
    take_back: Callable[[str, str], Talk] | None = None
    ask: Callable[[str], Talk] | None = None
    notice: Callable[[bytes], Notice | None] = lambda _: None
    explains: Mapping[str, str] = field(default_factory=dict)
    held_back: Callable[[str, str, float], bool] = lambda store, session, since: False  # noqa: ARG005
    went_to: Callable[[str, str, float], str] = lambda store, key, since: ""  # noqa: ARG005
    child_secret: str = ""
    lets_go: bool = False
