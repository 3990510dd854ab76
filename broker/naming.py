"""Which session a caller named: by its id, or completely by its name or title (SE-20, SE-23, SE-24). Pure.

Owns the search through panels and records together, and the three ways in which it can fail: nobody, several, or one that is
no target. A session that is open counts as its panel shows it, for that is newer than what its records say.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from heapq import nlargest
from itertools import islice, pairwise

from broker.callers import Caller
from broker.clock import wall_clock
from broker.envelope import shown, shown_path
from broker.errors import Refusal
from broker.index.catalogue import Known, Store, asked_for, forms
from broker.panels import Panel, Panels
from broker.wire import SessionState
from shims.agent import Agent
from shims.names import folded

_SIMILAR = 3
_COMPARED = 200
"""Sessions whose names are looked at when nobody has one: the newest ones, and those that it is part of."""
_CLOSEST = 10
"""Names of those that have most letters and pairs of letters in common with it, which are compared letter by letter."""
_LETTERS = 100
"""Of a name that are compared so: it takes half a millisecond for two long ones, in the loop."""

_LIST = "Name another session: list_agent_sessions shows them."


@dataclass(frozen=True, slots=True)
class Candidate:
    """One session: where it is open, what its records say, or both."""

    id: str
    panel: Panel | None
    state: SessionState | None
    known: Known | None

    @property
    def name(self) -> str:
        return (self.state.name if self.state is not None else "") or (self.known.name if self.known is not None else "")

    @property
    def title(self) -> str:
        return (self.state.title if self.state is not None else "") or (self.known.title if self.known is not None else "")

    @property
    def cwd(self) -> str:
        if self.state is not None and self.panel is not None:
            return self.state.cwd or self.panel.cwd
        return self.known.cwd if self.known is not None else ""

    @property
    def moved(self) -> float:
        """When something last happened in it, as far as is known."""
        of_panel = max(self.state.last_human, self.state.opened) if self.state is not None else 0.0
        return max(of_panel, self.known.moved if self.known is not None else 0.0)

    def answers_to(self) -> set[str]:
        whole = {self.known.whole} - {""} if self.known is not None else set()
        return forms(self.name) | forms(self.title) | whole

    @property
    def barred(self) -> str:
        return self.known.barred if self.known is not None and self.state is None else ""


def hosted(target: Agent, caller: Caller, panels: Panels, store: Store) -> dict[str, Candidate]:
    """The sessions that panels hold, this window's first: one that two windows hold is taken in this one (SE-21)."""
    everywhere = sorted(panels.sessions(target.name), key=lambda found: not is_here(found[0], caller))
    found: dict[str, Candidate] = {}
    for panel, state in everywhere:
        found.setdefault(state.id, Candidate(state.id, panel, state, store.session(state.id)))
    return found


def named(target: Agent, caller: Caller, panels: Panels, store: Store, wanted: str) -> Candidate:
    """The session with this id, or the one that answers to this name.

    Raises:
        Refusal: nobody, several, or none that takes messages.
    """
    live = hosted(target, caller, panels, store)
    found = _by_id(target, live, panels, store, wanted)
    if found is None:
        check_ready(target, store)
        matches = _called(live, store, wanted)
        found = _only(target, wanted, matches) if matches else None
        if found is not None and store.left_out:
            raise Refusal(
                "ambiguous_name",
                f"“{shown(wanted)}” is {found.id}, but not provably that one alone: there are more names of {target.product} "
                f"than are kept, and {len(store)} sessions were reached",
                "Pass this id as session_id.",
            )
    if found is None:
        raise _unknown(target, live, store, wanted)
    return _checked(target, found)


def identified(target: Agent, caller: Caller, panels: Panels, store: Store, wanted: str) -> Candidate:
    """The session with this id, and no other that is called so.

    Raises:
        Refusal: nobody, or one that takes no messages.
    """
    found = _by_id(target, hosted(target, caller, panels, store), panels, store, wanted)
    if found is None:
        check_ready(target, store)
        raise Refusal("unknown_session", f"no {target.product} session has this id any more", _LIST)
    return _checked(target, found)


