"""What the index knows, put together from what single files tell: the same in whatever order it was told."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.index.catalogue import Catalogue, Known, Store, asked_for
from broker.index.feed import Change, packed_told
from shims.names import folded, kept
from shims.shelf import Card, Hold, Told

pytestmark = pytest.mark.requirement("SE-06")

IDS = st.sampled_from(["s1", "s2", "s3"])
NAMES = st.sampled_from(["", "one", "One ", "ONE", "two", "é", "e\u0301", "\ud83d"])
CARDS = st.builds(
    Card,
    IDS,
    cwd=st.sampled_from(["", "/w"]),
    name=NAMES,
    title=NAMES,
    moved=st.sampled_from([0.0, 1.0, 2.0]),
    rank=st.sampled_from([0.0, 1.0]),
    barred=st.sampled_from(["", "archived"]),
    place=st.just(""),
)
TOLD = st.builds(
    Told,
    read=st.just(0),
    memory=st.just(""),
    cards=st.lists(CARDS, max_size=1).map(tuple),
    names=st.dictionaries(IDS, NAMES, max_size=3).map(lambda names: tuple(names.items())),
    holds=st.lists(st.builds(Hold, IDS, st.integers(1, 9), st.just(""), st.just("")), max_size=2).map(tuple),
)
CHANGES = st.lists(st.tuples(st.integers(1, 5), st.none() | TOLD), max_size=25)


def change(leaf: int, told: Told | None) -> Change:
    return Change(leaf, None if told is None else packed_told(told))


def state(store: Store) -> object:
    return (
        {identifier: store.session(identifier) for identifier in ("s1", "s2", "s3")},
        sorted(store.holds()),
        {name: sorted(known.id for known in store.called(name)) for name in ("one", "two", "é", "\ud83d", "")},
    )


def filled(changes: Iterable[tuple[int, Told | None]]) -> Store:
    store = Store("claude", "/h")
    store.apply(change(*each) for each in changes)
    return store


@given(CHANGES, st.randoms(use_true_random=False))
def test_any_sequence_of_changes_comes_to_what_its_end_alone_does(changes: list[tuple[int, Told | None]], random: object) -> None:
    last = list(dict(changes).items())
    random.shuffle(last)  # type: ignore[attr-defined]
    assert state(filled(changes)) == state(filled(last))


@given(CHANGES)
def test_the_end_is_what_the_rules_say(changes: list[tuple[int, Told | None]]) -> None:
    store = filled(changes)
    files = sorted((leaf, told) for leaf, told in dict(changes).items() if told is not None)
    for identifier in ("s1", "s2", "s3"):
        cards = [card for _, told in files for card in told.cards if card.id == identifier]
        names = [name for _, told in files for session, name in told.names if session == identifier]
        known = store.session(identifier)
        if not cards:
            assert known is None
            continue
        best = max((card.rank, card.moved, card) for card in cards)[2]
        assert known is not None
        assert known.name == (names[-1] if names else best.name)
        assert (known.title, known.moved, known.barred) == (best.title, best.moved, best.barred)


@given(CHANGES, NAMES)
def test_names_find_what_a_search_through_all_would(changes: list[tuple[int, Told | None]], name: str) -> None:
    store = filled(changes)
    wanted = folded(name)
    every = store.recent()
    expected = {known.id for known in every if asked_for(name) & known.answers_to()}
    assert expected >= {known.id for known in every if wanted and wanted in (folded(known.name), folded(known.title))}
    found = store.called(name)
    assert {known.id for known in found} == expected
    assert len(found) == len(expected)
    assert set(store.containing(name)) == {known for known in every if any(wanted in form for form in known.answers_to())}


@given(CHANGES)
def test_the_newest_stand_first_and_nobody_is_left_out(changes: list[tuple[int, Told | None]]) -> None:
    store = Store("claude", "/h")
    for each in changes:
        store.apply([change(*each)])
        recent = store.recent()
        assert [known.moved for known in recent] == sorted((known.moved for known in recent), reverse=True)
        assert {known.id for known in recent} == {i for i in ("s1", "s2", "s3") if store.session(i) is not None}
        assert len(recent) == len(store)


@given(CHANGES, CHANGES)
def test_sessions_that_are_not_what_they_were_are_said_and_no_others(
    before: list[tuple[int, Told | None]], after: list[tuple[int, Told | None]]
) -> None:
    store = filled(before)
    was = {identifier: store.session(identifier) for identifier in ("s1", "s2", "s3")}
    moved = store.apply([change(*each) for each in after])
    really = {identifier for identifier, known in was.items() if store.session(identifier) != known}
    assert really <= moved
    untouched = {"s1", "s2", "s3"} - {i for _, told in (*before, *after) if told for i in _ids(told)}
    assert not moved & untouched


def _ids(told: Told) -> set[str]:
    return {*[card.id for card in told.cards], *dict(told.names)}


@given(CHANGES, CHANGES)
def test_what_a_new_process_tells_takes_the_place_of_all_that_was_known(
    before: list[tuple[int, Told | None]], after: list[tuple[int, Told | None]]
) -> None:
    heard: list[str] = []
    catalogue = Catalogue(lambda _, sessions: heard.extend(known.id for known in sessions))
    store = catalogue.store("claude", "/h")
    store.apply(change(*each) for each in before)
    was = {known.id: known for known in store.recent()}
    catalogue.replace(store, filled(after))
    assert state(store) == state(filled(after))
    assert sorted(heard) == sorted(known.id for known in store.recent() if was.get(known.id) != known)
    store.apply([change(9, Told(cards=(Card("s9", moved=9.0),)))])
    assert store.recent()[0].id == "s9"


@pytest.mark.requirement("SE-02")
def test_of_several_files_of_one_session_the_highest_rank_counts_and_the_next_one_when_it_goes() -> None:
    store = filled((n, Told(cards=(Card("s", title=f"file {n}", rank=float(n), moved=100.0 - n),))) for n in (2, 3, 1))
    assert _session(store).title == "file 3"
    store.apply([change(3, None)])
    assert _session(store).title == "file 2"
    store.apply([change(1, Told(cards=(Card("s", title="now first", rank=9.0),)))])
    assert _session(store).title == "now first"
    store.apply([change(1, None), change(2, None)])
    assert store.session("s") is None
    assert len(store) == 0
    assert store.called("file 2") == []


@pytest.mark.requirement("SE-02", "SE-03")
def test_a_file_of_names_counts_more_than_a_card_and_makes_no_session() -> None:
    store = filled([(1, Told(names=(("s", "given"),)))])
    assert store.session("s") is None
    assert store.called("given") == []
    store.apply([change(2, Told(cards=(Card("s", name="of the card"),)))])
    assert [known.id for known in store.called("given")] == ["s"]
    assert store.called("of the card") == []
    store.apply([change(1, Told())])
    assert [known.name for known in store.called("of the card")] == ["of the card"]


@pytest.mark.requirement("SE-02")
def test_one_new_line_in_a_file_of_5000_names_renews_one_session(monkeypatch: pytest.MonkeyPatch) -> None:
    names = {f"s{number}": f"name {number}" for number in range(5000)}
    store = filled([(number + 2, Told(cards=(Card(f"s{number}"),))) for number in range(5000)])
    store.apply([change(1, Told(names=tuple(names.items())))])
    renewed: list[str] = []
    renew = Store._renew

    def counted(store: Store, identifier: str) -> bool:
        renewed.append(identifier)
        return renew(store, identifier)

    monkeypatch.setattr(Store, "_renew", counted)
    names["s77"] = "renamed"
    assert store.apply([change(1, Told(names=tuple(names.items())))]) == {"s77"}
    assert renewed == ["s77"]
    del names["s78"]
    assert store.apply([change(1, Told(names=tuple(names.items())))]) == {"s78"}
    assert renewed == ["s77", "s78"]
    assert store.apply([change(1, Told(names=tuple(names.items())))]) == set()
    assert [known.id for known in store.called("RENAMED ")] == ["s77"]


@pytest.mark.requirement("SE-24")
@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("é", "e\u0301", True),
        ("  É\n", "é", True),
        ("\u00c5ngström", "\u212bNGSTR\u00d6M", True),
        ("straße", "STRASSE", True),
        ("🙂", "🙂", True),
        ("Μαΐου ΐ", "Μαΐου ΐ".upper(), True),
        ("ﬃ ŉ ǰ", "ﬃ ŉ ǰ".upper(), True),
        ("\u202egnp.exe", "gnp.exe", True),  # as lists show it
        ("a\u200bb", "ab", True),
        ("ab", "a\u200bb", False),
        ("👩\u200d👩\u200d👧 修正", "👩👩👧 修正", True),
        ("a  b", "a b", True),
        ("a b", "a  b", False),
        ("x" * 500, "x" * 199 + "…", True),
        ("x" * 500, "x" * 200, False),
        ("x" * 500, "X" * 500, True),
        ("x" * 500, "x" * 499, False),
        ("two\nlines", "two lines", True),
        ("\x1b[31mred", "red", False),
        ("\ud83d", "\ud83e", False),
    ],
)
def test_which_names_are_the_same(one: str, other: str, same: bool) -> None:
    store = filled([(1, Told(cards=(Card("s", name=one),)))])
    assert ([known.id for known in store.called(other)] == ["s"]) is same
    assert _session(store).name == one, "it is kept as it was given"


@pytest.mark.requirement("SE-24")
@given(st.text(st.characters(exclude_categories=()), max_size=8))
def test_however_a_name_is_composed_it_is_the_same(name: str) -> None:
    folds = {folded(unicodedata.normalize(form, name)) for form in ("NFC", "NFD")}
    assert len(folds | {folded(f" {name}\t")}) == 1


@pytest.mark.requirement("SE-24")
def test_a_name_as_it_is_and_one_that_is_shown_so_are_not_told_apart() -> None:
    store = filled([(1, Told(cards=(Card("s", name="a\u200bb"),))), (2, Told(cards=(Card("t", name="AB"),)))])
    assert {known.id for known in store.called("ab")} == {"s", "t"}
    assert {known.id for known in store.called("a\u200bb")} == {"s"}


@pytest.mark.requirement("SE-24")
def test_a_title_that_is_too_long_to_be_kept_is_matched_by_all_of_it() -> None:
    title = "Ärger  mit der\nPipeline " * 30
    store = filled([(1, Told(cards=(Card("s", title=kept(title)),))), (2, Told(cards=(Card("t", title="x"),)))])
    known = _session(store)
    assert known.title.endswith("…")
    for complete in (title, title.upper(), " ".join(title.split()), known.title):
        assert [found.id for found in store.called(complete)] == ["s"]
    for part in (title[:200], title[:199], title[:-8], known.title[:-1], known.whole, "", "\0"):
        assert store.called(part) == []
    assert [found.id for found in store.containing("a")] == [], "of a mark nobody means a part"


@pytest.mark.requirement("SE-13")
def test_each_store_has_its_own_sessions() -> None:
    catalogue = Catalogue()
    one, other = catalogue.store("claude", "/h/1"), catalogue.store("claude", "/h/2")
    catalogue.apply(one, [change(1, Told(cards=(Card("s", name="n"),)))])
    assert one is catalogue.store("claude", "/h/1")
    assert (len(one.called("n")), len(other.called("n"))) == (1, 0)
    assert not other.ready


def _session(store: Store) -> Known:
    known = store.session("s")
    assert known is not None
    return known
