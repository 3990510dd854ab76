"""What most tests of the real agent host begin with, and what they read in its files afterwards.

Owns nothing: host, model and windows belong to the stack of the test.
"""

from __future__ import annotations

import json
import sqlite3
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.real.host.model import HostModel
from tests.real.host.process import AgentHost, Endpoint
from tests.real.host.recordings import Recorder

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.real.host.client import HostWindow
    from tests.real.host.protocol import Chat


@dataclass(frozen=True, slots=True)
class Scene:
    """A host, one window and a new chat in it, all recorded."""

    directory: Path
    model: HostModel
    host: AgentHost
    recorder: Recorder
    window: HostWindow
    chat: Chat
    stack: ExitStack

    def second_window(self, endpoint: Endpoint | None = None) -> HostWindow:
        return self.stack.enter_context(self.recorder.window(endpoint or self.host.endpoint))

    def second_host(self) -> AgentHost:
        return self.stack.enter_context(AgentHost(self.directory, self.model.url))

    def said(self) -> list[str]:
        """What the model was told, message by message."""
        return [text for request in self.model.requests for text in request.texts]


@contextmanager
def set_up(directory: Path, name: str) -> Iterator[Scene]:
    """A scene in ``directory``, recorded under ``name``."""
    with ExitStack() as stack:
        model = stack.enter_context(HostModel())
        host = stack.enter_context(AgentHost(directory, model.url))
        recorder = Recorder(name, directory)
        window = stack.enter_context(recorder.window(host.endpoint))
        yield Scene(directory, model, host, recorder, window, window.new_chat(host.cwd), stack)


def mappings(host: AgentHost, name: str, key: str) -> list[str]:
    """The runtime's sessions that one database of the host names under ``key``."""
    with closing(
        sqlite3.connect(f"{(host.user_data / 'agentSessionData' / name / 'session.db').as_uri()}?mode=ro", uri=True)
    ) as data:
        rows = data.execute("SELECT value FROM session_metadata WHERE key = ?", [key]).fetchall()
    return [json.loads(value)["sdkSessionId"] for (value,) in rows]


def events_of_turns(host: AgentHost, session: str) -> dict[str, str | None]:
    """For each turn of a session's default chat the runtime's event of its message."""
    with closing(sqlite3.connect(_database(host, session.partition(":/")[2]), uri=True)) as database:
        return dict(database.execute("SELECT id, event_id FROM turns"))


def _database(host: AgentHost, name: str) -> str:
    return f"{(host.user_data / 'agentSessionData' / name / 'session.db').as_uri()}?mode=ro"
