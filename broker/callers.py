"""Who is calling, decided from evidence (EN-20). No claim of a caller's own is believed.

Owns the ranking of evidence. The pid of the MCP process is the kernel's; from it the ancestors are walked once, and the nearest
agent among them is who calls. Which of its sessions that is, the call itself says, else the shim above the agent or the agent's
own registry of live sessions, else a variable that the agent keeps exact. Each counts only for the agent that it belongs to, and
what a call or a variable says only where no shell stands between: there anybody may have written it.

The ancestors tell as well which window the caller is in (SE-21), and whose data directories it means (SE-13).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from broker.errors import Refusal
from broker.panels import Panel, Panels
from broker.processes import SHELLS, ProcessId, ancestors, argv, executable, variables, working_directory
from shims.agent import Agent, Origin, agent, agents

SELF = "CROSS_AGENT_SELF"
SELF_SESSION = "CROSS_AGENT_SELF_SESSION"
CONVERSATION = "CROSS_AGENT_CONVERSATION_ID"

_HELD = "the agent's own registry of live sessions"


@dataclass(frozen=True, slots=True)
class Caller:
    """The session a call comes from. ``agent`` empty: nobody known. ``how`` names the evidence.

    Attributes:
        beside: the process of an editor's window that a caller without a panel descends from, as the shims of that window do.
        stores: each agent's data directory as this caller sees it (SE-13).
        headless: it is a turn that the broker has started on the command line; conversation: what that turn was told it
            belongs to (EN-13).
        within: the session in whose turn the caller's agent was started, by its shell: a forgetful peer opens no fresh
            budget through another agent (DE-50).
    """

    agent: str = ""
    session: str = ""
    how: str = "unknown"
    panel: Panel | None = None
    beside: ProcessId | None = None
    stores: Mapping[str, str] = field(default_factory=dict)
    headless: bool = False
    conversation: str = ""
    within: tuple[str, str] | None = None

    @property
    def window(self) -> ProcessId | None:
        return self.panel.window if self.panel is not None else self.beside


class Ancestor(NamedTuple):
    """A process above the caller; ``agent``: the one that it is."""

    process: ProcessId
    agent: Agent | None
    is_shell: bool = False


class Told(NamedTuple):
    """What a process was started with, and where it works: a relative path of its is meant from there."""

    environment: Mapping[str, str]
    cwd: str = ""

    def store(self, described: Agent) -> str:
        return os.path.join(self.cwd, described.store_in(self.environment))


@dataclass(frozen=True, slots=True)
class Descent:
    """What the process table and the files of the nearest agent say of a process. ``line`` begins with its parent."""

    line: tuple[Ancestor, ...] = ()
    held: str = ""
    """The session that the nearest agent's process holds, by the agent's own registry."""
    started: Told | None = None
    """What matters here of how the nearest agent's process was started; None: there is none, or it cannot be read."""
    leads: bool = False
    """The nearest agent's process serves the sessions of others as well."""


def descent_of(process: ProcessId, shims: Collection[ProcessId] = ()) -> Descent:
    """Looks at processes and at a file, so it runs beside the loop. ``shims`` are those of the panels that there are."""
    line = tuple(_ancestor(above) for above in ancestors(process.pid)[1:])
    nearest = _nearest_agent(line, lambda above: above in shims)
    if nearest is None:
        return Descent(line)
    above, described, _ = line[nearest]
    telling = ("HOME", SELF_SESSION, CONVERSATION, *(agent.store_variable for agent in agents().values()))
    environment = variables(above.pid, telling)
    started = Told(environment, working_directory(above.pid) or "") if environment is not None else None
    if described is None:
        return Descent(line, started=started)
    held = described.held_by((started or Told({})).store(described), above)
    return Descent(line, held, started, described.leads(argv(above.pid)))


