"""What a start tells of the starts before it: who leads back here, who only starts its own kind, who is nested (SH-04)."""

from __future__ import annotations

import os

import pytest

from shims.loops import VARIABLE, Loop

pytestmark = pytest.mark.requirement("SH-04")


def _with_pids(text: str) -> str:
    return text.replace("OWN", str(os.getpid())).replace("PARENT", str(os.getppid()))


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
        ("", "codex|OWN|0|0|/next", (), False),
        ("codex|OWN|0|0|/a", "codex|OWN|1|1|/next", (), True),
        ("codex|PARENT|0|0|/a", "codex|OWN|1|1|/next", (), False),
        ("codex|OWN|1|4|/a", "codex|OWN|2|5|/next", (), True),
        ("codex|OWN|2|2|/a", "codex|OWN|0|3|/next|/a", ("/a",), True),
        ("codex|PARENT|2|2|/b|/a", "codex|OWN|0|3|/next|/a|/b", ("/a", "/b"), False),
        ("codex|PARENT|0|2|/b|/a", "codex|OWN|1|3|/next|/a", ("/a",), False),
        ("codex|1000000000|2|2|/a|/b", "codex|OWN|0|3|/next", (), False),
        ("claude|OWN|2|2|/a", "codex|OWN|0|0|/next", (), False),
        *((said, "codex|OWN|0|0|/next", (), False) for said in ("codex", "codex|", "codex|OWN|x|0|/a", "||||", "codex|OWN|0|0")),
    ],
)
def test_what_is_told(said: str, tells: str, left_out: tuple[str, ...], replaces: bool) -> None:
    """The pids stand for those of this process and of its parent: the names of tests are the same in every process."""
    assert _after(_with_pids(said)) == (_with_pids(tells), left_out, replaces)
