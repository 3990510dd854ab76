"""What the Grok stub was started with: its command line and its environment. Touches no file.

Owns the reading of both command lines: ``agent stdio``, and ``--prompt-file`` for one turn without a client.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Final

VERSION: Final = "1.0.41"
LINGERS: Final = 0.3
"""Seconds between the end of input and the exit, in which nothing is read, said or recorded any more; but what runs goes on,
and what waits is begun. The real agent takes 2.1 to 4.1 of them; every test that closes a panel would wait for them."""
VALUED: Final = frozenset(
    (
        *("-m", "--model", "--reasoning-effort", "--effort", "--agent-profile", "--plugin-dir", "--grok-ws-origin"),
        *("--grok-ws-url", "--cli-chat-proxy-base-url", "--xai-api-base-url", "--debug-file", "--leader-socket"),
    )
)
FLAGS: Final = frozenset(("--reauth", "--always-approve", "--no-leader", "--debug"))
_ONLY: Final = "this stand-in for Grok runs `agent stdio` and `--prompt-file` only"
AFTER_STDIO: Final = frozenset(("--debug", "--debug-file", "--leader-socket"))


class Options:
    """One call. ``refused`` says why it is none of ``agent [options] stdio``."""

    __slots__ = ("always_approve", "cwd", "env", "given", "home", "lingers", "refused", "signed_in", "subagent")

    def __init__(self, argv: Sequence[str], env: Mapping[str, str]) -> None:
        self.env = env
        self.cwd = os.getcwd()
        self.home = env.get("GROK_HOME") or os.path.join(env.get("HOME") or os.path.expanduser("~"), ".grok")
        self.signed_in = bool(env.get("XAI_API_KEY"))
        self.lingers = float(env.get("STUB_GROK_LINGERS") or LINGERS)
        self.subagent = env.get("STUB_GROK_SUBAGENT") == "1"
        self.always_approve = False
        self.given: dict[str, str] = {}
        self.refused = self._read(list(argv))

    def _read(self, argv: list[str]) -> str:
        if argv[:1] != ["agent"]:
            return _ONLY
        words = argv[1:]
        stdio = False
        while words:
            word = words.pop(0)
            name, equals, _ = word.partition("=")
            if word == "stdio" and not stdio:
                stdio = True
                continue
            if name not in (AFTER_STDIO if stdio else VALUED | FLAGS):
                return f"unexpected argument '{word}' found"
            if name in VALUED and not equals:
                if not words:
                    return f"a value is required for '{name}' but none was supplied"
                words.pop(0)
            self.always_approve |= word == "--always-approve"
        return "" if stdio else _ONLY


MODES: Final = ("default", "acceptEdits", "auto", "dontAsk", "bypassPermissions", "plan")


class TurnOptions(Options):
    """One turn on the command line; the values as they were given, empty where they were not.

    Of the modes only ``bypassPermissions`` makes a difference to what a stand-in can run; any other counts more than the file.
    """

    __slots__ = ()

    def _read(self, argv: list[str]) -> str:
        self.given = dict.fromkeys(("prompt-file", "resume", "session-id", "output-format", "model", "permission-mode"), "")
        words = argv[:]
        while words:
            word = words.pop(0)
            name, equals, value = word.partition("=")
            if name[2:] not in self.given or not name.startswith("--"):
                return f"unexpected argument '{word}' found" if name.startswith("-") else _ONLY
            if not equals:
                if not words:
                    return f"a value is required for '{name}' but none was supplied"
                value = words.pop(0)
            self.given[name[2:]] = value
        if not self.given["prompt-file"] or self.given["output-format"] != "streaming-json":
            return f"{_ONLY}, the latter with `--output-format streaming-json`"
        mode = self.given["permission-mode"]
        self.always_approve = mode == "bypassPermissions"
        if mode and mode not in MODES:
            return f"invalid value '{mode}' for '--permission-mode <MODE>'\n  [possible values: {', '.join(MODES)}]"
        return ""
