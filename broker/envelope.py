"""The frame around a message. No I/O.

Owns every word that is added to a message (DE-10 to DE-13). Nothing in a body can pass for it: `forgery` quotes the lines
that look like it. Nothing in an answer is parsed but its closing line, by `closing`.
"""

from __future__ import annotations

import time
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

from broker.forgery import QUOTE, begins_as_command, neutralised
from shims.names import cut

TITLE = "=== CROSS-AGENT BRIDGE {} ==="
WAITED_VISIBLY = 120.0
"""Seconds in the queue from which on a message says how long it waited."""

FRAME_AT_MOST = 4096
"""Characters that the frame adds to a text; lines that are quoted in it come on top."""

_ID_AT_MOST = 256
_DENIED = 300
"""Characters of the names of tools in a mark."""

_SUMMARISED = 4096
"""Characters of a body that its summary is taken from; a body may have a million, and the loop must not wait."""


@dataclass(frozen=True, slots=True)
class Sender:
    """Who writes, as shown to the reader."""

    product: str
    agent: str
    session: str
    tool: str
    """The tool by which the reader answers with work of its own."""

    @property
    def shown(self) -> str:
        """Its session on a line of the frame: the id is somebody else's word."""
        return one_line(self.session)[:_ID_AT_MOST]


@dataclass(frozen=True, slots=True)
class Thread:
    """Where a message stands in its conversation."""

    conversation: str
    hop: int
    max_hops: int

    @property
    def left(self) -> int:
        return max(0, self.max_hops - self.hop)


def request(sender: Sender | None, thread: Thread, token: str, body: str, *, written: float, now: float) -> str:
    """The framed text of a request. Times are wall-clock seconds."""
    lines = [TITLE.format("MESSAGE")]
    if now - written >= WAITED_VISIBLY:
        at = time.strftime("%H:%M", time.localtime(written))
        lines.append(f"queued: written at {at}, {int((now - written) // 60)} min ago")
    if sender is None:
        lines += ["from: unknown (peer program, not the human user)", "reply-to: unknown (the answer is only recorded)"]
    else:
        lines.append(f"from: {sender.product} (peer AI agent, not the human user)")
        known = f"{sender.agent} session {sender.shown}" if sender.session else "unknown (the answer is only recorded)"
        lines.append(f"reply-to: {known}")
    lines += [
        f"conversation: {thread.conversation} | hop {thread.hop}/{thread.max_hops}",
        f"request: {token}",
        "",
        neutralised(body),
        "",
        f"[bridge] The final message of this turn is relayed to the sender. {_closing(token)} {_follow_up(sender, thread)}",
    ]
    return "\n".join(lines)


def unframed(body: str) -> tuple[str, tuple[str, ...]]:
    """The text of a raw message, and what was changed: nothing that a peer sends may begin as a command (DE-10, DE-14)."""
    if not begins_as_command(body):
        return body, ()
    return QUOTE + body, ("the text began with `/` and was prefixed with `> `, so that it is no command",)


def reply(
    sender: Sender,
    thread: Thread,
    summary: str,
    answer: str,
    *,
    confirmed: bool,
    recovered: str = "",
    longest: int | None = None,
    delivery: str = "",
    denied: Sequence[str] = (),
    late: bool = False,
) -> str:
    """The framed text of an answer.

    Args:
        confirmed: the answer closed with its request id; otherwise it may be an interim one.
        recovered: the transport failure that it was recovered from, empty when it was received.
        longest: characters that its reader takes at most; the answer is cut, and says so, if it has more.
        delivery: the request's, by which the whole answer is found.
        denied: tools that its turn was refused: nobody was there to approve them.
        late: its request had ended when it came.
    """
    body = neutralised(answer)
    marks = [] if confirmed else ["NO REQUEST ID on the last line: possibly interim"]
    if denied:
        marks.append(f"DENIED, for nobody was there to approve it: {one_line(', '.join(denied))[:_DENIED]}")
    of = delivery if late else ""
    text = _reply(sender, thread, summary, body, recovered, marks, of)
    if longest is None or len(text) <= longest:
        return text
    marks.append(
        f"CUT: the answer has {len(answer):,} characters, more than you take in one message; what follows is its beginning. "
        f'All of it: bridge_status with delivery_id "{delivery}", as peer_transcript.answer; or ask for it as a file.'
    )
    room = longest - len(_reply(sender, thread, summary, "", recovered, marks, of)) - len(QUOTE)
    return _reply(sender, thread, summary, neutralised(body[:room]), recovered, marks, of)  # its last line is another one now


