"""Every message comes out as it went in, and nothing else gets in."""

from __future__ import annotations

import os
import types
import typing
from enum import Enum
from typing import Any, Union

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker import wire
from broker.errors import ProtocolMismatch, WireError
from broker.wire import PROTOCOL, Approval, Bye, Inject, Message, Register, SessionState, StageName, StageReport, decode, encode

KINDS: tuple[Any, ...] = typing.get_args(Message)

paths = st.binary(max_size=12).map(os.fsdecode)
"""Strings as file names give them: bytes that are no UTF-8 are surrogate-escaped."""
words = st.text(max_size=12) | paths
plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


def values(wanted: Any) -> st.SearchStrategy[Any]:
    """Whatever fits the annotation ``wanted``."""
    if wanted is Any:
        return plain
    origin, arguments = typing.get_origin(wanted), typing.get_args(wanted)
    if origin is tuple:
        return st.lists(values(arguments[0]), max_size=3).map(tuple)
    if origin is dict:
        return st.dictionaries(values(arguments[0]), values(arguments[1]), max_size=3)
    if origin in (Union, types.UnionType):
        return st.one_of([st.none() if one is type(None) else values(one) for one in arguments])
    if hasattr(wanted, "_fields"):
        return messages(wanted)
    if issubclass(wanted, Enum):
        return st.sampled_from(wanted)
    simple: dict[type, st.SearchStrategy[Any]] = {
        str: words,
        bytes: st.binary(max_size=20),
        bool: st.booleans(),
        int: st.integers(-(2**63), 2**63 - 1),
        float: st.floats(allow_nan=False),
    }
    return simple[wanted]


def messages(kind: Any) -> st.SearchStrategy[Any]:
    hints = typing.get_type_hints(kind)
    return st.builds(kind, **{name: values(hints[name]) for name in kind._fields})


def packed(**fields: Any) -> bytes:
    made: bytes = msgpack.packb({"v": PROTOCOL, **fields}, unicode_errors="surrogateescape")
    return made


# what goes in comes out


@pytest.mark.requirement("MC-07", "SH-20")
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_message_comes_out_as_it_went_in(kind: Any) -> None:
    @given(messages(kind))
    @settings(max_examples=30, deadline=None)
    def round_trip(message: Any) -> None:
        again = decode(encode(message))
        assert again == message
        assert type(again) is kind

    round_trip()


@pytest.mark.requirement("SH-20")
def test_every_message_has_one_kind() -> None:
    assert set(wire._KINDS.values()) == set(KINDS)
    assert len(wire._KINDS) == len(KINDS)


@pytest.mark.requirement("SH-20")
def test_a_directory_whose_name_is_no_text_survives() -> None:
    cwd = os.fsdecode(b"/w/\xff\xfe/\xe9t\xe9")
    message = Register("claude", "1", cwd, "stream-json", cwd, 7, (SessionState("s", cwd=cwd),), False, (), ())
    again = decode(encode(message))
    assert isinstance(again, Register)
    assert os.fsencode(again.sessions[0].cwd) == b"/w/\xff\xfe/\xe9t\xe9"


@pytest.mark.requirement("SH-20", "SH-34")
@pytest.mark.parametrize("cut", ["\ud83d", "\ude00", "\udc80", "ends in \ud83d", "\ud83d\ud83d"])
def test_half_a_character_costs_that_character_and_not_the_message(cut: str) -> None:
    """Programs that cut text by UTF-16 units leave half an emoji in a title or in what an answer ends with."""
    sent = StageReport(1, "a", StageName.FINISHED, text=f"words {cut}", status="completed")
    again = decode(encode(sent))
    assert isinstance(again, StageReport)
    assert again.text is not None
    assert again.text.startswith("words ")
    assert len(again.text) == len(f"words {cut}")


@pytest.mark.requirement("SH-20")
def test_what_is_left_out_has_its_default() -> None:
    assert decode(packed(k="shim.state", sessions=[{"id": "s"}])) == wire.State((SessionState("s"),))


@pytest.mark.requirement("SH-20")
def test_a_whole_number_is_a_number_of_seconds() -> None:
    fields = {"k": "shim.state", "sessions": [{"id": "s", "approval": {"tool": "t", "summary": "", "since": 5}}]}
    assert decode(packed(**fields)) == wire.State((SessionState("s", approval=Approval("t", "", 5.0)),))


# what gets in


@pytest.mark.requirement("EN-05")
@pytest.mark.parametrize("version", [None, 0, PROTOCOL - 1, PROTOCOL + 1, "1", [PROTOCOL], {}, 1.5])
def test_another_protocol_version_is_told_apart_from_garbage(version: object) -> None:
    body = {"k": "bye", "generation": 1, "reason": ""}
    data = msgpack.packb(body if version is None else {**body, "v": version})
    with pytest.raises(ProtocolMismatch) as caught:
        decode(data)
    assert caught.value.code == "protocol_mismatch"
    assert "Restart what is older" in caught.value.next_step


