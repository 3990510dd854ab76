"""The help pages of a real agent, read by a machine: which options take a value, which sub-commands there are.

Owns that reading, and the comparison with what the shims hold of an agent's command line.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from shims.arguments import MANY, MAYBE, ONE
from shims.claude import command as claude
from shims.codex import command as codex
from shims.grok import command as grok
from tests.real.binaries import binary

TABLES: Final = {"claude": claude.TAKES, "codex": codex.TAKES, "grok": grok.TAKES}
LEVELS: Final[dict[str, tuple[tuple[str, ...], ...]]] = {
    "claude": ((),),
    "codex": ((), ("app-server",)),
    "grok": ((), ("agent",), ("agent", "stdio")),
}
COMMANDS: Final = {
    "claude": claude.COMMANDS,
    "codex": frozenset((
        "agents", "exec", "e", "review", "login", "logout", "mcp", "mcp-server", "plugin", "app-server", "remote-control",
        "completion", "update", "doctor", "sandbox", "debug", "apply", "a", "resume", "queue", "archive", "delete",
        "migrate-rollouts", "migrate-nfs-db", "unarchive", "fork", "cloud", "exec-server", "features", "help",
    )),
    "codex app-server": frozenset(("daemon", "proxy", "generate-ts", "generate-json-schema", "help")),
    "grok": frozenset((
        "agent", "clone", "completions", "cursor-worker", "dashboard", "doctor", "du", "disk-usage", "export", "help", "inspect",
        "leader", "login", "logout", "mcp", "memory", "models", "plugin", "sessions", "setup", "trace", "update", "usage",
        "version", "v", "worktree", "wrap",
    )),
    "grok agent": frozenset(("stdio", "headless", "serve", "leader", "help")),
    "grok agent stdio": frozenset(),
}  # fmt: skip
"""Every sub-command that was looked at: only `codex app-server` and `grok agent stdio` are panels."""

OPTION = re.compile(r" {2,6}((?:-\w, )?--?[\w-]+(?:, --?[\w-]+)*)(?:[ =](\[?<[^>]+>\]?(?:\.\.\.)?|\[[^\]]+\]))?(?:  .*|$)")
ALIASES = re.compile(r"(?:\[aliases: |compat alias: )([^\])]+)")
POSSIBLE = re.compile(r"(?:possible values|choices):[\s\"-]+(\w[\w-]*)", re.IGNORECASE)
VALUES = {"--autocompact": "auto", "--setting-sources": "user", "--settings": "{}"}
"""What is looked at before the help is shown, and is not told there in a way that a machine can read."""
PATIENCE: Final = 60


@dataclass(frozen=True, slots=True)
class Option:
    """One option of a help page, and a value that it would take."""

    names: tuple[str, ...]
    takes: str | None
    value: str


Run = Callable[..., str]
"""Runs the agent with arguments, and gives what it writes."""


def runner(agent: str, directory: Path) -> Run:
    """Runs ``agent`` in ``directory``, with nothing of the developer's."""
    program = binary(agent)
    environment = {"HOME": str(directory), "PATH": "/usr/bin:/bin", "COLUMNS": "200", "DISABLE_TELEMETRY": "1"}
    environment |= {"DISABLE_AUTOUPDATER": "1", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"}
    environment |= {"GROK_TELEMETRY_ENABLED": "0", "GROK_DISABLE_AUTOUPDATER": "1"}

    def start(*arguments: str) -> str:
        command = [str(program), *arguments]
        options: dict[str, Any] = {"env": environment, "cwd": directory, "stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE}
        done = subprocess.run(command, stderr=subprocess.STDOUT, timeout=PATIENCE, check=False, **options)
        text: str = done.stdout.decode(errors="replace")
        return text

    return start


def kind_of(agent: str) -> str:
    """``claude`` of ``claude-2.1.332``."""
    return agent.partition("-")[0]


def options_of(page: str) -> list[Option]:
    """The options of a help page, each with the lines that belong to it."""
    found: list[Option] = []
    lines = page.split("\n")
    starts = [place for place, line in enumerate(lines) if OPTION.fullmatch(line)]
    heads = [place for place, line in enumerate(lines) if line and not line.startswith(" ")]
    for start in starts:
        match = OPTION.fullmatch(lines[start])
        assert match is not None
        end = min(place for place in (*starts, *heads, len(lines)) if place > start)
        text = " ".join(line.strip() for line in lines[start:end])
        aliases = [name for group in ALIASES.findall(text) for name in group.split(", ")]
        takes = _kind(match[2])
        possible = POSSIBLE.search(text)
        names = (*match[1].split(", "), *aliases)
        value = VALUES.get(names[-1]) or (possible[1] if possible else "a=1" if "key=value" in text else "1")
        found.append(Option(names, takes, value))
    return found


def _kind(value: str | None) -> str | None:
    if value is None:
        return None
    return MAYBE if value.startswith("[") else MANY if "..." in value else ONE


def commands_of(page: str) -> set[str]:
    """The sub-commands of a help page, with their aliases."""
    _, _, section = page.partition("\nCommands:\n")
    section = section.partition("\n\n")[0]
    names = {name for match in re.finditer(r"^  ([a-z][\w|-]*)", section, re.MULTILINE) for name in match[1].split("|")}
    return names | {name for group in ALIASES.findall(section) for name in group.split(", ")}


# The comparison


def misread_options(agent: str, run: Run) -> dict[str, str | None]:
    """Options of which the shim's table says something else than the help, with what the help says."""
    table = TABLES[kind_of(agent)]
    wrong: dict[str, str | None] = {}
    for level in LEVELS[kind_of(agent)]:
        options = options_of(run(*level, "--help"))
        assert len(options) >= 4, f"the help of {' '.join((agent, *level))} cannot be read"
        wrong |= {name: option.takes for option in options for name in option.names if table.get(name) is not option.takes}
    return wrong


def unknown_commands(agent: str, run: Run) -> set[str]:
    """Sub-commands that nobody has looked at."""
    return {
        " ".join((*level, command))
        for level in LEVELS[kind_of(agent)]
        for command in commands_of(run(*level, "--help")) - COMMANDS[" ".join((kind_of(agent), *level))]
    }
