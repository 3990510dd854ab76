"""Line splitting and the sieve: what comes out does not depend on how the stream was cut."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shims.lines import DROP, HEAD, HOLD, LONGEST_PARSED, LONGEST_UNDECIDED, PASS, SEARCHED, LineFilter, Sieve

MARKERS = (b'"id"', b"xx")
BULK: dict[bytes, tuple[bytes, ...]] = {b'{"noise"': (), b'{"bulk"': (b"xx",)}
LONG = b'{"long words":'

pieces = st.lists(
    st.sampled_from(
        [
            b"\n{",
            b"\n",
            b"\r\n",
            b'{"id":1}',
            b"x",
            b"xx",
            b"\xff",
            b"\x00",
            b'"id',
            b'\n{"noise"',
            b'\n{"bulk"',
            b"\t",
            "日".encode(),
        ]
    ),
    max_size=40,
).map(b"".join)
cuts = st.lists(st.integers(min_value=0, max_value=400), max_size=12)


def _cut(data: bytes, at: list[int]) -> list[bytes]:
    places = [0, *sorted({min(place, len(data)) for place in at}), len(data)]
    return [data[a:b] for a, b in pairwise(places) if b > a]


def _counting(line: bytes) -> tuple[bytes, ...]:
    return next((markers for beginning, markers in BULK.items() if line.startswith(beginning)), MARKERS)


def _filtered(chunks: list[bytes], markers: tuple[bytes, ...] = MARKERS) -> list[tuple[bytes, bool]]:
    lines = LineFilter(markers, lambda: BULK)
    return [line for chunk in chunks for line in lines.feed(chunk)]


# LineFilter


@given(pieces, cuts)
@pytest.mark.requirement("SH-05")
def test_filtered_lines_do_not_depend_on_the_cuts(data: bytes, at: list[int]) -> None:
    objects = [line for line in data.split(b"\n")[:-1] if line[:1] in (b"{", b" ", b"\t")]
    wanted = [(line, True) for line in objects if any(marker in line for marker in _counting(line))]
    assert _filtered(_cut(data, at)) == wanted


BULKY = st.sampled_from([b'{"bulk":"id"}', b'{"bulk":"xx"}'])
MIXED = st.sampled_from([b'{"id":1}', b"{}", b'{"noise":"id"}', b"id", b'{"bulk":"id"}', b'{"bulk":"xx"}'])


ROWS = [st.lists(one, min_size=200, max_size=400) for one in (MIXED, BULKY, st.just(b'{"bulk":"id"}'))]


@given(st.one_of(ROWS), st.integers(1, 500))
def test_many_lines_do_not_depend_on_the_cuts(rows: list[bytes], size: int) -> None:
    data = b"\n".join(rows) + b"\n"
    wanted = [(row, True) for row in rows if row in (b'{"id":1}', b'{"bulk":"xx"}')]
    assert _filtered([data]) == wanted
    assert _filtered([data[at : at + size] for at in range(0, len(data), size)]) == wanted


@given(st.integers(-2, 2), st.booleans(), st.lists(st.integers(0, LONGEST_PARSED + 100), max_size=4))
@settings(max_examples=30, deadline=None)
def test_lines_at_the_bound_do_not_depend_on_the_cuts(over: int, marked: bool, at: list[int]) -> None:
    length = LONGEST_PARSED + over
    line = (b'{"id":1}' if marked else b"{}").ljust(length, b".")
    data = b'{a"id"\n' + line + b'\n{"id"b\n'
    whole = length <= LONGEST_PARSED
    middle = [(line if whole else line[:HEAD] + line[-SEARCHED:], whole)] if marked else []
    assert _filtered(_cut(data, at)) == [(b'{a"id"', True), *middle, (b'{"id"b', True)]


@pytest.mark.parametrize("cut", [1, 5, len(LONG) - 1, len(LONG), len(LONG) + 1])
@pytest.mark.requirement("SH-05", "DE-05")
def test_a_long_message_is_whole_wherever_its_beginning_was_cut(cut: int) -> None:
    line = LONG + b'"id"'.rjust(LONGEST_PARSED, b".")
    lines = LineFilter(MARKERS, lambda: BULK, (LONG, b'{"x"'))
    assert lines.feed(line[:cut]) == []
    assert lines.feed(line[cut:]) == []
    assert lines.feed(b"\n") == [(line, True)]


def test_where_a_marker_counts_in_a_long_line() -> None:
    for before, after, counts in (
        (10, 500_000, True),
        (500_000, 10, True),
        (250_000, 250_000, False),
        (LONGEST_PARSED, 10, True),
        (10, LONGEST_PARSED, True),
        (LONGEST_PARSED, SEARCHED, False),
    ):
        line = b"{" + b"." * before + b'"id"' + b"." * after
        whole = len(line) <= LONGEST_PARSED
        returned = [(line if whole else line[:HEAD] + line[-SEARCHED:], whole)] if counts else []
        for size in (100, 70_000, len(line) - 5, len(line)):
            pieces = [line[at : at + size] for at in range(0, len(line), size)] if size > 100 else [line[:100], line[100:]]
            assert _filtered([*pieces, b"\n"]) == returned
        assert _filtered([line + b"\n"]) == returned


def test_without_markers_every_object_counts() -> None:
    assert _filtered([b"{a\n\nb\n{c\n{d"], ()) == [(b"{a", True), (b"{c", True)]


def test_a_long_line_is_held_in_bounded_memory() -> None:
    lines = LineFilter(MARKERS)
    lines.feed(b"{")
    for _ in range(200):
        lines.feed(b"." * 65536)
    assert len(lines._head or b"") == HEAD
    assert len(lines._tail) == SEARCHED
    assert lines._held == []
    assert lines.feed(b"\n") == []


# Sieve


def _judge(start: bytes, whole: bool) -> str:
    """``-`` lines are ours, ``?`` ones only if they end in ``-``."""
    if start.startswith(b"-"):
        return DROP
    if not start.startswith(b"?"):
        return PASS
    if whole:
        return DROP if start.endswith(b"-") else PASS
    return HOLD


sieved = st.lists(
    st.sampled_from([b"\n", b"-ours\n", b"?theirs\n", b"?ours-\n", b"theirs", b"?", b"-", b"\r\n", b"\xff", b"x" * 50]),
    max_size=40,
).map(b"".join)


def _expected(data: bytes) -> bytes:
    lines = data.split(b"\n")
    kept = [line + b"\n" for line in lines[:-1] if _judge(line, True) != DROP]
    return b"".join(kept) + lines[-1]


@given(sieved, cuts)
@pytest.mark.requirement("SH-05", "SH-33")
def test_what_comes_out_is_the_input_without_whole_lines_of_ours(data: bytes, at: list[int]) -> None:
    sieve = Sieve(lambda: True, _judge)
    out = b"".join(sieve.filter(chunk) for chunk in _cut(data, at)) + sieve.rest()
    assert out == _expected(data)


@given(sieved, cuts)
@pytest.mark.requirement("SH-05")
def test_a_sieve_with_nothing_outstanding_is_transparent(data: bytes, at: list[int]) -> None:
    sieve = Sieve(lambda: False, _judge)
    for chunk in _cut(data, at):
        assert sieve.filter(chunk) == chunk
    assert sieve.rest() == b""


@given(st.lists(st.tuples(sieved, st.booleans()), max_size=12))
@pytest.mark.requirement("SH-05")
def test_becoming_and_ceasing_to_be_outstanding_cuts_no_line(steps: list[tuple[bytes, bool]]) -> None:
    """A line is passed whole or dropped whole, whatever changes while it passes."""
    outstanding = False
    sieve = Sieve(lambda: outstanding, _judge)
    out = b""
    for chunk, wanted in steps:
        outstanding = wanted
        out += sieve.filter(chunk) if chunk else b""
    out += sieve.rest()
    whole = b"".join(chunk for chunk, _ in steps)
    left = whole.split(b"\n")
    for line in out.split(b"\n")[:-1]:
        while left and left[0] != line:
            skipped = left.pop(0)
            assert _judge(skipped, True) == DROP
        assert left, f"{line!r} is no whole line of the input"
        left.pop(0)


@given(sieved, cuts)
@pytest.mark.requirement("SH-05", "SH-63")
def test_lines_of_ours_go_whole_before_a_line_that_passes(data: bytes, at: list[int]) -> None:
    """However the stream is cut: each line that passes has ours before it, and nothing else is changed."""
    sieve = Sieve(lambda: True, _judge, lambda: b"+ours\n")
    out = b"".join(sieve.filter(chunk) for chunk in _cut(data, at)) + sieve.rest()
    passed = _expected(data).split(b"\n")
    assert out.replace(b"+ours\n", b"") == _expected(data)
    lines = out.split(b"\n")[:-1]
    for position, line in enumerate(lines):
        assert line == b"+ours" or (position and lines[position - 1] == b"+ours"), f"{line!r} came without ours"
    assert len(lines) >= 2 * (len(passed) - 1)


@pytest.mark.requirement("SH-05")
def test_no_more_than_the_bound_is_held() -> None:
    sieve = Sieve(lambda: True, _judge)
    assert sieve.filter(b"?" * LONGEST_UNDECIDED) == b""
    assert sieve.filter(b"?") == b"?" * (LONGEST_UNDECIDED + 1)
    assert sieve.filter(b"more-\n-ours\nrest") == b"more-\nrest"


@pytest.mark.requirement("SH-05")
@pytest.mark.parametrize("size", [1 << 14, LONGEST_UNDECIDED, LONGEST_UNDECIDED + 1, 1 << 18])
def test_a_line_over_the_bound_is_judged_by_its_beginning_however_it_comes(size: int) -> None:
    data = b"?".ljust(LONGEST_UNDECIDED + 1, b".") + b"-\n" + b"-".ljust(LONGEST_UNDECIDED + 1, b".") + b"?\nnext\n"
    sieve = Sieve(lambda: True, _judge)
    out = b"".join(sieve.filter(data[at : at + size]) for at in range(0, len(data), size))
    assert out == data[: LONGEST_UNDECIDED + 3] + b"next\n"


@pytest.mark.requirement("SH-05")
@pytest.mark.parametrize("last", [b"?und", b"-ours"])
def test_a_last_line_that_never_ended_is_no_whole_line_of_ours(last: bytes) -> None:
    sieve = Sieve(lambda: True, _judge)
    assert sieve.filter(b"a\n" + last) == b"a\n"
    assert sieve.rest() == last


@pytest.mark.requirement("SH-05")
def test_a_last_line_without_newline_is_the_editors() -> None:
    sieve = Sieve(lambda: True, _judge)
    assert sieve.filter(b"a\n?und") == b"a\n"
    assert sieve.rest() == b"?und"
    assert sieve.rest() == b""


def test_a_line_that_is_dropped_is_dropped_to_its_end() -> None:
    sieve = Sieve(lambda: True, _judge)
    assert sieve.filter(b"-begin") == b""
    assert sieve.filter(b" middle") == b""
    assert sieve.filter(b" end\nnext") == b"next"
