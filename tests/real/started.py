"""A world in which the bridge starts turns of the real agents, all of one person's home, whose files tell what became of them.

Owns the home, the directory in which alone agents are found, and the grants. What a started turn needs to reach a scripted
model is in no file: it goes the way of a key, from the caller's environment by name (EN-11).
"""

from __future__ import annotations

import json
import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from broker.paths import Home as State
from broker.processes import ProcessId
from broker.rendezvous import read_record
from broker.turns.files import TurnFiles
from shims.agent import agent as described
from tests.integration.processes import gone_within
from tests.real.binaries import CLAUDE_VERSIONS, CODEX_VERSIONS, GROK_VERSIONS, binary
from tests.real.exchange import MCP, World, until
from tests.real.homes import MARK, ClaudeHome, CodexHome, GrokHome, Home
from tests.real.outsider import Outsider

if TYPE_CHECKING:
    from typing_extensions import Self

    from tests.real.homes import Shell
    from tests.real.models import ScriptedModel

P = TypeVar("P")

AGENTS: Final = ("claude", "codex", "grok")
NEWEST: Final = {"claude": CLAUDE_VERSIONS[0], "codex": CODEX_VERSIONS[0], "grok": GROK_VERSIONS[0]}
PERSON: Final = "person"
FINAL: Final = ("delivered", "failed", "uncertain", "withdrawn", "refused")

_TURNS: Final = {"claude": '"type":"user"', "codex": '"type":"task_started"', "grok": '"sessionUpdate":"turn_completed"'}
"""What stands in the records once for each turn in which no tool was called."""


