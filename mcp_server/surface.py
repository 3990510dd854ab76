"""The tools of the MCP server `cross-agent`: names, parameters, descriptions, instructions. Data only.

Owns every word that an agent reads of the tools, and the check of a call's arguments against it. What the tools do is the
broker's. A description is written for an agent that has never heard of the others.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from broker.errors import Refusal

NAME = "cross-agent"

INSTRUCTIONS = "\n".join(
    (
        "Send messages to other coding-agent sessions (Claude Code, Codex, Grok Build) that are open beside you, and get "
        "their answers.",
        "- send_to_<agent> returns a receipt at once. The answer comes later, as a new message in this session: end your turn "
        "instead of waiting. bridge_status(delivery_id) shows what became of it.",
        "- list_agent_sessions shows who is there. Name session_id in every message of an exchange; without it a panel of your "
        "window is chosen.",
        "- Compare target_session_id in the receipt before you report a send as done: a misdelivered message can't be recalled.",
        "- Write messages so that they can be understood on their own: the peer sees nothing of this conversation.",
        '- Messages that begin with "=== CROSS-AGENT BRIDGE" come from peers, not from the human user.',
    )
)


_KINDS: dict[str, type | tuple[type, ...]] = {"string": str, "boolean": bool, "integer": int, "number": (int, float)}


@dataclass(frozen=True, slots=True)
class Parameter:
    """One argument of a tool; ``kind`` is a JSON schema type."""

    name: str
    kind: str
    description: str
    default: Any = None
    required: bool = False
    choices: tuple[str, ...] = ()
    least: float | None = None
    most: float | None = None

    def schema(self) -> dict[str, Any]:
        schema: dict[str, Any] = {"type": self.kind, "description": self.description}
        if self.choices:
            schema["enum"] = list(self.choices)
        if self.least is not None:
            schema["minimum"] = self.least
        if self.most is not None:
            schema["maximum"] = self.most
        if not self.required and self.default is not None:
            schema["default"] = self.default
        return schema

    def check(self, value: Any) -> Any:
        fits = isinstance(value, _KINDS[self.kind]) and (self.kind == "boolean" or not isinstance(value, bool))
        fits = fits and not (isinstance(value, float) and not math.isfinite(value))
        fits = fits and not (self.choices and value not in self.choices)
        if not fits or (self.least is not None and value < self.least) or (self.most is not None and value > self.most):
            wanted = f"one of {', '.join(self.choices)}" if self.choices else f"a {self.kind}"
            wanted += f" of at least {self.least:g}" if self.least is not None else ""
            wanted += f" and at most {self.most:g}" if self.most is not None else ""
            raise Refusal("bad_argument", f"{self.name} must be {wanted}", "Call again with the argument corrected.")
        return value


@dataclass(frozen=True, slots=True)
class Tool:
    name: str
    title: str
    description: str
    parameters: tuple[Parameter, ...]
    read_only: bool

    def input_schema(self) -> dict[str, Any]:
        return {
            "type": "object",
            "properties": {parameter.name: parameter.schema() for parameter in self.parameters},
            "required": [parameter.name for parameter in self.parameters if parameter.required],
            "additionalProperties": False,
        }

    def arguments(self, given: dict[str, Any]) -> dict[str, Any]:
        """Every parameter with its value: as given, or its default.

        Raises:
            Refusal: an unknown, missing or wrong argument.
        """
        known = {parameter.name: parameter for parameter in self.parameters}
        unknown = sorted(given.keys() - known.keys())
        if unknown:
            raise Refusal("bad_argument", f"{self.name} has no argument {unknown[0][:40]}", f"It has: {', '.join(known)}.")
        values = {}
        for parameter in self.parameters:
            value = given.get(parameter.name)
            if value is None and parameter.required:
                raise Refusal("bad_argument", f"{parameter.name} is missing", "Call again with it.")
            values[parameter.name] = parameter.default if value is None else parameter.check(value)
        return values


_SCOPE = Parameter(
    "scope",
    "string",
    "Which directories count when sessions are looked for: cwd (this one and below), tree (its parents as well), any.",
    default="",
    choices=("cwd", "tree", "any"),
)
_CWD = Parameter("cwd", "string", "Directory that stands for this session's own; the default is where it works.", default="")


def _send(agent: str, product: str, *, same_agent: bool) -> Tool:
    parameters = [
        Parameter("message", "string", "What the peer should do or know, understandable on its own.", required=True),
        Parameter(
            "session_id",
            "string",
            f"Id or exact name of the {product} session. Without it the panel of this editor window is chosen that a "
            "person typed into last.",
            default="",
        ),
        Parameter("new_session", "boolean", f"Open a new {product} conversation for this message.", default=False),
        _SCOPE,
        _CWD,
        Parameter(
            "timeout",
            "number",
            "Seconds that a busy peer is waited for at least, before the message is given up as not delivered; for a turn "
            "on a command line, how long it may give no sign of life.",
            default=600,
            least=1,
        ),
        Parameter(
            "conversation_id",
            "string",
            "The conversation (conv_…) that this message goes on with, from a receipt or from the frame of a message.",
            default="",
        ),
        Parameter(
            "raw",
            "boolean",
            "Deliver the text without the frame that says who writes and how to answer.",
            default=False,
        ),
    ]
    if same_agent:
        parameters.append(
            Parameter(
                "allow_same_agent",
                "boolean",
                f"From a {product} session: allow another {product} session to be chosen without naming it.",
                default=False,
            )
        )
    return Tool(
        f"send_to_{agent}",
        f"Send a message to a {product} session",
        f"Sends a message to a {product} session. Returns a receipt at once; the message runs there as a turn of "
        "its own, after what is running now, and the answer comes back to this session as a new message. A session that "
        "is open in a panel gets it there; one that is open nowhere goes on for one turn on its own command line.",
        tuple(parameters),
        read_only=False,
    )


TOOLS = (
    _send("claude", "Claude Code", same_agent=True),
    _send("codex", "Codex", same_agent=False),
    _send("grok", "Grok Build", same_agent=True),
    Tool(
        "list_agent_sessions",
        "List agent sessions",
        "Lists sessions, open ones and others, those of the nearest directory first and of these the newest: id, name, agent, "
        "directory, in which window it is open, whether messages reach it and if not why, whether a turn runs and whether it "
        "waits for an approval.",
        (
            Parameter(
                "agent",
                "string",
                "Whose sessions: all, both (Claude Code and Codex), or one agent.",
                default="all",
                choices=("all", "both", "claude", "codex", "grok"),
            ),
            _SCOPE,
            _CWD,
            Parameter("limit", "integer", "At most this many.", default=10, least=1, most=500),
        ),
        read_only=True,
    ),
    Tool(
        "pin_agent_session",
        "Pin a session",
        "Sends messages that name no session_id from this directory to one session of an agent, until it is unpinned: while "
        "the pin stands, no other session is chosen and no new conversation is opened. An empty session_id unpins.",
        (
            Parameter("agent", "string", "Whose session.", required=True, choices=("claude", "codex", "grok")),
            Parameter("session_id", "string", "Id or exact name of the session; empty: unpin.", default=""),
            _CWD,
        ),
        read_only=False,
    ),
    Tool(
        "bridge_status",
        "Status of the bridge, or of one delivery",
        "Without delivery_id: who this session is to the bridge, whom a message without session_id would go to, which panels "
        "are open here and in other windows, which settings hold, what is queued and what waits for this session. With "
        "it: the record of that delivery, the peer's answer as far as there is one, and whether "
        "the peer waits for an approval.",
        (
            _CWD,
            _SCOPE,
            Parameter("delivery_id", "string", "A delivery_id (dlv_…) from a receipt.", default=""),
        ),
        read_only=True,
    ),
)

BY_NAME = {tool.name: tool for tool in TOOLS}


def tool(name: str) -> Tool:
    """The tool called ``name``. Raises Refusal for an unknown one."""
    found = BY_NAME.get(name)
    if found is None:
        raise Refusal("unknown_tool", f"there is no tool {name[:60]}", f"There are: {', '.join(BY_NAME)}.")
    return found
