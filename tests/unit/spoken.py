"""One conversation through an agent's door, as a test holds it: what was sent, and how it stands."""

from __future__ import annotations

import json
from typing import Any, ClassVar

from shims.door import Said, Talk


class Spoken:
    """``envelope``: members that every message of the agent's has."""

    envelope: ClassVar[dict[str, Any]] = {}

    def __init__(self, talk: Talk) -> None:
        self.talk = talk
        self.sent: list[dict[str, Any]] = []
        self.said = Said()
        self._take(talk.begin())

    def _take(self, said: Said) -> Said:
        self.sent += map(json.loads, said.messages)
        self.said = said
        return said

    def hears(self, message: dict[str, Any] | bytes) -> Said:
        line = message if isinstance(message, bytes) else json.dumps({**self.envelope, **message}).encode()
        return self._take(self.talk.heard(line))

    def answers(self, result: object) -> Said:
        """To the last request."""
        return self.hears({"id": self.sent[-1]["id"], "result": result})

    @property
    def methods(self) -> list[str]:
        return [sent["method"] for sent in self.sent]
