"""What of a result, and of a call, can be put into JSON that everybody reads."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_server.served import _encodable, _parse, _Sdk

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters()),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters()), inner),
)


@pytest.mark.requirement("MC-07")
@given(VALUES)
def test_every_result_can_be_encoded(value: object) -> None:
    json.dumps(_encodable(value), ensure_ascii=False).encode()


@pytest.mark.requirement("MC-07")
def test_what_can_be_encoded_stays_as_it_is() -> None:
    value = {"ü": ["€", 1, None, True, {"a": "😀"}]}
    assert _encodable(value) == value


@pytest.mark.requirement("MC-07")
def test_a_call_with_half_a_character_is_read() -> None:
    line = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x","arguments":{"message":"cut \\ud83d"}}}'
    message = _parse(_Sdk(), line)
    assert message.params["arguments"]["message"] == "cut ?"


@pytest.mark.requirement("EN-25")
def test_a_text_behind_its_line_is_put_into_the_call_and_nowhere_else() -> None:
    call = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x","arguments":{"message":"","a":1}}}'
    assert _parse(_Sdk(), call + b"\nhello").params["arguments"] == {"message": "hello", "a": 1}
    for line in (
        b'{"jsonrpc":"2.0","id":1,"method":"x"}',
        b'{"jsonrpc":"2.0","id":1,"result":{}}',
        call.replace(b'"arguments"', b'"b"'),
    ):
        with pytest.raises(ValueError, match="no call"):
            _parse(_Sdk(), line + b"\nhello")
