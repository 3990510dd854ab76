"""Turns of Grok Build on its command line, the stub's and the real one's: started, read and judged as `shims.grok.resume` does.

Each test holds for both; what it shows of the real agent is what its description says.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import uuid
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from shims.agent import Found, Record, agent
from shims.grok import live
from shims.headless import Order, Said
from tests.real.binaries import GROK_VERSIONS, binary
from tests.real.gates import Gate
from tests.real.homes import GrokHome
from tests.real.models import XaiModel
from tests.unit.test_stub_grok import STUB

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from shims.headless import Headless

GROK = agent("grok")
SERVER = [sys.executable, str(Path(__file__).with_name("small_mcp.py"))]
RISKY = '[[comment let me ;; tool run_terminal_command {"command": "rm -rf nothing", "description": "d"} ;; say did it]]'
ECHO = '[[tool mcp__cross-agent__echo {"text": "over there"} ;; say came back]]'
SECRET = "the secret word is rhododendron"
NO_WAY_OUT = dict.fromkeys(("HTTPS_PROXY", "https_proxy", "ALL_PROXY"), "http://127.0.0.1:9")
"""What is not found here is looked for elsewhere; nothing listens there."""
SLOW = 60.0
OLD = "1.0.5"

pytestmark = pytest.mark.requirement("EN-14")


def headless() -> Headless:
    assert GROK.headless is not None
    return GROK.headless


class Agent:
    """The stub or a real one, in a home of its own."""

    def __init__(self, name: str, directory: Path, model: XaiModel) -> None:
        self.name = name
        self.real = name != "stub"
        self.command = [str(binary(f"grok-{name}"))] if self.real else [sys.executable, "-I", "-S", str(STUB)]
        self.model = model
        self.home = GrokHome(directory / "h", model.url, SERVER, approve_tools=False)
        self.store = str(self.home.config)
        self.prompt = directory / "prompt"
        self.errors = ""

    @contextmanager
    def begun(self, text: str, session: str, variables: Mapping[str, str], **given: str) -> Iterator[subprocess.Popen[bytes]]:
        self.prompt.write_bytes(headless().input(text, "dlv_1"))
        order = Order(session, given.pop("new", ""), "dlv_1", str(self.prompt), str(self.home.cwd), **given)
        environment = {name: value for name, value in {**self.home.environment(), **variables}.items() if value}
        with subprocess.Popen(
            [*self.command, *headless().arguments(order)],
            env=environment,
            cwd=self.home.cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        ) as process:
            try:
                yield process
            finally:
                process.kill()

    def run(self, text: str, session: str = "", variables: Mapping[str, str] | None = None, **given: str) -> Said:
        with self.begun(text, session, variables or {}, **given) as process:
            lines, errors = process.communicate(timeout=SLOW)
        return self.said(lines, process.returncode, errors, session or given.get("new", ""))

    def said(self, lines: bytes, status: int, errors: bytes, session: str) -> Said:
        output = headless().output(session)
        for line in lines.splitlines():
            output.feed(line)
        self.errors = errors.decode()
        return output.closed(status, self.errors)

    def new(self) -> str:
        session = str(uuid.uuid4())
        assert self.run("hello [[say one two]]", new=session).text == "one two"
        return session

    def newest(self, session: str) -> str:
        newest = headless().newest
        assert newest is not None
        found = newest(self.store, session)
        assert found is not None
        return found

    def seen(self, session: str) -> str:
        """What its model was told, at last."""
        if self.real:
            return json.dumps([request.body["messages"] for request in self.model.requests if not request.side][-1])
        (path,) = self.home.config.glob(f"sessions/*/{session}/chat_history.jsonl")
        return path.read_text(encoding="utf-8")

    def ends(self, session: str) -> list[str]:
        """How its turns ended, as recorded."""
        path = Path(headless().transcript(self.store, session))
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []  # in its first turn 1.0.5 has none yet
        updates = [json.loads(line)["params"]["update"] for line in lines]
        return [update["stop_reason"] for update in updates if update["sessionUpdate"] == "turn_completed"]

    def configure(self, **changes: Any) -> None:
        for name, value in changes.items():
            setattr(self.home, name, value)
        self.home.write()


@pytest.fixture
def model() -> Iterator[XaiModel]:
    with XaiModel() as made:
        yield made


@pytest.fixture(params=["stub", *GROK_VERSIONS, pytest.param(OLD, marks=pytest.mark.full)])
def grok(request: pytest.FixtureRequest, tmp_path: Path, model: XaiModel) -> Agent:
    return Agent(request.param, tmp_path, model)


def test_a_conversation_goes_on(grok: Agent) -> None:
    """The model sees the turns before; the output names the turn, and the records have its answer under that name."""
    session = str(uuid.uuid4())
    assert headless().hindrance(grok.store, session)
    assert grok.newest(session) == ""
    first = grok.run("hello [[say one two]]", new=session)
    assert (first.text, first.session, first.code, first.begun) == ("one two", session, "", True)
    assert headless().hindrance(grok.store, session) is None
    long = "x" * 300_000
    for text in ("-x --help [[say second]]", f"long [[say third]]\n{long}.", "> /context [[say fourth]]"):
        said = grok.run(text, session)
        assert (said.text, said.session) == (text.partition("say ")[2].partition("]]")[0], session)
        assert grok.newest(session) == said.turn
        assert GROK.record(grok.store, session, said.turn) == Record(Found.ANSWERED, said.text, said.turn)
    seen = grok.seen(session)
    assert all(words in seen for words in ("one two", "-x --help", "[[say third]]", "/context [[say fourth]]"))
    # Of 100,000 bytes and more the model is shown beginning and end, and where the whole is (1.0.41).
    assert long in Path(headless().transcript(grok.store, session)).read_text(encoding="utf-8")
    own = grok.run("/context", session)  # which no message of a peer may begin as
    assert (own.ended, own.code, own.text) == (True, "turn_failed", "")


@pytest.mark.requirement("EN-15", "EN-17")
def test_what_needs_an_approval_ends_the_turn(grok: Agent) -> None:
    """A mode of ours holds for one turn, and counts more than the person's own, also where it is the stricter one."""
    session = str(uuid.uuid4())
    said = grok.run(RISKY, new=session)
    assert (said.code, said.denied, said.text, said.turn) == (
        "approval_needed",
        ("run_terminal_command",),
        "",
        grok.newest(session),
    )
    assert GROK.record(grok.store, session, said.turn).found is Found.INTERRUPTED
    assert grok.run(RISKY, session, mode="bypassPermissions").text == "did it"
    assert grok.run(ECHO, session).denied == ("cross-agent__echo",)
    grok.configure(shell="allow", approve_tools=True)
    assert grok.run(ECHO, session).text == "came back"
    assert grok.run(RISKY, session, mode="default").code == "approval_needed"


