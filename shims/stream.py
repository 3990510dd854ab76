"""What a panel asks of an agent's stream tracker: one interface, implemented by ``shims/<agent>/stream.py``.

Owns the interface and the small records that cross it. A tracker is sans-I/O: lines in, facts and bytes out; no clock, no
file, no socket. The panel calls it under one lock, from any thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from broker.closing import closes_with as closes_with

if TYPE_CHECKING:
    from broker.wire import Inject, SessionState
    from shims.lines import Bulk


class Write(NamedTuple):
    """A whole line for the agent's stdin. ``message``: it carries the text of ``attempt`` (and not just a question of ours)."""

    data: bytes
    attempt: str
    message: bool = False


class Taken(NamedTuple):
    """The agent has shown that it holds the message of ``attempt``."""

    attempt: str
    session: str
    turn: str = ""
    shown: bool = True


class Finished(NamedTuple):
    """The turn of ``attempt`` ended: `completed`, `interrupted`, `declined`, `closed` or `failed`.

    ``text`` None: its words were not seen, or not all of them.
    """

    attempt: str
    status: str
    text: str | None
    turn: str = ""


class Rejected(NamedTuple):
    """The message of ``attempt`` is not, or not any more, in the agent's hands."""

    attempt: str
    code: str


Progress = Taken | Finished | Rejected


class Tracker(Protocol):
    """What observation needs of a stream tracker; called with its lock held, one line at a time.

    Lines come without their newline; a line over the parse bound comes as its beginning and its end, with ``whole`` False.
    ``now`` is wall-clock seconds.
    """

    @property
    def editor_markers(self) -> tuple[bytes, ...]: ...

    @property
    def agent_markers(self) -> tuple[bytes, ...]: ...

    def agent_bulk(self) -> Bulk: ...

    @property
    def agent_long(self) -> tuple[bytes, ...]: ...

    def from_editor(self, line: bytes, whole: bool, now: float) -> None: ...

    def from_agent(self, line: bytes, whole: bool, now: float) -> None: ...

    def editor_ended(self) -> None: ...

    # the sieve

    def outstanding(self) -> bool: ...

    def judge(self, start: bytes, whole: bool) -> str: ...

    def ahead(self) -> bytes:
        """Whole lines that the editor gets before the line that was judged last; asked once, when that one passes."""
        ...


class Stream(Tracker, Protocol):
    """One agent process's stdio, both directions.

    What a line means for injections is appended to `progress`, what must be written to `writes`; the panel empties both.
    """

    progress: list[Progress]
    writes: list[Write]
    ended: bool
    """The editor has closed its side: nothing can be injected any more."""
    look_up_registry: bool
    """The agent's live registry may say more now than the stream did: the link looks, and tells the tracker."""

    # what is known

    def sessions(self) -> tuple[SessionState, ...]: ...

    # injections

    def inject(self, order: Inject) -> str:
        """Begins to hand ``order`` over. Returns the code of a refusal, empty when it goes on in `writes`."""
        ...

    def may_write(self, write: Write) -> bool:
        """Asked right before ``write`` goes out: False where it would do harm now (a turn began meanwhile)."""
        ...

    def dropped(self, attempt: str) -> None:
        """The message of ``attempt`` was not written after all."""
        ...

    def forgotten(self, attempt: str) -> None:
        """The end of ``attempt`` was found elsewhere: its session is free. What the agent was asked, it will still answer."""
        ...

    def withdraw(self, attempt: str) -> None:
        """Tries to take back what waits in the agent; its answer shows as `Rejected`."""
        ...

    def agent_ended(self, *, input_ended: bool) -> None:
        """Its process is gone, and all that it wrote was seen: what provably never ran shows as `Rejected`.

        ``input_ended``: it ended after the end of its input, and perhaps of it.
        """
        ...
