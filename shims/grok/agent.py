"""Grok Build as the engine sees it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from broker.processes import ProcessId
from shims.agent import Agent, Origin, SameAgent
from shims.grok import live, sessions
from shims.grok.leader import DOOR
from shims.grok.resume import HEADLESS
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


def _origin(meta: Mapping[str, Any]) -> Origin:
    """A call names no session (1.0.41)."""
    del meta
    return Origin()


def _held_by(store: str, process: ProcessId) -> str:
    """Of its processes only the terminal registers, and a leader's servers are not its children (1.0.41)."""
    del store, process
    return ""


AGENT = Agent(
    name="grok",
    product="Grok Build",
    tool="send_to_grok",
    program=live.PROGRAM,
    same_agent=SameAgent.ALLOWED_OR_NAMED,
    opens_any_panel=False,
    queue_outlives=False,
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
    store_variable="GROK_HOME",
    default_store=".grok",
    session_variable="GROK_SESSION_ID",  # one server process per session, also of two sessions of one process (1.0.41)
    leads=live.leads,  # what it tells its servers stays right (1.0.41)
    headless=HEADLESS,
    doors=(DOOR,),
    named_by_files=True,  # the extension keeps its tabs' names to itself (1.0.4)
)
