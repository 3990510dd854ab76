"""bin/environment.sh and the scripts on it: first use, later use, two at once, and what is missing."""

from __future__ import annotations

import os
import selectors
import shutil
import signal
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.integration.environments import LOCKS, PATIENCE, Checkout, checkout, executable

pytestmark = pytest.mark.requirement("EN-09")


@pytest.fixture
def made(tmp_path: Path) -> Checkout:
    """A checkout whose environments hold no packages, so that they are built in no time."""
    made = checkout(tmp_path)
    made.provide_python()
    made.provide_uv()
    return made


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    """A FIFO; a build goes on when it is written to."""
    os.mkfifo(tmp_path / "gate")
    return tmp_path / "gate"


@pytest.fixture
def running() -> Iterator[Callable[[subprocess.Popen[str]], subprocess.Popen[str]]]:
    """Ends what a test has left, with all that it started."""
    processes: list[subprocess.Popen[str]] = []

    def keep(process: subprocess.Popen[str]) -> subprocess.Popen[str]:
        processes.append(process)
        return process

    yield keep
    for process in processes:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate(timeout=PATIENCE)


def read_until(process: subprocess.Popen[str], words: str, timeout: float = PATIENCE) -> str:
    """What stderr says up to and with ``words``."""
    assert process.stderr is not None
    seen = b""
    deadline = time.monotonic() + timeout
    with selectors.DefaultSelector() as selector:
        selector.register(process.stderr, selectors.EVENT_READ)
        while words.encode() not in seen:
            assert selector.select(max(0.0, deadline - time.monotonic())), f"no {words!r} in {seen!r}"
            block = os.read(process.stderr.fileno(), 65536)
            assert block, f"ended without {words!r}: {seen!r}"
            seen += block
    return seen.decode()


def open_gate(gate: Path) -> None:
    """Lets the build behind ``gate`` go on: opening the FIFO waits for it, for as long as a test may take."""
    gate.write_text("\n")


# --- The real thing


