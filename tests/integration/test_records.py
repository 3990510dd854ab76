"""What the agents' own records decide: which session was in use last, and that missing ones prove nothing."""

from __future__ import annotations

import pytest

from tests.integration.exchanges import ping
from tests.integration.panels import Panel
from tests.integration.processes import gone_within
from tests.integration.world import World

AGENTS = ("claude", "codex", "grok")


def used(world: World, agent: str) -> Panel:
    """A panel whose session has a history."""
    panel = world.open(agent)
    panel.say("hello")
    panel.wait_ends(1)
    return panel


def reopened(world: World, panel: Panel) -> Panel:
    """The same session in a new panel, in which nobody has typed."""
    panel.close()
    again = world.open(panel.agent, resume=panel.session)
    again.registered()
    return again


def goes_to(sender: Panel, target: Panel, marker: str, number: int, **arguments: str) -> str:
    """Which session a message went to that ``sender`` was told to send, when its answer has come."""
    sender.send_to(target, ping(marker), **arguments)
    sender.wait_reply(f"pong {marker}")
    return str(sender.wait_receipt(number)["target_session_id"])


@pytest.mark.requirement("SE-22")
@pytest.mark.parametrize("agent", AGENTS)
def test_after_a_reload_an_unaddressed_message_goes_where_the_person_was_last(world: World, agent: str) -> None:
    """Every shim is new, so nobody was seen typing; and a message of ours to another session changes nothing."""
    other = used(world, agent)
    latest = used(world, agent)
    sender = world.open("codex" if agent == "claude" else "claude")
    latest, other = reopened(world, latest), reopened(world, other)
    assert goes_to(sender, latest, "M1", 1, session_id="") == latest.session
    assert goes_to(sender, other, "M2", 2) == other.session
    assert goes_to(sender, latest, "M3", 3, session_id="") == latest.session
    assert latest.handed_over("M3") == 1


@pytest.mark.requirement("DE-22", "DE-35")
@pytest.mark.parametrize("point", ["shim.write.before", "shim.write.after"])
def test_a_session_that_left_no_records_gets_nothing_twice(world: World, point: str) -> None:
    """Its transcript was deleted while it lived: whether it had the message, nobody can know any more."""
    sender, target = world.codex(), world.claude()
    target.say("hello")
    target.wait_ends(1)
    for panel in (sender, target):
        panel.registered()
    (transcript,) = target.store.glob(f"projects/*/{target.session}.jsonl")
    transcript.unlink()
    world.arm(point)
    sender.send_to(target, ping("M1"))
    assert gone_within(target.pid, 10)
    again = world.claude(session=target.session)
    again.registered()
    assert "UNCERTAIN" in sender.wait_notice()
    (request,) = world.finished()
    assert request["state"] == "uncertain"
    # Once it is written, the agent may say that it began before the shim is gone.
    assert not request["handed_over"] or point == "shim.write.after"
    assert len(world.attempts()) == 2  # one of the request, one of the notice
    assert again.prompts() == []
