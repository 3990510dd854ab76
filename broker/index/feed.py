"""What the broker and the index process say to each other: frames on a pipe, each a msgpack list. No I/O.

Owns the form, and the size of a frame: the broker's loop decodes one at a time, and other work gets its turn between two.

A frame is four bytes of length, big-endian, and ``[kind, …]``:

* to the index: ``["open", number, agent, store]``, ``["look", number, turn]``, ``["close", number]``, ``["ping", turn]``;
* to the broker: ``["told", number, [[leaf, told or nil], …]]``, ``["ready", number, watched, turn]``, ``["pong", turn]``.

A *leaf* is one file, by a number that means it for as long as the index process lives; ``told`` is a `shelf.Told`, packed;
nil: the file is gone.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import msgpack

from shims.shelf import Card, Hold, Told

LENGTH = struct.Struct(">I")

LONGEST = 16 << 20
"""Bytes of a frame: one leaf with very many names."""

_LONGEST_TOLD = LONGEST - (1 << 20)
"""Bytes of what one leaf may tell: with those before it in its frame they are less than the bound."""

_FRAME = 48 << 10
"""Bytes after which a frame is sent: some milliseconds to decode."""


class Change(NamedTuple):
    """What a leaf tells now, packed; None: it is gone."""

    leaf: int
    told: bytes | None


class Open(NamedTuple):
    """Read this store, and go on telling of it under this number."""

    number: int
    agent: str
    store: str


class Look(NamedTuple):
    """Look whether anything has changed in a store that cannot be watched. ``turn`` counts up with every look."""

    number: int
    turn: int


class Close(NamedTuple):
    """Tell no more of this store; its number is not used again."""

    number: int


class Ping(NamedTuple):
    """Say that you are there, and done with what you had to do. ``number``: of the question, as `Look.turn`."""

    number: int


class Pong(NamedTuple):
    """The answer to the `Ping` of this number, and to those before it."""

    number: int


class ToldBatch(NamedTuple):
    number: int
    changes: tuple[Change, ...]


class Ready(NamedTuple):
    """All that the store held has been told. ``watched``: what changes will be told by itself.

    ``turn``: of the last `Look` that was asked for before it was looked.
    """

    number: int
    watched: bool
    turn: int


Frame = Open | Look | Close | Ping | Pong | ToldBatch | Ready

_KINDS: dict[str, type[Any]] = {
    "open": Open,
    "look": Look,
    "close": Close,
    "ping": Ping,
    "told": ToldBatch,
    "ready": Ready,
    "pong": Pong,
}
_NAMES = {kind: name for name, kind in _KINDS.items()}


def packed(frame: Frame) -> bytes:
    body = msgpack.packb((_NAMES[type(frame)], *frame), unicode_errors="surrogateescape")
    return LENGTH.pack(len(body)) + bytes(body)


def unpacked(body: bytes) -> Frame:
    """The frame in ``body``, without its length. Raises ValueError for what is none."""
    try:
        name, *values = msgpack.unpackb(body, unicode_errors="surrogateescape")
        kind = _KINDS[name]
        if kind is ToldBatch:
            number, changes = values
            values = [number, tuple(Change(*change) for change in changes)]
        frame: Frame = kind(*values)
    except (KeyError, TypeError, ValueError, msgpack.exceptions.UnpackException) as error:
        raise ValueError("no frame of the index") from error
    if not _is_whole(frame):
        raise ValueError("no frame of the index")
    return frame


def _is_whole(frame: Frame) -> bool:
    """Whether its values are what they should be: something else may have written into the pipe."""
    if type(frame.number) is not int:
        return False
    if isinstance(frame, Open):
        return isinstance(frame.agent, str) and isinstance(frame.store, str)
    if isinstance(frame, (Look, Ready)) and type(frame.turn) is not int:
        return False
    if isinstance(frame, Ready):
        return isinstance(frame.watched, bool)
    if isinstance(frame, ToldBatch):
        return all(type(leaf) is int and (told is None or isinstance(told, bytes)) for leaf, told in frame.changes)
    return True


def batches(number: int, changes: Iterable[Change]) -> Iterator[ToldBatch]:
    """``changes`` in frames that are small enough."""
    batch: list[Change] = []
    size = 0
    for change in changes:
        if change.told is not None and len(change.told) > _LONGEST_TOLD:
            change = Change(change.leaf, b"")  # that tells nothing
        batch.append(change)
        size += len(change.told or b"")
        if size > _FRAME:
            yield ToldBatch(number, tuple(batch))
            batch, size = [], 0
    if batch:
        yield ToldBatch(number, tuple(batch))


class Frames:
    """Bytes of a pipe, in whatever pieces they come, as frames."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[Frame]:
        """The frames that are complete with ``data``. Raises ValueError when they are none: the pipe is of no use then."""
        self._buffer += data
        while len(self._buffer) >= LENGTH.size:
            (length,) = LENGTH.unpack_from(self._buffer)
            if length > LONGEST:
                raise ValueError("a frame of the index over the bound")
            end = LENGTH.size + length
            if len(self._buffer) < end:
                return
            body = bytes(self._buffer[LENGTH.size : end])
            del self._buffer[:end]
            yield unpacked(body)


def packed_told(told: Told) -> bytes:
    """``told`` for the index's own file, and for the broker; half a character in it stays one."""
    data: bytes = msgpack.packb(told, unicode_errors="surrogatepass")
    return data


def unpacked_told(data: bytes) -> Told:
    """The inverse of `packed_told`. Raises ValueError, TypeError for what is none."""
    read, cards, names, holds, memory, left_out = msgpack.unpackb(data, use_list=False, unicode_errors="surrogatepass")
    return Told(read, tuple([Card(*card) for card in cards]), names, tuple([Hold(*hold) for hold in holds]), memory, left_out)
