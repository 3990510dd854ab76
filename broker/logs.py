"""The broker's log: ``logs/broker.log``, rotated, and never a word of a message in it (EN-24).

Owns the handler, the one formatter that drops what an exception says (validation errors quote their input), and for whom
debug lines are written: for everything if the broker itself was told to, else for the calls of a process that was (EN-22).
"""

from __future__ import annotations

import logging
import os
import time
import traceback
from contextvars import ContextVar
from logging.handlers import RotatingFileHandler
from types import TracebackType

from broker.paths import Home

DEBUG = "CROSS_AGENT_DEBUG"
"""Any value turns it on."""

debugged: ContextVar[bool] = ContextVar("debugged", default=False)
"""Whether what runs now serves a call of a process that wants debug lines."""

_SIZE = 2 << 20
_KEPT = 3


class Quiet(logging.Formatter):
    """Where an exception was raised and of which kind; not its text."""

    @staticmethod
    def converter(seconds: float | None) -> time.struct_time:
        return time.gmtime(seconds)

    def __init__(self) -> None:
        super().__init__("%(asctime)s.%(msecs)03dZ %(process)d %(levelname)s %(name)s %(message)s", "%Y-%m-%dT%H:%M:%S")

    def formatException(  # noqa: N802 - the name is logging's
        self,
        ei: tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None],
    ) -> str:
        frames = traceback.extract_tb(ei[2]) if ei[2] is not None else []
        where = " ← ".join(f"{os.path.basename(f.filename)}:{f.lineno} {f.name}" for f in reversed(frames))
        return f"  {ei[0].__name__ if ei[0] else 'error'} at {where}"


class _Wanted(logging.Filter):
    """Lets debug lines pass for those who want them."""

    def __init__(self, *, all_of_them: bool) -> None:
        super().__init__()
        self._all = all_of_them

    def filter(self, record: logging.LogRecord) -> bool:
        return record.levelno > logging.DEBUG or self._all or debugged.get()


def begin_logging(home: Home) -> None:
    """Sends everything of ours to the log file; libraries only when something is wrong."""
    path = os.path.join(home.logs, "broker.log")
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600))
    handler = RotatingFileHandler(path, maxBytes=_SIZE, backupCount=_KEPT, encoding="utf-8")
    handler.setFormatter(Quiet())
    handler.addFilter(_Wanted(all_of_them=DEBUG in os.environ))
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(logging.WARNING)
    for name in ("broker", "mcp_server", "shims"):
        logging.getLogger(name).setLevel(logging.DEBUG)
