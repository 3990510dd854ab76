"""What the panels of all agents have in common: a process behind a shim, what is asked of it, and what is seen of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from broker.processes import ProcessId, identify
from tests.integration.lines import PATIENCE, Json, Lines

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


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()] or _children_of_threads(pid)


def _children_of_threads(pid: int) -> list[int]:
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return [int(child) for task in tasks for child in (task / "children").read_text().split()]


def records(path: Path) -> list[Json]:
    """Whole lines of a file that may be written to right now, or end in half a line for ever."""
    found = []
    for line in path.read_text(errors="replace").splitlines():
        record = parsed(line)
        if record:
            found.append(record)
    return found


def parsed(text: str) -> Json:
    try:
        value = json.loads(text)
    except ValueError:
        return {"text": text} if text and not text.startswith("{") else {}
    return value if isinstance(value, dict) else {}
