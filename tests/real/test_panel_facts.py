"""What the shims report of real agents, as the bridge shows it: session ids, names, approvals, turns, and who is no session.

Everything is asked from outside, by a program that descends from no panel.
"""

from __future__ import annotations

import json
import subprocess
import time
from typing import TYPE_CHECKING, Any

import pytest

from tests.real.binaries import CLAUDE_VERSIONS, CODEX_VERSIONS, binary
from tests.real.exchange import ROOT, Occupation, World, until
from tests.real.panels.record import WAIT

if TYPE_CHECKING:
    from tests.real.party import Party

claude_versions = pytest.mark.parametrize("version", CLAUDE_VERSIONS)
codex_versions = pytest.mark.parametrize("version", CODEX_VERSIONS)
every_release = pytest.mark.parametrize(
    "name", [*(f"claude-{version}" for version in CLAUDE_VERSIONS), *(f"codex-{version}" for version in CODEX_VERSIONS)]
)


def refusal(world: World, party: Party, session: str, **arguments: Any) -> str:
    """The code with which a send to ``session`` is refused."""
    answer = world.outsider.call(party.tool, message="is anybody there", session_id=session, **arguments)
    assert not answer["ok"]
    return str(answer["code"])


# Session ids


@pytest.mark.requirement("SH-20", "SH-40", "SH-46")
@claude_versions
def test_id_of_a_claude_session_is_known_before_its_first_word(world: World, version: str) -> None:
    party = world.claude(version)
    new = party.session
    assert world.wait_hosted(new)["empty"]
    assert world.session(new) is None  # there is no conversation to list yet
    party.say("first words [[say noted]]")
    party.wait_turns(1)
    assert not world.wait_session(new)["empty"]
    party.close()

    party = world.claude(version, resume=new)
    assert not world.wait_hosted(new)["empty"]
    party.close()

    party = world.claude(version, resume=new, extra_args=["--fork-session"])
    forked = party.session
    assert forked != new
    assert not world.wait_hosted(forked)["empty"]
    assert world.hosted(new) is None
    party.close()

    party = world.claude(version, extra_args=["--continue"])
    world.wait_hosted(new)  # the fork has had no word of its own
    party.say("still the same [[say yes]]")
    party.wait_turns(1)
    assert party.session == new
    assert world.hosted(new)


@pytest.mark.requirement("SH-40")
@claude_versions
def test_clear_moves_a_claude_panel_to_a_new_session(world: World, version: str) -> None:
    party = world.claude(version)
    party.say("first words [[say noted]]")
    party.wait_turns(1)
    before = party.session
    world.wait_session(before)
    party.say("/clear")
    party.wait_turns(2)
    after = party.session
    assert after != before
    world.wait_hosted(after)
    assert world.hosted(before) is None
    assert refusal(world, party, before) == "unknown_session"


@pytest.mark.requirement("SH-20", "SH-50")
@codex_versions
def test_threads_of_one_app_server_are_sessions_of_their_own(world: World, version: str) -> None:
    panel = world.codex_panel(version)
    first, second = world.thread(panel, version), world.thread(panel, version)
    for party in (first, second):
        shown = world.wait_session(party.session)
        assert (shown["agent"], shown["accepts_messages"], shown["cwd"]) == ("codex", True, str(panel.home.cwd))
    first.say("first words [[say noted]]")  # now it is on the disk
    first.wait_turns(1)
    panel.call("thread/archive", {"threadId": first.session})
    until(lambda: world.session(first.session), lambda shown: shown is None)
    panel.close()
    until(lambda: world.session(second.session), lambda shown: shown is None)


@pytest.mark.requirement("SH-50")
@codex_versions
def test_thread_that_is_resumed_is_a_session_again(world: World, version: str) -> None:
    party = world.codex(version)
    party.say("first words [[say noted]]")
    party.wait_turns(1)
    party.close()
    panel = world.codex_panel(version)
    assert world.session(party.session) is None
    panel.resume_thread(party.session)
    assert world.wait_session(party.session)["accepts_messages"]


