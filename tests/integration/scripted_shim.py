"""A shim that answers orders as a test says: for the answers that a real one gives only once in a blue moon.

Owns one connection to the broker from the test's own process, and the rule that stages are told until they are acknowledged
(it keeps the real `Ledger`). No agent stands behind it.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

from broker.client import Client
from broker.paths import Home
from broker.wire import Ask, Inject, Message, Register, SessionState, StageName, StageSeen, State, Welcome, Withdraw
from shims.ledger import Ledger
from tests.integration.lines import PATIENCE

Step = tuple[StageName, dict[str, str]]


class ScriptedShim:
    """A panel of ``agent`` with one session. Starts no broker: this process carries no fail points.

    Args:
        script: what is reported for the n-th order (counted from 0), stage by stage.
        taken_back: what is reported when the broker wants a message back.
    """

    def __init__(
        self,
        home: Home,
        store: Path,
        session: SessionState,
        script: Callable[[int, Inject], list[Step]],
        taken_back: tuple[Step, ...] = (),
        agent: str = "codex",
    ) -> None:
        self._agent = agent
        self._store = store
        self.session = session.id
        self._state = self._said = session
        self._script = script
        self._taken_back = taken_back
        self._ledger = Ledger()
        self.orders: list[Inject] = []
        self._welcomed = False
        self._news = threading.Condition()
        self._client = Client(
            home, hello=self._hello, received=self._received, woken=self._tell, autostart=False, note=lambda _: None
        )
        self._thread = threading.Thread(target=self._client.run, daemon=True)
        self._thread.start()

    @property
    def agent(self) -> str:
        return self._agent

    def close(self) -> None:
        self._client.stop()
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()

    def wait_welcome(self) -> None:
        """A process that registers ends its other connections: ask the broker nothing from here before."""
        with self._news:
            assert self._news.wait_for(lambda: self._welcomed, PATIENCE)

    def change(self, session: SessionState) -> None:
        """The session is another way now."""
        self._state = session
        self._client.wake()

    # in the client's thread

    def _hello(self) -> Register:
        self._said = self._state
        return Register(
            agent=self._agent,
            version="test",
            cwd="/",
            mode="app-server",
            real="/bin/false",
            child=os.getpid(),
            sessions=(self._state,),
            closing=False,
            attempts=self._ledger.attempts(),
            reports=self._ledger.unacknowledged(),
            store=str(self._store),
        )

    def _received(self, message: Message) -> None:
        if isinstance(message, Inject) and self._ledger.accept(message.attempt):
            steps = self._script(len(self.orders), message)
            with self._news:
                self.orders.append(message)
                self._news.notify_all()
            self._report(message.attempt, steps)
        elif isinstance(message, Welcome):
            with self._news:
                self._welcomed = True
                self._news.notify_all()
        elif isinstance(message, Ask):
            self._ledger.ask(message.attempt)
        elif isinstance(message, Withdraw):
            self._report(message.attempt, list(self._taken_back))
        elif isinstance(message, StageSeen):
            self._ledger.seen(message.number)
            if self._ledger.settled():
                self._client.send(State((self._state,)))  # something has changed: queues may go on
        self._tell()

    def _report(self, attempt: str, steps: list[Step]) -> None:
        for stage, detail in steps:
            self._ledger.report(attempt, stage, **detail)  # type: ignore[arg-type]

    def _tell(self) -> None:
        for report in self._ledger.take_unsent():
            self._client.send(report)
        if self._said is not self._state:
            self._said = self._state
            self._client.send(State((self._state,)))
