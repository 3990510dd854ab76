"""The link thread of a shim: everything heavy, and everything that may wait, away from the byte path.

Owns the thread that loads the tracker and ZeroMQ while the agent boots (SH-09), keeps the connection to the broker, the
presence record and the log. Whatever fails here is noted and leaves a shim that passes bytes (SH-07, SH-08).
"""

from __future__ import annotations

import _thread
import os
from collections.abc import Callable
from typing import NamedTuple

from broker import VERSION
from broker.client import Client
from broker.errors import CrossAgentError
from broker.failpoints import fail_point
from broker.paths import find_home
from broker.wire import Message, Register, StageReport, Welcome
from shims.journal import Journal
from shims.observe import Observer
from shims.panel import Panel
from shims.presence import PresenceRecord
from shims.relay import Relay
from shims.stream import Stream

_LAST_WORDS = 0.25
"""Seconds that a shim waits at exit for its last stages to be acknowledged; the agent's records tell the rest."""


class Launched(NamedTuple):
    """What was started: agent name, class of command line, real binary, its arguments, the agent's data directory."""

    agent: str
    mode: str
    real: str
    arguments: tuple[str, ...]
    store: str


class Link:
    """Attends one panel, from a thread of its own.

    Args:
        stream: the agent's tracker.
        look_up: called in this thread after facts came in: may ask files about the session and tell the tracker.
    """

    def __init__(self, launched: Launched, relay: Relay, observer: Observer, stream: Stream, look_up: Callable[[], None]) -> None:
        self._launched = launched
        self._relay = relay
        self._observer = observer
        self._look_up = look_up
        self._home = find_home()
        trouble = self._prepare_home()
        self._ending = False
        self._ended = _thread.allocate_lock()
        self._ended.acquire()
        self._journal = Journal(os.path.join(self._home.logs, f"shim-{launched.agent}.log"))
        if trouble:
            self._journal.note(trouble)
        self._prompts: dict[str, str] = {}
        self._presence: PresenceRecord | None = None
        self._cwd = os.getcwd()
        self._client = Client(
            self._home,
            hello=self._hello,
            received=self._received,
            woken=self._woken,
            autostart=os.environ.get("CROSS_AGENT_AUTOSTART", "").lower() not in ("0", "false", "no", "off"),
            note=self._journal.note,
        )
        self.panel = Panel(stream, observer, write=relay.inject, wake=self._client.wake, note=self._journal.note)
        observer.attach(stream, self.panel.observed)

    def run(self) -> None:
        """The thread."""
        try:
            self._journal.note(f"started {self._launched.real} as {self._relay.pid}, {self._launched.mode}")
            self._client.run()
        except Exception as error:  # the agent must not notice whatever is wrong here (SH-07)
            self._observer.switch_off(f"the link failed: {type(error).__name__}")
            self._journal.note(self._observer.off_because)
        finally:
            if self._presence is not None:
                self._presence.remove()
            self._ended.release()

    def end(self) -> None:
        """The agent has ended: says so, waits briefly to be heard, and leaves nothing behind. Called once, elsewhere."""
        self.panel.agent_ended(input_ended=self._relay.input_ended)
        self._ending = True
        self._client.wake()
        self._ended.acquire(timeout=_LAST_WORDS)

    # called by the client, in the link thread

    def _hello(self) -> Register:
        launched = self._launched
        return self.panel.registration(
            agent=launched.agent,
            version=VERSION,
            cwd=self._cwd,
            mode=launched.mode,
            real=launched.real,
            child=self._relay.pid,
            store=launched.store,
        )

    def _received(self, message: Message) -> None:
        if isinstance(message, Welcome):
            self.panel.welcomed(message.generation)
        self.panel.received(message)

    def _woken(self) -> None:
        self._look_up()
        self._keep_presence()
        messages = self.panel.outgoing()
        self._note_prompts()
        for message in messages:
            told = isinstance(message, StageReport)
            if told:
                fail_point("shim.stage.before")
            self._client.send(message)
            if told:
                fail_point("shim.stage.after")
        if self._ending and (self._client.record is None or self.panel.settled()):
            self._client.stop()

    def _prepare_home(self) -> str:
        """Why the home can't be used, empty when it can: the agent goes on either way (SH-08)."""
        try:
            self._home.prepare()
        except (CrossAgentError, OSError) as error:
            return f"the state directory cannot be used: {error}"
        return ""

    def _keep_presence(self) -> None:
        try:
            if self._presence is None:
                facts = self._launched
                self._presence = PresenceRecord(
                    self._home.shims, agent=facts.agent, real=facts.real, child=self._relay.pid, cwd=self._cwd
                )
                self._record_real()
            self._presence.update(tuple(state.id for state in self.panel.sessions() if state.id))
        except OSError:
            pass  # a home that takes no files: the connection alone tells (SH-08)

    def _record_real(self) -> None:
        """The launcher falls back to this path when there is no interpreter any more (SH-16)."""
        path = self._home.real_binary_record(self._launched.agent)
        with open(os.open(f"{path}.{os.getpid()}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(os.fsencode(self._launched.real))
        os.replace(f"{path}.{os.getpid()}", path)

    def _note_prompts(self) -> None:
        """When an approval prompt appeared and when it was gone (SH-10)."""
        waiting = {state.id: state.approval.tool for state in self.panel.sessions() if state.approval is not None}
        for session, tool in waiting.items():
            if session not in self._prompts:
                self._journal.note(f"{session} waits for approval: {tool}")
        for session in self._prompts:
            if session not in waiting:
                self._journal.note(f"{session} approval answered")
        self._prompts = waiting
