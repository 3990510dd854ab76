"""A world in which real agents exchange messages: state directory, homes, scripted models, panels behind the real shims.

Owns everything in it, from the first file to the broker that the shims start, and ends it all. The assertions say in the
domain's words what a person in front of the panels must have seen.
"""

from __future__ import annotations

import os
import shlex
import sys
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from broker.cli.calls import stop_broker
from broker.paths import Home
from tests.real.binaries import CLAUDE_VERSIONS, CODEX_VERSIONS, GROK_VERSIONS, binary
from tests.real.gates import Gate
from tests.real.homes import ClaudeHome, CodexHome, GrokHome, Shell
from tests.real.models import AnthropicModel, OpenAIModel, XaiModel
from tests.real.outsider import Outsider
from tests.real.panels import ClaudePanel, CodexPanel, GrokPanel
from tests.real.panels.record import WAIT
from tests.real.party import ClaudeParty, CodexParty, GrokParty, Party, Turn

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

T = TypeVar("T")

ROOT: Final = Path(__file__).parents[2]
MCP: Final = [str(ROOT / "bin" / "cross-agent"), "mcp"]

MESSAGE: Final = "=== CROSS-AGENT BRIDGE MESSAGE ==="
REPLY: Final = "=== CROSS-AGENT BRIDGE REPLY ==="
FAILED: Final = "=== CROSS-AGENT BRIDGE DELIVERY FAILED ==="

PREFACE: Final = "The words in front of the script are longer than the summary of a message, so that no summary holds a script: "
"""A reply quotes the first 100 characters of the message it answers; a script in them would be run by the sender's model."""

ASK_AGAIN: Final = 0.02
"""Seconds between two questions about a fact that nothing announces."""


