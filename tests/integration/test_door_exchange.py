"""Conversations through agents' doors over real sockets and processes: what arrives, and what is known when one fails."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.server import ServerConnection, unix_serve
from websockets.exceptions import ConnectionClosedError

from broker.doors import exchange
from broker.doors.exchange import DoorError, Hooks, converse
from broker.processes import ProcessId, identify
from shims.door import Opening, Outcome, Said, Way
from tests.integration.processes import gone_within

pytestmark = pytest.mark.requirement("LD-06")

PATIENCE = 10.0
ME = identify(os.getpid())
NOBODY = ProcessId(1, 1)
"""No process has this start time."""

TEXT = "words \u00e9 \U0001f600 \\n"


@dataclass
class Talking:
    """Greets, hands the words in when it was greeted back, and is done when something is said to that."""

    text: str = TEXT
    answered: bool = True
    heard_all: list[bytes] = field(default_factory=list)

    def begin(self) -> Said:
        return Said((b'"hello"',))

    def heard(self, message: bytes) -> Said:
        self.heard_all.append(message)
        told = json.loads(message)
        if told == "hello yourself":
            messages = (b'"first"', json.dumps(self.text).encode())
            return Said(messages, carries=True, outcome=Outcome.OPEN if self.answered else Outcome.SAID)
        return Said(outcome=Outcome.ACCEPTED, code=told) if told != "noise" else Said()


@dataclass
class Words:
    """All is said at once."""

    text: str = TEXT

    def begin(self) -> Said:
        return Said((b'"auth"', json.dumps(self.text).encode()), carries=True, outcome=Outcome.SAID)

    def heard(self, message: bytes) -> Said:
        raise AssertionError(message)


Answering = Callable[[str], "list[str] | None"]
"""What is answered to a message; None: the connection is closed."""


def kindly(told: str) -> list[str]:
    if told == "hello":
        return ["noise", "hello yourself"]
    return [] if told == "first" else ["thanks"]


class Agent:
    """The other end, in this process: what it was told."""

    def __init__(self, answering: Answering) -> None:
        self.answering = answering
        self.told: list[str] = []
        self.ended = asyncio.Event()

    async def by_lines(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            self.told.append(json.loads(line))
            answers = self.answering(self.told[-1])
            if answers is None:
                break
            writer.write(b"".join(json.dumps(answer).encode() + b"\n" for answer in answers))
        writer.close()
        self.ended.set()

    async def by_frames(self, connection: ServerConnection) -> None:
        with suppress(ConnectionClosedError):
            async for message in connection:
                self.told.append(json.loads(message))
                answers = self.answering(self.told[-1])
                if answers is None:
                    break
                for number, answer in enumerate(answers):
                    encoded = json.dumps(answer)
                    await connection.send(encoded if number % 2 else encoded.encode())
            await connection.close()
        self.ended.set()


@asynccontextmanager
async def listening(way: Way, path: Path, answering: Answering = kindly) -> AsyncIterator[tuple[Agent, Opening]]:
    agent = Agent(answering)
    opening = Opening(ME or NOBODY, way, socket=str(path / "s"), listener=ME)
    if way is Way.SOCKET:
        async with await asyncio.start_unix_server(agent.by_lines, opening.socket, limit=64 << 20):
            yield agent, opening
    else:
        async with unix_serve(agent.by_frames, opening.socket, max_size=64 << 20):
            yield agent, opening


PROGRAM = """
import json, os, sys
for line in sys.stdin:
    told = json.loads(line)
    with open("told", "a") as file:
        file.write(line)
    if told == "hello":
        print('"noise"', flush=True)
        print('"hello yourself"', flush=True)
    elif told == "die":
        os._exit(3)
    elif told != "first":
        print(json.dumps([sorted(os.environ.keys() - {"LC_CTYPE"}), os.getcwd(), os.getsid(0) == os.getpid()]), flush=True)
