"""A client's line on its way to the broker: what the broker's loop can decode, and a long text behind it. No I/O.

Owns that form and its bounds (EN-25). A message may have a million characters, in JSON up to twelve bytes each, and the
loop would stand still while they are decoded; in a thread as well, for a decoder never lets go of the interpreter. The thin
process has decoded the line in any case, so the message of a long call goes behind its line, after the newline that no
line has in it, as it is:

    {"jsonrpc": "2.0", …, "params": {"name": "send_to_…", "arguments": {…, "message": ""}}} ⏎ the message, in UTF-8
"""

from __future__ import annotations

import json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

LONGEST_JSON = 64 << 10
"""Bytes that may be decoded in the loop: of the worst kind (lists in lists in a list) they take 30 ms, measured."""

LONGEST_TEXT = 8 << 20
"""Bytes of a message that are still passed on; one of the greatest size has half of that, and the broker says its limit."""


class TooLong(Exception):
    """A line that can be no call of ours. ``text``: for the length of its message; otherwise for all the rest."""

    def __init__(self, *, text: bool) -> None:
        super().__init__(f"{'a message' if text else 'a line'} over the bound")
        self.text = text


def pack(line: bytes, message: dict[str, Any]) -> bytes:
    """``line``, which holds ``message``, as it is sent to a broker.

    Raises:
        TooLong: it would not be decoded there.
    """
    if len(line) <= LONGEST_JSON:
        return line
    parameters = _object(message, "params")
    arguments = _object(parameters, "arguments")
    text = arguments.get("message")
    if not isinstance(text, str):
        raise TooLong(text=False)
    rest = {**message, "params": {**parameters, "arguments": {**arguments, "message": ""}}}
    data = b"\n".join((json.dumps(rest).encode(), text.encode(errors="replace")))
    _check(data)
    return data


def unpack(data: bytes) -> tuple[bytes, str | None]:
    """The line, and the message that belongs into its arguments if it came behind it.

    Raises:
        TooLong: it must not be decoded.
    """
    end = _check(data)
    if end == len(data):
        return data, None
    return data[:end], data[end + 1 :].decode(errors="replace")


def _object(value: dict[str, Any], name: str) -> dict[str, Any]:
    found = value.get(name)
    return found if isinstance(found, dict) else {}


def _check(data: bytes) -> int:
    """Where the line in ``data`` ends."""
    end = data.find(b"\n", 0, LONGEST_JSON + 1)
    if end < 0:
        end = len(data)
    if end > LONGEST_JSON:
        raise TooLong(text=False)
    if len(data) - end > LONGEST_TEXT + 1:
        raise TooLong(text=True)
    return end
