"""Sessions in terminals are first-class: asked and answered where they run, through the doors that their agents offer.

Nothing of ours stands before these agents. What is written is drawn in front of the person and stands in the agent's records,
and the person's own work goes first.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.real.exchange import PREFACE, Occupation, assert_turns, is_message, is_reply, until
from tests.real.party import Turn
from tests.real.releases import newest_first
from tests.real.terminals import ALONE, ANSWER, CLAUDE, CODEX, GROK, OLDER, TerminalParty

if TYPE_CHECKING:
    from tests.real.party import Party
    from tests.real.terminals import TerminalWorld

DOORS: Final = {"claude": "claude-inbox", "codex": "codex-queue", "grok": "grok-leader"}


def route_to(party: Party) -> str:
    return DOORS[party.agent] if isinstance(party, TerminalParty) else "panel"


def asks_and_is_answered(sender: Party, target: Party) -> None:
    """The answer comes back by the sender's own door, and both have seen all of it."""
    receipt = sender.call(target.tool, message=f"{PREFACE}[[reply {ANSWER}]]", session_id=target.session)
    assert (receipt["route"], receipt["return_route"]) == (route_to(target), route_to(sender)), receipt
    assert (receipt["target_session_id"], receipt["reply_lands_in_session"]) == (target.session, sender.session)
    target.wait_turn(lambda turn: is_message(turn, PREFACE) and turn.answered.startswith(ANSWER))
    sender.wait_turn(reply)
    if isinstance(target, TerminalParty):
        target.sees("BRIDGE MESSAGE", ANSWER)
    if isinstance(sender, TerminalParty):
        sees_reply(sender)


def sees_reply(sender: TerminalParty) -> None:
    """Grok folds what is longer than a few lines."""
    sender.sees("BRIDGE REPLY", *([ANSWER] if sender.agent != "grok" else []))


@pytest.mark.requirement("LD-01", "LD-02", "LD-03", "LD-04", "LD-05", "LD-06", "DE-37", "DE-40")
@pytest.mark.parametrize(
    ("one", "other"),
    [
        (CLAUDE, CODEX),
        *(
            pytest.param(*pair, marks=pytest.mark.full)
            for pair in ((CLAUDE, ALONE), (OLDER, CLAUDE), (GROK, CODEX), (CLAUDE, GROK), (OLDER, GROK))
        ),
    ],
)
def test_a_terminal_asks_a_terminal_and_is_asked(terminals: TerminalWorld, one: str, other: str) -> None:
    sender, target = terminals.opened(one), terminals.opened(other)
    asks_and_is_answered(sender, target)
    terminals.all_settled()
    asks_and_is_answered(target, sender)
    terminals.all_settled()
    assert_turns(sender, called, reply, is_message)
    assert_turns(target, is_message, called, reply)


@pytest.mark.requirement("LD-01", "LD-05", "LD-06", "DE-40")
@pytest.mark.parametrize(("terminal", "panel"), newest_first([(CLAUDE, "codex"), (CODEX, "claude"), (GROK, "claude")]))
def test_a_terminal_asks_a_panel_and_is_asked(terminals: TerminalWorld, terminal: str, panel: str) -> None:
    there, here = terminals.opened(terminal), terminals.panel(panel, shell="allow")
    here.say("first words [[say begun]]")
    here.wait_turns(1)
    asks_and_is_answered(there, here)
    terminals.all_settled()
    asks_and_is_answered(here, there)
    terminals.all_settled()
    assert_turns(there, called, reply, is_message)
    assert_turns(here, lambda turn: turn.answered == "begun", is_message, called, reply)


def called(turn: Turn) -> bool:
    return turn.answered == "called"


def reply(turn: Turn) -> bool:
    return is_reply(turn, ANSWER)


# The person comes first


def codes(receipt: dict[str, Any]) -> set[str]:
    return {warning["code"] for warning in receipt["warnings"]}


TOGETHER: Final = pytest.mark.parametrize(
    "names", [(CLAUDE, CODEX, GROK), *(pytest.param((name,), marks=pytest.mark.full) for name in (ALONE, OLDER))]
)
"""Terminals that stand beside each other, each with its own."""


