"""The columns of the matrix: what matters to somebody who has that version installed, each played by real agents.

Owns the list and the stories that are only its own. A column is a function of an empty world and the release's name; what it
asserts is what people in front of the panels would see.
"""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from tests.matrix.names import rename
from tests.real.binaries import CLAUDE_VERSIONS, CODEX_VERSIONS
from tests.real.exchange import PREFACE, Occupation, assert_turns, is_message, is_notice, is_reply, until
from tests.real.help_pages import misread_options, runner, unknown_commands
from tests.real.party import GrokParty, Turn
from tests.real.stories import ANSWER, Case, answer_comes_back_and_no_turn_is_harmed, assert_waits_for, queues

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.real.exchange import World
    from tests.real.party import Party

PARTNERS: Final = {
    "claude": f"codex-{CODEX_VERSIONS[0]}",
    "codex": f"claude-{CLAUDE_VERSIONS[0]}",
    "grok": f"claude-{CLAUDE_VERSIONS[0]}",
}
"""Who is on the other side: the newest pinned release of another agent."""

IMPATIENT: Final = {"CROSS_AGENT_PANEL_PATIENCE": "1"}
SECRET: Final = "the secret word is rhododendron"
NAME: Final = "Blue Whale"
SHELLS: Final = {"claude": "Bash", "codex": "command", "grok": "run_terminal_command"}
"""How the bridge calls the tool that runs commands."""


@dataclass(frozen=True, slots=True)
class Column:
    """``heading`` is its name, ``meaning`` what must be seen for a ✓."""

    heading: str
    meaning: str
    play: Callable[[World, str], None]


def agent_of(name: str) -> str:
    return name.partition("-")[0]


def version_of(name: str) -> str:
    return name.partition("-")[2]


def partner(world: World, name: str, **options: Any) -> Party:
    """Somebody who writes to a session of ``name``, or is written to."""
    return world.open(PARTNERS[agent_of(name)], home="partner", **options)


def greet(party: Party, words: str = "first words") -> None:
    """The person types into the panel."""
    turns = len(party.turns())
    party.say(f"{words} [[say noted]]")
    party.wait_turns(turns + 1)


def exchange(sender: Party, target: Party, answer: str = ANSWER, **options: Any) -> dict[str, Any]:
    """``sender`` sends a message, ``target`` answers it; the receipt."""
    options = {"session_id": target.session, **options}
    receipt = sender.call(target.tool, message=f"{PREFACE}[[reply {answer}]]", **options)
    assert receipt["accepted"], receipt
    sender.wait_turn(lambda turn: is_reply(turn, answer))
    return receipt


# The exchange


def written_to(world: World, name: str, state: str) -> None:
    answer_comes_back_and_no_turn_is_harmed(world, Case(PARTNERS[agent_of(name)], name, state, "idle"))


def writing(world: World, name: str, back: str) -> None:
    answer_comes_back_and_no_turn_is_harmed(world, Case(name, PARTNERS[agent_of(name)], "idle", back))


# Which session


def first_word(world: World, name: str) -> None:
    party = world.open(name)
    session = party.session
    world.wait_hosted(session)
    sender = partner(world, name)
    exchange(sender, party)
    assert party.session == session
    assert_turns(party, is_message)


def new_conversation(world: World, name: str) -> None:
    agent = agent_of(name)
    if agent == "codex":
        world.codex_panel(version_of(name))
    else:
        world.wait_hosted(world.open(name).session)
    sender = partner(world, name)
    receipt = sender.call(f"send_to_{agent}", message=f"{PREFACE}[[reply {ANSWER}]]")
    assert receipt["target_selected_by"] == "new", receipt
    sender.wait_turn(lambda turn: is_reply(turn, ANSWER))