def check_ready(target: Agent, store: Store) -> None:
    """Who is not found among records that are still being read, or are old, may be there all the same (SE-25)."""
    if not store.ready:
        raise Refusal(
            "index_not_ready",
            f"the records of {target.product} are being read ({len(store)} sessions are known of before), so that nobody can say "
            "yet who is meant",
            "Call again in a few seconds, or pass the id of a session that is open.",
        )


def _checked(target: Agent, found: Candidate) -> Candidate:
    if found.barred:
        raise Refusal(
            "not_a_target",
            f"{target.product} session {found.id} takes no messages: {found.barred}",
            _LIST,
        )
    return found


def is_here(panel: Panel, caller: Caller) -> bool:
    """Whether ``panel`` is in the caller's window (SE-21)."""
    return caller.window is not None and panel.window == caller.window


def _by_id(target: Agent, live: dict[str, Candidate], panels: Panels, store: Store, wanted: str) -> Candidate | None:
    return live.get(wanted) or _empty(target, panels, wanted) or _recorded(store, wanted)


def _empty(target: Agent, panels: Panels, wanted: str) -> Candidate | None:
    """A panel's session that nobody has spoken to yet is found by its id alone."""
    for panel in panels:
        if panel.agent == target.name:
            for state in panel.sessions:
                if state.empty and state.id == wanted:
                    return Candidate(state.id, panel, state, None)
    return None


def _recorded(store: Store, wanted: str) -> Candidate | None:
    known = store.session(wanted)
    return Candidate(known.id, None, None, known) if known is not None else None


def _called(live: dict[str, Candidate], store: Store, wanted: str) -> list[Candidate]:
    asked = asked_for(wanted)
    found = {c.id: c for c in live.values() if asked & c.answers_to()}
    for known in store.called(wanted):
        if known.id not in live:
            found[known.id] = Candidate(known.id, None, None, known)
    targets = [candidate for candidate in found.values() if not candidate.barred]
    return targets or list(found.values())


def _only(target: Agent, wanted: str, matches: list[Candidate]) -> Candidate:
    if len(matches) == 1:
        return matches[0]
    now = wall_clock()
    asked = asked_for(wanted)
    lines = "; ".join(
        f"{match.id} in {shown_path(match.cwd) or 'an unknown directory'}, {_age(now - match.moved)}, "
        f"name {'given' if asked & forms(match.name) else 'generated'}{', open' if match.panel is not None else ''}"
        for match in sorted(matches, key=lambda match: match.moved, reverse=True)[:10]
    )
    raise Refusal(
        "ambiguous_name",
        f"{len(matches)} {target.product} sessions answer to “{shown(wanted)}”: {lines}",
        "Pass one of these ids as session_id.",
    )


def _unknown(target: Agent, live: dict[str, Candidate], store: Store, wanted: str) -> Refusal:
    names = {folded(name[:_LETTERS]): name for name in _comparable(live, store, wanted) if name}
    similar = _similar(folded(wanted[:_LETTERS]), names)
    hint = f" Similar: {', '.join(f'“{shown(names[name])}”' for name in similar)}." if similar else ""
    return Refusal(
        "unknown_session",
        f"no {target.product} session has the id or the exact name “{shown(wanted)}”.{hint}",
        'list_agent_sessions shows ids and names; with scope="any" those of all directories.',
    )


def _similar(wanted: str, names: Iterable[str]) -> list[str]:
    """Those of ``names`` that look most like ``wanted``."""
    asked = _letters(wanted)

    def in_common(name: str) -> float:
        letters = _letters(name)
        return len(asked & letters) / ((len(asked) + len(letters)) or 1)

    return get_close_matches(wanted, nlargest(_CLOSEST, names, key=in_common), _SIMILAR, 0.5)


def _letters(name: str) -> set[str]:
    return {*name, *map("".join, pairwise(name))}


def _comparable(live: dict[str, Candidate], store: Store, wanted: str) -> Iterator[str]:
    for known in (*islice(store.containing(wanted), _COMPARED), *store.recent()[:_COMPARED]):
        if not known.barred:
            yield from (known.title, known.name)
    for candidate in live.values():
        yield from (candidate.title, candidate.name)


def _age(seconds: float) -> str:
    if seconds > 365 * 86400 * 20:
        return "last active at an unknown time"
    for unit, length in (("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"last active {int(seconds // length)} {unit} ago"
    return "active just now"
