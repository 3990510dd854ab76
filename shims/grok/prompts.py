"""Prompts of ours on their way through one Grok process, and what the person in front of it is shown of them. No I/O.

Owns a message between its first byte and the end of its turn (`Prompt`), and the lines that make it visible: the extension
draws only prompts that it sent itself, so the text goes in front of the answer as a quoted block (SH-63).
"""

from __future__ import annotations

from typing import Any

from broker.wire import Inject
from shims.jsonrpc import encoded

_QUOTED = 4000
"""Characters of a message that the block shows."""


class Prompt:
    """A message of ours; its prompt id is the delivery's id and tags every update of its turn (measured with 1.0.41)."""

    __slots__ = ("_all", "_all_whole", "_category", "_last", "_seen", "_trigger", "_whole", "order", "shown", "taken")

    def __init__(self, order: Inject) -> None:
        self.order = order
        self.taken = False
        self.shown = False
        """The block, or the agent's own echo, has reached the editor."""
        self._category = self._trigger = ""
        """Why it was cancelled and by what, in the agent's words: `PermissionRejected`, `MidTurnAbort`; `session_close`."""
        self._all: list[str] = []
        self._last: list[str] = []
        """What was said after the last tool: the answer, unless nothing was (SE-08)."""
        self._seen = False
        """Some update of its turn was; where none is, their form is not the known one."""
        self._whole = self._all_whole = False
        """Everything was seen of what was said after the last tool, and of all that was said."""

    @property
    def mark(self) -> bytes:
        """What every update of its turn holds, and its end: text that quotes it has a backslash in it."""
        return b'"' + self.order.key.encode() + b'"'

    def updated(self, update: dict[str, Any]) -> None:
        """One update of its turn: the answer is what was said after the last tool, or all of it when nothing followed."""
        kind = update.get("sessionUpdate")
        if not self._seen:
            self._seen = self._whole = self._all_whole = True
        if kind in ("tool_call", "tool_call_update"):
            self._last = []
            self._whole = True
        elif kind == "agent_message_chunk":
            content = update.get("content")
            text = content.get("text") if isinstance(content, dict) else None
            if isinstance(text, str):
                self._all.append(text)
                self._last.append(text)

    def missed(self) -> None:
        """An update of its turn was too long to be read: what it said is not known here."""
        self._seen = True
        self._whole = self._all_whole = False

    def explained(self, end: dict[str, Any]) -> None:
        """What a line of its end says of the reason; not every one of them does."""
        self._category = str(end.get("cancellationCategory") or self._category)
        self._trigger = str(end.get("cancelTrigger") or self._trigger)

    def end(self, reason: object) -> tuple[str, str | None]:
        """Its turn's end as ours, and what it said in the end: None when that was asked for and not all of it was seen."""
        last = any(self._last) or not self._whole
        words = "".join(self._last if last else self._all)
        if reason == "end_turn":
            return "completed", words if (self._whole if last else self._all_whole) else None
        if reason != "cancelled":
            return "failed", words
        if self._category.startswith("Permission"):  # an approval that the person refused has ended it as well
            return "declined", words
        return "closed" if self._trigger == "session_close" else "interrupted", words

    def block(self) -> bytes:
        """The message as a quoted block, as if the agent had begun its answer with it."""
        text = self.order.text
        if len(text) > _QUOTED:
            text = f"{text[:_QUOTED]}\n… ({len(self.order.text) - _QUOTED} more characters)"
        quoted = "".join(f"> {line}\n" for line in text.splitlines())
        update = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": f"{quoted}\n"}}
        parameters = {"sessionId": self.order.session, "update": update, "_meta": {"promptId": self.order.key}}
        return encoded({"jsonrpc": "2.0", "method": "session/update", "params": parameters})
