"""Sessions as a caller meets them, with a whole broker: who is listed, who is meant, who is refused and why."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from broker.processes import identify
from tests.integration.exchanges import gate, open_gate
from tests.integration.made_up_stores import Stores
from tests.integration.panels import McpClient, children
from tests.integration.world import World

PATIENCE = 20.0
AGENTS = ("claude", "codex", "grok")


@pytest.fixture
def stores(home: Path) -> Stores:
    return Stores(home / "stores")


def client_of(world: World, stores: Stores, **variables: str) -> McpClient:
    """Somebody who is no agent, with an environment in which the agents' data directories are ``stores``."""
    client = world.mcp(**{**stores.environment(), **variables})
    client.shake_hands()
    return client


def listed(client: McpClient, **arguments: Any) -> list[dict[str, Any]]:
    """``scope=None`` passes none."""
    asked = {name: value for name, value in {"scope": "any", "limit": 99, **arguments}.items() if value is not None}
    found: list[dict[str, Any]] = client.call("list_agent_sessions", **asked)["sessions"]
    return found


def ids(client: McpClient, **arguments: Any) -> list[str]:
    return [line["id"] for line in listed(client, **arguments)]


def wait_for(client: McpClient, holds: Callable[[list[dict[str, Any]]], bool]) -> list[dict[str, Any]]:
    """The list of sessions, as soon as it says so: files are looked at a moment after they changed."""
    deadline = time.monotonic() + PATIENCE
    while not holds(lines := listed(client)):
        assert time.monotonic() < deadline, lines
    return lines


def send(client: McpClient, agent: str, session: str = "", **arguments: Any) -> dict[str, Any]:
    asked = {"message": "are you there [[reply here]]", **({"session_id": session} if session else {}), **arguments}
    answer: dict[str, Any] = client.call(f"send_to_{agent}", **asked)
    return answer


def refusal(client: McpClient, agent: str, session: str = "", **arguments: Any) -> tuple[str, str]:
    """Code and sentence with which a send is refused."""
    answer = send(client, agent, session, **arguments)
    assert (answer["ok"], answer["retry_safe"]) == (False, True), answer
    assert answer["next_step"]
    return answer["code"], answer["error"]


def pinned(client: McpClient, session: str, agent: str = "claude", cwd: str = "/w") -> dict[str, Any]:
    answer: dict[str, Any] = client.call("pin_agent_session", agent=agent, session_id=session, cwd=cwd)
    return answer


# whose sessions


@pytest.mark.requirement("SE-13", "SE-01", "SE-02", "SE-03", "MC-03")
def test_each_caller_sees_the_stores_of_its_own_environment(world: World, home: Path) -> None:
    sets = {name: Stores(home / name) for name in ("one", "two")}
    made = {name: [s.claude.add(name=name), s.codex.add(name=name), s.grok.add(name=name)] for name, s in sets.items()}
    clients = {name: client_of(world, s) for name, s in sets.items()}
    for name, client in clients.items():
        assert sorted(ids(client)) == sorted(made[name])
        other = "two" if name == "one" else "one"
        for agent, session, foreign in zip(AGENTS, made[name], made[other], strict=True):
            code, error = refusal(client, agent, name.upper())
            assert code == "headless_disabled" and session in error
            for unseen in (foreign, other):
                assert refusal(client, agent, unseen)[0] == "unknown_session"
    mixed = client_of(world, sets["one"], CODEX_HOME=str(sets["two"].codex.path), GROK_HOME="")
    shutil.copytree(sets["two"].grok.path, sets["one"].path / ".grok")  # where it is when no variable moves it
    lines = wait_for(mixed, lambda lines: len(lines) == 3)
    assert {(line["agent"], line["id"]) for line in lines} == {
        ("claude", made["one"][0]),
        ("codex", made["two"][1]),
        ("grok", made["two"][2]),
    }


