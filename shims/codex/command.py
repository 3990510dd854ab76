"""Codex's command line: which calls are panels.

Owns the launch knowledge of this agent. Loaded before the agent runs. Sources: public process lists of the editor
extension, and the help of codex-cli 0.171.0, 0.154.0 and 0.147.0, which is compared with these tables (protocols: codex.md,
section 6).
"""

from __future__ import annotations

from shims.arguments import MANY, ONE, read_line
from shims.launch import Product

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

TAKES = {
    **dict.fromkeys((
        "-c", "--config", "--enable", "--disable", "--remote", "--remote-auth-token-env", "-m", "--model", "--local-provider",
        "-p", "--profile", "-s", "--sandbox", "-C", "--cd", "--add-dir", "-a", "--ask-for-approval",
        "--listen", "--startup-client-info", "--cloud-skills-snapshot", "--code-mode-host", "--ws-auth", "--ws-token-file",
        "--ws-token-sha256", "--ws-shared-secret-file", "--ws-issuer", "--ws-audience", "--ws-max-clock-skew-seconds",
    ), ONE),
    **dict.fromkeys(("-i", "--image"), MANY),
}  # fmt: skip
"""Options of `codex` and `codex app-server` that take a value."""

_ANSWERS_AND_ENDS = frozenset(("-h", "--help", "-V", "--version", "--print-startup-config"))


def is_panel(arguments: Sequence[str]) -> bool:
    """``app-server`` over stdio; its sub-commands (`daemon`, `proxy`, `generate-*`) and other listeners are none (SH-03)."""
    line = read_line(arguments, TAKES)
    if line.words != ["app-server"] or line.has(_ANSWERS_AND_ENDS):
        return False
    return all(place == "stdio://" for place in line.values("--listen"))


PRODUCT = Product(
    "codex",
    program="codex",
    data=("CODEX_HOME", ".codex"),
    bundled=(("openai.chatgpt-", ("bin/*/codex",)),),
    installed=(
        "~/.local/bin/codex",
        "@/packages/standalone/current/bin/codex",
        "@/packages/standalone/current/codex",
    ),
    packaged=(
        "../node_modules/@openai/codex-*/vendor/*/bin/codex",
        "../../codex-*/vendor/*/bin/codex",
        "../vendor/*/bin/codex",
    ),
    casks=("codex/*/codex*", "codex/*/bin/codex"),
    is_panel=is_panel,
)
