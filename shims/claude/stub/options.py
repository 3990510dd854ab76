"""What the Claude stub was started with: argv and environment as one value.

Owns the reading of Claude Code's flags, as far as the stub honours them; unknown flags are ignored, as the hidden flags
of the real one would be. Touches no file but those that ``--mcp-config`` names.
"""

from __future__ import annotations

import json
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any, Final

DEFAULT_VERSION: Final = "2.1.332"
MODERN: Final = (2, 1, 224)  # native inbox, message lifecycle frames and status in the registry came by then
MODES: Final = ("acceptEdits", "auto", "bypassPermissions", "default", "dontAsk", "plan")
HEXADECIMAL: Final = frozenset("0123456789abcdefABCDEF")

# Flags that take a value; every other one stands alone. ``--resume`` and ``--continue`` are read by hand.
VALUED: Final = frozenset(
    {
        "--input-format",
        "--output-format",
        "--permission-prompt-tool",
        "--permission-mode",
        "--session-id",
        "--mcp-config",
        "--model",
        "--system-prompt",
        "--append-system-prompt",
        "--setting-sources",
        "--settings",
        "--max-thinking-tokens",
        "--max-turns",
        "--allowedTools",
        "--allowed-tools",
        "--disallowedTools",
        "--disallowed-tools",
        "--add-dir",
        "--fallback-model",
        "--debug-file",
        "--agents",
        "--betas",
        "--effort",
        "--name",
        "-n",
        "--tools",
    }
)


class UsageError(Exception):
    """Claude refuses to start: the text for stderr; the exit code is 1."""


class Options:
    """argv and environment, read once."""

    __slots__ = (
        "allowed",
        "can_ask",
        "config_dir",
        "continues",
        "cwd",
        "entrypoint",
        "env",
        "forks",
        "logged_out",
        "may_bypass",
        "mcp_servers",
        "mode",
        "modern",
        "name",
        "partial",
        "replay",
        "resume",
        "session_id",
        "state_frames",
        "streams",
        "version",
    )

    def __init__(self, argv: Sequence[str], env: Mapping[str, str]) -> None:
        flags = parse_flags(argv)
        self.env = env
        self.version = env.get("STUB_CLAUDE_VERSION") or DEFAULT_VERSION
        self.modern = tuple(int(part) for part in self.version.split(".")) >= MODERN
        self.cwd = os.getcwd()
        home = env.get("HOME") or os.path.expanduser("~")
        self.config_dir = env.get("CLAUDE_CONFIG_DIR") or os.path.join(home, ".claude")
        self.entrypoint = env.get("CLAUDE_CODE_ENTRYPOINT") or "sdk-cli"
        self.streams = flags.get("--input-format") == "stream-json" and flags.get("--output-format") == "stream-json"
        if self.streams and "--verbose" not in flags:
            raise UsageError("Error: When using --print, --output-format=stream-json requires --verbose")
        self.can_ask = flags.get("--permission-prompt-tool") == "stdio"
        self.partial = "--include-partial-messages" in flags
        self.replay = "--replay-user-messages" in flags
        self.resume = flags.get("--resume")
        self.continues = "--continue" in flags or "-c" in flags
        self.forks = "--fork-session" in flags
        self.session_id = flags.get("--session-id")
        if self.session_id is not None and not is_uuid(self.session_id):
            raise UsageError("Error: Invalid session ID. Must be a valid UUID.")
        self.name = flags.get("--name") or flags.get("-n")
        skips = "--dangerously-skip-permissions" in flags
        self.mode = flags.get("--permission-mode") or ("bypassPermissions" if skips else "default")
        if self.modern and self.mode == "manual":
            self.mode = "default"  # its new name
        if self.mode not in MODES:
            choices = ", ".join("manual" if self.modern and mode == "default" else mode for mode in MODES)
            named = f"option '--permission-mode <mode>' argument '{self.mode}'"
            raise UsageError(f"error: {named} is invalid. Allowed choices are {choices}.")
        self.logged_out = bool(env.get("STUB_CLAUDE_LOGGED_OUT"))
        self.may_bypass = skips or self.mode == "bypassPermissions" or "--allow-dangerously-skip-permissions" in flags
        allowed = flags.get("--allowedTools") or flags.get("--allowed-tools") or ""
        self.allowed = [rule.strip() for rule in allowed.split(",") if rule.strip()] + self._allow_rules()
        self.mcp_servers = self._mcp_servers(flags.get("--mcp-config"), home)
        self.state_frames = self._state_frames()

    def _state_frames(self) -> dict[str, Any] | None:
        """What marks ``session_state_changed`` frames, None if the session emits none."""
        if self.env.get("CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS") == "1":
            return {}
        if self.modern and self.env.get("CLAUDE_CODE_SDK_READS_SESSION_STATE") == "1":
            return {"sdk_host_only": True}
        return None

    def _allow_rules(self) -> list[str]:
        rules: list[str] = []
        project = os.path.join(self.cwd, ".claude")
        for path in (
            os.path.join(self.config_dir, "settings.json"),
            os.path.join(project, "settings.json"),
            os.path.join(project, "settings.local.json"),
        ):
            permissions = read_json(path).get("permissions")
            if isinstance(permissions, dict):
                rules += [rule for rule in permissions.get("allow", []) if isinstance(rule, str)]
        return rules

    def _mcp_servers(self, given: str | None, home: str) -> dict[str, dict[str, Any]]:
        """The stdio servers of the user's configuration and of ``--mcp-config`` (inline JSON, or a file)."""
        at_home = home if self.config_dir == os.path.join(home, ".claude") else self.config_dir
        sources = [read_json(os.path.join(at_home, ".claude.json"))]
        if given is not None:
            sources.append(parse_mcp_config(given))
        servers: dict[str, dict[str, Any]] = {}
        for source in sources:
            for name, server in (source.get("mcpServers") or {}).items():
                if isinstance(server, dict) and isinstance(server.get("command"), str):
                    servers[name] = server
        return servers


def parse_flags(argv: Sequence[str]) -> dict[str, str]:
    """The flags of ``argv``, the last one of a name winning; a flag without a value maps to an empty string."""
    flags: dict[str, str] = {}
    at = 0
    while at < len(argv):
        flag, equals, value = argv[at].partition("=")
        at += 1
        if not flag.startswith("-"):
            continue
        if flag == "-r":
            flag = "--resume"
        if not equals and at < len(argv):
            takes_next = flag in VALUED or (flag == "--resume" and not argv[at].startswith("-"))
            if takes_next:
                value, at = argv[at], at + 1
        flags[flag] = value
    return flags


def parse_mcp_config(given: str) -> dict[str, Any]:
    if not given.lstrip().startswith("{"):
        return read_json(given)
    try:
        value = json.loads(given)
    except ValueError as error:
        raise UsageError(f"Error: Invalid MCP configuration: {error}") from error
    return value if isinstance(value, dict) else {}


def read_json(path: str) -> dict[str, Any]:
    """A configuration file that is an object; empty when it is missing or isn't one."""
    try:
        with open(path, encoding="utf-8") as file:
            value = json.load(file)
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def is_uuid(text: str) -> bool:
    parts = text.split("-")
    return [len(part) for part in parts] == [8, 4, 4, 4, 12] and all(HEXADECIMAL.issuperset(part) for part in parts)
