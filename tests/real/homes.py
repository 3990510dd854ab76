"""Throw-away homes in which a real agent runs offline.

Owns one directory per test and every configuration file in it. Nothing of the developer's own agents is read: the environment
that a home hands out is complete, not an addition to the current one.
"""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
from typing import TYPE_CHECKING, Any, Final, Literal
from urllib.parse import quote

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

SERVER_NAME: Final = "cross-agent"
DUMMY_KEY: Final = "sk-ant-dummy-key-of-a-throw-away-home"
MARK: Final = "CROSS_AGENT_TEST_MARK"
"""By this variable a test finds every process that it caused; each child and each MCP server carries it."""

WAIT_FOR_MCP: Final = {"MCP_CONNECTION_NONBLOCKING": "0", "MCP_CONNECT_TIMEOUT_MS": "30000"}
"""Claude Code answers initialize only when its MCP servers are there; by itself it waits at most 5 s for them."""

Shell = Literal["ask", "allow"]


class Home:
    """What the agents' homes have in common: the directory, a work tree, the base environment.

    Homes of different agents may share one ``path``, as on a real machine.
    """

    def __init__(
        self,
        path: Path,
        model_url: str,
        mcp_command: Sequence[str] | None = None,
        mcp_env: Mapping[str, str] | None = None,
        extra_env: Mapping[str, str] | None = None,
        *,
        approve_tools: bool = True,
        shell: Shell = "ask",
        mcp_required: bool = True,
        git: bool = True,
    ) -> None:
        """Write the home.

        Args:
            path: the home directory, created if it is missing.
            model_url: ``url`` of the model server.
            mcp_command: argv of the MCP server that is registered as ``cross-agent``, None for none.
            mcp_env: environment of that server, added to what the agent lets through.
            extra_env: environment of the agent itself, over the base.
            approve_tools: the MCP server's tools run without a prompt.
            shell: whether a shell command of the agent needs an approval.
            mcp_required: the first turn waits for the MCP server; without it neither agent does so for long, and whether a
                first turn has the tools is a matter of luck. Codex refuses a thread whose required server does not start.
            git: whether the work directory is a git repository.
        """
        self.path = path.resolve()
        self.model_url = model_url
        self.approve_tools = approve_tools
        self.shell: Shell = shell
        self.mcp_required = mcp_required
        self.mcp_command = list(mcp_command) if mcp_command is not None else None
        self.mcp_env = {**_mark(), **(mcp_env or {})}
        self._extra_env = dict(extra_env or {})
        self.cwd = self.path / "work"
        self.runtime = self.path / "run"
        self.cwd.mkdir(parents=True, exist_ok=True)
        self.runtime.mkdir(mode=0o700, exist_ok=True)
        if git and not (self.cwd / ".git").exists():
            subprocess.run(["git", "init", "-q", str(self.cwd)], check=True, env=self._base(), stdin=subprocess.DEVNULL)
        self.write()

    def write(self) -> None:
        """Write the configuration files anew from the attributes."""
        raise NotImplementedError

    def environment(self) -> dict[str, str]:
        """The whole environment of the agent's process."""
        return {**self._base(), **self._own(), **_mark(), **self._extra_env}

    def switch_shell(self, shell: Shell) -> None:
        """Let shell commands of the agent run, or make them need an approval; holds for processes started from now on."""
        self.shell = shell
        self.write()

    def _base(self) -> dict[str, str]:
        return {
            "HOME": str(self.path),
            "PATH": os.environ.get("PATH", os.defpath),
            "LANG": "C.UTF-8",
            "TERM": "xterm-256color",
            "USER": os.environ.get("USER", "tester"),
            "SHELL": "/bin/sh",
            "XDG_RUNTIME_DIR": str(self.runtime),
            # A proxy of the machine must not see what is meant for the loopback.
            "NO_PROXY": "127.0.0.1,localhost",
        }

    def _own(self) -> dict[str, str]:
        return {}


