"""Attending a Claude Code panel: the tracker, and what only files can tell it.

Owns the meeting of `ClaudeStream` with the live registry; runs in the link thread.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from shims.claude import command, live
from shims.claude.stream import ClaudeStream
from shims.link import Launched, Link

if TYPE_CHECKING:
    from shims.observe import Observer
    from shims.relay import Relay


def attend(relay: Relay, observer: Observer, real: str, arguments: list[str]) -> Link:
    """The link of a panel that has just been started."""
    session, resumed = command.session(arguments)
    replays = "--replay-user-messages" in arguments
    # Only a host that draws what it did not ask for may get a turn that it did not ask for (SH-44).
    renders = replays or os.environ.get("CLAUDE_CODE_ENTRYPOINT") == "claude-vscode"
    stream = ClaudeStream(session=session, resumed=resumed, cwd=os.getcwd(), renders=renders, replays=replays, opened=time.time())
    store = live.store(os.environ)

    def look_up() -> None:
        with observer.lock:
            wanted, pid = stream.look_up_registry, stream.cli_pid or relay.pid
            stream.look_up_registry = False
        record = live.read(store, pid) if wanted else None
        if record is not None:
            with observer.lock:
                stream.registered(record.session, record.name, record.name_given)

    launched = Launched("claude", "stream-json", real, tuple(arguments), store)
    return Link(launched, relay, observer, stream, look_up)
