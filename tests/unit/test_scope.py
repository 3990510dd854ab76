"""How two directories lie to each other, which a scope lets in, and which of them counts first."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.scope import SCOPES, Relation, lets_in, relation, within

SAME, BELOW, ABOVE, ELSEWHERE = Relation

DIRECTORIES = st.lists(st.sampled_from(["a", "ab", "b", "_", "é", "a b"]), max_size=4).map(lambda parts: "/" + "/".join(parts))


@pytest.mark.requirement("SE-10")
@pytest.mark.parametrize(
    ("there", "here", "expected"),
    [
        ("/w", "/w", SAME),
        ("/w/a", "/w", BELOW),
        ("/w/a/b/c", "/w", BELOW),
        ("/w", "/w/a", ABOVE),
        ("/", "/w/a", ABOVE),
        ("/w", "/", BELOW),
        ("/", "/", SAME),
        ("/work", "/w", ELSEWHERE),
        ("/w", "/work", ELSEWHERE),
        ("/w/a", "/w/b", ELSEWHERE),
        ("/W", "/w", ELSEWHERE),
        ("", "/w", ELSEWHERE),
    ],
)
def test_how_a_directory_lies_to_another(there: str, here: str, expected: Relation) -> None:
    assert relation(there, here) is expected


@pytest.mark.requirement("SE-10")
@pytest.mark.parametrize(
    ("scope", "expected"),
    [("cwd", {SAME, BELOW}), ("tree", {SAME, BELOW, ABOVE}), ("any", {SAME, BELOW, ABOVE, ELSEWHERE})],
)
def test_what_a_scope_lets_in(scope: str, expected: set[Relation]) -> None:
    assert {near for near in Relation if lets_in(scope, near)} == expected


@pytest.mark.requirement("SE-10")
def test_a_session_whose_directory_is_not_known_is_in_the_widest_scope_alone() -> None:
    assert [scope for scope in SCOPES if within("", "/w", scope)] == ["any"]


@pytest.mark.requirement("SE-11")
def test_the_nearest_directory_counts_first() -> None:
    there = ["/x", "/", "/w/a/b", "/w/a", "/w"]
    assert sorted(there, key=lambda place: relation(place, "/w/a")) == ["/w/a", "/w/a/b", "/", "/w", "/x"]


@pytest.mark.requirement("SE-10")
@given(DIRECTORIES, DIRECTORIES)
def test_it_is_what_the_parts_of_the_paths_say(there: str, here: str) -> None:
    common = os.path.commonpath([there, here])
    expected = SAME if there == here else BELOW if common == here else ABOVE if common == there else ELSEWHERE
    assert relation(there, here) is expected
    opposite = {SAME: SAME, BELOW: ABOVE, ABOVE: BELOW, ELSEWHERE: ELSEWHERE}
    assert relation(here, there) is opposite[expected]


@pytest.mark.requirement("SE-10")
@given(DIRECTORIES, DIRECTORIES)
def test_a_wider_scope_lets_in_all_that_a_narrower_one_does(there: str, here: str) -> None:
    let_in = [within(there, here, scope) for scope in SCOPES]
    assert let_in == sorted(let_in)
    assert let_in[-1]
