"""Codex's command line: which calls are panels.

Owns the launch knowledge of this agent. Loaded before the agent runs. Sources: public process lists of the editor
extension and the help of codex-cli 0.171.0 (protocols: codex.md, section 6).
"""

from __future__ import annotations

from itertools import pairwise

from shims.launch import Product, first_words

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

WITH_VALUE = frozenset(
    (
        "-c", "--config", "--enable", "--disable", "--remote", "--remote-auth-token-env", "-i", "--image", "-m", "--model",
        "--local-provider", "-p", "--profile", "-s", "--sandbox", "-C", "--cd", "--add-dir", "-a", "--ask-for-approval",
        "--listen", "--startup-client-info", "--cloud-skills-snapshot", "--code-mode-host", "--ws-auth", "--ws-token-file",
        "--ws-token-sha256", "--ws-shared-secret-file", "--ws-issuer", "--ws-audience", "--ws-max-clock-skew-seconds",
    )
)  # fmt: skip
"""Root and app-server options that take their value as the next argument."""

_ANSWERS_AND_ENDS = frozenset(("-h", "--help", "-V", "--version", "--print-startup-config", "--startup-sign-out"))


def is_panel(arguments: Sequence[str]) -> bool:
    """``app-server`` over stdio; its sub-commands (`daemon`, `proxy`, `generate-*`) and other listeners are none (SH-03)."""
    if not _ANSWERS_AND_ENDS.isdisjoint(arguments):
        return False
    words = first_words(arguments, WITH_VALUE)
    if not words or words[0] != "app-server" or len(words) > 1:
        return False
    listen = [b for a, b in pairwise(arguments) if a == "--listen"]
    listen += [argument[9:] for argument in arguments if argument.startswith("--listen=")]
    return all(place == "stdio://" for place in listen)


PRODUCT = Product(
    "codex",
    program="codex",
    bundled=(("openai.chatgpt-", ("bin/*/codex",)),),
    installed=(".local/bin/codex",),
    is_panel=is_panel,
)
