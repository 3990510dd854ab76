"""What passes through a shim comes out as it went in, both ways, however it is cut."""

from __future__ import annotations

import random

import pytest

from tests.integration.conftest import OpenPanel

KIB, MIB = 1 << 10, 1 << 20

AWKWARD = {
    "two objects on a line": b'{"type":"user"}{"type":"user"}\n',
    "escaped newline": b'{"type":"user","text":"a\\nb"}\n',
    "not UTF-8": b"\xff\xfe\x80{\x00}\xc3\n",
    "NUL": b'{"a":"\x00"}\x00\n\x00',
    "lone CR": b'{"a":1}\r{"b":2}\rrest\r',
    "CRLF": b'{"type":"result"}\r\n{"id":1,"result":{}}\r\n',
    "byte order mark": b'\xef\xbb\xbf{"type":"system"}\n',
    "line separator": '{"a":"\u2028\u2029\u0085"}\n'.encode(),
    "empty lines": b"\n\n\r\n\n{}\n\n",
    "noise around lines": b'Debugger attached.\n{"method":"initialized"}\nwarning: x\n\t \n{"result":1,"id":2}\n',
    "our own id namespace": b'{"id":"xagent-1","result":{}}\n{"error":{},"id":"xagent-2"}\n',
    "deep nesting": b"[" * 5000 + b"]" * 5000 + b"\n" + b'{"method":' * 3000 + b"\n",
    "a huge number": b'{"method":"x","id":' + b"9" * 9000 + b"}\n",
    "a last line without newline": b'{"type":"user"}\n{"type":"us',
}

pytestmark = pytest.mark.requirement("SH-05")


def _line(length: int) -> bytes:
    """A JSON line of ``length`` bytes with its newline, incompressible enough that a shifted byte shows."""
    start, end = b'{"type":"user","method":"x","text":"', b'"}\n'
    filler = random.Random(length).randbytes(length // 2 + 1).hex().encode()
    return start + filler[: length - len(start) - len(end)] + end


@pytest.mark.parametrize("length", [64 * KIB + 1, 256 * KIB, MIB + 1, 16 * MIB, 64 * MIB])
def test_a_line_of_any_length_passes_both_ways(open_panel: OpenPanel, length: int) -> None:
    line = _line(length)
    editor = open_panel("echo")
    assert editor.exchange(line, timeout=60) == line
    assert editor.exchange(b"after\n") == b"after\n"


@pytest.mark.parametrize("name", AWKWARD)
def test_awkward_bytes_pass_unchanged(open_panel: OpenPanel, name: str) -> None:
    data = AWKWARD[name]
    editor = open_panel("echo")
    assert editor.exchange(data) == data
    editor.close_input()
    assert editor.read_rest() == b""
    assert editor.wait() == 0
    assert editor.errors() == b""


@pytest.mark.parametrize("character", ["é", "日", "𝄞", "👩\u200d🚀"])
def test_a_character_split_at_every_offset_passes(open_panel: OpenPanel, character: str) -> None:
    raw = f'{{"type":"user","text":"{character}"}}\n'.encode()
    editor = open_panel("echo")
    for offset in range(1, len(raw)):
        assert editor.exchange(raw[:offset]) == raw[:offset]
        assert editor.exchange(raw[offset:]) == raw[offset:]


def test_one_byte_at_a_time_passes(open_panel: OpenPanel) -> None:
    editor = open_panel("echo")
    for byte in '{"method":"x","text":"日本 \\u0000"}\r\n{"type"'.encode():
        assert editor.exchange(bytes([byte])) == bytes([byte])


def test_white_space_at_the_border_of_a_read_passes(open_panel: OpenPanel) -> None:
    editor = open_panel("echo")
    for shift in (-2, -1, 0, 1):
        prefix = b'{"type":"user","text":"'
        data = prefix + b"a" * (64 * KIB - len(prefix) + shift) + b"  \t  " + b"b" * 100 + b'"}\n'
        assert editor.exchange(data) == data


@pytest.mark.requirement("SH-14")
def test_a_partial_line_is_forwarded_at_once(open_panel: OpenPanel) -> None:
    editor = open_panel("echo")
    editor.exchange(b"warm\n")
    for partial in (b'{"type":"us', b'er"', b"}"):
        assert editor.exchange(partial, timeout=2) == partial


def test_random_pieces_pass(open_panel: OpenPanel) -> None:
    numbers = random.Random(7)
    alphabet = [b"\n", b"\r\n", b'{"method":"x"}', b'{"type":"user"}', b"\xff", b"\x00", b'"', "日".encode(), b"x" * 70000]
    data = b"".join(numbers.choice(alphabet) for _ in range(400))
    editor = open_panel("echo")
    assert editor.exchange(data) == data


def test_standard_error_is_the_agents_own(open_panel: OpenPanel) -> None:
    editor = open_panel("errors")
    editor.close_input()
    assert editor.wait() == 0
    assert editor.errors() == b"\x1b[31mnot json\xff\n{}\r\n"
