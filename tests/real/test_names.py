"""A session is found by the name that a person sees in its product, while it is open and when nobody has it open any more."""

from __future__ import annotations

import json
import os
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.real.binaries import CLAUDE_VERSIONS, CODEX_VERSIONS, GROK_VERSIONS
from tests.real.exchange import MCP, World, until
from tests.real.outsider import Outsider
from tests.real.releases import every

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.real.homes import Home
    from tests.real.party import Party

MARK: Final = "CROSS_AGENT_TEST_MARK"
TABS: Final = ".config/Code/User/globalStorage/state.vscdb"
"""Where an editor keeps what its extensions remember, below the home."""


class Asker:
    """Somebody who is no agent, on the machine on which the agents have their homes; its broker was there first."""

    def __init__(self, world: World) -> None:
        self.home = world.directory / "person"
        self.home.mkdir()
        environment = {name: os.environ[name] for name in ("PATH", MARK) if name in os.environ}
        stores = {"CLAUDE_CONFIG_DIR": ".claude", "CODEX_HOME": ".codex", "GROK_HOME": ".grok"}
        variables = {variable: str(self.home / name) for variable, name in stores.items()}
        own = {"HOME": str(self.home), "CROSS_AGENT_HOME": str(world.state)}
        self._bridge = Outsider(MCP, {**environment, **own, **variables, "CROSS_AGENT_DISABLE_HEADLESS": "1"})
        self.sessions()

    def sees(self, home: Home) -> None:
        """Makes the stores of ``home`` this person's: they are elsewhere in each test, so they are reached by links."""
        for name in (".claude", ".codex", ".grok"):
            if (home.path / name).is_dir() and not (self.home / name).exists():
                (self.home / name).symlink_to(home.path / name)

    def sessions(self) -> dict[str, dict[str, Any]]:
        listed = self._bridge.call("list_agent_sessions", scope="any", limit=50)["sessions"]
        return {line["id"]: line for line in listed}

    def wait(self, session: str, **fields: object) -> dict[str, Any]:
        """The session as it is listed, as soon as it is so: files tell of a rename a moment after the panel does."""
        lines = until(self.sessions, lambda lines: session in lines and fields.items() <= lines[session].items())
        return lines[session]

    def send(self, agent: str, name: str) -> dict[str, Any]:
        return self._bridge.call(f"send_to_{agent}", message="by name [[say here]]", session_id=name)

    def reaches(self, party: Party, name: str) -> None:
        """A message to whoever is called so arrives there."""
        turns = len(party.turns())
        # A stream may tell a name before the files do, whose word counts; they follow within a second (SE-14).
        receipt = until(lambda: self.send(party.agent, name), lambda answer: answer.get("code") != "unknown_session")
        assert receipt["ok"], receipt
        assert (receipt["target_session_id"], receipt["target_selected_by"]) == (party.session, "caller")
        party.wait_turns(turns + 1)

    def finds_closed(self, agent: str, session: str, name: str) -> None:
        """Whoever is called so is known, and said not to be open."""
        refused = self.send(agent, name)
        assert (refused["ok"], refused["code"]) == (False, "headless_disabled"), refused
        assert session in refused["error"] and "not open" in refused["error"]

    def finds_nobody(self, agent: str, name: str) -> None:
        """Soon: Claude Code writes a new name into its registry up to 50 ms after its transcript, and until then has both."""

        def look() -> str:
            nobodys = {"conversation_id": "conv_000000000000"}  # whoever is found gets nothing
            code: str = self._bridge.call(f"send_to_{agent}", message="-", session_id=name, **nobodys)["code"]
            assert code in ("unknown_session", "unknown_conversation")
            return code

        until(look, lambda code: code == "unknown_session")

    def close(self) -> None:
        self._bridge.close()


@pytest.fixture
def asker(world: World) -> Iterator[Asker]:
    made = Asker(world)
    yield made
    made.close()


def begin(party: Party) -> None:
    party.say("first words [[say noted]]")
    party.wait_turns(1)


