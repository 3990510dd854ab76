"""What one file tells, in pieces that the broker's loop takes in quickly (EN-25). Runs in the index process.

Owns how a file that names thousands of sessions is cut, so that one rename tells of some hundred names and not of all: each
piece is a leaf of its own, and only those that have changed are told.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator

from broker.index.feed import Change, packed_told, unpacked_told
from shims.shelf import Told

_WHOLE = 32 << 10
"""Bytes of what is told in one piece."""

_PARTS = 128
_REST = -1
"""What is no name of a session."""


class Pieces:
    """The leaves of one store, as they are told.

    Args:
        numbers: for pieces, which no other leaf has.
    """

    def __init__(self, numbers: Iterator[int]) -> None:
        self._numbers = numbers
        self._told: dict[int, dict[int, tuple[int, int]]] = {}
        """Of leaves in pieces, by part: its number, and the sum of what it told."""

    def of(self, leaf: int, data: bytes | None) -> Iterator[Change]:
        """What has to be told when ``leaf`` tells ``data``; None: it is gone."""
        before = self._told.pop(leaf, {})
        parts = _cut(data) if data is not None and len(data) > _WHOLE else {}
        if parts:
            now = self._told[leaf] = {}
        for part, piece in parts.items():
            number, was = before.pop(part, (leaf if part == _REST else next(self._numbers), None))
            now[part] = (number, zlib.crc32(piece))
            if was != now[part][1]:
                yield Change(number, piece)
        yield from (Change(number, None) for number, _ in before.values() if number != leaf)
        if not parts:
            yield Change(leaf, data)


def _cut(data: bytes) -> dict[int, bytes]:
    """``data`` in parts; one alone where it has few names. A session is always in the same."""
    try:
        told = unpacked_told(data)
    except (TypeError, ValueError):
        return {}
    names: dict[int, list[tuple[str, str]]] = {}
    for name in told.names:
        names.setdefault(zlib.crc32(name[0].encode(errors="surrogatepass")) % _PARTS, []).append(name)
    cut = {part: packed_told(Told(names=tuple(some))) for part, some in sorted(names.items())}
    return {_REST: packed_told(told._replace(read=0, names=(), memory="")), **cut}
