"""The messages between the broker and its clients, and their form on the wire.

Owns the vocabulary: one typed tuple a message, one kind string each, msgpack maps outside. Does no I/O and imports
nothing heavy: shims and MCP processes load it while their agent boots (`dataclasses` alone would cost each of them 1.5 MiB
and 10 ms). A message of another protocol version or with a
field of the wrong type is a `WireError`, never a surprise further in.

    shim → broker    Register, State, StageReport, McpOpen …      broker → shim    Welcome, Inject, Ask, Withdraw, StageSeen
    client → broker  Request                                      broker → client  Reply, Failure, Bye
"""

from __future__ import annotations

import sys
import types
import typing
from enum import Enum
from functools import cache
from typing import Any, NamedTuple, Union

import msgpack

from broker.errors import ProtocolMismatch, WireError

PROTOCOL = 1
"""Raised whenever a message changes its meaning; both sides must agree."""

MAX_MESSAGE = 64 * 1024 * 1024
"""Bytes of one message: an agent's longest line with room to spare; the sockets refuse more (ZMQ_MAXMSGSIZE)."""


class StageName(str, Enum):
    """How far an injection has come in the shim that has it; each is reported at most once an attempt."""

    WRITTEN = "written"
    """The bytes are in the agent's stdin."""
    TAKEN = "taken"
    """The agent itself has shown that it holds the message."""
    REJECTED = "rejected"
    """Never written, or taken back: nothing is in the agent's hands."""
    FINISHED = "finished"
    """The turn that the message became has ended."""
    LOST = "lost"
    """The agent ended with the message in its hands; what became of it must be read from its records."""
    NEVER = "never"
    """Asked about an attempt that this shim never saw: refused from now on."""


class Approval(NamedTuple):
    """A prompt that the agent waits on: ``tool`` names it, ``summary`` is short; ``since`` is wall-clock seconds."""

    tool: str
    summary: str
    since: float


class SessionState(NamedTuple):
    """What a shim knows of one session it hosts (SH-20). Times are wall-clock seconds; 0 means never."""

    id: str
    """Empty while the panel has no conversation yet (`empty`)."""
    cwd: str = ""
    name: str = ""
    """A name that somebody gave; a generated title is `title`."""
    title: str = ""
    model: str = ""
    turn_since: float = 0.0
    """When the running turn began; 0 while idle."""
    approval: Approval | None = None
    last_human: float = 0.0
    opened: float = 0.0
    empty: bool = False
    accepts: bool = True
    """Whether a message may be injected at all; if not, `why_not` says why in a few words."""
    why_not: str = ""
    accepts_busy: bool = True
    """Whether a message may be handed over while a turn runs (the agent itself queues it)."""
    shows_message: bool = True
    """Whether the panel draws the relayed message and not only its answer (SH-35)."""
    queue_paused: bool = False
    """The agent holds queued messages back, as Codex does after an interrupt."""
    running: str = ""
    """The attempt whose turn runs now; empty while none does, or the person's own."""
    tool_uses: tuple[str, ...] = ()
    """The latest tool-use ids seen for tools of ours: proof of who makes a call (EN-20)."""
    host: str = ""
    """What is worth knowing of the program that draws the panel: a client that nobody has verified (SH-65)."""


class StageReport(NamedTuple):
    """One step of one attempt. ``number`` counts up in a shim instance; unseen ones are sent again after a reconnect."""

    number: int
    attempt: str
    stage: StageName
    session: str = ""
    """The session that the message went to; differs from the asked one when an empty panel got its first conversation."""
    code: str = ""
    """REJECTED, LOST: a stable reason (`busy`, `closed`, `too_late`, `wrong_session`, `not_accepting`, `withdrawn`,
    `ended_waiting`, …)."""
    status: str = ""
    """FINISHED: `completed`, `interrupted`, `declined` (an approval was refused, which ended it), `closed` (its session was)
    or `failed`."""
    text: str | None = None
    """FINISHED: the turn's final text; None when the shim could not see it."""
    turn: str = ""
    shown: bool = True


