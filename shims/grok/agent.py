"""Grok Build as the engine sees it."""

from __future__ import annotations

import re

from shims.agent import Agent, SameAgent
from shims.grok import live, sessions
from shims.grok.shelf import SHELF
from shims.hazards import break_mentions


def _new_key(delivery: str, token: str) -> str:
    """The prompt id: it tags every update of the turn, here and on disk, and by its form ours are told from others (SH-61)."""
    del token
    return delivery


def _disarm(text: str) -> tuple[str, tuple[str, ...]]:
    """``@path`` reads that file into the conversation (1.0.41)."""
    text, broken = break_mentions(text)
    note = "an invisible character was put behind each `@` that would have read a file into the conversation"
    return text, (note,) if broken else ()


AGENT = Agent(
    name="grok",
    product="Grok Build",
    tool="send_to_grok",
    program=re.compile(r"/grok(-native|-\d[^/]*)?$"),
    same_agent=SameAgent.ALLOWED_OR_NAMED,
    opens_any_panel=False,
    queue_outlives=False,
    new_key=_new_key,
    disarm=_disarm,
    holders=live.holders,
    record=sessions.record,
    answer_naming=sessions.answer_naming,
    moved=sessions.moved,
    shelf=SHELF,
    store_variable="GROK_HOME",
    default_store=".grok",
)