class World:
    """One person's machine. ``directory`` is for homes and gates, ``state`` is the ``CROSS_AGENT_HOME``."""

    def __init__(self, directory: Path, state: Path) -> None:
        self.directory = directory
        self.state = state
        self._closing = ExitStack()
        self._closing.callback(self._stop_broker)
        self.anthropic = self._closing.enter_context(AnthropicModel())
        self.openai = self._closing.enter_context(OpenAIModel())
        self.xai = self._closing.enter_context(XaiModel())
        self._outsider: Outsider | None = None

    # who is there

    def open(self, name: str, **options: Any) -> Party:
        """A session of ``claude-2.1.332``, ``codex-0.171.0``, ``grok-1.0.41`` …"""
        agent, _, version = name.partition("-")
        opening: dict[str, Callable[..., Party]] = {"claude": self.claude, "codex": self.codex, "grok": self.grok}
        return opening[agent](version, **options)

    def claude(
        self,
        version: str = CLAUDE_VERSIONS[0],
        *,
        window: bool = False,
        shell: Shell = "ask",
        home: str = "",
        approve_tools: bool = True,
        settings: dict[str, str] | None = None,
        **options: Any,
    ) -> ClaudeParty:
        """A panel of Claude Code.

        Args:
            window: it belongs to a window of its own.
            shell: whether its commands need an approval.
            approve_tools: whether the tools of the bridge run unasked.
            home: panels with one home name share their home; by default those of a version do.
            settings: ``CROSS_AGENT_*`` of its MCP server.
            options: what else `ClaudePanel` takes.
        """
        path = self.directory / (home or f"claude-{version}")
        place = ClaudeHome(
            path,
            self.anthropic.url,
            MCP,
            {**self._own(), **(settings or {})},
            self._own(),
            approve_tools=approve_tools,
            shell=shell,
        )
        panel = ClaudePanel(self._shim("claude", path, window=window), binary(f"claude-{version}"), place, **options)
        self._closing.callback(panel.close)
        return ClaudeParty(panel, version, self.anthropic)

    def codex_panel(
        self,
        version: str = CODEX_VERSIONS[0],
        *,
        window: bool = False,
        shell: Shell = "ask",
        home: str = "",
        approve_tools: bool = True,
        settings: dict[str, str] | None = None,
        **options: Any,
    ) -> CodexPanel:
        """An app-server of Codex without a thread; arguments as for `claude`."""
        path = self.directory / (home or f"codex-{version}")
        place = CodexHome(
            path,
            self.openai.url,
            MCP,
            {**self._own(), **(settings or {})},
            self._own(),
            approve_tools=approve_tools,
            shell=shell,
        )
        panel = CodexPanel(self._shim("codex", path, window=window), binary(f"codex-{version}"), place, **options)
        self._closing.callback(panel.close)
        return panel

    def codex(self, version: str = CODEX_VERSIONS[0], **options: Any) -> CodexParty:
        """A new thread in an app-server of its own; arguments as for `codex_panel`."""
        panel = self.codex_panel(version, **options)
        return self.thread(panel, version)

    def thread(self, panel: CodexPanel, version: str = CODEX_VERSIONS[0], **params: Any) -> CodexParty:
        """A new thread in ``panel``."""
        return CodexParty(panel, version, self.openai, panel.start_thread(**params))

    def grok_panel(
        self,
        version: str = GROK_VERSIONS[0],
        *,
        window: bool = False,
        shell: Shell = "ask",
        home: str = "",
        approve_tools: bool = True,
        settings: dict[str, str] | None = None,
        **options: Any,
    ) -> GrokPanel:
        """A process of Grok Build without a session; arguments as for `claude`."""
        path = self.directory / (home or f"grok-{version}")
        place = GrokHome(
            path,
            self.xai.url,
            MCP,
            {**self._own(), **(settings or {})},
            self._own(),
            approve_tools=approve_tools,
            shell=shell,
        )
        options.setdefault("patience", 0.2)  # as an editor that goes; by itself it takes up to 4 s to end
        panel = GrokPanel(self._shim("grok", path, window=window), binary(f"grok-{version}"), place, **options)
        self._closing.callback(panel.close)
        return panel

    def grok(self, version: str = GROK_VERSIONS[0], **options: Any) -> GrokParty:
        """A new session in a process of its own; arguments as for `grok_panel`."""
        return self.grok_session(self.grok_panel(version, **options), version)

    def grok_session(self, panel: GrokPanel, version: str = GROK_VERSIONS[0], **meta: Any) -> GrokParty:
        """A new session in ``panel``."""
        return GrokParty(panel, version, self.xai, panel.start_session(**meta))

    def reopen(self, name: str, session: str) -> Party:
        """A session that was closed, in a new panel in which nobody has typed."""
        agent, _, version = name.partition("-")
        if agent == "claude":
            return self.claude(version, resume=session)
        if agent == "codex":
            server = self.codex_panel(version)
            return CodexParty(server, version, self.openai, server.resume_thread(session))
        panel = self.grok_panel(version)
        return GrokParty(panel, version, self.xai, panel.load_session(session))

    def gate(self) -> Gate:
        return Gate(self.directory)

    # what the bridge says to somebody who is no agent

    @property
    def outsider(self) -> Outsider:
        if self._outsider is None:
            environment = {"PATH": os.environ["PATH"], "HOME": str(self.directory)}  # a broker it starts reads no real stores
            self._outsider = Outsider(MCP, {**environment, **self._own(), **_mark()})
            self._closing.callback(self._outsider.close)
        return self._outsider

    def delivery(self, identifier: str) -> dict[str, Any]:
        """`bridge_status` of one delivery."""
        return self.outsider.call("bridge_status", delivery_id=identifier)

    def wait_state(self, identifier: str, *states: str) -> dict[str, Any]:
        """The delivery, as soon as it is in one of ``states``."""
        return until(lambda: self.delivery(identifier), lambda found: found["delivery"]["state"] in states)

    def wait_handed_over(self, identifier: str) -> dict[str, Any]:
        """The delivery, as soon as its text has been written to the agent."""
        return until(lambda: self.delivery(identifier), lambda found: any(a["evidence"] != "none" for a in found["attempts"]))

    def session(self, identifier: str) -> dict[str, Any] | None:
        """How `list_agent_sessions` shows one session, None if it does not."""
        listed = self.outsider.call("list_agent_sessions", scope="any", limit=50)["sessions"]
        return next((session for session in listed if session["id"] == identifier), None)

    def wait_session(
        self,
        identifier: str,
        predicate: Callable[[dict[str, Any]], Any] = lambda session: True,  # noqa: ARG005
    ) -> dict[str, Any]:
        """The session as it is listed, as soon as it satisfies ``predicate``."""
        found = until(lambda: self.session(identifier), lambda session: session is not None and predicate(session))
        assert found is not None
        return found

    def hosted(self, identifier: str) -> dict[str, Any] | None:
        """How `bridge_status` shows the session that a panel hosts, also one without a conversation yet."""
        panels = self.outsider.call("bridge_status", scope="any")["ide_panels"]
        return next((session for panel in panels for session in panel["sessions"] if session["id"] == identifier), None)

    def wait_hosted(self, identifier: str) -> dict[str, Any]:
        """The session as a panel hosts it, as soon as one does."""
        found = until(lambda: self.hosted(identifier), lambda session: session is not None)
        assert found is not None
        return found

    def all_settled(self) -> None:
        """Waits until nothing is under way."""
        until(lambda: self.outsider.call("bridge_status", scope="any"), lambda status: not status["deliveries"]["pending"])

    def close(self) -> None:
        """Ends every panel, then the broker, then the models."""
        self._closing.close()

    def _own(self) -> dict[str, str]:
        return {"CROSS_AGENT_HOME": str(self.state), "CROSS_AGENT_DISABLE_HEADLESS": "1"}

    def _shim(self, agent: str, directory: Path, *, window: bool) -> Path:
        shim = ROOT / "bin" / f"{agent}-shim"
        if not window:
            return shim
        wrapper = directory / "window"
        command = shlex.join([sys.executable, str(Path(__file__).with_name("window.py")), str(shim)])
        wrapper.write_text(f'#!/bin/sh\nexec {command} "$@"\n', encoding="utf-8")
        wrapper.chmod(0o755)
        return wrapper

    def _stop_broker(self) -> None:
        stop_broker(Home(str(self.state)), WAIT)


