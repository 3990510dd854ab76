"""Claude Code's command line: which calls are panels, and what they say of the session.

Owns the launch knowledge of this agent. Loaded before the agent runs. Sources: the documentation of
``claudeCode.claudeProcessWrapper`` and public process lists (protocols: claude.md, sections 1 and 7).
"""

from __future__ import annotations

import os

from shims.arguments import MANY, MAYBE, ONE, read_line
from shims.discover import path_of
from shims.executable import is_executable
from shims.launch import Product, find_real, is_real

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

TAKES = {
    **dict.fromkeys((
        "--agent", "--agents", "--append-system-prompt", "--autocompact", "--debug-file", "--effort", "--environment",
        "--fallback-model", "--input-format", "--json-schema", "--max-budget-usd", "--model", "-n", "--name",
        "--output-format", "--permission-mode", "--permission-prompts", "--plugin-dir", "--plugin-url",
        "--remote-control-session-name-prefix", "--session-id", "--setting-sources", "--settings", "--system-prompt",
        "--system-prompt-snapshot",
        # in no help, but in the program, and some of them in what editors and SDKs send
        "--advisor", "--agent-color", "--agent-id", "--agent-name", "--agent-type", "--append-subagent-system-prompt",
        "--append-subagent-system-prompt-file", "--append-system-prompt-file", "--fast-mode", "--managed-settings",
        "--max-thinking-tokens", "--max-turns", "--messaging-socket-path", "--parent-session-id", "--permission-prompt-tool",
        "--plan-mode-instructions", "--plugin-dir-no-mcp", "--prefill", "--resume-session-at", "--rewind-files", "--sdk-url",
        "--system-prompt-file", "--task-budget", "--team-name", "--teammate-mode", "--thinking", "--thinking-display",
        "--workload",
    ), ONE),
    **dict.fromkeys((
        "--cloud", "-d", "--debug", "--from-pr", "--prompt-suggestions", "--remote-control", "-r", "--resume", "--teleport",
        "-w", "--worktree", "--rc", "--remote",
    ), MAYBE),
    **dict.fromkeys((
        "--add-dir", "--allowedTools", "--allowed-tools", "--betas", "--disallowedTools", "--disallowed-tools", "--file",
        "--mcp-config", "--tools", "--channels", "--dangerously-load-development-channels",
    ), MANY),
}  # fmt: skip
"""Options that take a value (2.1.332 and 2.1.197)."""

COMMANDS = frozenset((
    "agents", "attach", "auth", "auto-mode", "doctor", "gateway", "import", "install", "kill", "logs", "mcp", "plugin",
    "plugins", "project", "purge", "respawn", "rm", "setup-token", "stop", "ultrareview", "update", "upgrade",
    # in no help, but in the program
    "bridge", "daemon", "rc", "remote-control", "sandbox", "self-hosted-runner", "sync",
))  # fmt: skip
"""Sub-commands (2.1.332 and 2.1.197). With ``--print`` there are none: what stands there is the prompt."""

_ANSWERS_AND_ENDS = frozenset(("-h", "--help", "-v", "--version"))
_PRINTS = frozenset(("-p", "--print"))
_CONTINUES = frozenset(("-c", "--continue"))
_FORKS = frozenset(("--fork-session",))


def is_panel(arguments: Sequence[str]) -> bool:
    """An editor's conversation: input as stream-json. Side commands go through the wrapper as well (SH-03)."""
    line = read_line(arguments, TAKES)
    if line.values("--input-format")[-1:] != ["stream-json"] or line.has(_ANSWERS_AND_ENDS):
        return False
    return line.has(_PRINTS) or not line.words or line.words[0] not in COMMANDS


PRODUCT = Product(
    "claude",
    program="claude",
    data=("CLAUDE_CONFIG_DIR", ".claude"),
    bundled=(("anthropic.claude-code-", ("resources/native-binary/claude",)),),
    installed=("~/.local/bin/claude", "@/local/claude", "~/.claude/local/claude", "~/.local/share/claude/versions/*"),
    packaged=("../node_modules/@anthropic-ai/claude-code-*/claude", "../../claude-code-*/claude"),
    casks=("claude-code*/*/claude",),
    is_panel=is_panel,
)


_INTERPRETERS = ("node", "bun", "deno")


def split(argv: Sequence[str], home: str, left_out: Sequence[str] = ()) -> tuple[str | None, list[str]]:
    """The real binary and its arguments. The editor's setting *wraps*: argv is the real command line (SH-02).

    A build without a bundled binary passes only the arguments; an older one passes ``node …/cli.js …``. What names a binary
    that is gone is dropped; a prompt may hold or begin with a slash as well.

    Args:
        left_out: binaries that only lead back here.
    """
    first, second = [*argv[:2], "", ""][:2]
    if first.startswith("/") and first not in left_out and is_real(first):
        return first, list(argv[1:])
    named = 0
    if first.startswith("/"):
        if os.path.basename(first) in _INTERPRETERS and second.endswith("/cli.js"):
            named = 2
        elif os.path.basename(first) == PRODUCT.program or is_executable(first):  # gone, or a shim
            named = 1
    # Only an interpreter is looked for on the PATH: `mcp` and `install` are sub-commands here, and programs there.
    elif first in _INTERPRETERS and second.endswith(".js"):
        interpreter = _on_path(first)
        if interpreter is not None:
            return interpreter, list(argv[1:])
        named = 2
    arguments = list(argv[named:])
    return find_real(PRODUCT, os.environ, home, remember=not named and not is_panel(arguments)), arguments


def session(arguments: Sequence[str]) -> tuple[str, bool]:
    """The session id that the command line names, and whether it continues a conversation (SH-40).

    With ``--fork-session`` the id is the old one's, so none is named.
    """
    line = read_line(arguments, TAKES)
    resumed = "".join(line.values("-r", "--resume")[-1:])
    continues = bool(resumed) or line.has(_CONTINUES)
    if line.has(_FORKS):
        return "", continues
    named = "".join(line.values("--session-id")[-1:])
    return named or (resumed if _looks_like_id(resumed) else ""), continues


def _looks_like_id(text: str) -> bool:
    return len(text) == 36 and text.count("-") == 4


def _on_path(name: str) -> str | None:
    for directory in path_of(os.environ):
        candidate = os.path.join(directory, name)
        if os.access(candidate, os.X_OK) and not os.path.isdir(candidate):
            return candidate
    return None
