"""A directory as somebody else's repository may be: modules that carry the names of what the programs import.

Owns the directory. Each module writes its name down when it is imported, and fails.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

_MODULES = (
    "click",
    "dataclasses",
    "json",
    "msgpack",
    "os",
    "selectors",
    "signal",
    "site",
    "sitecustomize",
    "usercustomize",
    "zmq",
)
_PACKAGES = ("broker", "copilot", "mcp", "mcp_server", "shims")
_TEXT = "open({log!r}, 'a').write(__name__ + ' ' + __file__ + chr(10))\nraise SystemExit('hostile')\n"


@dataclass(frozen=True, slots=True)
class Hostile:
    """Where the modules are, and what says that one of them ran."""

    directory: Path
    log: Path

    def environment(self) -> dict[str, str]:
        """Variables that put the directory on the path of every Python that heeds its environment."""
        named = {name: str(self.directory) for name in ("PYTHONPATH", "PYTHONHOME", "PYTHONUSERBASE")}
        return {**os.environ, **named, "PYTHONSTARTUP": str(self.directory / "json.py"), "PYTHONPLATLIBDIR": "hostile"}

    def heard(self) -> str:
        return self.log.read_text() if self.log.exists() else ""


def make_hostile(parent: Path) -> Hostile:
    made = Hostile(parent / "hostile", parent / "hostile.log")
    text = _TEXT.format(log=str(made.log))
    for package in _PACKAGES:
        (made.directory / package).mkdir(parents=True)
        for name in ("__init__", "__main__"):
            (made.directory / package / f"{name}.py").write_text(text)
    for module in _MODULES:
        (made.directory / f"{module}.py").write_text(text)
    return made
