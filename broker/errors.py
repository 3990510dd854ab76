"""Every error that a person or an agent can meet, with a stable code.

Owns the hierarchy and the shape of a refusal; the one place where an error becomes words on the wire. Nothing here holds
message text, tokens or exception texts of libraries.

    CrossAgentError
    ├── Refusal            the call is answered: no, because …      (nothing was queued, no hop was spent)
    ├── BrokerUnreachable  no broker could be had
    ├── WireError          a message on the wire was not understood
    │   └── ProtocolMismatch
    ├── HomeError          the state directory cannot be used safely
    ├── Fenced             a newer broker has taken over; this one must exit
    └── InternalError      a fault of ours at one call
"""

from __future__ import annotations


class CrossAgentError(Exception):
    """``code`` is stable, ``str()`` says what happened to what, ``next_step`` what to do about it.

    ``retry_safe``: repeating the same call cannot deliver a message twice.
    """

    code = "error"
    next_step = ""
    retry_safe = True

    def __init__(self, message: str, *, code: str = "", next_step: str = "", retry_safe: bool | None = None) -> None:
        super().__init__(message)
        if code:
            self.code = code
        if next_step:
            self.next_step = next_step
        if retry_safe is not None:
            self.retry_safe = retry_safe

    def as_result(self) -> dict[str, str | bool]:
        """What a tool call reports of it (MC-05)."""
        return {
            "ok": False,
            "code": self.code,
            "error": str(self),
            "next_step": self.next_step,
            "retry_safe": self.retry_safe,
        }


class Refusal(CrossAgentError):
    """A send or a look-up that is answered with no; ``code`` is one of the codes listed in docs/errors.md."""

    code = "refused"

    def __init__(self, code: str, message: str, next_step: str, *, retry_safe: bool = True) -> None:
        super().__init__(message, code=code, next_step=next_step, retry_safe=retry_safe)


class BrokerUnreachable(CrossAgentError):
    """No broker answered within the call's deadline, or none could be started."""

    code = "broker_unreachable"
    next_step = "Look at logs/broker.log in the state directory, or run `cross-agent broker start`."


class WireError(CrossAgentError):
    """A message that is no message: not msgpack, no known kind, a field of the wrong type."""

    code = "bad_message"
    next_step = "Update cross-agent on both sides; if it stays, report it with logs/broker.log."


class ProtocolMismatch(WireError):
    """Client and broker speak different versions of the wire protocol."""

    code = "protocol_mismatch"
    next_step = "Restart what is older: `cross-agent broker stop`, or reload the editor window that started the client."


class HomeError(CrossAgentError):
    """The state directory is unusable: not a directory of its own, foreign, or on a file system that cannot keep it."""

    code = "bad_home"
    next_step = "Set CROSS_AGENT_HOME to a directory of its own on a local disk."


class Fenced(CrossAgentError):
    """The generation in the database moved: another broker owns the state now (crash table, row 13)."""

    code = "fenced"
    retry_safe = True


class InternalError(CrossAgentError):
    """The broker failed at one call. What it failed by is in the log, and nowhere else: it may quote a message."""

    code = "internal_error"
    next_step = "See logs/broker.log."
    retry_safe = False

    def __init__(self) -> None:
        super().__init__("the broker failed at this call")