# Names


@pytest.mark.requirement("SH-20", "SE-24")
def test_claude_session_that_is_renamed_is_found_by_its_name(world: World) -> None:
    party = world.claude("2.1.332")
    party.say("first words [[say noted]]")
    party.wait_turns(1)
    party.say("/rename Blue  Whale")
    shown = world.wait_session(party.session, lambda session: session["name"])
    assert (shown["name"], shown["name_kind"]) == ("Blue Whale", "given")
    session = party.session
    party.close()
    world.claude("2.1.332", resume=session)
    assert world.wait_session(session, lambda session: session["name"])["name"] == "Blue Whale"


@pytest.mark.requirement("SH-20", "SE-24")
def test_old_claude_tells_a_name_only_in_its_transcript(world: World) -> None:
    party = world.claude("2.1.197", extra_args=["-n", "Red Fox"])
    party.say("first words [[say noted]]")
    party.wait_turns(1)
    session = party.session
    party.close()
    world.claude("2.1.197", resume=session)
    shown = world.wait_session(session, lambda session: session["name"])
    assert (shown["name"], shown["name_kind"]) == ("Red Fox", "given")


@pytest.mark.requirement("SH-20", "SE-24")
@codex_versions
def test_codex_thread_that_is_renamed_is_found_by_its_name(world: World, version: str) -> None:
    party = world.codex(version)
    party.panel.call("thread/name/set", {"threadId": party.session, "name": "Grey Heron"})
    shown = world.wait_session(party.session, lambda session: session["name"])
    assert (shown["name"], shown["name_kind"]) == ("Grey Heron", "given")
    receipt = world.outsider.call("send_to_codex", message="by name [[say here]]", session_id=" grey heron ")
    assert receipt["target_session_id"] == party.session
    party.wait_turns(1)
    party.close()
    world.codex_panel(version).resume_thread(party.session)
    assert world.wait_session(party.session, lambda session: session["name"])["name"] == "Grey Heron"


# What is going on there


@pytest.mark.requirement("SH-20", "SH-21", "SH-45", "SH-55")
@every_release
def test_approval_is_shown_with_its_tool_and_its_age(world: World, name: str) -> None:
    party = world.open(name)
    work = Occupation(party, world.gate(), "approval")
    work.begun()
    asked = time.monotonic()
    tool = {"claude": "Bash", "codex": "command"}[party.agent]
    shown = world.wait_session(party.session, lambda session: session["awaiting_approval"])
    assert shown["awaiting_approval"]["tool"] == tool
    aged = world.wait_session(party.session, lambda session: session["awaiting_approval"]["seconds"] >= 1)
    assert abs(aged["awaiting_approval"]["seconds"] - (time.monotonic() - asked)) < 1
    assert aged["busy"]
    work.end()
    assert party.turns() == [work.turn]
    shown = world.wait_session(party.session, lambda session: not session["awaiting_approval"])
    world.wait_session(party.session, lambda session: not session["busy"])


@pytest.mark.alone
@pytest.mark.requirement("MC-04")
@pytest.mark.parametrize("name", [f"claude-{CLAUDE_VERSIONS[0]}", f"codex-{CODEX_VERSIONS[0]}"])
def test_approval_is_in_the_status_within_a_second(world: World, name: str) -> None:
    party = world.open(name)
    world.wait_hosted(party.session)
    work = Occupation(party, world.gate(), "approval")
    work.begun()
    asked = time.monotonic()
    until(lambda: world.hosted(party.session), lambda session: session is not None and session["awaiting_approval"])
    assert time.monotonic() - asked < 1
    work.end()


