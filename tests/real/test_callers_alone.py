"""Who is calling when no panel of ours shows the caller, and what a variable that lies is worth."""

from __future__ import annotations

import json
import os
import re
from typing import TYPE_CHECKING, Any

import pytest

from tests.real.alone import ASK, STRANGER, Alone, lies, session_in
from tests.real.binaries import CLAUDE_VERSIONS, CODEX_VERSIONS, GROK_VERSIONS
from tests.real.exchange import MCP, PREFACE, World, until
from tests.real.homes import MARK, ClaudeHome
from tests.real.outsider import Outsider
from tests.real.panels import ClaudePanel
from tests.real.party import calling
from tests.real.releases import newest_first
from tests.real.terminal import Terminal

if TYPE_CHECKING:
    from pathlib import Path

    from tests.real.homes import Home

pytestmark = pytest.mark.requirement("EN-20")


def each(kind: str, versions: tuple[str, ...]) -> list[Any]:
    return newest_first([f"{kind}-{version}" for version in versions])


CLAUDE = each("claude", CLAUDE_VERSIONS)


# Without a panel


@pytest.mark.parametrize("name", [*each("codex", CODEX_VERSIONS), *each("grok", GROK_VERSIONS)])
def test_a_headless_turn_is_known_as_the_session_that_it_is(world: World, name: str) -> None:
    kind = name.partition("-")[0]
    false = lies(kind)
    agent = Alone(world, name, told=false, registered=false)  # what Grok tells its server wins over the registration (1.0.41)
    session = agent.run(*prompt(world, kind))
    assert known(agent) == [(kind, session)]
    assert session != STRANGER


@pytest.mark.parametrize("name", CLAUDE)
def test_a_headless_claude_is_the_session_that_it_begins_or_continues(world: World, name: str) -> None:
    """2.1.332 tells its server another one when it continues."""
    false = lies("claude")
    agent = Alone(world, name, told=false, registered=false)
    session = agent.run(ASK)
    assert agent.run("--continue", ASK) == session
    assert known(agent) == [("claude", session)] * 2


@pytest.mark.full
@pytest.mark.parametrize("name", [f"claude-{version}" for version in CLAUDE_VERSIONS])
def test_a_claude_that_was_cleared_is_the_session_that_it_is_now(world: World, name: str, tmp_path: Path) -> None:
    """Its server is kept, with the variable of its start."""
    agent = Alone(world, name)
    assert isinstance(agent.home, ClaudeHome)
    wrapper = tmp_path / "wrapper"
    wrapper.write_text('#!/bin/sh\nexec "$@"\n', encoding="utf-8")
    wrapper.chmod(0o755)
    with ClaudePanel(wrapper, agent.real, agent.home) as host:
        host.say(ASK)
        host.wait_result(1)
        first = host.session_id
        host.say("/clear")
        host.wait_result(2)
        host.say(ASK)
        host.wait_result(3)
        second = host.session_id
    assert first != second
    assert known(agent) == [("claude", first), ("claude", second)]


@pytest.mark.parametrize("name", CLAUDE)
def test_a_claude_in_a_terminal_is_known_by_its_registry(world: World, name: str) -> None:
    agent = Alone(world, name, told=lies("claude"))
    patient = ASK.replace("[[", "[[tool WaitForMcpServers {} ;; ")  # a terminal of 2.1.197 does not wait for its servers
    with Terminal([str(agent.real), patient], agent.home.environment(), agent.home.cwd) as terminal:
        until(lambda: known(agent), bool)
        first = asked_in(agent)
        terminal.type("/clear")
        until(lambda: sessions(agent.home), lambda shown: shown and shown != first)
        terminal.type(ASK)
        until(lambda: known(agent), lambda seen: len(seen) > 1)
        both = asked_in(agent)
    assert len(first) == 1
    assert len(both) == 2
    assert known(agent) == [("claude", *first), ("claude", *(both - first))]


# In the shell of another agent


@pytest.mark.full
def test_an_agent_in_the_shell_of_a_panel_calls_for_itself(world: World) -> None:
    panel = world.claude(shell="allow")
    claude, codex = (Alone(world, name, told=lies("claude", panel.session)) for name in ("claude-2.1.332", "codex-0.171.0"))
    panel.say(f"[[{panel.command(claude.script(ASK))} ;; {panel.command(codex.script(ASK))} ;; say done]]")
    panel.wait_turns(1)
    printed = [result.text for request in world.anthropic.requests for result in request.results]
    nested = known(claude)[0]  # what the other one printed comes after it, in the panel's own turn
    assert (nested[0], nested[1] == panel.session) == ("claude", False)
    assert nested[1] == session_in(printed[1])
    assert known(codex) == [("codex", session_in(printed[2]))]