class StartingWorld(World):
    """One person, whose agents share a home; ``versions``: which release of each lies on the PATH, by default the newest."""

    def __init__(self, directory: Path, state: Path, **versions: str) -> None:
        super().__init__(directory, state)
        self.files = State(str(state))
        self.versions = {**NEWEST, **versions}
        self._bin = directory / "bin"
        self._bin.mkdir()
        for agent, version in self.versions.items():
            (self._bin / agent).symlink_to(binary(f"{agent}-{version}"))
        self.person = directory / PERSON
        self.homes: dict[str, Home] = {}
        kinds = {"claude": (ClaudeHome, self.anthropic), "codex": (CodexHome, self.openai), "grok": (GrokHome, self.xai)}
        self.models: dict[str, ScriptedModel] = {agent: model for agent, (_, model) in kinds.items()}
        self.keys: dict[str, str] = {}
        for agent, (kind, model) in kinds.items():
            home = kind(self.person, model.url)
            self.keys |= {name: value for name, value in home.environment().items() if name not in _BASE}
            self.homes[agent] = home
        for home in self.homes.values():
            home.mcp_command, home.mcp_env = list(MCP), self.variables()
            home.write()
        self.work = self.homes["claude"].cwd
        self.grant()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """A test that fails shows the logs."""
        self.close()
        for log in sorted(Path(self.files.logs).glob("*.log")):
            print(f"--- {log.name}", log.read_text(encoding="utf-8"), sep="\n")

    # what the person allows

    def grant(self, **granted: str) -> None:
        """What is granted from now on, beside the names that reach the models."""
        lines = [f'{name} = "{value}"' for name, value in {"child_env": ",".join(self.keys), **granted}.items()]
        self.state.joinpath("config.toml").write_text("\n".join(["[grants]", *lines, ""]), encoding="utf-8")

    def configure(self, *, shell: Shell = "ask", approve_tools: bool = True) -> None:
        """What each agent's own configuration allows from now on."""
        for home in self.homes.values():
            home.shell, home.approve_tools = shell, approve_tools
            home.write()

    def variables(self, **more: str) -> dict[str, str]:
        """The environment of somebody who calls the bridge; ``more`` stands over it, and what is empty there is not set."""
        named = {"CROSS_AGENT_DISABLE_HEADLESS": "0", "CROSS_AGENT_CHILD_ENV": ",".join(self.keys)}
        all_of_it = {**self._base(), **self.keys, **named, **_mark(), **more}
        return {name: value for name, value in all_of_it.items() if value}

    def _base(self) -> dict[str, str]:
        """Of the machine's own PATH what holds no agent."""
        places = os.environ["PATH"].split(os.pathsep)
        clean = [place for place in places if not any(os.path.exists(os.path.join(place, agent)) for agent in AGENTS)]
        return {
            "PATH": os.pathsep.join([str(self._bin), *clean]),
            "HOME": str(self.person),
            "NO_PROXY": "127.0.0.1,localhost",
            "CROSS_AGENT_HOME": str(self.state),
        }

    def _own(self) -> dict[str, str]:
        return self.variables()

    def program(self, agent: str) -> str:
        return str(self._bin / agent)

    # who is there

    def somebody(self, **more: str) -> Outsider:
        """A caller who is no agent; ``more`` as for `variables`."""
        caller = Outsider(MCP, self.variables(**more))
        self._closing.callback(caller.close)
        return caller

    @property
    def outsider(self) -> Outsider:
        self._outsider = self._outsider or self.somebody()
        return self._outsider

    def panel(self, agent: str, **options: Any) -> Any:
        """A session in an editor's panel, in the person's home."""
        return self.open(f"{agent}-{self.versions[agent]}", home=PERSON, **options)

    def send(self, agent: str, text: str, session: str = "", caller: Outsider | None = None, **more: Any) -> dict[str, Any]:
        """The receipt of a message, which must be accepted."""
        named: dict[str, Any] = {"session_id": session} if session else {"new_session": True}
        asked = {"message": text, "cwd": str(self.work), **named, **more}
        receipt = (caller or self.outsider).call(f"send_to_{agent}", **asked)
        assert receipt["ok"], receipt
        return receipt

    def ended(self, delivery: str) -> dict[str, Any]:
        """The record of a delivery, when it has ended."""
        found: dict[str, Any] = self.wait_state(delivery, *FINAL)["delivery"]
        return found

    def answer(self, agent: str, text: str, session: str = "", **more: Any) -> dict[str, Any]:
        """The record of a message when it was answered."""
        ended = self.ended(self.send(agent, text, session, **more)["delivery_id"])
        assert ended["state"] == "delivered", ended
        return ended

    def begun(self, *agents: str) -> list[str]:
        """Sessions that had one turn each, and that nobody has open; that they have one, files tell within a second (SE-14)."""
        sent = [self.send(agent, f"remember {agent} [[reply noted]]")["delivery_id"] for agent in agents]
        sessions = []
        for ended in map(self.ended, sent):
            assert (ended["state"], ended["reply_preview"]) == ("delivered", "noted"), ended
            sessions.append(str(ended["to_session"]))
            self.wait_session(sessions[-1])
        return sessions

    # what runs

    def turn(self, delivery: str) -> TurnFiles:
        """The files of the turn that was started for ``delivery``."""
        (attempt,) = [found["id"] for found in self._rows("attempts") if found["delivery"] == delivery and found["open"]]
        return TurnFiles(os.path.join(self.files.turns, attempt))

    def runner(self, delivery: str) -> ProcessId:
        return _some(self.turn(delivery).runner())

    def started(self, delivery: str) -> ProcessId:
        """The agent's own process."""
        return _some(self.turn(delivery).claimed())

    def kill_broker(self) -> None:
        record = read_record(self.files)
        assert record is not None
        kill(record.process)

    def requests(self) -> list[dict[str, Any]]:
        """Every request that was ever sent, oldest first."""
        return [found for found in self._rows("deliveries ORDER BY sequence") if found["kind"] == "request"]

    def nothing_is_left(self) -> None:
        """No files of any turn."""
        until(lambda: os.listdir(self.files.turns), lambda names: not names)

    def _rows(self, what: str) -> list[dict[str, Any]]:
        with closing(sqlite3.connect(f"file:{self.files.database}?mode=ro", uri=True, timeout=5)) as database:
            return [json.loads(row[0]) for row in database.execute(f"SELECT record FROM {what}")]

    # what the agents have in their records, and their models have seen

    def transcript(self, agent: str, session: str) -> str:
        headless = described(agent).headless
        assert headless is not None
        return Path(headless.transcript(str(self.homes[agent].path / f".{agent}"), session)).read_text(encoding="utf-8")

    def turns(self, agent: str, session: str) -> int:
        """How many there are in the records."""
        return self.transcript(agent, session).count(_TURNS[agent])

    def seen(self, agent: str, at: int = 0) -> str:
        """All that the model of an agent was told from its ``at``-th request on."""
        return "".join(json.dumps(request.body) for request in self.models[agent].requests[at:])

    def last_seen(self, agent: str) -> str:
        """What it was told last in a conversation."""
        return json.dumps([request.body for request in self.models[agent].requests if not request.side][-1])

    def results(self, agent: str) -> list[str]:
        """What came back for each tool call of its model, without the quoting of those who quote it."""
        requests = self.models[agent].requests
        return [result.text.replace('\\"', '"') for request in requests for result in request.results]


_BASE: Final = frozenset(
    ("HOME", "PATH", "LANG", "TERM", "USER", "SHELL", "XDG_RUNTIME_DIR", "NO_PROXY", "GROK_HOME", MARK)
)  # what a home gives to its agents that names neither a key nor a model


def kill(process: ProcessId) -> None:
    """SIGKILL, and gone."""
    os.kill(process.pid, 9)
    assert gone_within(process.pid, 10)


def group_is_gone(leader: ProcessId) -> None:
    """Nobody is left of a process group; what was killed takes a moment until it is."""

    def left() -> bool:
        try:
            os.killpg(leader.pid, 0)
        except ProcessLookupError:
            return False
        return True

    until(left, lambda some: not some)


def _some(found: P | None) -> P:
    assert found is not None
    return found


def _mark() -> dict[str, str]:
    return {MARK: os.environ[MARK]} if MARK in os.environ else {}
