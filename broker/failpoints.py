"""Named places where a crash test may kill the process that passes them.

Owns the one list of names and their effect. Costs one comparison when off: only a process started with
``CROSS_AGENT_FAIL_POINTS`` set looks, and only a file of the point's name in ``run/fail`` arms it. The file is consumed, so
the process that is started next passes the same place unharmed. There are two points around each change of a delivery and
around each effect that others see; a test compares the list with the table of transitions.
"""

from __future__ import annotations

import os

_ARMED = bool(os.environ.get("CROSS_AGENT_FAIL_POINTS"))
_KILL = 9

SIDES = ("before", "after")

EVENTS = (
    "hand-over", "busy", "never", "taken", "settled", "answered", "ended", "refused", "expired", "unproven", "withdraw",
)  # fmt: skip
"""Steps of a delivery, as `broker.deliveries.Event` names them."""

EFFECTS = (
    "broker.request", "broker.commit", "broker.inject", "broker.stage-seen", "shim.write", "shim.stage",
    "broker.door", "broker.turn", "runner.start", "runner.exec", "runner.taken", "runner.end",
)  # fmt: skip
"""A request recorded; any transaction; an order sent to a shim; a stage acknowledged; the agent's stdin; a stage told; the words
that go in at an agent's own door; a runner started; the process that becomes its agent; that process's claim and its exec; that
it has begun, told; its end, told."""

POINTS = tuple(f"{place}.{side}" for place in (*(f"broker.{event}" for event in EVENTS), *EFFECTS) for side in SIDES)


def fail_point(name: str) -> None:
    """Dies of SIGKILL here when a test has armed ``name``, which is one of `POINTS`."""
    if _ARMED and _consume(name):
        os.kill(os.getpid(), _KILL)


def _consume(name: str) -> bool:
    from broker.paths import find_home

    assert name in POINTS, name
    try:
        os.unlink(os.path.join(find_home().fail_points, name))
    except OSError:
        return False
    return True