"""


def program(source: str = PROGRAM, *more: str) -> Opening:
    return Opening(NOBODY, Way.PROGRAM, argv=(sys.executable, "-c", source, *more))


def playing(story: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(story, 60))


async def failing(opening: Opening, talk: Any, cwd: str = "") -> DoorError:
    with pytest.raises(DoorError) as caught:
        await converse(opening, talk, dict(os.environ), cwd)
    assert caught.value.reason
    return caught.value


each_socket = pytest.mark.parametrize("way", [Way.SOCKET, Way.WEBSOCKET])


# a whole conversation


@each_socket
def test_a_conversation_to_its_end(home: Path, way: Way) -> None:
    async def story() -> None:
        async with listening(way, home) as (agent, opening):
            talk = Talking()
            said = await converse(opening, talk, {}, "")
            assert (said.outcome, said.code) == (Outcome.ACCEPTED, "thanks")
            assert agent.told == ["hello", "first", TEXT]
            assert [json.loads(heard) for heard in talk.heard_all] == ["noise", "hello yourself", "thanks"]
            await asyncio.wait_for(agent.ended.wait(), PATIENCE)

    playing(story())


@each_socket
def test_words_that_nobody_answers_arrive_whole_before_the_connection_ends(home: Path, way: Way) -> None:
    async def story() -> None:
        text = "words " * 1_000_000
        async with listening(way, home, lambda _: []) as (agent, opening):
            said = await converse(opening, Words(text), {}, "")
            assert said.outcome is Outcome.SAID
            await asyncio.wait_for(agent.ended.wait(), PATIENCE)
            assert agent.told == ["auth", text]

    playing(story())


@pytest.mark.requirement("LD-03", "LD-04", "EN-13")
def test_a_program_speaks_as_it_is_started(tmp_path: Path) -> None:
    """With the environment and the directory that are named, in a session of its own; it ends with the conversation."""

    async def story() -> None:
        talk = Talking()
        environment = {"PATH": os.environ["PATH"], "HOME": "/h"}
        marked = {**environment, **{name: os.environ[name] for name in os.environ if name.startswith("CROSS_AGENT_TEST")}}
        said = await converse(program(), talk, marked, str(tmp_path))
        assert said.outcome is Outcome.ACCEPTED
        assert json.loads(talk.heard_all[-1]) == [sorted(marked), str(tmp_path), True]
        assert [json.loads(line) for line in (tmp_path / "told").read_text().splitlines()] == ["hello", "first", TEXT]

    playing(story())


@each_socket
def test_around_the_words_the_hooks_are_called(home: Path, way: Way) -> None:
    """Around those alone: what else is said hands nothing in."""

    async def story() -> None:
        async with listening(way, home) as (agent, opening):
            seen: list[tuple[str, list[str]]] = []
            hooks = Hooks(lambda: seen.append(("before", list(agent.told))), lambda: seen.append(("after", [])))
            await converse(opening, Talking(), {}, "", hooks)
            assert [name for name, _ in seen] == ["before", "after"]
            assert TEXT not in seen[0][1], "nothing of it had left"
            assert "hello" in seen[0][1]

    playing(story())


# who is behind a socket

LISTENER = """
import socket, sys
server = socket.socket(socket.AF_UNIX)
server.bind(sys.argv[1])
server.listen()
print(flush=True)
connected, _ = server.accept()
sys.stdout.write(connected.makefile().read())
"""


@pytest.mark.requirement("LD-02", "LD-03")
def test_another_process_than_expected_is_told_nothing(home: Path) -> None:
    path = str(home / "s")
    with subprocess.Popen([sys.executable, "-c", LISTENER, path], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        error = asyncio.run(failing(Opening(NOBODY, Way.SOCKET, socket=path, listener=ME), Words()))
        assert (error.reason, error.carried) == ("the connection failed (PermissionError)", False)
        assert child.stdout.read() == b""


@pytest.mark.requirement("LD-02", "LD-03")
@pytest.mark.parametrize("named", [True, False], ids=["the right one", "whoever it is"])
def test_the_process_that_must_be_there_is_told(home: Path, named: bool) -> None:
    path = str(home / "s")
    with subprocess.Popen([sys.executable, "-c", LISTENER, path], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        opening = Opening(NOBODY, Way.SOCKET, socket=path, listener=identify(child.pid) if named else None)
        assert asyncio.run(converse(opening, Words(), {}, "")).outcome is Outcome.SAID
        assert [json.loads(line) for line in child.stdout] == ["auth", TEXT]


@pytest.mark.requirement("LD-03")
def test_a_websocket_of_another_process_is_told_nothing(home: Path) -> None:
    async def story() -> None:
        async with listening(Way.WEBSOCKET, home) as (agent, opening):
            error = await failing(replace(opening, listener=NOBODY), Talking())
            assert not error.carried
            assert agent.told == []

    playing(story())


@each_socket
@pytest.mark.parametrize("there", ["nothing", "a file", "nobody behind it", "too long a path"])
def test_where_nobody_listens_nothing_leaves(home: Path, way: Way, there: str) -> None:
    path = home / "s"
    if there == "a file":
        path.touch()
    elif there == "nobody behind it":
        made = socket.socket(socket.AF_UNIX)
        made.bind(str(path))
        made.close()
    elif there == "too long a path":
        path = home / ("x" * 200)
    error = asyncio.run(failing(Opening(NOBODY, way, socket=str(path)), Words()))
    assert not error.carried


@pytest.mark.parametrize(
    ("argv", "cwd"), [(("/no/such/program",), ""), ((sys.executable,), "/no/such/directory"), (("/tmp",), "")]
)
def test_a_program_that_cannot_be_started_is_told_nothing(argv: tuple[str, ...], cwd: str) -> None:
    error = asyncio.run(failing(Opening(NOBODY, Way.PROGRAM, argv=argv), Words(), cwd))
    assert not error.carried


# what is known when it fails


def silent(until: str) -> Answering:
    return lambda told: [] if told == until else kindly(told)


def breaking(at: str) -> Answering:
    return lambda told: None if told == at else kindly(told)


@each_socket
@pytest.mark.parametrize(("at", "carried"), [("hello", False), (TEXT, True)], ids=["before the words", "after the words"])
def test_silence_ends_it(home: Path, way: Way, monkeypatch: pytest.MonkeyPatch, at: str, *, carried: bool) -> None:
    monkeypatch.setattr(exchange, "PATIENCE", 0.5)

    async def story() -> None:
        async with listening(way, home, silent(at)) as (agent, opening):
            error = await failing(opening, Talking())
            assert (error.carried, TEXT in agent.told) == (carried, carried)
            assert "no answer" in error.reason
            await asyncio.wait_for(agent.ended.wait(), PATIENCE)

    playing(story())


@each_socket
@pytest.mark.parametrize(("at", "carried"), [("hello", False), (TEXT, True)], ids=["before the words", "after the words"])
def test_a_connection_that_breaks_tells_whether_the_words_had_left(home: Path, way: Way, at: str, *, carried: bool) -> None:
    async def story() -> None:
        async with listening(way, home, breaking(at)) as (agent, opening):
            error = await failing(opening, Talking())
            assert (error.carried, TEXT in agent.told) == (carried, carried)

    playing(story())


def test_a_connection_that_breaks_under_the_words_may_have_carried_them(home: Path) -> None:
    """Part of them has left: they are not handed in again."""

    async def story() -> None:
        async def hear(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readline()
            writer.transport.abort()

        path = str(home / "s")
        async with await asyncio.start_unix_server(hear, path, limit=1 << 10):
            error = await failing(Opening(NOBODY, Way.SOCKET, socket=path), Words("x" * (16 << 20)))
            assert error.carried

    playing(story())


@pytest.mark.parametrize("answer", [b"", b'"half a lin', b'"x' + b"x" * (1 << 20) + b'"\n'], ids=["nothing", "half", "too long"])
def test_an_answer_that_is_no_line_ends_it(home: Path, monkeypatch: pytest.MonkeyPatch, answer: bytes) -> None:
    monkeypatch.setattr(exchange, "_LONGEST", 1 << 16)

    async def story() -> None:
        async def hear(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readline()
            writer.write(answer)
            writer.close()

        path = str(home / "s")
        async with await asyncio.start_unix_server(hear, path):
            assert not (await failing(Opening(NOBODY, Way.SOCKET, socket=path), Talking())).carried

    playing(story())


@pytest.mark.requirement("LD-03")
@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 404 Not Found\r\n\r\n", b"\xff\xfe\n\n", b"x" * (1 << 20)])
def test_what_is_no_websocket_is_told_nothing(home: Path, answer: bytes) -> None:
    async def story() -> None:
        async def hear(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(answer)
            writer.close()

        path = str(home / "s")
        async with await asyncio.start_unix_server(hear, path):
            assert not (await failing(Opening(NOBODY, Way.WEBSOCKET, socket=path), Words())).carried

    playing(story())


@pytest.mark.requirement("LD-03", "LD-04")
@pytest.mark.parametrize("carried", [False, True])
def test_a_program_that_dies_tells_whether_the_words_had_left(tmp_path: Path, carried: bool) -> None:
    dies = PROGRAM if carried else PROGRAM.replace('"hello"', '"nothing"').replace('"die"', '"hello"')
    error = asyncio.run(failing(program(dies), Talking("die"), str(tmp_path)))
    assert error.carried is carried
    assert "failed" in error.reason


# programs that do not end


STAYS = """
import os, sys, time, signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
open("pid", "w").write(str(os.getpid()))
for line in sys.stdin:
    if "words" in line:
        print('"thanks"', flush=True)
    elif "hello" in line:
        print('"hello yourself"', flush=True)
