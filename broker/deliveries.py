"""A delivery and its states: one table says which step leads where. No I/O.

Owns the life of a message from the moment it is queued. The engine around it (`carrier`) makes every step durable before
anything outside can see it; after a crash the row alone says what the next step is (crash table, spec 30).

    QUEUED ─HAND_OVER─▶ DELIVERING ─TAKEN─▶ AWAITING ─ANSWERED─▶ DELIVERED
      ▲                   │  │  │              ├─ENDED────▶ FAILED      the turn ended without an answer
      └──NEVER, BUSY──────┘  │  └─UNPROVEN─┐   └─UNPROVEN─▶ UNCERTAIN   what became of it cannot be told
                             └─REFUSED──▶ FAILED         (QUEUED ─EXPIRED, REFUSED─▶ FAILED, ─WITHDRAW─▶ WITHDRAWN)

Replies and notices are not awaited: for them TAKEN is the end. To add a state or an event: the enum, the table, what the
table says of safety in `STATES`, and a crash test (the tests enumerate all three).
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from enum import Enum
from typing import Any


class Kind(str, Enum):
    REQUEST = "request"
    REPLY = "reply"
    """The answer to a request."""
    NOTICE = "notice"
    """A request of the session's failed; at most one per request."""
    PROGRESS = "progress"
    """A request of the session's is still at work; at most one per request."""
    LATE = "late-answer"
    """An answer that came after its request had ended; at most one per request."""


class State(str, Enum):
    QUEUED = "queued"
    DELIVERING = "delivering"
    AWAITING = "awaiting-peer"
    DELIVERED = "delivered"
    FAILED = "failed"
    UNCERTAIN = "uncertain"
    WITHDRAWN = "withdrawn"


class Event(str, Enum):
    HAND_OVER = "hand-over"
    """An attempt is recorded and goes out."""
    BUSY = "busy"
    """The attempt was refused for now; nothing is in the agent's hands."""
    NEVER = "never"
    """Proven: the attempt never reached the agent, and never will."""
    TAKEN = "taken"
    """Proven: the agent has the message."""
    SETTLED = "settled"
    """As TAKEN, for a message that nobody answers."""
    ANSWERED = "answered"
    ENDED = "ended"
    """The turn ended, or died, without an answer."""
    REFUSED = "refused"
    """Refused for good; nothing is in the agent's hands."""
    EXPIRED = "expired"
    """The deadline passed and nothing is in the agent's hands."""
    UNPROVEN = "unproven"
    """No evidence says whether the agent had it, or what it answered."""
    WITHDRAW = "withdraw"


@dataclass(frozen=True, slots=True)
class Meaning:
    """What a state means to whoever asks. ``safe_to_resend``: sending again cannot deliver twice."""

    terminal: bool
    safe_to_resend: bool


STATES: dict[State, Meaning] = {
    State.QUEUED: Meaning(terminal=False, safe_to_resend=False),
    State.DELIVERING: Meaning(terminal=False, safe_to_resend=False),
    State.AWAITING: Meaning(terminal=False, safe_to_resend=False),
    State.DELIVERED: Meaning(terminal=True, safe_to_resend=False),
    State.FAILED: Meaning(terminal=True, safe_to_resend=True),  # but see Delivery.handed_over
    State.UNCERTAIN: Meaning(terminal=True, safe_to_resend=False),
    State.WITHDRAWN: Meaning(terminal=True, safe_to_resend=True),
}

TRANSITIONS: dict[tuple[State, Event], State] = {
    (State.QUEUED, Event.HAND_OVER): State.DELIVERING,
    (State.QUEUED, Event.REFUSED): State.FAILED,
    (State.QUEUED, Event.EXPIRED): State.FAILED,
    (State.QUEUED, Event.WITHDRAW): State.WITHDRAWN,
    (State.DELIVERING, Event.BUSY): State.QUEUED,
    (State.DELIVERING, Event.NEVER): State.QUEUED,
    (State.DELIVERING, Event.TAKEN): State.AWAITING,
    (State.DELIVERING, Event.SETTLED): State.DELIVERED,
    (State.DELIVERING, Event.REFUSED): State.FAILED,
    (State.DELIVERING, Event.EXPIRED): State.FAILED,
    (State.DELIVERING, Event.UNPROVEN): State.UNCERTAIN,
    (State.DELIVERING, Event.WITHDRAW): State.WITHDRAWN,
    (State.AWAITING, Event.ANSWERED): State.DELIVERED,
    (State.AWAITING, Event.ENDED): State.FAILED,
    (State.AWAITING, Event.UNPROVEN): State.UNCERTAIN,
    # Taken back out of a queue of the agent's, before its turn began.
    (State.AWAITING, Event.EXPIRED): State.FAILED,
    (State.AWAITING, Event.WITHDRAW): State.WITHDRAWN,
}


