"""A panel of Grok Build: ACP as its extension speaks it, and its session store."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tests.integration.lines import Json
from tests.integration.panels.panel import Panel, parsed, records
from tests.real.homes import GrokHome

if TYPE_CHECKING:
    from tests.integration.world import World


class GrokPanel(Panel):
    """One agent process; ``session`` is the one that was opened last."""

    agent = "grok"

    def __init__(self, world: World, command: list[str], environment: Mapping[str, str], home: GrokHome) -> None:
        super().__init__(world, command, environment, home.cwd)
        self.store = home.config
        self.cwd = str(home.cwd)
        self._requests = 0

    def shake_hands(self, client: str = "", *, echo: bool = False) -> None:
        """As the extension does, which does not say its name; ``client`` is another one."""
        capabilities: Json = {"fs": {"readTextFile": False, "writeTextFile": False}, "terminal": False}
        if echo:
            capabilities["_meta"] = {"x.ai/userMessageEcho": True}
        named = {"clientInfo": {"name": client, "version": "1"}} if client else {}
        self.request("initialize", {"protocolVersion": 1, "clientCapabilities": capabilities, **named})

    def post(self, method: str, params: Json) -> int:
        number, self._requests = self._requests, self._requests + 1
        self.send({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
        return number

    def answer(self, number: int) -> Json:
        answer = self.wait(lambda m: m.get("id") == number and "method" not in m, f"answer {number}")
        assert "result" in answer, answer
        result: Json = answer["result"]
        return result

    def request(self, method: str, params: Json) -> Json:
        return self.answer(self.post(method, params))

    # sessions

    def start_session(self) -> str:
        self.session = self.request("session/new", {"cwd": self.cwd, "mcpServers": []})["sessionId"]
        self._has_tools()
        return self.session

    def load_session(self, session: str) -> None:
        self.request("session/load", {"sessionId": session, "cwd": self.cwd, "mcpServers": []})
        self.session = session
        self._has_tools()

    def _has_tools(self) -> None:
        """A session is there before its MCP servers are."""
        started = ("_x.ai/mcp_initialized", self.session)
        self.wait(lambda m: (m.get("method"), m.get("params", {}).get("sessionId")) == started, "its MCP servers")

    # turns

    def say(self, text: str, session: str = "") -> None:
        self.prompt(text, session)

    def prompt(self, text: str, session: str = "") -> int:
        """The request that a prompt is: its answer comes when its turn has ended."""
        return self.post("session/prompt", {"sessionId": session or self.session, "prompt": [{"type": "text", "text": text}]})

    def stop(self) -> None:
        """The person's Stop button."""
        self.send({"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": self.session}})

    def asked(self, number: int = 1) -> Json:
        """The ``number``-th request for a permission."""
        return self.wait(lambda m: m.get("method") == "session/request_permission", "a permission", number=number)

    def decide(self, asked: Json, option: str) -> None:
        outcome = {"outcome": "selected", "optionId": option}
        self.send({"jsonrpc": "2.0", "id": asked["id"], "result": {"outcome": outcome}})

    def ends(self) -> int:
        return sum(message.get("method") == "_x.ai/session/prompt_complete" for message in self.messages)

    def prompts(self) -> list[str]:
        found = []
        for path in self.store.glob(f"sessions/*/{self.session}/updates.jsonl"):
            for record in records(path):
                update = record["params"]["update"]
                if update["sessionUpdate"] == "user_message_chunk":
                    found.append(str(update["content"]["text"]))
        return found

    def answers(self) -> list[str]:
        said: dict[str, str] = {}
        found = []
        for message in list(self.messages):
            prompt, update = live_update(message)
            if update.get("sessionUpdate") in ("tool_call", "tool_call_update"):
                said[prompt] = ""
            elif update.get("sessionUpdate") == "agent_message_chunk":
                said[prompt] = said.get(prompt, "") + update["content"]["text"]
            elif message.get("method") == "_x.ai/session/prompt_complete" and message["params"]["stopReason"] == "end_turn":
                found.append(said.get(message["params"]["promptId"], ""))
        return found

    def receipts(self) -> list[Json]:
        found = []
        for _, update in map(live_update, list(self.messages)):
            output = update.get("rawOutput", {}).get("output") if update.get("sessionUpdate") == "tool_call_update" else None
            if isinstance(output, dict):
                (text,) = output.values()
                found.append(parsed(text.rpartition("\n")[2]))  # the structured content is the last line
        return found


def live_update(message: Json) -> tuple[str, dict[str, Any]]:
    """Prompt id and update of a turn that runs; empty for anything else, and for what is only shown again."""
    params = message.get("params", {})
    meta = params.get("_meta", {})
    live = message.get("method") == "session/update" and "promptId" in meta and "isReplay" not in meta
    return (meta["promptId"], params["update"]) if live else ("", {})
