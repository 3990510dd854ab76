"""Attending a Codex panel: one app-server, many threads; everything is in the stream."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from shims.codex import live
from shims.codex.stream import CodexStream
from shims.link import Launched, Link

if TYPE_CHECKING:
    from shims.observe import Observer
    from shims.relay import Relay


def attend(relay: Relay, observer: Observer, real: str, arguments: list[str]) -> Link:
    """The link of a panel that has just been started."""
    stream = CodexStream(cwd=os.getcwd())
    launched = Launched("codex", "app-server", real, tuple(arguments), live.store(os.environ))
    return Link(launched, relay, observer, stream, look_up=lambda: None)
