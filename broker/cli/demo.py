"""`cross-agent demo`: a whole exchange, shown as it happens.

Owns the stage: a state directory of its own, two panels, one question. Everything on it is real but, without `--real`, the
two agents: they are stand-ins that speak the agents' protocols and follow the script in the message. What is printed is
what the panels receive; success is that the answer came back into the panel that asked.
"""

from __future__ import annotations

import json
import os
import shutil
import stat
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack

from broker.cli.calls import call, stop_broker
from broker.cli.editor import ClaudeEditor, CodexEditor, PanelEnded
from broker.errors import CrossAgentError
from broker.paths import Home
from shims.claude import command as claude_command
from shims.codex import command as codex_command
from shims.launch import Product, find_real

_ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
_QUESTION = "Is 2026 a leap year?"
_CLAUDE_ARGUMENTS = (
    "--output-format", "stream-json", "--verbose", "--input-format", "stream-json", "--permission-prompt-tool", "stdio",
    "--replay-user-messages",
)  # fmt: skip


def run_demo(*, real: bool, show: Callable[[str], None]) -> int:
    """Plays the exchange. Returns the exit status: 0 when the answer came back.

    Raises:
        CrossAgentError: an agent is missing, or the exchange did not come to its end.
    """
    started = time.monotonic()

    def line(who: str, text: str) -> None:
        first, *rest = text.strip().split("\n")
        show(f"{time.monotonic() - started:6.2f} s  {who:>18} │ {first}")
        for further in rest:
            show(f"{'':8}  {'':>18} │ {further}")

    with ExitStack() as stack:
        stage = tempfile.mkdtemp(prefix="cross-agent-demo-")
        stack.callback(shutil.rmtree, stage, ignore_errors=True)
        home = Home(os.path.join(stage, "state"))
        try:
            _play(stage, home, real, line, stack)
        except PanelEnded as error:
            raise CrossAgentError(str(error), code="demo_failed", next_step=_last_words(home)) from error
        show("")
        show(f"The answer came back to the panel that asked, {time.monotonic() - started:.1f} s after the start.")
        show("Put these sessions into your editor: see “Installation into editors” in README.md.")
    return 0


def _play(stage: str, home: Home, real: bool, line: Callable[[str, str], None], stack: ExitStack) -> None:
    work = os.path.join(stage, "work")
    os.mkdir(work)
    environment = _environment(stage, home, real)
    mcp = {"command": sys.executable, "args": ["-I", "-S", os.path.join(_ROOT, "mcp_server", "__main__.py")]}
    mcp_environment = {"CROSS_AGENT_HOME": home.root}
    claude_real, codex_real = _binaries(stage, real)
    stack.callback(stop_broker, home)

    servers = {"mcpServers": {"cross-agent": {**mcp, "env": mcp_environment}}}
    allowed = ("--mcp-config", json.dumps(servers), "--allowedTools", "mcp__cross-agent__send_to_codex")
    claude = ClaudeEditor((_shim("claude"), claude_real, *_CLAUDE_ARGUMENTS, *allowed), environment, work, line)
    stack.callback(claude.close)
    settings = [
        f"mcp_servers.cross-agent.command={json.dumps(mcp['command'])}",
        f"mcp_servers.cross-agent.args={json.dumps(mcp['args'])}",
        f"mcp_servers.cross-agent.env={{CROSS_AGENT_HOME={json.dumps(home.root)}}}",
    ]
    options = [option for setting in settings for option in ("-c", setting)]
    codex = CodexEditor(
        (_shim("codex"), *options, "app-server"), {**environment, codex_command.PRODUCT.variable: codex_real}, work, line
    )
    stack.callback(codex.close)
    claude.open()
    thread = codex.open(work)
    line("editor", f"two panels are open; the Codex thread is {thread}")
    _wait_until_both_are_known(home, thread)

    claude.say(*_prompt(thread, real))
    claude.result(1)
    answer = claude.wait(lambda m: m.get("type") == "user" and "BRIDGE REPLY" in str(m.get("message")), "answer from Codex", 180)
    if codex.last_words().split("\n", 1)[0] not in answer["message"]["content"]:
        raise PanelEnded("Claude Code: the answer that came back is not the one that Codex gave")
    claude.result(2)


