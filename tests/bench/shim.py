"""What a shim costs: start, CPU, latency, throughput, memory; against the same child run directly, in one run."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from statistics import median

from tests.bench.page import Figure
from tests.bench.processes import cpu_ms, rss_mib
from tests.bench.stage import BARE, ROOT, Stage, end, python_child, stage, until

_STARTS = 21
_LINES = 5000
_BYTES = 128 << 20


_OPENINGS = {
    "claude": b'{"type":"stream_event","x":"',
    "grok": b'{"jsonrpc":"2.0","method":"session/update","x":"',
}


def figures() -> Iterator[Figure]:
    with stage() as here:
        yield from _plain(here)
    for agent in _OPENINGS:
        with stage() as here:
            yield from _start(here, agent)
            yield from _latency(here, agent)
            yield from _throughput(here, agent)
        with stage(autostart=True) as here:
            yield from _linked(here, agent)


def _label(agent: str) -> str:
    return "shim" if agent == "claude" else f"{agent} shim"


def _line(agent: str, size: int) -> bytes:
    opening = _OPENINGS[agent]
    return opening + b"x" * (size - len(opening) - 3) + b'"}\n'


def _direct(here: Stage) -> subprocess.Popen[bytes]:
    return here.spawn((str(python_child(here.path, "echo.py")),))


def _through(here: Stage, agent: str) -> subprocess.Popen[bytes]:
    return here.shim(python_child(here.path, "echo.py"), agent=agent)


def _plain(here: Stage) -> Iterator[Figure]:
    """Calls that are no panel's: the agent is a program that ends at once."""
    extension = here.path / ".vscode" / "extensions" / "openai.chatgpt-26.930.31730-linux-x64" / "bin" / "linux-x86_64"
    extension.mkdir(parents=True)
    agent, link = extension / "codex", here.path / "link"
    shutil.copy(os.path.realpath(shutil.which("true") or "/bin/true"), agent)
    link.symlink_to(agent)
    claude, codex, named = (
        str(ROOT / "bin" / "claude-shim"),
        str(ROOT / "bin" / "codex-shim"),
        {"CROSS_AGENT_REAL_CODEX": str(link)},
    )
    ways: dict[str, tuple[tuple[str, ...], dict[str, str]]] = {
        "direct": ((str(agent), "--version"), {}),
        "plain call, named by the editor": ((claude, str(agent), "--version"), {}),
        "plain call, named by the variable, a link": ((codex, "--version"), named),
        "plain call, found before": ((codex, "--version"), {}),
        "plain call, searched": ((codex, "--version"), {"CROSS_AGENT_HOME": str(here.path / "none")}),
        "plain call that Python classifies": ((codex, "app-server", "--help"), {}),
    }
    times: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(_STARTS):
        for way, (command, variables) in ways.items():
            begin = time.perf_counter()
            here.run(command, variables)
            times[way].append((time.perf_counter() - begin) * 1000)
    direct = median(times.pop("direct"))
    for way, taken in times.items():
        yield Figure(f"shim: {way} adds", median(taken) - direct, "ms", 30 if "searched" in way or "Python" in way else 5)


def _start(here: Stage, agent: str) -> Iterator[Figure]:
    direct, through, cpu = [], [], []
    for _ in range(_STARTS):  # by turns, so that both meet the same machine
        direct.append(_first_echo(lambda: _direct(here))[0])
        taken, process = _first_echo(lambda: _through(here, agent))
        through.append(taken)
        cpu.append(process)
    yield Figure(f"{_label(agent)}: added start to the first echoed byte", median(through) - median(direct), "ms", 30)
    yield Figure(f"{_label(agent)}: CPU to the first echoed byte", median(cpu), "ms", 20)


def _first_echo(start: Callable[[], subprocess.Popen[bytes]]) -> tuple[float, float]:
    begin = time.perf_counter()
    process = start()
    assert process.stdin is not None and process.stdout is not None
    os.write(process.stdin.fileno(), b"x\n")
    os.read(process.stdout.fileno(), 2)
    taken = (time.perf_counter() - begin) * 1000
    spent = cpu_ms(process.pid)
    end(process)
    return taken, spent


def _latency(here: Stage, agent: str) -> Iterator[Figure]:
    line = _line(agent, 200)
    direct, through = _round_trips(_direct(here), line), _round_trips(_through(here, agent), line)
    for name, place, limit in (("p50", 0.5, 100.0), ("p99", 0.99, 1000.0)):
        added = direct_and(through, place) - direct_and(direct, place)
        yield Figure(f"{_label(agent)}: a 200-byte line adds ({name})", added, "µs", limit)


def direct_and(times: list[float], place: float) -> float:
    return sorted(times)[int(len(times) * place)]


def _round_trips(process: subprocess.Popen[bytes], line: bytes) -> list[float]:
    assert process.stdin is not None and process.stdout is not None
    times = []
    for number in range(_LINES + 200):
        begin = time.perf_counter()
        os.write(process.stdin.fileno(), line)
        got = 0
        while got < len(line):
            got += len(os.read(process.stdout.fileno(), 65536))
        if number >= 200:
            times.append((time.perf_counter() - begin) * 1e6)
    end(process)
    return times


def _throughput(here: Stage, agent: str) -> Iterator[Figure]:
    for name, size in (("200-byte", 200), ("64 KiB", 65536)):
        line = _line(agent, size)
        pairs = [(_echo_rate(_direct(here), line), _echo_rate(_through(here, agent), line)) for _ in range(5)]
        share = median(through for _, through in pairs) / median(direct for direct, _ in pairs) * 100
        yield Figure(f"{_label(agent)}: echo throughput of {name} lines, share of direct", share, "%", 40, more_is_better=True)
        yield Figure(f"  direct, {name} lines of {agent}", median(direct for direct, _ in pairs), "MiB/s")


def _echo_rate(process: subprocess.Popen[bytes], line: bytes) -> float:
    """MiB per second through the child and back; the writer writes 1 MiB blocks of whole lines."""
    assert process.stdin is not None and process.stdout is not None
    block = line * max(1, (1 << 20) // len(line))
    rounds = _BYTES // len(block)
    stdin, stdout = process.stdin.fileno(), process.stdout.fileno()

    def write() -> None:
        for _ in range(rounds):
            view = memoryview(block)
            while view:
                view = view[os.write(stdin, view) :]

    writer = threading.Thread(target=write)
    begin = time.perf_counter()
    writer.start()
    left = rounds * len(block)
    while left:
        left -= len(os.read(stdout, 1 << 20))
    taken = time.perf_counter() - begin
    writer.join()
    end(process)
    return rounds * len(block) / taken / (1 << 20)


def _linked(here: Stage, agent: str) -> Iterator[Figure]:
    process = here.panel(python_child(here.path, "sink.py"))[0] if agent == "claude" else _through(here, agent)
    here.wait_for_panels(1)
    spent = cpu_ms(process.pid)
    until(lambda: cpu_ms(process.pid) == cpu_ms(process.pid))
    yield Figure(f"{_label(agent)}: CPU in all, linked and at rest", max(spent, cpu_ms(process.pid)), "ms", 110)
    bare = here.spawn((*BARE, "-c", "import os; os.write(1, b'.'); os.read(0, 1)"))
    assert bare.stdout is not None
    os.read(bare.stdout.fileno(), 1)
    memory = rss_mib(process.pid) - rss_mib(bare.pid)
    yield Figure(f"{_label(agent)}: memory of a linked one above a bare interpreter", memory, "MiB", 10)
