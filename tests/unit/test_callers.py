"""Who is calling, from a process table that a test has written."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from broker.callers import Caller, descent_of, identify_caller
from broker.deliveries import Attempt
from broker.errors import Refusal
from broker.index.catalogue import Store
from broker.panels import Panel
from broker.pins import Pins
from broker.processes import ProcessId
from broker.sight import Sight
from broker.wire import SessionState
from shims.agent import agents
from tests.unit.engine import engine
from tests.unit.made_up import World
from tests.unit.process_table import Table, parent, registered

S = SessionState
Json = dict[str, Any]

CODEX_TURN = "x-codex-turn-metadata"
CLAUDE_TOOL_USE = "claudecode/toolUseId"


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> Table:
    return Table(monkeypatch)


@pytest.fixture
def world() -> World:
    return World()


def shim(table: Table, world: World, *sessions: SessionState, agent: str = "claude") -> tuple[Panel, ProcessId]:
    """A panel whose shim is in the table; and an MCP process that its agent has started."""
    panel = world.opens(*sessions, agent=agent)
    process = table.line("/usr/bin/code", "/usr/bin/python3")
    world.panels._panels[process] = world.panels._panels.pop(panel.process)
    panel.peer.process = process
    return panel, table.below(process, f"/opt/{agent}", "/usr/bin/python3")


def who(
    world: World, process: ProcessId, meta: Mapping[str, Any] | None = None, settings: Mapping[str, str] | None = None
) -> tuple[str, str, Panel | None]:
    found = caller(world, process, meta, settings)
    return found.agent, found.session, found.panel


def caller(
    world: World,
    process: ProcessId,
    meta: Mapping[str, Any] | None = None,
    settings: Mapping[str, str] | None = None,
    turns: AbstractSet[tuple[str, str]] = frozenset(),
    cwd: str = "/",
) -> Caller:
    descent = descent_of(process, [panel.process for panel in world.panels])
    found = identify_caller(descent, meta or {}, settings or {}, world.panels, turns, cwd)
    assert found.how
    return found


def turn(**fields: str) -> dict[str, Any]:
    return {CODEX_TURN: fields}


@pytest.mark.requirement("EN-20")
def test_a_call_from_a_panel_comes_from_its_session(table: Table, world: World) -> None:
    panel, process = shim(table, world, S("s1"))
    shim(table, world, S("s2"))
    assert who(world, process) == ("claude", "s1", panel)


@pytest.mark.requirement("EN-20")
def test_a_call_through_shells_comes_from_the_panel_above_them(table: Table, world: World) -> None:
    panel, process = shim(table, world, S("s1"))
    assert who(world, table.below(process, "/bin/sh", "/usr/bin/env", "/usr/bin/python3")) == ("claude", "s1", panel)


@pytest.mark.requirement("EN-20")
def test_the_nearest_panel_counts(table: Table, world: World) -> None:
    _, outer = shim(table, world, S("outer"), agent="codex")
    inner, process = shim(table, world, S("inner"))
    table._parents[inner.process.pid] = outer.pid
    assert who(world, process) == ("claude", "inner", inner)


@pytest.mark.requirement("EN-20")
@pytest.mark.parametrize(
    ("meta", "session"),
    [
        ({CLAUDE_TOOL_USE: "use_2"}, "s2"),
        ({CLAUDE_TOOL_USE: "use_9"}, ""),
        ({CLAUDE_TOOL_USE: ["use_2"]}, ""),
        ({CLAUDE_TOOL_USE: None}, ""),
        ({"threadId": "s2"}, ""),
        ({}, ""),
    ],
)
def test_of_several_sessions_the_tool_use_that_was_seen_tells(
    table: Table, world: World, meta: dict[str, Any], session: str
) -> None:
    panel, process = shim(table, world, S("s1", tool_uses=("use_1",)), S("s2", tool_uses=("use_0", "use_2")))
    assert who(world, process, meta) == ("claude", session, panel)


@pytest.mark.requirement("EN-20")
@pytest.mark.parametrize(
    ("meta", "session"),
    [
        ({"threadId": "t2"}, "t2"),
        (turn(thread_id="t2"), "t2"),
        ({"threadId": "t1", **turn(thread_id="t2")}, "t1"),
        ({"threadId": "sub", **turn(thread_id="sub", parent_thread_id="t2")}, "t2"),
        ({"threadId": "sub", **turn(thread_id="sub", parent_thread_id="sub of t2", session_id="t2")}, "t2"),
        ({"threadId": "t9"}, ""),
        ({"threadId": ["t2"]}, ""),
        ({CODEX_TURN: "t2"}, ""),
        ({}, ""),
    ],
)
def test_a_codex_call_names_its_thread_and_a_sub_agents_its_parents(
    table: Table, world: World, meta: dict[str, Any], session: str
) -> None:
    panel, process = shim(table, world, S("t1"), S("t2"), agent="codex")
    assert who(world, process, meta) == ("codex", session, panel)


@pytest.mark.requirement("EN-20", "DE-44")
def test_a_thread_that_the_panel_does_not_show_is_nobodys_address(table: Table, world: World) -> None:
    panel, process = shim(table, world, S("t1"), agent="codex")
    shim(table, world, S("t2"), agent="codex")
    assert who(world, process, {"threadId": "t2"}) == ("codex", "", panel)


@pytest.mark.requirement("EN-20", "EN-05")
@pytest.mark.parametrize(
    "settings",
    [{"CROSS_AGENT_SELF": "claude"}, {"CROSS_AGENT_SELF_SESSION": "codex:t1"}, {"CLAUDE_CODE_SESSION_ID": "s9"}],
)
def test_what_a_process_says_of_itself_does_not_outweigh_its_ancestors(
    table: Table, world: World, settings: dict[str, str]
) -> None:
    panel, process = shim(table, world, S("s1"))
    assert who(world, process, settings=settings) == ("claude", "s1", panel)


@pytest.mark.requirement("EN-20")
def test_a_registration_that_names_another_agent_than_the_one_that_calls_is_refused(table: Table, world: World) -> None:
    _, process = shim(table, world, S("s1"))
    with pytest.raises(Refusal) as refused:
        who(world, process, settings={"CROSS_AGENT_SELF": "codex"})
    assert refused.value.code == "contradictory_caller"


@pytest.mark.requirement("EN-20", "DE-44")
@pytest.mark.parametrize(
    ("program", "meta", "expected"),
    [
        ("/opt/codex", {"threadId": "t1"}, ("codex", "t1")),
        ("/opt/codex", {}, ("codex", "")),
        ("/opt/claude", {CLAUDE_TOOL_USE: "use_9"}, ("claude", "")),
    ],
)
def test_an_agent_that_a_panels_agent_has_started_calls_for_itself(
    table: Table, world: World, program: str, meta: dict[str, Any], expected: tuple[str, str]
) -> None:
    """`codex exec`, or `claude -p`, in the shell of a Claude panel."""
    panel, process = shim(table, world, S("s1"))
    nested = table.below(parent(process), "/bin/bash", program, "/usr/bin/python3")
    assert who(world, nested, meta) == (*expected, None)
    assert who(world, process) == ("claude", "s1", panel)


@pytest.mark.requirement("EN-20", "DE-44", "EN-05")
def test_a_panels_thread_is_not_the_address_of_a_program_outside_of_it(table: Table, world: World) -> None:
    shim(table, world, S("t1"), agent="codex")
    outside = table.line("/bin/bash", "/opt/codex", "/usr/bin/python3")
    assert who(world, outside, {"threadId": "t1"}) == ("codex", "", None)


@pytest.mark.requirement("EN-20")
@pytest.mark.parametrize(
    ("programs", "meta", "expected"),
    [
        (("/bin/bash", "/opt/claude", "/usr/bin/python3"), {}, ("claude", "")),
        (("/bin/bash", "/opt/claude", "/usr/bin/python3"), {"threadId": "t1"}, ("claude", "")),
        (("/bin/bash", "/opt/codex", "/usr/bin/python3"), {"threadId": "t1"}, ("codex", "t1")),
        (("/opt/claude", "/opt/codex", "/usr/bin/python3"), {}, ("codex", "")),
        (("/opt/not-claude", "/usr/bin/claude-helper", "/home/claude/codex.d/python3"), {}, ("", "")),
        (("/bin/bash", "/opt/claude"), {}, ("", "")),
        (("/bin/bash",), {}, ("", "")),
    ],
)
def test_without_a_panel_the_program_tells_the_agent(
    table: Table, world: World, programs: tuple[str, ...], meta: dict[str, Any], expected: tuple[str, str]
) -> None:
    assert who(world, table.line(*programs), meta)[:2] == expected


@pytest.mark.requirement("EN-20")
@pytest.mark.parametrize(
    ("named", "agent"), [("codex", "codex"), (" Claude ", "claude"), ("nobody", ""), ("", ""), ("claude:s1", "")]
)
def test_where_nothing_proves_anybody_a_registration_may_name_its_agent_but_no_session(
    table: Table, world: World, named: str, agent: str
) -> None:
    process = table.line("/bin/bash", "/usr/bin/python3")
    assert who(world, process, settings={"CROSS_AGENT_SELF": named}) == (agent, "", None)


@pytest.mark.requirement("EN-20")
@pytest.mark.parametrize(("told", "session"), [("s2", "s2"), ("s9", ""), ("", "")])
def test_grok_tells_each_server_whose_it_is(table: Table, world: World, told: str, session: str) -> None:
    panel, process = shim(table, world, S("s1"), S("s2"), agent="grok")
    assert who(world, process, settings={"GROK_SESSION_ID": told}) == ("grok", session, panel)


@pytest.mark.requirement("EN-20")
def test_what_grok_tells_counts_for_a_grok_caller_alone(table: Table, world: World) -> None:
    shim(table, world, S("g1"), agent="grok")
    panel, process = shim(table, world, S("s1"))
    assert who(world, process, settings={"GROK_SESSION_ID": "g1"}) == ("claude", "s1", panel)
    assert who(world, table.line("/bin/bash", "/usr/bin/python3"), settings={"GROK_SESSION_ID": "g1"}) == ("", "", None)


@pytest.mark.requirement("EN-20")
def test_a_server_of_groks_leader_belongs_to_the_session_that_it_was_told(table: Table, world: World) -> None:
    panel, _ = shim(table, world, S("g1"), agent="grok")
    server = table.line("/home/u/.grok/bin/grok-1.0.41", "/usr/bin/python3")
    table.arguments[parent(server).pid] = ["grok", "agent", "leader", "--no-exit-on-disconnect"]
    assert who(world, server, settings={"GROK_SESSION_ID": "g1"}) == ("grok", "g1", panel)
    assert who(world, server, settings={"GROK_SESSION_ID": "g2"}) == ("grok", "g2", None)


@pytest.mark.requirement("EN-20")
def test_a_grok_that_leads_nobody_speaks_for_no_panels_session(table: Table, world: World) -> None:
    shim(table, world, S("g1"), agent="grok")
    server = table.line("/home/u/.grok/bin/grok-1.0.41", "/usr/bin/python3")
    table.arguments[parent(server).pid] = ["grok", "-p", "agent leader"]
    assert who(world, server, settings={"GROK_SESSION_ID": "g1"}) == ("grok", "", None)


@pytest.mark.requirement("EN-20")
def test_what_a_shell_says_that_grok_has_told_is_a_claim(table: Table, world: World) -> None:
    panel, process = shim(table, world, S("g1"), S("g2"), agent="grok")
    in_shell = table.below(parent(process), "/bin/bash", "/usr/bin/python3")
    assert who(world, in_shell, settings={"GROK_SESSION_ID": "g2"}) == ("grok", "", panel)
    headless = table.line("/home/u/.grok/bin/grok-1.0.41", "/usr/bin/dash", "/usr/bin/python3")
    assert who(world, headless, settings={"GROK_SESSION_ID": "g3"}) == ("grok", "", None)


@pytest.mark.requirement("EN-20")
@pytest.mark.parametrize("program", ["/x/vendor/x86_64-unknown-linux-musl/bin/codex", "/opt/claude.exe"])
def test_an_agent_in_a_terminal_is_no_session_of_a_grok_that_it_descends_from(table: Table, world: World, program: str) -> None:
    server = table.line("/home/u/.grok/bin/grok-1.0.41", "/bin/bash", program, "/usr/bin/python3")
    assert who(world, server, settings={"GROK_SESSION_ID": "g1"})[1] == ""


@pytest.mark.requirement("EN-20")
@pytest.mark.parametrize(
    ("program", "agent"),
    [
        ("/home/u/.local/share/claude/versions/2.1.332", "claude"),
        ("/opt/claude.exe", "claude"),
        ("/home/u/.grok/bin/grok-1.0.41", "grok"),
        ("/x/node_modules/@xai-official/grok/bin/grok-native", "grok"),
        ("/x/vendor/x86_64-unknown-linux-musl/bin/codex", "codex"),
        ("/usr/bin/claude-helper", ""),
        ("/usr/bin/grokker", ""),
        ("/srv/versions/2.1.332", ""),
    ],
)
def test_agents_are_known_by_the_program_that_runs(table: Table, world: World, program: str, agent: str) -> None:
    assert who(world, table.line(program, "/usr/bin/python3")) == (agent, "", None)


@pytest.mark.requirement("EN-20")
def test_a_process_that_is_gone_is_nobody(table: Table, world: World) -> None:
    del table
    found = identify_caller(descent_of(ProcessId(7, 7)), {}, {}, world.panels)
    assert (found.agent, found.session, found.panel, found.window) == ("", "", None, None)


@pytest.mark.requirement("EN-20")
def test_a_pid_that_is_somebody_elses_by_now_is_no_panel(table: Table, world: World) -> None:
    panel, process = shim(table, world, S("s1"))
    world.panels._panels[ProcessId(panel.process.pid, 1)] = world.panels._panels.pop(panel.process)
    assert who(world, process) == ("claude", "", None)  # its agent stands above it, but no panel of ours


# An agent's own registry


TERMINAL = ("/bin/bash", "/opt/claude", "/usr/bin/python3")


@pytest.mark.requirement("EN-20", "SE-13")
def test_a_claude_without_a_panel_is_known_by_its_own_registry(table: Table, world: World, tmp_path: Path) -> None:
    process = table.line(*TERMINAL)
    table.environments[parent(process).pid] = {"CLAUDE_CONFIG_DIR": str(tmp_path)}
    registered(tmp_path, parent(process), "s1")
    stale = {"CLAUDE_CODE_SESSION_ID": "s9", "CLAUDE_CONFIG_DIR": "/elsewhere", "GROK_SESSION_ID": "g1"}
    found = caller(world, process, {"threadId": "t1"}, stale)
    assert (found.agent, found.session, found.panel, found.stores["claude"]) == ("claude", "s1", None, str(tmp_path))
    registered(tmp_path, parent(process), "s2")  # as after `/clear`
    assert who(world, process, {}, stale) == ("claude", "s2", None)


@pytest.mark.requirement("EN-20")
def test_a_registry_says_nothing_of_another_process_with_the_same_pid(table: Table, world: World, tmp_path: Path) -> None:
    process = table.line(*TERMINAL)
    table.environments[parent(process).pid] = {"CLAUDE_CONFIG_DIR": str(tmp_path)}
    registered(tmp_path, parent(process), "s1", start=7)
    assert who(world, process) == ("claude", "", None)
    (tmp_path / "sessions" / f"{parent(process).pid}.json").write_text("[1")
    assert who(world, process, settings={"CLAUDE_CODE_SESSION_ID": "s1"}) == ("claude", "", None)


@pytest.mark.requirement("EN-20")
def test_the_registry_of_the_nearest_agent_counts_and_of_no_other(table: Table, world: World, tmp_path: Path) -> None:
    """`claude -p`, and `codex exec`, in the shell of a Claude."""
    outer = parent(table.line(*TERMINAL))
    table.environments[outer.pid] = {"HOME": str(tmp_path)}
    registered(tmp_path / ".claude", outer, "outer")
    inner = table.below(outer, *TERMINAL)
    table.environments[parent(inner).pid] = {"HOME": str(tmp_path)}
    assert who(world, inner) == ("claude", "", None)
    registered(tmp_path / ".claude", parent(inner), "inner")
    assert who(world, inner) == ("claude", "inner", None)
    assert who(world, table.below(outer, "/bin/sh", "/opt/codex", "/usr/bin/python3")) == ("codex", "", None)
    assert who(world, table.below(outer, "/bin/sh", "/usr/bin/python3")) == ("claude", "outer", None)


@pytest.mark.requirement("EN-20")
def test_a_panel_that_knows_no_session_yet_has_the_one_in_the_registry(table: Table, world: World, tmp_path: Path) -> None:
    panel, process = shim(table, world, S("", empty=True))
    table.environments[parent(process).pid] = {"CLAUDE_CONFIG_DIR": str(tmp_path)}
    assert who(world, process) == ("claude", "", panel)
    registered(tmp_path, parent(process), "s1")
    assert who(world, process) == ("claude", "s1", panel)


# Turns that the broker has started

STARTED = frozenset((("claude", "s1"), ("claude", "s9"), ("claude", "a:b"), ("codex", "t9"), ("grok", "g9"), ("claude", "")))


@pytest.mark.requirement("EN-20", "EN-13")
@pytest.mark.parametrize(
    ("told", "session"),
    [("claude:s1", "s1"), ("codex:t1", ""), ("claude:", ""), (":s1", ""), ("s1", ""), ("", ""), ("claude:a:b", "a:b")],
)
def test_a_started_turn_is_the_session_that_its_agent_was_told(table: Table, world: World, told: str, session: str) -> None:
    process = table.line("/usr/bin/python3", "/opt/claude", "/usr/bin/python3")
    table.environments[parent(process).pid] = {"CROSS_AGENT_SELF_SESSION": told}
    found = caller(world, process, turns=STARTED)
    assert (found.agent, found.session, found.panel) == ("claude", session, None)


@pytest.mark.requirement("EN-20", "EN-13", "DE-44")
def test_a_program_that_says_so_is_no_turn_that_was_started(table: Table, world: World) -> None:
    """Whoever calls a program `claude` could have the answers of a session that is open, or that nobody has begun."""
    process = table.line("/bin/bash", "/home/u/bin/claude", "/usr/bin/python3")
    table.environments[parent(process).pid] = {"CROSS_AGENT_SELF_SESSION": "claude:s1"}
    assert who(world, process) == ("claude", "", None)
    assert caller(world, process, turns={("claude", "s2"), ("codex", "s1")}).session == ""
    assert caller(world, process, turns={("claude", "s1")}).session == "s1"
    world.opens(S("s1"))
    assert caller(world, process, turns={("claude", "s1")}).session == ""


@pytest.mark.requirement("EN-13")
def test_the_turns_that_were_started_are_those_without_a_shim(tmp_path: Path) -> None:
    async def story() -> set[tuple[str, str]]:
        async with engine(tmp_path) as made:
            for instance, session in (("", "s1"), ("1@1", "s2"), ("", "s3")):
                delivery = await made.queued(session=session, key=session)
                attempt = Attempt(f"a_{session}", delivery.id, instance, "", "/nowhere", session, made.generation)
                await made.book.save_attempt(replace(attempt, open=session != "s3"))
            return made.book.started_turns()

    assert asyncio.run(story()) == {("claude", "s1")}


@pytest.mark.requirement("EN-20", "EN-13")
def test_what_a_started_turn_was_told_is_outweighed_by_everything_else(table: Table, world: World, tmp_path: Path) -> None:
    def told(process: ProcessId, value: str) -> ProcessId:
        table.environments[parent(process).pid] = {"CROSS_AGENT_SELF_SESSION": value, "HOME": str(tmp_path)}
        return process

    def session(process: ProcessId, meta: Json | None = None, settings: Json | None = None) -> str:
        return caller(world, process, meta, settings, STARTED | {("claude", "s2")}).session

    claude = told(table.line(*TERMINAL), "claude:s9")
    assert session(claude) == "s9"
    registered(tmp_path / ".claude", parent(claude), "s1")
    assert session(claude) == "s1"
    codex = told(table.line("/opt/codex", "/usr/bin/python3"), "codex:t9")
    assert session(codex, {"threadId": "t1"}) == "t1"
    grok = told(table.line("/opt/grok", "/usr/bin/python3"), "grok:g9")
    assert session(grok, {}, {"GROK_SESSION_ID": "g1"}) == "g1"
    panel, process = shim(table, world, S("s2"), S("s3"))
    assert session(told(process, "claude:s2")) == ""
    assert caller(world, process).panel is panel
    shim(table, world, S("t2"), agent="codex")
    assert session(codex, {"threadId": "t2"}) == ""


@pytest.mark.requirement("EN-20", "EN-13")
def test_what_a_started_turn_was_told_is_not_for_those_that_inherit_it(table: Table, world: World) -> None:
    """Neither for an agent in its shell, nor for a process that says so of itself."""
    own = {"CROSS_AGENT_SELF_SESSION": "claude:s1"}
    outer = parent(table.line(*TERMINAL))
    inner = table.below(outer, *TERMINAL)
    table.environments |= {outer.pid: own, parent(inner).pid: own}

    def session(process: ProcessId, settings: Mapping[str, str] | None = None) -> str:
        return caller(world, process, settings=settings, turns=STARTED).session

    assert session(table.below(outer, "/usr/bin/python3")) == "s1"
    assert session(inner) == ""
    assert session(table.line(*TERMINAL), own) == ""
    assert session(table.line("/bin/bash", "/usr/bin/python3"), own) == ""
    unreadable = table.line(*TERMINAL)
    table.environments[parent(unreadable).pid] = None
    assert session(unreadable, own) == "s1", "nothing else is left to believe"


@pytest.mark.requirement("EN-13", "DE-03", "DE-50")
@pytest.mark.parametrize("told", ["claude:s1", "claude:"])
def test_a_started_turn_is_known_as_one_however_its_session_is_found(
    table: Table, world: World, tmp_path: Path, told: str
) -> None:
    process = table.line(*TERMINAL)
    own = {"CROSS_AGENT_SELF_SESSION": told, "CROSS_AGENT_CONVERSATION_ID": "conv_1", "HOME": str(tmp_path)}
    table.environments[parent(process).pid] = own
    registered(tmp_path / ".claude", parent(process), "s1")
    found = caller(world, process, turns=STARTED)
    assert (found.session, found.headless, found.conversation) == ("s1", True, "conv_1")
    found = caller(world, process)
    assert (found.session, found.headless, found.conversation) == ("s1", False, ""), "no such turn runs"


@pytest.mark.requirement("EN-13", "DE-03", "DE-50")
def test_a_panel_and_what_an_agent_has_started_are_no_started_turn(table: Table, world: World, tmp_path: Path) -> None:
    own = {"CROSS_AGENT_SELF_SESSION": "claude:s1", "CROSS_AGENT_CONVERSATION_ID": "conv_1", "HOME": str(tmp_path)}
    _, behind = shim(table, world, S("s1"))
    table.environments[parent(behind).pid] = own
    inner = table.below(parent(table.line(*TERMINAL)), *TERMINAL)
    table.environments[parent(inner).pid] = own
    for one in (behind, inner):
        found = caller(world, one, turns=STARTED)
        assert (found.headless, found.conversation) == (False, "")


@pytest.mark.requirement("DE-50")
def test_an_agent_in_the_shell_of_a_started_turn_is_within_it_while_it_runs(table: Table, world: World) -> None:
    own = {"CROSS_AGENT_SELF_SESSION": "claude:s1"}
    outer = parent(table.line(*TERMINAL))
    inner = table.below(outer, "/bin/sh", "/opt/codex", "/usr/bin/python3")
    table.environments |= {outer.pid: own, parent(inner).pid: own}
    assert caller(world, inner, turns=STARTED).within == ("claude", "s1")
    assert caller(world, inner).within is None, "a terminal that such a turn has opened outlives it"


@pytest.mark.requirement("DE-50")
@pytest.mark.parametrize(
    ("sessions", "within"),
    [
        ((S("s1", running="a1", turn_since=1.0),), ("claude", "s1")),
        ((S("s1", running="a1", turn_since=1.0), S("s2")), ("claude", "s1")),
        ((S("s1", turn_since=1.0),), None),
        ((S("s1", running="a1", turn_since=1.0), S("s2", turn_since=1.0)), None),
        ((S("s1"),), None),
    ],
    ids=["ours", "ours-beside-an-idle-one", "the-humans", "either", "none"],
)
def test_an_agent_in_the_shell_of_a_panel_is_within_the_turn_that_runs_there(
    table: Table, world: World, sessions: tuple[S, ...], within: tuple[str, str] | None
) -> None:
    _, behind = shim(table, world, *sessions)
    inner = table.below(parent(behind), "/bin/sh", "/opt/codex", "/usr/bin/python3")
    found = caller(world, inner)
    assert (found.agent, found.panel, found.within) == ("codex", None, within)


# Whose data directory


@pytest.mark.requirement("SE-13")
def test_a_caller_sees_the_store_of_its_own_agent(table: Table, world: World) -> None:
    def store(agent: str, process: ProcessId, meta: Json | None = None, settings: Json | None = None) -> str:
        return caller(world, process, meta, settings).stores[agent]

    panel, process = shim(table, world, S("s1"))
    panel.store = "/the/panels"
    table.environments[parent(process).pid] = {"CLAUDE_CONFIG_DIR": "/elsewhere"}
    assert store("claude", process) == "/the/panels"
    codex = table.line("/opt/codex", "/usr/bin/python3")
    table.environments[parent(codex).pid] = {"CODEX_HOME": "/the/processes", "HOME": "/h"}
    assert store("codex", codex, {"threadId": "t1"}, {"CODEX_HOME": "/claimed"}) == "/the/processes"
    table.environments[parent(codex).pid] = {"HOME": "/h"}
    assert store("codex", codex, {}, {"CODEX_HOME": "/claimed"}) == "/h/.codex"
    table.environments[parent(codex).pid] = None
    assert store("codex", codex, {}, {"CODEX_HOME": "/claimed"}) == "/claimed"
    plain = table.line("/bin/bash", "/usr/bin/python3")
    assert store("grok", plain, {}, {"CROSS_AGENT_SELF": "grok", "HOME": "/h"}) == "/h/.grok"
    assert store("claude", plain, {}, {"HOME": "/h", "CLAUDE_CONFIG_DIR": "/claimed"}) == "/claimed"
    table.environments[parent(codex).pid] = {}
    assert store("codex", codex) == os.path.expanduser("~/.codex")


@pytest.mark.requirement("SE-13")
@pytest.mark.parametrize("program", ["/opt/codex", "/usr/bin/an-agent-by-another-name"])
def test_a_caller_sees_the_stores_of_other_agents_as_its_agents_process_does(table: Table, world: World, program: str) -> None:
    """Codex scrubs what its MCP servers get; what a registration adds counts more."""
    panel, _ = shim(table, world, S("t1"), agent="codex")
    agent = table.below(panel.process, program)
    process = table.below(agent, "/usr/bin/python3")
    table.environments[agent.pid] = {"CLAUDE_CONFIG_DIR": "/the/processes", "HOME": "/h"}
    stores = caller(world, process, settings={"HOME": "/h2"}).stores
    assert (stores["claude"], stores["grok"]) == ("/the/processes", "/h2/.grok")
    assert caller(world, process).stores["grok"] == "/h/.grok"
    assert caller(world, process, settings={"CLAUDE_CONFIG_DIR": "/added"}).stores["claude"] == "/added"
    table.environments[agent.pid] = None
    assert caller(world, process, settings={"HOME": "/h2"}).stores["claude"] == "/h2/.claude"


@pytest.mark.requirement("SE-13")
def test_a_relative_store_is_meant_from_where_the_process_works_that_has_it(table: Table, world: World) -> None:
    process = table.line("/opt/codex", "/usr/bin/python3")
    table.environments[parent(process).pid] = {"CODEX_HOME": "x", "CLAUDE_CONFIG_DIR": "c"}
    table.directories[parent(process).pid] = "/the/agents"
    stores = caller(world, process, settings={"GROK_HOME": "../g"}, cwd="/the/servers").stores
    assert stores == {"claude": "/the/agents/c", "codex": "/the/agents/x", "grok": "/the/servers/../g"}


@pytest.mark.requirement("SE-13")
def test_the_store_that_the_caller_sees_is_the_one_that_is_looked_into() -> None:
    opened = []

    class Opens:
        def open(self, agent: str, path: str) -> Store:
            opened.append((agent, path))
            return Store(agent, path)

    panels = World().panels
    sight = Sight(panels, Opens(), Pins(None), None, None)  # type: ignore[arg-type]
    known = Caller("codex", "t1", "made up", stores={"codex": "/own", "claude": "/other"})
    for agent in ("codex", "claude", "grok"):
        sight.store(agents()[agent], known, {"HOME": "/h", "CLAUDE_CONFIG_DIR": "/scrubbed", "CODEX_HOME": "/scrubbed"})
    assert opened == [("codex", "/own"), ("claude", "/other"), ("grok", "/h/.grok")]


# Which window


@pytest.mark.requirement("SE-21")
def test_who_descends_from_a_window_without_a_panel_is_in_it_all_the_same(table: Table, world: World) -> None:
    """An MCP client of the editor itself, an agent in its terminal, and one in the shell of a panel's agent."""
    panel, process = shim(table, world, S("s1"))
    other, _ = shim(table, world, S("s2"))
    editors = [ProcessId(each.process.pid - 1, each.process.pid - 1) for each in (panel, other)]
    panel.window, other.window = editors
    inside = (
        table.below(editors[0], "/usr/bin/python3"),
        table.below(editors[0], "/bin/bash", "/opt/codex", "/usr/bin/python3"),
        table.below(parent(process), "/bin/bash", "/opt/codex", "/usr/bin/python3"),
    )
    for each in (process, *inside):
        assert caller(world, each).window == editors[0]
    assert [caller(world, each).panel for each in inside] == [None, None, None]
    assert caller(world, table.below(editors[1], "/usr/bin/python3")).window == editors[1]
    assert caller(world, table.line("/usr/bin/code", "/bin/bash", "/usr/bin/python3")).window is None


