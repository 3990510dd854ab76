"""Codex as the engine sees it."""

from __future__ import annotations

import re
import secrets

from shims.agent import Agent, SameAgent
from shims.codex import live, sessions
from shims.codex.shelf import SHELF


def _new_key(delivery: str, token: str) -> str:
    """The client id of the user message: the token, so that the agent's own records name it (SH-52)."""
    del delivery
    return token or f"msg_{secrets.token_hex(9)}"


def _disarm(text: str) -> tuple[str, tuple[str, ...]]:
    """Nothing in a ``text`` input acts on arrival (0.147.0 to 0.171.0)."""
    return text, ()


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
    record=sessions.record,
    answer_naming=sessions.answer_naming,
    moved=sessions.moved,
    shelf=SHELF,
    store_variable="CODEX_HOME",
    default_store=".codex",
    longest=1 << 20,  # code points, of `turn/start` and `thread/queue/add` alike (0.171.0)
)
