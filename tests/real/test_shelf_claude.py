"""Stores that Claude Code itself has written: the index says of each session what the product's own list says of it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import claude_agent_sdk as sdk
import pexpect
import pytest

from broker.processes import identify
from shims.claude.shelf import SHELF
from shims.names import CUT, LONGEST_TITLE, apart
from shims.shelf import Card, Hold, Told
from tests.real.binaries import CLAUDE_VERSIONS, binary
from tests.real.exchange import until
from tests.real.homes import ClaudeHome
from tests.real.models import AnthropicModel
from tests.real.panels import ClaudePanel
from tests.real.panels.record import WAIT

if TYPE_CHECKING:
    from collections.abc import Iterator

NEWEST: Final = CLAUDE_VERSIONS[0]
SUB_AGENT: Final = 'tool Task {"description": "d", "prompt": "look [[say seen]]", "subagent_type": "general-purpose"}'

versions = pytest.mark.parametrize(
    "version", [NEWEST, *(pytest.param(old, marks=pytest.mark.full) for old in CLAUDE_VERSIONS[1:])]
)


class Shop:
    """A home, and the index's view of its store through a link, kept as the index keeps it."""

    def __init__(self, directory: Path, home: ClaudeHome, version: str) -> None:
        self.home = home
        self.store = directory / "linked store"
        self.store.symlink_to(home.config)
        self.real = binary(f"claude-{version}")
        self.wrapper = directory / "wrapper"
        self.wrapper.write_text('#!/bin/sh\nexec "$@"\n', encoding="utf-8")
        self.wrapper.chmod(0o755)
        self._told: dict[str, Told] = {}

    def run(self, *words: str, cwd: Path | None = None) -> str:
        """One call of ``claude -p``; the id of its session."""
        done = subprocess.run(
            [str(self.real), "-p", "--output-format", "json", *words],
            env={**self.home.environment(), "PWD": str(cwd or self.home.cwd)},
            cwd=cwd or self.home.cwd,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=True,
            timeout=WAIT,
        )
        return str(json.loads(done.stdout)["session_id"])

    def panel(self, **options: Any) -> ClaudePanel:
        return ClaudePanel(self.wrapper, self.real, self.home, **options)

    def look(self) -> None:
        """Reads every file, from where it was read last."""
        files = list(SHELF.files(str(self.store)))
        self._told = {file.path: SHELF.read(str(self.store), file, self._told.get(file.path)) for file in files}
        assert [told for told in self._told.values() if told.cards] == [
            told for file in files if (told := SHELF.read(str(self.store), file, None)).cards
        ]

    def cards(self) -> dict[str, Card]:
        self.look()
        return {card.id: card for told in self._told.values() for card in told.cards}

    def holds(self) -> list[Hold]:
        self.look()
        return [hold for told in self._told.values() for hold in told.holds]

    def agrees(self) -> dict[str, Card]:
        """The sessions that are targets, which are those that the product lists, under the same names."""
        cards = {card.id: card for card in self.cards().values() if not card.barred}
        ours = {card.id: (card.cwd, card.name or _beginning(apart(card.title)[0])) for card in cards.values()}
        theirs = {
            info.session_id: (info.cwd, info.custom_title or _beginning(info.first_prompt or "")) for info in sdk.list_sessions()
        }
        assert ours == theirs
        return cards


def _beginning(title: str) -> str:
    """Of a long title, without the mark that it goes on."""
    return title.removesuffix(CUT)[: LONGEST_TITLE - 1].rstrip()


@pytest.fixture
def model() -> Iterator[AnthropicModel]:
    with AnthropicModel() as model:
        yield model


def is_idle(shop: Shop, panel: ClaudePanel) -> bool:
    return SHELF.holding(str(shop.store), shop.holds()) == {panel.session_id: (identify(panel.agent_pid),)}


