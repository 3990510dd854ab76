"""What an MCP process costs, and how fast a message is where it belongs."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from statistics import median

from tests.bench.page import Figure
from tests.bench.processes import rss_mib
from tests.bench.stage import BARE, Stage, end, python_child, stage

_STARTS = 15
_SENDS = 40
_TEXT = "x" * 2048


def figures() -> Iterator[Figure]:
    with stage() as here:
        yield Figure("MCP process: spawn to initialize, no broker", _initialize(here), "ms", 120)
    with stage(autostart=True) as here:
        here.wait_for_panels(0)
        yield Figure("MCP process: spawn to initialize, broker running", _initialize(here), "ms", 120)
        yield from _memory(here)
    for others in (0, 100):
        with stage(autostart=True) as here:
            yield from _send(here, others)


def _initialize(here: Stage) -> float:
    times = []
    for _ in range(_STARTS):
        begin = time.perf_counter()
        client = here.mcp()
        client.initialize()
        times.append((time.perf_counter() - begin) * 1000)
        end(client.process)
    return median(times)


def _memory(here: Stage) -> Iterator[Figure]:
    clients = [here.mcp() for _ in range(20)]
    for client in clients:
        client.initialize()
        client.call("bridge_status")
    bare = here.spawn((*BARE, "-c", "import os; os.write(1, b'.'); os.read(0, 1)"))
    assert bare.stdout is not None
    os.read(bare.stdout.fileno(), 1)
    above = median(rss_mib(client.process.pid) for client in clients) - rss_mib(bare.pid)
    yield Figure("MCP process: memory above a bare interpreter", above, "MiB", 10)
    from broker.rendezvous import read_record

    record = read_record(here.home)
    assert record is not None
    yield Figure("broker: memory with 20 MCP sessions", rss_mib(record.pid), "MiB", 90)


def _send(here: Stage, others: int) -> Iterator[Figure]:
    sink = python_child(here.path, "sink.py")
    for _ in range(others):
        here.panel(sink)
    report = here.path / "report"
    os.mkfifo(report)
    reading = os.open(report, os.O_RDWR)
    _, session = here.panel(sink, str(report))
    here.wait_for_panels(others + 1)
    client = here.mcp()
    client.initialize()
    client.call("bridge_status")
    receipts, arrivals = [], []
    for _ in range(_SENDS):
        begin = time.monotonic_ns()
        client.call("send_to_claude", message=_TEXT, session_id=session)
        receipts.append((time.monotonic_ns() - begin) / 1e6)
        arrivals.append((int(os.read(reading, 64).split()[0]) - begin) / 1e6)
    os.close(reading)
    yield Figure(f"send of 2 KB: receipt, {others} other panels", median(receipts), "ms", 15)
    yield Figure(f"send of 2 KB: at the target's stdin, {others} other panels", median(arrivals), "ms", 20)