class Register(NamedTuple):
    """The first message of a shim on a connection, and its first on every later one."""

    agent: str
    version: str
    """Version of cross-agent that the shim runs."""
    cwd: str
    mode: str
    """Class of the intercepted command line: `stream-json`, `app-server`, `stdio`."""
    real: str
    child: int
    """Pid of the agent that the shim started."""
    sessions: tuple[SessionState, ...]
    closing: bool
    attempts: tuple[str, ...]
    """Every attempt that this shim instance knows of."""
    reports: tuple[StageReport, ...]
    """Stages that no broker has acknowledged yet."""
    store: str = ""
    """The agent's own data directory as this panel sees it (CLAUDE_CONFIG_DIR, CODEX_HOME)."""


class State(NamedTuple):
    """All sessions of a shim as they are now."""

    sessions: tuple[SessionState, ...]
    closing: bool = False


class Inject(NamedTuple):
    """Hand this text over, as a turn of its own. At most once for one ``attempt``, whatever happens."""

    delivery: str
    attempt: str
    key: str
    """The agent-side key: Claude's message uuid, Codex's client id."""
    token: str
    """The request id that an answer closes with; empty when none is awaited."""
    session: str
    """Empty: the panel's first conversation."""
    text: str
    generation: int
    not_after: float
    """Seconds on the clock that counts suspend (`boot_clock`); later, the shim refuses."""
    title: str = ""
    """How to name a conversation that this message opens."""
    cwd: str = ""
    """Where such a conversation works; empty: where the panel does."""


class Ask(NamedTuple):
    """What became of this attempt? Answered by its stages, or by NEVER."""

    attempt: str
    generation: int


class Withdraw(NamedTuple):
    """Take the message back if it has not been taken; answered by REJECTED `withdrawn`, or not at all."""

    attempt: str
    generation: int


class Forget(NamedTuple):
    """The attempt's end was found elsewhere: the session is free for the next order."""

    attempt: str
    generation: int


class StageSeen(NamedTuple):
    """The stage is in the database; the shim may forget it."""

    number: int


class McpOpen(NamedTuple):
    """The first message of an MCP process on a connection (MC-01). Nothing in it proves who is calling."""

    instance: str
    """Names this MCP process for ever: with a JSON-RPC id it is the key of a call."""
    version: str
    cwd: str
    surface: str
    settings: dict[str, str]
    """The caller's `CROSS_AGENT_*`."""
    environment: dict[str, str]
    """Values of the baseline names, and the identity variables."""
    auth_names: tuple[str, ...] = ()
    umask: int = 0o022
    """Names of well-known auth variables that are set; never a value."""
    posts: bool = False
    """Whether it understands `McpPost`."""


class McpLine(NamedTuple):
    """One JSON-RPC line, either way, without its newline."""

    line: bytes


class McpReady(NamedTuple):
    """The broker serves this MCP session; lines may be sent."""

    generation: int


class McpPost(NamedTuple):
    """Bytes for a socket of the agent's whose child the MCP process is, to be written by nobody else."""

    number: int
    socket: str
    data: bytes


class McpPosted(NamedTuple):
    """What came of the post with that number; ``carried``: bytes of it may have left."""

    number: int
    carried: bool


class Request(NamedTuple):
    """A call of a client that is no agent (command line, monitor). ``key`` is the same when it is repeated."""

    key: str
    operation: str
    parameters: dict[str, Any]


class Reply(NamedTuple):
    key: str
    result: dict[str, Any]


class Failure(NamedTuple):
    """A request, or a message that was none, is answered with an error."""

    key: str
    code: str
    message: str
    next_step: str
    retry_safe: bool = True


class Welcome(NamedTuple):
    """A registration counts from here on."""

    generation: int
    version: str


class Bye(NamedTuple):
    """The broker ends or lets go of this client; ``reason`` is for the log."""

    generation: int
    reason: str


Message = (
    Register
    | State
    | StageReport
    | Inject
    | Ask
    | Withdraw
    | Forget
    | StageSeen
    | McpOpen
    | McpLine
    | McpReady
    | McpPost
    | McpPosted
    | Request
    | Reply
    | Failure
    | Welcome
    | Bye
)