@pytest.mark.requirement("SE-01", "SE-24", "SE-20", "SE-14")
def test_claude_session_is_found_by_what_it_was_renamed_to(world: World, asker: Asker) -> None:
    party = world.claude()
    asker.sees(party.panel.home)
    begin(party)
    party.say("/rename Blue  Whale 🐋")
    asker.wait(party.session, name="Blue Whale 🐋", live=True)
    asker.reaches(party, " blue  whale 🐋")  # it is shown with one space, and kept as it was given
    party.panel.rename("Red Fox")
    asker.wait(party.session, name="Red Fox", live=True)
    asker.reaches(party, "RED FOX")
    asker.finds_nobody("claude", "Blue  Whale 🐋")
    session = party.session
    party.close()
    shown = asker.wait(session, live=False, name="Red Fox")
    assert (shown["name_kind"], shown["cwd"]) == ("given", str(party.panel.home.cwd))
    asker.finds_closed("claude", session, "red fox")
    asker.finds_closed("claude", session, session)
    again = world.claude(resume=session)
    asker.wait(session, accepts_messages=True)
    asker.reaches(again, "Red Fox")


@pytest.mark.full
@pytest.mark.requirement("SE-01", "SE-24", "SE-20")
def test_session_of_an_old_claude_is_found_by_the_name_it_was_started_with(world: World, asker: Asker) -> None:
    party = world.claude(CLAUDE_VERSIONS[-1], extra_args=["-n", "Red Fox"])
    asker.sees(party.panel.home)
    begin(party)
    session = party.session
    asker.wait(session, name="Red Fox")
    asker.reaches(party, "red fox")
    party.close()
    asker.wait(session, live=False, name="Red Fox")
    asker.finds_closed("claude", session, "Red Fox")


@every(CODEX_VERSIONS)
@pytest.mark.requirement("SE-02", "SE-24", "SE-20")
def test_codex_thread_is_found_by_its_name(world: World, asker: Asker, version: str) -> None:
    party = world.codex(version)
    home = party.panel.home
    asker.sees(home)
    begin(party)
    for name in ("Grey  Heron", "Cafe\u0301 Reiher"):
        party.panel.call("thread/name/set", {"threadId": party.session, "name": name})
        asker.wait(party.session, name=" ".join(name.split()), live=True)
        asker.reaches(party, f" {name.upper()} ")
    asker.finds_nobody("codex", "Grey  Heron")
    party.close()
    shown = asker.wait(party.session, live=False, name="Cafe\u0301 Reiher")
    assert (shown["name_kind"], shown["cwd"]) == ("given", str(home.cwd))
    asker.finds_closed("codex", party.session, "café reiher")
    panel = world.codex_panel(version)
    panel.call("thread/archive", {"threadId": party.session})
    refused = until(lambda: asker.send("codex", "café reiher"), lambda answer: answer["code"] == "not_a_target")
    assert party.session in refused["error"] and "archived" in refused["error"]


@every(GROK_VERSIONS)
@pytest.mark.requirement("SE-03", "SE-24", "SE-20")
def test_grok_session_is_found_by_its_title_and_by_the_name_of_its_tab(world: World, asker: Asker, version: str) -> None:
    party = world.grok(version)
    asker.sees(party.panel.home)
    begin(party)
    party.panel.call("x.ai/session/rename", {"sessionId": party.session, "title": "White Stork"})
    asker.wait(party.session, name="White Stork", live=True)
    asker.reaches(party, "white stork")
    name_tab(asker.home / TABS, party.session, "Schwarzstorch ✨")
    asker.wait(party.session, name="Schwarzstorch ✨")
    asker.reaches(party, "schwarzstorch ✨")
    party.close()
    shown = asker.wait(party.session, live=False, name="Schwarzstorch ✨")
    assert shown["name_kind"] == "given"
    asker.finds_closed("grok", party.session, "SCHWARZSTORCH ✨")
    name_tab(asker.home / TABS, party.session, "Another")
    asker.wait(party.session, name="Another")
    asker.finds_closed("grok", party.session, "another")
    asker.finds_nobody("grok", "Schwarzstorch ✨")


def name_tab(database: Path, session: str, name: str) -> None:
    """What the editor writes when a person names a tab of the extension."""
    database.parent.mkdir(parents=True, exist_ok=True)
    state = json.dumps({"grok.sessionMeta": {session: {"customName": name}}})
    with closing(sqlite3.connect(database)) as editor, editor:
        editor.execute("CREATE TABLE IF NOT EXISTS ItemTable (key TEXT UNIQUE ON CONFLICT REPLACE, value BLOB)")
        editor.execute("INSERT INTO ItemTable VALUES ('sahilrakhaiya.grok-build-gui', ?)", (state,))
