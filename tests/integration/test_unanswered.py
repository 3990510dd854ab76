"""A hello that nobody answers is said again, on a new connection; and no connection that is given up costs anything.

What a client sees of a broker's listener that is full, that loses what it took, that hangs and resumes, is played here by
plain sockets where the real one can't be brought there.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest
import zmq

from broker import client as client_module
from broker.client import Client
from broker.connection import Connection
from broker.paths import Home
from broker.processes import identify, open_death_watch
from broker.rendezvous import BrokerRecord, publish_record
from broker.wire import PROTOCOL, Ask, Inject, Message, Register, SessionState, StageName, StageReport, Welcome, decode, encode
from tests.integration.exchanges import exchange, open_both
from tests.integration.lines import PATIENCE
from tests.integration.scripted_shim import ScriptedShim
from tests.integration.world import World

pytestmark = pytest.mark.requirement("SH-08", "SH-21", "MC-31", "DE-22")

M = TypeVar("M", Welcome, Ask, Inject)

FIRST, LAST = 0.1, 0.4
"""Seconds that a client of these tests gives its broker."""


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """For clients in this process; those that a world starts have their real patience."""
    monkeypatch.setattr(client_module, "_ANSWER_WITHIN", FIRST)
    monkeypatch.setattr(client_module, "_ANSWER_AT_LAST", LAST)


# what a client does


class Caller:
    """A client in a thread of its own, and what it has seen."""

    def __init__(self, home: Home) -> None:
        self.hellos = 0
        self.heard: list[Message] = []
        self.notes: list[str] = []
        self._news = threading.Condition()
        self._client = Client(
            home, hello=self._hello, received=self._received, woken=lambda: None, autostart=False, note=self.notes.append
        )
        self.thread = threading.Thread(target=self._client.run, daemon=True)
        self.thread.start()

    def until(self, holds: Callable[[], bool]) -> None:
        with self._news:
            assert self._news.wait_for(holds, PATIENCE), (self.hellos, self.heard)

    def close(self) -> None:
        self._client.stop()
        self.thread.join(PATIENCE)
        assert not self.thread.is_alive()

    def _hello(self) -> Register:
        with self._news:
            self.hellos += 1
            self._news.notify_all()
        return Register("codex", "test", "/", "app-server", "/bin/false", os.getpid(), (), False, (), ())

    def _received(self, message: Message) -> None:
        with self._news:
            self.heard.append(message)
            self._news.notify_all()


class Played:
    """A broker that the test plays, as far as it gets: a listener without ZeroMQ behind it first, a real socket later."""

    def __init__(self, home: Home) -> None:
        me = identify(os.getpid())
        assert me is not None
        self._path = os.path.join(home.run, "b7.sock")
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.record = BrokerRecord(f"ipc://{self._path}", f"ipc://{self._path}.e", me.pid, me.start, 7, PROTOCOL, "test")
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.settimeout(PATIENCE)
        self.listener.bind(self._path)
        self._fillers: list[socket.socket] = []

    def fill(self) -> None:
        """Until no further connection finds room."""
        self.listener.listen(0)
        try:
            while True:
                filler = socket.socket(socket.AF_UNIX)
                self._fillers.append(filler)
                filler.setblocking(False)
                filler.connect(self._path)
        except BlockingIOError:
            pass

    def recover(self) -> zmq.Socket[bytes]:
        """From now on there is a broker's socket at the place."""
        router = self._context.socket(zmq.ROUTER)
        router.setsockopt(zmq.RCVTIMEO, int(PATIENCE * 1000))
        router.bind(self.record.endpoint)
        return router

    def close(self) -> None:
        for each in (self.listener, *self._fillers):
            each.close()
        self._context.destroy(0)


@pytest.fixture
def place(home: Path) -> Home:
    place = Home(str(home))
    place.prepare()
    return place


@pytest.fixture
def played(place: Home) -> Iterator[Played]:
    built = Played(place)
    yield built
    built.close()


