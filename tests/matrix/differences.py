"""What is known to be different in some versions, and why: declared, so that the table explains it.

Owns the declarations. A difference that is `handled` is played like everything else and shown with its reason; one that is
not, the agent itself cannot do, and its column is not played.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tests.real.stories import numbers


@dataclass(frozen=True, slots=True)
class Difference:
    """``since`` is the first version that has it, ``before`` the first one that has it no more."""

    agent: str
    columns: tuple[str, ...]
    reason: str
    since: str = "0"
    before: str = ""
    handled: bool = True

    def concerns(self, agent: str, version: str, column: str) -> bool:
        if agent != self.agent or column not in self.columns or numbers(version) < numbers(self.since):
            return False
        return not self.before or numbers(version) < numbers(self.before)


DIFFERENCES: Final = (
    Difference(
        "claude",
        ("records",),
        "Until 2.1.211 it tells only with the answer's first whole block that a turn has begun: before that its files alone do.",
        before="2.1.211",
    ),
    Difference(
        "codex",
        (
            "in a tool",
            "at an approval",
            "streaming",
            "back in a tool",
            "back at an approval",
            "back while streaming",
            "taken back",
        ),
        "`thread/queue` came with 0.148: until then a message to a busy thread waits in the bridge, not in the agent.",
        before="0.148.0",
    ),
    Difference(
        "codex",
        ("stopped",),
        "Without `thread/queue` nothing is paused: the message is handed over when the stopped turn has ended.",
        before="0.148.0",
    ),
    Difference(
        "codex",
        ("stopped",),
        "Codex keeps its queue waiting after a stop: the message runs when the person has spoken again, and its sender is told.",
        since="0.148.0",
    ),
    Difference(
        "grok",
        ("records",),
        "A turn that is killed in its first words leaves nothing in Grok's files: its sender is told that this is uncertain.",
    ),
)


def difference(agent: str, version: str, column: str) -> Difference | None:
    """What is known of ``column`` in this version."""
    return next((known for known in DIFFERENCES if known.concerns(agent, version, column)), None)
