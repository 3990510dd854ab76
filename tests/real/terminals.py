"""A person at terminals: sessions of the agents' own interfaces in one home, beside panels of the same home.

Owns that home's terminals and what they leave behind. A terminal is a party under the same verbs as a panel; what its turns were
is read in the agent's records, since what is drawn can't be taken apart.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from abc import abstractmethod
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from tests.real import turns_on_disk
from tests.real.binaries import CLAUDE_VERSIONS, CODEX_VERSIONS, GROK_VERSIONS, binary
from tests.real.exchange import PREFACE, until
from tests.real.homes import ClaudeHome, CodexHome, GrokHome
from tests.real.panels.record import WAIT
from tests.real.party import Party
from tests.real.started import StartingWorld
from tests.real.terminal import Terminal, end_agents

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.real.homes import Home
    from tests.real.models import ScriptedModel
    from tests.real.panels.record import Record
    from tests.real.party import Turn

Json = dict[str, Any]

CLAUDE: Final = f"claude-{CLAUDE_VERSIONS[0]}"
CODEX: Final = f"codex-{CODEX_VERSIONS[0]}"
ALONE: Final = f"{CODEX} --no-daemon"
OLDER: Final = f"codex-{CODEX_VERSIONS[1]}"
GROK: Final = f"grok-{GROK_VERSIONS[0]}"
"""Every kind of terminal that has a door; Codex's of the newest release is served by a daemon that it starts, or by itself."""

ANSWER: Final = "the answer of the peer"

_ESCAPE: Final = "\x1b"


class TerminalWorld(StartingWorld):
    """Commands run unasked in it, where a test says nothing else."""

    def __init__(self, directory: Path, state: Path, **versions: str) -> None:
        super().__init__(directory, state, **versions)
        self.runtime = Path(tempfile.mkdtemp(prefix="xr-", dir="/tmp"))  # Claude's sockets lie there: the path must be short
        self._closing.callback(shutil.rmtree, self.runtime, ignore_errors=True)
        self._closing.callback(self._end_agents)
        self._count = 0
        self.fail_points = Path(self.files.fail_points)
        self.fail_points.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.configure(shell="allow")

    def variables(self, **more: str) -> dict[str, str]:
        return super().variables(**{"CROSS_AGENT_FAIL_POINTS": "1", **more})

    def terminal(self, name: str, *options: str, told: dict[str, str] | None = None, resume: str = "") -> TerminalParty:
        """A session of ``claude-2.1.332``, ``codex-0.171.0``, ``grok-1.0.41`` … that had one turn.

        Args:
            options: of its command line, instead of the usual ones.
            told: further variables of its environment.
            resume: a session to go on with, in which no turn is run.
        """
        agent, _, version = name.partition("-")
        self._count += 1
        home = self.homes[agent]
        environment = {**home.environment(), **self.variables(), "XDG_RUNTIME_DIR": str(self.runtime), **(told or {})}
        party = _PARTIES[agent](home, version, self.models[agent])
        party.start([str(binary(name)), *(options or party.usual)], environment, f"first words {self._count}", resume)
        self._closing.callback(party.close)
        return party

    def opened(self, name: str) -> TerminalParty:
        """A terminal that has a door: ``name`` is one of the kinds above."""
        if name == GROK:
            self._share_grok()
        return self.terminal(*name.split())

    def tell(self, party: TerminalParty, answer: str, **more: Any) -> dict[str, Any]:
        """The receipt of a message that is answered by ``answer``."""
        return self.send(party.agent, f"{PREFACE}[[reply {answer}]]", party.session, **more)

    def _share_grok(self) -> None:
        """Grok's terminals are clients of one leader from now on."""
        home = self.homes["grok"]
        assert isinstance(home, GrokHome)
        home.use_leader = True
        home.write()

    def settle_claude(self, **settings: Any) -> None:
        """What stands in Claude Code's settings beside the permissions."""
        path = cast("ClaudeHome", self.homes["claude"]).config / "settings.json"
        path.write_text(json.dumps({**json.loads(path.read_text(encoding="utf-8")), **settings}), encoding="utf-8")

    def arm(self, point: str) -> None:
        """The broker dies when it next comes to ``point``."""
        (self.fail_points / point).touch()

    def _end_agents(self) -> None:
        socket = self.person / ".codex" / "app-server-control" / "app-server-control.sock"
        behind = os.path.realpath(socket) if socket.is_symlink() else ""
        end_agents(self.person)
        for path in (behind, f"{behind}.lock") if behind else ():
            with suppress(FileNotFoundError):
                os.unlink(path)


