"""Turns that the bridge starts on the command lines of the real agents, from the question in a panel to the answer there."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Final

import pytest

from tests.real.alone import callers
from tests.real.binaries import CLAUDE_VERSIONS
from tests.real.exchange import PREFACE, is_reply
from tests.real.party import calling
from tests.real.started import AGENTS, StartingWorld

if TYPE_CHECKING:
    from pathlib import Path

SECRET: Final = "what nobody was asked to read"
old_claude = pytest.mark.parametrize("version", [CLAUDE_VERSIONS[0], pytest.param(CLAUDE_VERSIONS[1], marks=pytest.mark.full)])


# The question and the answer


@pytest.mark.requirement("SE-40", "EN-14", "DE-02", "DE-03", "DE-40")
def test_a_claude_panel_asks_sessions_that_nobody_has_open(starting: StartingWorld) -> None:
    world = starting
    texts = {"codex": "[[reply the colour is blue]]", "grok": "[[reply the colour is green]]"}
    sessions = dict(zip(texts, world.begun(*texts), strict=True))
    panel = world.panel("claude")
    for agent, text in texts.items():
        session = sessions[agent]
        receipt = panel.call(f"send_to_{agent}", message=f"{PREFACE}{text}", session_id=session)
        assert (receipt["route"], receipt["target_session_id"], receipt["will_create_session"]) == ("headless", session, False)
        assert (receipt["sender_agent"], receipt["reply_lands_in_session"]) == ("claude", panel.session)
        assert {"not_open"} <= {warning["code"] for warning in receipt["warnings"]}
        words = text[len("[[reply ") : -2]
        panel.wait_turn(lambda turn, words=words: is_reply(turn, words))
        seen = world.last_seen(agent)
        assert f"remember {agent}" in seen and words in seen
        assert world.turns(agent, session) == 2
        assert world.ended(receipt["delivery_id"])["is_reply_confirmed_by_token"]

    receipt = panel.call("send_to_codex", message=f"{PREFACE}[[reply begun]]", new_session=True)
    assert (receipt["route"], receipt["will_create_session"]) == ("headless", True)
    panel.wait_turn(lambda turn: is_reply(turn, "begun"))
    session = world.ended(receipt["delivery_id"])["to_session"]
    assert session not in sessions.values()
    assert world.turns("codex", session) == 1
    world.nothing_is_left()


@pytest.mark.requirement("SE-40", "EN-14", "EN-15", "DE-40")
@old_claude
def test_a_codex_panel_asks_a_claude_that_may_not_do_all_of_it(tmp_path: Path, home: Path, version: str) -> None:
    """What nobody approved is denied, the answer comes all the same, and says so."""
    with StartingWorld(tmp_path, home, claude=version) as world:
        (session,) = world.begun("claude")
        panel = world.panel("codex")
        made = world.work / "made"
        script = f'tool Bash {{"command": "touch {made}"}} ;; reply done without it'
        receipt = panel.call("send_to_claude", message=f"{PREFACE}[[{script}]]", session_id=session)
        assert (receipt["route"], receipt["target_session_id"]) == ("headless", session)
        asked = panel.wait_turn(lambda turn: is_reply(turn, "done without it")).asked[0]
        assert re.search(r"^DENIED, .*: Bash$", asked, re.M), asked
        assert not made.exists()
        assert "remember claude" in world.last_seen("claude")
        assert world.ended(receipt["delivery_id"])["denied"] == ["Bash"]


# What a started turn is to the bridge


@pytest.mark.requirement("EN-13", "EN-20", "DE-50", "DE-03")
def test_a_started_turn_is_known_and_its_chain_ends(starting: StartingWorld) -> None:
    """Each asks whom the bridge takes it for and sends on, until no hop is left; nobody names the conversation."""
    world = starting
    (first,) = world.begun("claude")
    who = calling("bridge_status")

    def sends(agent: str, script: str, **named: object) -> str:
        return calling(f"send_to_{agent}", message=f"{PREFACE}[[{script}]]", **named)

    last = sends("codex", "reply never", new_session=True)
    back = sends("claude", f"{who} ;; {last} ;; reply a", session_id=first)
    onward = sends("grok", f"{who} ;; {back} ;; reply c", new_session=True)
    script = f"{who} ;; {sends('codex', f'{who} ;; {onward} ;; reply b', new_session=True)} ;; reply a"
    receipt = world.send("claude", f"{PREFACE}[[{script}]]", first)
    world.models["claude"].wait_for_request(lambda request: any("hop_limit" in result.text for result in request.results))
    world.all_settled()

    chain = world.requests()[1:]
    assert [(request["agent"], request["hop"], request["state"]) for request in chain] == [
        ("claude", 1, "delivered"),
        ("codex", 2, "delivered"),
        ("grok", 3, "delivered"),
        ("claude", 4, "delivered"),
    ]
    assert {request["conversation"] for request in chain} == {receipt["conversation_id"]}
    assert [request["sender_session"] for request in chain[1:]] == [request["session"] for request in chain[:3]]
    assert chain[0]["session"] == chain[3]["session"] == first
    assert [(caller["agent"], caller["session"]) for caller in callers(world.models["claude"])] == [("claude", first)] * 2
    for agent, request in (("codex", chain[1]), ("grok", chain[2])):
        assert [(caller["agent"], caller["session"]) for caller in callers(world.models[agent])] == [(agent, request["session"])]
    assert all("is_return_status_only" in request["flags"] for request in chain)
    refused = next(result for result in world.results("claude") if "hop_limit" in result)
    assert f"conversation {receipt['conversation_id']} has spent its 4 hops" in refused
    world.nothing_is_left()


# What it may do


@pytest.mark.requirement("EN-15", "EN-14", "DE-54")
def test_a_grok_that_needs_an_approval_says_so_and_runs_when_its_mode_is_granted(starting: StartingWorld) -> None:
    world = starting
    name = "CROSS_AGENT_GROK_PERMISSION_MODE"
    caller = world.somebody(**{name: "bypassPermissions"})
    touch = json.dumps({"command": "touch made", "description": "the test wants it"})
    risky = f"[[tool run_terminal_command {touch} ;; reply did it]]"
    receipt = world.send("grok", risky, caller=caller)
    assert [name in warning["text"] for warning in receipt["warnings"] if warning["code"] == "not_granted"] == [True]
    ended = world.ended(receipt["delivery_id"])
    assert (ended["state"], ended["code"], ended["denied"]) == ("failed", "approval_needed", None), ended
    assert name in ended["error"] and "run_terminal_command" in ended["error"]
    assert not (world.work / "made").exists()
    world.grant(grok_permission_mode="bypassPermissions")
    done = world.answer("grok", risky, ended["to_session"], caller=caller)
    assert done["reply_preview"] == "did it"
    assert (world.work / "made").exists()


@pytest.mark.requirement("EN-11", "EN-12")
def test_a_turn_without_a_login_names_what_was_withheld(starting: StartingWorld) -> None:
    world = starting
    keys = {"claude": "ANTHROPIC_API_KEY", "codex": "OPENAI_API_KEY", "grok": "XAI_API_KEY"}
    world.homes["codex"].write()
    wanting = world.homes["codex"].path / ".codex" / "config.toml"
    with_key = wanting.read_text(encoding="utf-8").replace(
        'wire_api = "responses"', 'wire_api = "responses"\nenv_key = "OPENAI_API_KEY"'
    )
    wanting.write_text(with_key, encoding="utf-8")
    passed = ",".join(name for name in world.keys if name not in keys.values())
    caller = world.somebody(CROSS_AGENT_CHILD_ENV=passed, OPENAI_API_KEY="k")
    sent = {agent: world.send(agent, "[[reply never]]", caller=caller)["delivery_id"] for agent in AGENTS}
    for agent, delivery in sent.items():
        ended = world.ended(delivery)
        assert (ended["state"], ended["code"]) == ("failed", "not_logged_in"), ended
        assert keys[agent] in ended["error"] and "CROSS_AGENT_CHILD_ENV" in ended["error"], ended
        assert world.models[agent].requests == []


@pytest.mark.requirement("DE-14")
@pytest.mark.parametrize("raw", [False, pytest.param(True, marks=pytest.mark.full)])
@pytest.mark.parametrize(
    "versions",
    [
        {},
        pytest.param({"claude": "2.1.197", "codex": "0.154.0"}, marks=pytest.mark.full),
        pytest.param({"codex": "0.147.0"}, marks=pytest.mark.full),
    ],
    ids=str,
)
def test_no_file_is_read_for_a_peer(tmp_path: Path, home: Path, versions: dict[str, str], *, raw: bool) -> None:
    outside = tmp_path / "outside" / "secret.txt"
    outside.parent.mkdir()
    outside.write_text(SECRET, encoding="utf-8")
    text = f"@{outside} and @{outside}\n@{outside}\n[[reply looked]]"
    with StartingWorld(tmp_path, home, **versions) as world:
        sent = {agent: world.send(agent, text, raw=raw) for agent in AGENTS}
        for agent, receipt in sent.items():
            ended = world.ended(receipt["delivery_id"])
            assert ended["reply_preview"].strip() == "looked", ended
            assert SECRET not in world.seen(agent) + world.transcript(agent, ended["to_session"])
            changed = [warning for warning in receipt["warnings"] if warning["code"] == "text_changed"]
            assert len(changed) == (0 if agent == "codex" else 1), (agent, receipt["warnings"])
