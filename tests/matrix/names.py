"""How a person names a session, in each agent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.real.party import ClaudeParty, CodexParty, GrokParty

if TYPE_CHECKING:
    from tests.real.party import Party


def rename(party: Party, name: str) -> None:
    """Gives the session a name, as the agent's editor does."""
    if isinstance(party, ClaudeParty):
        party.panel.rename(name)
    elif isinstance(party, CodexParty):
        party.panel.call("thread/name/set", {"threadId": party.session, "name": name})
    elif isinstance(party, GrokParty):
        party.panel.call("x.ai/session/rename", {"sessionId": party.session, "title": name})