def identify_caller(
    descent: Descent,
    meta: Mapping[str, Any],
    environment: Mapping[str, str],
    panels: Panels,
    turns: AbstractSet[tuple[str, str]] = frozenset(),
    cwd: str = "",
) -> Caller:
    """The caller behind an MCP process.

    Args:
        descent: of the MCP process, which is proven by the kernel.
        meta: the call's ``_meta``.
        environment: the process's ``CROSS_AGENT_*``, its baseline, and what agents told it of its session.
        turns: the sessions, by agent and id, in which a turn runs that the broker has started.
        cwd: where the process works.

    Raises:
        Refusal: the registration says that the caller is another agent than it is.
    """
    caller = _by_evidence(descent, meta, environment, panels, turns)
    named = environment.get(SELF, "").strip().lower()
    if named in agents() and not caller.agent:
        caller = Caller(named, "", f"{SELF}, which names no session")
    elif named in agents() and caller.agent != named:
        raise Refusal(
            "contradictory_caller",
            f"{SELF} says {named}, but the call comes from {caller.agent}",
            f"Remove {SELF} from this registration: callers are known without it.",
        )
    stores = _stores(caller, descent.started, Told(environment, cwd))
    return replace(caller, beside=_window_above(descent.line, panels), stores=stores)


def _by_evidence(
    descent: Descent,
    meta: Mapping[str, Any],
    environment: Mapping[str, str],
    panels: Panels,
    turns: AbstractSet[tuple[str, str]],
) -> Caller:
    panel, between = _panel_above(descent.line, panels)
    in_shell = _is_in_shell(descent.line, panels)
    if panel is not None and (not between or (len(between) == 1 and between[0].name == panel.agent)):
        described = agent(panel.agent)
        origin, told = _said(described, meta, environment, in_shell=in_shell)
        return _in_panel(panel, described, origin, told, descent.held if between else "")
    if not between:
        return Caller()
    nearest = between[0]
    origin, told = _said(nearest, meta, environment, in_shell=in_shell)
    caller = _in_no_panel(nearest, origin, told, descent, panels)
    started = descent.started.environment if descent.started is not None else environment
    if panel is None and len(between) == 1:  # an agent that another one has started has inherited what it was told
        caller = caller or _by_self_session(nearest, started, panels, turns)
        if caller is not None and (caller.agent, caller.session) in turns:
            return replace(caller, headless=True, conversation=started.get(CONVERSATION, ""))
    caller = caller or Caller(nearest.name, "", "the program that started the call")
    return replace(caller, within=_turn_above(started, panel, turns))


def _turn_above(
    environment: Mapping[str, str], panel: Panel | None, turns: AbstractSet[tuple[str, str]]
) -> tuple[str, str] | None:
    """The session whose turn started the caller's agent; None: none does now, or it cannot be told which."""
    name, _, session = environment.get(SELF_SESSION, "").partition(":")
    if (name, session) in turns:
        return name, session
    busy = [state for state in panel.sessions if state.running or state.turn_since] if panel is not None else []
    return (panel.agent, busy[0].id) if panel is not None and len(busy) == 1 and busy[0].running else None


def _in_panel(panel: Panel, described: Agent, origin: Origin, told: str, held: str) -> Caller:
    def caller(session: str, how: str) -> Caller:
        return Caller(panel.agent, session, how, panel)

    if named := origin.session or told:
        if panel.session(named) is None:
            return caller("", "a session that the panel does not show")
        return caller(named, origin.how if origin.session else described.session_variable)
    for state in panel.sessions:
        if origin.tool_use and origin.tool_use in state.tool_uses:
            return caller(state.id, "the tool use that the panel showed")
    if len(panel.sessions) == 1 and panel.sessions[0].id:
        return caller(panel.sessions[0].id, "the panel that the call descends from")
    if held:
        return caller(held, _HELD)
    return caller("", "a panel with several sessions" if len(panel.sessions) > 1 else "a panel without a session")


