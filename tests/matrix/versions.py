"""Which versions of an agent are there: npm is asked.

Owns the choice of rows: finished releases by version order, newest first, and the pinned ones after them.
"""

from __future__ import annotations

import json
import re
import subprocess
from typing import TYPE_CHECKING, Final

from tests.real.binaries import AGENTS, PACKAGES, BinaryMissingError, npm_command
from tests.real.stories import numbers

if TYPE_CHECKING:
    from collections.abc import Iterable

FINISHED: Final = re.compile(r"\d+\.\d+\.\d+")
"""No alpha, no beta, and no package of one platform (``0.171.0-linux-x64``)."""
LAST: Final = 10
PATIENCE: Final = 120


def published(agent: str) -> list[str]:
    """Every finished release, newest first.

    Raises:
        BinaryMissingError: npm is not there, or does not answer.
    """
    command = [*npm_command(), "view", PACKAGES[agent][0], "versions", "--json"]
    try:
        asked = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE, check=True)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        raise BinaryMissingError(f"npm does not say which versions of {PACKAGES[agent][0]} there are: {error}") from error
    listed = json.loads(asked.stdout)
    return finished([listed] if isinstance(listed, str) else listed)  # npm unwraps a list of one


def finished(versions: Iterable[str]) -> list[str]:
    """Those that are finished releases, newest first."""
    return sorted(filter(FINISHED.fullmatch, versions), key=numbers, reverse=True)


def with_pinned(agent: str, versions: Iterable[str]) -> list[str]:
    """``versions`` and what the tests pin of ``agent``."""
    pinned = {release.version for release in AGENTS.values() if release.kind == agent}
    return sorted(pinned.union(versions), key=numbers, reverse=True)
