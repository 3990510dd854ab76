"""How long an answer is on its way, and how long twenty of them take, with agents that need no time of their own.

And what the bridge adds where the agent is a real Codex, whose model is scripted: to its own time for the same turn, as its
client sees it.
"""

from __future__ import annotations

import json
import os
import sqlite3
import time
import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from statistics import median

from broker.cli.calls import call
from tests.bench.page import Figure
from tests.bench.stage import MCP, ROOT, Stage, python_child, stage, write_line
from tests.real.binaries import CODEX_VERSIONS, binary
from tests.real.homes import CodexHome
from tests.real.models import OpenAIModel
from tests.real.panels import CodexPanel

_ROUNDS = 20
_AT_ONCE = 20
_BURSTS = 5


def figures() -> Iterator[Figure]:
    with stage(autostart=True) as here:
        yield Figure("round trip between two panels, 2 KB", _round_trip(here), "ms", 60)
    with stage(autostart=True) as here:
        yield from _beside_codex(here)
    with stage(autostart=True) as here:
        yield Figure(f"{_AT_ONCE} sends at once to one session, all answered", _burst(here), "s", 2)


def _round_trip(here: Stage) -> float:
    """From the call in one panel until the answer is at its agent's stdin."""
    _, target = here.panel(python_child(here.path, "sink.py"))
    return median(_asked(here, "send_to_claude", target, "x" * 2048))


def _beside_codex(here: Stage) -> Iterator[Figure]:
    settings = {"CROSS_AGENT_HOME": here.home.root}
    with OpenAIModel() as model:
        home = CodexHome(here.path / "codex", model.url, None, None, settings)
        panel = CodexPanel(ROOT / "bin" / "codex-shim", binary(f"codex-{CODEX_VERSIONS[0]}"), home)
        try:
            thread = panel.start_thread()
            alone = []
            for _ in range(_ROUNDS):
                began = time.perf_counter()
                said = panel.say(thread, "[[reply ok]]")
                panel.wait_turn(thread, lambda turn, said=said: turn.id == said)  # type: ignore[misc]
                alone.append((time.perf_counter() - began) * 1e3)
            asked = _asked(here, "send_to_codex", thread, f"{'x' * 2048} [[reply ok]]")
        finally:
            panel.close()
    own = median(alone)
    yield Figure("round trip to a real Codex and back, beside its own turn", median(asked) - own, "ms", 60)
    yield Figure(f"  its own turn, codex {CODEX_VERSIONS[0]}", own, "ms")


def _asked(here: Stage, tool: str, target: str, message: str) -> list[float]:
    """Milliseconds of each round trip between a panel that asks and ``target``, which one panel holds."""
    # The guard against ping-pong would stop them; the person who measures has granted more.
    Path(here.home.config).write_text("[grants]\nmax_exchanges = 1000\n", encoding="utf-8")
    server = {"ASKER_SERVER": json.dumps(MCP), "ASKER_TOOL": tool, "ASKER_MESSAGE": message}
    here.environment |= {"CROSS_AGENT_MAX_EXCHANGES": "1000", **server}
    report = here.path / "report"
    os.mkfifo(report)
    reading = os.open(report, os.O_RDWR)
    process, session = here.panel(python_child(here.path, "asker.py"), str(report))
    here.wait_for_panels(2)
    times = []
    for _ in range(_ROUNDS):
        word = {"role": "user", "content": target}
        write_line(process, {"type": "user", "message": word, "uuid": str(uuid.uuid4()), "session_id": session})
        times.append(int(os.read(reading, 64).split()[0]) / 1e6)
    os.close(reading)
    return times


def _burst(here: Stage) -> float:
    """From the first call until the last request has its answer, each time of a caller that is nobody."""
    _, target = here.panel(python_child(here.path, "sink.py"))
    here.wait_for_panels(1)
    client = here.mcp()
    client.initialize()
    client.call("bridge_status")
    times = []
    for burst in range(1, _BURSTS + 1):
        began = time.perf_counter()
        client.calls("send_to_claude", [{"message": f"{n}", "session_id": target} for n in range(_AT_ONCE)])
        _wait_answered(here, burst * _AT_ONCE)
        times.append(time.perf_counter() - began)
    return median(times)


def _wait_answered(here: Stage, count: int) -> None:
    with closing(sqlite3.connect(f"file:{here.home.database}?mode=ro", uri=True)) as database:
        while True:
            sequence = call(here.home, "status")["event_sequence"]
            if database.execute("SELECT count(*) FROM deliveries WHERE state = 'delivered'").fetchone()[0] == count:
                return
            call(here.home, "next_event", after=sequence)