time.sleep(600)
"""


@pytest.mark.requirement("LD-03", "LD-04")
def test_what_was_said_counts_however_long_the_program_takes_to_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A message that was refused would be taken for one that went in."""
    monkeypatch.setattr(exchange, "PATIENCE", 1.0)

    async def story() -> None:
        said = await converse(program(STAYS), Talking(), dict(os.environ), str(tmp_path))
        assert said.outcome is Outcome.ACCEPTED
        assert gone_within(int((tmp_path / "pid").read_text()), 0)

    playing(story())


LEAVES_A_CHILD = """
import os, subprocess, sys
child = subprocess.Popen(["sleep", "600"], start_new_session=True)
open("pid", "w").write(str(child.pid))
for line in sys.stdin:
    if "words" in line:
        print('"thanks"', flush=True)
    elif "hello" in line:
        print('"hello yourself"', flush=True)
"""


@pytest.mark.requirement("LD-03", "LD-04", "EN-26")
@pytest.mark.parametrize("answered", [True, False])
def test_a_program_that_stays_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, answered: bool) -> None:
    monkeypatch.setattr(exchange, "_END", 0.2)

    async def story() -> None:
        await converse(program(STAYS), Talking(answered=answered), dict(os.environ), str(tmp_path))
        assert gone_within(int((tmp_path / "pid").read_text()), 0)

    playing(story())


