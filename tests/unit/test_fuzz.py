"""The fuzz targets by themselves: every seed is played, and what breaks a rule is noticed."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from shims.grok.stream import GrokStream
from shims.jsonrpc import OurRequests
from shims.lines import DROP, PASS, LineFilter, Sieve
from shims.relay import Pump
from tests.fuzz import reference
from tests.fuzz.mutate import SEEDS, Mutator
from tests.fuzz.play import Act, Said, read
from tests.fuzz.reference import MAY, Item
from tests.fuzz.targets import TARGETS

PLAYS = [(target, path.name) for target in TARGETS for path in sorted((SEEDS / target).iterdir())]


def play(target: str, name: str) -> None:
    TARGETS[target]((SEEDS / target / name).read_bytes())


@pytest.mark.requirement("SH-05", "SH-07", "SH-20", "SH-33")
@pytest.mark.parametrize(("target", "name"), PLAYS)
def test_seeds_break_no_rule(target: str, name: str) -> None:
    play(target, name)


# any bytes are a play


def test_a_play_is_read_step_by_step() -> None:
    flags, steps = read(b's l\ne{}\nE{"a\ne"}\nc!"\na1\na2\n.\nA3\ni1\n{noise')
    assert flags == b"s l"
    assert steps == [
        Said("editor", b'{}\n{"a"}\n', ()),
        Said("agent", b"1\n2\n", (1, 2)),
        Said("agent", b"3", (1, 2)),
        Act("i", 1),
        Said("agent", b"{noise\n", (1, 2)),
    ]


def test_what_is_said_comes_in_pieces_of_the_sizes() -> None:
    assert list(Said("agent", b"abcdefg", (1, 3)).pieces()) == [b"a", b"bcd", b"e", b"fg"]
    assert list(Said("agent", b"abc", ()).pieces()) == [b"abc"]
    assert list(Said("agent", b"abc", (1, 0)).pieces()) == [b"a", b"bc"]


@pytest.mark.parametrize("target", TARGETS)
def test_changed_plays_are_plays(target: str) -> None:
    mutator, random = Mutator(target), Random(3)
    data = (SEEDS / target / PLAYS[[t for t, _ in PLAYS].index(target)][1]).read_bytes()
    changed = {mutator.changed(data, random) for _ in range(60)}
    assert len(changed) > 30
    for other in sorted(changed)[:5]:
        TARGETS[target](other)


# what must come out

ITEMS = [Item(b"a\n", PASS), Item(b"ours\n", DROP), Item(b"perhaps\n", MAY), Item(b"b", PASS)]


@pytest.mark.parametrize("out", [b"a\nb", b"a\nperhaps\nb"])
def test_what_may_come_out(out: bytes) -> None:
    reference.check(out, ITEMS)


@pytest.mark.parametrize("out", [b"", b"a\n", b"a\nours\nb", b"a\nperhb", b"b\na\n", b"a\nbb", b"a\nperhaps\nperhaps\nb"])
def test_what_may_not(out: bytes) -> None:
    with pytest.raises(AssertionError):
        reference.check(out, ITEMS)


def test_of_equal_lines_either_may_be_the_one_that_was_left_out() -> None:
    reference.check(b"x\n", [Item(b"x\n", MAY), Item(b"x\n", PASS)])


# a rule that is broken is noticed: each fault is one that somebody could make

Break = Callable[[pytest.MonkeyPatch], None]


def _answers_pass(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(OurRequests, "judge", lambda *_: PASS)


def _whole_lines_alone_are_judged(patch: pytest.MonkeyPatch) -> None:
    judge = OurRequests.judge
    patch.setattr(OurRequests, "judge", lambda self, start, whole: judge(self, start, whole) if whole else PASS)


def _a_line_that_is_cut_is_lost(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LineFilter, "_end_held", lambda self, *_: setattr(self, "_held", []))


def _what_is_undecided_is_lost(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Sieve, "rest", lambda _: b"")


def _the_message_is_shown_nowhere(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(GrokStream, "ahead", lambda _: b"")


def _a_tracker_raises(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(GrokStream, "_updated", lambda *_: 1 // 0)


def _lines_of_ours_go_anywhere(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Pump, "_between_lines", property(lambda _: True, lambda *_: None), raising=False)


FAULTS: list[tuple[Break, str, str]] = [
    (_answers_pass, "codex", "a-turn-of-ours"),
    (_answers_pass, "grok", "a-turn-of-ours"),
    (_whole_lines_alone_are_judged, "codex", "taken-back"),
    (_a_line_that_is_cut_is_lost, "claude", "a-turn-of-ours"),
    (_a_line_that_is_cut_is_lost, "lines", "cut"),
    (_what_is_undecided_is_lost, "lines", "unfinished"),
    (_the_message_is_shown_nowhere, "grok", "behind-a-turn-of-the-person"),
    (_a_tracker_raises, "grok", "two-sessions"),
    (_lines_of_ours_go_anywhere, "pump", "between-lines"),
]


@pytest.mark.parametrize(("fault", "target", "name"), FAULTS)
def test_a_broken_rule_is_noticed(monkeypatch: pytest.MonkeyPatch, fault: Break, target: str, name: str) -> None:
    fault(monkeypatch)
    with pytest.raises(AssertionError):
        play(target, name)