@pytest.mark.requirement("EN-05")
def test_a_later_version_may_look_quite_different() -> None:
    with pytest.raises(ProtocolMismatch):
        decode(msgpack.packb({"v": PROTOCOL + 1, "hello": [1, {"x": None}]}))


def _without(message: Message, *names: str, **more: Any) -> bytes:
    body = msgpack.unpackb(encode(message))
    return msgpack.packb({**{name: value for name, value in body.items() if name not in names}, **more})  # type: ignore[no-any-return]


INJECT = Inject("d", "a", "k", "t", "s", "text", 1, 5.0)

GARBAGE = {
    "nothing": b"",
    "no msgpack": b"\xc1",
    "JSON": b'{"v":1}',
    "cut off": encode(INJECT)[:-1],
    "two messages": encode(INJECT) * 2,
    "a list": msgpack.packb([PROTOCOL, "bye"]),
    "a number": msgpack.packb(7),
    "keys that are no text": msgpack.packb({1: 2}),
    "no kind": packed(generation=1, reason=""),
    "an unknown kind": packed(k="shim.dance"),
    "a kind that is a list": packed(k=["bye"]),
    "a kind that is a map": packed(k={}),
    "a kind that is bytes": packed(k=b"bye"),
    "an unknown field": _without(INJECT, surprise=1),
    "a missing field": _without(INJECT, "text"),
    "text that is bytes": _without(INJECT, text=b"text"),
    "text that is missing": _without(INJECT, text=None),
    "a number that is text": _without(INJECT, generation="1"),
    "a number that is a truth": _without(INJECT, generation=True),
    "a truth that is a number": packed(k="shim.state", sessions=[], closing=1),
    "a map where a list belongs": packed(k="shim.state", sessions={}),
    "text where a list belongs": packed(k="shim.state", sessions="abc"),
    "a session that is a list": packed(k="shim.state", sessions=[["s"]]),
    "a session with an unknown field": packed(k="shim.state", sessions=[{"id": "s", "x": 1}]),
    "a session without its id": packed(k="shim.state", sessions=[{}]),
    "an unknown stage": packed(k="shim.stage", number=1, attempt="a", stage="eaten"),
    "a stage that is a list": packed(k="shim.stage", number=1, attempt="a", stage=["taken"]),
    "an approval that is text": packed(k="shim.state", sessions=[{"id": "s", "approval": "yes"}]),
    "an extension": _without(INJECT, text=msgpack.ExtType(5, b"x")),
    "a broken time": _without(INJECT, text=msgpack.ExtType(5, b"x")).replace(b"\x05x", b"\xffx"),
    "deeply nested": b"\x91" * 2000 + b"\x90",
}


@pytest.mark.requirement("EN-05", "MC-07")
@pytest.mark.parametrize("data", GARBAGE.values(), ids=GARBAGE)
def test_garbage_is_an_error_with_a_code_and_nothing_worse(data: bytes) -> None:
    with pytest.raises(WireError) as caught:
        decode(data)
    assert type(caught.value) is WireError
    assert caught.value.code == "bad_message"


@pytest.mark.requirement("EN-24")
@pytest.mark.parametrize("data", GARBAGE.values(), ids=GARBAGE)
def test_an_error_does_not_quote_what_it_refuses(data: bytes) -> None:
    with pytest.raises(WireError) as caught:
        decode(data)
    assert "shim.dance" not in str(caught.value)
    assert "eaten" not in str(caught.value)
    assert "surprise" not in str(caught.value)


@pytest.mark.requirement("EN-05", "MC-07")
@given(st.binary(max_size=200))
def test_bytes_that_nobody_meant_are_refused(data: bytes) -> None:
    with pytest.raises(WireError):
        decode(data)


@pytest.mark.requirement("EN-05", "MC-07")
@given(
    st.sampled_from(sorted(wire._KINDS)), st.dictionaries(st.sampled_from(("sessions", "key", "text", "reason")), plain), plain
)
@settings(deadline=None)
def test_a_message_of_the_right_kind_with_anything_in_it_is_a_message_or_an_error(kind: str, fields: Any, other: Any) -> None:
    for data in (packed(**{**fields, "k": kind}), packed(k=other), msgpack.packb(other)):
        try:
            message = decode(data)
        except WireError:
            continue
        assert type(message) is wire._KINDS[kind]


@pytest.mark.requirement("EN-05", "MC-07")
@given(st.data())
@settings(deadline=None)
def test_one_wrong_byte_is_another_message_or_an_error(data: st.DataObject) -> None:
    originals: tuple[Message, ...] = (INJECT, Bye(1, "x"), StageReport(1, "a", StageName.TAKEN))
    original = encode(data.draw(st.sampled_from(originals)))
    at = data.draw(st.integers(0, len(original) - 1))
    changed = original[:at] + bytes([data.draw(st.integers(0, 255))]) + original[at + 1 :]
    try:
        message = decode(changed)
    except WireError:
        return
    assert decode(encode(message)) == message or message != message
