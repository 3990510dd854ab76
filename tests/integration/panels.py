"""Panels of stub agents, and MCP clients, driven line by line as their editors and agents would.

Owns what each agent's protocol looks like from a client's side, and the reading of the agents' own files. A panel's lines
are what its editor sees; its prompts come from the transcript, over all the processes that wrote to it.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from broker.processes import ProcessId, identify
from tests.integration.lines import PATIENCE, Json, Lines
from tests.real.homes import ClaudeHome, CodexHome

if TYPE_CHECKING:
    from tests.integration.world import World


class Target(Protocol):
    """What can be sent to."""

    @property
    def agent(self) -> str: ...

    @property
    def session(self) -> str: ...


class Panel(Lines):
    """What both agents' panels have in common."""

    agent = ""
    session = ""

    def __init__(self, world: World, command: list[str], environment: Mapping[str, str], cwd: Path) -> None:
        super().__init__(command, environment, cwd)
        self.world = world

    @property
    def process_id(self) -> ProcessId:
        found = identify(self.pid)
        assert found is not None
        return found

    def child(self) -> int:
        """The agent's pid."""
        return children(self.pid)[0]

    def mcp_process(self) -> int:
        return next(pid for pid in children(self.child()) if b"mcp_server" in Path(f"/proc/{pid}/cmdline").read_bytes())

    def registered(self) -> None:
        """Waits until the broker knows this panel's session."""

        def known() -> bool:
            panels = self.world.ask("overview")["ide_panels"]
            return any(session["id"] == self.session for panel in panels for session in panel["sessions"])

        self.world.until(known, f"{self.session} registered")

    def say(self, text: str) -> None:
        raise NotImplementedError

    def ends(self) -> int:
        """How many turns have ended."""
        raise NotImplementedError

    def prompts(self) -> list[str]:
        """Every user message that the agent has taken in, over all its processes, from its own file."""
        raise NotImplementedError

    def answers(self) -> list[str]:
        """Every final message, as the editor's client saw it."""
        raise NotImplementedError

    def receipts(self) -> list[Json]:
        """What the tools answered the agent."""
        raise NotImplementedError

    def wait_receipt(self, number: int = 1, timeout: float = PATIENCE) -> Json:
        self.until(lambda: len(self.receipts()) >= number, f"receipt {number}", timeout=timeout)
        return self.receipts()[number - 1]

    def send_script(self, to: Target, message: str, **arguments: Any) -> str:
        """The script by which this agent sends ``message``."""
        call = {"message": message, "session_id": to.session, **arguments}
        return f"[[tool mcp__cross-agent__send_to_{to.agent} {json.dumps(call)} ;; say sent]]"

    def send_to(self, to: Target, message: str, **arguments: Any) -> None:
        """The person tells the agent to send; the agent does."""
        self.say(self.send_script(to, message, **arguments))

    def handed_over(self, marker: str) -> int:
        """How many requests with ``marker`` this agent has taken in."""
        return sum("BRIDGE MESSAGE" in prompt and marker in prompt for prompt in self.prompts())

    def replies(self, marker: str) -> list[str]:
        return [prompt for prompt in self.prompts() if "BRIDGE REPLY" in prompt and marker in prompt]

    def notices(self) -> list[str]:
        return [prompt for prompt in self.prompts() if "DELIVERY FAILED" in prompt]

    def wait_ends(self, count: int, timeout: float = PATIENCE) -> None:
        self.until(lambda: self.ends() >= count, f"{count} turns ended at {self.agent}", timeout=timeout)

    def wait_reply(self, marker: str, timeout: float = PATIENCE) -> str:
        """The text of the answer that came back, when the turn that reads it has begun."""
        self.until(lambda: bool(self.replies(marker)), f"reply with {marker} at {self.agent}", timeout=timeout)
        return self.replies(marker)[0]

    def wait_notice(self, timeout: float = PATIENCE) -> str:
        self.until(lambda: bool(self.notices()), f"failure notice at {self.agent}", timeout=timeout)
        return self.notices()[0]


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
            for record in _records(path):
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
                    found.append(_json(str(block["content"])))
        return found


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
            for record in _records(path):
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
                found.append(_json(result["content"][0]["text"]) if result else {"error": item.get("error")})
        return found


class McpClient(Lines):
    """A client of the handshake era, by hand."""

    _requests = 0

    def shake_hands(self, version: str = "2025-11-25") -> Json:
        client = {"name": "t", "version": "1"}
        parameters = {"protocolVersion": version, "capabilities": {}, "clientInfo": client}
        answer = self.request("initialize", parameters)
        self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return answer

    def post(self, method: str, parameters: Json | None = None) -> int:
        """Sends a request and returns its id."""
        self._requests += 1
        message = {"jsonrpc": "2.0", "id": self._requests, "method": method}
        self.send(message if parameters is None else {**message, "params": parameters})
        return self._requests

    def answer(self, number: int, timeout: float = PATIENCE) -> Json:
        return self.wait(lambda m: m.get("id") == number and "method" not in m, f"answer {number}", timeout=timeout)

    def request(self, method: str, parameters: Json | None = None, timeout: float = PATIENCE) -> Json:
        return self.answer(self.post(method, parameters), timeout)

    def call(self, tool: str, timeout: float = PATIENCE, **arguments: Any) -> Json:
        """What a tool answers, as data."""
        answer = self.request("tools/call", {"name": tool, "arguments": arguments}, timeout)
        assert "result" in answer, answer
        result: Json = answer["result"]["structuredContent"]
        return result


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()] or _children_of_threads(pid)


def _children_of_threads(pid: int) -> list[int]:
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return [int(child) for task in tasks for child in (task / "children").read_text().split()]


def _records(path: Path) -> list[Json]:
    """Whole lines of a file that may be written to right now, or end in half a line for ever."""
    found = []
    for line in path.read_text(errors="replace").splitlines():
        record = _json(line)
        if record:
            found.append(record)
    return found


def _json(text: str) -> Json:
    try:
        value = json.loads(text)
    except ValueError:
        return {"text": text} if text and not text.startswith("{") else {}
    return value if isinstance(value, dict) else {}


def _item(message: Json) -> Json | None:
    item = message["params"]["item"]
    return item if item.get("type") == "agentMessage" else None
