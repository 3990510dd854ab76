"""How a session is reached: one interface, one module per route.

Owns the interface. A route proves acceptance by evidence, reports it in stages (`broker.wire.StageReport`), and never
hands one attempt over twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from broker.deliveries import Attempt, Delivery
from broker.processes import ProcessId
from shims.door import Door, Opening


@dataclass(frozen=True, slots=True)
class Reach:
    """A session can be reached now. The identities are those of the hand-over's witnesses."""

    route: str
    instance: str
    child: str
    store: str
    session: str = ""
    """The id of a conversation that is to be opened, where it is known before."""
    program: str = ""
    """What is to be started."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Not now, but it may be soon. ``seconds``: look again then at the latest; 0: when something changes."""

    reason: str
    seconds: float
    code: str = ""
    """As that of `Unreachable`, where waiting may not help."""


@dataclass(frozen=True, slots=True)
class Unreachable:
    """Not by this route, and waiting does not help."""

    code: str
    reason: str


@dataclass(frozen=True, slots=True)
class Open:
    """A door that is open for a session now.

    Attributes:
        paused: what is handed in waits until a person speaks there. busy, waits_for, since: as in `Opening`.
    """

    door: Door
    opening: Opening
    busy: bool = False
    paused: bool = False
    waits_for: str = ""
    since: float = 0.0


@dataclass(frozen=True, slots=True)
class Held:
    """A process has the session, and no door of its leads in."""

    process: ProcessId
    reason: str
    remedy: str


class Handing(Protocol):
    """A route as far as one hand-over needs it."""

    name: str

    async def reach(self, delivery: Delivery, waited: float) -> Reach | Wait | Unreachable:
        """Whether, and by which instance, the session of ``delivery`` can be reached, after ``waited`` seconds of trying."""
        ...

    async def hand_over(self, delivery: Delivery, attempt: Attempt, reach: Reach, text: str) -> bool:
        """Hands the text over, once for this attempt; what becomes of it is reported later.

        False: the instance is gone, nothing went out and nothing will.
        """
        ...

    def withdraw(self, attempt: Attempt) -> None:
        """Tries to take the message back; success is reported as a stage."""
        ...

    def runs(self, attempt: Attempt) -> bool:
        """Whether the turn of this attempt has begun, as far as is seen."""
        ...

    def looked(self, attempt: Attempt | None) -> None:
        """The records were looked into for the end of this attempt; None: it has ended."""
        ...

    def forget(self, attempt: Attempt) -> None:
        """The attempt has been settled otherwise: whoever still waits for its end need not."""
        ...


class Route(Handing, Protocol):
    """Also tells of sessions that are open."""

    async def way_back(self, agent: str, store: str, session: str, *, panels: bool, doors: bool) -> str:
        """The route by which a message could go out soon, without anything being started; empty: none."""
        ...

    async def is_idle(self, agent: str, store: str, session: str) -> bool:
        """Whether the session is open and runs no turn."""
        ...