class TerminalParty(Party):
    """What the terminals have in common. ``usual``: options of the command line."""

    usual: tuple[str, ...] = ()

    def __init__(self, home: Home, version: str, model: ScriptedModel) -> None:
        self.home = home
        self.version = version
        self.model = model
        self.terminal: Terminal
        self._session = ""
        self._read: dict[Path, tuple[int, list[Json]]] = {}

    def start(self, command: list[str], environment: dict[str, str], words: str, resume: str) -> None:
        self._first = words
        begin = [*self._resuming(resume)] if resume else [f"{words} [[{self._patience()}say begun]]"]
        self.terminal = Terminal([*command, *begin], environment, self.home.cwd)
        if resume:
            self._session = resume
        else:
            self._session = until(self._found, bool)
            self._until(lambda: bool(self._all_turns()))

    @property
    def session(self) -> str:
        return self._session

    @property
    def pid(self) -> int:
        return self.terminal.pid

    def say(self, text: str) -> None:
        self.terminal.paste(text)

    def command_line(self, text: str) -> None:
        """Types one of the interface's own commands."""
        self.terminal.type(text)

    def interrupt(self) -> None:
        self.terminal.press(_ESCAPE)

    def kill(self) -> None:
        self.terminal.kill()

    def close(self) -> None:
        self.terminal.close()

    def sees(self, *words: str) -> None:
        """Waits until all of ``words`` are drawn, one after the other."""
        at = 0
        for part in words:
            at = self.terminal.shows(part, after=at)

    # what its records tell

    def turns(self) -> list[Turn]:
        """But for the first one, by which the session began."""
        return [turn for turn in self._all_turns() if not turn.asked[:1] or not turn.asked[0].startswith(self._first)]

    def wait_turn(self, predicate: Callable[[Turn], bool], timeout: float = WAIT) -> Turn:
        self._until(lambda: any(map(predicate, self.turns())), timeout)
        return next(turn for turn in self.turns() if predicate(turn))

    def wait_turns(self, count: int, timeout: float = WAIT) -> list[Turn]:
        self._until(lambda: len(self.turns()) >= count, timeout)
        return self.turns()[:count]

    def answer_of_tool(self, timeout: float = WAIT) -> Json:
        self._until(lambda: bool(self.tool_answers()), timeout)
        return self.tool_answers()[0]

    def call(self, tool: str, **arguments: Any) -> Json:
        try:
            return super().call(tool, **arguments)
        except IndexError:
            raise AssertionError([result.text for request in self.model.requests for result in request.results]) from None

    @abstractmethod
    def transcript(self) -> Path:
        """The records of its session."""

    @abstractmethod
    def _all_turns(self) -> list[Turn]: ...

    @abstractmethod
    def _found(self) -> str:
        """The session that has the first words, empty while none has."""

    @abstractmethod
    def _resuming(self, session: str) -> list[str]: ...

    def _patience(self) -> str:
        """A step that waits for the MCP servers, where a first turn does not."""
        return ""

    def _records(self) -> list[Json]:
        path = self.transcript()
        if not path.exists():
            return []
        data = path.read_bytes()
        if self._read.get(path, (-1, []))[0] != len(data):
            whole = data[: data.rfind(b"\n") + 1]
            self._read[path] = (len(data), [json.loads(line) for line in whole.splitlines()])
        return self._read[path][1]

    def _until(self, happened: Callable[[], bool], timeout: float = WAIT) -> None:
        try:
            until(happened, bool, timeout)
        except TimeoutError as error:
            turns = "\n".join(map(str, self.turns()))
            raise TimeoutError(f"{self.agent} {self.version} had:\n{turns}\nand drew:\n{self.terminal.drawn[-3000:]}") from error

    def _tool_answers(self) -> Iterator[str]:
        """Every answer of the bridge to a terminal of this kind: of two of one kind, one alone calls."""
        for request in self.model.requests:
            for result in request.results:
                at = result.text.find('{"ok"')
                if at < 0 and (at := result.text.find('{\\"ok\\"')) >= 0:
                    yield json.loads(f'"{result.text[at:].rpartition("}")[0]}}}"')
                elif at >= 0:
                    yield result.text[at:]

    # a terminal has no stream

    def _stream(self) -> Record[Json]:
        raise NotImplementedError

    def _ends(self, message: Json) -> bool:
        raise NotImplementedError

    def _with_first_words(self, paths: Iterator[Path]) -> Path | None:
        return next((path for path in paths if self._first in path.read_text(encoding="utf-8")), None)