def until(question: Callable[[], T], satisfied: Callable[[T], Any], timeout: float = WAIT) -> T:
    """The first answer that satisfies; for facts that nothing announces.

    Raises:
        TimeoutError: none came in time; the text shows the last answer.
    """
    deadline = time.monotonic() + timeout
    pause = threading.Event()
    while True:
        answer = question()
        if satisfied(answer):
            return answer
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {timeout} s; at last: {answer}")
        pause.wait(ASK_AGAIN)


# Being busy


class Occupation:
    """What a session is in the middle of: ``state`` is ``idle``, ``tool``, ``approval`` or ``text``.

    With its own turn it proves afterwards that nothing was cut, replaced or merged (DE-37).
    """

    def __init__(self, party: Party, gate: Gate, state: str, before: str = "") -> None:
        """Begins.

        Args:
            before: steps that the turn runs first, as a call of a tool.
        """
        self.party = party
        self.state = state
        self.answer = f"the own answer of {party.agent}"
        self._gate = gate
        last = {
            "idle": f"say {self.answer}",
            "tool": f"{party.command(f'wc -c < {gate}')} ;; say {self.answer}",
            "approval": f"{party.risky('true')} ;; say {self.answer}",
            "text": f"slow {gate} {self.answer}",
        }[state]
        self.text = f"own work [[{f'{before} ;; ' if before else ''}{last}]]"
        self.party.say(self.text)

    @property
    def turn(self) -> Turn:
        """The turn as it must end."""
        return Turn((self.text,), self.answer, completed=True)

    def begun(self) -> None:
        """Waits until the session is busy (an idle one: until its turn is over)."""
        if self.state == "idle":
            self.party.wait_turn(lambda turn: turn == self.turn)
        elif self.state == "approval":
            self.party.wait_approval()
        else:
            self._gate.reached()

    def let_go(self) -> None:
        """Nothing keeps the turn any more."""
        if self.state == "approval":
            self.party.approve()
        elif self.state != "idle":
            self._gate.release()

    def end(self) -> None:
        """Lets the turn go on and waits for its end."""
        self.let_go()
        self.party.wait_turn(lambda turn: turn.asked[:1] == (self.text,))


# What must have been seen


def is_message(turn: Turn, words: str = "") -> bool:
    """Whether a turn was begun by a message of a peer, and by nothing else."""
    return len(turn.asked) == 1 and turn.asked[0].startswith(MESSAGE) and words in turn.asked[0]


def is_reply(turn: Turn, words: str = "") -> bool:
    """Whether a turn was begun by the answer to a message, and by nothing else."""
    return len(turn.asked) == 1 and turn.asked[0].startswith(REPLY) and f"\n\n{words}\n\n[bridge]" in turn.asked[0]


def is_notice(turn: Turn, words: str = "") -> bool:
    """Whether a turn was begun by word of a delivery that failed."""
    return len(turn.asked) == 1 and turn.asked[0].startswith(FAILED) and words in turn.asked[0]


def assert_turns(party: Party, *wanted: Turn | Callable[[Turn], bool]) -> None:
    """Whatever was sent has arrived by now; these turns and no others ran.

    A last word of the person's proves that nothing waits in the agent any more.
    """
    last = f"last words of {party.agent} [[say that is all]]"
    party.say(last)
    party.wait_turn(lambda turn: last in turn.asked)
    turns = party.turns()
    expected = [*wanted, Turn((last,), "that is all", completed=True)]
    fits = [turn == want if isinstance(want, Turn) else want(turn) for turn, want in zip(turns, expected, strict=False)]
    assert len(turns) == len(expected) and all(fits), _story(party, turns)


def _story(party: Party, turns: Sequence[Turn]) -> str:
    lines = [f"{turn.asked!r} -> {turn.answered!r}{'' if turn.completed else ' (not completed)'}" for turn in turns]
    return "\n".join([f"{party.agent} {party.version} had these turns:", *lines])


def _mark() -> dict[str, str]:
    mark = os.environ.get("CROSS_AGENT_TEST_MARK")
    return {} if mark is None else {"CROSS_AGENT_TEST_MARK": mark}
