"""A gate that a test holds in front of a scripted model: a FIFO, opened once.

Owns the FIFO's file and no process; a release that nobody waits for ends at its bound instead of hanging the test.
"""

from __future__ import annotations

import os
import threading
import uuid
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

REACHED: Final = 30.0
"""Bound for the model to come to the gate."""


class Gate:
    """``str(gate)`` goes into a script as the gate of a ``slow`` step."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / f"gate-{uuid.uuid4().hex[:8]}"
        os.mkfifo(self._path)

    def __str__(self) -> str:
        return str(self._path)

    def release(self, timeout: float = REACHED) -> None:
        """Let the model go on, as soon as it waits here.

        Raises:
            TimeoutError: it did not come.
        """
        opener = threading.Thread(target=self._open_and_close, name="gate", daemon=True)
        opener.start()
        opener.join(timeout)
        if opener.is_alive():
            os.close(os.open(self._path, os.O_RDONLY | os.O_NONBLOCK))  # lets the opener go
            opener.join()
            raise TimeoutError(f"no model came to {self._path} within {timeout} s")

    def _open_and_close(self) -> None:
        with self._path.open("w"):
            pass
