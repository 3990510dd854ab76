"""Throw-away checkouts and interpreters for the tests of set-up and packaging.

Owns copies: what a test builds, breaks or starts is its own. The real checkout is only read, and its environment only
linked to.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("broker", "shims", "mcp_server", "copilot")
LOCKS = ("requirements.lock", "requirements-test.lock")

PATIENCE = 60.0
"""Seconds for anything that makes a virtual environment; most take less than one."""

_COMMANDS = (
    "sh",
    "cat",
    "cksum",
    "date",
    "dirname",
    "ln",
    "ls",
    "mkdir",
    "mv",
    "ps",
    "readlink",
    "rm",
    "rmdir",
    "sleep",
    "tail",
    "touch",
)
"""All that the scripts may call: what is not in this list is not there in the tests."""

_UV = """#!/bin/sh
# Stands in for uv: an environment without packages. Waits for a writer on $GATE first, if there is one.
echo "$*" >>"{log}"
case $1 in
  venv) for last; do :; done
    [ -z "${{GATE-}}" ] || read -r _ <"$GATE"
    exec "{python}" -I -m venv --without-pip "$last" ;;
  python) exit 1 ;;
esac
"""


@dataclass(frozen=True, slots=True)
class Checkout:
    """A copy of the checkout, and a PATH that holds nothing but what the scripts may use."""

    root: Path
    path: Path
    log: Path

    def environment(self, **variables: str) -> dict[str, str]:
        kept = {
            name: value for name, value in os.environ.items() if name.startswith(("PIP_", "CROSS_AGENT_TEST_", "SSL_", "HTTP"))
        }
        return {**kept, "PATH": str(self.path), "HOME": str(self.root.parent), **variables}

    def start(self, kind: str, *, user: int | None = None, **variables: str) -> subprocess.Popen[str]:
        """Starts a set-up in a process group of its own; it prints the interpreter at the end."""
        script = '_xa_root=$1; . "$_xa_root/bin/environment.sh"; ensure_environment "$2" && echo "$_xa_python"'
        return subprocess.Popen(
            ["sh", "-c", script, "sh", str(self.root), kind],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self.environment(**variables),
            start_new_session=True,
            user=user,
            # A run of the tests in the background has made it ignored, for all below it.
            preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
        )

    def set_up(
        self, kind: str = "runtime", *, user: int | None = None, timeout: float = PATIENCE, **variables: str
    ) -> tuple[int, str, str]:
        """Exit status, interpreter, messages."""
        with self.start(kind, user=user, **variables) as process:
            output, errors = process.communicate(timeout=timeout)
        return process.returncode, output.strip(), errors

    def builds(self) -> int:
        return sum(line.startswith("venv ") for line in self.log.read_text().splitlines()) if self.log.exists() else 0

    def provide_python(self, name: str = "python3") -> None:
        (self.path / name).symlink_to(base_python())

    def provide_uv(self) -> None:
        executable(self.path / "uv", _UV.format(log=self.log, python=base_python()))

    def environments(self) -> set[str]:
        return {entry.name for entry in self.root.glob(".venv-*")}


def checkout(parent: Path, *, locks: bool = False) -> Checkout:
    """A copy below ``parent``; its lock files pin nothing unless ``locks``."""
    made = Checkout(parent / "a checkout", parent / "path", parent / "uv.log")
    made.root.mkdir()
    made.path.mkdir()
    shutil.copytree(ROOT / "bin", made.root / "bin", symlinks=True)
    for room in filter(lambda name: (ROOT / name).exists(), ROOMS):
        shutil.copytree(ROOT / room, made.root / room, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", ".gitignore", *LOCKS):
        shutil.copy(ROOT / name, made.root / name)
    if not locks:
        for number, name in enumerate(LOCKS):
            (made.root / name).write_text(f"# {number}\n")
    for command in _COMMANDS:
        found = shutil.which(command)
        assert found is not None, command
        (made.path / command).symlink_to(found)
    return made


def base_python() -> str:
    """The interpreter behind the virtual environment of the tests."""
    return getattr(sys, "_base_executable", None) or sys.executable


def executable(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o755)
    return path


def make_venv(directory: Path, *, linked: bool = True) -> Path:
    """A virtual environment, with the packages of the running one if ``linked``; returns its site-packages."""
    subprocess.run(
        [base_python(), "-I", "-m", "venv", "--without-pip", str(directory)],
        check=True,
        stdin=subprocess.DEVNULL,
        timeout=PATIENCE,
    )
    packages = directory / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
    if linked:
        link_packages(packages)
    return packages


def link_packages(packages: Path) -> None:
    """What the running environment has and ``packages`` has not, by link."""
    for scheme in {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}:
        for entry in Path(scheme).iterdir():
            if not (packages / entry.name).exists() and entry.name not in {*ROOMS, "__pycache__"}:
                (packages / entry.name).symlink_to(entry)


def stamp(made: Checkout, directory: Path) -> None:
    """Declares ``directory``, made by `make_venv`, the complete test environment of ``made``."""
    (made.root / ".venv").symlink_to(directory)
    for name, lock, text in (
        ("cross-agent-stamp", LOCKS[0], f"{directory}/bin/python\n{os.__file__}\nkey\n"),
        ("cross-agent-test-stamp", LOCKS[1], "key\n"),
    ):
        (directory / name).write_text(text)
        times = (made.root / lock).stat()
        os.utime(directory / name, ns=(times.st_atime_ns, times.st_mtime_ns))