def _in_no_panel(described: Agent, origin: Origin, told: str, descent: Descent, panels: Panels) -> Caller | None:
    """An agent that runs in a terminal, headless, or in the shell of another; None: nothing names its session."""
    if descent.held and not origin.session:
        return Caller(described.name, descent.held, _HELD)
    session = origin.session or told
    if not session:
        return None
    hosts = panels.hosting(described.name, session)
    if hosts and not descent.leads:
        return Caller(described.name, "", "a session of a panel that the call does not come from")
    how = origin.how if origin.session else described.session_variable
    return Caller(described.name, session, how, hosts[0] if len(hosts) == 1 else None)


def _said(described: Agent, meta: Mapping[str, Any], environment: Mapping[str, str], *, in_shell: bool) -> tuple[Origin, str]:
    """What the agent says of the session that calls, in the call itself and by the variable that it sets for its server.

    Another agent's variable was inherited; from behind a shell both are claims of whoever runs there.
    """
    if in_shell:
        return Origin(), ""
    return described.origin(meta), environment.get(described.session_variable, "") if described.session_variable else ""


def _by_self_session(
    described: Agent, environment: Mapping[str, str], panels: Panels, turns: AbstractSet[tuple[str, str]]
) -> Caller | None:
    """What the broker has told the turn that it started: the agent's own process, and not its child, shows that.

    Anybody can start a program with this variable, so it only says which of the turns that do run this one is.
    """
    name, _, session = environment.get(SELF_SESSION, "").partition(":")
    if name != described.name or (name, session) not in turns or panels.hosting(name, session):
        return None
    return Caller(name, session, SELF_SESSION)


def _panel_above(line: tuple[Ancestor, ...], panels: Panels) -> tuple[Panel | None, list[Agent]]:
    """The nearest panel, and the agents between the caller and its shim; without a panel, all of them.

    One is the panel's own. Another one below it (a Codex that a Claude has started in its shell) calls for itself, and not
    for the panel.
    """
    between: list[Agent] = []
    for process, described, _ in line:
        panel = panels.by_process(process)
        if panel is not None:
            return panel, between
        if described is not None:
            between.append(described)
    return None, between


def _nearest_agent(line: Sequence[Ancestor], is_shim: Callable[[ProcessId], object]) -> int | None:
    """Where in ``line`` the nearest agent is: known by its program, or, whatever it is called, by the shim that started it."""
    for place, (process, described, _) in enumerate(line):
        if described is not None:
            return place
        if is_shim(process):
            return place - 1 if place else None
    return None


def _is_in_shell(line: Sequence[Ancestor], panels: Panels) -> bool:
    """Whether a shell stands between the caller and the nearest agent."""
    nearest = _nearest_agent(line, panels.by_process)
    return any(above.is_shell for above in line[:nearest]) if nearest is not None else False


def _window_above(line: Sequence[Ancestor], panels: Panels) -> ProcessId | None:
    """The nearest process that some panel's window is."""
    windows = {panel.window for panel in panels}
    return next((above.process for above in line if above.process in windows), None)


def _stores(caller: Caller, started: Told | None, own: Told) -> dict[str, str]:
    """Each agent's data directory: of the caller's own agent as its panel or its process sees it, for a server may be told less.

    Args:
        started: how the agent's process was started; own: how the caller itself was. Its own word counts for other agents, and
            where it has none (Codex scrubs what its servers get) that of the process.
    """
    found = {}
    for name, described in agents().items():
        if name == caller.agent and caller.panel is not None and caller.panel.store:
            found[name] = caller.panel.store
            continue
        tellers = [own] if started is None else [started] if name == caller.agent else [own, started]
        told = (teller for teller in tellers if teller.environment.get(described.store_variable))
        home = (teller for teller in tellers if teller.environment.get("HOME"))
        found[name] = next(told, next(home, tellers[0])).store(described)
    return found


def _ancestor(process: ProcessId) -> Ancestor:
    program = executable(process.pid) or ""
    described = next((described for described in agents().values() if described.program.search(program)), None)
    return Ancestor(process, described, program.rsplit("/", 1)[-1] in SHELLS)