_KINDS: dict[str, type[Any]] = {
    "shim.stage": StageReport,
    "shim.register": Register,
    "shim.state": State,
    "shim.inject": Inject,
    "shim.ask": Ask,
    "shim.withdraw": Withdraw,
    "shim.forget": Forget,
    "shim.seen": StageSeen,
    "mcp.open": McpOpen,
    "mcp.line": McpLine,
    "mcp.ready": McpReady,
    "mcp.post": McpPost,
    "mcp.posted": McpPosted,
    "request": Request,
    "reply": Reply,
    "failure": Failure,
    "welcome": Welcome,
    "bye": Bye,
}
_KIND_OF = {kind: name for name, kind in _KINDS.items()}


def encode(message: Message) -> bytes:
    """One message as bytes; strings may carry surrogate-escaped bytes of paths.

    Half a character (an agent cut a text by UTF-16 units) becomes U+FFFD: no message is lost by it.
    """
    body = _plain(message)
    body["v"] = PROTOCOL
    body["k"] = _KIND_OF[type(message)]
    packed: bytes
    try:
        packed = msgpack.packb(body, unicode_errors="surrogateescape")
    except UnicodeEncodeError:
        packed = msgpack.packb(_whole(body), unicode_errors="surrogateescape")
    return packed


def decode(data: bytes | memoryview) -> Message:
    """The message in ``data``.

    Raises:
        ProtocolMismatch: it is of another protocol version.
        WireError: it is no message.
    """
    try:
        body = msgpack.unpackb(data, unicode_errors="surrogateescape", strict_map_key=True)
    except (ValueError, msgpack.exceptions.UnpackException) as error:
        raise WireError(f"{len(data)} bytes that are no msgpack map") from error
    if not isinstance(body, dict):
        raise WireError("a message that is not a map")
    version = body.pop("v", None)
    if version != PROTOCOL:
        shown = version if isinstance(version, int) else type(version).__name__
        raise ProtocolMismatch(f"a message of protocol {shown} where {PROTOCOL} is spoken")
    name = body.pop("k", "")
    kind = _KINDS.get(name) if isinstance(name, str) else None
    if kind is None:
        raise WireError("a message of an unknown kind")
    message: Message = _build(kind, body)
    return message


def _plain(value: Any) -> Any:
    if hasattr(value, "_fields"):
        return {name: _plain(item) for name, item in zip(value._fields, value, strict=True)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value


def _whole(value: Any) -> Any:
    """``value`` without halves of characters; bytes of paths stay."""
    if isinstance(value, dict):
        return {_whole(name): _whole(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_whole(item) for item in value]
    if isinstance(value, str):
        return "".join("\ufffd" if "\ud800" <= c < "\udc80" or "\udcff" < c <= "\udfff" else c for c in value)
    return value


@cache
def _hints(kind: type[Any]) -> dict[str, Any]:
    hints = typing.get_type_hints(kind, vars(sys.modules[kind.__module__]))
    return {name: hints[name] for name in kind._fields}


def _build(wanted: Any, value: Any) -> Any:
    """``value`` as the annotated type ``wanted``: only the shapes that occur above."""
    if wanted is Any:
        return value
    if typing.get_origin(wanted) is None and isinstance(wanted, type):
        if hasattr(wanted, "_fields"):
            if not isinstance(value, dict):
                raise WireError(f"{wanted.__name__} is not a map")
            hints = _hints(wanted)
            if not value.keys() <= hints.keys():
                raise WireError(f"{wanted.__name__} has unknown fields")
            try:
                return wanted(**{name: _build(hints[name], item) for name, item in value.items()})
            except TypeError as error:
                raise WireError(f"{wanted.__name__} lacks a field") from error
        if issubclass(wanted, Enum):
            try:
                return wanted(value)
            except ValueError:
                raise WireError(f"an unknown {wanted.__name__}") from None
        if wanted is float and type(value) is int:
            return float(value)
        if type(value) is not wanted:
            raise WireError(f"a {type(value).__name__} where {wanted.__name__} belongs")
        return value
    origin, arguments = typing.get_origin(wanted), typing.get_args(wanted)
    if origin is tuple and isinstance(value, list):
        return tuple(_build(arguments[0], item) for item in value)
    if origin is dict and isinstance(value, dict):
        return {_build(arguments[0], key): _build(arguments[1], item) for key, item in value.items()}
    if origin in (Union, types.UnionType):
        if value is None:
            return None
        return _build(next(a for a in arguments if a is not type(None)), value)
    raise WireError(f"a {type(value).__name__} where {wanted} belongs")
