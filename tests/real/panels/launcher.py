"""The executable that a client is given as its agent: a POSIX sh script that starts a wrapper as an editor does.

Owns that one file in the throw-away home. It exists because the clients add the current environment to the one they are told
to use, and because they cannot put an argument in front of their own. It execs, so the wrapper has the pid that the client
sees.
"""

from __future__ import annotations

import os
import re
import shlex
import uuid
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from pathlib import Path

IDENTIFIER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def write_launcher(
    directory: Path,
    command: Sequence[str],
    environment: Mapping[str, str],
    *,
    client_names: Collection[str] = (),
    extra: Sequence[str] = (),
) -> Path:
    """A script that runs ``command``, the client's arguments, then ``extra``, in nothing but ``environment``.

    ``client_names`` are variables that the client sets itself and that therefore stay.
    """
    foreign = sorted(set(os.environ) - set(environment) - set(client_names))
    unset = [f"unset {name}" for name in foreign if IDENTIFIER.fullmatch(name)]
    line = " ".join(["exec", *map(shlex.quote, command), '"$@"', *map(shlex.quote, extra)])
    path = directory / f"launcher-{uuid.uuid4().hex[:8]}"
    path.write_text("\n".join(["#!/bin/sh", *unset, line, ""]), encoding="utf-8")
    path.chmod(0o755)
    return path
