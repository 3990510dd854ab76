"""A line on its way to the broker: what its loop is spared, and what it refuses to read (EN-25)."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.guards import MAX_CHARACTERS
from mcp_server.packing import LONGEST_JSON, LONGEST_TEXT, TooLong, pack, unpack

pytestmark = pytest.mark.requirement("EN-25")


def test_a_line_that_is_short_stays_as_it_is() -> None:
    line = b" " * LONGEST_JSON
    assert pack(line, {}) is line
    assert unpack(line) == (line, None)


@given(st.text())
def test_a_long_message_comes_back(more: str) -> None:
    text = "x" * LONGEST_JSON + more
    message = {"params": {"arguments": {"message": text, "cwd": "é"}}}
    head, behind = unpack(pack(json.dumps(message).encode(), message))
    assert (json.loads(head), behind) == ({"params": {"arguments": {"message": "", "cwd": "é"}}}, text)


def test_every_message_that_may_be_sent_fits() -> None:
    assert MAX_CHARACTERS * len("\U0001f600".encode()) < LONGEST_TEXT


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"x" * (LONGEST_JSON + 1), False),
        (b"x" * (LONGEST_JSON + 1) + b"\nx", False),
        (b"x\n" + b"x" * (LONGEST_TEXT + 1), True),
        (b"x" * (LONGEST_JSON + LONGEST_TEXT + 9), False),
    ],
    ids=["line", "line before a text", "text", "anything"],
)
def test_what_is_over_a_bound_is_not_read(data: bytes, text: bool) -> None:
    with pytest.raises(TooLong) as caught:
        unpack(data)
    assert caught.value.text == text


def test_bytes_that_are_no_characters_cost_only_themselves() -> None:
    assert unpack(b"{}\nab\xffc") == (b"{}", "ab\ufffdc")
