"""What a person types: the program's own command line, in a process of its own."""

from __future__ import annotations

import os
import subprocess

from tests.integration.world import ROOT, World


def command(world: World, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(ROOT / "bin" / "cross-agent"), *arguments],
        env={**os.environ, **world.settings},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