@pytest.mark.requirement("LD-03", "LD-04")
@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("stays", [False, True])
def test_what_a_program_leaves_behind_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, stays: bool) -> None:
    """A daemon of the agent's that it starts, with the same output: whether it ends is not ours to decide, and no descriptor
    of ours is kept for it."""
    monkeypatch.setattr(exchange, "_END", 0.2)

    async def story() -> None:
        begun, before = time.monotonic(), len(os.listdir("/proc/self/fd"))
        source = LEAVES_A_CHILD + ("import time; time.sleep(600)" if stays else "")
        said = await converse(program(source), Talking(), dict(os.environ), str(tmp_path))
        assert said.outcome is Outcome.ACCEPTED
        assert time.monotonic() - begun < 5
        assert len(os.listdir("/proc/self/fd")) <= before

    try:
        playing(story())
    finally:
        left = int((tmp_path / "pid").read_text())
        assert not gone_within(left, 0)
        os.kill(left, 9)
        assert gone_within(left, PATIENCE)


@pytest.mark.requirement("LD-03", "LD-04", "EN-26")
def test_a_conversation_that_nobody_wants_any_more_leaves_no_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "_END", 0.2)

    async def story() -> None:
        greeted = asyncio.Event()

        class Waiting(Talking):
            def heard(self, message: bytes) -> Said:
                greeted.set()
                return Said() if b"hello" in message else super().heard(message)

        held = asyncio.create_task(converse(program(STAYS), Waiting(), dict(os.environ), str(tmp_path)))
        await asyncio.wait_for(greeted.wait(), PATIENCE)
        held.cancel()
        with pytest.raises(asyncio.CancelledError):
            await held
        assert gone_within(int((tmp_path / "pid").read_text()), 0)

    playing(story())
