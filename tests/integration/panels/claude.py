"""A panel of Claude Code: stream-json, and its transcripts."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING

from tests.integration.lines import Json
from tests.integration.panels.panel import Panel, parsed, records
from tests.real.homes import ClaudeHome

if TYPE_CHECKING:
    from tests.integration.world import World


class ClaudePanel(Panel):
    agent = "claude"

    def __init__(self, world: World, command: list[str], environment: Mapping[str, str], home: ClaudeHome, session: str) -> None:
        super().__init__(world, command, environment, home.cwd)
        self.session = session
        self.store = home.config
        self.send({"type": "control_request", "request_id": "hello", "request": {"subtype": "initialize"}})
        self.wait(lambda m: m.get("type") == "control_response", "answer to initialize")

    def say(self, text: str) -> None:
        message = {"role": "user", "content": text}
        self.send({"type": "user", "message": message, "uuid": str(uuid.uuid4()), "session_id": self.session})

    def ends(self) -> int:
        return sum(message.get("type") == "result" for message in self.messages)

    def prompts(self) -> list[str]:
        found = []
        for path in self.store.glob(f"projects/*/{self.session}.jsonl"):
            for record in records(path):
                content = record.get("message", {}).get("content")
                if record.get("type") == "user" and isinstance(content, str):
                    found.append(content)
                elif record.get("type") == "attachment" and record["attachment"].get("type") == "queued_command":
                    found.append(str(record["attachment"]["prompt"]))
        return found

    def answers(self) -> list[str]:
        return [str(message.get("result")) for message in self.messages if message.get("type") == "result"]

    def receipts(self) -> list[Json]:
        found = []
        for message in self.messages:
            content = message.get("message", {}).get("content") if message.get("type") == "user" else None
            for block in content if isinstance(content, list) else ():
                if block.get("type") == "tool_result":
                    found.append(parsed(str(block["content"])))
        return found
