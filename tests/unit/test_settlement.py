"""What becomes of a message whose panel died, by what the agent's records say and how far it had come."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from broker.deliveries import Delivery, Evidence, State
from broker.processes import ProcessId
from broker.routes import Reach
from broker.settlement import Settlement
from tests.unit.engine import Engine, engine

PATIENCE = 10.0
DEAD = ProcessId(1, 1)
"""No process has this start time."""
PANELS: Any = SimpleNamespace(by_process=lambda _: None)
AGENTS = ("claude", "codex")

pytestmark = pytest.mark.requirement("DE-22")


def settled(
    path: Path,
    store: Path,
    agent: str,
    evidence: Evidence,
    *,
    door: bool = False,
    meanwhile: Callable[[Delivery], None] = lambda _: None,
) -> tuple[Delivery, int]:
    """What the one message is after its panel died with ``evidence``, and how often it was handed over.

    Args:
        door: its agent had it by a door of its own; meanwhile: what happens before that process dies.
    """

    async def story() -> tuple[Delivery, int]:
        async with engine(path) as made:
            settlement = Settlement(made.book, made.carrier, made.route, PANELS, made.reader)  # type: ignore[arg-type]
            made.route.reached = Reach("door" if door else "panel", str(DEAD), str(DEAD) if door else "", str(store))
            made.carrier.begin()
            queued = await made.queued(agent=agent)
            made.carrier.carry(queued)
            await _quiet()
            await _come_to(made, queued.id, evidence)
            meanwhile(queued)
            settlement.instance_gone(DEAD)
            await _quiet()
            delivery = made.book.delivery(queued.id)
            assert delivery is not None
            return delivery, len(made.route.handed_over)

    return asyncio.run(story())


async def _come_to(made: Engine, identifier: str, evidence: Evidence) -> None:
    (attempt,) = made.route.handed_over
    delivery = made.book.delivery(identifier)
    assert delivery is not None
    if evidence is Evidence.WRITTEN:
        await made.book.save_attempt(made.book.advanced(attempt, evidence))
    elif evidence is Evidence.TAKEN:
        await made.carrier.taken(delivery, attempt, delivery.session, "")


async def _quiet() -> None:
    """Waits until nothing is under way any more."""
    while others := asyncio.all_tasks() - {asyncio.current_task()}:
        done, _ = await asyncio.wait(others, timeout=PATIENCE)
        assert done


def deleted(store: Path, agent: str) -> None:
    """The store of an agent that keeps records of other sessions, and has none of this one any more."""
    if agent == "claude":
        other = store / "projects" / "-w" / "another.jsonl"
        other.parent.mkdir(parents=True)
        other.write_text('{"type":"user","uuid":"u"}\n')
    else:
        _index(store, "s1")


def untouched(store: Path, agent: str) -> None:
    """The store of an agent whose records of this session are there, or provably never were, and know no message of ours."""
    if agent == "claude":
        transcript = store / "projects" / "-w" / "s1.jsonl"
        transcript.parent.mkdir(parents=True)
        transcript.write_text('{"type":"user","uuid":"u"}\n')
    else:
        _index(store, "another")


def _index(store: Path, thread: str) -> None:
    with closing(sqlite3.connect(store / "state_5.sqlite")) as database:
        database.execute("CREATE TABLE threads (id TEXT PRIMARY KEY)")
        database.execute("INSERT INTO threads VALUES (?)", (thread,))
        database.commit()


@pytest.mark.parametrize("agent", AGENTS)
@pytest.mark.parametrize("evidence", [Evidence.NONE, Evidence.WRITTEN, Evidence.TAKEN])
def test_missing_records_prove_nothing(tmp_path: Path, agent: str, evidence: Evidence) -> None:
    """Never twice is above never lost: the agent may have had the message, and worked on it."""
    store = tmp_path / "store"
    store.mkdir()
    deleted(store, agent)
    delivery, hand_overs = settled(tmp_path, store, agent, evidence)
    assert (delivery.state, hand_overs) == (State.UNCERTAIN, 1)
    assert not delivery.safe_to_resend
    assert delivery.error


@pytest.mark.parametrize("agent", AGENTS)
@pytest.mark.parametrize("evidence", [Evidence.NONE, Evidence.WRITTEN])
def test_what_the_records_never_had_is_handed_over_again(tmp_path: Path, agent: str, evidence: Evidence) -> None:
    store = tmp_path / "store"
    store.mkdir()
    untouched(store, agent)
    delivery, hand_overs = settled(tmp_path, store, agent, evidence)
    assert (delivery.state, hand_overs) == (State.DELIVERING, 2)


@pytest.mark.requirement("LD-02", "LD-06")
@pytest.mark.parametrize("evidence", [Evidence.NONE, Evidence.WRITTEN])
def test_what_went_with_its_process_to_another_session_is_found_there(tmp_path: Path, evidence: Evidence) -> None:
    """`/clear` takes what waits at the inbox along, and the terminal may be closed before anybody has looked (2.1.332)."""
    store = tmp_path / "store"
    store.mkdir()
    untouched(store, "claude")

    def runs_elsewhere(delivery: Delivery) -> None:
        ours = {"type": "user", "uuid": "u1", "origin": {"kind": "peer", "msg_id": delivery.key}, "promptSource": "system"}
        answer = {"type": "assistant", "uuid": "u2", "message": {"content": "it ran here", "stop_reason": "end_turn"}}
        lines = "".join(json.dumps(line) + "\n" for line in (ours, answer))
        (store / "projects" / "-w" / "s2.jsonl").write_text(lines, encoding="utf-8")

    delivery, hand_overs = settled(tmp_path, store, "claude", evidence, door=True, meanwhile=runs_elsewhere)
    assert (delivery.state, delivery.session, delivery.reply_preview, hand_overs) == (State.DELIVERED, "s2", "it ran here", 1)