def test_the_model_fails(grok: Agent) -> None:
    session = str(uuid.uuid4())
    said = grok.run("[[fail not today]]", new=session)
    assert (said.code, said.begun, said.untouched, said.text) == ("turn_failed", True, False, "")
    assert "not today" in said.reason
    assert grok.ends(session) == ["error"]
    assert grok.run("again [[say yes]]", session).text == "yes"


@pytest.mark.requirement("DE-22")
def test_what_is_refused_left_no_trace(grok: Agent) -> None:
    session = grok.new()
    last = grok.newest(session)
    nobody = str(uuid.uuid4())
    for said, code in (
        (grok.run("x [[say y]]", nobody, NO_WAY_OUT), "unknown_session"),
        (grok.run("x [[say y]]", session, {"XAI_API_KEY": ""}), "not_logged_in"),
        (grok.run("x [[say y]]", session, model="no-such-model"), "turn_failed"),
        (grok.run("x [[say y]]", session, mode="no-such-mode"), "turn_failed"),
        (grok.run(" \n", session), "turn_failed"),
    ):
        assert (said.code, said.untouched, said.begun) == (code, True, False), (said, grok.errors)
    again = grok.run("x [[say y]]", new=session)
    assert (again.code, again.untouched) == ("turn_failed", False), "an earlier attempt may have had it"
    assert grok.newest(session) == last
    assert grok.newest(nobody) == ""


