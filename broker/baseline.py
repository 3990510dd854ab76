"""Which environment variables may leave a process, by name (EN-11, EN-12). Data and two tests of names.

Owns the lists. Values of these names go with a call to the broker; of everything that authenticates only the name does.
"""

from __future__ import annotations

_BASELINE = frozenset(
    (
        "PATH", "HOME", "SHELL", "USER", "LOGNAME", "LANG", "TERM", "COLORTERM", "TZ", "TMPDIR", "TEMP", "TMP",
        "__CF_USER_TEXT_ENCODING", "CLAUDE_CONFIG_DIR", "CODEX_HOME", "GROK_HOME", "SSL_CERT_FILE", "SSL_CERT_DIR",
        "NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NO_PROXY", "no_proxy",
    )
)  # fmt: skip
_BASELINE_PREFIXES = ("LC_", "XDG_")

IDENTITY_NAMES = frozenset(("CLAUDE_CODE_SESSION_ID", "GROK_SESSION_ID", "COPILOT_AGENT_SESSION_ID"))
"""What agents tell their MCP servers of the session; hints, some of which go stale."""

AUTH_NAMES = (
    "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN", "OPENAI_API_KEY", "CODEX_API_KEY",
    "XAI_API_KEY", "GITHUB_TOKEN", "GH_TOKEN", "COPILOT_GITHUB_TOKEN", "AWS_ACCESS_KEY_ID", "AWS_PROFILE",
    "GOOGLE_APPLICATION_CREDENTIALS", "SSH_AUTH_SOCK",
)  # fmt: skip
"""Well-known variables that authenticate: that one is set is told, so that an error can name it."""


def is_baseline(name: str) -> bool:
    return name in _BASELINE or name.startswith(_BASELINE_PREFIXES)


def is_setting(name: str) -> bool:
    return name.startswith("CROSS_AGENT_")