@pytest.mark.requirement("SE-13")
@pytest.mark.parametrize("kind", AGENTS)
def test_a_panel_sees_the_stores_that_its_agents_process_was_told_of(world: World, home: Path, kind: str) -> None:
    """Codex does not tell its MCP servers."""
    other = "codex" if kind == "claude" else "claude"
    stores = Stores(home / "elsewhere")
    session = getattr(stores, other).add("/far", name="Mine")
    panel = world.open(kind, **{{"claude": "CLAUDE_CONFIG_DIR", "codex": "CODEX_HOME"}[other]: str(getattr(stores, other).path)})
    panel.registered()
    arguments = json.dumps({"message": "are you there", "session_id": "Mine"})
    panel.say(f"[[tool mcp__cross-agent__send_to_{other} {arguments} ;; say done]]")
    receipt = panel.wait_receipt()
    assert receipt["code"] == "headless_disabled" and session in receipt["error"]


@pytest.mark.requirement("MC-03", "SE-09")
def test_a_session_is_listed_with_where_it_is_open(world: World, stores: Stores) -> None:
    """One session through its lives: in a panel, in nobody's hands, held by somebody that no message reaches, in a panel."""
    panel = world.claude()
    panel.registered()
    panel.say("first words [[reply noted]]")
    panel.wait_ends(1)
    client = client_of(world, stores, CLAUDE_CONFIG_DIR=str(panel.store))

    def line(holds: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        return wait_for(client, lambda lines: any(line["id"] == panel.session and holds(line) for line in lines))[0]

    shown = line(lambda line: line["live"] and line["name"])
    assert (shown["reached_by"], shown["accepts_messages"], shown["held_by_pid"]) == (
        "panel of this window",
        True,
        panel.child(),
    )
    assert (shown["name"], shown["name_kind"]) == ("first words [[reply noted]]", "generated")
    outside = world.mcp_outside(**stores.environment())
    assert [line["reached_by"] for line in listed(outside, agent="claude")] == ["panel of another window"]
    fields = set(shown)
    panel.close()
    shown = line(lambda line: not line["live"])
    assert set(shown) == fields
    assert (shown["reached_by"], shown["accepts_messages"], shown["held_by_pid"]) == (None, False, None)
    assert (shown["cwd"], shown["active"], shown["why_not"]) == (
        str(panel.store.parent / "work"),
        True,
        "it is not open in an editor panel",
    )
    me = identify(os.getpid())
    assert me is not None
    stores.claude.path = panel.store
    stores.claude.register(panel.session, me.pid, me.start)
    shown = line(lambda line: line["live"])
    assert (shown["reached_by"], shown["held_by_pid"], shown["accepts_messages"]) == (None, me.pid, False)
    code, error = refusal(client, "claude", panel.session)
    assert code == "session_held" and f"process {me.pid} holds it" in error
    (panel.store / "sessions" / f"{me.pid}.json").unlink()
    again = world.claude(resume=panel.session)
    again.registered()
    line(lambda line: line["accepts_messages"])
    assert send(client, "claude", panel.session)["target_selected_by"] == "caller"
    again.wait_ends(1)
    world.finished()


# who is refused


@pytest.mark.requirement("SE-20", "SE-23", "SE-26")
def test_who_is_not_open_is_refused_and_nothing_is_opened_in_its_place(world: World, stores: Stores) -> None:
    codex = stores.codex.add("/far", name="Parser tests")
    asked = (
        ("claude", stores.claude.add("/far", name="Parser tests"), "Parser tests"),
        ("codex", codex, " parser TESTS "),
        ("grok", stores.grok.add("/far", name="Parser tests"), "PARSER TESTS"),
    )
    client = client_of(world, stores)
    for agent, session, name in asked:
        for wanted in (session, name):
            code, error = refusal(client, agent, wanted)
            assert code == "headless_disabled"
            assert f"session {session} (“Parser tests”) is known, but not open" in error
        code, error = refusal(client, agent, "parser test")
        assert code == "unknown_session" and "Similar: “Parser tests”" in error
        assert refusal(client, agent, session, new_session=True)[0] == "contradictory_target"
    not_targets = (
        ("claude", stores.claude.add(name="aside", aside=True), "aside", "a sub-agent's transcript"),
        ("codex", stores.codex.add(name="child", parent=codex), "child", "a sub-agent's thread"),
        ("codex", stores.codex.add(name="old", archived=True), "old", "archived"),
        ("grok", stores.grok.add(name="child", kind="subagent"), "child", "a sub-agent's session"),
    )
    for agent, session, name, reason in not_targets:
        deadline = time.monotonic() + PATIENCE
        while reason not in refusal(client, agent, session)[1]:
            assert time.monotonic() < deadline
        for wanted in (session, name):
            code, error = refusal(client, agent, wanted)
            assert code == "not_a_target"
            assert session in error and reason in error
    assert sorted(ids(client)) == sorted(session for _, session, _ in asked)
    assert world.deliveries() == []


@pytest.mark.requirement("SE-07", "SE-10", "SE-11", "SE-12", "SE-20", "EN-21")
def test_scope_and_activity_bound_what_is_listed_and_found_without_a_name(world: World, stores: Stores) -> None:
    add = stores.claude.add
    made = {
        "/w/p": [add("/w/p", ago=600), add("/w/p", ago=7200)],
        "/w/p/q": [add("/w/p/q", ago=60)],
        "/w": [add("/w", ago=30)],
        "/x": [add("/x", ago=5, name="far")],
    }
    order = [session for sessions in made.values() for session in sessions]
    client = client_of(world, stores)
    assert ids(client, cwd="/w/p", scope="cwd") == order[:3]
    assert ids(client, cwd="/w/p", scope=None) == order[:3]
    assert ids(client, cwd="/w/p", scope="tree") == order[:4]
    assert ids(client, cwd="/w/p") == order
    assert ids(client, cwd="/w/p", limit=2) == order[:2]
    assert ids(client, cwd="/w/p", agent="codex") == []
    assert [line["active"] for line in listed(client, cwd="/w/p")] == [True] * 5

    code, error = refusal(client, "claude", cwd="/w/p")
    assert code == "headless_disabled" and order[0] in error
    assert refusal(client, "claude", "far", cwd="/w/p")[0] == "headless_disabled"
    assert refusal(client, "claude", cwd="/y")[0] == "no_session"
    code, error = refusal(client, "claude", cwd="/y", scope="any")
    assert code == "headless_disabled" and order[4] in error

    strict = client_of(world, stores, CROSS_AGENT_ACTIVE_WINDOW_MIN="5", CROSS_AGENT_SCOPE="tree")
    assert [line["active"] for line in listed(strict, cwd="/w/p")] == [False, False, True, True, True]
    assert ids(strict, cwd="/w/p", scope=None) == order[:4]
    code, error = refusal(strict, "claude", cwd="/w/p")
    assert code == "headless_disabled" and order[2] in error
    code, error = refusal(strict, "claude", cwd="/w/p/z")
    assert code == "headless_disabled" and order[3] in error
    shown = strict.call("bridge_status", cwd="/w/p")
    assert (shown["settings"]["scope"], shown["settings"]["active"]) == ("tree", 300.0)
    chosen = [(line["session"], line["selected_by"], line.get("reachable")) for line in shown["targets"]]
    assert chosen == [(order[2], "discovery", False), (None, None, None), (None, None, None)]
    assert client.call("bridge_status", cwd="/w/p")["targets"][0]["session"] == order[0]


@pytest.mark.full
@pytest.mark.requirement("SE-25")
def test_records_that_are_not_read_yet_are_said_to_be_so(world: World, stores: Stores) -> None:
    session = stores.claude.add(name="Parser")
    client = client_of(world, stores, CLAUDE_CONFIG_DIR="")
    assert ids(client) == []
    reading = next(pid for pid in children(world.broker().pid) if b"index/program.py" in _line_of(pid))
    os.kill(reading, signal.SIGSTOP)
    try:
        late = client_of(world, stores)
        code, error = refusal(late, "claude", "Parser")
        assert code == "index_not_ready" and "0 sessions so far" in error
    finally:
        os.kill(reading, signal.SIGCONT)
    code, error = refusal(late, "claude", "Parser")
    assert code == "headless_disabled" and session in error


def _line_of(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()


# names

NAMES = {
    "emoji": "👩‍👩‍👧 修正",
    "right to left": "a \u202e drow",
    "zero width": "zero\u200bwidth",
    "long": "n" * 500,
    "two lines": "one\ntwo",
    "escape": "\x1b[31mred",
    "decomposed": "Cafe\u0301",
}


@pytest.mark.requirement("SE-24")
def test_names_are_compared_whole_kept_raw_and_shown_on_one_line(world: World, stores: Stores) -> None:
    made = {stores.claude.add(name=name): name for name in NAMES.values()}
    client = client_of(world, stores)
    shown = {line["id"]: line["name"] for line in listed(client)}
    assert shown.keys() == made.keys()
    assert all(name.isprintable() and len(name) <= 200 for name in shown.values())
    for session, name in made.items():
        for wanted in (name, f"  {name.upper()}\n", shown[session]):
            code, error = refusal(client, "claude", wanted)
            assert (code, session in error, error.isprintable()) == ("headless_disabled", True, True)
    assert refusal(client, "claude", "caf\u00c9")[0] == "headless_disabled"
    assert refusal(client, "claude", "zerowidth")[0] == "headless_disabled"
    assert refusal(client, "claude", "zero")[0] == "unknown_session"
    twin = stores.claude.add(name="CAF\u00c9", cwd="/far")
    wait_for(client, lambda lines: any(line["id"] == twin for line in lines))
    code, error = refusal(client, "claude", "café")
    assert code == "ambiguous_name"
    assert f"{twin} in /far, active just now, name given" in error


@pytest.mark.requirement("SE-24", "SE-28", "DE-02")
def test_a_rename_during_a_send_changes_nothing_for_it(world: World, stores: Stores) -> None:
    panel = world.codex()
    panel.registered()
    client = client_of(world, stores)
    held = gate(world, "g")
    panel.say(f"own work [[slowreply {held} done]]")

    def name(text: str) -> None:
        panel.request("thread/name/set", {"threadId": panel.session, "name": text})
        wait_for(client, lambda lines: any(line["name"] == text.replace("\x1b", "") for line in lines))

    name("Old \x1b[2J name")
    receipt = send(client, "codex", "old \x1b[2j NAME")
    assert (receipt["target_session_id"], receipt["target_selected_by"]) == (panel.session, "caller")
    assert receipt["caller_supplied_session_id"]
    assert receipt["target_name"] == "Old [2J name"
    assert [record["target_name"] for record in world.requests()] == ["Old \x1b[2J name"]
    name("New name")
    assert refusal(client, "codex", "old \x1b[2j name")[0] == "unknown_session"
    open_gate(held)
    (request,) = world.finished()
    assert request["state"] == "delivered"
    assert panel.handed_over("are you there") == 1
    assert send(client, "codex", "new name")["target_session_id"] == panel.session
    world.finished(2)


@pytest.mark.requirement("SE-24")
def test_two_that_are_open_under_one_name_are_told_apart(world: World, stores: Stores) -> None:
    panels = [world.codex(), world.codex()]
    stale = stores.codex.add("/far", name="twin", ago=3 * 86400)
    client = client_of(world, stores)
    for panel in panels:
        panel.registered()
        panel.request("thread/name/set", {"threadId": panel.session, "name": "Twin"})
    wait_for(client, lambda lines: [line["name"] for line in lines].count("Twin") == 2)
    code, error = refusal(client, "codex", "twin")
    assert code == "ambiguous_name" and "3 Codex sessions" in error
    assert all(panel.session in error for panel in panels)
    assert f"{stale} in /far, last active 3 days ago, name given" in error
    assert world.deliveries() == []


# pins


@pytest.mark.requirement("SE-27", "SE-31", "SE-28", "SE-29", "MC-04")
def test_a_pin_sends_messages_without_an_address_to_one_session(world: World, stores: Stores, home: Path) -> None:
    place, link, below = home / "place", home / "link", home / "place" / "below"
    below.mkdir(parents=True)
    link.symlink_to(place)
    panel = world.claude()
    panel.registered()
    stores.claude.add(str(place), name="Parser")
    client = client_of(world, stores)

    answer = pinned(client, panel.session, cwd=str(link))
    assert (answer["ok"], answer["pinned"], answer["cwd"]) == (True, panel.session, str(place))
    for cwd in (link, place, f"{place}/", below / ".."):
        receipt = send(client, "claude", cwd=str(cwd))
        assert (receipt["target_session_id"], receipt["target_selected_by"]) == (panel.session, "pin")
        assert not receipt["caller_supplied_session_id"]
        assert "unaddressed" in {warning["code"] for warning in receipt["warnings"]}
    targets = {line["agent"]: line for line in client.call("bridge_status", cwd=str(link))["targets"]}
    assert targets.keys() == set(AGENTS)
    assert targets["claude"] == {
        "agent": "claude",
        "pinned": panel.session,
        "session": panel.session,
        "selected_by": "pin",
        "reachable": True,
    }
    assert targets["codex"] == {
        "agent": "codex",
        "pinned": None,
        "session": None,
        "selected_by": None,
        "why_none": "no_session",
    }
    # It is a pin of this directory, for this agent, and no address.
    receipt = send(client, "claude", cwd=str(below))
    assert (receipt["target_session_id"], receipt["target_selected_by"]) == (panel.session, "panel-focus")
    outside = world.mcp_outside(**stores.environment())
    assert refusal(outside, "claude", cwd=str(below))[0] == "no_session"
    assert send(outside, "claude", cwd=str(place))["target_selected_by"] == "pin"
    assert refusal(client, "codex", cwd=str(place))[0] == "no_session"
    code, error = refusal(client, "claude", cwd=str(place), new_session=True)
    assert code == "pinned" and panel.session in error
    strict = client_of(world, stores, CROSS_AGENT_REQUIRE_EXPLICIT_TARGET="1")
    assert refusal(strict, "claude", cwd=str(place))[0] == "explicit_target_required"
    assert refusal(strict, "claude", cwd=str(place), session_id="  ")[0] == "explicit_target_required"
    assert send(strict, "claude", panel.session, cwd=str(place))["target_selected_by"] == "caller"

    assert pinned(client, "", cwd=str(link)) == {
        "ok": True,
        "agent": "claude",
        "cwd": str(place),
        "pinned": None,
        "was": panel.session,
    }
    assert pinned(client, "", cwd=str(link))["was"] is None
    code, error = refusal(outside, "claude", cwd=str(place))
    assert code == "headless_disabled", "what is active on disk is found again"
    world.finished(7)


@pytest.mark.requirement("SE-27", "SE-31", "SE-13")
def test_a_pin_is_nothing_to_who_sees_another_store(world: World, home: Path) -> None:
    sets = {name: Stores(home / name) for name in ("one", "two")}
    made = {name: each.claude.add("/far", name="Parser") for name, each in sets.items()}
    clients = {name: client_of(world, each) for name, each in sets.items()}
    assert pinned(clients["one"], "Parser")["pinned"] == made["one"]
    assert made["one"] in refusal(clients["one"], "claude", cwd="/w")[1]
    assert refusal(clients["two"], "claude", cwd="/w")[0] == "no_session"
    assert pinned(clients["two"], "")["was"] is None
    assert pinned(clients["two"], "Parser")["pinned"] == made["two"]
    for name, client in clients.items():
        code, error = refusal(client, "claude", cwd="/w")
        assert code == "headless_disabled" and made[name] in error
        assert {line["agent"]: line["pinned"] for line in client.call("bridge_status", cwd="/w")["targets"]}["claude"] == made[
            name
        ]


@pytest.mark.requirement("SE-27", "SE-31", "SE-24")
def test_a_pin_stands_over_broker_lives_until_its_session_is_gone(world: World, stores: Stores) -> None:
    first, second = stores.codex.add("/far", name="Parser"), stores.codex.add("/w", name="parser")
    other = stores.codex.add("/w", name="Other")
    client = client_of(world, stores)
    answer = pinned(client, "PARSER", "codex")
    assert answer["code"] == "ambiguous_name" and first in answer["error"] and second in answer["error"]
    assert pinned(client, "nobody", "codex")["code"] == "unknown_session"
    answer = pinned(client, first, "codex")
    assert (answer["pinned"], answer["name"]) == (first, "Parser")
    answer = pinned(client, " other ", "codex")
    assert (answer["pinned"], answer["name"]) == (other, "Other")
    code, error = refusal(client, "codex", cwd="/w")
    assert code == "headless_disabled" and other in error

    world.kill_broker()
    code, error = refusal(client, "codex", cwd="/w")
    assert code == "headless_disabled" and other in error
    stores.codex.archive(other)
    deadline = time.monotonic() + PATIENCE
    while refusal(client, "codex", cwd="/w")[0] == "headless_disabled":
        assert time.monotonic() < deadline
    code, error = refusal(client, "codex", cwd="/w")
    assert code == "pin_is_gone"
    assert other in error and "archived" in error
    assert refusal(client, "codex", cwd="/w", new_session=True)[0] == "pinned"
    shutil.rmtree(stores.codex.path / "archived_sessions")
    while "archived" in refusal(client, "codex", cwd="/w")[1]:
        assert time.monotonic() < deadline
    code, error = refusal(client, "codex", cwd="/w")
    assert code == "pin_is_gone" and other in error
    assert pinned(client, "", "codex")["was"] == other
    code, error = refusal(client, "codex", cwd="/w")
    assert code == "headless_disabled" and second in error


# places


@pytest.mark.requirement("SE-10", "SE-13")
def test_one_session_is_found_by_every_way_to_its_directory_and_to_its_store(world: World, stores: Stores, home: Path) -> None:
    real = home / "a_place.of mine" / "worktree_1.2"
    real.mkdir(parents=True)
    link, link_home = home / "link", home / "home"
    link.symlink_to(real.parent)
    link_home.symlink_to(stores.path)
    recorded = {"real": str(real), "link": str(link / real.name)}
    for way, cwd in recorded.items():
        shutil.rmtree(stores.path, ignore_errors=True)
        made = [stores.claude.add(cwd), stores.codex.add(cwd), stores.grok.add(cwd)]
        for seen_home in (stores.path, link_home):
            client = world.mcp(**stores.environment(seen_home))
            client.shake_hands()
            wait_for(client, lambda lines, made=made: {line["id"] for line in lines} == set(made))  # type: ignore[misc]
            for asked in (real, link / real.name, real.parent / "." / real.name, link):
                found = sorted(ids(client, cwd=str(asked), scope="cwd"))
                assert found == sorted(made), (way, seen_home, asked)
            for agent, session in zip(AGENTS, made, strict=True):
                code, error = refusal(client, agent, cwd=str(link / real.name))
                assert code == "headless_disabled" and session in error
            assert ids(client, cwd=str(home / "a_place.of mine" / "worktree_1"), scope="cwd") == []
