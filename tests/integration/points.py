"""Where a crash test kills: what is passed while a message goes from panel to panel, and what with a turn that is started.

Owns these lists, for who kills at one place after the other and for who kills at random. `broker.failpoints` has all points.
"""

from __future__ import annotations

from broker import failpoints

EXCHANGE = tuple(
    f"broker.{place}.{side}"
    for place in ("request", "commit", "hand-over", "inject", "taken", "stage-seen", "answered", "settled")
    for side in failpoints.SIDES
)
"""What a broker passes while a message goes there and its answer comes back."""

AT_BROKERS = tuple(
    f"broker.{place}.{side}"
    for place in ("request", "commit", "hand-over", "turn", "taken", "answered")
    for side in failpoints.SIDES
)
"""What a broker passes with a turn that is started and answered."""

AT_RUNNERS = tuple(f"{place}.{side}" for place in failpoints.EFFECTS if place.startswith("runner.") for side in failpoints.SIDES)

STARTED = (*AT_BROKERS, *AT_RUNNERS)

STEPS = {
    "never": "delivered",
    "refused": "failed",
    "ended": "failed",
    "unproven": "uncertain",
    "expired": "failed",
    "withdraw": "withdrawn",
}
"""Rarer steps of a started turn, and how a delivery ends that takes them."""