@pytest.mark.requirement("SE-01", "SE-09", "SE-14")
@versions
def test_the_index_says_what_claude_says(
    tmp_path: Path, model: AnthropicModel, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    home = ClaudeHome(tmp_path / "h", model.url, extra_env={"CLAUDE_CONFIG_DIR": str(tmp_path / "linked store")})
    shop = Shop(tmp_path, home, version)
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(shop.store))
    odd, link = shop.home.path / "a_b.c d é日", shop.home.path / "link"
    odd.mkdir()
    link.symlink_to(odd)
    began = time.time()

    named = shop.run("-n", "  Ünï 🤖 מה ", "in a linked place [[say one]]", cwd=link)
    cleared = shop.run("/clear")
    shop.run("--no-session-persistence", "leaves nothing")
    with shop.panel() as panel:
        spawned = panel.session_id
        assert until(lambda: is_idle(shop, panel), bool)
        panel.say(f"hire somebody [[{SUB_AGENT} ;; say done]]")
        panel.wait_result()
        until(lambda: shop.cards().get(spawned), lambda card: card and not card.barred)  # 2.1.197 answers before it writes
        cards = shop.agrees()
        assert (cards[named].name, cards[named].cwd) == ("Ünï 🤖 מה", str(odd))
        assert (cards[cleared].title, cards[spawned].cwd) == ("/clear", str(shop.home.cwd))
        assert {*cards} == {named, cleared, spawned}
        assert all(began < card.moved <= time.time() for card in cards.values())
        panel.rename("Of the panel")
        until(lambda: shop.cards()[spawned].name, lambda name: name == "Of the panel")
        if version == NEWEST:
            until(shop.holds, lambda holds: holds[0].name == "Of the panel")
            panel.say("/rename Of the person")
            until(lambda: shop.cards()[spawned].name, lambda name: name == "Of the person")
        os.kill(panel.agent_pid, signal.SIGKILL)
        until(lambda: is_idle(shop, panel), lambda idle: not idle)
    assert [hold.session for hold in shop.holds()] == [spawned]
    assert SHELF.holding(str(shop.store), shop.holds()) == {}

    shop.agrees()
    sdk.rename_session(named, "By the SDK\n")
    assert shop.agrees()[named].name == "By the SDK"
    assert shop.run("--resume", named, "-n", "Again", "and on [[say two]]", cwd=odd) == named
    fork = sdk.fork_session(named, directory=str(odd)).session_id
    cards = shop.agrees()
    assert (cards[named].name, cards[named].title) == ("Again", "in a linked place [[say one]]")
    assert cards[fork].cwd == str(odd)
    sdk.delete_session(cleared)
    assert {*shop.agrees()} == {named, spawned, fork}


@pytest.mark.full
@pytest.mark.requirement("SE-01", "SE-14")
@pytest.mark.parametrize("version", CLAUDE_VERSIONS)
def test_a_session_in_a_terminal(tmp_path: Path, model: AnthropicModel, version: str) -> None:
    """Renamed before its first message: its file is there, and it is no target yet."""
    home = ClaudeHome(tmp_path / "h", model.url)
    shop = Shop(tmp_path, home, version)
    terminal = pexpect.spawn(
        str(shop.real), [], env=home.environment(), cwd=str(home.cwd), dimensions=(40, 120), encoding="utf-8", timeout=WAIT
    )
    try:
        terminal.expect("❯")
        for words, title, barred in (("/rename Terminal", "", "no message yet"), ("hello", "hello", "")):
            terminal.send(words)
            terminal.expect_exact(words.split()[-1])  # typed and return at once would be a paste
            terminal.send("\r")
            until(lambda: [card[1:4] for card in shop.cards().values()], [(str(home.cwd), "Terminal", title)].__eq__)
            assert [card.barred for card in shop.cards().values()] == [barred]
    finally:
        terminal.kill(signal.SIGKILL)
        terminal.expect(pexpect.EOF)  # pexpect's own way gives a killed process a tenth of a second to be gone
        terminal.wait()
        terminal.close()
