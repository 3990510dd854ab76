"""Which environment variables may leave a process, by name (EN-11, EN-12). Data and two tests of names.

Owns the lists. Values of these names go with a call to the broker; of everything that authenticates only the name does, unless
the registration names it in ``CROSS_AGENT_CHILD_ENV``.
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

_PROXIES = frozenset(("http_proxy", "https_proxy", "all_proxy", "ftp_proxy"))
"""In either case; what they hold may be a secret."""

CHILD_ENV = "CROSS_AGENT_CHILD_ENV"
"""Names more of what started turns get."""

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


def is_proxy(name: str) -> bool:
    return name.lower() in _PROXIES


def carries_credentials(proxy: str) -> bool:
    """Whether a proxy's address holds a user or a password, in any form; then it is withheld as a whole."""
    return "@" in proxy or "%40" in proxy


def listed_names(value: str) -> list[str]:
    """The names in a list with commas, exact."""
    return [name for part in value.split(",") if (name := part.strip())]


def is_setting(name: str) -> bool:
    return name.startswith("CROSS_AGENT_")
