"""User messages that wait: what they are, which one runs next, which merge and which fold.

Owns the order alone; it neither runs nor echoes anything. The rules are those measured on 2.1.197 and 2.1.332: ``now``
before ``next`` before ``later``; messages of one priority that wait together become one prompt; only ``next`` folds.
"""

from __future__ import annotations

from shims.stub_values import uuid4

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Final

NOW: Final = 0
NEXT: Final = 1
LATER: Final = 2
RANKS: Final = {"now": NOW, "next": NEXT, "later": LATER}
COMMAND_LETTERS: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789:-_")


class Message:
    """One user line. ``named``: its sender gave it a uuid, which is then reported on."""

    __slots__ = ("asks", "command", "composed", "content", "named", "rank", "text", "uuid")

    def __init__(self, line: dict[str, Any], *, modern: bool) -> None:
        content = line["message"].get("content")
        self.content = content
        self.text = text_of(content)
        given = line.get("uuid")
        self.named = isinstance(given, str)
        self.uuid: str = given if isinstance(given, str) else uuid4()
        priority = line.get("priority")
        # 2.1.332 takes an unknown priority as ``next``; 2.1.197 queues such a message and never runs it.
        self.rank: int | None = NEXT if priority is None else RANKS.get(str(priority), NEXT if modern else None)
        self.asks = line.get("shouldQuery") is not False
        self.composed = modern and line.get("client_composed") is True
        self.command = None if self.composed else command_of(self.text)

    @property
    def plain(self) -> bool:
        """An ordinary prompt: it may merge and fold."""
        return self.asks and self.command is None


class Backlog:
    """The messages that wait, in order of arrival."""

    def __init__(self) -> None:
        self._waiting: list[Message] = []

    def add(self, message: Message) -> None:
        self._waiting.append(message)

    def uuids(self) -> list[str]:
        return [message.uuid for message in self._waiting]

    def withdraw(self, uuid: str) -> Message | None:
        """Takes one message out, if it still waits."""
        for message in self._waiting:
            if message.uuid == uuid:
                self._waiting.remove(message)
                return message
        return None

    def take(self) -> list[Message]:
        """The messages of the next turn: several are merged into one prompt. Empty if nothing can run."""
        ranks = [message.rank for message in self._waiting if message.rank is not None]
        if not ranks:
            return []
        same = [message for message in self._waiting if message.rank == min(ranks)]
        taken = same[:1]
        if taken[0].plain:
            for message in same[1:]:
                if not message.plain:
                    break
                taken.append(message)
        self._drop(taken)
        return taken

    def fold(self) -> list[Message]:
        """The messages that the running turn takes in at a tool boundary."""
        folded = [message for message in self._waiting if message.rank == NEXT and message.plain]
        self._drop(folded)
        return folded

    def _drop(self, gone: list[Message]) -> None:
        self._waiting = [message for message in self._waiting if message not in gone]


def text_of(content: Any) -> str:
    """What a message says: a string, or the text blocks of a list."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(str(block["text"]) for block in content if isinstance(block, dict) and "text" in block)
    return ""


def command_of(text: str) -> tuple[str, str] | None:
    """``/name arguments`` as name and arguments; None for text that isn't a command (a path isn't one)."""
    if not text.startswith("/"):
        return None
    name, _, arguments = text[1:].partition(" ")
    if not name or not COMMAND_LETTERS.issuperset(name):
        return None
    return name, arguments.strip()