@pytest.fixture
def call(place: Home, played: Played) -> Iterator[Callable[[], Caller]]:
    callers: list[Caller] = []

    def begin() -> Caller:
        publish_record(place, played.record)
        callers.append(Caller(place))
        return callers[-1]

    yield begin
    for caller in callers:
        caller.close()


def welcome(router: zmq.Socket[bytes], caller: Caller) -> None:
    identity, hello = router.recv_multipart()
    assert isinstance(decode(hello), Register)
    router.send_multipart((identity, encode(Welcome(7, "test"))))
    caller.until(lambda: caller.heard == [Welcome(7, "test")])


def test_a_client_that_found_no_room_tries_again(played: Played, call: Callable[[], Caller]) -> None:
    played.fill()
    caller = call()
    caller.until(lambda: caller.hellos >= 2)
    welcome(played.recover(), caller)


def test_a_client_whose_connection_was_lost_before_its_hello_tries_again(played: Played, call: Callable[[], Caller]) -> None:
    played.listener.listen(8)
    caller = call()
    played.listener.accept()[0].close()
    played.listener.accept()[0].close()
    welcome(played.recover(), caller)


def test_a_client_tries_ever_later_and_says_so_once(played: Played, call: Callable[[], Caller]) -> None:
    """Nothing spins, however long a broker hangs."""
    played.listener.listen(8)
    caller = call()
    moments = []
    kept = []
    for _ in range(6):
        kept.append(played.listener.accept()[0])
        moments.append(time.monotonic())
    for connection in kept:
        connection.close()
    # A connection may be seen late, and then the next one seems to come early; the ends of a stretch tell all the same.
    assert moments[5] - moments[0] > 0.9 * (FIRST + 2 * FIRST + 3 * LAST)
    assert caller.hellos <= 8
    assert len(caller.notes) == 1
    assert "has not answered" in caller.notes[0]


def test_a_client_that_is_answered_sleeps(played: Played, call: Callable[[], Caller]) -> None:
    played.fill()
    caller = call()
    caller.until(lambda: caller.hellos >= 3)
    welcome(played.recover(), caller)
    select.select([], [], [], FIRST)  # it falls asleep
    hellos, before = caller.hellos, wakeups(caller.thread)
    select.select([], [], [], 3 * LAST)  # the measured thing itself
    assert wakeups(caller.thread) == before
    assert caller.hellos == hellos


def wakeups(thread: threading.Thread) -> int:
    status = Path(f"/proc/self/task/{thread.native_id}/status").read_text()
    return sum(int(line.split()[1]) for line in status.splitlines() if "ctxt_switches" in line)


# what becomes of a broker's sessions


@pytest.fixture
def world(home: Path) -> Iterator[World]:
    built = World(home)
    try:
        yield built
    finally:
        built.close()


class Held(ScriptedShim):
    """The broker stops between its connection and its hello, so that the hello waits there for as long as it is stopped."""

    stops: int = 0
    hellos = 0

    def _hello(self) -> Register:
        self.hellos += 1
        connection = self._client._connection
        if self.hellos == 1 and connection is not None:
            assert connection.socket.poll(int(PATIENCE * 1000), zmq.POLLOUT)
            os.kill(self.stops, signal.SIGSTOP)
        hello = super()._hello()
        with self._news:
            self._news.notify_all()
        return hello

    def wait_hellos(self, count: int) -> None:
        with self._news:
            assert self._news.wait_for(lambda: self.hellos >= count, PATIENCE)


def hosts(world: World, session: str) -> int:
    """How many panels have the session, as the broker sees it."""
    return sum(state["id"] == session for panel in world.ask("overview")["ide_panels"] for state in panel["sessions"])


