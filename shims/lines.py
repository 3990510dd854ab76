"""From chunks to the lines worth parsing, and from the agent's output to what the editor gets. No I/O.

Owns line splitting for observation (`LineFilter`) and the rule of SH-05 for the agent's direction (`Sieve`): everything
passes as it came, but for whole lines that answer requests of ours or belong to a turn of ours that the editor would not
draw, and for whole lines of ours that show it what it would miss. Loaded before the agent runs: built-in types only.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    Bulk = dict[bytes, tuple[bytes, ...]]

LONGEST_PARSED = 1 << 20
"""Bytes of a line that are still parsed: the JSON decoder holds the interpreter, and the byte path with it."""

LONGEST_MESSAGE = 13 << 20
"""As `LONGEST_PARSED`, for lines that hold a message: one of the greatest size is as long as this (DE-05)."""

HEAD = 1 << 16
"""Bytes kept of the beginning of a longer line, besides its end: enough to tell its type, and whose it is."""

SEARCHED = 1 << 13
"""Bytes at each end of a line in which a marker counts: what tells a line's kind stands before or after its text."""

LONGEST_UNDECIDED = 1 << 16
"""Bytes of a line that the sieve holds back at most."""

_OPENINGS = (b"{", b" ", b"\t")
"""How an object may begin; anything else is noise."""

_MANY = 64

PASS, HOLD, DROP = "pass", "hold", "drop"


def may_be_object(start: bytes) -> bool:
    """Whether a line that begins with ``start`` can be an object, and one that `LineFilter` would return."""
    return start.lstrip(b" \t")[:1] in (b"", b"{")


class LineFilter:
    """Splits a stream into lines and returns those that matter: objects that contain a marker of their kind.

    What comes in bulk costs one comparison a line and few searches. A line over `LONGEST_PARSED` is returned as its
    beginning and its end (`HEAD` and `SEARCHED` bytes), flagged, if these matter: what comes out does not depend on how the
    stream was cut.

    Args:
        markers: byte strings one of which every line that matters contains; none: every object matters.
        bulk: beginnings of lines that come in bulk, with those of ``markers`` that count in them now; none: they do not matter.
        long: beginnings of lines that are returned whole up to `LONGEST_MESSAGE`, since they hold messages.
    """

    __slots__ = ("_beginning", "_bulk", "_head", "_held", "_held_bytes", "_long", "_markers", "_skipping", "_tail")

    def __init__(self, markers: tuple[bytes, ...], bulk: Callable[[], Bulk] = dict, long: tuple[bytes, ...] = ()) -> None:
        self._long = long
        self._beginning = max(map(len, long), default=0)
        self._markers = markers
        self._bulk = bulk
        self._held: list[bytes] = []
        self._held_bytes = 0
        self._head: bytes | None = None
        self._tail = b""
        self._skipping = False

    def feed(self, chunk: bytes) -> list[tuple[bytes, bool]]:
        """Lines that became complete with ``chunk`` and matter, as (line without newline, whole?)."""
        bulk = self._bulk()
        noise = tuple([beginning for beginning, counting in bulk.items() if not counting])
        end = chunk.rfind(b"\n")
        if end < 0:
            self._hold(chunk, noise)
            return []
        lines: list[tuple[bytes, bool]] = []
        start = 0
        if self._skipping or self._held or self._head is not None:
            start = chunk.find(b"\n") + 1
            self._end_held(chunk[: start - 1], bulk, lines)
        block = chunk[start:end]
        # One search in many lines costs less than one in each, and one that finds them all of one kind costs least.
        if self._may_matter(block, bulk):
            candidates = [line for line in block.split(b"\n") if not line.startswith(noise) and line.startswith(_OPENINGS)]
            if len(candidates) < _MANY or _has_any(self._markers, block):
                for line in candidates:
                    self._judge(line, bulk, lines)
        if end + 1 < len(chunk):
            self._hold(chunk[end + 1 :], noise)
        return lines

    def _may_matter(self, block: bytes, bulk: Bulk) -> bool:
        """False: no line of ``block`` does. Told at once where all of them are of one kind of bulk, or there is no bulk."""
        for beginning, counting in bulk.items():
            if block.startswith(beginning) and block.count(b"\n" + beginning) == block.count(b"\n"):
                return bool(counting) and _has_any(counting, block)
        return bool(bulk) or _has_any(self._markers, block)

    def _judge(self, line: bytes, bulk: Bulk, lines: list[tuple[bytes, bool]]) -> None:
        whole = len(line) <= self._longest(line)
        if not whole:
            line = line[:HEAD] + line[-SEARCHED:]
        if self._matters(line, bulk):
            lines.append((line, whole))

    def _matters(self, line: bytes, bulk: Bulk) -> bool:
        ends = line if len(line) <= 2 * SEARCHED else line[:SEARCHED] + line[-SEARCHED:]
        for beginning, counting in bulk.items():
            if line.startswith(beginning):
                return bool(counting) and _has_any(counting, ends)
        return _has_any(self._markers, ends)

    def _longest(self, line: bytes) -> int:
        return LONGEST_MESSAGE if line.startswith(self._long) else LONGEST_PARSED

    def _hold(self, part: bytes, noise: tuple[bytes, ...]) -> None:
        """Keeps the beginning of a line, as far as the line may matter."""
        if self._skipping:
            return
        if self._head is not None:
            self._tail = (self._tail + part)[-SEARCHED:]
            return
        if not self._held and (part.startswith(noise) or not part.startswith(_OPENINGS)):
            self._skipping = True
            return
        if self._held and len(self._held[0]) < self._beginning:
            self._held[0] += part  # however it was cut, the first piece tells how long the line may be
        else:
            self._held.append(part)
        self._held_bytes += len(part)
        if self._held_bytes > self._longest(self._held[0]):
            line = b"".join(self._held)
            self._head, self._tail = line[:HEAD], line[-SEARCHED:]
            self._held = []

    def _end_held(self, rest: bytes, bulk: Bulk, lines: list[tuple[bytes, bool]]) -> None:
        """The line that was begun in earlier chunks ends with ``rest``."""
        if self._head is not None:
            line = self._head + (self._tail + rest)[-SEARCHED:]
            if self._matters(line, bulk):
                lines.append((line, False))
        elif self._held:
            self._judge(b"".join([*self._held, rest]), bulk, lines)
        self._head, self._tail = None, b""
        self._held = []
        self._held_bytes = 0
        self._skipping = False


