"""What must come out where lines of ours are taken out and put in: the invariant of SH-05 over whole lines.

Owns the comparison of an output with what was expected of it. Knows nothing of chunks and nothing of the shims' code but
its bounds.

An agent that is made of random bytes says what no agent can: the answer to a request that it has not been sent yet, or a
second answer in one breath with the first. Nothing is promised for such a line but that it passes whole or not at all (`MAY`).
"""

from __future__ import annotations

from typing import NamedTuple

PASS, DROP, MAY = "pass", "drop", "may"

_SHOWN = 400
"""Bytes of an output that a failure shows on each side of the place."""


class Item(NamedTuple):
    """A whole line, or what there is of the last one, and what is to become of it."""

    line: bytes
    verdict: str


def check(out: bytes, items: list[Item]) -> None:
    """Fails if ``out`` is anything else than the lines that pass, in their order, with or without those that may."""
    ends = {0}
    for item in items:
        passed = {end + len(item.line) for end in ends if item.verdict != DROP and out.startswith(item.line, end)}
        left = ends if item.verdict != PASS else set()
        assert passed | left, f"{item.line!r} has to pass {_at(out, max(ends))}"
        ends = passed | left
    assert len(out) in ends, f"nothing more has to pass {_at(out, max(ends))}"


def _at(out: bytes, end: int) -> str:
    return f"after {out[:end][-_SHOWN:]!r}, and not {out[end:][:_SHOWN]!r}"
