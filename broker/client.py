"""The client side of the wire: the loop that keeps having a connection to the broker that lives.

Owns when to open a new connection, to start a broker, and to say a hello again. Wakes up only when something happens.

A `Client` runs in a thread of its caller's; `wake`, `start_now` and `stop` may be called from any thread.
"""

from __future__ import annotations

import _thread
import math
import os
import time
from collections.abc import Callable

import zmq

from broker.connection import CLIENT_BYTES, Connection, room_for_a_connection
from broker.errors import BrokerUnreachable, CrossAgentError, ProtocolMismatch, WireError
from broker.paths import Home
from broker.processes import ProcessId, open_death_watch
from broker.rendezvous import BrokerRecord, WakeUp, bury, read_record, start_broker
from broker.wire import PROTOCOL, Bye, Message

_START_INTERVAL = 60.0
"""A client starts a broker by itself at most this often, in seconds (SH-23)."""

_STARTING = (0.05, 5.0)
"""Seconds after which somebody else's start is looked at again, at first and at last: it may come to nothing unheard."""

_ANSWER_WITHIN = 10.0
"""Seconds in which a hello must be answered before it is said again on a connection of its own; twice as long each time."""

_ANSWER_AT_LAST = 60.0
"""What that grows to."""


class Client:
    """Keeps a connection to whichever broker lives, from one thread.

    Args:
        hello: the first message of every connection, asked for when it opens.
        received: called with each message, in the thread of `run`.
        woken: called in the thread of `run` after each `wake`, and when a connection opens or is lost.
        autostart: whether to start a broker when there is none.
        note: takes one line for the log.
    """

    def __init__(
        self,
        home: Home,
        *,
        hello: Callable[[], Message],
        received: Callable[[Message], None],
        woken: Callable[[], None],
        autostart: bool,
        note: Callable[[str], None],
    ) -> None:
        self._home = home
        self._hello = hello
        self._received = received
        self._woken = woken
        self._autostart = autostart
        self._note = note
        self._bell_read, self._bell_write = os.pipe()
        os.set_blocking(self._bell_read, False)
        os.set_blocking(self._bell_write, False)
        self._context: zmq.Context[zmq.Socket[bytes]] | None = None
        self._connection: Connection | None = None
        self._name = b"c" + os.urandom(CLIENT_BYTES - 1)  # the kernel tells who it is: this one only has to be nobody else's
        self._connections = 0
        self._patience = 0.0
        self._answer_due = math.inf
        self._silent: BrokerRecord | None = None
        """The broker that has left our last hello unanswered."""
        self._broker_bell: WakeUp | None = None
        self._hanging = _thread.allocate_lock()
        """Held while the bell for a broker is hung up or taken down, and by a process that ends."""
        self._next_start = 0.0
        self._own_start = 0.0
        """From when on this client may start one again; `_next_start` may be later, while there is none."""
        self._starting = _STARTING[0]
        self._children: dict[int, ProcessId] = {}
        """The brokers that this client has started, by what tells of their end: nobody else can bury them."""
        self._birth: int | None = None
        """The one of them that can't be reached yet."""
        self._stopped = False
        self._last_problem = ""
        self.trouble: CrossAgentError | None = None
        """Why there is no broker, as far as is known."""

    @property
    def record(self) -> BrokerRecord | None:
        """The broker that this client is connected to now."""
        connection = self._connection
        return connection.record if connection is not None else None

    def send(self, message: Message) -> None:
        """Sends ``message`` on the connection that is open now; dropped when there is none. From within a callback."""
        if self._connection is not None and not self._connection.send(message):
            self._note("the broker does not read; connection given up")
            self._disconnect()

    def wake(self) -> None:
        try:
            os.write(self._bell_write, b"\n")
        except (BlockingIOError, OSError):
            pass  # full: it rings anyway; closed: the loop has ended

    def start_now(self) -> None:
        """Somebody needs a broker at this moment: a start may be tried again at once."""
        self._next_start = 0.0
        self.trouble = None
        self.wake()

    def stop(self) -> None:
        self._stopped = True
        self.wake()

    def vanish(self) -> None:
        """The process ends at this moment, with `run` in whatever it does: nothing of it stays in the run directory."""
        self._hanging.acquire(timeout=0.2)  # and never let go: no bell is hung up any more
        if self._broker_bell is not None:
            self._broker_bell.remove()

    def run(self) -> None:
        """Runs until `stop`."""
        try:
            self._home.prepare()
            with self._hanging:
                self._broker_bell = WakeUp(self._home)
        except (CrossAgentError, OSError) as error:
            self._problem(f"no wake-up by the run directory: {error}")
        try:
            while not self._stopped:
                if self._connection is None:
                    self._connect()
                self._wait()
        finally:
            self._disconnect()
            for watch in self._children:
                os.close(watch)
            if self._broker_bell is not None:
                self._broker_bell.close()
            if self._context is not None:
                self._context.destroy(0)

    # connection

    def _connect(self) -> None:
        record = read_record(self._home)
        if record is None:
            self._try_start()
            return
        try:
            death = open_death_watch(record.process)
        except OSError as error:
            self._tell_trouble(CrossAgentError(f"the broker can't be watched: {error.strerror}", next_step="Close something."))
            return
        if death is None:
            self._try_start()
            return
        if record.protocol != PROTOCOL:
            os.close(death)
            self._tell_trouble(ProtocolMismatch(f"the broker speaks protocol {record.protocol}, and this process {PROTOCOL}"))
            return
        if not room_for_a_connection():
            os.close(death)
            self._tell_trouble(
                CrossAgentError(
                    "too few descriptors or threads, or too little memory, are left to reach the broker",
                    next_step="Raise the limit (ulimit).",
                )
            )
            return
        self.trouble = None
        self._last_problem = ""
        self._next_start = self._own_start
        self._starting = _STARTING[0]
        self._birth = None
        self._connections += 1
        identity = self._name + self._connections.to_bytes(4, "big")
        self._context = self._context or zmq.Context()
        self._connection = Connection(self._context, record, death, identity)
        self._patience = min(2 * self._patience, _ANSWER_AT_LAST) if record == self._silent else _ANSWER_WITHIN
        self._answer_due = time.monotonic() + self._patience
        self._connection.send(self._hello())
        self._woken()

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
            if not self._stopped:
                self._woken()

    def _try_start(self) -> None:
        if not self._autostart:
            self._tell_trouble(
                BrokerUnreachable(
                    "no broker is running, and this process may not start one (CROSS_AGENT_AUTOSTART)",
                    code="no_broker",
                    next_step="`cross-agent broker start` starts one.",
                )
            )
            return
        now = time.monotonic()
        if now < self._next_start:
            return
        self._next_start = now + _START_INTERVAL
        try:
            started = start_broker(self._home)
        except (CrossAgentError, OSError) as error:
            self._tell_trouble(error if isinstance(error, CrossAgentError) else _unusable(self._home, error))
            return
        if started is None:
            self._next_start = now + self._starting
            self._starting = min(2 * self._starting, _STARTING[1])
            return
        self._own_start = self._next_start
        self._note("started a broker")
        self._birth = None
        try:
            watch = open_death_watch(started)
        except OSError:
            return  # nobody will tell of its end: the next start is tried later
        if watch is None:
            bury(started)
            self._stillborn()
        else:
            self._children[watch] = started
            self._birth = watch

    def _bury(self, watch: int) -> None:
        """A broker that this client has started has ended, long after it was of use or before."""
        os.close(watch)
        bury(self._children.pop(watch))
        if watch == self._birth:
            self._birth = None
            if read_record(self._home) is None:
                self._stillborn()

    def _stillborn(self) -> None:
        step = f"Read {self._home.logs}/broker.log, then run `cross-agent broker start`."
        error = BrokerUnreachable("the broker that was started has ended before it could be reached", next_step=step)
        self._tell_trouble(error, next_start=self._own_start)

    def _tell_trouble(self, error: CrossAgentError, next_start: float = math.inf) -> None:
        """No broker can be had for now: whoever waits for one is told. ``next_start``: when it is tried again unasked."""
        self._next_start = next_start
        self._starting = _STARTING[0]
        self.trouble = error
        self._problem(f"no broker: {error}")
        self._woken()

    def _problem(self, text: str) -> None:
        if text != self._last_problem:
            self._last_problem = text
            self._note(text)

    # waiting

    def _wait(self) -> None:
        poller = zmq.Poller()
        poller.register(self._bell_read, zmq.POLLIN)
        if self._broker_bell is not None:
            poller.register(self._broker_bell.fd, zmq.POLLIN)
        for watch in self._children:
            poller.register(watch, zmq.POLLIN)
        connection = self._connection
        if connection is not None:
            poller.register(connection.death, zmq.POLLIN)
            poller.register(connection.socket, connection.wanted)
        ready = dict(poller.poll(self._timeout()))
        if self._bell_read in ready:
            self._drain_bell()
            self._woken()
        if self._broker_bell is not None and self._broker_bell.fd in ready:
            self._broker_bell.drain()
        for watch in [watch for watch in self._children if watch in ready]:
            self._bury(watch)
        if connection is not None and connection is self._connection:  # a callback may have given it up
            dead = connection.death in ready
            if dead and connection.socket not in ready:
                connection.last_words()
            self._serve(connection, dead=dead)
            self._give_up_unanswered(connection)

    def _timeout(self) -> int | None:
        """Milliseconds until an answer is overdue, or a broker may be started again; None while only events matter."""
        if self._connection is not None:
            due = math.inf if self._connection.answered else self._answer_due
        else:
            due = self._next_start if self._autostart else math.inf
        return None if math.isinf(due) else max(0, int((due - time.monotonic()) * 1000)) + 1

    def _give_up_unanswered(self, connection: Connection) -> None:
        """A connection that found no room, or was lost before it said hello, is one that nobody is told of: a new one is made.

        To a broker that hangs this does no harm: of one client it heeds the latest connection.
        """
        if connection.answered:
            self._silent = None
        elif connection is self._connection and time.monotonic() >= self._answer_due:
            if connection.record != self._silent:
                seconds = int(self._patience)
                self._note(f"broker {connection.record.process} has not answered within {seconds} s: connecting again")
            self._silent = connection.record
            self._disconnect()

    def _serve(self, connection: Connection, *, dead: bool) -> None:
        try:
            connection.flush()
            messages = connection.receive()
        except WireError as error:
            self.trouble = error
            self._problem(f"broker {connection.record.process}: {error}")
            self._woken()
            return
        for message in messages:
            if isinstance(message, Bye):
                dead = True
                self._next_start = math.inf  # whoever ended it meant it: the next one is somebody else's to start
            self._received(message)
        if dead:
            self._disconnect()

    def _drain_bell(self) -> None:
        try:
            while os.read(self._bell_read, 4096):
                pass
        except BlockingIOError:
            pass


def _unusable(home: Home, error: OSError) -> CrossAgentError:
    why = error.strerror or type(error).__name__
    return BrokerUnreachable(f"no broker can be started from {home.root}: {why}", next_step="Make the directory usable.")
