"""Never the shim itself: an agent that leads back here is noticed by what its start left in its environment (SH-04).

Owns ``XAGENT_LAUNCH``, which bin/claude-shim reads and writes by the same rules:
``agent|pid|count|depth|candidate[|candidate left out]…``. Every launch sets it, with the pid that is about to become the
candidate. A start for the same agent whose own pid that is, or its parent's, comes from the candidate: exec keeps the pid, and
a wrapper that forks is the parent. When that has happened `_OFTEN` times, the candidate is left out; less often it may be an
agent that starts its own kind. An agent that another one started through its shell begins anew, and only `depth` grows.
No text of a file can tell as much: what it calls may depend on anything. Imports `os` alone; loaded before the agent runs.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

VARIABLE = "XAGENT_LAUNCH"

_OFTEN = 3


class Loop:
    """What led to this start of ``agent``.

    Attributes:
        left_out: candidates that only lead back here.
        replaces: whether this process is what a launch has become: whoever launched it stands before us.
    """

    __slots__ = ("_count", "_depth", "agent", "left_out", "replaces")

    def __init__(self, agent: str, environment: Mapping[str, str]) -> None:
        self.agent = agent
        self.left_out: tuple[str, ...] = ()
        self.replaces = False
        self._count = self._depth = 0
        named, *numbers = environment.get(VARIABLE, "").split("|")[:4]
        candidates = environment.get(VARIABLE, "").split("|")[4:]
        if named != agent or not candidates or not all(text.isascii() and text.isdecimal() for text in numbers):
            return
        pid, count, depth = map(int, numbers)
        self._depth = min(depth + 1, 99)
        self.replaces = pid == os.getpid()
        if not self.replaces and pid != os.getppid():
            return
        self._count = count + 1
        self.left_out = tuple(candidates[1:])
        if self._count >= _OFTEN:
            self._count = 0
            self.left_out = (*candidates[1:], candidates[0])

    def mark(self, candidate: str) -> None:
        """Says that this process is about to become ``candidate``."""
        parts = (self.agent, str(os.getpid()), str(self._count), str(self._depth), candidate, *self.left_out)
        os.environ[VARIABLE] = "|".join(parts)
