"""How a session is reached: one interface, one module per route.

Owns the interface. A route proves acceptance by evidence, reports it in stages (`broker.wire.StageReport`), and never
hands one attempt over twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from broker.deliveries import Attempt, Delivery


@dataclass(frozen=True, slots=True)
class Reach:
    """A session can be reached now. The identities are those of the hand-over's witnesses."""

    route: str
    instance: str
    child: str
    store: str


@dataclass(frozen=True, slots=True)
class Wait:
    """Not now, but it may be soon. ``seconds``: look again then at the latest; 0: when something changes."""

    reason: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Unreachable:
    """Not by this route, and waiting does not help."""

    code: str
    reason: str


class Route(Protocol):
    name: str

    def reach(self, delivery: Delivery, waited: float) -> Reach | Wait | Unreachable:
        """Whether, and by which instance, the session of ``delivery`` can be reached, after ``waited`` seconds of trying."""
        ...

    def hand_over(self, delivery: Delivery, attempt: Attempt, reach: Reach, text: str) -> bool:
        """Hands the text over, once for this attempt; what becomes of it is reported in stages.

        False: the instance is gone, nothing went out and nothing will.
        """
        ...

    def withdraw(self, attempt: Attempt) -> None:
        """Tries to take the message back; success is reported as a stage."""
        ...

    def is_live(self, agent: str, session: str) -> bool:
        """Whether a message to this session could go out by this route soon."""
        ...

    def is_idle(self, agent: str, session: str) -> bool:
        """Whether the session is there and runs no turn."""
        ...

    def runs(self, attempt: Attempt) -> bool:
        """Whether the turn of this attempt has begun, as far as is seen."""
        ...

    def forget(self, attempt: Attempt) -> None:
        """The attempt has been settled otherwise: whoever still waits for its end need not."""
        ...
