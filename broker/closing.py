"""Which request an answer belongs to. No I/O.

Owns the one rule that the broker and the shims judge an answer by (DE-12, DE-43, SH-34): its closing line tells, wherever
some reader ends a line, and on it the last request id. Loaded by shims: imports nothing but `re`.
"""

from __future__ import annotations

import re

_LOOKS = 1000
"""Beginnings of an id that are looked at one by one."""

_TOKEN = re.compile(r"\breq_[0-9]{10,16}_[0-9a-f]{6}\b")


def closing_line(answer: str) -> str:
    """The last line that holds anything, without the white space after it; an answer may have millions of them."""
    whole, size = answer.rstrip(), 4096
    while True:
        *before, last = whole[-size:].splitlines() or [""]
        if before or size >= len(whole):
            return last
        size *= 16


def closing_token(answer: str) -> str | None:
    """The request id that ``answer`` belongs to, None when its closing line names none."""
    line = closing_line(answer)
    end = len(line)
    for _ in range(_LOOKS):  # from the end: the line may have a million characters, and the loop must not wait for all of them
        at = line.rfind("req_", 0, end)
        if at < 0:
            return None
        if found := _TOKEN.match(line, at):
            return found[0]
        end = at + 3
    every = _TOKEN.findall(line)
    return every[-1] if every else None


def closes_with(answer: str | None, token: str) -> bool:
    """Whether ``answer`` belongs to the request with the id ``token``; nothing belongs to one that has none."""
    return answer is not None and token != "" and closing_token(answer) == token


def without_closing_token(answer: str, token: str) -> str:
    """The answer as its reader needs it: without the closing line if that holds nothing but the request id."""
    whole, last = answer.rstrip(), closing_line(answer)
    return whole.removesuffix(last).rstrip() if last.strip(" \t`*_") == token else whole
