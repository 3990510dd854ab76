"""What the real agents leave on disk, where the bridge decides by it: missing records, what a session
said last, and who moved it last."""

from __future__ import annotations

import subprocess
import time
from typing import TYPE_CHECKING

import pytest

from shims.agent import Found, Latest, Record, agents
from shims.claude import sessions as claude
from shims.codex import sessions as codex
from tests.real.binaries import CLAUDE_VERSIONS, CODEX_VERSIONS, binary
from tests.real.exchange import Occupation, World, is_message, is_reply, until
from tests.real.panels.record import WAIT
from tests.real.party import ClaudeParty, CodexParty, GrokParty

if TYPE_CHECKING:
    from tests.real.party import Party

KEY = "d0d0d0d0-0000-4000-8000-000000000001"
"""Of a message that nobody ever sent."""
TOKEN = "req_1700000000000_abcdef"
MESSAGE = "a message for whoever that is, longer than a summary that would hold its script; so it goes on [[reply it is me]]"

ABSENT, UNKNOWN = Record(Found.ABSENT), Record(Found.UNKNOWN)

codex_versions = pytest.mark.parametrize("version", CODEX_VERSIONS)


def greet(party: Party) -> None:
    turns = len(party.turns())
    party.say("hello [[say hello]]")
    party.wait_turns(turns + 1)


@pytest.mark.requirement("DE-22")
@pytest.mark.parametrize("version", CLAUDE_VERSIONS)
def test_claude_without_persistence_had_a_turn_and_left_nothing(world: World, version: str) -> None:
    party = world.claude(version, extra_args=["--no-session-persistence"])
    greet(party)
    store = str(party.panel.home.config)
    assert claude.record(store, party.session, KEY) == UNKNOWN
    kept = world.claude(version)
    greet(kept)
    until(lambda: claude.record(store, kept.session, KEY), lambda found: found == ABSENT)


@pytest.mark.requirement("DE-22")
@codex_versions
def test_codex_thread_without_a_rollout_is_unused_or_lost(world: World, version: str) -> None:
    unused = world.codex(version)
    store = unused.panel.home.config
    assert codex.record(str(store), unused.session, TOKEN) == ABSENT
    used = world.thread(unused.panel, version)
    greet(used)
    assert codex.record(str(store), used.session, TOKEN) == ABSENT
    unused.close()
    assert codex.record(str(store), unused.session, TOKEN) == ABSENT
    (rollout,) = store.glob(f"sessions/*/*/*/rollout-*-{used.session}.jsonl")
    rollout.unlink()
    assert codex.record(str(store), used.session, TOKEN) == UNKNOWN


@pytest.mark.requirement("DE-22")
@pytest.mark.parametrize("version", [version for version in CODEX_VERSIONS if version != "0.147.0"])
def test_codex_notes_for_ever_that_a_queue_was_used(world: World, version: str) -> None:
    """A thread that was deleted after a message of ours is not taken for one that never had any."""
    party = world.codex(version)
    home = party.panel.home
    content = [{"type": "text", "text": "hello [[say hello]]"}]
    party.panel.call("thread/queue/add", {"threadId": party.session, "clientUserMessageId": TOKEN, "input": content})
    party.wait_turns(1)
    party.close()
    assert codex.record(str(home.config), party.session, TOKEN).found is Found.ANSWERED
    subprocess.run(
        [str(binary(f"codex-{version}")), "delete", "--force", party.session],
        env=home.environment(),
        cwd=home.cwd,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=True,
        timeout=WAIT,
    )
    assert codex.find(str(home.config), party.session) is None
    assert codex.record(str(home.config), party.session, TOKEN) == UNKNOWN


@pytest.mark.requirement("SE-08")
@pytest.mark.parametrize(
    "name",
    [
        "claude-2.1.332",
        "codex-0.171.0",
        "grok-1.0.41",
        pytest.param("claude-2.1.197", marks=pytest.mark.full),
        pytest.param("codex-0.154.0", marks=pytest.mark.full),
        pytest.param("codex-0.147.0", marks=pytest.mark.full),
    ],
)
def test_the_latest_of_a_session_is_what_its_panel_saw(world: World, name: str) -> None:
    party = world.open(name)
    assert isinstance(party, ClaudeParty | CodexParty | GrokParty)
    store = str(party.panel.home.config)

    def latest(after: float = 0.0) -> Latest:
        return agents()[party.agent].latest(store, party.session, after)

    began = time.time()
    greet(party)
    first = until(latest, lambda found: found.text and not found.open)
    assert (first.text, first.since) == ("hello", "hello")
    assert began < first.ended < time.time()

    work = Occupation(party, world.gate(), "text")
    work.begun()
    assert until(lambda: latest(first.ended), lambda found: found.open) == Latest("hello", first.ended, open=True)
    work.end()
    last = until(lambda: latest(first.ended), lambda found: not found.open)
    assert (last.text, last.since) == (work.answer, work.answer)

    party.say(f"more [[slow {(gate := world.gate())} never said]]")
    gate.reached()
    until(latest, lambda found: found.open)
    party.interrupt()
    gate.release()
    until(latest, lambda found: not found.open)
    assert latest(first.ended).text == work.answer


@pytest.mark.requirement("SE-22")
@pytest.mark.parametrize(
    ("sender", "target"),
    [
        ("claude-2.1.332", "codex-0.171.0"),
        pytest.param("claude-2.1.197", "codex-0.147.0", marks=pytest.mark.full),
        pytest.param("codex-0.154.0", "claude-2.1.332", marks=pytest.mark.full),
        ("codex-0.171.0", "claude-2.1.197"),
    ],
)
def test_after_a_reload_the_session_that_the_person_used_last_is_chosen(world: World, sender: str, target: str) -> None:
    """Opened in the other order, which moves Claude's files; and a message of ours moves nothing."""
    other, latest, asking = world.open(target), world.open(target), world.open(sender)
    greet(other)
    greet(latest)
    latest, other = reopened(world, target, latest), reopened(world, target, other)
    for words in ("it is me", "it is me again"):
        answer = asking.call(latest.tool, message=MESSAGE.replace("it is me", words))
        assert (answer["target_session_id"], answer["target_selected_by"]) == (latest.session, "panel-focus")
        asking.wait_turn(lambda turn, words=words: is_reply(turn, words))  # type: ignore[misc]
        asking.call(latest.tool, message=MESSAGE, session_id=other.session)
        other.wait_turn(is_message)


def reopened(world: World, name: str, party: Party) -> Party:
    """The same session in a new panel, in which nobody has typed."""
    session = party.session
    party.close()
    again = world.reopen(name, session)
    world.wait_session(session)
    return again
