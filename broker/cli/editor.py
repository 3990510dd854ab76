"""Two small editors: they open a panel behind a shim, type into it and show what it shows. For the demo.

Owns the editor's side of the two protocols, as far as a conversation needs it: Claude Code's stream-json and Codex's
app-server. One thread reads each panel for its whole life; waiting is on a condition, with a bound.
"""

from __future__ import annotations

import json
import os
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

Show = Callable[[str, str], None]
"""Takes what a panel shows: its name, and a line."""


class PanelEnded(Exception):
    """The agent behind the panel has gone, or did not do in time what was waited for."""


class Editor:
    """One panel: an agent process behind a shim.

    Args:
        command: the shim and its arguments.
        show: called from the reading thread.
    """

    name = ""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], cwd: str, show: Show) -> None:
        self._show = show
        self._messages: list[dict[str, Any]] = []
        self._news = threading.Condition()
        self._ended = False
        self._stderr = open(os.path.join(cwd, f"{self.name}.stderr"), "wb")  # noqa: SIM115 - closed with the panel
        self.process = subprocess.Popen(
            command, env=dict(environment), cwd=cwd, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._stderr
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def send(self, message: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()

    def wait(self, wanted: Callable[[dict[str, Any]], bool], what: str, patience: float = 30.0) -> dict[str, Any]:
        """The first message, ever, that is ``wanted``. Raises PanelEnded."""
        deadline = time.monotonic() + patience
        seen = 0
        with self._news:
            while True:
                for message in self._messages[seen:]:
                    if wanted(message):
                        return message
                seen = len(self._messages)
                if self._ended or time.monotonic() >= deadline:
                    raise PanelEnded(f"{self.name}: no {what} within {patience:.0f} s")
                self._news.wait(deadline - time.monotonic())

    def close(self) -> None:
        """Closes the panel as an editor does, and waits for its end."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.terminate()
            self.process.wait(10)
        self._reader.join(10)
        self._stderr.close()

    def seen(self, message: dict[str, Any]) -> None:
        """What a person would see of ``message``; called in the reading thread."""

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            message = json.loads(line)
            self.seen(message)
            with self._news:
                self._messages.append(message)
                self._news.notify_all()
        with self._news:
            self._ended = True
            self._news.notify_all()


class ClaudeEditor(Editor):
    name = "Claude Code"

    def open(self) -> None:
        self.send({"type": "control_request", "request_id": "demo_1", "request": {"subtype": "initialize", "hooks": None}})
        self.wait(lambda m: m.get("type") == "control_response", "answer to initialize")

    def say(self, text: str, shown: str) -> None:
        self._show("you → Claude Code", shown)
        self.send({"type": "user", "message": {"role": "user", "content": text}, "parent_tool_use_id": None, "session_id": ""})

    def result(self, number: int) -> dict[str, Any]:
        """The ``number``-th result, counted from 1."""
        return self.wait(lambda m: m.get("type") == "result" and self._results().index(m) == number - 1, "result", 120)

    def seen(self, message: dict[str, Any]) -> None:
        kind = message.get("type")
        if kind == "assistant":
            for block in message["message"]["content"]:
                if block.get("type") == "tool_use":
                    self._show("Claude Code", f"calls {block['name']}")
                elif block.get("type") == "text":
                    self._show("Claude Code", block["text"])
        elif kind == "user" and message.get("isReplay"):
            content = message["message"]["content"]
            if isinstance(content, str) and content.startswith("==="):
                self._show("→ Claude Code", content)

    def _results(self) -> list[dict[str, Any]]:
        return [message for message in self._messages if message.get("type") == "result"]


class CodexEditor(Editor):
    name = "Codex"

    def open(self, cwd: str) -> str:
        """Begins a thread; returns its id."""
        capabilities = {"experimentalApi": True, "requestAttestation": False}
        client = {"name": "cross-agent-demo", "title": None, "version": "0"}
        self._call("initialize", {"clientInfo": client, "capabilities": capabilities})
        self.send({"method": "initialized"})
        return str(self._call("thread/start", {"cwd": cwd})["thread"]["id"])

    def last_words(self) -> str:
        """The latest message of the agent's."""
        with self._news:
            completed = [m["params"]["item"] for m in self._messages if m.get("method") == "item/completed"]
        return next((str(item["text"]) for item in reversed(completed) if item.get("type") == "agentMessage"), "")

    def _call(self, method: str, parameters: dict[str, Any]) -> dict[str, Any]:
        self.send({"method": method, "id": method, "params": parameters})
        answer = self.wait(lambda m: m.get("id") == method and "method" not in m, f"answer to {method}")
        if "error" in answer:
            raise PanelEnded(f"Codex refused {method}: {answer['error'].get('message')}")
        result: dict[str, Any] = answer["result"]
        return result

    def seen(self, message: dict[str, Any]) -> None:
        if message.get("method") != "item/completed":
            return
        item = message["params"]["item"]
        if item.get("type") == "userMessage":
            self._show("→ Codex", "".join(part.get("text", "") for part in item["content"]))
        elif item.get("type") == "agentMessage":
            self._show("Codex", item["text"])
