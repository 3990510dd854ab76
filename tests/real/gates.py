"""A gate that a test holds in front of a scripted model or a command: a FIFO, opened once.

Owns the FIFO's file and no process; waiting for somebody who never comes ends at its bound instead of hanging the test.
"""

from __future__ import annotations

import os
import threading
import uuid
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

REACHED: Final = 30.0
"""Bound for the model or the command to come to the gate."""


class Gate:
    """``str(gate)`` goes into a script as the gate of a ``slow`` step, or into a command that reads it (``wc -c <``).

    Not into ``cat``: Claude Code 2.1.197 reads the file of a ``cat`` itself when the command is over, and hangs on a FIFO.
    """

    def __init__(self, directory: Path) -> None:
        self._path = directory / f"gate-{uuid.uuid4().hex[:8]}"
        os.mkfifo(self._path)
        self._writer: int | None = None

    def __str__(self) -> str:
        return str(self._path)

    def reached(self, timeout: float = REACHED) -> None:
        """Returns as soon as somebody waits here; he goes on waiting.

        Raises:
            TimeoutError: nobody came.
        """
        opener = threading.Thread(target=self._open, name="gate", daemon=True)
        opener.start()
        opener.join(timeout)
        if opener.is_alive():
            os.close(os.open(self._path, os.O_RDONLY | os.O_NONBLOCK))  # lets the opener go
            opener.join()
            self._close()
            raise TimeoutError(f"nobody came to {self._path} within {timeout} s")

    def release(self, timeout: float = REACHED) -> None:
        """Let whoever waits here go on, as soon as he is there.

        Raises:
            TimeoutError: nobody came.
        """
        if self._writer is None:
            self.reached(timeout)
        self._close()

    def _open(self) -> None:
        self._writer = os.open(self._path, os.O_WRONLY)

    def _close(self) -> None:
        if self._writer is not None:
            os.close(self._writer)
            self._writer = None
