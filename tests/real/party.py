"""One side of an exchange: a session of a real agent in a panel, under the same verbs for every agent.

Owns the translation of "turn", "call of a tool", "approval" into what each agent's panel shows; the panels themselves belong
to whoever opened them. What a party tells is what a person in front of the panel would see.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tests.real.homes import SERVER_NAME
from tests.real.panels.grok_turns import ends_turn
from tests.real.panels.record import WAIT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.real.models import ScriptedModel
    from tests.real.panels import ClaudePanel, CodexPanel, GrokPanel
    from tests.real.panels.record import Record

Json = dict[str, Any]

YIELD: Final = 30_000
"""Milliseconds that Codex lets a command run in the foreground: more than any gate is held."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn as the panel saw it end. ``asked``: every message that the agent took in during it."""

    asked: tuple[str, ...]
    answered: str
    completed: bool


class Party(ABC):
    """A session. ``agent`` is its product's name here, ``version`` the release."""

    agent: str
    version: str
    model: ScriptedModel

    @property
    @abstractmethod
    def session(self) -> str:
        """The id of the session that lives here now."""

    @property
    @abstractmethod
    def pid(self) -> int:
        """The process that the client started: the shim."""

    @property
    def tool(self) -> str:
        """The tool that sends a message to this session."""
        return f"send_to_{self.agent}"

    # what the person does

    @abstractmethod
    def say(self, text: str) -> None:
        """Type ``text``; does not wait."""

    @abstractmethod
    def approve(self) -> None:
        """Allow the oldest tool call that waits for it."""

    @abstractmethod
    def interrupt(self) -> None:
        """Press stop."""

    @abstractmethod
    def close(self) -> None:
        """Close the panel."""

    # what the scripted model does

    @abstractmethod
    def command(self, line: str) -> str:
        """The step of a script that runs ``line`` in a shell unasked."""

    @abstractmethod
    def risky(self, line: str) -> str:
        """The step of a script that runs ``line`` when somebody allows it."""

    def call(self, tool: str, **arguments: Any) -> Json:
        """The agent calls a tool of the bridge in a turn of its own; what the tool answered."""
        before = len(self.tool_answers())
        text = f"call {before} [[{calling(tool, **arguments)} ;; say called]]"
        self.say(text)
        self.wait_turn(lambda turn: text in turn.asked)
        return self.tool_answers()[before]

    def answer_of_tool(self, timeout: float = WAIT) -> Json:
        """What the first call of a bridge tool answered, also while its turn goes on."""
        self._stream().wait(lambda _: bool(self.tool_answers()), timeout)
        return self.tool_answers()[0]

    def tool_answers(self) -> list[Json]:
        """What every call of a bridge tool answered, in order."""
        return [_answer(text) for text in self._tool_answers()]

    # what the person sees

    @abstractmethod
    def turns(self) -> list[Turn]:
        """Every turn that ended, in order."""

    @abstractmethod
    def wait_approval(self) -> str:
        """The tool of the oldest call that waits for the person."""

    def wait_turn(self, predicate: Callable[[Turn], bool], timeout: float = WAIT) -> Turn:
        """The first turn that satisfies ``predicate``."""
        self._stream().wait(lambda message: self._ends(message) and any(map(predicate, self.turns())), timeout)
        return next(turn for turn in self.turns() if predicate(turn))

    def wait_turns(self, count: int, timeout: float = WAIT) -> list[Turn]:
        """The first ``count`` turns."""
        self._stream().wait(lambda message: self._ends(message) and len(self.turns()) >= count, timeout)
        return self.turns()[:count]

    @abstractmethod
    def _stream(self) -> Record[Json]: ...

    @abstractmethod
    def _ends(self, message: Json) -> bool: ...

    @abstractmethod
    def _tool_answers(self) -> Iterator[str]: ...


class ClaudeParty(Party):
    """The session of one Claude Code process."""

    agent = "claude"

    def __init__(self, panel: ClaudePanel, version: str, model: ScriptedModel) -> None:
        self.panel = panel
        self.version = version
        self.model = model

    @property
    def session(self) -> str:
        return self.panel.session_id

    @property
    def pid(self) -> int:
        return self.panel.shim_pid

    def say(self, text: str) -> None:
        self.panel.say(text)

    def approve(self) -> None:
        self.panel.answer_permission(True)

    def interrupt(self) -> None:
        self.panel.interrupt()

    def close(self) -> None:
        self.panel.close()

    def command(self, line: str) -> str:
        return f"tool Bash {json.dumps({'command': line})}"

    def risky(self, line: str) -> str:
        return self.command(line)  # the home decides

    def turns(self) -> list[Turn]:
        turns: list[Turn] = []
        asked: list[str] = []
        for frame in self.panel.frames.messages():
            if frame.get("type") == "user" and frame.get("isReplay"):
                asked += _texts(frame["message"]["content"])
            elif frame.get("type") == "result":
                turns.append(Turn(tuple(asked), frame.get("result") or "", not frame["is_error"]))
                asked = []
        return turns

    def wait_approval(self) -> str:
        return self.panel.wait_permission().tool

    def _stream(self) -> Record[Json]:
        return self.panel.frames

    def _ends(self, message: Json) -> bool:
        return message.get("type") == "result"

    def _tool_answers(self) -> Iterator[str]:
        ours = set()
        for frame in self.panel.frames.messages():
            content = (frame.get("message") or {}).get("content")
            for block in content if isinstance(content, list) else ():
                if block.get("type") == "tool_use" and block["name"].startswith(f"mcp__{SERVER_NAME}__"):
                    ours.add(block["id"])
                elif block.get("type") == "tool_result" and block["tool_use_id"] in ours:
                    yield "".join(_texts(block["content"]))