class ClaudeTerminal(TerminalParty):
    agent = "claude"
    usual = ("--permission-mode", "default")  # by itself 2.1.332 has each action judged by its maker, where it can be reached

    @property
    def session(self) -> str:
        """By the live registry; the last one when it has ended."""
        entry = self.entry()
        if entry is not None:
            self._session = str(entry["sessionId"])
        return self._session

    def entry(self) -> Json | None:
        """Of the live registry."""
        path = cast("ClaudeHome", self.home).config / "sessions" / f"{self.terminal.pid}.json"
        try:
            entry: Json = json.loads(path.read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError):
            return None  # written at this moment
        return entry

    def approve(self) -> None:
        self.terminal.press("\r")

    def wait_approval(self) -> str:
        self._until(lambda: (self.entry() or {}).get("status") == "waiting")
        return str((self.entry() or {}).get("waitingFor"))

    def command(self, line: str) -> str:
        return f"tool Bash {json.dumps({'command': line, 'description': 'the test wants it'})}"

    def risky(self, line: str) -> str:
        return self.command(line)  # the home decides

    def transcript(self) -> Path:
        return self._of(self.session)

    def _of(self, session: str) -> Path:
        projects = cast("ClaudeHome", self.home).config / "projects"
        return next(projects.glob(f"*/{session}.jsonl"), projects / session)

    def _all_turns(self) -> list[Turn]:
        return turns_on_disk.claude(self._records())

    def _found(self) -> str:
        return self.session

    def _resuming(self, session: str) -> list[str]:
        return ["--resume", session]

    def _patience(self) -> str:
        return "tool WaitForMcpServers {} ;; " if self.version == CLAUDE_VERSIONS[-1] else ""


class CodexTerminal(TerminalParty):
    agent = "codex"

    def approve(self) -> None:
        self.terminal.press("y")

    def wait_approval(self) -> str:
        self.terminal.shows("Would you like to run")
        return "exec_command"

    def command(self, line: str) -> str:
        return f"tool exec_command {json.dumps({'cmd': line, 'yield_time_ms': 30_000})}"

    def risky(self, line: str) -> str:
        why = {"sandbox_permissions": "require_escalated", "justification": "the test wants it"}
        return f"tool exec_command {json.dumps({'cmd': line, 'yield_time_ms': 30_000, **why})}"

    def transcript(self) -> Path:
        rollouts = cast("CodexHome", self.home).config / "sessions"
        return next(rollouts.glob(f"*/*/*/*{self.session}.jsonl"), rollouts / self.session)

    def _all_turns(self) -> list[Turn]:
        return turns_on_disk.codex(self._records())

    def _found(self) -> str:
        path = self._with_first_words((cast("CodexHome", self.home).config / "sessions").glob("*/*/*/*.jsonl"))
        return path.stem[-36:] if path is not None else ""

    def _resuming(self, session: str) -> list[str]:
        return ["resume", session]


class GrokTerminal(TerminalParty):
    agent = "grok"

    def start(self, command: list[str], environment: dict[str, str], words: str, resume: str) -> None:
        """Its first turn does not wait for the MCP servers."""
        super().start(command, environment, words, resume)
        self._until(lambda: '"mcp_init_completed"' in self._events())

    def sees(self, *words: str) -> None:
        """It draws the whole screen, but what looks as before."""
        at = len(self.terminal.drawn)
        self.terminal.redraws()
        for part in words:
            at = self.terminal.shows(part, after=at)

    def approve(self) -> None:
        self.terminal.press("\r")

    def wait_approval(self) -> str:
        self._until(lambda: '"permission_requested"' in self._events())
        return "run_terminal_command"

    def _events(self) -> str:
        path = self.transcript().with_name("events.jsonl")
        return path.read_text(encoding="utf-8") if path.exists() else ""

    def command(self, line: str) -> str:
        return f"tool run_terminal_command {json.dumps({'command': line, 'description': 'the test wants it'})}"

    def risky(self, line: str) -> str:
        return self.command(line)  # the home decides

    def transcript(self) -> Path:
        return cast("GrokHome", self.home).session_directory(self.session) / "updates.jsonl"

    def _all_turns(self) -> list[Turn]:
        return turns_on_disk.grok(self._records())

    def _found(self) -> str:
        path = self._with_first_words((cast("GrokHome", self.home).config / "sessions").glob("*/*/updates.jsonl"))
        return path.parent.name if path is not None else ""

    def _resuming(self, session: str) -> list[str]:
        return ["--resume", session]


_PARTIES: Final[dict[str, type[TerminalParty]]] = {"claude": ClaudeTerminal, "codex": CodexTerminal, "grok": GrokTerminal}