class Evidence(str, Enum):
    """How far an attempt provably came; only ever grows."""

    NONE = "none"
    WRITTEN = "written"
    TAKEN = "taken"
    ANSWERED = "answered"


EVIDENCE_ORDER = tuple(Evidence)


class IllegalStepError(Exception):
    """An event that the state does not know: a late or doubled fact. Nothing has happened."""

    def __init__(self, state: State, event: Event) -> None:
        super().__init__(f"{event.value} in state {state.value}")
        self.state = state
        self.event = event


def step(state: State, event: Event) -> State:
    """Where ``event`` leads from ``state``.

    Raises:
        IllegalStepError: nowhere.
    """
    try:
        return TRANSITIONS[state, event]
    except KeyError:
        raise IllegalStepError(state, event) from None


@dataclass(frozen=True, slots=True)
class Delivery:
    """One message to one session. Times are wall-clock seconds; ``deadline`` is on `awake_clock`."""

    id: str
    kind: Kind
    state: State
    agent: str
    session: str
    """Empty: the first conversation of the panel `instance`."""
    conversation: str
    hop: int
    max_hops: int
    created: float
    deadline: float
    sequence: int = 0
    """Order of acceptance: the order of hand-over per session."""
    instance: str = ""
    """The shim instance that a message without a session is meant for."""
    target_name: str = ""
    selected_by: str = "caller"
    route: str = "panel"
    sender_agent: str = ""
    sender_session: str = ""
    sender_cwd: str = ""
    sender_store: str = ""
    """Its agent's data directory, as the sender sees it."""
    token: str = ""
    """`req_…`: what an answer closes with; empty when none is awaited."""
    key: str = ""
    """The agent-side key, the same in every attempt."""
    raw: bool = False
    request_key: str = ""
    """The call that caused it: a repeated call gets the first receipt."""
    parent: str = ""
    """The request that a reply or notice is about."""
    updated: float = 0.0
    handed_over: bool = False
    """Whether the agent provably has, or had, the message."""
    summary: str = ""
    reply_preview: str = ""
    error_code: str = ""
    error: str = ""
    flags: tuple[str, ...] = ()
    receipt: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, str] = field(default_factory=dict)
    cwd: str = ""
    """Where its session works, or a conversation that it opens shall."""
    store: str = ""
    """The target agent's data directory, as the sender sees it."""
    idle: float = 0.0
    """Seconds without a sign of life after which a turn that is started for it is ended."""
    environment: dict[str, str] = field(default_factory=dict)
    """What a started turn gets of the sender's environment, as far as it may be written down (EN-11)."""
    unwritten: tuple[str, ...] = ()
    """Names of what may not; the values are asked of the MCP process ``origin``."""
    withheld: tuple[str, ...] = ()
    """Variables that authenticate, and are set where the sender is (EN-12)."""
    origin: str = ""
    umask: int = 0o022
    """The sender's: what a started turn writes is as private as what the sender writes."""
    denied: tuple[str, ...] = ()
    """Tools that the turn was refused for want of an approval."""
    return_delivery: str = ""
    progress_delivery: str = ""
    progress_note: str = ""
    """What is told of a turn that takes long, whether or not anybody was there to read it."""
    peer_note: str = ""
    """What keeps it waiting in the agent's hands, in words."""
    late_reply: str = ""
    """The delivery of the answer that came after the end."""

    @property
    def open(self) -> bool:
        return not STATES[self.state].terminal

    @property
    def safe_to_resend(self) -> bool:
        return STATES[self.state].safe_to_resend and not self.handed_over

    @property
    def target(self) -> tuple[str, str, str]:
        """What one queue belongs to."""
        return self.agent, self.session, "" if self.session else self.instance


@dataclass(frozen=True, slots=True)
class Attempt:
    """One hand-over of one delivery, to one shim instance or by a turn that is started. At most one of a delivery is open."""

    id: str
    delivery: str
    instance: str
    """`pid@start` of the shim, or of the agent's process for a door of its own; empty for a turn that is started, whose runner
    its files name."""
    child: str
    """`pid@start` of the agent behind it, empty when unknown."""
    store: str
    session: str
    generation: int
    evidence: Evidence = Evidence.NONE
    open: bool = True
    turn: str = ""
    created: float = 0.0
    route: str = "panel"

    @property
    def by_door(self) -> bool:
        """Whether the agent itself had it from us: then its process is instance and child."""
        return bool(self.instance) and self.instance == self.child


def new_delivery_id() -> str:
    return f"dlv_{secrets.token_hex(6)}"


def new_conversation_id() -> str:
    return f"conv_{secrets.token_hex(6)}"


def new_token(now: float) -> str:
    """``req_<epoch ms>_<6 random>``: unguessable enough that no text in circulation holds it by chance."""
    return f"req_{int(now * 1000)}_{secrets.token_hex(3)}"
