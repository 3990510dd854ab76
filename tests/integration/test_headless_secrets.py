"""A marked text, answer and key go through the ends of started turns, and are nowhere afterwards (EN-24, DE-23)."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.brokers import Brokers
from tests.integration.command_lines import Turns
from tests.integration.lines import Json
from tests.integration.startable import each_agent

pytestmark = pytest.mark.requirement("EN-24", "DE-23")

BODY, ANSWER, KEY = "canary-of-the-body", "canary-of-the-answer", "canary-of-the-key"


@pytest.fixture
def world(home: Path, brokers: Brokers) -> Iterator[Turns]:
    built = Turns(home, brokers)
    built.client = built.caller(XAI_API_KEY=KEY)
    try:
        yield built
        assert built.left() == []
    finally:
        built.close()


def spilled(world: Turns) -> list[str]:
    """Where in the state directory a mark stands. The agents' own records lie below it here, and are none of it."""
    found = []
    for path in Path(world.home.root).rglob("*"):
        own = path.is_relative_to(world.user) or path.is_relative_to(world.bin)
        if path.is_file() and not path.is_fifo() and not own:
            data = path.read_bytes()
            found += [f"{path}: {mark}" for mark in (BODY, ANSWER, KEY) if mark.encode() in data]
    return found


def shown(world: Turns) -> list[str]:
    """Command lines, events and statuses that hold a mark."""
    found = []
    for entry in os.scandir("/proc"):
        if entry.name.isdecimal() and int(entry.name) != os.getpid():
            try:
                line = Path(entry.path, "cmdline").read_bytes().decode(errors="replace")
            except OSError:
                continue
            found += [line for mark in (BODY, ANSWER, KEY) if mark in line]
    told = str(world.ask("events", after=0)) + str(world.ask("overview"))
    return found + [mark for mark in (BODY, KEY) if mark in told]


def message(script: str) -> str:
    """The answer is made of what a model puts together, so that no file holds its mark but for its sake."""
    return f"ping M1 {'.' * 100} {BODY} [[{script}]]"


def over(world: Turns, receipt: Json) -> Json:
    delivery = world.ended(receipt, timeout=30)
    assert world.left() == []
    world.until(lambda: not spilled_but_preview(world, delivery), "nothing spilled", timeout=10)
    assert shown(world) == []
    assert BODY not in str(delivery) and KEY not in str(delivery)
    return delivery


def spilled_but_preview(world: Turns, delivery: Json) -> list[str]:
    in_database = (world.home.database, f"{world.home.database}-wal")
    preview = ANSWER in delivery["reply_preview"]
    return [line for line in spilled(world) if not (preview and ANSWER in line and line.split(": ")[0] in in_database)]


@each_agent
def test_a_turn_that_is_answered(world: Turns, agent: str) -> None:
    gate = world.gate()
    receipt = world.begin(agent, message(f"slowreply {gate} {ANSWER}"), new_session=True)
    assert shown(world) == []
    with gate.open("w"):
        pass
    assert over(world, receipt)["reply_preview"] == ANSWER


@pytest.mark.parametrize("agent", ["codex", *(pytest.param(other, marks=pytest.mark.full) for other in ("claude", "grok"))])
@pytest.mark.parametrize("end", ["failed", "runner killed", "agent killed"])
def test_a_turn_that_is_not(world: Turns, agent: str, end: str) -> None:
    if end == "failed":
        receipt = world.send(world.client, agent, message("fail boom"), new_session=True)
    else:
        receipt = world.begin(agent, message(f"slowreply {world.gate()} {ANSWER}"), new_session=True)
        os.kill((world.runner() if end == "runner killed" else world.agent_process(agent)).pid, signal.SIGKILL)
    assert over(world, receipt)["state"] == "failed"


def test_a_turn_whose_agent_quotes_what_it_was_given(world: Turns) -> None:
    """Its last words are part of the error; those of an agent of today hold none of it, and nothing here adds to them."""
    world.replace("claude", "cat > /dev/null", "echo no such thing >&2", "exit 3")
    receipt = world.send(world.client, "claude", message(f"reply {ANSWER}"), new_session=True)
    assert "no such thing" in over(world, receipt)["error"]
