"""One call to the broker and its answer, for commands. Blocking, bounded, and repeated with its key if a broker dies.

Owns nothing but the way there, a broker that must be started first included: what may be asked is `broker.app`'s.
"""

from __future__ import annotations

import os
import secrets
import select
import signal
import time
from typing import Any, NamedTuple

import zmq

from broker.connection import Connection
from broker.errors import BrokerUnreachable, CrossAgentError
from broker.paths import Home
from broker.processes import open_death_watch
from broker.rendezvous import BrokerRecord, bury, living_or_starting, read_record, start_broker, wait_for_broker
from broker.wire import Failure, Reply, Request


class BroughtUp(NamedTuple):
    """The broker that lives: ``started`` by us, or another one; ``ended`` says how ours failed, empty if it did not."""

    record: BrokerRecord
    started: bool
    ended: str


def bring_up(home: Home, deadline: float, *, by_hand: bool = False) -> BroughtUp:
    """The living broker, started if there is none, within ``deadline`` (monotonic).

    Raises:
        BrokerUnreachable: none came up in time, or the one that was started has ended.
    """
    started = start_broker(home, by_hand=by_hand)
    record = wait_for_broker(home, deadline, started)
    ours = record is not None and record.process == started
    status = bury(started) if started is not None and not ours else None
    if record is None and status == 0:  # it has met another one, which could not be found yet
        record = wait_for_broker(home, deadline)
    ended = f"the broker that was started has ended {_way(status)}" if status else ""
    if record is None:
        raise BrokerUnreachable(ended or "no broker came up in time", next_step=f"Read {home.logs}/broker.log.")
    return BroughtUp(record, ours, ended)


def call(home: Home, operation: str, *, start: bool = False, patience: float = 10.0, **parameters: Any) -> dict[str, Any]:
    """The broker's answer to ``operation``.

    Args:
        start: start a broker if there is none.
        patience: seconds for everything together.

    Raises:
        BrokerUnreachable: none is there, or none answered in time.
        CrossAgentError: the broker answered with a failure.
    """
    deadline = time.monotonic() + patience
    request = Request(f"cli_{secrets.token_hex(8)}/1", operation, parameters)
    while True:
        record = read_record(home)
        if record is None and start:
            record = bring_up(home, deadline).record
        if record is None:
            raise BrokerUnreachable("no broker is running", code="no_broker", next_step="`cross-agent broker start` starts one.")
        answer = _ask(record, request, deadline)
        if isinstance(answer, Reply):
            return answer.result
        if isinstance(answer, Failure):
            raise CrossAgentError(answer.message, code=answer.code, next_step=answer.next_step, retry_safe=answer.retry_safe)
        if time.monotonic() >= deadline:
            raise BrokerUnreachable(f"broker {record.process} did not answer within {patience:.0f} s")


def stop_broker(home: Home, patience: float = 20.0, *, how: str = "force") -> BrokerRecord | None:
    """Stops the broker and waits for its end; returns which it was, None when there was none.

    Its end counts and not its answer, which may be lost with it.

    Args:
        how: as `broker.stopping.How` names it.

    Raises:
        BrokerUnreachable: it goes on.
        CrossAgentError: it refuses, since work is open.
    """
    record = living_or_starting(home, time.monotonic() + patience)
    death = open_death_watch(record.process) if record is not None else None
    if record is None or death is None:
        return None
    try:
        try:
            call(home, "stop", patience=patience, how=how)
        except BrokerUnreachable:
            if record.process.alive() and how != "drain":
                os.kill(record.pid, signal.SIGTERM)
        if not select.select([death], [], [], patience)[0]:
            raise BrokerUnreachable(f"broker {record.process} does not end", next_step=f"End process {record.pid} by hand.")
    finally:
        os.close(death)
    return record


def _ask(record: BrokerRecord, request: Request, deadline: float) -> Reply | Failure | None:
    """None when the broker died or the time is over."""
    death = open_death_watch(record.process)
    if death is None:
        return None
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    connection = Connection(context, record, death)
    try:
        connection.send(request)
        poller = zmq.Poller()
        poller.register(death, zmq.POLLIN)
        while (left := deadline - time.monotonic()) > 0:
            poller.register(connection.socket, connection.wanted)
            ready = dict(poller.poll(int(left * 1000) + 1))
            connection.flush()
            for message in connection.receive():
                if isinstance(message, (Reply, Failure)) and message.key in ("", request.key):
                    return message
            if death in ready and not connection.last_words():
                return None
        return None
    finally:
        connection.close()
        context.destroy(0)


def _way(status: int) -> str:
    return f"with exit status {status}" if status > 0 else f"by signal {-status}"
