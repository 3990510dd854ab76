"""Reading the end of a file that may be a gigabyte: lines from where they matter, within a bound.

Owns seeking and block reads; decodes nothing. Runs in the reader process, never in the broker's loop (SE-05).
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator

LONGEST_LINE = 16 << 20
"""Bytes of a line that is still handed on: a message of the greatest size in any spelling; beyond are blobs, no turns."""

TAIL = 2 << 20
"""Bytes of the end that hold the latest turns (SE-08)."""


def lines_from_first(path: str, needle: bytes) -> Iterator[bytes]:
    """The lines from the first one that contains ``needle``; nothing when none does. Raises OSError."""
    with open(path, "rb") as file:
        if not os.fstat(file.fileno()).st_size:
            return
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            at = content.find(needle)
            if at < 0:
                return
            yield from _lines(content, content.rfind(b"\n", 0, at) + 1)


def lines_before_first(path: str, needle: bytes, span: int = TAIL) -> Iterator[bytes]:
    """The lines of the ``span`` bytes before the first line that contains ``needle``, oldest first. Raises OSError."""
    with open(path, "rb") as file:
        if not os.fstat(file.fileno()).st_size:
            return
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            at = content.find(needle)
            if at < 0:
                return
            end = content.rfind(b"\n", 0, at) + 1
            start = content.rfind(b"\n", 0, max(0, end - span)) + 1
            for line in content[start:end].split(b"\n"):
                if line and len(line) <= LONGEST_LINE:
                    yield line


def last_lines(path: str, span: int = TAIL) -> Iterator[bytes]:
    """The whole lines of the last ``span`` bytes, oldest first. Raises OSError."""
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        start = max(0, size - span)
        file.seek(start)
        content = file.read(span)
    if start:
        content = content[content.find(b"\n") + 1 :]
    for line in content.split(b"\n"):
        if line and len(line) <= LONGEST_LINE:
            yield line


def _lines(content: mmap.mmap, start: int) -> Iterator[bytes]:
    while start < len(content):
        end = content.find(b"\n", start)
        end = end if end >= 0 else len(content)
        if start < end <= start + LONGEST_LINE:
            yield content[start:end]
        start = end + 1
