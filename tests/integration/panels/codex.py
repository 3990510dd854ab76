"""A panel of Codex: the app-server's JSON-RPC, and its rollouts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tests.integration.lines import Json
from tests.integration.panels.panel import Panel, parsed, records
from tests.real.homes import CodexHome

if TYPE_CHECKING:
    from tests.integration.world import World


class CodexPanel(Panel):
    agent = "codex"

    def __init__(self, world: World, command: list[str], environment: Mapping[str, str], home: CodexHome) -> None:
        super().__init__(world, command, environment, home.cwd)
        self.store = home.config
        self._requests = 0

    def shake_hands(self) -> None:
        capabilities = {"experimentalApi": True}
        self.request("initialize", {"clientInfo": {"name": "t", "version": "1"}, "capabilities": capabilities})
        self.send({"method": "initialized"})

    def request(self, method: str, params: Json) -> Json:
        self._requests += 1
        number = self._requests
        self.send({"id": number, "method": method, "params": params})
        answer = self.wait(lambda m: m.get("id") == number and "method" not in m, f"answer to {method}")
        assert "result" in answer, answer
        result: Json = answer["result"]
        return result

    def start_thread(self) -> str:
        self.session = self.request("thread/start", {})["thread"]["id"]
        return self.session

    def resume_thread(self, thread: str) -> None:
        self.session = self.request("thread/resume", {"threadId": thread, "excludeTurns": True})["thread"]["id"]

    def say(self, text: str, thread: str = "") -> None:
        self.request("turn/start", {"threadId": thread or self.session, "input": [{"type": "text", "text": text}]})

    def ends(self) -> int:
        return sum(message.get("method") == "turn/completed" for message in self.messages)

    def prompts(self) -> list[str]:
        found = []
        for path in self.store.glob(f"sessions/*/*/*/rollout-*-{self.session}.jsonl"):
            for record in records(path):
                payload = record.get("payload", {})
                if record.get("type") == "response_item" and payload.get("role") == "user":
                    found.append("".join(part.get("text", "") for part in payload["content"]))
        return found

    def answers(self) -> list[str]:
        return [i["text"] for m in self.messages if m.get("method") == "item/completed" and (i := _item(m))]

    def receipts(self) -> list[Json]:
        found = []
        for message in self.messages:
            item = message.get("params", {}).get("item", {})
            if message.get("method") == "item/completed" and item.get("type") == "mcpToolCall":
                result = item.get("result")
                found.append(parsed(result["content"][0]["text"]) if result else {"error": item.get("error")})
        return found


def _item(message: Json) -> Json | None:
    item = message["params"]["item"]
    return item if item.get("type") == "agentMessage" else None
