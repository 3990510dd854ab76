"""Whether anything wakes up while nothing happens."""

from __future__ import annotations

import time
from collections.abc import Iterator

from broker.rendezvous import read_record
from tests.bench.page import Figure
from tests.bench.processes import wakeups
from tests.bench.stage import python_child, stage, until

SECONDS = 60


def figures() -> Iterator[Figure]:
    for broker in (True, False):
        with stage(autostart=broker) as here:
            sink = python_child(here.path, "sink.py")
            panel, _ = here.panel(sink)
            client = here.mcp()
            client.initialize()
            watched = {"shim": panel.pid, "MCP process": client.process.pid}
            if broker:
                here.wait_for_panels(1)
                client.call("bridge_status")
                record = read_record(here.home)
                assert record is not None
                watched["broker"] = record.pid
            _settle(list(watched.values()))
            before = {name: wakeups(pid) for name, pid in watched.items()}
            time.sleep(SECONDS)  # the measured thing itself: nothing happens for this long
            for name, pid in watched.items():
                state = "present" if broker else "absent"
                woken = wakeups(pid) - before[name]
                yield Figure(f"idle {SECONDS} s, broker {state}: wake-ups of the {name}", woken, "", 0)


def _settle(pids: list[int]) -> None:
    """Start-up is over when nobody has run for two seconds."""
    last: list[tuple[float, list[int]]] = [(time.monotonic(), [wakeups(pid) for pid in pids])]

    def quiet() -> bool:
        now = [wakeups(pid) for pid in pids]
        if now != last[0][1]:
            last[0] = (time.monotonic(), now)
        return time.monotonic() - last[0][0] > 2

    until(quiet, 60)
