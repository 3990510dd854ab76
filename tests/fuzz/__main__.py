"""``python -m tests.fuzz [target …] [--seconds N | --runs N] [--replay FILE …]``: fuzzes the byte path and the trackers.

Each target for 60 seconds if nothing is said; ``--runs`` begins with the same seed and nothing else every time. The command
ends with 1 if a play broke a rule: that play lies below ``.fuzz/`` then, and ``--replay`` plays it again. What has been
reached is kept there as well, and the next ``--seconds`` begin with it.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

from tests.fuzz import engines
from tests.fuzz.targets import TARGETS

TAIL: Final = 40
"""Lines of an engine's words that are shown when it has found something."""

PROGRESS: Final = re.compile(r"#\d+\s|INFO: ")
"""How lines begin that nobody needs then."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=(__doc__ or "").split("\n\n")[1])
    parser.add_argument("targets", nargs="*", metavar="target", help=f"{', '.join(TARGETS)}; all if none is named")
    parser.add_argument("--seconds", type=int, default=60, help="for each target")
    parser.add_argument("--runs", type=int, default=0, help="plays of each target, instead of seconds")
    parser.add_argument("--engine", choices=sorted(engines.ENGINES), default=engines.best(), help="atheris where it is installed")
    parser.add_argument("--replay", type=Path, nargs="+", default=[], metavar="FILE", help="plays files, and nothing else")
    parser.add_argument("--keep", type=Path, default=Path(".fuzz"), metavar="DIRECTORY", help="where everything is kept (.fuzz)")
    wanted = parser.parse_args()
    targets = wanted.targets or list(TARGETS)
    if not TARGETS.keys() >= set(targets):
        parser.error(f"targets are {', '.join(TARGETS)}")
    if wanted.replay:
        for target in targets:
            for path in wanted.replay:
                TARGETS[target](path.read_bytes())
        return 0
    found = [target for target in targets if not fuzz(target, wanted.engine, wanted.runs, wanted.seconds, wanted.keep / target)]
    return 1 if found else 0


def fuzz(target: str, engine: str, runs: int, seconds: int, directory: Path) -> bool:
    """False if something was found, or if the engine could not do it; its last words are shown then."""
    directory.mkdir(parents=True, exist_ok=True)
    print(f"{target}: {f'{runs} plays' if runs else f'{seconds} s'} with {engine}", flush=True)
    log = directory / "log"
    command = [sys.executable, "-m", "tests.fuzz.engines", engine, target, str(runs), str(seconds), str(directory)]
    with log.open("wb") as said:
        same = {**os.environ, "PYTHONHASHSEED": "0"}  # what is reached must not depend on the order in a set
        status = subprocess.run(command, stdout=said, stderr=subprocess.STDOUT, env=same, check=False).returncode
    if status:
        lines = [line for line in log.read_text(errors="replace").splitlines() if not PROGRESS.match(line)]
        print("\n".join(lines[-TAIL:]), f"\n{target}: ended with {status}; {directory} has the play and the log", flush=True)
    return not status


if __name__ == "__main__":
    sys.exit(main())
