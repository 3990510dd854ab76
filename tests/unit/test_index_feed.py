"""What the broker and its index process say to each other: in whatever pieces it comes, and whatever comes instead of it."""

from __future__ import annotations

from itertools import pairwise

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.index import feed
from broker.index.catalogue import Store
from broker.index.feed import (
    LENGTH,
    LONGEST,
    Change,
    Close,
    Frame,
    Frames,
    Look,
    Open,
    Ping,
    Pong,
    Ready,
    ToldBatch,
    batches,
    packed,
    packed_told,
    unpacked,
    unpacked_told,
)
from shims.shelf import Card, Hold, Told

pytestmark = pytest.mark.requirement("SE-05")

HALF = "\ud83d"
"""One half of a character outside the basic plane, as JavaScript cuts it."""

NUMBERS = st.integers(0, 1 << 40)
PATHS = st.binary(max_size=20).map(lambda raw: raw.decode("utf-8", "surrogateescape"))
CHANGES = st.builds(Change, NUMBERS, st.none() | st.binary(max_size=30))
FRAMES: st.SearchStrategy[Frame] = st.one_of(
    st.builds(Open, NUMBERS, st.sampled_from(["claude", "codex"]), PATHS),
    st.builds(Look, NUMBERS, NUMBERS),
    st.builds(Close, NUMBERS),
    st.builds(Ping, NUMBERS),
    st.builds(Pong, NUMBERS),
    st.builds(ToldBatch, NUMBERS, st.lists(CHANGES, max_size=5).map(tuple)),
    st.builds(Ready, NUMBERS, st.booleans(), NUMBERS),
)

WORDS = st.text(st.characters(exclude_categories=()), max_size=12)
"""With halves of characters."""
CARDS = st.builds(Card, WORDS, WORDS, WORDS, WORDS, st.floats(0, 1e10), st.floats(0, 1e10), WORDS, WORDS)
TOLD = st.builds(
    Told,
    NUMBERS,
    st.lists(CARDS, max_size=3).map(tuple),
    st.lists(st.tuples(WORDS, WORDS), max_size=3).map(tuple),
    st.lists(st.builds(Hold, WORDS, st.integers(0, 1 << 22), WORDS, WORDS), max_size=3).map(tuple),
    WORDS,
)


@given(st.lists(FRAMES, max_size=6), st.data())
def test_any_cut_of_the_bytes_gives_the_same_frames(frames: list[Frame], data: st.DataObject) -> None:
    stream = b"".join(packed(frame) for frame in frames)
    cuts = sorted(data.draw(st.sets(st.integers(0, len(stream)), max_size=12)) | {0, len(stream)})
    reader = Frames()
    assert [frame for begin, end in pairwise(cuts) for frame in reader.feed(stream[begin:end])] == frames


def test_one_byte_at_a_time_gives_the_same_frames() -> None:
    frames: list[Frame] = [
        Open(0, "claude", "/h/\udcff"),
        ToldBatch(0, (Change(1, b"x"), Change(2, None))),
        Ready(0, True, 3),
        Look(0, 3),
        Close(0),
        Ping(3),
        Pong(3),
    ]
    reader = Frames()
    stream = b"".join(packed(frame) for frame in frames)
    assert [frame for at in range(len(stream)) for frame in reader.feed(stream[at : at + 1])] == frames


@given(st.binary(max_size=200))
def test_bytes_that_are_no_frames_raise_a_value_error_and_nothing_else(data: bytes) -> None:
    try:
        list(Frames().feed(data))
    except ValueError:
        pass


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text() | st.binary(), st.lists, max_leaves=12))
def test_any_body_is_a_frame_whose_values_are_what_they_should_be_or_a_value_error(value: object) -> None:
    for body in (
        value,
        ["told", 1, value],
        ["told", 1, [value]],
        ["open", value, value, value],
        ["ready", 1, value, value],
        ["look", value, value],
    ):
        try:
            frame = unpacked(msgpack.packb(body))
        except (ValueError, OverflowError):
            continue
        assert isinstance(frame.number, int)
        assert unpacked(packed(frame)[LENGTH.size :]) == frame


@pytest.mark.parametrize(
    "body",
    [
        [],
        ["who"],
        [["open"], 1],
        ["open", 1, "claude"],
        ["open", "1", "claude", "/h"],
        ["open", 1, "claude", None],
        ["look", None, 1],
        ["look", 1],
        ["look", 1, True],
        ["ready", 1, 1, 1],
        ["ready", 1, True, None],
        ["told", 1, None],
        ["told", 1, ["ab"]],
        ["told", 1, [[1, "text"]]],
        ["told", [], []],
        {"open": 1},
        7,
    ],
)
def test_what_is_nearly_a_frame_is_none(body: object) -> None:
    with pytest.raises(ValueError, match="no frame"):
        unpacked(msgpack.packb(body))


def test_a_frame_over_the_bound_is_refused_by_its_length_alone() -> None:
    with pytest.raises(ValueError, match="over the bound"):
        list(Frames().feed(LENGTH.pack(LONGEST + 1)))


def test_a_frame_within_the_bound_is_waited_for() -> None:
    assert list(Frames().feed(LENGTH.pack(LONGEST))) == []


@given(TOLD)
def test_what_a_file_tells_comes_back_as_it_was_with_half_characters(told: Told) -> None:
    assert unpacked_told(packed_told(told)) == told


def test_half_a_character_reaches_whoever_asks() -> None:
    store = Store("claude", "/h")
    store.apply([Change(1, packed_told(Told(cards=(Card("s", name=HALF, title=f"a{HALF}"),), names=(("s", f"{HALF}b"),))))])
    (known,) = store.called(f"{HALF}b")
    assert (known.name, known.title) == (f"{HALF}b", f"a{HALF}")


@given(st.binary(max_size=80))
def test_bytes_that_tell_nothing_are_said_to(data: bytes) -> None:
    try:
        unpacked_told(data)
    except (TypeError, ValueError):
        pass
    store = Store("claude", "/h")
    store.apply([Change(1, data)])
    assert store.recent() == []


def test_batches_are_small_and_leave_nothing_out() -> None:
    changes = [Change(number, b"x" * 1000) for number in range(500)] + [Change(500, None)]
    made = list(batches(7, changes))
    assert [change for batch in made for change in batch.changes] == changes
    assert len(made) > 5
    assert all(batch.number == 7 and len(packed(batch)) < 64 << 10 for batch in made)
    assert list(batches(7, [])) == []


@pytest.mark.parametrize("beside", [0, 47 << 10], ids=["alone", "behind others"])
def test_a_leaf_that_tells_too_much_for_a_frame_tells_nothing_and_the_pipe_goes_on(
    beside: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed, "LONGEST", 4 << 20)
    monkeypatch.setattr(feed, "_LONGEST_TOLD", 3 << 20)
    changes = [Change(1, b"x" * beside), Change(2, b"x" * (5 << 20)), Change(3, b"x" * (3 << 20)), Change(4, b"x")]
    frames = list(Frames().feed(b"".join(packed(batch) for batch in batches(0, changes))))
    assert [(c.leaf, len(c.told or b"")) for f in frames if isinstance(f, ToldBatch) for c in f.changes] == [
        (1, beside),
        (2, 0),
        (3, 3 << 20),
        (4, 1),
    ]
