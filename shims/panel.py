"""One live panel: orders of the broker in, stages and states out, lines for the agent in between.

Owns the rules that hold for every agent (SH-30 to SH-34): an order is checked for its generation, its deadline and its
session, one message is under way per session, and nothing is written twice. Protocol knowledge is the tracker's, attempts
are the ledger's, bytes are the relay's. No I/O of its own; every method may be called from any thread.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from broker.clock import boot_clock
from broker.failpoints import fail_point
from broker.wire import Ask, Forget, Inject, Message, Register, SessionState, StageName, StageSeen, State, Withdraw
from shims.ledger import Ledger
from shims.relay import Line
from shims.stream import Finished, Progress, Rejected, Stream, Taken, Write

if TYPE_CHECKING:
    from shims.observe import Observer


class Panel:
    """The link's view of one intercepted agent process.

    Args:
        stream: the agent's tracker.
        observer: whose lock guards the tracker.
        write: puts a line into the agent's stdin between two of the editor's (`Relay.inject`).
        wake: asks the link thread to call `outgoing` soon.
        note: takes one line for the log.
    """

    def __init__(
        self,
        stream: Stream,
        observer: Observer,
        *,
        write: Callable[[Line], None],
        wake: Callable[[], None],
        note: Callable[[str], None],
    ) -> None:
        self._stream = stream
        self._observer = observer
        self._lock = observer.lock
        self._write = write
        self._wake = wake
        self._note = note
        self._ledger = Ledger()
        self._generation = 0
        self._not_after: dict[str, float] = {}
        """Orders that are not written yet, and until when they may be; their text is the tracker's."""
        self._published: tuple[SessionState, ...] = ()
        self._published_closing = False
        self._closing = False
        self._pending: list[Write] = []
        self._notes: deque[str] = deque()

    # called by the observer, with the lock held

    def observed(self) -> None:
        """The tracker has seen lines: what they mean for injections is noted, and the link is woken if anything changed."""
        self._collect()
        if (
            self._stream.look_up_registry
            or self._stream.sessions() != self._published
            or self._is_closing() != self._published_closing
        ):
            self._wake()

    def closing(self) -> None:
        """The editor wants the agent to end; nothing is begun any more. Called from a signal handler: takes no lock."""
        self._closing = True
        self._wake()

    # called by the link

    def registration(self, **facts: str | int) -> Register:
        """The first message of a connection."""
        with self._lock:
            self._published = self._stream.sessions()
            self._published_closing = self._is_closing()
            return Register(
                sessions=self._published,
                closing=self._published_closing,
                attempts=self._ledger.attempts(),
                reports=self._ledger.unacknowledged(),
                **facts,  # type: ignore[arg-type]
            )

    def received(self, message: Message) -> None:
        """A message of the broker's."""
        if isinstance(message, Inject):
            self._order(message)
        elif isinstance(message, Ask):
            with self._lock:
                if message.generation >= self._generation:
                    self._ledger.ask(message.attempt)
        elif isinstance(message, Withdraw):
            with self._lock:
                if message.generation >= self._generation:
                    self._stream.withdraw(message.attempt)
                    self._collect()
        elif isinstance(message, Forget):
            with self._lock:
                if message.generation >= self._generation and self._ledger.settle(message.attempt):
                    self._not_after.pop(message.attempt, None)
                    self._stream.forgotten(message.attempt)
        elif isinstance(message, StageSeen):
            with self._lock:
                self._ledger.seen(message.number)
        self._flush()
        self._wake()

    def welcomed(self, generation: int) -> None:
        with self._lock:
            self._generation = max(self._generation, generation)

    def outgoing(self) -> list[Message]:
        """What the broker should be told now; and what there is to note, is noted."""
        self._flush()
        while self._notes:
            self._note(self._notes.popleft())
        with self._lock:
            messages: list[Message] = [*self._ledger.take_unsent()]
            sessions = self._stream.sessions()
            closing = self._is_closing()
            if sessions != self._published or closing != self._published_closing:
                self._published = sessions
                self._published_closing = closing
                messages.append(State(sessions, closing))
            return messages

    def agent_ended(self, *, input_ended: bool) -> None:
        """The agent's process is gone: what it held is lost here, and its records must tell."""
        with self._lock:
            self._stream.agent_ended(input_ended=input_ended)
            self._collect()
            for attempt in self._ledger.open_attempts():
                self._report(attempt, StageName.LOST, code="agent_ended")
        self._wake()

    def sessions(self) -> tuple[SessionState, ...]:
        with self._lock:
            return self._stream.sessions()

    def settled(self) -> bool:
        with self._lock:
            return self._ledger.settled()

    # orders

    def _order(self, order: Inject) -> None:
        with self._lock:
            if not self._ledger.accept(order.attempt):
                return
            self._not_after[order.attempt] = order.not_after
            code = self._refusal(order) or self._stream.inject(order)
            if code:
                self._reject(order.attempt, code)
            self._collect()

    def _is_closing(self) -> bool:
        return self._closing or self._stream.ended

    def _refusal(self, order: Inject) -> str:
        if order.generation < self._generation:
            return "stale_generation"
        if boot_clock() > order.not_after:
            return "too_late"
        if self._is_closing():
            return "closed"
        return "not_observed" if self._observer.off_because else ""

    def _reject(self, attempt: str, code: str) -> None:
        self._not_after.pop(attempt, None)
        self._report(attempt, StageName.REJECTED, code=code)

    # between the tracker and the relay

    def _collect(self) -> None:
        progress, self._stream.progress = self._stream.progress, []
        for fact in progress:
            self._progressed(fact)
        writes, self._stream.writes = self._stream.writes, []
        self._pending += writes
        if progress or writes:
            self._wake()

    def _progressed(self, fact: Progress) -> None:
        if isinstance(fact, Taken):
            self._not_after.pop(fact.attempt, None)
            self._report(fact.attempt, StageName.TAKEN, session=fact.session, turn=fact.turn, shown=fact.shown)
        elif isinstance(fact, Finished):
            self._report(fact.attempt, StageName.FINISHED, status=fact.status, text=fact.text, turn=fact.turn)
        elif isinstance(fact, Rejected):
            self._reject(fact.attempt, fact.code)

    def _flush(self) -> None:
        """Gives collected lines to the relay; outside the lock, since the relay's threads take it in turn."""
        with self._lock:
            pending, self._pending = self._pending, []
        for write in pending:
            self._submit(write)

    def _submit(self, write: Write) -> None:
        def admit() -> bool:
            with self._lock:
                if not write.message:
                    return self._stream.may_write(write)
                late = boot_clock() > self._not_after.get(write.attempt, 0.0)
                closing = self._is_closing()
                if late or closing or not self._stream.may_write(write):
                    self._stream.dropped(write.attempt)
                    self._reject(write.attempt, "too_late" if late else "closed" if closing else "busy")
                    self._wake()
                    return False
            fail_point("shim.write.before")
            return True

        def written() -> None:
            if write.message:
                fail_point("shim.write.after")
                with self._lock:
                    self._report(write.attempt, StageName.WRITTEN)
                self._wake()

        def failed() -> None:
            if write.message:
                with self._lock:
                    self._not_after.pop(write.attempt, None)
                    self._stream.dropped(write.attempt)
                    self._report(write.attempt, StageName.LOST, code="agent_closed_its_input")
                self._wake()

        self._write(Line(write.data, admit=admit, written=written, failed=failed))

    def _report(self, attempt: str, stage: StageName, **detail: str | bool | None) -> None:
        if self._ledger.report(attempt, stage, **detail):  # type: ignore[arg-type]
            words = " ".join(str(detail[name]) for name in ("code", "status", "turn") if detail.get(name))
            self._notes.append(f"{attempt} {stage.value} {words}".rstrip())  # written by the link: a log may hang
