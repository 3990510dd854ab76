"""Which session is meant (SE-20 to SE-24, panel part). Pure: panels in, one target or one clear refusal out.

Owns the order of resolution: a named session, in this window or another; else this window's panels, by the person's focus;
else a panel that can open a conversation. A named session that does not exist is never replaced by another one. What only the
sessions' records tell, `focus` finds out before.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches

from broker.callers import Caller
from broker.envelope import sanitised
from broker.errors import Refusal
from broker.panels import Panel, Panels
from broker.wire import SessionState
from shims.agent import Agent

_SIMILAR = 3


@dataclass(frozen=True, slots=True)
class Selected:
    """A target. ``by``: `caller`, `panel-focus` or `new`; ``state`` None: a conversation that is yet to be opened."""

    panel: Panel
    state: SessionState | None
    by: str

    @property
    def session(self) -> str:
        return self.state.id if self.state is not None else ""


def resolve(
    target: Agent, caller: Caller, panels: Panels, *, session: str, new: bool, moved: Mapping[str, float] | None = None
) -> Selected:
    """The panel and session that a send goes to.

    Args:
        session: what the caller named: an id, an exact name, or nothing.
        new: the caller wants a new conversation.
        moved: when somebody other than us last moved the sessions that are `tied`, as far as is known.

    Raises:
        Refusal: contradictory, unknown, ambiguous, or nobody there.
    """
    if session and new:
        raise Refusal(
            "contradictory_target",
            "both session_id and new_session were given",
            "Name the session, or ask for a new one, not both.",
        )
    if session:
        return named(target, caller, panels, session)
    if new:
        return _opening(target, caller, panels)
    found = _focused(target, caller, panels, moved or {})
    if found is not None:
        return found
    return _opening(target, caller, panels)


def named(target: Agent, caller: Caller, panels: Panels, wanted: str) -> Selected:
    """The session with this id, or the one that answers to this name."""
    everywhere = sorted(panels.sessions(target.name), key=lambda found: not _here(found[0], caller))
    empty = [(p, s) for p in panels if p.agent == target.name for s in p.sessions if s.empty and s.id]
    for panel, state in (*everywhere, *empty):
        if state.id == wanted:
            return Selected(panel, state, "caller")
    asked = _folded(wanted)
    given = {state.id: (panel, state) for panel, state in everywhere if state.name and _folded(state.name) == asked}
    titled = {state.id: (panel, state) for panel, state in everywhere if state.title and _folded(state.title) == asked}
    matches = {**titled, **given}
    if len(matches) == 1:
        panel, state = next(iter(matches.values()))
        return Selected(panel, state, "caller")
    if matches:
        candidates = "; ".join(
            f"{state.id} in {panel.cwd}, name {'given' if state.id in given else 'generated'}"
            for panel, state in matches.values()
        )
        raise Refusal(
            "ambiguous_name",
            f"{len(matches)} {target.product} sessions answer to “{_shown(wanted)}”: {candidates}",
            "Pass one of these ids as session_id.",
        )
    names = [name for _, state in everywhere for name in (state.name, state.title) if name]
    similar = get_close_matches(wanted, names, _SIMILAR, 0.5)
    hint = f" Similar: {', '.join(f'“{_shown(name)}”' for name in similar)}." if similar else ""
    raise Refusal(
        "unknown_session",
        f"no live {target.product} session has the id or the exact name “{_shown(wanted)}”.{hint}",
        "list_agent_sessions shows ids and names. Only sessions that are open in an editor panel behind a shim are reached.",
    )


def tied(target: Agent, caller: Caller, panels: Panels) -> dict[str, Panel]:
    """This window's sessions, by id, among which only their records tell which was in use last; empty when they need not."""
    here = _candidates(target, caller, panels)
    if any(state.last_human for _, state in here):
        return {}
    sessions = {state.id: panel for panel, state in here}
    return sessions if len(sessions) > 1 else {}


def _focused(target: Agent, caller: Caller, panels: Panels, moved: Mapping[str, float]) -> Selected | None:
    """This window's panels: the one a human typed into last, else the one that moved last, else the one opened last (SE-22)."""
    here = _candidates(target, caller, panels)
    if not here:
        return None
    panel, state = max(here, key=lambda found: (found[1].last_human, moved.get(found[1].id, 0.0), found[1].opened))
    return Selected(panel, state, "panel-focus")


def _candidates(target: Agent, caller: Caller, panels: Panels) -> list[tuple[Panel, SessionState]]:
    return [
        (panel, state)
        for panel, state in panels.sessions(target.name)
        if _here(panel, caller) and state.id != caller.session and state.accepts and not panel.closing
    ]


def _opening(target: Agent, caller: Caller, panels: Panels) -> Selected:
    """A panel of this window that can open a conversation (SH-46, SH-54)."""
    for panel in panels:
        if panel.agent != target.name or panel.closing or not _here(panel, caller):
            continue
        empty = panel.empty_session()
        if empty is not None and empty.accepts:
            return Selected(panel, empty if empty.id else None, "new")
        if target.opens_any_panel:
            return Selected(panel, None, "new")
    where = "in this window" if caller.window is not None else "that this caller could be shown to share a window with"
    raise Refusal(
        "no_session",
        f"no {target.product} panel is open {where}",
        "Open one in the editor, or name a session of another window: list_agent_sessions shows them.",
    )


def _here(panel: Panel, caller: Caller) -> bool:
    return caller.window is not None and panel.window == caller.window


def _folded(name: str) -> str:
    return unicodedata.normalize("NFC", name.strip()).casefold()


def _shown(name: str) -> str:
    return " ".join(sanitised(name).split())[:80]
