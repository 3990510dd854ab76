"""An agent's own interface on a pseudo-terminal, and the end of everything that it leaves behind.

Owns the child process and what it has drawn. What is drawn is known without the control sequences and without white space:
agents draw what changes, cell by cell, and move the cursor where a space would be.
"""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pexpect

from tests.integration.processes import gone_within
from tests.real.homes import MARK
from tests.real.panels.record import WAIT

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from typing_extensions import Self

_CONTROL: Final = re.compile(
    r"\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)"  # what is said to the terminal itself
    r"|\x1b[P_^][^\x1b]*\x1b\\"
    r"|\x1b\[[0-9:;<=>?]*[ -/]*[@-~]"
    r"|\x1b[ -/]+[0-~]"
    r"|\x1b[0-Z=>\\^_`-~]"
    r"|\s"
)
_ANSWERS: Final = {b"\x1b[6n": "\x1b[1;1R", b"\x1b[c": "\x1b[?62;c"}
"""What a terminal answers when it is asked where its cursor is, and what it can do; without that Codex and Grok do not start."""

_END: Final = 10.0
"""Seconds that an agent gets to end by itself."""


class Terminal:
    """A terminal in which a program runs; a context manager."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], cwd: Path) -> None:
        self._child = pexpect.spawn(
            command[0],
            list(command[1:]),
            cwd=str(cwd),
            env={**environment, "PWD": str(cwd)},
            dimensions=(50, 160),
            timeout=WAIT,
        )
        self._changed = threading.Condition()
        self._drawn = ""
        self._ended = False
        self._reader = threading.Thread(target=self._read, name="terminal", daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        return int(self._child.pid)

    # what the person does

    def type(self, text: str) -> None:
        """Types ``text`` and then the enter key: together they would be taken for something pasted."""
        self._give(text, text)

    def paste(self, text: str) -> None:
        """Pastes ``text``, then the enter key: what is typed is taken for pasted where it comes fast, and enter for a line."""
        self._give(text, f"\x1b[200~{text}\x1b[201~")

    def press(self, key: str) -> None:
        self._child.send(key)

    def _give(self, text: str, sent: str) -> None:
        before = len(self.drawn)
        self._child.send(sent)
        self.shows(text[:20], after=before)
        self._child.send("\r")

    # what the person sees

    @property
    def drawn(self) -> str:
        """Everything, from the start."""
        with self._changed:
            return self._drawn

    def shows(self, words: str, *, after: int = 0, timeout: float = WAIT) -> int:
        """Waits until ``words`` are drawn; where they end in `drawn`.

        Raises:
            TimeoutError: they were not, in time or before the program ended; the text tells what was drawn last.
        """
        wanted = "".join(words.split())
        deadline = time.monotonic() + timeout
        with self._changed:
            while (found := self._drawn.find(wanted, after)) < 0:
                if self._ended or not self._changed.wait(deadline - time.monotonic()):
                    raise TimeoutError(f"{wanted!r} was not drawn: {self._drawn[-3000:]}")
            return found + len(wanted)

    def redraws(self) -> None:
        """Has all of it drawn again, as after a change of its size: what stood there before is drawn in parts alone."""
        rows, columns = self._child.getwinsize()
        self._child.setwinsize(rows ^ 1, columns)

    # its end

    def kill(self) -> None:
        """SIGKILL, and gone."""
        os.kill(self.pid, signal.SIGKILL)
        self._child.wait()

    def close(self) -> None:
        """Closes the window."""
        self._child.close(force=True)
        self._reader.join(WAIT)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _read(self) -> None:
        rest = b""
        with suppress(pexpect.EOF, OSError, ValueError):  # the terminal was closed
            while True:
                rest += self._child.read_nonblocking(65536, None)
                for question, answer in _ANSWERS.items():
                    if question in rest:
                        self._child.send(answer)
                whole = _up_to_a_sequence(rest)
                drawn = _CONTROL.sub("", rest[:whole].decode(errors="replace"))
                rest = rest[whole:]
                with self._changed:
                    self._drawn += drawn
                    self._changed.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()


def _up_to_a_sequence(data: bytes) -> int:
    """How much of ``data`` can be read by itself: its last control sequence, or character, may go on."""
    escape = data.rfind(b"\x1b")
    if escape >= 0 and len(data) - escape < 256 and not _CONTROL.match(data[escape:].decode(errors="replace")):
        return escape
    end = len(data)
    while end and len(data) - end < 3 and data[end - 1] & 0xC0 == 0x80:
        end -= 1
    return end - 1 if end and data[end - 1] >= 0xC0 and len(data) - end + 1 < _length(data[end - 1]) else len(data)


def _length(lead: int) -> int:
    """Bytes of the character that begins with ``lead``."""
    return 4 if lead >= 0xF0 else 3 if lead >= 0xE0 else 2


# What stays behind: Codex's daemon and its updater, Grok's leader, commands of a turn that was cut off


def end_agents(home: Path) -> None:
    """Ends, by pid, every program that runs for the person of ``home`` in this run of tests and is not the bridge's own."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        found = _agents(home)
        for pid in found:
            with suppress(ProcessLookupError):
                os.kill(pid, number)
        if all(gone_within(pid, _END) for pid in found) and not _agents(home):
            return


def _agents(home: Path) -> list[int]:
    wanted = {f"HOME={home}".encode(), f"{MARK}={os.environ.get(MARK, '')}".encode()}
    found = []
    for entry in os.scandir("/proc"):
        if not entry.name.isdecimal() or int(entry.name) == os.getpid():
            continue
        try:
            environment = set(Path(entry.path, "environ").read_bytes().split(b"\0"))
            program = os.readlink(f"{entry.path}/exe")
        except OSError:
            continue  # gone, or somebody else's
        if wanted <= environment and os.path.realpath(program) != os.path.realpath(sys.executable):
            found.append(int(entry.name))
    return found
