"""What the Codex stub was started with, and what its version can do.

Owns the reading of argv and environment and the table of version differences; touches no file.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Final

DEFAULT_VERSION: Final = "0.171.0"
QUEUE_SINCE: Final = (0, 154, 0)  # thread/queue/*, paginated history; before it a steering turn/start names a phantom
PREEMPT_SINCE: Final = (0, 171, 0)  # steering cuts off an answer that streams; 0.158.0 still kept it
ROOT_VALUED: Final = frozenset({"-c", "--config", "-C", "--cd", "--enable", "--disable", "-m", "--model", "-p", "-s"})
SERVER_VALUED: Final = frozenset({"--listen", "-c", "--config", "--enable", "--disable", "--session-source"})


class Options:
    """Version and places."""

    __slots__ = ("codex_home", "cwd", "env", "has_queue", "originator", "preempts", "subagent", "version")

    def __init__(self, env: Mapping[str, str]) -> None:
        self.env = env
        self.version = env.get("STUB_CODEX_VERSION") or DEFAULT_VERSION
        number = tuple(int(part) for part in self.version.split("."))
        self.has_queue = number >= QUEUE_SINCE
        self.preempts = number >= PREEMPT_SINCE
        self.cwd = os.getcwd()
        home = env.get("HOME") or os.path.expanduser("~")
        self.codex_home = env.get("CODEX_HOME") or os.path.join(home, ".codex")
        self.originator = env.get("CODEX_INTERNAL_ORIGINATOR_OVERRIDE")
        self.subagent = env.get("STUB_CODEX_SUBAGENT") == "1"


def serves(argv: Sequence[str]) -> bool:
    """Whether argv asks for the app-server on stdio, root options in front of it or not."""
    rest = list(argv)
    while rest and rest[0].startswith("-"):
        flag = rest.pop(0)
        if flag in ROOT_VALUED and rest:
            rest.pop(0)
    if not rest or rest.pop(0) != "app-server":
        return False
    while rest:
        flag = rest.pop(0)
        if not flag.startswith("-"):
            return False  # daemon, proxy, generate-ts: programs of their own
        name, equals, value = flag.partition("=")
        if not equals and name in SERVER_VALUED:
            value = rest.pop(0) if rest else ""
        if name == "--listen" and value != "stdio://":
            return False
    return True
