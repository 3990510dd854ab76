"""What the index knows: every session of every store, in memory, found by id, by name and by time. No I/O.

Owns how the words of several files become one session: of its own files the one with the highest rank counts, a name from a
file of names counts more than that of a card. Who asks gets sessions of the stores that he names, and nothing is read for it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

from broker.envelope import shown
from broker.index.feed import Change, unpacked_told
from shims.names import LONGEST_TITLE, apart, folded, is_mark, mark
from shims.shelf import Hold


class Known(NamedTuple):
    """One session, as its files show it. ``place``: its directory, resolved; ``barred``: why it is no target."""

    agent: str
    store: str
    id: str
    cwd: str
    place: str
    name: str
    title: str
    moved: float
    barred: str
    whole: str = ""
    """The mark of its title, where that was too long to be kept."""

    def answers_to(self) -> set[str]:
        found = forms(self.name) | forms(self.title)
        return found | {self.whole} if self.whole else found


def forms(name: str) -> set[str]:
    """What somebody may write who means this name: as it is, or as lists show it, folded (SE-24)."""
    if name.isascii() and name.isprintable() and "  " not in name and len(name) <= LONGEST_TITLE:
        found = {folded(name)}  # it is shown as it is, and most names are
    else:
        found = {folded(name), folded(shown(name))}
    return found - {""}


def asked_for(wanted: str) -> set[str]:
    """The forms of which one must be a session's for ``wanted`` to mean it."""
    asked = folded(wanted)
    return {asked, mark(wanted)} if asked and not is_mark(asked) else set()


class _Leaf(NamedTuple):
    """What one file tells, by session."""

    card: Known | None
    """Its session, if it tells of one, as far as it tells."""
    rank: float
    names: Mapping[str, str]
    holds: tuple[Hold, ...]
    left_out: bool = False

    def ids(self) -> set[str]:
        return {self.card.id, *self.names} if self.card is not None else set(self.names)

    def unlike(self, other: _Leaf) -> set[str]:
        """The sessions of which the two do not tell the same."""
        cards = {leaf.card.id for leaf in (self, other) if leaf.card is not None}
        same = (self.card, self.rank) == (other.card, other.rank)
        names = {n for n in self.names.keys() | other.names.keys() if self.names.get(n) != other.names.get(n)}
        return names if same else cards | names


_NO_NAMES: Mapping[str, str] = {}
_NOTHING = _Leaf(None, 0.0, _NO_NAMES, ())


