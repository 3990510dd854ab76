"""Whatever is wrong with the shim, its home or its broker: the editor gets the agent, and no byte waits (SH-07, SH-08)."""

from __future__ import annotations

import json
import os
import resource
import shutil
import socket
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from broker.processes import identify
from tests.integration.editor import Editor
from tests.integration.installation import LAUNCHERS, ROOT, Installation, Shim, install, make_child

pytestmark = pytest.mark.requirement("SH-07", "SH-08")

TALK = b'{"type":"user","subtype":"x","message":{},"method":"x","id":1,"result":{}}\n' * 50
SOON = 1.0
"""Seconds within which an exchange and an exit are over, whatever hangs elsewhere."""


@pytest.fixture
def opened() -> Iterator[list[Editor]]:
    editors: list[Editor] = []
    yield editors
    for editor in editors:
        editor.close()


def _converses(shim: Shim, tmp_path: Path, opened: list[Editor], **variables: str) -> Editor:
    """Starts a panel, talks with the agent, and leaves it running."""
    command, environment = shim.panel(make_child("echo", tmp_path))
    editor = Editor(command, environment | variables)
    opened.append(editor)
    assert editor.exchange(TALK) == TALK
    return editor


def _ends_well(editor: Editor) -> None:
    begun = time.monotonic()
    editor.close_input()
    assert editor.read_rest() == b""
    assert editor.wait() == 0
    assert time.monotonic() - begun < SOON
    assert editor.errors() == b""


def _failure(home: Path, editor: Editor) -> bytes:
    """What the shim logged of its failure; talks with the agent until there is something to read."""
    log = home / "logs" / "shim-failures.log"
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        assert editor.exchange(TALK) == TALK
        if log.exists() and log.read_bytes().endswith(b"\n"):
            return log.read_bytes()
        editor.nothing_comes(0.01)  # what passes before the tracker is loaded is kept within a bound
    raise AssertionError("no failure was logged")


def _parent_of_report(shim: Shim, tmp_path: Path, opened: list[Editor]) -> tuple[int, int, int]:
    """Pids of the started process, the agent, and the agent's parent."""
    command, environment = shim.panel(make_child("report", tmp_path))
    editor = Editor(command, environment)
    opened.append(editor)
    report = json.loads(editor.read_line())
    assert editor.wait() == 0
    assert editor.errors() == b""
    return editor.pid, report["pid"], report["parent"]


# the home


def _no_directory(home: Path) -> Path:
    (home / "file").write_text("")
    return home / "file"


def _below_a_file(home: Path) -> Path:
    return _no_directory(home) / "state"


def _in_proc(home: Path) -> Path:
    del home
    return Path("/proc/self/state")


def _the_root(home: Path) -> Path:
    del home
    return Path("/")


def _full_disk(home: Path) -> Path:
    (home / "logs").mkdir(mode=0o700)
    for agent in LAUNCHERS:
        (home / "logs" / f"shim-{agent}.log").symlink_to("/dev/full")
    (home / "run").mkdir(mode=0o700)
    (home / "run" / "shims").symlink_to("/dev/full")
    return home


def _logs_that_hang(home: Path) -> Path:
    (home / "logs").mkdir(mode=0o700)
    for agent in LAUNCHERS:
        os.mkfifo(home / "logs" / f"shim-{agent}.log")
    return home


def _no_wake_directory(home: Path) -> Path:
    (home / "run").mkdir(mode=0o700)
    (home / "run" / "wake").write_text("")
    return home


@pytest.mark.parametrize(
    "spoil", [_no_directory, _below_a_file, _in_proc, _the_root, _full_disk, _logs_that_hang, _no_wake_directory]
)
def test_a_home_that_cannot_be_used(
    shim: Shim, home: Path, tmp_path: Path, opened: list[Editor], spoil: Callable[[Path], Path]
) -> None:
    editor = _converses(shim, tmp_path, opened, CROSS_AGENT_HOME=str(spoil(home)))
    editor.nothing_comes(0.3)  # the link has loaded and met what is wrong by now
    assert editor.exchange(TALK) == TALK
    _ends_well(editor)


# the broker


def _record(home: Path, endpoint: str, pid: int) -> None:
    process = identify(pid)
    assert process is not None
    (home / "run").mkdir(mode=0o700, exist_ok=True)
    record = {"endpoint": endpoint, "events": endpoint, "pid": pid, "start": process.start, "generation": 1, "protocol": 1}
    (home / "run" / "broker.json").write_text(json.dumps({**record, "version": "0"}))


