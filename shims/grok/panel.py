"""Attending a Grok panel: one process, many sessions; everything is in the stream."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from shims.grok import live
from shims.grok.stream import GrokStream
from shims.link import Launched, Link

if TYPE_CHECKING:
    from shims.observe import Observer
    from shims.relay import Relay


def attend(relay: Relay, observer: Observer, real: str, arguments: list[str]) -> Link:
    """The link of a panel that has just been started."""
    stream = GrokStream(cwd=os.getcwd())
    launched = Launched("grok", "stdio", real, tuple(arguments), live.store(os.environ))
    return Link(launched, relay, observer, stream, look_up=lambda: None)
