"""Two living processes of one session: a window that reloads while its old agent still finishes a turn, and two windows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.real.binaries import CLAUDE_VERSIONS
from tests.real.exchange import PREFACE, assert_turns, is_message, is_notice, is_reply, until
from tests.real.party import Turn

if TYPE_CHECKING:
    from tests.real.exchange import World
    from tests.real.party import ClaudeParty


def hosts(world: World, session: str) -> int:
    """How many panels hold ``session``."""
    panels = world.outsider.call("bridge_status", scope="any")["ide_panels"]
    return sum(hosted["id"] == session for panel in panels for hosted in panel["sessions"])


def with_history(world: World, version: str) -> ClaudeParty:
    party = world.claude(version, home="target")
    party.say("first words [[say noted]]")
    party.wait_turns(1)
    return party


@pytest.mark.requirement("SH-11", "SH-15", "DE-37")
@pytest.mark.parametrize("version", CLAUDE_VERSIONS)
def test_message_goes_to_the_new_panel_when_the_old_agent_has_finished_its_turn(world: World, version: str) -> None:
    old, sender, gate = with_history(world, version), world.codex(), world.gate()
    old.say(f"own work [[slow {gate} the old one's answer]]")
    gate.reached()
    old.panel.end_input()
    new = world.claude(version, home="target", resume=old.session)
    until(lambda: hosts(world, old.session), lambda count: count == 2)

    receipt = sender.call(new.tool, message=f"{PREFACE}[[reply pong]]", session_id=old.session)
    assert receipt["accepted"]
    assert world.delivery(receipt["delivery_id"])["delivery"]["state"] == "queued"
    assert new.turns() == []
    gate.release()
    assert old.wait_turns(2)[1].answered == "the old one's answer"
    new.wait_turn(is_message)
    sender.wait_turn(lambda turn: is_reply(turn, "pong"))
    world.all_settled()
    assert len(world.delivery(receipt["delivery_id"])["attempts"]) == 1
    assert_turns(new, is_message)


@pytest.mark.full  # two that both stay are waited for 15 s
@pytest.mark.requirement("SH-15")
def test_message_to_a_session_that_two_windows_keep_open_is_refused(world: World) -> None:
    one, sender = with_history(world, CLAUDE_VERSIONS[0]), world.codex()
    other = world.claude(home="target", resume=one.session)
    until(lambda: hosts(world, one.session), lambda count: count == 2)
    sender.call(one.tool, message=f"{PREFACE}[[reply pong]]", session_id=one.session)
    notice = sender.wait_turn(is_notice).asked[0]
    assert "open in two panels" in notice and "safe to send it again" in notice
    assert str(one.pid) in notice and str(other.pid) in notice
    world.all_settled()
    assert_turns(one, Turn(("first words [[say noted]]",), "noted", completed=True))
    assert_turns(other)
