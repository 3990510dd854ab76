"""How a person names a session, in each agent and version."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.matrix.differences import difference
from tests.real.party import CodexParty, GrokParty

if TYPE_CHECKING:
    from tests.real.exchange import World
    from tests.real.party import Party


def open_named(world: World, release: str, name: str) -> Party:
    """A session in which one turn has run, with ``name`` given to it."""
    agent, _, version = release.partition("-")
    at_start = agent == "claude" and difference(agent, version, "by name") is not None
    party = world.open(release, **({"extra_args": ["-n", name]} if at_start else {}))
    party.say("first words [[say noted]]")
    party.wait_turns(1)
    if at_start:
        session = party.session
        party.close()
        return world.reopen(release, session)
    if isinstance(party, CodexParty):
        party.panel.call("thread/name/set", {"threadId": party.session, "name": name})
    elif isinstance(party, GrokParty):
        party.panel.call("x.ai/session/rename", {"sessionId": party.session, "title": name})
    else:
        party.say(f"/rename {name}")
    return party