class Store:
    """The sessions of one data directory of one agent."""

    def __init__(self, agent: str, path: str) -> None:
        self.agent = agent
        self.path = path
        self.ready = False
        """Whether all that it held when it was last looked at is known."""
        self.watched = False
        """Whether changes are told by themselves."""
        self._leaves: dict[int, _Leaf] = {}
        self._bounded: set[int] = set()
        self._of: dict[str, tuple[int, ...]] = {}
        """The leaves that say something of a session."""
        self._sessions: dict[str, Known] = {}
        self._called: dict[str, tuple[str, ...]] = {}
        self._recent: list[Known] | None = []

    def __len__(self) -> int:
        return len(self._sessions)

    def apply(self, changes: Iterable[Change]) -> set[str]:
        """Takes over what was told; the ids of sessions that are not what they were."""
        moved: set[str] = set()
        for change in changes:
            told = self._read(change.told)
            if told.left_out:
                self._bounded.add(change.leaf)
            else:
                self._bounded.discard(change.leaf)
            before = self._leaves.pop(change.leaf, _NOTHING)
            if told is not _NOTHING:
                self._leaves[change.leaf] = told
            card = told.card
            if before is _NOTHING and card is not None and not told.names and card.id not in self._of:
                self._of[card.id] = (change.leaf,)  # the first that is told of a session, which is nearly all at a start
                self._become(card.id, None, card)
                moved.add(card.id)
                continue
            was, now = before.ids(), told.ids()
            for identifier in was - now:
                self._of[identifier] = tuple([leaf for leaf in self._of[identifier] if leaf != change.leaf])
            for identifier in now - was:
                self._of[identifier] = (*self._of.get(identifier, ()), change.leaf)
            for identifier in told.unlike(before) if was else now:
                if self._renew(identifier):
                    moved.add(identifier)
        if moved:
            self._recent = None
        return moved

    def become(self, other: Store) -> set[str]:
        """Takes over all that ``other`` knows, who is not used any more; the ids of sessions that are not what they were."""
        mine, others = self._sessions, other._sessions
        self._leaves, self._of, self._sessions, self._called = other._leaves, other._of, others, other._called
        self._recent, self._bounded = None, other._bounded
        return {identifier for identifier in mine.keys() | others.keys() if mine.get(identifier) != others.get(identifier)}

    def session(self, identifier: str) -> Known | None:
        return self._sessions.get(identifier)

    def called(self, name: str) -> list[Known]:
        """The sessions whose name or title is this one, completely."""
        found = dict.fromkeys(identifier for form in asked_for(name) for identifier in self._called.get(form, ()))
        return [self._sessions[identifier] for identifier in found]

    def containing(self, part: str) -> Iterator[Known]:
        """Sessions whose name or title has ``part`` in it: what a person may have meant."""
        asked = folded(part)
        found = (identifiers for name, identifiers in self._called.items() if asked in name and not is_mark(name))
        return (self._sessions[identifier] for identifiers in found for identifier in identifiers)

    def recent(self) -> list[Known]:
        """Every session, the one that moved last first."""
        if self._recent is None:
            self._recent = sorted(self._sessions.values(), key=lambda known: known.moved, reverse=True)
        return self._recent

    def holds(self) -> list[Hold]:
        """What registries say of who holds which session; whether it is true is not looked at."""
        return [hold for leaf in self._leaves.values() for hold in leaf.holds]

    @property
    def left_out(self) -> bool:
        """There are more names than are known: one that is found once may be another one's as well (SE-25)."""
        return bool(self._bounded)

    def _renew(self, identifier: str) -> bool:
        """Puts together what the leaves say of a session; False: nothing else than before."""
        before, now = self._sessions.get(identifier), self._put_together(identifier)
        if now == before:
            return False
        self._become(identifier, before, now)
        return True

    def _become(self, identifier: str, before: Known | None, now: Known | None) -> None:
        if now is not None:
            self._sessions[identifier] = now
        else:
            del self._sessions[identifier]
        was = before.answers_to() if before is not None else set()
        called = now.answers_to() if now is not None else set()
        for name in was - called:
            left = tuple(other for other in self._called[name] if other != identifier)
            if left:
                self._called[name] = left
            else:
                del self._called[name]
        for name in called - was:
            self._called[name] = (*self._called.get(name, ()), identifier)

    def _put_together(self, identifier: str) -> Known | None:
        leaves = self._of[identifier]
        if not leaves:
            del self._of[identifier]
            return None
        told = [self._leaves[leaf] for leaf in sorted(leaves)]  # in whatever order it was told, it comes to the same
        cards = [(one.rank, one.card.moved, one.card) for one in told if one.card is not None and one.card.id == identifier]
        if not cards:
            return None
        card = max(cards)[2]
        names = [one.names[identifier] for one in told if identifier in one.names]
        return card._replace(name=names[-1]) if names else card

    def _read(self, data: bytes | None) -> _Leaf:
        """What a leaf told, without what only the index process needs."""
        if data is None:
            return _NOTHING
        try:
            _, cards, names, holds, _, left_out = unpacked_told(data)
            card, rank = None, 0.0
            if cards:
                session, cwd, name, title, moved, rank, barred, place = cards[0]
                title, whole = apart(title)
                cwd = sys.intern(cwd)
                place = sys.intern(place) or cwd
                card = Known(self.agent, self.path, session, cwd, place, name, title, moved, barred, whole)
            return _Leaf(card, rank, dict(names) if names else _NO_NAMES, holds, bool(left_out))
        except (TypeError, ValueError):
            return _NOTHING


class Catalogue:
    """All stores.

    Args:
        changed: called with the sessions of one agent that are not what they were.
        moved: called with a store and the ids of those, also of the ones that are not there any more.
    """

    def __init__(
        self,
        changed: Callable[[str, Iterable[Known]], None] = lambda _agent, _sessions: None,
        moved: Callable[[Store, Collection[str]], None] = lambda _store, _ids: None,
    ) -> None:
        self._stores: dict[tuple[str, str], Store] = {}
        self._changed = changed
        self._moved = moved

    def store(self, agent: str, path: str) -> Store:
        """The store at ``path``; an empty one that is not ready when nobody has told of it."""
        return self._stores.setdefault((agent, path), Store(agent, path))

    def forget(self, store: Store) -> None:
        """``store`` is told of no more."""
        self._stores.pop((store.agent, store.path), None)

    def stores(self) -> Iterator[Store]:
        return iter(tuple(self._stores.values()))

    def apply(self, store: Store, changes: Iterable[Change]) -> None:
        self._tell(store, store.apply(changes))

    def replace(self, store: Store, fresh: Store) -> None:
        """``store`` knows from here on what ``fresh`` does, and nothing else."""
        self._tell(store, store.become(fresh))

    def _tell(self, store: Store, moved: Collection[str]) -> None:
        self._changed(store.agent, [known for identifier in moved if (known := store.session(identifier)) is not None])
        self._moved(store, moved)
