"""Of one client the latest connection counts, in whatever order a broker that stood still finds what was said meanwhile."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import zmq

from broker import client as client_module
from broker.client import Client
from broker.connection import is_later
from broker.paths import Home
from broker.peers import Peer, Peers
from broker.processes import identify
from broker.rendezvous import BrokerRecord, publish_record
from broker.wire import PROTOCOL, Message, Register, Reply, Request, SessionState, State, Welcome, encode

PATIENCE = 20.0


@pytest.mark.parametrize(
    ("identity", "other", "later"),
    [
        (b"client-01\0\0\0\2", b"client-01\0\0\0\1", True),
        (b"client-01\0\0\1\0", b"client-01\0\0\0\xff", True),
        (b"client-01\0\0\0\1", b"client-01\0\0\0\1", False),
        (b"client-01\0\0\0\1", b"client-01\0\0\0\2", False),
        (b"client-02\0\0\0\2", b"client-01\0\0\0\1", False),
        (b"\0\0\0\0\2", b"\0\0\0\0\1", False),  # names that the broker gave itself
    ],
)
def test_connections_of_one_client_are_told_apart(identity: bytes, other: bytes, later: bool) -> None:
    assert is_later(identity, other) == later


class Shim:
    """Says hello and its state on each connection, with the connection's number in both."""

    def __init__(self, home: Home) -> None:
        self.hellos = 0
        self.heard: list[Message] = []
        self._news = threading.Condition()
        self._client = Client(
            home, hello=self._hello, received=self._received, woken=self._woken, autostart=False, note=lambda _: None
        )
        self._thread = threading.Thread(target=self._client.run, daemon=True)
        self._thread.start()

    def wait_hellos(self, count: int) -> None:
        with self._news:
            assert self._news.wait_for(lambda: self.hellos >= count, PATIENCE)

    def welcomed(self) -> str:
        """Waits to be; the version that the broker was told in the hello which it answers."""
        with self._news:
            assert self._news.wait_for(lambda: bool(self.heard), PATIENCE)
            (answer,) = self.heard
            assert isinstance(answer, Welcome)
            return answer.version

    def close(self) -> None:
        self._client.stop()
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()

    def _hello(self) -> Register:
        with self._news:
            self.hellos += 1
            self._news.notify_all()
        return Register("codex", str(self.hellos), "/", "app-server", "/bin/false", os.getpid(), (), False, (), ())

    def _woken(self) -> None:
        self._client.send(State((SessionState(str(self.hellos)),)))

    def _received(self, message: Message) -> None:
        with self._news:
            self.heard.append(message)
            self._news.notify_all()


class Hall:
    """Peers as the broker has them: a registration supersedes the earlier ones of its process."""

    def __init__(self, endpoint: str) -> None:
        self.heard: list[tuple[Peer, Message]] = []
        self.gone: list[Peer] = []
        self.news = asyncio.Event()
        self.peers = Peers(endpoint, 1, received=self._received, gone=self.gone.append)

    def registered(self) -> list[Peer]:
        return [peer for peer in self.peers.all() if peer.role == "shim"]

    def _received(self, peer: Peer, message: Message) -> None:
        self.heard.append((peer, message))
        if isinstance(message, Register):
            self.peers.supersede(peer, "shim")
            self.peers.send(peer, Welcome(1, message.version))
        elif isinstance(message, Request):
            self.peers.send(peer, Reply(message.key, {}))
        self.news.set()


@contextmanager
def other_clients(endpoint: str, count: int) -> Iterator[list[zmq.Socket[bytes]]]:
    """Connections that have nothing to do with it: libzmq reads connections in turn, from wherever it stands."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    sockets = [context.socket(zmq.DEALER) for _ in range(count)]
    try:
        for each in sockets:
            each.connect(endpoint)
            each.send(encode(Request("k", "status", {})))
        yield sockets
    finally:
        context.destroy(0)


@pytest.mark.requirement("EN-05", "SH-21")
@pytest.mark.parametrize("others", range(5))
def test_a_loop_that_stood_still_heeds_the_latest_connection(home: Path, others: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "_ANSWER_WITHIN", 0.2)
    monkeypatch.setattr(client_module, "_ANSWER_AT_LAST", 0.2)
    place = Home(str(home))
    place.prepare()
    asyncio.run(_stand_still(place, others))


async def _stand_still(place: Home, others: int) -> None:
    me = identify(os.getpid())
    assert me is not None
    endpoint = place.endpoint(1)
    hall = Hall(endpoint)
    with other_clients(endpoint, others):
        while len(hall.peers) < others:
            hall.news.clear()
            await asyncio.wait_for(hall.news.wait(), PATIENCE)
        publish_record(place, BrokerRecord(endpoint, endpoint, me.pid, me.start, 1, PROTOCOL, "test"))
        shim = Shim(place)
        try:
            shim.wait_hellos(4)  # nothing runs in the loop: ZeroMQ alone takes connections and what is said on them
            answered = await asyncio.get_running_loop().run_in_executor(None, shim.welcomed)
            (latest,) = hall.registered()
            assert [m.version for p, m in hall.heard if p is latest and isinstance(m, Register)] == [answered]
            assert int(answered) == shim.hellos >= 4
            _assert_nothing_old_was_heard(hall)
            assert len(hall.peers) == others + 1
        finally:
            shim.close()
            hall.peers.close("over")


def _assert_nothing_old_was_heard(hall: Hall) -> None:
    said = [
        int(m.version if isinstance(m, Register) else m.sessions[0].id) for _, m in hall.heard if isinstance(m, (Register, State))
    ]
    assert said == sorted(said)
    assert said[-1] >= 4