def resumed(world: World, name: str) -> None:
    party, sender = world.open(name), partner(world, name)
    greet(party, "remember the albatross")
    session = party.session
    party.close()
    again = world.reopen(name, session)
    world.wait_session(session)
    exchange(sender, again)
    assert again.session == session
    assert is_message(again.turns()[0])
    asked = next(request for request in reversed(again.model.requests) if not request.side)
    assert "remember the albatross" in str(asked.body)


def by_name(world: World, name: str) -> None:
    party, sender = world.open(name), partner(world, name)
    greet(party)
    session = party.session
    rename(party, NAME)
    assert world.wait_session(session, lambda shown: shown["name"])["name"] == NAME
    receipt = exchange(sender, party, session_id=NAME.lower())
    assert receipt["target_session_id"] == session
    party.close()
    world.reopen(name, session)
    assert world.wait_session(session, lambda shown: shown["name"])["name"] == NAME


def right_session(world: World, name: str) -> None:
    """Claude Code has one session per process, which ``/clear`` replaces; the others have many."""
    target = partner(world, name)
    if agent_of(name) == "claude":
        party = world.open(name)
        greet(party)
        before = party.session
        party.say("/clear")
        party.wait_turns(2)
        assert exchange(party, target)["reply_lands_in_session"] == party.session != before
        return
    first = world.open(name)
    panel: Any = first.panel  # type: ignore[attr-defined]
    second = world.grok_session(panel, first.version) if isinstance(first, GrokParty) else world.thread(panel, first.version)
    for party, answer in ((first, "to the first"), (second, "to the second")):
        assert exchange(party, target, answer)["reply_lands_in_session"] == party.session
    assert [len(party.turns()) for party in (first, second)] == [2, 2]


# What is going on


def state_shown(world: World, name: str) -> None:
    party = world.open(name)
    work = Occupation(party, world.gate(), "approval")
    work.begun()
    shown = world.wait_session(party.session, lambda session: session["awaiting_approval"])
    assert (shown["awaiting_approval"]["tool"], shown["busy"]) == (SHELLS[party.agent], True)
    work.end()
    world.wait_session(party.session, lambda session: not session["awaiting_approval"] and not session["busy"])
    assert party.turns() == [work.turn]


def stopped(world: World, name: str) -> None:
    target, sender, gate = world.open(name), partner(world, name), world.gate()
    target.say(f"own work [[slow {gate} never told]]")
    gate.reached()
    receipt = sender.call(target.tool, message=f"{PREFACE}[[reply {ANSWER}]]", session_id=target.session)
    assert_waits_for(world, target, receipt["delivery_id"])
    target.interrupt()
    cut_off = target.wait_turn(lambda turn: not turn.completed)
    gate.release()
    back: list[Turn] = []
    if target.agent == "codex" and queues(target):
        world.wait_session(target.session, lambda shown: shown["queue_paused"])
        world.wait_state(receipt["delivery_id"], "awaiting-peer")
        back.append(Turn(("I am back [[say welcome]]",), "welcome", completed=True))
        target.say(back[0].asked[0])
    target.wait_turn(is_message)
    sender.wait_turn(lambda turn: is_reply(turn, ANSWER))
    world.all_settled()
    assert_turns(target, lambda turn: turn == cut_off, *back, is_message)


def taken_back(world: World, name: str) -> None:
    target, sender = world.open(name, shell="allow"), partner(world, name, settings=IMPATIENT)
    work = Occupation(target, world.gate(), "tool")
    work.begun()
    receipt = sender.call(target.tool, message=f"{PREFACE}[[reply too late]]", session_id=target.session, timeout=1)
    notice = sender.wait_turn(is_notice).asked[0]
    assert "NOT DELIVERED: it is safe to send it again" in notice
    work.end()
    world.all_settled()
    assert_turns(target, work.turn)
    assert world.delivery(receipt["delivery_id"])["delivery"]["safe_to_resend"]


# What a message must not do, and what must be told when nobody can answer any more