@pytest.mark.parametrize(
    "kind", ["nobody there", "never answers", "no such directory", "not ours", "garbage", "of another version"]
)
def test_a_broker_that_does_not_answer(shim: Shim, home: Path, tmp_path: Path, opened: list[Editor], kind: str) -> None:
    """The record names a living process, and that is all that is right with it."""
    path = home / "run" / "b1.sock"
    endpoint = f"ipc://{path}"
    _record(home, {"no such directory": "ipc:///nonexistent/b1.sock", "not ours": "nonsense"}.get(kind, endpoint), os.getpid())
    if kind == "garbage":
        (home / "run" / "broker.json").write_bytes(b"\x00{")
    if kind == "of another version":
        record = json.loads((home / "run" / "broker.json").read_text())
        (home / "run" / "broker.json").write_text(json.dumps({**record, "protocol": 99, "news": {}}))
    with socket.socket(socket.AF_UNIX) as server:
        if kind in ("nobody there", "never answers"):
            server.bind(str(path))
        if kind == "never answers":
            server.listen(8)
        editor = _converses(shim, tmp_path, opened)
        editor.nothing_comes(0.3)
        assert editor.exchange(TALK) == TALK
        _ends_well(editor)


# what the system gives


_LIMIT = (
    "import os, resource, sys; resource.setrlimit(int(sys.argv[1]), 2 * (int(sys.argv[2]),)); os.execv(sys.argv[3], sys.argv[3:])"
)


@pytest.mark.parametrize(
    ("what", "amount"),
    [
        *((resource.RLIMIT_NOFILE, number) for number in (12, 20)),  # below, no sh starts
        *((resource.RLIMIT_AS, mib << 20) for mib in (64, 256)),
    ],
)
def test_no_descriptors_and_no_memory_to_spare(
    shim: Shim, home: Path, tmp_path: Path, opened: list[Editor], what: int, amount: int
) -> None:
    """What is short is short for whatever part of the shim asks for it first, and never for the bytes."""
    path = home / "run" / "b1.sock"
    _record(home, f"ipc://{path}", os.getpid())
    command, environment = shim.panel(make_child("echo", tmp_path))
    limited = [sys.executable, "-I", "-S", "-c", _LIMIT, str(what), str(amount), *command]
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen(8)  # so that the link has somewhere to connect to
        editor = Editor(limited, environment)
        opened.append(editor)
        assert editor.exchange(TALK) == TALK
        editor.nothing_comes(0.4)
        assert editor.exchange(TALK) == TALK
        editor.close_input()
    assert editor.read_rest() == b""
    assert editor.wait() == 0


_NO_THREADS = """
import _thread
_start = _thread.start_new_thread
_left = [{left}]
_pumps = []
def _sparing(run, arguments, *rest):
    _left[0] -= 1
    if _left[0] < 0:
        if _left[0] == -1 and _pumps:
            select.select([_pumps[0].source], [], [], 5)  # until the agent has spoken
        raise {error}
    _pumps.append(arguments[-1])
    return _start(run, arguments, *rest)
_thread.start_new_thread = _sparing
"""


@pytest.mark.parametrize("error", ['RuntimeError("can\'t start new thread")', "MemoryError", "SystemExit"])
@pytest.mark.parametrize("left", [0, 1], ids=["no thread", "one thread"])
def test_no_thread_to_be_had(
    broken: tuple[Installation, Shim], tmp_path: Path, opened: list[Editor], left: int, error: str
) -> None:
    """Nobody has read or written anything by then: the agent is started as it is, and says once what it says."""
    installation, shim = broken
    relay = installation.root / "shims" / "relay.py"
    relay.write_text(relay.read_text() + _NO_THREADS.format(left=left, error=error))
    command, environment = shim.panel(make_child("report", tmp_path))
    editor = Editor(command, environment)
    opened.append(editor)
    editor.write(TALK)
    report = json.loads(editor.read_line())
    assert report["pid"] == editor.pid
    assert editor.read_rest() == b""
    assert (editor.wait(), editor.errors()) == (0, b"")


def test_no_thread_for_the_link(broken: tuple[Installation, Shim], tmp_path: Path, opened: list[Editor]) -> None:
    installation, shim = broken
    relay = installation.root / "shims" / "relay.py"
    relay.write_text(relay.read_text() + _NO_THREADS.format(left=2, error="RuntimeError"))
    started, _, parent = _parent_of_report(shim, tmp_path, opened)
    assert parent == started