@pytest.mark.full
@pytest.mark.requirement("DE-50")
def test_an_agent_in_the_shell_of_a_turn_of_ours_spends_its_hops(world: World) -> None:
    panel, sender = world.claude(shell="allow"), world.codex()
    nested = Alone(world, "codex-0.171.0")
    onward = f"ask on [[{calling('send_to_codex', message='and on it goes', session_id=sender.session)} ;; say sent]]"
    script = world.directory / "onward.sh"  # an `@` in a message is broken, and the binary's path has one
    script.write_text(nested.script(onward), encoding="utf-8")
    work = f"{PREFACE}[[{panel.command(f'sh {script}')} ;; reply done]]"
    receipt = sender.call("send_to_claude", message=work, session_id=panel.session)
    panel.wait_turns(1)
    told = [result.text for request in world.openai.requests for result in request.results]
    receipts = [json.loads(text[text.index("{") :]) for text in told if sender.session in text and '"hop"' in text]
    assert [(one["conversation_id"], one["hop"]) for one in receipts] == [(receipt["conversation_id"], hop) for hop in (1, 2)]


def test_a_plain_shell_is_nobody_whatever_its_variables_say(world: World) -> None:
    environment = {"PATH": os.environ["PATH"], "HOME": str(world.directory), "CROSS_AGENT_HOME": str(world.state)}
    plain = Outsider(["/bin/sh", "-c", '"$0" "$@"; exit', *MCP], {**environment, **lies("claude"), **mark()})
    try:
        caller = plain.call("bridge_status")["caller"]
    finally:
        plain.close()
    assert (caller["agent"], caller["session"]) == (None, None)


# Panels


@pytest.mark.parametrize(
    "name", ["claude-2.1.332", *(pytest.param(name, marks=pytest.mark.full) for name in ("codex-0.171.0", "grok-1.0.41"))]
)
def test_a_panels_session_is_not_moved_by_variables_that_name_another(world: World, name: str) -> None:
    kind = name.partition("-")[0]
    other = world.open(name)
    party = world.open(name, settings=lies(kind, other.session), home="another")
    caller = party.call("bridge_status")["caller"]
    assert (caller["agent"], caller["session"]) == (kind, party.session)


@pytest.mark.requirement("DE-40")
def test_a_request_id_in_the_output_of_a_tool_means_nothing(world: World) -> None:
    """Case 34: another session prints the id of a request that is open, and neither becomes its session nor answers it."""
    target, other = world.claude(), world.codex(shell="allow")
    gate = world.gate()
    message = f"{PREFACE}[[slow {gate} the true answer]]"
    delivery = world.outsider.call("send_to_claude", message=message, session_id=target.session)["delivery_id"]
    gate.reached()
    records = target.panel.home.config / "projects"
    look = other.command(f"grep -rhoE 'request: req_[0-9a-z_]+' {records} | head -1")
    other.say(f"[[{look} ;; say read]]")
    other.wait_turns(1)
    printed = [result.text for request in world.openai.requests for result in request.results]
    assert re.search(r"request: req_\w+", "".join(printed))
    assert other.call("bridge_status")["caller"]["session"] == other.session
    assert world.delivery(delivery)["delivery"]["state"] == "awaiting-peer"
    gate.release()
    target.wait_turns(1)
    world.all_settled()
    ended = world.delivery(delivery)
    assert ended["peer_transcript"]["answer"] == "the true answer"
    assert len(other.turns()) == 2


# What the tests share


def sessions(home: Home) -> set[str]:
    """What Claude Code's registry shows now."""
    assert isinstance(home, ClaudeHome)
    return {json.loads(path.read_text(encoding="utf-8"))["sessionId"] for path in home.registry()}


def prompt(world: World, kind: str) -> list[str]:
    """How a headless turn is given the question; Grok reads it from a file."""
    if kind != "grok":
        return [ASK]
    path = world.directory / "prompt"
    path.write_text(ASK, encoding="utf-8")
    return ["--prompt-file", str(path)]


def known(agent: Alone) -> list[tuple[str, str]]:
    return [(caller["agent"], caller["session"]) for caller in agent.callers()]


def asked_in(agent: Alone) -> set[str]:
    """The sessions in whose transcripts the question stands."""
    found = (agent.home.path / ".claude" / "projects").glob("*/*.jsonl")
    return {path.stem for path in found if "who is asking" in path.read_text(encoding="utf-8")}


def mark() -> dict[str, str]:
    return {MARK: os.environ[MARK]} if MARK in os.environ else {}
