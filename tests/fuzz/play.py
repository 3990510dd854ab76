"""A fuzz input as a play: who says what, where that is cut, and when the broker has a word.

Owns the form of the inputs: any bytes are a play, and a seed can be read and written by hand. The first line holds flags
(letters, each target has its own), every further line is one step, told by its first byte:

    e… a…          the editor, the agent says the rest as a line
    E… A…          says the rest and does not end its line
    c…             from here on what is said comes in pieces of these sizes: `!` is 1, `"` 2, …; none, or a blank: all at once
    .              what follows is said later, not in one breath with what came before
    i9 d9 f9 q9    the broker's order for message 9, its withdrawal, that its end is known, the question what became of it
    h              the way to the agent is held up (the editor does not end its line, the agent does not read), or goes on
    x              nothing can be written to the agent any more
    z              the editor closes its side

An empty line is nothing; any other is said by the agent, as it stands.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import cycle
from typing import NamedTuple

ACTS = b"idfqhxz"
_SAYS = {b"e": ("editor", b"\n"), b"E": ("editor", b""), b"a": ("agent", b"\n"), b"A": ("agent", b"")}


class Said(NamedTuple):
    """Bytes that one side sends at once, and the sizes of the pieces in which they come."""

    side: str
    data: bytes
    sizes: tuple[int, ...]

    def pieces(self) -> Iterator[bytes]:
        at = 0
        for size in cycle(self.sizes or (0,)):
            if at >= len(self.data):
                return
            end = at + (size or len(self.data))
            yield self.data[at:end]
            at = end


class Act(NamedTuple):
    """Anything else that happens; ``number`` names a message."""

    kind: str
    number: int


def read(data: bytes) -> tuple[bytes, list[Said | Act]]:
    """The flags and the steps of the play in ``data``; what one side says in one breath is one step."""
    flags, *lines = data.split(b"\n")
    steps: list[Said | Act] = []
    sizes: tuple[int, ...] = ()
    breath = False
    for line in lines:
        kind, rest = line[:1], line[1:]
        if not kind:
            continue
        if kind == b"c":
            sizes = tuple(max(0, byte - 32) for byte in rest)
            breath = False
        elif kind == b".":
            breath = False
        elif kind in ACTS:
            steps.append(Act(kind.decode(), rest[0] % 16 if rest else 0))
            breath = False
        else:
            side, end = _SAYS.get(kind, ("agent", b"\n"))
            said = (rest if kind in _SAYS else line) + end
            last = steps[-1] if steps and breath else None
            if isinstance(last, Said) and last.side == side:
                steps[-1] = last._replace(data=last.data + said)
            else:
                steps.append(Said(side, said, sizes))
            breath = True
    return flags, [step for step in steps if isinstance(step, Act) or step.data]
