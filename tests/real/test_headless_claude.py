"""A turn on Claude Code's command line, as the bridge runs it: the real one and its stub do the same, and what is read of their
output agrees with their records.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import uuid
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, NamedTuple

import pytest

from broker.envelope import unframed
from shims.agent import Found
from shims.claude.agent import AGENT
from shims.claude.resume import HEADLESS
from shims.headless import Order, Said
from tests.real.binaries import CLAUDE_VERSIONS, binary
from tests.real.gates import Gate
from tests.real.homes import ClaudeHome
from tests.real.models import AnthropicModel
from tests.unit.test_stub_claude import STUB

if TYPE_CHECKING:
    from collections.abc import Iterator

SERVER: Final = [sys.executable, str(Path(__file__).with_name("small_mcp.py"))]
SLOW: Final = 60.0
"""Seconds that a turn may take: two real agents may start at once on a loaded machine."""
SECRET: Final = "what nobody was asked to read"
NEWEST: Final = CLAUDE_VERSIONS[0]

pytestmark = pytest.mark.requirement("EN-14", "MC-25")
newest = pytest.mark.parametrize(
    "name",
    [
        *(f"{kind}-{NEWEST}" for kind in ("stub", "real")),
        *(pytest.param(f"{kind}-{old}", marks=pytest.mark.full) for kind in ("stub", "real") for old in CLAUDE_VERSIONS[1:]),
    ],
)


class Ended(NamedTuple):
    """A turn that is over."""

    said: Said
    status: int
    key: str
    record: Found
    words: str


class Terminal:
    """Where turns are run; ``model`` is asked by the real one only."""

    def __init__(self, directory: Path, name: str, model: AnthropicModel) -> None:
        self.kind, _, self.version = name.partition("-")
        self.model = model
        self.home = ClaudeHome(directory / "home", model.url, approve_tools=False, git=False)
        self.store = str(self.home.config)
        stub = [sys.executable, "-I", "-S", str(STUB)]
        self._command = stub if self.kind == "stub" else [str(binary(f"claude-{self.version}"))]

    def launch(self, order: Order, stdin: IO[bytes] | int, **environment: str | None) -> subprocess.Popen[bytes]:
        variables = {**self.home.environment(), "STUB_CLAUDE_VERSION": self.version, **environment}
        return subprocess.Popen(
            [*self._command, *HEADLESS.arguments(order)],
            env={name: value for name, value in variables.items() if value is not None},
            cwd=self.home.cwd,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )

    def start(self, order: Order, text: str, **environment: str | None) -> subprocess.Popen[bytes]:
        process = self.launch(order, subprocess.PIPE, **environment)
        assert process.stdin is not None
        try:
            process.stdin.write(HEADLESS.input(text, order.key))
            process.stdin.close()
        except BrokenPipeError:
            pass  # it has refused already
        process.stdin = None
        return process

    def end(self, process: subprocess.Popen[bytes], order: Order) -> Ended:
        session = order.session or order.new
        try:
            output, errors = process.communicate(timeout=SLOW)
        finally:
            process.kill()
        reader = HEADLESS.output(session)
        for line in output.splitlines():
            reader.feed(line)
        said = reader.closed(process.returncode, errors.decode(errors="replace"))
        record = AGENT.record(self.store, session, order.key)
        return Ended(said, process.returncode, order.key, record.found, record.text)

    def run(self, text: str, session: str = "", **more: Any) -> Ended:
        """A turn of ``session``, or of a new one; ``more``: of the `Order` in lower case, of the environment in upper case."""
        new = "" if session else str(uuid.uuid4())
        key = more.pop("key", None) or AGENT.new_key("", "")
        fields = {name: more.pop(name) for name in list(more) if name.islower()}
        order = Order(session, new, key, "", str(self.home.cwd), **fields)
        return self.end(self.start(order, text, **more), order)

    def transcript(self, session: str) -> str:
        return Path(HEADLESS.transcript(self.store, session)).read_text(encoding="utf-8")

    def asked(self, at: int = 0) -> str:
        """All that the model has seen from its ``at``-th request on."""
        return "".join(str(request.body) for request in self.model.requests[at:])


@pytest.fixture
def terminal(tmp_path: Path, name: str) -> Iterator[Terminal]:
    with AnthropicModel() as model:
        yield Terminal(tmp_path, name, model)


def answered(turn: Ended, text: str) -> str:
    """The session of a turn that was answered, by its output and by its records."""
    assert turn.said == Said(turn.said.session, begun=True, ended=True, text=text)
    assert (turn.status, turn.record, turn.words) == (0, Found.ANSWERED, text)
    return turn.said.session


@newest
def test_a_conversation_begins_and_goes_on(terminal: Terminal) -> None:
    session = answered(terminal.run("hello [[say one]]"), "one")
    assert HEADLESS.hindrance(terminal.store, session) is None
    turn = terminal.run("and now [[say two]]", session)
    assert answered(turn, "two") == session
    assert terminal.kind == "stub" or all(words in str(terminal.model.requests[-1].body) for words in ("hello", "and now"))
    assert len(list(terminal.home.config.glob("projects/*/*.jsonl"))) == 1
    assert terminal.home.registry() == []

    again = terminal.run("and now [[say two]]", session, key=turn.key)  # it is swallowed: no answer, and no second turn
    assert (again.said.code, again.said.text, again.status) == ("nothing_ran", "", 0)
    assert (again.record, again.words) == (Found.ANSWERED, "two")
    assert terminal.transcript(session).count('"text":"two"') == 1


@pytest.mark.requirement("DE-14")
@newest
def test_no_text_is_a_command_or_reads_a_file(terminal: Terminal) -> None:
    outside = terminal.home.path / "secret.txt"
    outside.write_text(SECRET, encoding="utf-8")
    session = answered(terminal.run("-p --resume --help [[say no option]]"), "no option")
    text, _ = unframed(f"/context and @{outside}\n@{outside} [[say inert]]")
    text, changed = AGENT.disarm(text)
    assert changed
    answered(terminal.run(text, session), "inert")
    assert SECRET not in terminal.transcript(session) + terminal.asked()
    if terminal.version != NEWEST:  # there is something to be disarmed
        answered(terminal.run(f"@{outside} [[say read]]", session), "read")
        assert SECRET in terminal.transcript(session)


@newest
def test_a_long_text(terminal: Terminal) -> None:
    """An argument could not hold it."""
    text = "x" * 300_000 + " [[say all of it]]"
    session = answered(terminal.run(text), "all of it")
    assert text in terminal.transcript(session)
    assert terminal.kind == "stub" or text in terminal.asked()


@pytest.mark.requirement("EN-15", "EN-17")
@newest
def test_a_tool_that_needs_an_approval_is_denied(terminal: Terminal) -> None:
    terminal.home.mcp_command = SERVER
    terminal.home.write()
    echo = 'tool mcp__cross-agent__echo {"text": "over there"}'
    turn = terminal.run(f'[[tool Bash {{"command": "touch made"}} ;; {echo} ;; {echo} ;; say without them]]')
    assert (turn.said.text, turn.said.code, turn.status) == ("without them", "", 0)
    assert turn.said.denied == ("Bash", "mcp__cross-agent__echo")
    assert not (terminal.home.cwd / "made").exists()


@pytest.mark.requirement("EN-17")
@newest
def test_a_mode_is_for_one_turn(terminal: Terminal) -> None:
    session = answered(terminal.run("hello [[say one]]", mode="plan"), "one")
    assert HEADLESS.resumed_mode(terminal.store, session) == "plan"
    answered(terminal.run("and now [[say two]]", session), "two")
    written = [json.loads(line) for line in terminal.transcript(session).splitlines()]
    assert [record["permissionMode"] for record in written if record.get("promptSource")] == ["plan", "default"]
    assert HEADLESS.resumed_mode(terminal.store, session) == ""
    turn = terminal.run("hello [[say one]]", session, mode="whatever")
    assert (turn.said.code, turn.said.untouched, turn.status, turn.record) == ("turn_failed", True, 1, Found.ABSENT)
    assert "whatever" in turn.said.reason


@pytest.mark.parametrize("name", [f"{kind}-{version}" for kind in ("stub", "real") for version in CLAUDE_VERSIONS[1:]])
def test_a_file_as_input_is_nothing_to_the_old_one(terminal: Terminal, tmp_path: Path) -> None:
    """So the text comes through a pipe."""
    order = Order("", str(uuid.uuid4()), AGENT.new_key("", ""), "", str(terminal.home.cwd))
    prompt = tmp_path / "prompt"
    prompt.write_bytes(HEADLESS.input("hello [[say one]]", order.key))
    with prompt.open("rb") as stdin:
        turn = terminal.end(terminal.launch(order, stdin), order)
    assert (turn.said.code, turn.said.text, turn.status) == ("nothing_ran", "", 0)


@newest
def test_what_has_no_answer(terminal: Terminal) -> None:
    turn = terminal.run("[[fail not today]]")
    assert (turn.said.code, turn.said.text, turn.said.ended) == ("turn_failed", "", True)
    assert "not today" in turn.said.reason
    assert (turn.status, turn.record) == (1, Found.INTERRUPTED)
    session = turn.said.session

    turn = terminal.run("hello [[say one]]", session, ANTHROPIC_API_KEY=None, STUB_CLAUDE_LOGGED_OUT="1")
    assert (turn.said.code, turn.said.untouched) == ("not_logged_in", False)
    assert (turn.status, turn.record) == (1, Found.INTERRUPTED)

    unknown = str(uuid.uuid4())
    turn = terminal.run("hello [[say one]]", unknown)
    assert (turn.said.code, turn.said.untouched, turn.status) == ("unknown_session", True, 1)
    assert unknown in turn.said.reason
    hindrance = HEADLESS.hindrance(terminal.store, unknown)
    assert hindrance is not None and hindrance.code == "unknown_session"
    assert len(list(terminal.home.config.glob("projects/*/*.jsonl"))) == 1


SAID: Final = {
    signal.SIGINT: ("turn_cancelled", True),
    signal.SIGTERM: ("turn_failed", False),
    signal.SIGKILL: ("turn_failed", False),
}
RECORDED: Final = {
    "2.1.332": {signal.SIGINT: {Found.INTERRUPTED}, signal.SIGTERM: {Found.OPEN}, signal.SIGKILL: {Found.OPEN, Found.ABSENT}},
    "2.1.197": {
        signal.SIGINT: {Found.OPEN, Found.INTERRUPTED},
        signal.SIGTERM: {Found.OPEN},
        signal.SIGKILL: {Found.OPEN, Found.ABSENT},
    },
}
"""Where there are two it is a matter of moments: each writes its records a little later, and 2.1.197 not all of them."""


@pytest.mark.requirement("EN-16", "DE-22")
@newest
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL, pytest.param(signal.SIGTERM, marks=pytest.mark.full)])
def test_a_turn_that_is_ended_has_no_answer(terminal: Terminal, tmp_path: Path, number: signal.Signals) -> None:
    """A signal to its group, in the middle of an answer."""
    session = terminal.run("hello [[say one]]").said.session
    gate = Gate(tmp_path)
    order = Order(session, "", AGENT.new_key("", ""), "", str(terminal.home.cwd))
    process = terminal.start(order, f"go on [[slow {gate} aabb]]")
    gate.reached()
    os.killpg(process.pid, number)
    turn = terminal.end(process, order)
    assert (turn.said.code, turn.said.ended) == SAID[number]
    assert (turn.said.begun, turn.said.text, turn.said.untouched) == (True, "", False)
    assert turn.record in RECORDED[terminal.version][number]
    answered(terminal.run("still there? [[say yes]]", session), "yes")
