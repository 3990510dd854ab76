"""Fuzzing of the line splitter and the sieve by themselves, with rules that a reader can apply at sight.

Owns two references over whole lines: which lines `LineFilter` returns, and what `Sieve` lets through. In a play for this
target only the agent speaks; ``i`` makes something of ours outstanding, ``d`` ends that. Flags: ``m`` no markers.
"""

from __future__ import annotations

from shims import lines
from shims.lines import DROP, HOLD, LineFilter, Sieve
from tests.fuzz import reference
from tests.fuzz.play import Said, read
from tests.fuzz.reference import Item
from tests.fuzz.stage import replaced

SMALL = {"LONGEST_PARSED": 48, "LONGEST_MESSAGE": 80, "HEAD": 40, "SEARCHED": 12, "LONGEST_UNDECIDED": 24, "_MANY": 3}

MARKERS = (b'"id"', b"xx")
BULK: dict[bytes, tuple[bytes, ...]] = {b'{"noise"': (), b"{{{": (), b'{"bulk"': (b"xx",)}
LONG = (b'{"long"',)
AHEAD = b"+ours\n"


def fuzzed(data: bytes) -> None:
    flags, steps = read(data)
    markers = () if b"m" in flags else MARKERS
    said = [step for step in steps if isinstance(step, Said)]
    with replaced(lines, SMALL):
        wanted = _lines(b"".join(step.data for step in said), markers)
        for cut in (True, False):
            seen = LineFilter(markers, lambda: BULK, LONG)
            pieces = [piece for step in said for piece in (step.pieces() if cut else (step.data,))]
            assert [line for piece in pieces for line in seen.feed(piece)] == wanted
            _sieve([step if isinstance(step, Said) else step.kind for step in steps], cut)


# LineFilter


def _lines(data: bytes, markers: tuple[bytes, ...]) -> list[tuple[bytes, bool]]:
    """The lines of ``data`` that matter, by the description of `LineFilter`."""
    found = []
    for line in data.split(b"\n")[:-1]:
        if line[:1] not in (b"{", b" ", b"\t"):
            continue
        bulk = [counting for beginning, counting in BULK.items() if line.startswith(beginning)]
        whole = len(line) <= (lines.LONGEST_MESSAGE if line.startswith(LONG) else lines.LONGEST_PARSED)
        shown = line if whole else line[: lines.HEAD] + line[-lines.SEARCHED :]
        ends = shown if len(shown) <= 2 * lines.SEARCHED else shown[: lines.SEARCHED] + shown[-lines.SEARCHED :]
        if any(marker in ends for marker in bulk[0]) if bulk else not markers or any(marker in ends for marker in markers):
            found.append((shown, whole))
    return found


# Sieve


def judge(start: bytes, whole: bool) -> str:
    """``-`` lines are ours, ``?`` lines if they end in ``-``."""
    if start.startswith(b"-"):
        return DROP
    if not start.startswith(b"?"):
        return lines.PASS
    return (DROP if start.endswith(b"-") else lines.PASS) if whole else HOLD


def _sieve(steps: list[Said | str], cut: bool) -> None:
    outstanding = False
    sieve = Sieve(lambda: outstanding, judge, lambda: AHEAD)
    wanted, out = _Wanted(), b""
    for step in steps:
        if isinstance(step, Said):
            for piece in step.pieces() if cut else (step.data,):
                out += sieve.filter(piece)
            wanted.said(step.data, outstanding)
        else:
            outstanding = step != "d"
    reference.check(out + sieve.rest(), wanted.ended())


class _Wanted:
    """What must come out, of lines that are judged while something of ours is outstanding."""

    def __init__(self) -> None:
        self._items: list[Item] = []
        self._line = b""
        self._outstanding: set[bool] = set()
        """Whether anything was, each time that some of the line was said."""

    def said(self, data: bytes, outstanding: bool) -> None:
        *ended, rest = data.split(b"\n")
        for part in ended:
            self._outstanding.add(outstanding)
            self._end(self._line + part, b"\n")
        if rest:
            self._line += rest
            self._outstanding.add(outstanding)

    def _end(self, line: bytes, newline: bytes) -> None:
        kept, always = self._outstanding == {False}, self._outstanding == {True}
        too_long = len(line) > lines.LONGEST_UNDECIDED
        ours = line[:1] == b"-" or (line[:1] == b"?" and line[-1:] == b"-" and not too_long)
        undecided = not newline and line[:1] in (b"-", b"?") and not too_long
        if kept or undecided:  # what is undecided in the end is the editor's, as it stands
            self._items.append(Item(line + newline, reference.PASS))
        elif ours and always:
            self._items.append(Item(line + newline, reference.DROP))
        else:
            self._items.append(Item(AHEAD, reference.PASS if always else reference.MAY))
            self._items.append(Item(line + newline, reference.MAY if ours else reference.PASS))
        self._line, self._outstanding = b"", set()

    def ended(self) -> list[Item]:
        if self._line:
            self._end(self._line, b"")
        return self._items