def _prompt(thread: str, real: bool) -> tuple[str, str]:
    """What the person types, and how it is shown. A stand-in is told what to do by a script, an agent in words."""
    if real:
        text = (
            f"Use the tool send_to_codex of the MCP server cross-agent once, with session_id {thread} and the message "
            f'"{_QUESTION} Answer in one sentence." Then end your turn without waiting for the answer.'
        )
        return text, text
    question = f"{_QUESTION} [[reply No: 2026 is not divisible by 4.]]"
    arguments = json.dumps({"message": question, "session_id": thread})
    script = f"[[tool mcp__cross-agent__send_to_codex {arguments} ;; say I have asked Codex. Its answer will come here.]]"
    return f"Ask Codex: {_QUESTION} {script}", f"Ask Codex: {_QUESTION}"


def _binaries(stage: str, real: bool) -> tuple[str, str]:
    """The two agents: installed here, or the stand-ins as executables."""
    if real:
        return _installed(claude_command.PRODUCT), _installed(codex_command.PRODUCT)
    return _stand_in(stage, "claude"), _stand_in(stage, "codex")


def _installed(product: Product) -> str:
    found = find_real(product, os.environ, os.path.expanduser("~"))
    if found is None:
        raise CrossAgentError(
            f"no {product.program} is installed here",
            code="missing_agent",
            next_step=f"Install it, or set {product.variable} to its path. `cross-agent demo` needs neither.",
        )
    return found


def _stand_in(stage: str, agent: str) -> str:
    path = os.path.join(stage, agent)
    program = os.path.join(_ROOT, "shims", agent, "stub", "__main__.py")
    with open(path, "w", encoding="utf-8") as file:
        file.write(f'#!/bin/sh\nexec "{sys.executable}" -I -S "{program}" "$@"\n')
    os.chmod(path, os.stat(path).st_mode | stat.S_IXUSR)
    return path


def _environment(stage: str, home: Home, real: bool) -> dict[str, str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("CROSS_AGENT_REAL_")}
    environment["CROSS_AGENT_HOME"] = home.root
    if not real:  # the stand-ins keep their stores on the stage as well
        environment["CLAUDE_CONFIG_DIR"] = os.path.join(stage, "claude-store")
        environment["CODEX_HOME"] = os.path.join(stage, "codex-store")
        os.mkdir(environment["CODEX_HOME"])
    return environment


def _shim(agent: str) -> str:
    """The launcher, in a checkout or beside the interpreter of an installation."""
    for place in (os.path.join(_ROOT, "bin"), os.path.dirname(sys.executable)):
        launcher = os.path.join(place, f"{agent}-shim")
        if os.access(launcher, os.X_OK):
            return launcher
    raise CrossAgentError(f"the launcher {agent}-shim is missing from this installation", next_step="Install it again.")


def _wait_until_both_are_known(home: Home, thread: str) -> None:
    """The broker is started by the first shim; both register within a moment of their agents' start."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        overview = call(home, "overview", start=True, patience=20)
        panels = overview["ide_panels"]
        sessions = {session["id"] for panel in panels for session in panel["sessions"]}
        if {panel["agent"] for panel in panels} == {"claude", "codex"} and thread in sessions:
            return
        call(home, "next_event", after=overview["server_process"]["event_sequence"])
    raise PanelEnded("the panels did not register with the broker")


def _last_words(home: Home) -> str:
    """Where to look: the demo's own logs are gone with its stage, so the end of them is told."""
    words = []
    for name in ("broker.log", "shim-claude.log", "shim-codex.log", "shim-failures.log"):
        try:
            with open(os.path.join(home.logs, name), encoding="utf-8", errors="replace") as file:
                words += [f"{name}: {text.rstrip()}" for text in file.readlines()[-3:]]
        except OSError:
            continue
    return "The last lines of the logs:\n  " + "\n  ".join(words) if words else "No log was written."
