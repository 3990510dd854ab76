"""Reading command lines: words, options, and what belongs to which."""

from __future__ import annotations

import pytest

from shims.arguments import MANY, MAYBE, ONE, read_line

TAKES = {"-c": ONE, "--cd": ONE, "-r": MAYBE, "--resume": MAYBE, "-i": MANY, "--image": MANY}


@pytest.mark.requirement("SH-12")
@pytest.mark.parametrize(
    ("line", "words", "options"),
    [
        ("", "", []),
        ("one two -", "one two -", []),
        ("-c a one", "one", [("-c", "a")]),
        ("-ca one", "one", [("-c", "a")]),
        ("-c=a one", "one", [("-c", "a")]),
        ("--cd=a one", "one", [("--cd", "a")]),
        ("--cd= one", "one", [("--cd", "")]),
        ("-c -x one", "one", [("-c", "-x")]),
        ("-c", "", [("-c", None)]),
        ("-x one --yes two", "one two", [("-x", None), ("--yes", None)]),
        ("-xc a one", "one", [("-x", None), ("-c", "a")]),
        ("-xca one", "one", [("-x", None), ("-c", "a")]),
        ("-xy one", "one", [("-x", None), ("-y", None)]),
        ("-r a one", "one", [("-r", "a")]),
        ("-r -x one", "one", [("-r", None), ("-x", None)]),
        ("--resume=a one", "one", [("--resume", "a")]),
        ("-r", "", [("-r", None)]),
        ("-i a b -x one", "one", [("-i", "a"), ("-i", "b"), ("-x", None)]),
        ("-ia one", "one", [("-i", "a")]),
        ("--image=a one", "one", [("--image", "a")]),
        ("-i", "", [("-i", None)]),
        ("one -- two -c a", "one", []),
        ("-c -- one", "one", [("-c", "--")]),
    ],
)
def test_a_line_is_read(line: str, words: str, options: list[tuple[str, str | None]]) -> None:
    read = read_line(line.split(), TAKES)
    assert (read.words, read.options) == (words.split(), options)


def test_values_and_presence() -> None:
    read = read_line(["-c", "a", "--cd", "b", "-x", "-c", "c"], TAKES)
    assert read.values("-c", "--cd") == ["a", "b", "c"]
    assert read.has(frozenset(("-x", "-y")))
    assert not read.has(frozenset(("-y",)))