@pytest.mark.timeout(300)
def test_a_fresh_clone_sets_itself_up_with_python_alone(tmp_path: Path) -> None:
    made = checkout(tmp_path, locks=True)
    made.provide_python()
    git = shutil.which("git")
    if git:
        for arguments in (["init", "-q"], ["add", "-A"]):
            subprocess.run([git, "-C", str(made.root), *arguments], check=True, timeout=PATIENCE, stdin=subprocess.DEVNULL)

    before = time.monotonic()
    status, python, messages = made.set_up(timeout=280)
    took = time.monotonic() - before
    print(f"\nfirst set-up with venv and pip: {took:.1f} s")

    assert status == 0, messages
    assert python.startswith(f"{made.root}/.venv-") and python.endswith("/bin/python")
    assert "setting up" in messages and "with venv and pip" in messages
    first, second, key = (made.root / ".venv" / "cross-agent-stamp").read_text().splitlines()
    assert first == python
    assert Path(second).samefile(os.__file__)
    assert f".venv-{key}" == os.readlink(made.root / ".venv")
    subprocess.run([python, "-I", "-c", "import click, mcp, msgpack, pexpect, psutil, websockets, zmq"], check=True, timeout=60)
    if git:
        left = subprocess.run(
            [git, "-C", str(made.root), "status", "--porcelain", "--untracked-files=all"],
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        assert [line for line in left.stdout.splitlines() if not line.startswith("A ")] == []
    assert made.set_up() == (0, python, "")


# --- Later starts


def test_a_later_start_needs_nothing_but_the_shell(made: Checkout, tmp_path: Path) -> None:
    _, python, _ = made.set_up("test")
    (tmp_path / "nothing").mkdir()
    shell = str((made.path / "sh").resolve())
    script = '_xa_root=$1; . "$_xa_root/bin/environment.sh"; ensure_environment "$2" && echo "$_xa_python"'
    for kind in ("runtime", "test"):
        done = subprocess.run(
            [shell, "-c", script, "sh", str(made.root), kind],
            capture_output=True,
            text=True,
            env={"PATH": str(tmp_path / "nothing")},
            timeout=PATIENCE,
            check=False,
        )
        assert (done.returncode, done.stdout.strip(), done.stderr) == (0, python, "")


def test_a_later_start_costs_next_to_nothing(made: Checkout) -> None:
    _, python, _ = made.set_up()
    program = "import sys; sys.exit(0)\n"
    for file in ("mcp_server/__main__.py", "broker/cli/__main__.py"):
        (made.root / file).parent.mkdir(exist_ok=True)
        (made.root / file).write_text(program)
    launcher = str(made.root / "bin" / "cross-agent")
    for title, flags, file, word in (
        ("cross-agent mcp", ["-I", "-S"], "mcp_server/__main__.py", "mcp"),
        ("cross-agent <anything else>", ["-I"], "broker/cli/__main__.py", "list"),
    ):
        direct, launched = [], []
        for _ in range(21):  # in turns, so that both see the same machine
            direct.append(seconds_of([python, *flags, str(made.root / file)]))
            launched.append(seconds_of([launcher, word]))
        added = (statistics.median(launched) - statistics.median(direct)) * 1000
        print(f"\n{title}: {statistics.median(direct) * 1000:.1f} ms direct, {added:+.1f} ms by the launcher (medians of 21)")
        assert added < 15, "more than a shell's start"


def seconds_of(command: list[str]) -> float:
    before = time.perf_counter()
    pid = os.posix_spawn(command[0], command, os.environ)
    _, status = os.waitpid(pid, 0)  # a wait with a timeout would poll, and round up what is measured here
    assert status == 0
    return time.perf_counter() - before


def test_launchers_start_the_programs_isolated(made: Checkout, tmp_path: Path) -> None:
    made.set_up()
    report = "import sys; print(sys.executable, sys.flags.isolated, sys.flags.no_site, __file__, *sys.argv[1:], sep='|')\n"
    for file in ("mcp_server/__main__.py", "broker/cli/__main__.py"):
        (made.root / file).parent.mkdir(exist_ok=True)
        (made.root / file).write_text(report)
    (tmp_path / "elsewhere").mkdir()
    link = tmp_path / "elsewhere" / "tool"
    link.symlink_to(tmp_path / "middle")
    (tmp_path / "middle").symlink_to("a checkout/bin/cross-agent")
    python, _, _ = (made.root / ".venv" / "cross-agent-stamp").read_text().splitlines()
    for command in (str(made.root / "bin" / "cross-agent"), str(link), "bin/cross-agent", "./bin/cross-agent"):
        for words, expected in (
            (["mcp", "--surface", "a b"], [python, "1", "1", f"{made.root}/mcp_server/__main__.py", "--surface", "a b"]),
            (["list", ""], [python, "1", "0", f"{made.root}/broker/cli/__main__.py", "list", ""]),
        ):
            done = subprocess.run(
                [command, *words],
                capture_output=True,
                text=True,
                cwd=made.root,
                env=made.environment(),
                timeout=PATIENCE,
                check=False,
            )
            assert done.stdout.rstrip("\n").split("|") == expected, done.stderr


def test_an_mcp_start_never_sets_up(made: Checkout) -> None:
    (made.root / "mcp_server" / "__main__.py").parent.mkdir(exist_ok=True)
    (made.root / "mcp_server" / "__main__.py").write_text("import sys; print(sys.flags.isolated, sys.flags.no_site)\n")
    command = [str(made.root / "bin" / "cross-agent"), "mcp"]
    done = subprocess.run(command, capture_output=True, text=True, env=made.environment(), timeout=PATIENCE, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "1 1\n", "")
    assert made.environments() == set()

    (made.path / "python3").unlink()
    done = subprocess.run(command, capture_output=True, text=True, env=made.environment(), timeout=PATIENCE, check=False)
    assert done.returncode == 127
    assert done.stderr == "cross-agent: python3 is missing on PATH\n"


# --- When an environment is out of date


def test_the_test_environment_serves_both_and_is_kept(made: Checkout) -> None:
    _, runtime, _ = made.set_up("runtime")
    _, test, _ = made.set_up("test")
    assert runtime != test
    assert made.set_up("runtime") == (0, test, "")
    assert made.builds() == 2


def test_another_lock_file_gets_another_environment_and_the_old_one_stays(made: Checkout) -> None:
    _, old, _ = made.set_up()
    before = (made.root / LOCKS[0]).stat()
    (made.root / LOCKS[0]).write_text("# other\n")
    os.utime(made.root / LOCKS[0], ns=(0, before.st_mtime_ns - 10**9))  # an older time is another time too
    _, new, _ = made.set_up()
    assert new != old
    assert os.access(old, os.X_OK)

    (made.root / LOCKS[0]).write_text("# 0\n")
    assert made.set_up()[1] == old  # back again: what is complete is taken as it is
    assert made.builds() == 2


@pytest.mark.parametrize("kind", ["runtime", "test"])
def test_a_lock_file_with_a_new_time_and_the_same_text_costs_no_build(made: Checkout, kind: str) -> None:
    _, python, _ = made.set_up(kind)
    for lock in LOCKS:
        os.utime(made.root / lock)
    assert made.set_up(kind) == (0, python, "")
    assert (made.root / LOCKS[0]).stat().st_mtime_ns == (made.root / ".venv" / "cross-agent-stamp").stat().st_mtime_ns


def test_a_moved_and_a_copied_checkout_get_their_own(made: Checkout, tmp_path: Path) -> None:
    _, python, _ = made.set_up()
    copied = Checkout(tmp_path / "copied", made.path, made.log)
    shutil.copytree(made.root, copied.root, symlinks=True)
    assert copied.set_up()[1].startswith(f"{copied.root}/")
    moved = Checkout(tmp_path / "moved", made.path, made.log)
    made.root.rename(moved.root)
    assert not Path(python).exists()
    assert moved.set_up()[1].startswith(f"{moved.root}/")


def test_an_interpreter_that_went_away_is_replaced(made: Checkout) -> None:
    _, python, _ = made.set_up()
    text = (made.root / ".venv" / "cross-agent-stamp").read_text()
    (made.root / ".venv" / "cross-agent-stamp").write_text(text.replace("os.py", "gone.py"))
    assert made.set_up()[:2] == (0, python)
    assert made.builds() == 2


def test_old_environments_go_unless_something_runs_from_them(
    made: Checkout, running: Callable[..., subprocess.Popen[str]]
) -> None:
    used: list[str] = []
    for number in range(4):
        (made.root / LOCKS[0]).write_text(f"# {number} of the list\n")
        status, python, messages = made.set_up()
        assert status == 0, messages
        used.append(Path(python).parents[1].name)
        if number == 0:
            running(subprocess.Popen([python, "-c", "input()"], stdin=subprocess.PIPE, text=True, start_new_session=True))
    assert made.environments() == {used[0], used[2], used[3]}


def test_a_directory_of_somebody_else_is_left_alone(made: Checkout) -> None:
    (made.root / ".venv").mkdir()
    (made.root / ".venv" / "theirs").touch()
    status, _, messages = made.set_up()
    assert status != 0
    assert "is not of this program's making" in messages
    assert [entry.name for entry in (made.root / ".venv").iterdir()] == ["theirs"]


def test_a_checkout_that_cannot_be_written_says_so() -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        made = checkout(Path(name))
        made.provide_python()
        Path(name).chmod(0o755)
        made.root.chmod(0o555)
        nobody = 65534 if os.geteuid() == 0 else None  # root writes everywhere
        status, _, messages = made.set_up(user=nobody)
        made.root.chmod(0o755)
    assert status != 0
    assert "is not writable, and its environment is missing or out of date" in messages


# --- One at a time


def test_of_two_at_once_one_builds_and_the_other_waits(
    made: Checkout, gate: Path, running: Callable[..., subprocess.Popen[str]]
) -> None:
    first = running(made.start("runtime", GATE=str(gate)))
    read_until(first, "setting up")
    second = running(made.start("runtime", GATE=str(gate)))
    read_until(second, "waiting for another set-up")
    assert not (made.root / ".venv").exists()
    open_gate(gate)
    outputs = [process.communicate(timeout=PATIENCE)[0] for process in (first, second)]
    assert outputs[0] == outputs[1] != ""
    assert made.builds() == 1
    assert not (made.root / ".venv-lock").is_symlink()


def test_the_wait_has_an_end(made: Checkout, gate: Path, running: Callable[..., subprocess.Popen[str]]) -> None:
    read_until(running(made.start("runtime", GATE=str(gate))), "setting up")
    owner = os.readlink(made.root / ".venv-lock").split(":")[0]
    status, _, messages = made.set_up(lock_patience="1")
    assert status != 0
    assert f"another set-up (process {owner}) does not come to an end" in messages
    assert (made.root / ".venv-lock").is_symlink()


@pytest.mark.parametrize(
    "owner", ["999999999:1", f"{os.getpid()}:1", "", "nobody"], ids=["ended", "number taken again", "empty", "odd"]
)
def test_a_lock_whose_owner_has_ended_is_taken_over(made: Checkout, owner: str) -> None:
    if owner:
        (made.root / ".venv-lock").symlink_to(owner)
    status, _, messages = made.set_up()
    assert status == 0, messages
    assert made.environments() == {os.readlink(made.root / ".venv")}


@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_set_up_that_was_stopped_leaves_nothing_that_stops_the_next(
    made: Checkout, gate: Path, running: Callable[..., subprocess.Popen[str]], ending: signal.Signals
) -> None:
    stopped = running(made.start("runtime", GATE=str(gate)))
    read_until(stopped, "setting up")
    os.killpg(stopped.pid, ending)
    stopped.communicate(timeout=PATIENCE)  # to the end of its last process
    assert stopped.returncode != 0
    assert ending == signal.SIGKILL or not (made.root / ".venv-lock").is_symlink()
    status, _, messages = made.set_up()
    assert status == 0, messages
    assert "waiting" not in messages


# --- What is missing is said


def test_without_a_python_that_is_new_enough(tmp_path: Path) -> None:
    made = checkout(tmp_path)
    status, _, messages = made.set_up()
    assert status != 0
    assert "Python 3.10 or newer is missing on PATH: there is no python3 at all" in messages

    executable(made.path / "python3", "#!/bin/sh\necho 3.9.18; exit 3\n")
    status, _, messages = made.set_up()
    assert status != 0
    assert "Python 3.10 or newer is missing on PATH: python3 is 3.9.18, and no python3.14 to python3.10" in messages

    made.provide_python("python3.12")  # the first that will do
    made.provide_uv()
    assert made.set_up()[0] == 0


def test_without_the_means_to_make_an_environment(tmp_path: Path) -> None:
    made = checkout(tmp_path)
    executable(made.path / "python3", "#!/bin/sh\nexit 4\n")
    status, _, messages = made.set_up()
    assert status != 0
    assert "python3 has no venv with pip" in messages and "python3-venv" in messages
    assert made.environments() == set()


def test_a_failed_install_leaves_the_environment_that_was_there(made: Checkout) -> None:
    _, python, _ = made.set_up()
    (made.path / "uv").unlink()
    (made.root / LOCKS[0]).write_text("no-such-distribution-of-cross-agent @ file:///nonexistent/nothing.whl\n")
    status, _, messages = made.set_up()
    assert status != 0
    assert "nothing.whl" in messages
    assert f".venv-{python.split('/.venv-')[1]}" == f"{os.readlink(made.root / '.venv')}/bin/python"
    assert made.environments() == {os.readlink(made.root / ".venv")}