def inert(world: World, name: str) -> None:
    secret = world.directory / "outside" / "secret.txt"
    secret.parent.mkdir()
    secret.write_text(SECRET, encoding="utf-8")
    target, sender = world.open(name), partner(world, name)
    greet(target)
    session = target.session
    texts = (f"@{secret} and look at @{secret}", "/clear", "/context", "/compact now", "!date", "$shout")
    for number, text in enumerate(texts):
        message = f"{text} [[reply read {number}]]"
        sender.call(target.tool, message=message, session_id=session, raw=True)
        sender.wait_turn(lambda turn, answer=f"read {number}": is_reply(turn, answer))  # type: ignore[misc]
    assert [turn.answered for turn in target.turns()] == ["noted", *(f"read {number}" for number in range(len(texts)))]
    assert target.session == session
    assert not any(SECRET in str(request.body) for request in target.model.requests)


def records(world: World, name: str) -> None:
    target, sender, gate = world.open(name), partner(world, name), world.gate()
    greet(target)
    session = target.session
    answered = exchange(sender, target)["delivery_id"]
    told = until(lambda: world.delivery(answered)["peer_transcript"]["answer"], bool)
    assert told.startswith(ANSWER)
    receipt = sender.call(target.tool, message=f"{PREFACE}[[slowreply {gate} never told]]", session_id=session)
    gate.reached()
    world.wait_handed_over(receipt["delivery_id"])
    os.kill(target.pid, signal.SIGKILL)
    sender.wait_turn(is_notice)
    gate.release()
    # Grok leaves nothing of a turn that was killed in its first words.
    code = "uncertain" if target.agent == "grok" else "interrupted"
    assert world.delivery(receipt["delivery_id"])["delivery"]["code"] == code
    again = world.reopen(name, session)
    greet(again, "I am back")
    exchange(sender, again, "once more")


# The command line


def command_line(world: World, name: str) -> None:
    run = runner(name, world.directory)
    wrong = misread_options(name, run)
    assert not wrong, f"the help says of these options: {wrong}"
    unknown = unknown_commands(name, run)
    assert not unknown, f"unknown sub-commands: {sorted(unknown)}"


COLUMNS: Final = (
    Column(
        "idle",
        "A message to a session at rest is a turn of its own, and its answer comes back.",
        partial(written_to, state="idle"),
    ),
    Column("in a tool", "The same, sent while a tool runs; the running turn is not touched.", partial(written_to, state="tool")),
    Column("at an approval", "The same, sent while the session waits for a person.", partial(written_to, state="approval")),
    Column("streaming", "The same, sent while the model writes.", partial(written_to, state="text")),
    Column("back in a tool", "The session asks, and runs a tool when the answer comes.", partial(writing, back="tool")),
    Column("back at an approval", "It waits for a person when the answer comes.", partial(writing, back="approval")),
    Column("back while streaming", "Its model writes when the answer comes.", partial(writing, back="text")),
    Column("first word", "The session is known before anybody typed; a message is its first word.", first_word),
    Column("new conversation", "A message that names nobody opens a conversation in an empty panel.", new_conversation),
    Column("resumed", "A session that is opened again is reached by its id, and remembers.", resumed),
    Column("by name", "A name that a person gave finds the session, also when it is opened again.", by_name),
    Column(
        "right session",
        "An answer lands in the session that asked: after `/clear`, or beside others in one process.",
        right_session,
    ),
    Column("state shown", "A waiting approval is shown with its tool, and is shown no more when it is given.", state_shown),
    Column("stopped", "A person's stop ends his turn only: the message that waits arrives.", stopped),
    Column("taken back", "A message that waited too long is taken out of the agent again, and never runs.", taken_back),
    Column("inert", "`@file`, `/command`, `!command` in a message are text.", inert),
    Column("records", "The agent's files tell the answer, and what became of a message whose session was killed.", records),
    Column("command line", "Every option that takes a value, and every sub-command, is known to the shim.", command_line),
)