class ClaudeHome(Home):
    """A home for Claude Code: ``~/.claude.json`` (onboarded, key approved, work trusted, MCP server) and settings."""

    def write(self) -> None:
        # Claude Code keeps state of its own in this file: what it wrote stays.
        state = _read_json(self.path / ".claude.json")
        state |= {
            "hasCompletedOnboarding": True,
            "numStartups": 1,
            "autoUpdates": False,
            "customApiKeyResponses": {"approved": [DUMMY_KEY[-20:]], "rejected": []},
            "projects": {str(self.cwd): {"hasTrustDialogAccepted": True, "hasCompletedProjectOnboarding": True}},
        }
        state["mcpServers"] = {}
        if self.mcp_command is not None:
            command, *arguments = self.mcp_command
            server = {"type": "stdio", "command": command, "args": arguments, "env": self.mcp_env}
            state["mcpServers"][SERVER_NAME] = server
        _write_json(self.path / ".claude.json", state)
        permissions: dict[str, list[str]] = {"allow": [], "ask": []}
        if self.approve_tools:
            permissions["allow"].append(f"mcp__{SERVER_NAME}")
        permissions["allow" if self.shell == "allow" else "ask"].append("Bash")
        _write_json(self.config / "settings.json", {"permissions": permissions, "cleanupPeriodDays": 365})

    @property
    def config(self) -> Path:
        return self.path / ".claude"

    def registry(self) -> list[Path]:
        """The files of the live registry, one per running process."""
        return [path for path in sorted(self.config.glob("sessions/*.json")) if path.stem.isdigit()]

    def _own(self) -> dict[str, str]:
        return {
            "ANTHROPIC_API_KEY": DUMMY_KEY,
            "ANTHROPIC_BASE_URL": self.model_url,
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
            "DISABLE_TELEMETRY": "1",
            "DISABLE_ERROR_REPORTING": "1",
            **(WAIT_FOR_MCP if self.mcp_required else {}),
        }


class CodexHome(Home):
    """A home for Codex: ``~/.codex/config.toml`` with a scripted provider, trust, the MCP server and the approval policy.

    With ``shell="ask"`` an ``exec_command`` asks when its arguments say ``"sandbox_permissions": "require_escalated"`` (0.171
    refuses the policy under which every command would ask); with ``"allow"`` it must not say so.
    """

    def write(self) -> None:
        free = self.shell == "allow"
        lines = [
            'model = "scripted"',
            'model_provider = "scripted"',
            f"approval_policy = {_toml('never' if free else 'on-request')}",
            f"sandbox_mode = {_toml('danger-full-access' if free else 'workspace-write')}",
            "check_for_update_on_startup = false",
            "[analytics]",
            "enabled = false",
            "[feedback]",
            "enabled = false",
            "[otel]",
            'exporter = "none"',
            "[model_providers.scripted]",
            'name = "scripted"',
            f"base_url = {_toml(self.model_url)}",
            'wire_api = "responses"',
            "request_max_retries = 0",
            "stream_max_retries = 0",
            "supports_websockets = false",
            f"[projects.{_toml(str(self.cwd))}]",
            'trust_level = "trusted"',
        ]
        if self.mcp_command is not None:
            command, *arguments = self.mcp_command
            lines += [
                f"[mcp_servers.{SERVER_NAME}]",
                f"command = {_toml(command)}",
                f"args = {_toml_list(arguments)}",
                f"required = {str(self.mcp_required).lower()}",
                f"default_tools_approval_mode = {_toml('approve' if self.approve_tools else 'prompt')}",
                f"[mcp_servers.{SERVER_NAME}.env]",
                *(f"{_toml(name)} = {_toml(value)}" for name, value in self.mcp_env.items()),
            ]
        self.config.mkdir(exist_ok=True)
        (self.config / "config.toml").write_text("\n".join(lines) + "\n", encoding="utf-8")

    @property
    def config(self) -> Path:
        return self.path / ".codex"

    def writer_lock(self, thread_id: str) -> Path:
        """The file that the process which has the thread loaded holds with ``flock``."""
        return self.config / "thread-writer-locks" / f"{thread_id}.lock"

    def has_writer(self, thread_id: str) -> bool:
        """Whether a process has the thread loaded; the file alone says nothing, 0.154 leaves it behind at SIGTERM."""
        path = self.writer_lock(thread_id)
        if not path.exists():
            return False
        with path.open() as handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
        return False