def _has_any(markers: tuple[bytes, ...], data: bytes) -> bool:
    for marker in markers:
        if marker in data:
            return True
    return not markers


class Sieve:
    """Takes whole lines that answer us out of the agent's output; transparent while nothing of ours is outstanding.

    Args:
        outstanding: whether an answer to a request of ours may still come.
        judge: `PASS` (for good), `DROP` or `HOLD` for the beginning of a line; ``whole``: it is all of it (never `HOLD` then).
            A line over `LONGEST_UNDECIDED` is dropped or passes as its beginning of that length tells.
        ahead: whole lines that go before one that was judged to pass.
    """

    __slots__ = ("_ahead", "_judge", "_mid_line", "_outstanding", "_swallowing", "_undecided")

    def __init__(
        self, outstanding: Callable[[], bool], judge: Callable[[bytes, bool], str], ahead: Callable[[], bytes] = bytes
    ) -> None:
        self._ahead = ahead
        self._outstanding = outstanding
        self._judge = judge
        self._mid_line = False
        self._swallowing = False
        self._undecided = b""

    def filter(self, chunk: bytes) -> bytes:
        """What of ``chunk``, and of what was held before it, the editor gets now."""
        if not self._undecided and not self._swallowing and not self._outstanding():
            self._mid_line = not chunk.endswith(b"\n")
            return chunk
        passed: list[bytes] = []
        data = self._undecided + chunk
        self._undecided = b""
        at = 0
        while at < len(data):
            newline = data.find(b"\n", at)
            end = newline + 1 if newline >= 0 else len(data)
            piece = data[at:end]
            at = end
            if self._swallowing or self._mid_line:
                if self._mid_line:
                    passed.append(piece)
                if newline >= 0:
                    self._swallowing = self._mid_line = False
                continue
            self._begin(piece, newline >= 0, passed)
        return b"".join(passed)

    def rest(self) -> bytes:
        """The stream has ended: an undecided last line without newline is the editor's."""
        rest, self._undecided = self._undecided, b""
        return rest

    def _begin(self, piece: bytes, whole: bool, passed: list[bytes]) -> None:
        ours = self._outstanding()
        line = piece[:-1] if whole else piece
        too_long = len(line) > LONGEST_UNDECIDED
        verdict = PASS
        if ours:
            verdict = self._judge(line[:LONGEST_UNDECIDED], whole and not too_long)
        if verdict != PASS and not whole and not too_long:
            self._undecided = piece  # the rest may still say otherwise
        elif verdict == DROP:
            self._swallowing = not whole
        else:
            passed += (self._ahead(), piece) if ours else (piece,)
            self._mid_line = not whole