# Behind a shell


@pytest.mark.requirement("EN-20", "EN-05")
@pytest.mark.parametrize("program", ["", "/usr/bin/an-agent-by-another-name"])
@pytest.mark.parametrize(
    ("agent", "meta", "settings"),
    [
        ("codex", {"threadId": "b"}, {}),
        ("codex", turn(thread_id="sub", parent_thread_id="b"), {}),
        ("claude", {CLAUDE_TOOL_USE: "use_b"}, {}),
        ("grok", {}, {"GROK_SESSION_ID": "b"}),
    ],
)
def test_what_is_said_behind_a_shell_is_a_claim(
    table: Table, world: World, agent: str, program: str, meta: dict[str, Any], settings: dict[str, str]
) -> None:
    panel, _ = shim(table, world, S("a"), S("b", tool_uses=("use_b",)), agent=agent)
    process = table.below(panel.process, program or f"/opt/{agent}")
    assert who(world, table.below(process, "/usr/bin/python3"), meta, settings) == (agent, "b", panel)
    in_shell = table.below(process, "/usr/bin/env", "/bin/bash", "/usr/bin/python3")
    assert who(world, in_shell, meta, settings) == (agent, "", panel)
    world.panels.update(panel.peer, panel.sessions[:1], closing=False)
    assert who(world, in_shell, meta, settings) == (agent, "a", panel)
    terminal = table.line(f"/opt/{agent}", "/bin/bash", "/usr/bin/python3")
    assert who(world, terminal, meta, settings) == (agent, "", None)


@pytest.mark.requirement("EN-20")
def test_a_shell_that_starts_the_agent_is_not_between(table: Table, world: World) -> None:
    """The shim's child may be a script that runs the agent under whatever name."""
    panel, _ = shim(table, world, S("a"), S("b"), agent="codex")
    for programs in (("/bin/sh", "/opt/codex"), ("/bin/sh", "/usr/bin/an-agent-by-another-name")):
        process = table.below(panel.process, *programs, "/usr/bin/python3")
        assert who(world, process, {"threadId": "b"}) == ("codex", "b", panel)
