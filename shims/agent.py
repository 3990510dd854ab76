"""What the engine asks of an agent: one interface, one description each in ``shims/<agent>/agent.py``.

Owns the interface and the finding of descriptions: a new agent is one new folder. The engine knows agents only through
this; everything odd about one of them is a field or a function here, with the measured version beside it in its folder.
"""

from __future__ import annotations

import os
import pkgutil
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any, NamedTuple

import shims
from broker.processes import ProcessId
from shims.door import Door
from shims.headless import Headless
from shims.shelf import Shelf


class Found(str, Enum):
    """What an agent's own records say of a message, looked up by its key (DE-22)."""

    ABSENT = "absent"
    """There are records, or it is certain why there are none, and no trace: it never got in, or went with its process.
    Handing it over again is safe once every holder is gone."""
    WAITING = "waiting"
    """In a queue of the agent's that outlives its process: it will run when the session is opened next."""
    OPEN = "open"
    """Its turn began and no end is recorded."""
    ANSWERED = "answered"
    INTERRUPTED = "interrupted"
    UNKNOWN = "unknown"
    """The records are missing or cannot be read, or do not decide it."""


@dataclass(frozen=True, slots=True)
class Record:
    """What was found: ``text`` is the turn's final words (ANSWERED), ``turn`` the agent's id for it where it has one."""

    found: Found
    text: str = ""
    turn: str = ""


@dataclass(frozen=True, slots=True)
class Latest:
    """What the end of a session's records tells of it; all empty where they tell nothing.

    Attributes:
        text: the final words of the last finished turn that had any; ended: when, wall-clock seconds.
        open: a turn has begun, and no end of it is recorded.
        since: all that the agent has said, for people to see, after the instant that was asked about.
    """

    text: str = ""
    ended: float = 0.0
    open: bool = False
    since: str = ""


class Origin(NamedTuple):
    """What a call of a tool carries of where it comes from, in its ``_meta``; ``how`` names the evidence for ``session``."""

    session: str = ""
    how: str = ""
    tool_use: str = ""
    """The agent's id for this use of the tool: whoever was seen beginning it makes the call."""


class SameAgent(str, Enum):
    """What a send to a session of the sender's own kind needs (DE-51)."""

    ALLOWED_OR_NAMED = "allowed or named"
    """`allow_same_agent=true` or an explicit session id."""
    NAMED = "named"
    """An explicit session id; nothing else suffices."""


@dataclass(frozen=True, slots=True)
class Agent:
    """One product.

    Attributes:
        name: `claude`; product: `Claude Code`; tool: the MCP tool that sends to it.
        program: is found in the path of its executable, to tell it among a process's ancestors.
        same_agent: what a send between two of its sessions needs.
        opens_any_panel: any panel process can open a further conversation (else only one that is still empty).
        queue_outlives: a message that waits in it survives its process, and runs when the session is opened next.
        new_key: the agent-side key of a delivery, from its id and its request token (empty for what is not awaited).
        disarm: makes text harmless that would act on arrival, and says what was changed.
        holders: which processes hold a session, by the agent's own registry or lock: (store, session) → processes.
        held_by: the session that a process holds, by the same registry where it tells: (store, process) → id, or empty.
        origin: what the ``_meta`` of a call says of the session that makes it.
        session_variable: by which it tells an MCP server exactly whose it is; empty when it does not, or not for long.
        leads: whether a process of it with these arguments serves the sessions of others: its MCP servers are theirs.
        record: what the agent's files say of a key: (store, session, key) → Record. Blocking; run in the reader process.
        answer_naming: the final words of the turn that closes with a token: (store, session, token) → Record. Blocking.
        latest: the last finished turn, whether one is open, and what was said after an instant: (store, session, wall-clock
            seconds) → Latest. Blocking.
        moved: when somebody other than us last moved a session, by its records, 0 when they do not say: (store, session, the
            keys of what was ours) → wall-clock seconds. Blocking.
        shelf: its store, as the index of sessions reads it.
        store_variable: the environment variable that moves its data directory; default_store: where it is, below the home.
        named_by_files: what its files call a session counts more than what its stream said, which may be older.
        longest: characters of one input that it takes at most, None where no limit is known.
        headless: its command line for turns without a terminal, None where it has none.
        doors: how its sessions are reached live without a shim, the better ones first.
    """

    name: str
    product: str
    tool: str
    program: re.Pattern[str]
    same_agent: SameAgent
    opens_any_panel: bool
    queue_outlives: bool
    new_key: Callable[[str, str], str]
    disarm: Callable[[str], tuple[str, tuple[str, ...]]]
    holders: Callable[[str, str], list[ProcessId]]
    held_by: Callable[[str, ProcessId], str]
    origin: Callable[[Mapping[str, Any]], Origin]
    record: Callable[[str, str, str], Record]
    answer_naming: Callable[[str, str, str], Record]
    latest: Callable[[str, str, float], Latest]
    moved: Callable[[str, str, Collection[str]], float]
    shelf: Shelf
    store_variable: str
    default_store: str
    longest: int | None = None
    session_variable: str = ""
    leads: Callable[[list[str]], bool] = lambda _: False
    named_by_files: bool = False
    headless: Headless | None = None
    doors: tuple[Door, ...] = ()

    def store_in(self, environment: Mapping[str, str]) -> str:
        """Its data directory as a process with ``environment`` sees it."""
        home = environment.get("HOME") or os.path.expanduser("~")
        return environment.get(self.store_variable) or os.path.join(home, self.default_store)


@cache
def agents() -> dict[str, Agent]:
    """Every agent that has a description, by name."""
    found = {}
    for module in pkgutil.iter_modules(shims.__path__):
        if module.ispkg and find_spec(f"shims.{module.name}.agent"):
            agent: Agent = import_module(f"shims.{module.name}.agent").AGENT
            found[agent.name] = agent
    return found


def agent(name: str) -> Agent:
    """The description of ``name``. Raises KeyError for an unknown one."""
    return agents()[name]
