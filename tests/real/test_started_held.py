"""No turn is started beside somebody who has the session: whoever it is, it is refused beforehand, and he is named (SE-09)."""

from __future__ import annotations

import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import pytest

from shims.agent import agent as described
from shims.headless import Order
from tests.real.exchange import until
from tests.real.panels.record import WAIT
from tests.real.started import AGENTS
from tests.real.terminal import Terminal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.real.gates import Gate
    from tests.real.outsider import Outsider
    from tests.real.started import StartingWorld

TERMINALS: Final = ("claude", "grok")
"""Codex's holds no thread itself: a daemon does, which outlives it."""


class Elsewhere:
    """A turn that somebody has started by hand, in the middle of which its model waits."""

    def __init__(self, world: StartingWorld, agent: str, session: str) -> None:
        self.gate: Gate = world.gate()
        headless = described(agent).headless
        assert headless is not None
        prompt = world.directory / f"{agent}.prompt"
        prompt.write_bytes(headless.input(f"by hand [[slow {self.gate} by hand]]", "11111111-2222-4333-8444-555555555555"))
        order = Order(session, "", "", str(prompt), str(world.work))
        home = world.homes[agent]
        self.process = subprocess.Popen(
            [world.program(agent), *headless.arguments(order)],
            env={**home.environment(), **world.variables(GROK_TRACK_HEADLESS="1")},
            cwd=home.cwd,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        assert self.process.stdin is not None
        self.process.stdin.write(b"" if headless.by_file else prompt.read_bytes())
        self.process.stdin.close()

    def end(self) -> None:
        self.gate.release()
        assert self.process.wait(WAIT) == 0

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


def refused(world: StartingWorld, agent: str, session: str, **more: Any) -> dict[str, Any]:
    caller = more.pop("caller", world.outsider)
    answer: dict[str, Any] = caller.call(f"send_to_{agent}", message="beside it [[reply never]]", session_id=session, **more)
    return answer


def without_doors(world: StartingWorld, **more: str) -> Outsider:
    """A caller whose registration leaves the agents' own doors alone."""
    return world.somebody(CROSS_AGENT_LIVE_DOORS="off", **more)


@pytest.mark.requirement("SE-09", "DE-25", "EN-14", "LD-01", "LD-07")
def test_a_session_in_which_somebody_works(starting: StartingWorld) -> None:
    """Of those who work by hand on a command line Claude Code alone has a door, which is switched off for this caller."""
    world = starting
    callers = {"claude": without_doors(world)}
    sessions = dict(zip(AGENTS, world.begun(*AGENTS), strict=True))
    others = {agent: Elsewhere(world, agent, session) for agent, session in sessions.items()}
    try:
        for agent, other in others.items():
            other.gate.reached()
            world.wait_session(sessions[agent], lambda line: line["held_by_pid"])  # files tell it within a second (SE-14)
            answer = refused(world, agent, sessions[agent], caller=callers.get(agent, world.outsider))
            assert answer.get("code") == "session_held", answer
            assert f"process {other.process.pid} holds it" in answer["error"]
            other.end()
        for agent, session in sessions.items():
            assert world.answer(agent, "and now [[reply free]]", session)["reply_preview"] == "free"
            assert world.turns(agent, session) == 3
            assert "beside it" not in world.seen(agent)
    finally:
        for other in others.values():
            other.close()


@pytest.mark.full
@pytest.mark.requirement("LD-01", "LD-02", "SE-09")
def test_a_claude_that_works_on_a_command_line_takes_a_message_as_a_turn_of_its_own(starting: StartingWorld) -> None:
    world = starting
    (session,) = world.begun("claude")
    other = Elsewhere(world, "claude", session)
    try:
        other.gate.reached()
        world.wait_session(session, lambda line: line["held_by_pid"])
        receipt = world.send("claude", "beside it [[reply heard]]", session)
        assert receipt["route"] == "claude-inbox"
        world.wait_handed_over(receipt["delivery_id"])
        other.end()
        assert world.ended(receipt["delivery_id"])["reply_preview"] == "heard"
        assert world.transcript("claude", session).count("beside it [[") > 0
        assert len(world.delivery(receipt["delivery_id"])["attempts"]) == 1
    finally:
        other.close()


@pytest.mark.requirement("SE-09", "DE-53")
def test_a_session_in_a_panel_is_reached_there_or_not_at_all(starting: StartingWorld) -> None:
    world = starting
    (session,) = world.begun("codex")
    server = world.codex_panel(home="person")
    server.resume_thread(session)
    world.wait_hosted(session)
    answer = refused(world, "codex", session, caller=without_doors(world, CROSS_AGENT_UI_HOOK="off"))
    assert answer.get("code") == "session_held", answer
    assert "CROSS_AGENT_UI_HOOK" in answer["error"]
    receipt = world.send("codex", "in the panel [[reply here]]", session)
    assert receipt["route"] == "panel"
    assert world.ended(receipt["delivery_id"])["reply_preview"] == "here"
    assert [turn.text.partition("\n")[0] for turn in server.turns(session)][-1:] == ["here"]


@pytest.mark.full
@pytest.mark.requirement("SE-09", "DE-53")
@pytest.mark.parametrize("agent", TERMINALS)
def test_a_session_in_a_terminal(starting: StartingWorld, agent: str) -> None:
    world = starting
    (session,) = world.begun(agent)
    with terminal(world, agent, session) as pid:
        world.wait_session(session, lambda line: line["held_by_pid"])
        answer = refused(world, agent, session, caller=without_doors(world))
        assert answer.get("code") == "session_held", answer
        assert f"process {pid} holds it" in answer["error"]
        assert "beside it" not in world.seen(agent)
    answered = until(lambda: world.outsider.call(f"send_to_{agent}", message="and now [[reply free]]", session_id=session), ok)
    assert world.ended(answered["delivery_id"])["reply_preview"] == "free"


def ok(answer: dict[str, Any]) -> bool:
    return bool(answer["ok"])


@contextmanager
def terminal(world: StartingWorld, agent: str, session: str) -> Iterator[int]:
    """The agent's own interface with ``session`` open, once it holds it; its pid."""
    home = world.homes[agent]
    environment = {**home.environment(), **world.variables()}
    with Terminal([world.program(agent), "--resume", session], environment, home.cwd) as shown:
        try:
            until(lambda: described(agent).holders(str(home.path / f".{agent}"), session), bool)
        except TimeoutError as error:
            raise AssertionError(shown.drawn[-3000:]) from error
        yield shown.pid
