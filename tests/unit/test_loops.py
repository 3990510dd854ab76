"""What a start tells of the starts before it: who leads back here, who only starts its own kind, who is nested (SH-04)."""

from __future__ import annotations

import os

import pytest

from shims.loops import VARIABLE, Loop

pytestmark = pytest.mark.requirement("SH-04")

OWN, PARENT = os.getpid(), os.getppid()


def _after(said: str) -> tuple[str, tuple[str, ...], bool]:
    """What the next start is told by a start that was told ``said``, what that one leaves out, and whether it replaces one."""
    environment = {VARIABLE: said}
    loop = Loop("codex", environment)
    os.environ.pop(VARIABLE, None)
    try:
        loop.mark("/next")
        return os.environ[VARIABLE], loop.left_out, loop.replaces
    finally:
        del os.environ[VARIABLE]


@pytest.mark.parametrize(
    ("said", "tells", "left_out", "replaces"),
    [
        ("", f"codex|{OWN}|0|0|/next", (), False),
        (f"codex|{OWN}|0|0|/a", f"codex|{OWN}|1|1|/next", (), True),
        (f"codex|{PARENT}|0|0|/a", f"codex|{OWN}|1|1|/next", (), False),
        (f"codex|{OWN}|1|4|/a", f"codex|{OWN}|2|5|/next", (), True),
        (f"codex|{OWN}|2|2|/a", f"codex|{OWN}|0|3|/next|/a", ("/a",), True),
        (f"codex|{PARENT}|2|2|/b|/a", f"codex|{OWN}|0|3|/next|/a|/b", ("/a", "/b"), False),
        (f"codex|{PARENT}|0|2|/b|/a", f"codex|{OWN}|1|3|/next|/a", ("/a",), False),
        ("codex|1000000000|2|2|/a|/b", f"codex|{OWN}|0|3|/next", (), False),
        (f"claude|{OWN}|2|2|/a", f"codex|{OWN}|0|0|/next", (), False),
        *(
            (said, f"codex|{OWN}|0|0|/next", (), False)
            for said in ("codex", "codex|", f"codex|{OWN}|x|0|/a", "||||", f"codex|{OWN}|0|0")
        ),
    ],
)
def test_what_is_told(said: str, tells: str, left_out: tuple[str, ...], replaces: bool) -> None:
    assert _after(said) == (tells, left_out, replaces)
