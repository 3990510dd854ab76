"""Local commands of the Claude stub: ``/clear``, ``/rename``, ``/context`` and what else runs without the model.

Owns what a command does and says; a command that the generation doesn't know is told apart here too.
"""

from __future__ import annotations

from shims.stub_values import uuid4

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Final

    from shims.claude.stub.backlog import Message
    from shims.claude.stub.session import Session

COMMON: Final = frozenset({"clear", "compact", "config", "context", "heapdump", "reload-skills", "usage"})
MODERN: Final = COMMON | {"autocompact", "color", "effort", "fast", "focus", "mcp", "model", "recap", "rename"}
# These exist in a terminal, and say so when a stream-json client asks for them.
ELSEWHERE: Final = frozenset({"rename", "model", "resume", "exit", "quit", "login", "logout", "mcp", "help"})
CONTEXT: Final = "## Context Usage\n\n**Model:** scripted  \n**Tokens:** 5 / 200k (0%)\n"


def runs_locally(message: Message, *, modern: bool) -> bool:
    """Whether the message is a command that never reaches the model: 2.1.332 sends it what it doesn't know."""
    if message.command is None:
        return False
    return not modern or message.command[0] in MODERN


def run_command(session: Session, message: Message) -> None:
    """Runs one local command: its frames, its records, its result."""
    assert message.command is not None
    name, arguments = message.command
    frames = session.frames
    modern = session.options.modern
    session.transcript.queue("dequeue")
    frames.lifecycle(message, "started")
    said = perform(session, name, arguments, message.uuid)
    session.open_turn()
    output = "" if name == "clear" else said
    echo = f"<command-name>/{name}</command-name>\n            <command-message>{name}</command-message>\n"
    echo += f"            <command-args>{arguments}</command-args>"
    if modern or name in COMMON:
        session.transcript.chain({"type": "user", "message": {"role": "user", "content": echo}}, uuid=message.uuid)
    else:
        session.transcript.chain({"type": "system", "subtype": "local_command", "content": message.text})
    content = f"<local-command-stdout>{output}</local-command-stdout>"
    uuid = session.transcript.chain({"type": "system", "subtype": "local_command", "content": content})
    text = said if said or modern else "(no content)"
    if text:
        marks = {"local_command_source": content, "local_command_run": {"command": name, "args": arguments}}
        block = {"type": "text", "text": text}
        stop = "end_turn" if modern else "stop_sequence"
        frames.assistant("msg_" + uuid4(), [block], marks if modern else {}, uuid, stop_reason=stop)
    if modern:
        frames.echo(echo, message.uuid)
    finish_quietly(session, message, output, {"local_command": name} if modern else {})


def finish_quietly(session: Session, message: Message, output: str, extra: dict[str, Any]) -> None:
    """The result of something that asked no model."""
    marks: dict[str, Any] = {}
    if session.options.modern and message.named:
        marks = {"user_message_uuid": message.uuid, "user_message_uuids": [message.uuid]}
    session.frames.result(
        {
            "subtype": "success",
            "is_error": False,
            "duration_ms": 1,
            "duration_api_ms": 0,
            "num_turns": 0,
            "result": output,
            "stop_reason": None,
            "permission_denials": [],
            **marks,
            **extra,
        }
    )
    session.frames.lifecycle(message, "completed")


def perform(session: Session, name: str, arguments: str, uuid: str) -> str:
    """Does it; returns what it says."""
    modern = session.options.modern
    if name == "clear":
        session.clear(uuid)
        return ""
    if name == "context":
        return CONTEXT
    if name == "rename" and modern:
        if not arguments:
            return "Usage: /rename <name>"
        session.rename(arguments)
        return f"Session renamed to: {arguments}"
    if name in (MODERN if modern else COMMON):
        return "(scripted agent: nothing to show)"
    return f"/{name} isn't available in this environment." if name in ELSEWHERE else f"Unknown command: /{name}"
