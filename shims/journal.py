"""The log of a shim: ``logs/shim-<agent>.log``, one line an event, never a message's text (SH-10).

Owns the file and its rotation. A log that cannot be written is no log, and nobody's problem but the reader's.
"""

from __future__ import annotations

import os
import time

_ROTATE_AT = 1 << 20


class Journal:
    """Appends whole lines; many processes may share the file."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._fd = -1
        try:
            if os.path.exists(path) and os.path.getsize(path) > _ROTATE_AT:
                os.replace(path, f"{path}.1")
            self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        except OSError:
            pass  # a read-only or full home: the agent goes on without a log (SH-08)

    def note(self, text: str) -> None:
        if self._fd < 0:
            return
        moment = time.time()
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(moment)) + f".{int(moment * 1000) % 1000:03d}Z"
        line = f"{stamp} {os.getpid()} {' '.join(text.split())}\n"
        try:
            os.write(self._fd, line.encode(errors="backslashreplace"))
        except OSError:
            pass  # disk full: as above