_SHORT_OF_MEMORY = """
def _short(method, often=[6]):
    def run(*arguments):
        often[0] -= 1
        if 0 <= often[0] < 3:
            raise MemoryError
        return method(*arguments)
    return run
{name} = _short({name})
"""


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("relay.py", "Pump._forward"),
        ("relay.py", "Pump._go_on"),
        ("relay.py", "Pump._flush"),
        ("observe.py", "_Side.arrived"),
        ("observe.py", "_Side.passed"),
        ("observe.py", "Observer.switch_off"),
    ],
)
def test_memory_that_runs_out_costs_no_byte(
    broken: tuple[Installation, Shim], tmp_path: Path, opened: list[Editor], file: str, name: str
) -> None:
    installation, shim = broken
    source = installation.root / "shims" / file
    source.write_text(source.read_text() + _SHORT_OF_MEMORY.format(name=name))
    if name == "Observer.switch_off":
        source.write_text(source.read_text() + _SHORT_OF_MEMORY.format(name="_Side.arrived"))
    editor = _converses(shim, tmp_path, opened)
    for size in (1, 70_000, 300_000, 5):
        data = os.urandom(size) + b"\n"
        assert editor.exchange(data) == data
    _ends_well(editor)


# the shim's own files


@pytest.fixture
def broken(tmp_path: Path, shim: Shim) -> tuple[Installation, Shim]:
    """An installation with rooms of its own, to be damaged."""
    installation = install(tmp_path / "broken")
    for room in ("shims", "broker"):
        (installation.root / room).unlink()
        shutil.copytree(ROOT / room, installation.root / room, ignore=shutil.ignore_patterns("__pycache__"))
    return installation, Shim(shim.agent, installation, shim.environment)


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("shims/relay.py", None),
        ("shims/launch.py", "def broken(:\n"),
        ("shims/program.py", "raise ImportError('half an update')\n"),
        ("shims/{agent}/command.py", "import nothing_of_that_name\n"),
        ("shims/{agent}/__main__.py", None),
        ("shims/{agent}/__main__.py", ""),
        ("shims/{agent}/__main__.py", "# cut off before its first statement\n"),
        ("shims/launch.py", "raise MemoryError\n"),
        ("shims/child.py", "raise SystemExit(3)\n"),
        ("shims/relay.py", "raise KeyboardInterrupt\n"),
        ("shims/observe.py", "class Observer:\n    def __init__(self, note):\n        raise LookupError\n"),
    ],
)
def test_a_shim_that_does_not_load_hands_over(
    broken: tuple[Installation, Shim], tmp_path: Path, opened: list[Editor], file: str, content: str | None
) -> None:
    installation, shim = broken
    path = installation.root / file.format(agent=shim.agent)
    path.unlink() if content is None else path.write_text(content)
    started, agent, _ = _parent_of_report(shim, tmp_path, opened)
    assert agent == started


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("broker/client.py", "raise ImportError('half an update')"),
        ("shims/link.py", "def broken(:"),
        ("shims/{agent}/stream.py", "raise MemoryError"),
    ],
)
def test_a_link_that_does_not_load_leaves_a_relay(
    broken: tuple[Installation, Shim], home: Path, tmp_path: Path, opened: list[Editor], file: str, line: str
) -> None:
    installation, shim = broken
    (installation.root / file.format(agent=shim.agent)).write_text(line + "\n")
    editor = _converses(shim, tmp_path, opened)
    assert b"unobserved" in _failure(home, editor)
    assert editor.exchange(TALK) == TALK
    _ends_well(editor)


@pytest.mark.parametrize("method", ["from_editor", "from_agent", "outstanding", "judge", "sessions"])
def test_a_tracker_that_fails_leaves_a_relay(
    broken: tuple[Installation, Shim], home: Path, tmp_path: Path, opened: list[Editor], method: str
) -> None:
    installation, shim = broken
    stream = installation.root / "shims" / shim.agent / "stream.py"
    name = f"{shim.agent.title()}Stream"
    spoiled = (
        f"\ndef _fail(*_):\n    raise ZeroDivisionError\n\n{name}.outstanding = lambda self: True\n{name}.{method} = _fail\n"
    )
    stream.write_text(stream.read_text() + spoiled)
    editor = _converses(shim, tmp_path, opened)
    assert b"ZeroDivisionError" in _failure(home, editor)
    _ends_well(editor)


def test_an_interpreter_without_packages(shim: Shim, home: Path, tmp_path: Path, opened: list[Editor]) -> None:
    """ZeroMQ and msgpack are not there: the shim is a relay, and says so in its log."""
    bare = tmp_path / "bare"
    (bare / "bin").mkdir(parents=True)
    (bare / "bin" / "python").symlink_to(os.path.realpath(sys.executable))
    (bare / "pyvenv.cfg").write_text(f"home = {os.path.dirname(os.path.realpath(sys.executable))}\n")
    own = install(tmp_path / "own")
    own.write_stamp(str(bare / "bin" / "python"))
    editor = _converses(Shim(shim.agent, own, shim.environment), tmp_path, opened)
    assert b"ModuleNotFoundError" in _failure(home, editor)
    assert editor.exchange(TALK) == TALK
    _ends_well(editor)
