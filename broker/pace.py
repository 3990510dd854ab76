"""How many requests two sessions may send each other within a while (DE-55).

Owns the guard against ping-pong: two agents that answer each other with ever new requests, each in a conversation of its own,
which no hop budget ends. It counts the recorded deliveries themselves, in the transaction that records the next one, so that
neither a new broker nor twenty sends at once get past it.
"""

from __future__ import annotations

from dataclasses import dataclass

from broker.deliveries import Delivery
from broker.guards import too_many_exchanges
from broker.naming import shown
from broker.store import Session, Transaction


@dataclass(frozen=True, slots=True)
class Pace:
    """At most ``most`` requests within ``window`` seconds, both ways together."""

    most: int
    window: float

    def check(self, transaction: Transaction, request: Delivery) -> None:
        """Whether ``request``, which is not recorded yet, may follow those before it; nothing is spent if it may not.

        A request to a conversation that it opens, or of nobody known, is between no two sessions. Rows that seem to be
        written after ``request`` count like those before it: the wall clock may have been set back.

        Raises:
            Refusal: too many.
        """
        sender, target = (request.sender_agent, request.sender_session), (request.agent, request.session)
        if not sender[1] or not target[1]:
            return
        now = request.created
        made = transaction.requests_between(sender, target, now - self.window, now + self.window, self.most)
        if len(made) >= self.most:
            wait = max(0.0, made[-1] + self.window - now)
            raise too_many_exchanges((_named(sender), _named(target)), self.most, self.window, wait)


def _named(session: Session) -> str:
    return f"{session[0]} session {shown(session[1])}"
