"""The tables of options against the agents' own help, and the reading of command lines against the agents' own reading.

An option that takes a value and is not in the table would make its value a command (SH-12); a release that brings one, or a
new sub-command, fails here.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from shims.arguments import MANY, MAYBE, ONE, read_line
from shims.claude import command as claude
from shims.codex import command as codex
from shims.grok import command as grok
from tests.real.binaries import AGENTS, binary

pytestmark = pytest.mark.requirement("SH-03", "SH-12")

TABLES = {"claude": claude.TAKES, "codex": codex.TAKES, "grok": grok.TAKES}
LEVELS: dict[str, tuple[tuple[str, ...], ...]] = {
    "claude": ((),),
    "codex": ((), ("app-server",)),
    "grok": ((), ("agent",), ("agent", "stdio")),
}
COMMANDS = {
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
INVALID = re.compile(r"^error: invalid ", re.MULTILINE)
PATIENCE = 60


@dataclass(frozen=True)
class Option:
    """One option of a help page, and a value that it would take."""

    names: tuple[str, ...]
    takes: str | None
    value: str


Run = Callable[..., str]
"""Runs the agent with arguments, and gives what it writes."""


@pytest.fixture(params=AGENTS)
def agent(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def run(agent: str, tmp_path: Path) -> Run:
    program = binary(agent)
    environment = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin", "COLUMNS": "200", "DISABLE_TELEMETRY": "1"}
    environment |= {"DISABLE_AUTOUPDATER": "1", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"}
    environment |= {"GROK_TELEMETRY_ENABLED": "0", "GROK_DISABLE_AUTOUPDATER": "1"}

    def start(*arguments: str) -> str:
        command = [str(program), *arguments]
        options = {"env": environment, "cwd": tmp_path, "stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE}
        done = subprocess.run(command, stderr=subprocess.STDOUT, timeout=PATIENCE, check=False, **options)  # type: ignore[call-overload]
        text: str = done.stdout.decode(errors="replace")
        return text

    return start


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


def _kind_of(agent: str) -> str:
    return agent.partition("-")[0]


def _levels(agent: str) -> Iterator[tuple[str, ...]]:
    yield from LEVELS[_kind_of(agent)]


def test_every_option_with_a_value_is_known(agent: str, run: Run) -> None:
    table = TABLES[_kind_of(agent)]
    for level in _levels(agent):
        options = options_of(run(*level, "--help"))
        assert len(options) >= 4
        wrong = {name: option.takes for option in options for name in option.names if table.get(name) is not option.takes}
        assert wrong == {}, f"{agent} {' '.join(level)}"


def test_every_subcommand_is_known(agent: str, run: Run) -> None:
    for level in _levels(agent):
        key = " ".join((_kind_of(agent), *level))
        assert commands_of(run(*level, "--help")) - COMMANDS[key] == set(), key


@pytest.mark.parametrize("agent", [name for name in AGENTS if _kind_of(name) != "claude"], indirect=True)
def test_the_agent_reads_its_command_line_alike(agent: str, run: Run) -> None:
    """With each option in front of it, is the next word a command or the option's value?

    The help that an agent prints tells where it thinks it is.
    """
    kind = _kind_of(agent)
    panel = LEVELS[kind][-1]
    lines = []
    for level in _levels(agent):
        rest = panel[len(level) :]
        for option in options_of(run(*level, "--help")):
            lines += [(*level, *given, *rest) for given in _ways(option) if rest or option.takes is not ONE or given[1:]]
    with ThreadPoolExecutor(4) as pool:
        pages = list(pool.map(lambda line: run(*line, "--help"), lines))
    is_panel = {"codex": codex.is_panel, "grok": grok.is_panel}[kind]
    usage = " ".join(("Usage:", kind, *panel, "["))
    read = [(line, page) for line, page in zip(lines, pages, strict=True) if not INVALID.search(page)]
    assert len(read) > 80
    assert len(lines) - len(read) < 20, "an agent that refuses a value does not say how it reads the line"
    wrong = [line for line, page in read if (usage in page) is not is_panel(line)]
    assert wrong == []


def _ways(option: Option) -> Iterator[Sequence[str]]:
    """The option as it may be given; not what makes the agent answer at once and end."""
    if option.names[-1] in ("--help", "--version", "--print-startup-config"):
        return
    for name in option.names:
        yield (name,)
        if option.takes is not None:
            yield (name, option.value)
            yield (f"{name}={option.value}",)
            if not name.startswith("--"):
                yield (f"{name}{option.value}",)


@pytest.mark.parametrize("agent", [name for name in AGENTS if _kind_of(name) == "claude"], indirect=True)
def test_claude_reads_its_command_line_alike(run: Run) -> None:
    """Its start is slow: as many options as possible in one line."""
    options = [option for option in options_of(run("--help")) if option.takes]
    several = [option for option in options if option.takes is MANY]
    one = [part for option in options if option.takes is ONE for part in (option.names[-1], option.value)]
    lines = [
        (*one, "mcp"),
        ("-r", "1", "-d", "1", "mcp"),
        ("-r", "mcp"),
        ("-d", "mcp"),
        ("-p", "mcp"),
        ("--input-format", "stream-json", "mcp"),
        *((option.names[-1], option.value, "mcp") for option in several),
        *((option.names[-1], option.value, "-n", "x", "mcp") for option in several[:2]),
    ]
    with ThreadPoolExecutor(2) as pool:
        pages = list(pool.map(lambda line: run(*line, "--help"), lines))
    read = [read_line(line, claude.TAKES) for line in lines]
    ours = [line.words == ["mcp"] and not line.has(frozenset(("-p",))) for line in read]
    assert ["Usage: claude mcp" in page for page in pages] == ours, lines
    assert not any("Usage: claude" not in page for page in pages)