def test_a_broker_that_resumes_heeds_the_latest_connection(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It finds the first hello, connections that were given up before it took them, and the one that counts."""
    sender = world.claude()
    sender.registered()
    broker = world.broker()
    monkeypatch.setattr(Held, "stops", broker.pid)
    steps = [(StageName.WRITTEN, {}), (StageName.TAKEN, {}), (StageName.FINISHED, {"status": "completed", "text": "pong"})]
    shim = Held(world.home, tmp_path, SessionState("thread-1", opened=1.0), lambda *_: steps)
    try:
        shim.wait_hellos(4)
        os.kill(broker.pid, signal.SIGCONT)
        shim.wait_welcome()
        sender.send_to(shim, "M1")
        sender.wait_reply("pong")
        world.finished()
        assert hosts(world, "thread-1") == 1
        assert len(shim.orders) == 1
        assert world.broker() == broker
    finally:
        shim.close()


def test_what_went_out_on_a_connection_that_was_given_up_is_handed_over_again(world: World, line: Callable[[int], Line]) -> None:
    """The order was on its way when the client opened another connection: it is asked for, and goes out anew, once."""
    sender = world.claude()
    sender.registered()
    old = line(1)
    old.register()
    sender.send_to(Named("thread-1"), "M1")
    first = old.wait(Inject)
    new = line(2)
    new.register()
    ask = new.wait(Ask)
    assert ask.attempt == first.attempt
    new.send(StageReport(1, ask.attempt, StageName.NEVER))
    second = new.wait(Inject)
    assert (second.delivery, second.attempt != first.attempt) == (first.delivery, True)
    new.send(StageReport(2, second.attempt, StageName.FINISHED, status="completed", text="pong"))
    sender.wait_reply("pong")
    assert len(world.finished()) == 1
    assert hosts(world, "thread-1") == 1


@pytest.fixture
def line(world: World) -> Iterator[Callable[[int], Line]]:
    """Opens the n-th connection of one shim."""
    opened: list[Line] = []

    def begin(number: int) -> Line:
        opened.append(Line(world, number))
        return opened[-1]

    yield begin
    for each in opened:
        each.close()


class Named:
    agent = "codex"

    def __init__(self, session: str) -> None:
        self.session = session


class Line:
    """One connection of a shim with one session, message by message."""

    def __init__(self, world: World, number: int) -> None:
        record = world.broker()
        death = open_death_watch(record.process)
        assert death is not None
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._connection = Connection(self._context, record, death, b"the shim " + number.to_bytes(4, "big"))
        self._heard: list[Message] = []

    def register(self) -> None:
        state = SessionState("thread-1", opened=1.0)
        self.send(Register("codex", "test", "/", "app-server", "/bin/false", os.getpid(), (state,), False, (), (), "/nowhere"))
        self.wait(Welcome)

    def send(self, message: Message) -> None:
        self._connection.send(message)

    def wait(self, kind: type[M]) -> M:
        deadline = time.monotonic() + PATIENCE
        while True:
            for message in self._heard:
                if isinstance(message, kind):
                    self._heard.remove(message)
                    return message
            left = deadline - time.monotonic()
            assert left > 0, f"no {kind.__name__}"
            self._connection.socket.poll(int(left * 1000) + 1, self._connection.wanted)
            self._connection.flush()
            self._heard += self._connection.receive()

    def close(self) -> None:
        self._connection.close()
        self._context.destroy(0)


def test_shims_and_mcp_processes_come_through_a_broker_that_hangs(world: World) -> None:
    """With their real patience: both say hello twice at least, and each is there once."""
    sender, other = open_both(world, ("codex", "claude"))
    broker = world.broker()
    os.kill(broker.pid, signal.SIGSTOP)
    late = world.claude()
    client = world.mcp()
    client.shake_hands()
    number = client.post("tools/call", {"name": "bridge_status", "arguments": {}})
    world.until(lambda: "has not answered within 10 s" in world.log(), "a second hello")
    os.kill(broker.pid, signal.SIGCONT)
    assert client.answer(number)["result"]["structuredContent"]["ok"]
    late.registered()
    for from_whom, to_whom, marker in ((sender, late, "M1"), (late, other, "M2"), (other, sender, "M3")):
        exchange(world, from_whom, to_whom, marker)
    assert [hosts(world, panel.session) for panel in (sender, other, late)] == [1, 1, 1]
    facts = world.ask("status")
    assert (facts["panels"], facts["mcp_sessions"], facts["generation"]) == (3, 4, broker.generation)
