"""Claude Code as the engine sees it."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

from shims.agent import Agent, Origin, SameAgent
from shims.claude import live, sessions
from shims.claude.inbox import DOOR
from shims.claude.resume import HEADLESS
from shims.claude.shelf import SHELF
from shims.hazards import break_mentions


def _new_key(delivery: str, token: str) -> str:
    del delivery, token
    return str(uuid.uuid4())  # a repeated uuid is swallowed, also after a resume: exactly once (2.1.197, 2.1.332)


def _disarm(text: str) -> tuple[str, tuple[str, ...]]:
    """``@path`` reads that file into the conversation (2.1.197; 2.1.332 without `client_composed`)."""
    text, broken = break_mentions(text)
    note = "an invisible character was put behind each `@` that would have read a file into the conversation"
    return text, (note,) if broken else ()


def _origin(meta: Mapping[str, Any]) -> Origin:
    """The id of the ``tool_use`` block that this call answers (2.1.197, 2.1.332)."""
    tool_use = meta.get("claudecode/toolUseId")
    return Origin(tool_use=tool_use) if isinstance(tool_use, str) else Origin()


AGENT = Agent(
    name="claude",
    product="Claude Code",
    tool="send_to_claude",
    program=live.PROGRAM,
    same_agent=SameAgent.ALLOWED_OR_NAMED,
    opens_any_panel=False,
    queue_outlives=False,
    new_key=_new_key,
    disarm=_disarm,
    holders=live.holders,
    held_by=live.held_by,
    origin=_origin,
    record=sessions.record,
    answer_naming=sessions.answer_naming,
    latest=sessions.latest,
    moved=sessions.moved,
    shelf=SHELF,
    named_by_files=True,  # the registry that the stream's name may come from lags behind a rename (2.1.332)
    store_variable="CLAUDE_CONFIG_DIR",
    default_store=".claude",
    headless=HEADLESS,
    doors=(DOOR,),
)