class GrokHome(Home):
    """A home for Grok Build: ``~/.grok/config.toml`` with permissions and the MCP server, nothing imported from other agents.

    One thing of Claude Code in the same home counts all the same: its rules for commands, for which Grok has no switch.
    ``use_leader``: its terminals share one process.
    """

    use_leader = False

    def write(self) -> None:
        free = self.shell == "allow"
        # A rule alone would not let ``rm`` and redirections through; the mode lets the MCP server's tools through as well.
        everything = free and self.approve_tools
        allow = [*(["Bash"] if free else []), *([f"MCPTool({SERVER_NAME}__*)"] if self.approve_tools else [])]
        lines = [
            "[cli]",
            "auto_update = false",
            f"use_leader = {str(self.use_leader).lower()}",
            "[features]",
            "telemetry = false",
            *(line for other in ("claude", "cursor", "codex") for line in _import_nothing(other)),
            "[toolset.bash]",
            "auto_background_on_timeout = false",  # by itself after 15 s, as a command does that waits at a gate under load
            "[ui]",
            f"permission_mode = {_toml('always-approve' if everything else 'ask')}",
            "[permission]",
            f"ask = {_toml_list([] if free else ['Bash'])}",
            f"allow = {_toml_list(allow)}",
        ]
        if self.mcp_command is not None:
            command, *arguments = self.mcp_command
            lines += [
                f"[mcp_servers.{SERVER_NAME}]",
                f"command = {_toml(command)}",
                f"args = {_toml_list(arguments)}",
                "enabled = true",
                f"[mcp_servers.{SERVER_NAME}.env]",
                *(f"{_toml(name)} = {_toml(value)}" for name, value in self.mcp_env.items()),
            ]
        self.config.mkdir(exist_ok=True)
        (self.config / "config.toml").write_text("\n".join(lines) + "\n", encoding="utf-8")

    @property
    def config(self) -> Path:
        return self.path / ".grok"

    def session_directory(self, session_id: str) -> Path:
        """Where the session of this home's work directory is stored."""
        return self.config / "sessions" / quote(str(self.cwd), safe="") / session_id

    def _own(self) -> dict[str, str]:
        return {
            "GROK_HOME": str(self.config),
            "XAI_API_KEY": DUMMY_KEY,
            "GROK_MODELS_BASE_URL": self.model_url,
            "GROK_XAI_API_BASE_URL": self.model_url,  # or it asks its maker for more than models at the start
            "GROK_TELEMETRY_ENABLED": "0",
            "DISABLE_TELEMETRY": "1",
            "GROK_DISABLE_AUTOUPDATER": "1",
        }


def _import_nothing(other: str) -> list[str]:
    kinds = {"claude": "agents hooks mcps rules skills", "cursor": "agents hooks mcps rules skills", "codex": "hooks skills"}
    return [f"[compat.{other}]", *(f"{kind} = false" for kind in kinds[other].split())]


def _mark() -> dict[str, str]:
    mark = os.environ.get(MARK)
    return {} if mark is None else {MARK: mark}


def _read_json(path: Path) -> dict[str, Any]:
    if not path.exists():
        return {}
    data: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return data


def _write_json(path: Path, data: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(data, indent=1), encoding="utf-8")


def _toml(text: str) -> str:
    """A TOML basic string; JSON's escapes are a subset of TOML's."""
    return json.dumps(text, ensure_ascii=False)


def _toml_list(texts: Sequence[str]) -> str:
    return f"[{', '.join(map(_toml, texts))}]"
