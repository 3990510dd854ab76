"""How the ends of things show: end-of-file, closed pipes and exits pass a shim as if it were not there."""

from __future__ import annotations

import signal
import time

import pytest

from tests.integration.conftest import HEAVY, OpenPanel
from tests.integration.editor import Editor

PROMPT = 1.0
"""Seconds within which a shim must have followed its agent."""


def _ends_within(editor: Editor, seconds: float) -> int:
    begun = time.monotonic()
    status = editor.wait()
    assert time.monotonic() - begun < seconds
    assert editor.errors() == b""
    return status


@pytest.mark.requirement("SH-13")
def test_an_agent_that_ends_while_stdin_is_open(open_panel: OpenPanel) -> None:
    editor = open_panel("ends", ENDS="exit:9")
    editor.write(b"\n")
    assert editor.read(10) == b"last words"
    assert _ends_within(editor, PROMPT) == 9


@pytest.mark.requirement("SH-07", "SH-13")
@HEAVY
def test_an_agent_that_ends_at_once(open_panel: OpenPanel) -> None:
    for _ in range(10):
        editor = open_panel("ends", ENDS="exit:9", ENDS_AT_ONCE="1")
        assert editor.read_rest() == b"last words"
        assert _ends_within(editor, PROMPT) == 9


@pytest.mark.requirement("SH-13")
@pytest.mark.parametrize("kind", ["silent", "loud"])
def test_a_grandchild_with_the_agents_stdio_holds_nobody_up(open_panel: OpenPanel, kind: str) -> None:
    editor = open_panel("lingering", LINGERING=kind)
    editor.write(b"\n")
    assert editor.read_rest().startswith(b"still here\n")
    assert _ends_within(editor, PROMPT) == 4


@pytest.mark.requirement("SH-06")
@pytest.mark.parametrize("size", [10, 1 << 20])
def test_all_output_after_an_early_end_of_file_arrives(open_panel: OpenPanel, size: int) -> None:
    editor = open_panel("late", LATE_BYTES=str(size))
    editor.close_input()
    assert editor.read_rest() == (b"0123456789abcde\n" * (size // 16 + 1))[:size]
    assert _ends_within(editor, PROMPT) == 6


@pytest.mark.requirement("SH-06")
def test_an_agent_that_closes_its_stdin_closes_the_editors(open_panel: OpenPanel) -> None:
    editor = open_panel("deaf")
    editor.read_line()
    with pytest.raises((BrokenPipeError, ConnectionResetError)):
        while True:
            editor.write(b"anybody?\n" * 1000)
    editor.send_signal(signal.SIGTERM)
    assert _ends_within(editor, PROMPT) == -signal.SIGTERM


@pytest.mark.requirement("SH-06")
def test_an_agent_that_closes_its_stdout_goes_on(open_panel: OpenPanel) -> None:
    editor = open_panel("mute")
    assert editor.read_rest() == b"bye\n"
    editor.write(b"{}\n" * 1000)
    assert editor.process.poll() is None
    editor.close_input()
    assert _ends_within(editor, PROMPT) == 5


@pytest.mark.requirement("SH-06")
@pytest.mark.parametrize("stdio", ["sockets", "pipes"])
def test_a_reader_that_is_gone_ends_the_agents_writing(open_panel: OpenPanel, stdio: str) -> None:
    editor = open_panel("pour", stdio=stdio, POUR=str(64 << 20))
    editor.read(16)
    editor.close_output()
    assert _ends_within(editor, 5) == -signal.SIGPIPE


@pytest.mark.requirement("SH-06")
def test_a_reader_that_is_gone_does_not_disturb_an_agent_that_is_silent(open_panel: OpenPanel) -> None:
    editor = open_panel("late", LATE_BYTES="0")
    editor.close_output()
    editor.write(b"{}\n" * 100_000)
    assert editor.process.poll() is None
    editor.close_input()
    assert _ends_within(editor, PROMPT) == 6


@pytest.mark.requirement("SH-06")
def test_last_words_nobody_reads_do_not_make_a_shim_immortal(open_panel: OpenPanel) -> None:
    """The agent is gone, the editor does not read: TERM still ends the shim, as it would have ended the agent."""
    editor = open_panel("late", stdio="pipes", LATE_BYTES=str(120_000))
    editor.close_input()
    editor.nothing_comes(0)
    with pytest.raises(AssertionError):
        editor.wait(1)
    editor.send_signal(signal.SIGTERM)
    assert _ends_within(editor, PROMPT) == 6
