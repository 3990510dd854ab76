"""A turn that was started goes on, or ends, as the crash table says, whatever dies in the middle of it; and it ends when nothing
comes of it. Each with the three real agents at once.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pytest

from tests.integration.processes import gone_within
from tests.real.exchange import until
from tests.real.started import AGENTS, group_is_gone, kill

if TYPE_CHECKING:
    from tests.real.gates import Gate
    from tests.real.started import StartingWorld

GONE: Final = 10.0


class Working(NamedTuple):
    """A turn in whose middle its model waits at a gate."""

    delivery: str
    session: str
    gate: Gate


def begun(world: StartingWorld) -> dict[str, str]:
    """A session of each agent."""
    return dict(zip(AGENTS, world.begun(*AGENTS), strict=True))


def working(world: StartingWorld, **more: Any) -> dict[str, Working]:
    """A turn of each agent, of a session that had one before."""
    turns = {}
    for agent, session in begun(world).items():
        gate = world.gate()
        receipt = world.send(agent, f"go on [[slowreply {gate} went on]]", session, **more)
        turns[agent] = Working(receipt["delivery_id"], session, gate)
    for turn in turns.values():
        turn.gate.reached()
        world.wait_state(turn.delivery, "awaiting-peer")
    return turns


def still_usable(world: StartingWorld, sessions: dict[str, str]) -> None:
    """The next message finds each session as it was."""
    sent = {
        agent: world.send(agent, "are you there [[reply yes]]", session)["delivery_id"] for agent, session in sessions.items()
    }
    for agent, delivery in sent.items():
        ended = world.ended(delivery)
        assert (ended["state"], ended["reply_preview"]) == ("delivered", "yes"), ended
        assert f"remember {agent}" in world.last_seen(agent)
    world.nothing_is_left()


def asked_once(world: StartingWorld, turns: dict[str, Working]) -> None:
    """The models were asked for each turn once, and for nothing else since."""
    for agent in turns:
        requests = [request for request in world.models[agent].requests if not request.side]
        assert ["go on [[" in "".join(request.texts) for request in requests] == [False, True], agent


@pytest.mark.requirement("DE-24", "DE-25", "DE-21", "EN-11")
def test_a_new_broker_collects_what_an_earlier_one_has_started(starting: StartingWorld) -> None:
    """One turn ends while no broker lives, the others under the new one, which also has what a queued one needs."""
    world = starting
    turns = working(world)
    behind = world.send("codex", "and then [[reply went further]]", turns["codex"].session)
    assert (behind["queue_depth"], behind["peer_queue"]["runs_turn"]) == (0, True)
    runners = {agent: world.runner(turn.delivery) for agent, turn in turns.items()}
    world.kill_broker()
    turns["claude"].gate.release()
    assert gone_within(runners["claude"].pid, GONE)
    assert all(runner.alive() for agent, runner in runners.items() if agent != "claude")
    ended = {"claude": world.ended(turns["claude"].delivery)}
    for agent in ("codex", "grok"):
        assert world.delivery(turns[agent].delivery)["delivery"]["state"] == "awaiting-peer"
        turns[agent].gate.release()
        ended[agent] = world.ended(turns[agent].delivery)
    for agent, record in ended.items():
        assert (record["state"], record["reply_preview"]) == ("delivered", "went on"), record
        assert record["is_reply_confirmed_by_token"]
        assert "is_reply_recovered" not in record
        if agent != "codex":
            assert world.turns(agent, turns[agent].session) == 2
    assert world.ended(behind["delivery_id"])["reply_preview"] == "went further"
    assert world.turns("codex", turns["codex"].session) == 3
    world.nothing_is_left()


@pytest.mark.requirement("DE-35", "EN-16", "DE-22")
def test_a_turn_whose_runner_dies_ends_with_it(starting: StartingWorld) -> None:
    world = starting
    turns = working(world)
    leaders = {agent: world.started(turn.delivery) for agent, turn in turns.items()}
    for turn in turns.values():
        kill(world.runner(turn.delivery))
    for agent, turn in turns.items():
        ended = world.ended(turn.delivery)
        assert (ended["state"], ended["code"], ended["safe_to_resend"]) == ("failed", "interrupted", False), ended
        assert "is_undelivered" not in ended
        group_is_gone(leaders[agent])
        assert world.delivery(turn.delivery)["peer_transcript"]["is_working"] is False
    asked_once(world, turns)
    still_usable(world, {agent: turn.session for agent, turn in turns.items()})


@pytest.mark.full
@pytest.mark.requirement("DE-35", "DE-22")
def test_a_turn_whose_agent_dies_has_no_answer(starting: StartingWorld) -> None:
    world = starting
    turns = working(world)
    for turn in turns.values():
        kill(world.started(turn.delivery))
    for turn in turns.values():
        ended = world.ended(turn.delivery)
        assert (ended["state"], ended["code"], ended["safe_to_resend"]) == ("failed", "turn_failed", False), ended
        assert "signal 9" in ended["error"]
        assert world.delivery(turn.delivery)["peer_transcript"]["is_working"] is False
    asked_once(world, turns)
    still_usable(world, {agent: turn.session for agent, turn in turns.items()})


@pytest.mark.requirement("DE-32", "DE-36", "EN-16")
def test_a_model_that_never_answers(starting: StartingWorld) -> None:
    world = starting
    sessions, sent, gates = begun(world), {}, []
    for agent, session in sessions.items():
        gates.append(world.gate())
        sent[agent] = world.send(agent, f"go on [[slow {gates[-1]} never said]]", session, timeout=3)["delivery_id"]
        world.wait_state(sent[agent], "delivering", "awaiting-peer")
    leaders = {agent: until(world.turn(delivery).claimed, bool) for agent, delivery in sent.items()}
    for agent, delivery in sent.items():
        ended = world.ended(delivery)
        assert (ended["state"], ended["code"], ended["safe_to_resend"]) == ("failed", "killed_by_timeout", False), ended
        assert ended["is_killed_by_timeout"]
        assert "no sign of life" in ended["error"]
        leader = leaders[agent]
        assert leader is not None
        group_is_gone(leader)
        assert world.delivery(delivery)["peer_transcript"]["is_working"] is False
    still_usable(world, sessions)


@pytest.mark.full
@pytest.mark.requirement("DE-32", "EN-16")
def test_a_command_that_never_ends(starting: StartingWorld) -> None:
    """Commands have process groups and sessions of their own; they end with the turn all the same."""
    world = starting
    world.configure(shell="allow")
    name = {"codex": "CROSS_AGENT_CODEX_SANDBOX", "grok": "CROSS_AGENT_GROK_PERMISSION_MODE"}
    modes = {name["codex"]: "danger-full-access", name["grok"]: "bypassPermissions"}
    world.grant(**{setting.removeprefix("CROSS_AGENT_").lower(): mode for setting, mode in modes.items()})
    caller = world.somebody(**modes)
    calls = {
        "claude": lambda line: f"tool Bash {json.dumps({'command': line})}",
        "codex": lambda line: f"tool exec_command {json.dumps({'cmd': line, 'yield_time_ms': 30_000})}",
        "grok": lambda line: f"tool run_terminal_command {json.dumps({'command': line, 'description': 'd'})}",
    }
    sent, gates = {}, {}
    for agent in AGENTS:
        gates[agent] = world.gate()
        line = f"echo $$ > {world.directory}/{agent}.pid; wc -c < {gates[agent]}"
        sent[agent] = world.send(agent, f"[[{calls[agent](line)} ;; reply never]]", caller=caller, timeout=6)["delivery_id"]
    for agent, delivery in sent.items():
        ended = world.ended(delivery)
        assert ended["code"] == "killed_by_timeout", ended
        pid = int((world.directory / f"{agent}.pid").read_text(encoding="utf-8"))
        assert gone_within(pid, GONE), agent
    world.nothing_is_left()
