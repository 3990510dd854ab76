"""The tables of options against the agents' own help, and the reading of command lines against the agents' own reading.

An option that takes a value and is not in the table would make its value a command (SH-12); a release that brings one, or a
new sub-command, fails here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from shims.arguments import MANY, ONE, read_line
from shims.claude import command as claude
from shims.codex import command as codex
from shims.grok import command as grok
from tests.real.binaries import AGENTS
from tests.real.help_pages import LEVELS, Option, Run, kind_of, misread_options, options_of, runner, unknown_commands

pytestmark = pytest.mark.requirement("SH-03", "SH-12")

INVALID = re.compile(r"^error: invalid ", re.MULTILINE)


@pytest.fixture(params=AGENTS)
def agent(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def run(agent: str, tmp_path: Path) -> Run:
    return runner(agent, tmp_path)


def test_every_option_with_a_value_is_known(agent: str, run: Run) -> None:
    assert misread_options(agent, run) == {}


def test_every_subcommand_is_known(agent: str, run: Run) -> None:
    assert unknown_commands(agent, run) == set()


@pytest.mark.parametrize("agent", [name for name in AGENTS if kind_of(name) != "claude"], indirect=True)
def test_the_agent_reads_its_command_line_alike(agent: str, run: Run) -> None:
    """With each option in front of it, is the next word a command or the option's value?

    The help that an agent prints tells where it thinks it is.
    """
    kind = kind_of(agent)
    panel = LEVELS[kind][-1]
    lines = []
    for level in LEVELS[kind]:
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


@pytest.mark.parametrize("agent", [name for name in AGENTS if kind_of(name) == "claude"], indirect=True)
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
