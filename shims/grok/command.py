"""Grok Build's command line: which calls are panels.

Owns the launch knowledge of this agent. Loaded before the agent runs. Source: the help of grok 1.0.41, which is compared
with these tables (protocols: grok.md, sections 1, 2 and 7).
"""

from __future__ import annotations

from shims.arguments import MAYBE, ONE, read_line
from shims.launch import Product

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

TAKES = {
    **dict.fromkeys((
        "--agent", "--agents", "--allow", "--allowedTools", "--cwd", "--debug-file", "--deny", "--disallowedTools",
        "--disallowed-tools", "--json-schema", "--leader-socket", "-m", "--model", "--max-turns", "--output-format", "-p",
        "--single", "--permission-mode", "--prompt-file", "--prompt-json", "--reasoning-effort", "--effort", "--rules", "-s",
        "--session-id", "--sandbox", "--system-prompt-override", "--system-prompt", "--tools", "--worktree-ref", "--ref",
        "--agent-profile", "--plugin-dir", "--grok-ws-origin", "--grok-ws-url", "--cli-chat-proxy-base-url",
        "--xai-api-base-url",
    ), ONE),
    **dict.fromkeys(("-r", "--resume", "-w", "--worktree"), MAYBE),
}  # fmt: skip
"""Options of `grok`, `grok agent` and `grok agent stdio` that take a value, with their aliases."""

_ANSWERS_AND_ENDS = frozenset(("-h", "--help", "-v", "--version"))


def is_panel(arguments: Sequence[str]) -> bool:
    """``agent … stdio``: the agent over stdio, for an editor. `agent serve|leader|headless` and all else are none (SH-03).

    ``--leader`` makes no difference: the process is then a client of a shared one, but its stdio is the same conversation,
    prompts put into it are queued with everybody's (1.0.41), and ``use_leader`` in the user's settings makes any call one.
    """
    line = read_line(arguments, TAKES)
    return line.words == ["agent", "stdio"] and not line.has(_ANSWERS_AND_ENDS)


PRODUCT = Product(
    "grok",
    program="grok",
    data=("GROK_HOME", ".grok"),
    # A release is a file of its own, `grok` a link to the one in use.
    installed=("@/bin/grok", "~/.grok/bin/grok", "~/.local/bin/grok", "@/bin/grok-*", "~/.grok/bin/grok-*"),
    is_panel=is_panel,
)