@pytest.mark.requirement("DE-14")
def test_no_file_is_read_for_a_peer(grok: Agent, tmp_path: Path) -> None:
    secret = tmp_path / "outside" / "secret.txt"
    secret.parent.mkdir()
    secret.write_text(SECRET, encoding="utf-8")
    session = str(uuid.uuid4())
    text, notes = GROK.disarm(f"@{secret} and @{secret} [[say looked]]")
    assert notes
    assert grok.run(text, new=session).text == "looked"
    assert "say looked" in grok.seen(session)
    assert SECRET not in grok.seen(session)
    grok.run(f"@{secret} [[say looked]]", session)
    assert SECRET in grok.seen(session), "the hazard is not real any more"


@pytest.mark.requirement("DE-22")
@pytest.mark.parametrize("number", [signal.SIGKILL, pytest.param(signal.SIGINT, marks=pytest.mark.full)])
def test_a_turn_that_is_killed(grok: Agent, tmp_path: Path, number: int) -> None:
    """It ends by the signal, says no end and records none; that the message got in is told by its id. The next one records it."""
    session, gate = str(uuid.uuid4()), Gate(tmp_path)
    with grok.begun(f"[[slow {gate} abcdef]]", "", {"GROK_TRACK_HEADLESS": "1"}, new=session) as process:
        gate.reached()
        assert grok.newest(session)
        if grok.real:  # the stub is no program of Grok's
            assert [holder.pid for holder in live.holders(grok.store, session)] == [process.pid]
        os.killpg(process.pid, number)
        lines, errors = process.communicate(timeout=SLOW)
    said = grok.said(lines, process.returncode, errors, session)
    assert process.returncode == -number
    assert (said.code, said.ended) == ("turn_cancelled" if number == signal.SIGINT else "turn_failed", False)
    assert not said.untouched
    assert GROK.record(grok.store, session, grok.newest(session)).found in (Found.UNKNOWN, Found.OPEN)
    assert live.holders(grok.store, session) == []
    assert grok.ends(session) == []
    assert grok.run("again [[say yes]]", session).text == "yes"
    assert grok.ends(session) == [*([] if grok.name == OLD else ["interrupted"]), "end_turn"]


@pytest.mark.requirement("DE-22")
def test_a_turn_that_nobody_listens_to_is_recorded(grok: Agent, tmp_path: Path) -> None:
    session, gate = str(uuid.uuid4()), Gate(tmp_path)
    with grok.begun(f"[[slow {gate} abcdef]]", "", {}, new=session) as process:
        gate.reached()
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        process.stderr.close()
        gate.release()
        process.wait(SLOW)
    assert GROK.record(grok.store, session, grok.newest(session)).text == "abcdef"


@pytest.mark.requirement("SE-08")
def test_the_words_of_a_sub_agent_are_no_part_of_the_answer(tmp_path: Path, model: XaiModel) -> None:
    """The lines do not tell whose they are; the records do."""
    grok = Agent(GROK_VERSIONS[0], tmp_path, model)
    grok.configure(shell="allow", approve_tools=True)
    session, gate = str(uuid.uuid4()), Gate(tmp_path)
    task = {"description": "help", "prompt": "your task [[say by the child]]", "subagent_type": "general-purpose"}
    text = f"[[tool spawn_subagent {json.dumps(task)} ;; slow {gate} delegated]]"
    lines = b""
    with grok.begun(text, "", {}, new=session) as process:
        assert process.stdout is not None
        gate.reached()
        while b"child" not in lines:
            lines += process.stdout.readline()
        gate.release()
        rest, errors = process.communicate(timeout=SLOW)
    said = grok.said(lines + rest, process.returncode, errors, session)
    assert said.code == ""
    assert "by the child" in said.text
    assert GROK.record(grok.store, session, said.turn) == Record(Found.ANSWERED, "delegated", said.turn)
