"""Codex as the engine sees it."""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from typing import Any

from broker.processes import ProcessId
from shims.agent import Agent, Origin, SameAgent
from shims.codex import live, sessions
from shims.codex.queue import DOOR
from shims.codex.resume import HEADLESS
from shims.codex.shelf import SHELF


def _new_key(delivery: str, token: str) -> str:
    """The client id of the user message: the token, so that the agent's own records name it (SH-52)."""
    del delivery
    return token or f"msg_{secrets.token_hex(9)}"


def _disarm(text: str) -> tuple[str, tuple[str, ...]]:
    """Nothing in a ``text`` input acts on arrival (0.147.0 to 0.171.0)."""
    return text, ()


def _origin(meta: Mapping[str, Any]) -> Origin:
    """The thread that a call belongs to: a sub-agent's is its parent's (0.147.0 to 0.171.0)."""
    turn = meta.get("x-codex-turn-metadata")
    turn = turn if isinstance(turn, Mapping) else {}
    parent = turn.get("parent_thread_id")
    if isinstance(parent, str) and parent:
        root = turn.get("session_id")
        return Origin(root if isinstance(root, str) and root else parent, "the parent thread of the calling sub-agent")
    thread = meta.get("threadId") or turn.get("thread_id")
    return Origin(thread, "the call's thread id") if isinstance(thread, str) else Origin()


def _held_by(store: str, process: ProcessId) -> str:
    """One process holds as many threads as its client has opened; which of them calls, the call says."""
    del store, process
    return ""


AGENT = Agent(
    name="codex",
    product="Codex",
    tool="send_to_codex",
    program=re.compile(r"/codex$"),
    same_agent=SameAgent.NAMED,
    opens_any_panel=True,
    queue_outlives=True,
    new_key=_new_key,
    disarm=_disarm,
    holders=live.holders,
    held_by=_held_by,
    origin=_origin,
    record=sessions.record,
    answer_naming=sessions.answer_naming,
    latest=sessions.latest,
    moved=sessions.moved,
    shelf=SHELF,
    store_variable="CODEX_HOME",
    default_store=".codex",
    longest=1 << 20,  # code points, of `turn/start` and `thread/queue/add` alike (0.171.0)
    headless=HEADLESS,
    doors=(DOOR,),
)
