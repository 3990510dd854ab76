"""Turns on command lines, the whole way: a caller, the broker, a runner, and the stub of the agent (DE-24, EN-11 to EN-16)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.brokers import Brokers
from tests.integration.startable import CommandLines, each_agent


@pytest.fixture
def world(home: Path, brokers: Brokers) -> Iterator[CommandLines]:
    built = CommandLines(home, brokers)
    try:
        yield built
    finally:
        built.close()


@pytest.mark.requirement("SE-40", "EN-14", "DE-02", "DE-03")
@each_agent
def test_a_conversation_is_opened_and_gone_on_with(world: CommandLines, agent: str) -> None:
    client = world.caller()
    first = world.opened(client, agent)
    assert (first["route"], first["target_selected_by"], first["will_create_session"]) == ("headless", "new", True), first
    assert first["idle_limit_seconds"] == 600
    assert {"new_conversation", "unknown_caller"} <= {warning["code"] for warning in first["warnings"]}
    assert (first["state"], first["reply_preview"]) == ("delivered", "begun")
    session = first["session"]
    assert session

    second = world.send(client, agent, "go on [[reply went on]]")
    assert (second["target_session_id"], second["target_selected_by"]) == (session, "pin"), second
    world.finished(2)
    answered = world.requests()[1]
    assert (answered["state"], answered["reply_preview"], answered["session"]) == ("delivered", "went on", session)
    status = client.call("bridge_status", delivery_id=second["delivery_id"])
    assert status["peer_transcript"] == {"is_working": False, "answer": status["peer_transcript"]["answer"]}
    assert "went on" in status["peer_transcript"]["answer"]
    assert os.listdir(world.home.turns) == []
