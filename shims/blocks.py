"""Searching a file that may be a gigabyte for the few lines that matter, in memory that stays small. Blocks; no decoding.

Owns block reads of a growing file: what was searched once is not searched again, so that each answer says how far it came.
A mapping of the file would count as memory of the process, and a rare line would cost a fault for each of its pages.
"""

from __future__ import annotations

import errno
import os
import zlib
from collections.abc import Iterator

BLOCK = 1 << 20
"""Bytes read at once."""

_TRACE = 4 << 10
"""Bytes at the beginning, and before the place where reading stopped, that must still be the same."""

LONGEST_LINE = 64 << 10
"""Bytes of a line that is handed on."""


def lines_with(descriptor: int, needle: bytes, start: int, end: int) -> Iterator[bytes]:
    """The lines between ``start`` and ``end`` that contain ``needle``, in their order, without their newline.

    Args:
        start: where a line begins; end: where one ended, see `end_of_lines`.
    """
    buffer = bytearray(BLOCK + len(needle) - 1)
    view = memoryview(buffer)
    kept = 0
    at, done = start, start
    """Up to where was read, and up to where lines were handed on."""
    while at < end:
        data = _next_data(descriptor, at)
        if data > at:  # no text is in a hole, and none goes on behind it
            at, kept = data, 0
            continue
        got = os.preadv(descriptor, [view[kept : kept + min(BLOCK, end - at)]], at)
        if got == 0:
            return
        filled = kept + got
        found = buffer.find(needle, 0, filled)
        while found >= 0:
            place = at - kept + found
            if place >= done:
                line, done = _line_around(descriptor, place, start, end)
                if line is not None and needle in line:
                    yield line
            found = buffer.find(needle, found + 1, filled)
        at += got
        kept = min(len(needle) - 1, filled)
        view[:kept] = bytes(view[filled - kept : filled])


def end_of_lines(descriptor: int, start: int, size: int) -> int:
    """Where the last whole line before ``size`` ended; ``start`` when there is none after it."""
    size = _end_of_data(descriptor, size)
    while size > start:
        begin = max(start, size - LONGEST_LINE)
        newline = os.pread(descriptor, size - begin, begin).rfind(b"\n")
        if newline >= 0:
            return begin + newline + 1
        size = begin
    return start


def trace(descriptor: int, end: int) -> str:
    """By what a file is known again whose first ``end`` bytes were read: another one may have its place, and its inode."""
    head = os.pread(descriptor, min(end, _TRACE), 0)
    tail = os.pread(descriptor, min(end, _TRACE), max(0, end - _TRACE))
    return f"{zlib.crc32(head):08x}{zlib.crc32(tail):08x}"


def head_lines(descriptor: int, size: int, span: int) -> list[bytes]:
    """The whole lines of the first ``span`` bytes."""
    return os.pread(descriptor, min(size, span), 0).split(b"\n")[:-1]


def tail_lines(descriptor: int, size: int, span: int) -> list[bytes]:
    """The whole lines of the last ``span`` bytes of ``size``, oldest first; what follows the last newline is none yet."""
    begin = max(0, size - span)
    lines = os.pread(descriptor, size - begin, begin).split(b"\n")
    return lines[1 if begin else 0 : -1]


def _end_of_data(descriptor: int, size: int) -> int:
    """Where the file's last hole begins: no line ends in it, and a search for one would read all of it."""

    def data_from(offset: int) -> bool:
        try:
            return os.lseek(descriptor, offset, os.SEEK_DATA) < size
        except OSError as error:
            return error.errno != errno.ENXIO

    if size == 0 or data_from(size - 1):
        return size
    low, high = 0, size - 1  # halved: whether anything is written behind an offset is asked some thirty times
    while low < high:
        middle = (low + high) // 2
        if data_from(middle):
            low = middle + 1
        else:
            high = middle
    return low


def _next_data(descriptor: int, at: int) -> int:
    """Where the next written byte is, or the end: reading a hole costs as much as reading a disk (1.9 s a GiB, ext4)."""
    try:
        return os.lseek(descriptor, at, os.SEEK_DATA)
    except OSError as error:
        return os.lseek(descriptor, 0, os.SEEK_END) if error.errno == errno.ENXIO else at


def _line_around(descriptor: int, place: int, start: int, end: int) -> tuple[bytes | None, int]:
    """The line around ``place``, None if it is too long, and where the next one begins or may begin."""
    first = max(start, place - LONGEST_LINE)
    content = os.pread(descriptor, min(end, place + LONGEST_LINE) - first, first)
    here = place - first
    begin = content.rfind(b"\n", 0, here) + 1
    stop = content.find(b"\n", here)
    if stop < 0 or (begin == 0 and first > start):
        return None, place + 1
    return content[begin:stop], first + stop + 1
