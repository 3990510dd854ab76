"""Codex without a terminal: the description of its command line against the real agent and the stub, one story for both.

Whatever the tests against stubs prove of headless turns holds for the real agent as far as this holds.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import pytest

from shims.agent import Found
from shims.codex import live, sessions
from shims.codex.agent import AGENT
from shims.codex.resume import HEADLESS
from shims.codex.stub.options import Options
from shims.codex.stub.submissions import Submissions
from shims.headless import Order, Said
from tests.real.binaries import CODEX_VERSIONS, binary
from tests.real.gates import Gate
from tests.real.homes import CodexHome
from tests.real.models import OpenAIModel
from tests.unit.test_stub_codex import STUB

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

NEWEST: Final = CODEX_VERSIONS[0]
SLOW: Final = 60.0
SERVER: Final = [sys.executable, str(Path(__file__).with_name("small_mcp.py"))]
STRANGER: Final = "5f1b9d1e-0000-4000-8000-00000000000f"
SECRET: Final = "a secret that no model may see"
ESCALATED: Final = 'tool exec_command {"cmd":"true","sandbox_permissions":"require_escalated","justification":"j"}'

pytestmark = pytest.mark.requirement("EN-14", "MC-25")


class Done(NamedTuple):
    """A turn whose process is gone."""

    said: Said
    status: int
    errors: str


class Running:
    """A turn that runs."""

    def __init__(self, process: subprocess.Popen[bytes], expected: str) -> None:
        self._process = process
        self._expected = expected

    def end(self, number: int = 0) -> Done:
        if number:
            os.killpg(self._process.pid, number)
        output, errors = self._process.communicate(timeout=SLOW)
        read = HEADLESS.output(self._expected)
        for line in output.split(b"\n"):
            read.feed(line)
        told = errors.decode()
        return Done(read.closed(self._process.returncode, told), self._process.returncode, told)


class Agent:
    """One of both, in a home of its own."""

    def __init__(self, name: str, path: Path, mcp: Sequence[str] | None = None) -> None:
        kind, _, version = name.partition("-")
        self.model = OpenAIModel()
        self.home = CodexHome(path, self.model.url, mcp, {}, {"STUB_CODEX_VERSION": version}, approve_tools=False)
        self.store = str(self.home.config)
        self._common = ""
        self.real = kind == "codex"
        self.version = version
        self.command = [str(binary(name))] if self.real else [sys.executable, "-I", "-S", str(STUB)]

    def start(self, text: str, session: str = "", *, mode: str = "", cwd: Path | None = None) -> Running:
        prompt = self.home.path / "prompt"
        prompt.write_bytes(HEADLESS.input(text, "key"))
        where = cwd or self.home.cwd
        order = Order(session, "", "key", str(prompt), str(where), mode=mode)
        with prompt.open("rb") as stdin:
            process = subprocess.Popen(
                [*self.command, *HEADLESS.arguments(order)],
                stdin=stdin,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd=where,
                env=self.home.environment(),
                start_new_session=True,
            )
        return Running(process, session)

    def turn(self, text: str, session: str = "", *, mode: str = "", cwd: Path | None = None) -> Done:
        return self.start(text, session, mode=mode, cwd=cwd).end()

    def new(self) -> str:
        return self.turn("hello [[say hello]]").said.session

    @property
    def common(self) -> str:
        """A thread that any test may use that leaves it as it is; each start of the real agent takes its time."""
        self._common = self._common or self.new()
        return self._common

    def newest(self, session: str) -> str:
        assert HEADLESS.newest is not None
        found = HEADLESS.newest(self.store, session)
        assert found is not None
        return found

    def found(self, session: str) -> Found:
        return AGENT.record(self.store, session, self.newest(session)).found

    def hindered(self, session: str) -> str:
        hindrance = HEADLESS.hindrance(self.store, session)
        return hindrance.code if hindrance is not None else ""

    def close(self) -> None:
        self.model.close()


def either(kind: str, *versions: str) -> list[object]:
    plain = versions[0]
    return [f"{kind}-{v}" if v == plain else pytest.param(f"{kind}-{v}", marks=pytest.mark.full) for v in versions]


BOTH: Final = [*either("codex", *CODEX_VERSIONS), *either("stub", *CODEX_VERSIONS)]


@pytest.fixture(scope="module", params=BOTH)
def agent(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    made = Agent(request.param, tmp_path_factory.mktemp("headless"))
    yield made
    made.close()


def test_a_new_conversation_goes_on(agent: Agent) -> None:
    first = agent.turn("remember blue [[say hello]]")
    assert first.said == Said(first.said.session, begun=True, ended=True, text="hello")
    before = agent.newest(first.said.session)
    assert agent.hindered(first.said.session) == ""
    second = agent.turn("what was it [[say blue]]", first.said.session)
    assert second == Done(first.said._replace(text="blue"), 0, second.errors)
    assert agent.newest(first.said.session) not in ("", before)
    assert agent.found(first.said.session) is Found.ANSWERED
    assert HEADLESS.transcript(agent.store, first.said.session) == sessions.find(agent.store, first.said.session)
    if agent.real:
        assert "remember blue" in str(agent.model.requests[-1].body)


@pytest.mark.requirement("EN-17")
def test_a_sandbox_is_kept_that_the_agent_would_forget(agent: Agent) -> None:
    session = agent.new()  # the home's configuration says workspace-write
    assert HEADLESS.resumed_mode(agent.store, session) == sessions.sandbox(agent.store, session) == "read-only"
    agent.turn("on [[say on]]", session, mode=HEADLESS.resumed_mode(agent.store, session))
    assert sessions.sandbox(agent.store, session) == "read-only"
    agent.turn("on [[say on]]", session)
    assert sessions.sandbox(agent.store, session) == "workspace-write"


@pytest.mark.requirement("DE-14", "EN-24")
def test_text_is_text(agent: Agent, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text(SECRET)
    session = agent.common
    for begin in ("- dash", "/compact", f"@{secret} look", "-c x=y " * 40_000):
        assert agent.turn(f"{begin} [[say read]]", session).said.text == "read"
        if agent.real:
            assert agent.model.requests[-1].texts[-1] == f"{begin} [[say read]]"
    assert SECRET not in str([request.body for request in agent.model.requests])
    assert all(SECRET.encode() not in path.read_bytes() for path in agent.home.config.rglob("*.jsonl"))


@pytest.mark.requirement("EN-15")
@pytest.mark.parametrize("name", BOTH)
def test_calls_that_nobody_was_asked_about_are_named(name: str, tmp_path: Path) -> None:
    agent = Agent(name, tmp_path / "home", SERVER)
    try:
        done = agent.turn(f'[[tool mcp__cross-agent__echo {{"text":"x"}} ;; {ESCALATED} ;; say without]]')
        assert (done.said.text, done.said.denied) == ("without", ("mcp__cross-agent__echo", "exec_command"))
    finally:
        agent.close()


def test_the_model_fails(agent: Agent) -> None:
    session = agent.common
    done = agent.turn("[[fail no such luck]]", session)
    assert (done.said.code, done.said.ended, done.said.begun, done.said.text, done.status) == ("turn_failed", True, True, "", 1)
    assert "no such luck" in done.said.reason
    assert not done.said.untouched
    assert agent.found(session) is Found.INTERRUPTED
    assert agent.turn("again [[say well]]", session).said.text == "well"


def test_an_unknown_session_is_refused_by_both_of_us(agent: Agent) -> None:
    assert agent.hindered(STRANGER) == "unknown_session"
    done = agent.turn("lost [[say lost]]", STRANGER)
    assert (done.said.code, done.said.untouched, done.said.text, done.status) == ("unknown_session", True, "", 1)


def test_a_name_is_no_session_and_its_answer_is_none(agent: Agent) -> None:
    assert agent.hindered("no-such-name") == "unknown_session"
    done = agent.turn("lost [[say lost]]", "no-such-name")
    assert (done.said.code, done.said.untouched, done.said.text, done.status) == ("wrong_session", False, "", 0)


def test_a_session_that_is_held(agent: Agent, tmp_path: Path) -> None:
    session, gate = agent.common, Gate(tmp_path)
    holding = agent.start(f"[[slow {gate} held]]", session)
    gate.reached()
    assert live.holders(agent.store, session)
    before = agent.newest(session)
    done = agent.turn("beside it [[say beside]]", session)
    assert (done.said.code, done.said.untouched, done.said.text) == ("session_held", True, "")
    assert agent.newest(session) == before
    gate.release()
    assert holding.end().said.text == "held"


def test_an_archived_session(agent: Agent) -> None:
    session = agent.new()
    path = Path(HEADLESS.transcript(agent.store, session))
    if agent.real:
        archive = [*agent.command, "archive", session]
        subprocess.run(archive, env=agent.home.environment(), stdin=subprocess.DEVNULL, capture_output=True, check=True)
    else:
        away = agent.home.config / "archived_sessions"
        away.mkdir(exist_ok=True)
        path.rename(away / path.name)
    assert agent.hindered(session) == "session_archived"
    done = agent.turn("hello [[say hello]]", session)
    assert (done.said.code, done.said.untouched, done.said.text) == ("session_archived", True, "")
    assert "codex unarchive" in done.said.reason


@pytest.mark.requirement("DE-22")
@pytest.mark.parametrize(
    ("number", "code", "found"),
    [(HEADLESS.interrupt, "turn_cancelled", Found.INTERRUPTED), (signal.SIGKILL, "turn_failed", Found.OPEN)],
)
def test_a_turn_that_is_stopped(agent: Agent, tmp_path: Path, number: int, code: str, found: Found) -> None:
    session, gate = agent.common, Gate(tmp_path)
    before = agent.newest(session)
    running = agent.start(f"[[slow {gate} never said]]", session)
    gate.reached()
    done = running.end(number)
    assert (done.said.code, done.said.begun, done.said.ended, done.said.text) == (code, True, False, "")
    assert not done.said.untouched
    assert done.status == (1 if number == signal.SIGINT else -number)
    assert agent.newest(session) != before
    assert agent.found(session) is found
    assert not live.holders(agent.store, session)
    assert agent.turn("again [[say well]]", session).said.text == "well"


def test_a_text_that_is_too_long_never_gets_in(agent: Agent) -> None:
    session = agent.common
    before = agent.newest(session)
    done = agent.turn("x" * 1_100_000, session)
    assert (done.said.code, done.said.untouched, done.said.begun) == ("turn_failed", True, False)
    assert "exceeds the maximum length" in done.said.reason
    assert agent.newest(session) == before


def test_a_directory_that_nobody_trusts(agent: Agent, tmp_path: Path) -> None:
    assert agent.turn("hello [[say hello]]", cwd=tmp_path).said.text == "hello"


def test_what_waits_in_the_queue_forbids_it(agent: Agent) -> None:
    """Else the text would go into the turn of what waits."""
    if agent.version == "0.147.0":
        pytest.skip("has no queue")
    session = agent.new()
    if agent.real:
        queue = [*agent.command, "queue", "--thread", session, "--message", "[[say from the queue]]"]
        environment = agent.home.environment()
        subprocess.run(queue, env=environment, cwd=agent.home.cwd, stdin=subprocess.DEVNULL, capture_output=True, check=True)
    else:
        content = [{"type": "text", "text": "[[say from the queue]]"}]
        Submissions(Options(agent.home.environment()), session).add("somebody", content)
    assert agent.hindered(session) == "queue_not_empty"
    turns = agent.newest(session)
    agent.turn("mine [[say mine]]", session)
    path = HEADLESS.transcript(agent.store, session)
    begun = Path(path).read_text().partition(turns)[2].count('"task_started"')
    assert begun == 1  # of two messages


def test_nobody_is_logged_in(tmp_path: Path) -> None:
    agent = Agent(f"codex-{NEWEST}", tmp_path / "home")
    try:
        configuration = agent.home.config / "config.toml"
        text = configuration.read_text().replace('wire_api = "responses"', 'wire_api = "responses"\nenv_key = "NO_SUCH_KEY"')
        configuration.write_text(text)
        done = agent.turn("hello [[say hello]]")
        assert (done.said.code, done.said.ended, done.status) == ("not_logged_in", True, 1)
        assert "NO_SUCH_KEY" in done.said.reason
        assert "codex login" in done.said.reason
    finally:
        agent.close()
