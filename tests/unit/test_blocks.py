"""Searching huge files: counted in reads, not in seconds."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from shims import blocks

pytestmark = pytest.mark.requirement("SE-05")


@pytest.mark.parametrize("head", [b"", b"one\ntwo\n", b"one\nhalf"], ids=["nothing", "lines", "half a line"])
def test_a_hole_of_a_gigabyte_is_not_searched_for_the_last_line(
    tmp_path: Path, head: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "huge"
    path.write_bytes(head)
    os.truncate(path, 1 << 30)
    reads: list[object] = []
    pread = os.pread

    def counted(descriptor: int, length: int, offset: int) -> bytes:
        reads.append(offset)
        return pread(descriptor, length, offset)

    monkeypatch.setattr(os, "pread", counted)
    descriptor = os.open(path, os.O_RDONLY)
    try:
        assert blocks.end_of_lines(descriptor, 0, 1 << 30) == head.rfind(b"\n") + 1
    finally:
        os.close(descriptor)
    assert len(reads) <= 2


def test_a_line_behind_a_hole_is_found(tmp_path: Path) -> None:
    path = tmp_path / "huge"
    path.write_bytes(b"one\n")
    os.truncate(path, 1 << 30)
    with path.open("ab") as file:
        file.write(b"\nlast\nhalf")
    descriptor = os.open(path, os.O_RDONLY)
    try:
        assert blocks.end_of_lines(descriptor, 0, path.stat().st_size) == (1 << 30) + len(b"\nlast\n")
    finally:
        os.close(descriptor)