@pytest.mark.requirement("SH-55")
@codex_versions
def test_approval_of_a_codex_mcp_call_names_the_tool(world: World, version: str) -> None:
    party = world.codex(version, approve_tools=False)
    party.say("[[tool mcp__cross-agent__bridge_status {} ;; say asked]]")
    party.wait_approval()
    shown = world.wait_session(party.session, lambda session: session["awaiting_approval"])
    assert shown["awaiting_approval"]["tool"] == "bridge_status"
    party.approve()
    party.wait_turns(1)
    world.wait_session(party.session, lambda session: not session["awaiting_approval"])


@pytest.mark.requirement("SH-20", "SH-21")
@every_release
def test_turn_is_shown_while_it_runs(world: World, name: str) -> None:
    party = world.open(name)
    work = Occupation(party, world.gate(), "text")
    work.begun()
    shown = world.wait_session(party.session, lambda session: session["busy"])
    assert shown["turn_seconds"] is not None
    work.end()
    assert world.wait_session(party.session, lambda session: not session["busy"])["turn_seconds"] is None
    work = Occupation(party, world.gate(), "text")
    work.begun()
    world.wait_session(party.session, lambda session: session["busy"])
    party.interrupt()
    world.wait_session(party.session, lambda session: not session["busy"])


# What is no session


@pytest.mark.requirement("SH-50", "SH-51")
@codex_versions
def test_ephemeral_thread_is_no_target(world: World, version: str) -> None:
    panel = world.codex_panel(version)
    ephemeral = world.thread(panel, version, ephemeral=True)
    ephemeral.say("first words [[say noted]]")
    ephemeral.wait_turns(1)
    world.wait_session(world.thread(panel, version).session)  # whatever was asked about the first one is answered by now
    assert world.session(ephemeral.session) is None
    assert refusal(world, ephemeral, ephemeral.session) == "unknown_session"


@pytest.mark.requirement("SH-50", "SH-51", "EN-20")
@pytest.mark.parametrize(("version", "generation"), [("0.171.0", 1), ("0.171.0", 2), ("0.154.0", 1), ("0.147.0", 1)])
def test_sub_agent_is_no_target_and_speaks_for_its_parent(world: World, version: str, generation: int) -> None:
    overrides = ["features.multi_agent_v2=true"] if generation == 2 else []
    parent = world.codex(version, config_overrides=overrides)
    parent.say("first words [[say noted]]")
    parent.wait_turns(1)
    spawn = next(tool for tool in world.openai.requests[-1].tools if tool.endswith("spawn_agent"))
    gate = world.gate()
    task = f"[[tool mcp__cross-agent__bridge_status {{}} ;; slow {gate} the child is done]]"
    parent.say(f"[[tool {spawn} {json.dumps({'message': task, 'task_name': 'helper'})} ;; say it is at work]]")
    gate.reached()
    started = parent.panel.wait(
        lambda message: message.get("method") == "turn/started" and message["params"]["threadId"] != parent.session
    )
    child = started["params"]["threadId"]
    asked = world.openai.wait_for_request(lambda request: any('"identified_by"' in result.text for result in request.results))
    caller = next(result.text for result in asked.results if '"identified_by"' in result.text)
    assert parent.session in caller and "the parent thread of the calling sub-agent" in caller
    assert world.session(child) is None
    assert refusal(world, parent, child) == "unknown_session"
    gate.release()
    parent.wait_turns(2)


@pytest.mark.requirement("SH-03", "SH-50")
def test_exec_through_the_shim_is_no_session(world: World) -> None:
    party = world.codex()
    home, real = party.panel.home, str(binary("codex-0.171.0"))
    done = subprocess.run(
        [str(ROOT / "bin" / "codex-shim"), "exec", "--json", "-C", str(home.cwd), "hello [[say from exec]]"],
        env={**home.environment(), "CROSS_AGENT_REAL_CODEX": real},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=WAIT,
        check=True,
    )
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert any("from exec" in str(line) for line in lines)
    thread = next(line["thread_id"] for line in lines if line["type"] == "thread.started")
    assert refusal(world, party, thread) == "unknown_session"
    assert world.wait_session(party.session)
