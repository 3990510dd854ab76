"""Claude Code's command line: which calls are panels, and what they say of the session.

Owns the launch knowledge of this agent. Loaded before the agent runs. Sources: the documentation of
``claudeCode.claudeProcessWrapper`` and public process lists (protocols: claude.md, sections 1 and 7).
"""

from __future__ import annotations

import os

from shims.launch import Product, find_real, is_real

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence


def is_panel(arguments: Sequence[str]) -> bool:
    """An editor's conversation: input as stream-json. Side commands go through the wrapper as well (SH-03)."""
    return option(arguments, "--input-format") == "stream-json"


PRODUCT = Product(
    "claude",
    program="claude",
    bundled=(("anthropic.claude-code-", ("resources/native-binary/claude",)),),
    installed=(".local/bin/claude", ".claude/local/claude"),
    is_panel=is_panel,
)


_INTERPRETERS = ("node", "bun", "deno")


def split(argv: Sequence[str], home: str) -> tuple[str | None, list[str]]:
    """The real binary and its arguments. The editor's setting *wraps*: argv is the real command line (SH-02).

    A build without a bundled binary passes only the arguments; an older one passes ``node …/cli.js …``.
    """
    if argv and "/" in argv[0]:
        if is_real(argv[0]):
            return argv[0], list(argv[1:])
        return find_real(PRODUCT, os.environ, home), list(argv[1:])
    # Only an interpreter is looked for on the PATH: `mcp` and `install` are sub-commands here, and programs there.
    if len(argv) > 1 and argv[0] in _INTERPRETERS and argv[1].endswith(".js"):
        interpreter = _on_path(argv[0])
        if interpreter is not None:
            return interpreter, list(argv[1:])
        return find_real(PRODUCT, os.environ, home), list(argv[2:])
    return find_real(PRODUCT, os.environ, home), list(argv)


def option(arguments: Sequence[str], name: str) -> str | None:
    """The value of an option given as ``--name value`` or ``--name=value``; the last one before ``--`` counts."""
    value = None
    for position, argument in enumerate(arguments):
        if argument == "--":
            break
        if argument == name:
            value = arguments[position + 1] if position + 1 < len(arguments) else ""
        elif argument.startswith(name + "="):
            value = argument[len(name) + 1 :]
    return value


def session(arguments: Sequence[str]) -> tuple[str, bool]:
    """The session id that the command line names, and whether it continues a conversation (SH-40).

    With ``--fork-session`` the id is the old one's, so none is named.
    """
    resumed = option(arguments, "--resume") or option(arguments, "-r") or ""
    continues = bool(resumed) or "--continue" in arguments or "-c" in arguments
    if "--fork-session" in arguments:
        return "", continues
    return option(arguments, "--session-id") or (resumed if _looks_like_id(resumed) else ""), continues


def _looks_like_id(text: str) -> bool:
    return len(text) == 36 and text.count("-") == 4


def _on_path(name: str) -> str | None:
    for directory in os.environ.get("PATH", "").split(":"):
        candidate = os.path.join(directory or ".", name)
        if os.access(candidate, os.X_OK) and not os.path.isdir(candidate):
            return candidate
    return None