class CodexParty(Party):
    """One thread of a Codex app-server."""

    agent = "codex"

    def __init__(self, panel: CodexPanel, version: str, model: ScriptedModel, thread: str) -> None:
        self.panel = panel
        self.version = version
        self.model = model
        self.thread = thread

    @property
    def session(self) -> str:
        return self.thread

    @property
    def pid(self) -> int:
        return self.panel.shim_pid

    def say(self, text: str) -> None:
        self.panel.say(self.thread, text)

    def approve(self) -> None:
        self.panel.answer_approval("accept")

    def interrupt(self) -> None:
        self.panel.interrupt(self.thread)

    def close(self) -> None:
        self.panel.close()

    def command(self, line: str) -> str:
        return f"tool exec_command {json.dumps({'cmd': line, 'yield_time_ms': YIELD})}"

    def risky(self, line: str) -> str:
        why = {"sandbox_permissions": "require_escalated", "justification": "the test wants it"}
        return f"tool exec_command {json.dumps({'cmd': line, 'yield_time_ms': YIELD, **why})}"

    def turns(self) -> list[Turn]:
        return [Turn(turn.user_texts, turn.text, turn.status == "completed") for turn in self.panel.turns(self.thread)]

    def wait_approval(self) -> str:
        return self.panel.wait_approval().method

    def _stream(self) -> Record[Json]:
        return self.panel.messages

    def _ends(self, message: Json) -> bool:
        return message.get("method") == "turn/completed" and message["params"].get("threadId") == self.thread

    def _tool_answers(self) -> Iterator[str]:
        for message in self.panel.messages.messages():
            params = message.get("params") or {}
            item = params.get("item") or {}
            if message.get("method") != "item/completed" or params.get("threadId") != self.thread:
                continue
            if item.get("type") == "mcpToolCall" and item.get("server") == SERVER_NAME:
                result = item.get("result")
                yield "".join(_texts(result["content"])) if result else json.dumps(item.get("error"))


class GrokParty(Party):
    """One session of a Grok Build process."""

    agent = "grok"

    def __init__(self, panel: GrokPanel, version: str, model: ScriptedModel, session: str) -> None:
        self.panel = panel
        self.version = version
        self.model = model
        self._session = session

    @property
    def session(self) -> str:
        return self._session

    @property
    def pid(self) -> int:
        return self.panel.shim_pid

    def say(self, text: str) -> None:
        self.panel.say(self._session, text)

    def approve(self) -> None:
        self.panel.answer_permission("allow_once")

    def interrupt(self) -> None:
        self.panel.interrupt(self._session)

    def close(self) -> None:
        self.panel.close()

    def command(self, line: str) -> str:
        return f"tool run_terminal_command {json.dumps({'command': line, 'description': 'the test wants it'})}"

    def risky(self, line: str) -> str:
        return self.command(line)  # the home decides

    def turns(self) -> list[Turn]:
        return [Turn(turn.asked, turn.text, turn.stop_reason == "end_turn") for turn in self.panel.turns(self._session)]

    def wait_approval(self) -> str:
        return self.panel.wait_permission().tool

    def _stream(self) -> Record[Json]:
        return self.panel.messages

    def _ends(self, message: Json) -> bool:
        return ends_turn(message, self._session)

    def _tool_answers(self) -> Iterator[str]:
        for message in self.panel.messages.messages():
            params = message.get("params") or {}
            if message.get("method") != "session/update" or params["sessionId"] != self._session:
                continue
            output = params["update"].get("rawOutput") or {}
            if output.get("type") == "MCP" and output.get("server_name") == SERVER_NAME:
                yield next(iter(output["output"].values()))


def calling(tool: str, **arguments: Any) -> str:
    """The step of a script that calls a tool of the bridge."""
    return f"tool mcp__{SERVER_NAME}__{tool} {json.dumps(arguments)}"


def _answer(text: str) -> Json:
    """What the tool answered; Claude Code 2.1.332 puts the tool's schema behind an error."""
    answer: Json = json.JSONDecoder().raw_decode(text)[0]
    return answer


def _texts(content: str | list[Json]) -> list[str]:
    if isinstance(content, str):
        return [content]
    return [block["text"] for block in content if block.get("type") == "text"]
