"""What callers were told against what is recorded: nothing is lost, nothing is there twice, and no refusal hides an acceptance.

Owns the count that every storm ends with.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from tests.integration.lines import Json


def marker_of(delivery: Json) -> str:
    return str(delivery["summary"]).partition("ping ")[2][:4]


def assert_recorded(receipts: Mapping[str, Json], requests: Collection[Json], refusals: Collection[str]) -> None:
    """Args:
    receipts: what each call was answered, by its marker.
    refusals: the codes with which a call may have been refused.
    """
    answered = {marker: receipt["delivery_id"] for marker, receipt in receipts.items() if receipt["ok"]}
    refused = {marker: receipt for marker, receipt in receipts.items() if not receipt["ok"]}
    assert {receipt["code"] for receipt in refused.values()} <= set(refusals)
    recorded = {marker_of(request): request["id"] for request in requests}
    assert len(requests) == len(recorded), "a call was recorded twice"
    assert answered.items() <= recorded.items()
    unsure = {marker for marker, receipt in refused.items() if not receipt["retry_safe"]}
    assert recorded.keys() - answered.keys() <= unsure, "what is told to be safe to send again was recorded"