def goes_first(world: TerminalWorld, names: tuple[str, ...], state: str, *warned: str) -> list[dict[str, Any]]:
    """What a person works at is whole, and ours is a turn of its own after it; the receipts."""
    parties = [world.opened(name) for name in names]
    works = [Occupation(party, world.gate(), state) for party in parties]
    for work in works:
        work.begun()
    receipts = [world.tell(party, ANSWER) for party in parties]
    for receipt in receipts:
        assert receipt["peer_queue"]["runs_turn"], receipt
        assert codes(receipt) >= set(warned), receipt
        world.wait_handed_over(receipt["delivery_id"])
    assert [party.turns() for party in parties] == [[] for _ in parties]
    for work in works:
        work.end()
    for party, work, receipt in zip(parties, works, receipts, strict=True):
        assert world.ended(receipt["delivery_id"])["reply_preview"] == ANSWER
        assert_turns(party, work.turn, lambda turn: is_message(turn) and turn.answered.startswith(ANSWER))
    return receipts


@pytest.mark.requirement("LD-02", "LD-03", "LD-04", "LD-06", "DE-37")
@TOGETHER
def test_the_persons_running_turn_stays_whole(terminals: TerminalWorld, names: tuple[str, ...]) -> None:
    goes_first(terminals, names, "tool", "peer_busy")


@pytest.mark.requirement("LD-02", "LD-03", "LD-04", "LD-06", "DE-37")
@TOGETHER
def test_an_approval_that_is_pending_is_told_and_waited_for(terminals: TerminalWorld, names: tuple[str, ...]) -> None:
    """A Codex that no daemon serves tells nobody what it waits for."""
    terminals.configure(shell="ask")
    tells = names[0] not in (ALONE, OLDER)
    receipts = goes_first(terminals, names, "approval", *(["peer_awaits_person"] if tells else []))
    assert [bool(receipt["peer_queue"]["awaits_approval"]) for receipt in receipts] == [tells] * len(names)


def stopped(work: Occupation) -> Turn:
    return Turn((work.text,), "", completed=False)


def stops(party: TerminalParty, work: Occupation) -> None:
    """The person's turn, and no other."""
    party.interrupt()
    party.wait_turn(lambda turn: turn == stopped(work))
    work.let_go()


@pytest.mark.requirement("LD-02", "LD-06")
def test_what_waits_in_claude_runs_when_the_person_stops_its_turn(terminals: TerminalWorld) -> None:
    world = terminals
    party = world.opened(CLAUDE)
    work = Occupation(party, world.gate(), "tool")
    work.begun()
    receipt = world.tell(party, ANSWER)
    world.wait_handed_over(receipt["delivery_id"])
    stops(party, work)
    assert world.ended(receipt["delivery_id"])["reply_preview"] == ANSWER
    assert_turns(party, stopped(work), is_message)


@pytest.mark.requirement("LD-03", "LD-06")
@pytest.mark.parametrize("name", newest_first([CODEX, ALONE, OLDER]))
def test_what_waits_in_codex_stands_still_when_the_person_stops_its_turn(terminals: TerminalWorld, name: str) -> None:
    """Until he speaks; whoever sends meanwhile is told."""
    world = terminals
    party = world.opened(name)
    work = Occupation(party, world.gate(), "tool")
    work.begun()
    waiting = world.tell(party, ANSWER)
    world.wait_handed_over(waiting["delivery_id"])
    stops(party, work)
    receipt = world.tell(party, "another answer")
    assert "peer_paused" in codes(receipt), receipt
    assert world.delivery(waiting["delivery_id"])["peer_panel"]["queue_paused"]
    party.say("go on [[say going]]")
    for sent, words in ((waiting, ANSWER), (receipt, "another answer")):
        assert world.ended(sent["delivery_id"])["reply_preview"] == words
    assert_turns(party, stopped(work), Turn(("go on [[say going]]",), "going", completed=True), is_message, is_message)


# What is left behind


@pytest.mark.requirement("EN-24", "DE-23", "LD-02", "LD-03", "LD-04")
@pytest.mark.parametrize("name", newest_first([CLAUDE, CODEX, GROK]))
def test_nothing_of_a_message_or_of_what_proves_who_speaks_is_left(terminals: TerminalWorld, name: str) -> None:
    party = terminals.opened(name)
    receipt = terminals.send(party.agent, f"{PREFACE}canary-of-the-body [[reply {ANSWER}]]", party.session)
    terminals.ended(receipt["delivery_id"])
    keys = (terminals.person / ".claude" / "sessions").glob("*.key")
    tokens = [json.loads(path.read_text(encoding="utf-8"))["peerToken"] for path in keys]
    assert bool(tokens) == (name == CLAUDE)

    marks = ("canary-of-the-body", *tokens)

    def spilled() -> list[str]:
        files = {path: path.read_bytes() for path in terminals.state.rglob("*") if path.is_file()}
        return [f"{path}: {mark}" for path, content in files.items() for mark in marks if mark.encode() in content]

    until(spilled, lambda found: not found)
