"""A watch for an answer that comes after its request has ended: when there is one, and how long it lasts. No I/O.

Owns which ends leave something to watch for (DE-34, DE-43). A request's end is terminal, and nothing that comes later moves
it. So an answer that is found *before* the end delays nothing and is told as the answer, marked as recovered where the transport
had broken (`settlement` and `watch` look for it as long as anybody lives who could still write it, up to 15 minutes). One that
is found *after* the end is a late answer, a delivery of its own. It is watched for

- after an answer that did not close with its request id, and after a turn that was begun and has no answer: a later finished
  turn that closes with the id counts, for as long as the caller's setting says;
- after a broken transport, also when that setting is off, for `RECOVERY` seconds: there the turn of the message itself counts
  as well, if it closes with no other request's id, and what is found is marked as recovered.

What is raw has no id to close with and is never watched.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from broker.deliveries import Attempt, Delivery, Event
from broker.settings import late_watch_of
from broker.turns.verdict import KILLED

RECOVERY = 15 * 60.0
"""Seconds after a broken transport in which an answer found is a recovered one (DE-34)."""

_AT_LEAST = 5 * 60.0
"""Seconds that a watch has left at least when the machine starts or wakes up: neither a clock that comes up wrong nor a
night ends all of them at once, before anybody could go on with what was begun."""

_BROKEN = frozenset(("interrupted", "uncertain"))
"""The codes of ends by a broken transport."""

_FOR_GOOD = frozenset((KILLED, "stopped"))
"""The codes of ends that we made ourselves: nobody is left who could answer (DE-32)."""


@dataclass(frozen=True, slots=True)
class LateWatch:
    """One request whose answer may still come.

    Attributes:
        begun: wall-clock seconds; lasts: seconds from then. Both only count across boots.
        deadline: on the clock that counts suspend and is never set; it is what counts.
        recovers: seconds from the begin in which what is found is a recovered answer.
        failure: how the transport broke, in a sentence.
    """

    request: str
    agent: str
    store: str
    session: str
    token: str
    key: str
    begun: float
    lasts: float
    deadline: float
    recovers: float = 0.0
    failure: str = ""

    @property
    def place(self) -> tuple[str, str, str]:
        """Whose records are looked into."""
        return self.agent, self.store, self.session

    def left(self, boot: float) -> float:
        return max(0.0, self.deadline - boot)

    def is_recovering(self, boot: float) -> bool:
        return self.lasts - self.left(boot) < self.recovers

    def after_boot(self, wall: float, boot: float) -> LateWatch:
        """The same watch on the clock of a new boot: never longer than it had at its begin, never over at once."""
        left = min(max(self.begun + self.lasts - wall, _AT_LEAST), self.lasts)
        return replace(self, deadline=boot + left)

    def after_sleep(self, boot: float) -> LateWatch:
        return replace(self, deadline=max(self.deadline, boot + min(_AT_LEAST, self.lasts)))


def watch_after(
    request: Delivery, event: Event, attempt: Attempt | None, *, confirmed: bool, code: str, reason: str, wall: float, boot: float
) -> LateWatch | None:
    """What is to be watched for once ``request`` has ended by ``event``; None: nothing.

    Args:
        confirmed: it has the answer that closes with its id.
        code: of a failure; reason: the same in words.
    """
    session = request.session or (attempt.session if attempt is not None else "")
    if event not in (Event.ANSWERED, Event.ENDED, Event.UNPROVEN) or attempt is None or confirmed:
        return None
    if request.raw or code in _FOR_GOOD or not (request.token and session and attempt.store):
        return None
    broken = event is not Event.ANSWERED and code in _BROKEN
    recovers = RECOVERY if broken else 0.0
    lasts = max(late_watch_of(request.settings), recovers)
    if not lasts:
        return None
    return LateWatch(
        request=request.id,
        agent=request.agent,
        store=attempt.store,
        session=session,
        token=request.token,
        key=request.key,
        begun=wall,
        lasts=lasts,
        deadline=boot + lasts,
        recovers=recovers,
        failure=reason if broken else "",
    )
