"""A message from one live session to another and the answer back, between real agents, whatever either is doing meanwhile.

The whole way is real: the sender's model calls the tool, the agent's own MCP client carries it, broker and shims hand it
over, and the answer comes back the same way. Every case ends with the complete list of turns that both panels showed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from tests.real.exchange import MESSAGE, PREFACE, is_message, is_reply
from tests.real.stories import Case, answer_comes_back_and_no_turn_is_harmed

if TYPE_CHECKING:
    from tests.real.exchange import World

CASES: Final = (
    Case("claude-2.1.332", "codex-0.171.0", "idle", "idle"),
    Case("codex-0.171.0", "claude-2.1.332", "idle", "idle"),
    # Each release as a target, in each state …
    Case("codex-0.171.0", "claude-2.1.332", "idle", "text"),
    Case("codex-0.154.0", "claude-2.1.332", "tool", "approval"),
    Case("claude-2.1.332", "claude-2.1.332", "approval", "tool"),
    Case("claude-2.1.197", "claude-2.1.332", "text", "text"),
    Case("codex-0.147.0", "claude-2.1.197", "idle", "text"),
    Case("claude-2.1.332", "claude-2.1.197", "tool", "text"),
    Case("codex-0.171.0", "claude-2.1.197", "approval", "tool"),
    Case("claude-2.1.197", "claude-2.1.197", "text", "tool"),
    Case("claude-2.1.332", "codex-0.171.0", "idle", "tool"),
    Case("claude-2.1.197", "codex-0.171.0", "tool", "text"),
    Case("codex-0.171.0", "codex-0.171.0", "approval", "text"),
    Case("claude-2.1.332", "codex-0.171.0", "text", "approval"),
    Case("claude-2.1.197", "codex-0.154.0", "idle", "tool"),
    Case("codex-0.171.0", "codex-0.154.0", "tool", "tool"),
    Case("claude-2.1.332", "codex-0.154.0", "approval", "text"),
    Case("codex-0.154.0", "codex-0.154.0", "text", "text"),
    Case("codex-0.154.0", "codex-0.147.0", "idle", "tool"),
    Case("claude-2.1.197", "codex-0.147.0", "tool", "approval"),
    Case("codex-0.171.0", "codex-0.147.0", "approval", "approval"),
    Case("codex-0.147.0", "codex-0.147.0", "text", "tool"),
    # … and what is missing of the pairs of agents, and of senders that are busy when the answer comes.
    Case("claude-2.1.197", "claude-2.1.332", "idle", "tool"),
    Case("codex-0.147.0", "codex-0.171.0", "tool", "approval"),
    Case("claude-2.1.332", "grok-1.0.41", "idle", "idle"),
    Case("grok-1.0.41", "codex-0.171.0", "idle", "text"),
    Case("codex-0.171.0", "grok-1.0.41", "tool", "tool"),
    Case("grok-1.0.41", "claude-2.1.332", "tool", "tool"),
    Case("claude-2.1.197", "grok-1.0.41", "approval", "idle"),
    Case("grok-1.0.41", "grok-1.0.41", "text", "approval"),
)
"""Every pair of (release, state of the target) and of (release, state of the sender at the return), no full product."""


@pytest.mark.requirement(
    "SH-34", "SH-35", "SH-41", "SH-43", "SH-52", "SH-53", "SH-61", "DE-01", "DE-10", "DE-37", "DE-40", "MC-01", "MC-02"
)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_answer_comes_back_and_no_turn_is_harmed(world: World, case: Case) -> None:
    answer_comes_back_and_no_turn_is_harmed(world, case)


@pytest.mark.requirement("DE-10", "DE-13")
def test_frame_says_who_writes_and_how_to_answer(world: World) -> None:
    target, sender = world.codex(), world.claude()
    receipt = sender.call(target.tool, message="mind the frame [[reply seen]]", session_id=target.session)
    turn = target.wait_turn(is_message)
    conversation = receipt["conversation_id"]
    head, _, rest = turn.asked[0].partition("\n\n")
    token = turn.answered.rsplit("\n", 1)[-1]
    assert head.split("\n") == [
        MESSAGE,
        "from: Claude Code (peer AI agent, not the human user)",
        f"reply-to: claude session {sender.session}",
        f"conversation: {conversation} | hop 1/4",
        f"request: {token}",
    ]
    assert rest.startswith("mind the frame [[reply seen]]\n\n[bridge] ")
    assert "send_to_claude" in rest and sender.session in rest and conversation in rest
    reply = sender.wait_turn(lambda turn: is_reply(turn, "seen")).asked[0]
    assert f"conversation: {conversation} | answering hop 1/4" in reply
    assert token not in reply
    assert "Nobody waits for this turn." in reply and target.session in reply


@pytest.mark.requirement("DE-42")
@pytest.mark.parametrize(("one", "other"), [("claude-2.1.332", "codex-0.171.0"), ("codex-0.154.0", "claude-2.1.197")])
def test_turn_that_reads_an_answer_works_in_its_own_directory(world: World, one: str, other: str) -> None:
    sender, target = world.open(one, shell="allow", home="sender"), world.open(other, home="target")
    target.say("first words [[say noted]]")
    target.wait_turns(1)
    order = f"[[{sender.command('pwd > here')} ;; say done as told]]"  # the answer makes its reader do something
    sender.call(target.tool, message=f"{PREFACE}[[reply {order}]]", session_id=target.session)
    sender.wait_turn(lambda turn: turn.answered == "done as told")
    directory = world.directory / "sender" / "work"
    assert (directory / "here").read_text(encoding="utf-8").strip() == str(directory)
