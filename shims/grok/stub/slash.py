"""Slash commands of the Grok stub: those that the agent runs itself, without the model.

Owns which they are and what they say. Letter case, white space in front and what follows do not matter; any other text that
begins with a slash goes to the model.
"""

from __future__ import annotations

from shims.grok.stub.shown import COMMANDS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from shims.grok.stub.turn import Turn


def command_of(text: str) -> str | None:
    """The command that ``text`` runs, None if it goes to the model."""
    word = text.split(None, 1)[0].lower() if text.strip() else ""
    return word[1:] if word.startswith("/") and word[1:] in COMMANDS else None


def run(turn: Turn, command: str) -> None:
    """Runs it: some say a word, `/context` nothing at all."""
    session = turn.session
    if command == "always-approve":
        session.approves_all = not session.approves_all
    said = {
        "session-info": f"**Title:** {session.title}\n\n**Session ID:** {session.session_id}\n\n**Turn:** {session.prompted}",
        "goal": "No goal is currently set. Use /goal <objective> to start one.",
        "feedback": "Feedback saved locally; no feedback server is configured for this session.",
    }.get(command, "")
    turn.chunk("agent_message_chunk", said, {"hostTurn": True})
    turn.flush()