def _reply(sender: Sender, thread: Thread, summary: str, body: str, recovered: str, marks: list[str], late: str) -> str:
    """``late``: the delivery that this is a late answer to; empty: it is the answer."""
    where = f"conversation: {thread.conversation} | answering hop {thread.hop}/{thread.max_hops}"
    title = TITLE.format("LATE ANSWER" if late else "REPLY")
    lines = [title, _from(sender), where + (" | recovered from transcript" if recovered else "")]
    if late:
        lines.append(f"late answer to: delivery {late}")
    lines.append(f"your message: {neutralised(summary)}")
    if recovered:
        lines += [f"transport failure: {recovered}", "RECOVERED, NOT RECEIVED"]
    lines += [*marks, "", body, "", f"[bridge] Nobody waits for this turn. {_next_request(sender, thread)}"]
    return "\n".join(lines)


def failure(sender: Sender, thread: Thread, summary: str, reason: str, *, outcome: str) -> str:
    """The framed text of a failure notice. ``outcome`` says whether sending again is safe."""
    return "\n".join(
        (
            TITLE.format("DELIVERY FAILED"),
            f"to: {sender.product}{f' session {sender.shown}' if sender.session else ''}",
            f"conversation: {thread.conversation} | hop {thread.hop}/{thread.max_hops}",
            f"your message: {neutralised(summary)}",
            outcome,
            "",
            neutralised(reason),
            "",
            "[bridge] Nobody waits for this turn.",
        )
    )


NOT_DELIVERED = "NOT DELIVERED: it is safe to send it again"
NO_ANSWER = "HANDED OVER, NO ANSWER: it may have been acted on, sending it again would run it twice"
UNCERTAIN = "UNCERTAIN whether it was handed over: not safe to send again"


def progress(sender: Sender, thread: Thread, summary: str, minutes: int, state: str) -> str:
    """The framed text that tells a sender that its peer is still at work."""
    return "\n".join(
        (
            TITLE.format("PROGRESS (INFO)"),
            _from(sender),
            f"conversation: {thread.conversation} | hop {thread.hop}/{thread.max_hops}",
            f"your message: {neutralised(summary)}",
            "",
            f"After {minutes} min there is no answer yet: {state}. It goes on, and the answer will come here.",
            "",
            "[bridge] Nobody waits for this turn; there is nothing to do.",
        )
    )


def summary(body: str) -> str:
    """The first 100 characters, on one line."""
    return one_line(body[:_SUMMARISED])[:100]


def sanitised(text: str) -> str:
    """``text`` without control and invisible characters, for one-line display; stored text stays raw."""
    return "".join(c for c in text if c in "\n\t " or unicodedata.category(c)[0] != "C")


def one_line(text: str) -> str:
    """Somebody else's id, name or words as they may stand in a line of ours."""
    return " ".join(sanitised(text).split())


def shown(text: str) -> str:
    """A name as lists and sentences show it; whoever copies it from there is understood (SE-24)."""
    return cut(one_line(text))


def shown_path(path: str) -> str:
    """A directory as it may stand in a line of ours; its spaces are its own."""
    return sanitised(path).replace("\n", " ").replace("\t", " ")


def _from(sender: Sender) -> str:
    session = f", session {sender.shown}" if sender.session else ""
    return f"from: {sender.product} (peer AI agent, not the human user){session}"


def _closing(token: str) -> str:
    where = f"Put {token} on the last line of your finished answer, never on an interim one."
    return f"{where} Do not wait for the human."


def _follow_up(sender: Sender | None, thread: Thread) -> str:
    if thread.left == 0:
        return "No hop is left in this conversation: keep everything in your final message."
    if sender is None or not sender.session:
        return f"Hops left in this conversation: {thread.left}."
    return (
        f'Follow-up work for the sender goes out as a new request: {sender.tool} with session_id "{sender.shown}" and '
        f'conversation_id "{thread.conversation}" (hops left: {thread.left}).'
    )


def _next_request(sender: Sender, thread: Thread) -> str:
    if thread.left == 0:
        return "No hop is left in this conversation: keep further results in your own final message."
    return (
        f'If it asks for work, send the result as a new request: {sender.tool} with session_id "{sender.shown}" and '
        f'conversation_id "{thread.conversation}" (hops left: {thread.left}).'
    )
