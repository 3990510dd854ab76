"""Who is calling, decided from evidence (EN-20). No claim of a caller's own is believed.

Owns the ranking of evidence. The pid of the MCP process is the kernel's; from it the ancestors are walked once, and the nearest
agent among them is who calls. Which of its sessions that is, the call itself says, else the shim above the agent or the agent's
own registry of live sessions, else a variable that the agent keeps exact. Each counts only for the agent that it belongs to.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from broker.errors import Refusal
from broker.panels import Panel, Panels
from broker.processes import SHELLS, ProcessId, ancestors, argv, executable, variables
from shims.agent import Agent, agent, agents

SELF = "CROSS_AGENT_SELF"
SELF_SESSION = "CROSS_AGENT_SELF_SESSION"
CONVERSATION = "CROSS_AGENT_CONVERSATION_ID"

_HELD = "the agent's own registry of live sessions"


@dataclass(frozen=True, slots=True)
class Caller:
    """The session a call comes from. ``agent`` empty: nobody known. ``how`` names the evidence.

    ``store`` is the data directory of ``agent`` as this caller sees it (SE-13). ``headless``: it is a turn that the broker
    has started on the command line, and ``conversation`` the one that this turn was told it belongs to (EN-13).
    """

    agent: str = ""
    session: str = ""
    how: str = "unknown"
    panel: Panel | None = None
    store: str = ""
    headless: bool = False
    conversation: str = ""

    @property
    def window(self) -> ProcessId | None:
        return self.panel.window if self.panel is not None else None


class Ancestor(NamedTuple):
    """A process above the caller; ``agent``: the one that it is."""

    process: ProcessId
    agent: Agent | None


@dataclass(frozen=True, slots=True)
class Descent:
    """What the process table and the files of the nearest agent say of a process. ``line`` begins with its parent."""

    line: tuple[Ancestor, ...] = ()
    held: str = ""
    """The session that the nearest agent's process holds, by the agent's own registry."""
    environment: Mapping[str, str] | None = None
    """What matters here of the environment that the nearest agent's process was started with; None: it cannot be read."""
    in_shell: bool = False
    """A shell stands between the nearest agent and the process: what that agent tells its servers may have been changed."""
    leads: bool = False
    """The nearest agent's process serves the sessions of others as well."""


def descent_of(process: ProcessId) -> Descent:
    """Looks at processes and at a file, so it runs beside the loop."""
    line = tuple(Ancestor(above, _agent_of(above)) for above in ancestors(process.pid)[1:])
    in_shell = False
    for above, described in line:
        if described is not None:
            environment = variables(above.pid, ("HOME", described.store_variable, SELF_SESSION, CONVERSATION))
            held = described.held_by(described.store_in(environment or {}), above)
            return Descent(line, held, environment, in_shell, described.leads(argv(above.pid)))
        in_shell = in_shell or (executable(above.pid) or "").rsplit("/", 1)[-1] in SHELLS
    return Descent(line)


def identify_caller(descent: Descent, meta: Mapping[str, Any], environment: Mapping[str, str], panels: Panels) -> Caller:
    """The caller behind an MCP process.

    Args:
        descent: of the MCP process, which is proven by the kernel.
        meta: the call's ``_meta``.
        environment: the process's ``CROSS_AGENT_*``, its baseline, and what agents told it of its session.

    Raises:
        Refusal: the registration says that the caller is another agent than it is.
    """
    caller = _by_evidence(descent, meta, environment, panels)
    named = environment.get(SELF, "").strip().lower()
    if named not in agents():
        return caller
    if not caller.agent:
        return Caller(named, "", f"{SELF}, which names no session", store=agent(named).store_in(environment))
    if caller.agent != named:
        raise Refusal(
            "contradictory_caller",
            f"{SELF} says {named}, but the call comes from {caller.agent}",
            f"Remove {SELF} from this registration: callers are known without it.",
        )
    return caller


def _by_evidence(descent: Descent, meta: Mapping[str, Any], environment: Mapping[str, str], panels: Panels) -> Caller:
    panel, between = _panel_above(descent.line, panels)
    if panel is not None and (not between or (len(between) == 1 and between[0].name == panel.agent)):
        return _in_panel(
            panel, agent(panel.agent), meta, _told(agent(panel.agent), descent, environment), descent.held if between else ""
        )
    if not between:
        return Caller()
    nearest = between[0]
    started = descent.environment if descent.environment is not None else environment
    caller = _in_no_panel(nearest, meta, _told(nearest, descent, environment), descent, panels)
    told = panel is None and len(between) == 1  # an agent that another one has started has inherited it
    if caller is None and told:
        caller = _by_self_session(nearest, started)
    if caller is not None and told and _is_started(caller, started):
        caller = replace(caller, headless=True, conversation=started.get(CONVERSATION, ""))
    caller = caller or Caller(nearest.name, "", "the program that started the call")
    return replace(caller, store=caller.panel.store if caller.panel is not None else nearest.store_in(started))


def _in_panel(panel: Panel, described: Agent, meta: Mapping[str, Any], told: str, held: str) -> Caller:
    def caller(session: str, how: str) -> Caller:
        return Caller(panel.agent, session, how, panel, panel.store)

    origin = described.origin(meta)
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


def _in_no_panel(described: Agent, meta: Mapping[str, Any], told: str, descent: Descent, panels: Panels) -> Caller | None:
    """An agent that runs in a terminal, headless, or in the shell of another; None: nothing names its session."""
    origin = described.origin(meta)
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


def _told(described: Agent, descent: Descent, environment: Mapping[str, str]) -> str:
    """The session that the agent has told its server; another agent's variable was inherited, and a shell's is a claim."""
    if not described.session_variable or descent.in_shell:
        return ""
    return environment.get(described.session_variable, "")


def _by_self_session(described: Agent, environment: Mapping[str, str]) -> Caller | None:
    """What the broker has told the turn that it started: the agent's own process, and not its child, shows that."""
    name, _, session = environment.get(SELF_SESSION, "").partition(":")
    return Caller(name, session, SELF_SESSION) if name == described.name and session else None


def _is_started(caller: Caller, environment: Mapping[str, str]) -> bool:
    """Whether the broker has started the calling turn: the agent's own process was told so, and is the session it was told.

    The id of a conversation that a turn opens may be the agent's to choose; nobody could tell it then.
    """
    name, _, session = environment.get(SELF_SESSION, "").partition(":")
    return name == caller.agent and session in ("", caller.session)


def _panel_above(line: tuple[Ancestor, ...], panels: Panels) -> tuple[Panel | None, list[Agent]]:
    """The nearest panel, and the agents between the caller and its shim; without a panel, all of them.

    One is the panel's own. Another one below it (a Codex that a Claude has started in its shell) calls for itself, and not
    for the panel.
    """
    between: list[Agent] = []
    for process, described in line:
        panel = panels.by_process(process)
        if panel is not None:
            return panel, between
        if described is not None:
            between.append(described)
    return None, between


def _agent_of(process: ProcessId) -> Agent | None:
    program = executable(process.pid) or ""
    return next((described for described in agents().values() if described.program.search(program)), None)
