"""A note of what a search found, so that the launcher can start the agent without Python while nothing has changed.

Owns ``run/found-<agent>`` (SH-16). The launcher takes it only from the same parent with the same variables, and only if
every directory the search looked into is older than the note and every place it found empty is still empty: then the same
search would find the same. Written for plain calls alone, and only where a run directory exists. Loaded before the agent
runs: imports `os` and C modules only.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from shims.discover import Search
    from shims.launch import Product

VARIABLES = (
    "HOME",
    "PATH",
    "VSCODE_EXTENSIONS",
    "VSCODE_PORTABLE",
    "VSCODE_AGENT_FOLDER",
    "CLAUDE_CONFIG_DIR",
    "CODEX_HOME",
    "GROK_HOME",
)
"""What a search depends on beside the file system; bin/claude-shim has the same list in the same order."""


def state_directory(environment: Mapping[str, str]) -> str:
    """As `broker.paths.find_home` has it, which is too much to load here. Raises KeyError for a user without a passwd entry."""
    configured = environment.get("CROSS_AGENT_HOME", "").strip()
    if configured:
        return os.path.abspath(os.path.expanduser(configured))
    import pwd

    return f"{pwd.getpwuid(os.getuid()).pw_dir}/.cross-agent"


def find_and_note(product: Product, search: Search) -> str | None:
    """Searches, and notes what was found if that can be checked later."""
    try:
        note = f"{state_directory(search.environment)}/run/found-{product.name}"
        draft = f"{note}.{os.getpid()}"
        fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except (OSError, ValueError, KeyError):
        return search.find(product)  # no run directory, or none that can be written
    try:
        began = os.fstat(fd).st_mtime_ns  # by the clock of the file system, which the directories go by as well
        real = search.find(product)
        text = _text(search, real)
        if text and os.write(fd, text) == len(text):
            os.utime(fd, ns=(began, began))
            os.replace(draft, note)
        else:
            os.unlink(draft)
    except OSError:
        return search.find(product)
    finally:
        os.close(fd)
    return real


def _text(search: Search, real: str | None) -> bytes:
    """Variables, binary, ``+`` what must not be newer, ``-`` what must not be there, and a dot for its end.

    Empty where that would not be certain.
    """
    context = "|".join((str(os.getppid()), *(search.environment.get(name, "") for name in VARIABLES)))
    places = [*(f"+{place}" for place in search.looked_in), *(f"-{place}" for place in search.missing)]
    lines = list(dict.fromkeys((context, real or "", *places)))
    if not search.certain or any("\n" in line for line in lines) or any(place[1:2] != "/" for place in places):
        return b""
    return os.fsencode("\n".join((*lines, ".", ""))) if real else b""
