"""The id that an answer closes with is the last one on its last line, found from the end (DE-43)."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker import closing
from broker.closing import closing_line, closing_token

PARTS = st.sampled_from(
    ["req_", "req_1700000000000_abcdef", "req_1700000000001_abcde0", "x", " ", "é", "_", "1700000000000_abcdef", "\n", "req"]
)


@pytest.mark.requirement("DE-43")
@given(st.lists(PARTS, max_size=12).map("".join), st.sampled_from([0, 1, 1000]))
def test_it_is_the_last_one_that_the_whole_line_has(answer: str, looks: int) -> None:
    every = re.findall(r"\breq_[0-9]{10,16}_[0-9a-f]{6}\b", closing_line(answer))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(closing, "_LOOKS", looks)
        assert closing_token(answer) == (every[-1] if every else None)
