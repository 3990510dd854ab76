"""Where a session works, seen from where the caller works (SE-10, SE-11). Pure; directories come resolved.

Owns the relation of two directories, which of them a scope lets in, and which counts first.
"""

from __future__ import annotations

from enum import IntEnum

SCOPES = ("cwd", "tree", "any")


class Relation(IntEnum):
    """In the order in which sessions count."""

    SAME = 0
    BELOW = 1
    ABOVE = 2
    ELSEWHERE = 3


_WITHIN = {
    "cwd": frozenset((Relation.SAME, Relation.BELOW)),
    "tree": frozenset((Relation.SAME, Relation.BELOW, Relation.ABOVE)),
    "any": frozenset(Relation),
}


def relation(there: str, here: str) -> Relation:
    """How the directory ``there`` lies to ``here``."""
    if there == here:
        return Relation.SAME
    if not there:
        return Relation.ELSEWHERE
    if there.startswith(f"{here.rstrip('/')}/"):
        return Relation.BELOW
    return Relation.ABOVE if here.startswith(f"{there.rstrip('/')}/") else Relation.ELSEWHERE


def lets_in(scope: str, near: Relation) -> bool:
    return near in _WITHIN[scope]


def within(there: str, here: str, scope: str) -> bool:
    return lets_in(scope, relation(there, here))
