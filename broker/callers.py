"""Who is calling, decided from evidence (EN-20, panel part). No claim of a caller's own is believed.

Owns the ranking of evidence. The pid of the MCP process is the kernel's; from it the ancestors are walked once. What the
call itself carries (Codex's thread, Claude's tool use), or the process (Grok's session), says which session of a panel it
is, and counts only where the ancestors say the same panel.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from broker.errors import Refusal
from broker.panels import Panel, Panels
from broker.processes import ProcessId, ancestors, executable
from shims.agent import Agent, agents

CODEX_TURN = "x-codex-turn-metadata"
CLAUDE_TOOL_USE = "claudecode/toolUseId"
GROK_SESSION = "GROK_SESSION_ID"
"""Grok runs one server process per session, and tells it whose it is; a Claude that a Grok started has inherited it."""


@dataclass(frozen=True, slots=True)
class Caller:
    """The session a call comes from. ``agent`` empty: nobody known. ``how`` names the evidence."""

    agent: str = ""
    session: str = ""
    how: str = "unknown"
    panel: Panel | None = None

    @property
    def window(self) -> ProcessId | None:
        return self.panel.window if self.panel is not None else None


def identify_caller(process: ProcessId, meta: Mapping[str, Any], environment: Mapping[str, str], panels: Panels) -> Caller:
    """The caller behind an MCP process.

    Args:
        process: the MCP process, proven by the kernel.
        meta: the call's ``_meta``.
        environment: the process's ``CROSS_AGENT_*``, and what agents told it of its session.

    Raises:
        Refusal: the registration says that the caller is another agent than it is.
    """
    caller = _by_evidence(ancestors(process.pid), meta, environment.get(GROK_SESSION, ""), panels)
    named = environment.get("CROSS_AGENT_SELF", "").strip().lower()
    if named not in agents():
        return caller
    if not caller.agent:
        return Caller(named, "", "CROSS_AGENT_SELF, which names no session")
    if caller.agent != named:
        raise Refusal(
            "contradictory_caller",
            f"CROSS_AGENT_SELF says {named}, but the call comes from {caller.agent}",
            "Remove CROSS_AGENT_SELF from this registration: callers are known without it.",
        )
    return caller


def _by_evidence(line: list[ProcessId], meta: Mapping[str, Any], grok_session: str, panels: Panels) -> Caller:
    panel, between = _panel_above(line, panels)
    nested = len(between) > 1 or any(described.name != panel.agent for described in between) if panel is not None else False
    if panel is not None and not nested:
        return _in_panel(panel, meta, grok_session)
    nearest = _nearest_agent(line[1:])
    if nearest is not None:
        thread, _ = _codex_thread(meta)
        if nearest.name == "codex" and thread and not panels.hosting("codex", thread):
            return Caller("codex", thread, "the call's thread id")
        if nearest.name == "grok" and grok_session:
            # With a leader its servers are children of whichever client came first; what it tells them stays right (1.0.41).
            hosts = panels.hosting("grok", grok_session)
            return Caller("grok", grok_session, GROK_SESSION, hosts[0] if len(hosts) == 1 else None)
        return Caller(nearest.name, "", "the program that started the call")
    return Caller()


def _in_panel(panel: Panel, meta: Mapping[str, Any], grok_session: str) -> Caller:
    thread, how = _codex_thread(meta)
    if panel.agent == "codex" and thread:
        if panel.session(thread) is not None:
            return Caller("codex", thread, how, panel)
        return Caller("codex", "", "a thread that the panel does not show", panel)
    if panel.agent == "grok" and grok_session:
        if panel.session(grok_session) is not None:
            return Caller("grok", grok_session, GROK_SESSION, panel)
        return Caller("grok", "", "a session that the panel does not show", panel)
    tool_use = meta.get(CLAUDE_TOOL_USE)
    for state in panel.sessions:
        if isinstance(tool_use, str) and tool_use in state.tool_uses:
            return Caller(panel.agent, state.id, "the tool use that the panel showed", panel)
    if len(panel.sessions) == 1:
        return Caller(panel.agent, panel.sessions[0].id, "the panel that the call descends from", panel)
    return Caller(panel.agent, "", "a panel with several sessions", panel)


def _codex_thread(meta: Mapping[str, Any]) -> tuple[str, str]:
    """The thread that a Codex call belongs to: a sub-agent's is its parent's (0.147.0 to 0.171.0)."""
    turn = meta.get(CODEX_TURN)
    turn = turn if isinstance(turn, Mapping) else {}
    parent = turn.get("parent_thread_id")
    if isinstance(parent, str) and parent:
        root = turn.get("session_id")
        return (root if isinstance(root, str) and root else parent), "the parent thread of the calling sub-agent"
    thread = meta.get("threadId") or turn.get("thread_id")
    return (thread, "the call's thread id") if isinstance(thread, str) else ("", "")


def _panel_above(line: list[ProcessId], panels: Panels) -> tuple[Panel | None, list[Agent]]:
    """The nearest panel, and the agents between the caller and its shim.

    One is the panel's own. Another one below it (a Codex that a Claude has started in its shell) calls for itself, and not
    for the panel.
    """
    between: list[Agent] = []
    for process in line[1:]:
        panel = panels.by_process(process)
        if panel is not None:
            return panel, between
        described = _agent_of(process)
        if described is not None:
            between.append(described)
    return None, between


def _nearest_agent(line: list[ProcessId]) -> Agent | None:
    return next((described for process in line if (described := _agent_of(process)) is not None), None)


def _agent_of(process: ProcessId) -> Agent | None:
    program = executable(process.pid) or ""
    return next((described for described in agents().values() if described.program.search(program)), None)
