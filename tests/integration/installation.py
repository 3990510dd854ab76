"""A throw-away installation of the shims, and the scripted children that stand in for agents.

Owns copies: the launchers as they are, the rooms by link, a stamp that names the interpreter of the tests. What a test
breaks is its own copy.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CHILDREN = Path(__file__).resolve().parent / "children"
LAUNCHERS = {"claude": "claude-shim", "codex": "codex-shim", "grok": "grok-shim"}
PANEL_CALLS = {"claude": ("--input-format", "stream-json"), "codex": ("app-server",), "grok": ("agent", "stdio")}


@dataclass(frozen=True, slots=True)
class Installation:
    """A checkout's shape: ``bin``, the rooms, and ``.venv`` with its stamp."""

    root: Path

    @property
    def stamp(self) -> Path:
        return self.root / ".venv" / "cross-agent-stamp"

    def launcher(self, agent: str) -> Path:
        return self.root / "bin" / LAUNCHERS[agent]

    def write_stamp(self, python: str, library: str = os.__file__) -> None:
        self.stamp.parent.mkdir(exist_ok=True)
        self.stamp.write_text(f"{python}\n{library}\n")


def install(root: Path) -> Installation:
    (root / "bin").mkdir(parents=True)
    shutil.copy(ROOT / "bin" / "claude-shim", root / "bin" / "claude-shim")
    for name in ("codex-shim", "grok-shim"):
        (root / "bin" / name).symlink_to("claude-shim")
    for room in ("shims", "broker"):
        (root / room).symlink_to(ROOT / room)
    installation = Installation(root)
    installation.write_stamp(sys.executable)
    return installation


def make_child(name: str, directory: Path, *, as_name: str = "") -> Path:
    """The program ``children/<name>.py`` as an executable file; starts in a few milliseconds."""
    child = directory / (as_name or name)
    source = (CHILDREN / f"{name}.py").read_text()
    child.write_text(f"#!{sys.executable} -IS\n{source}")
    child.chmod(0o755)
    return child


@dataclass(frozen=True, slots=True)
class Shim:
    """One of the shims in front of a scripted child, as its editor calls it."""

    agent: str
    installation: Installation
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def launcher(self) -> Path:
        return self.installation.launcher(self.agent)

    def panel(self, child: Path) -> tuple[list[str], dict[str, str]]:
        """Command and environment of a panel call."""
        return self.plain(child, *PANEL_CALLS[self.agent])

    def plain(self, child: Path, *arguments: str) -> tuple[list[str], dict[str, str]]:
        """Command and environment of any call."""
        if self.agent == "claude":
            return [str(self.launcher), str(child), *arguments], dict(self.environment)
        return [str(self.launcher), *arguments], {**self.environment, f"CROSS_AGENT_REAL_{self.agent.upper()}": str(child)}
