"""A side that stops reading stalls its own direction only, in bounded memory, and loses nothing."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.integration.conftest import HEAVY, Attended, OpenPanel
from tests.integration.processes import resident_kib

MIB = 1 << 20
GROWTH_KIB = 12 * 1024
"""What a burst may add to a shim's peak: some reads of 64 KiB, a line that is parsed, room for the allocator."""

pytestmark = [pytest.mark.requirement("SH-06"), HEAVY]


def _numbered(size: int) -> bytes:
    return b"".join(b"%015d\n" % n for n in range(size // 16))


def test_an_editor_that_stops_reading(open_panel: OpenPanel, attended: Attended, tmp_path: Path) -> None:
    heard = tmp_path / "heard"
    os.mkfifo(heard)
    ear = os.open(heard, os.O_RDONLY | os.O_NONBLOCK)
    editor = open_panel("pour", POUR=str(16 * MIB), POUR_INPUT=str(heard))
    begin = editor.read(16)
    attended(editor)
    before = resident_kib(editor.pid)
    # The other direction lives while this one is full.
    os.set_blocking(ear, True)
    for number in range(200):
        line = b'{"type":"user","method":"x","n":%d}\n' % number
        editor.write(line)
        assert os.read(ear, 65536) == line
    assert resident_kib(editor.pid) - before < GROWTH_KIB
    rest = editor.read(16 * MIB - 16)
    assert begin + rest == _numbered(16 * MIB)
    editor.close_input()
    assert editor.wait() == 0
    os.close(ear)


def test_an_agent_that_stops_reading_while_it_writes(open_panel: OpenPanel, tmp_path: Path) -> None:
    heard = tmp_path / "heard"
    editor = open_panel("pour", POUR=str(10 * MIB), POUR_FIRST="1", POUR_INPUT=str(heard))
    line = b'{"type":"user","text":"' + b"y" * (2 * MIB) + b'"}\n'
    assert editor.exchange(line, 10 * MIB) == _numbered(10 * MIB)
    editor.close_input()
    assert editor.wait() == 0
    assert heard.read_bytes() == line


def test_an_agent_that_never_reads_stops_the_editor(open_panel: OpenPanel, attended: Attended) -> None:
    editor = open_panel("pour", POUR=str(64 * MIB), POUR_FIRST="1")
    editor.read(16)
    attended(editor)
    before = resident_kib(editor.pid)
    assert editor.fill(16 * MIB) < 2 * MIB
    assert resident_kib(editor.pid) - before < GROWTH_KIB
    # Nobody reads anything any more, and still one TERM is enough.
    editor.send_signal(signal.SIGTERM)
    assert editor.wait(2) == -signal.SIGTERM


@pytest.mark.parametrize(
    "size", [64 * MIB, pytest.param(500 * MIB, marks=pytest.mark.full)], ids=lambda size: f"{size // MIB} MiB"
)
def test_a_burst_is_passed_in_bounded_memory(open_panel: OpenPanel, attended: Attended, size: int) -> None:
    editor = open_panel("pour", POUR=str(size))
    editor.read(16)
    attended(editor)
    before = resident_kib(editor.pid)
    left = size - 16
    while left:
        left -= len(editor.read(min(left, 8 * MIB), timeout=60))
    assert resident_kib(editor.pid) - before < GROWTH_KIB
    editor.close_input()
    assert editor.wait() == 0


def test_a_huge_line_is_not_kept(open_panel: OpenPanel, attended: Attended) -> None:
    editor = open_panel("echo")
    line = b'{"type":"user","subtype":"x","method":"y","text":"' + b"z" * (48 * MIB) + b'"}\n'
    editor.exchange(b"{}\n")
    attended(editor)
    before = resident_kib(editor.pid)
    assert editor.exchange(line, timeout=60) == line
    assert resident_kib(editor.pid) - before < GROWTH_KIB
