"""Grok's store as the real agent makes it: what the shelf tells of a session is what the agent itself tells."""

from __future__ import annotations

import json
import re
import subprocess
from typing import TYPE_CHECKING

import pytest

from shims.grok import tabs
from shims.grok.shelf import SHELF
from shims.shelf import Hold
from tests.real.binaries import GROK_VERSIONS, binary
from tests.real.exchange import until
from tests.real.gates import Gate
from tests.real.homes import GrokHome
from tests.real.models import XaiModel
from tests.real.panels import GrokPanel

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from broker.processes import ProcessId
    from shims.shelf import Card

OLD = "1.0.5"
TITLE = "Scripted"
NAME = "Mein Näme 👩‍👩‍👧 עברית"
"""Grok itself takes control characters and overrides of direction out of a name, and the spaces around it (1.0.5, 1.0.41)."""
SLOW = 60.0

versions = pytest.mark.parametrize("version", [*GROK_VERSIONS, pytest.param(OLD, marks=pytest.mark.full)])


class Store:
    """One home of Grok, reached through a link, and what is told of it."""

    def __init__(self, directory: Path, model: XaiModel, version: str) -> None:
        self.program = binary(f"grok-{version}")
        link = directory / "a link"
        self.path = str(link)
        self.home = GrokHome(directory / "h", model.url, shell="allow", extra_env={"GROK_HOME": self.path})
        link.symlink_to(self.home.config)
        self.wrapper = directory / "wrapper"
        self.wrapper.write_text('#!/bin/sh\nexec "$CROSS_AGENT_REAL_GROK" "$@"\n', encoding="utf-8")
        self.wrapper.chmod(0o755)

    def panel(self) -> GrokPanel:
        return GrokPanel(self.wrapper, self.program, self.home, patience=0.1)

    def run(self, *arguments: str, cwd: Path | None = None) -> str:
        return subprocess.run(
            [str(self.program), *arguments],
            env=self.home.environment(),
            cwd=cwd or self.home.cwd,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=True,
            encoding="utf-8",
            timeout=SLOW,
        ).stdout

    def listing(self) -> dict[str, str]:
        """Id and title of each session of the work directory, as ``grok sessions list`` has them."""
        rows = re.findall(r"^([0-9a-f-]{36})  \S+  \S+  local  (.*)$", self.run("sessions", "list"), re.MULTILINE)
        return {session: "" if title == "(no summary)" else title for session, title in rows}

    def cards(self) -> dict[str, Card]:
        files = list(SHELF.files(self.path))
        return {card.id: card for file in files for card in SHELF.read(self.path, file, None).cards}

    def holding(self) -> tuple[list[Hold], dict[str, tuple[ProcessId, ...]]]:
        holds = [hold for file in SHELF.files(self.path) for hold in SHELF.read(self.path, file, None).holds]
        return holds, dict(SHELF.holding(self.path, holds))

    def wait(self, session: str, **fields: str) -> Card:
        """The session's card as soon as it says so: titles are written behind the answer."""

        def told() -> Card | None:
            card = self.cards().get(session)
            return card if card is not None and fields.items() <= card._asdict().items() else None

        card = until(told, lambda found: found is not None)
        assert card is not None
        return card


@pytest.fixture
def model() -> Iterator[XaiModel]:
    with XaiModel() as made:
        yield made


@pytest.fixture(autouse=True)
def no_editors(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(tabs.VARIABLE, str(tmp_path / "none"))


@pytest.mark.requirement("SE-03", "SE-14")
@versions
def test_sessions_of_a_panel(tmp_path: Path, model: XaiModel, version: str) -> None:
    store = Store(tmp_path, model, version)
    work = str(store.home.cwd)
    with store.panel() as panel:
        plain, named, parent, silent = (panel.start_session() for _ in range(4))
        for session in (plain, named):
            panel.say(session, "hello [[say one]]")
            panel.wait_turn(session)
        store.wait(plain, cwd=work, name="", title=TITLE, barred="")
        panel.call("x.ai/session/rename", {"sessionId": named, "title": NAME})
        store.wait(named, cwd=work, name=NAME, title="", barred="")
        task = {"description": "help", "prompt": "your task [[say by the child]]", "subagent_type": "general-purpose"}
        panel.say(parent, f"[[tool spawn_subagent {json.dumps(task)} ;; say delegated]]")
        panel.wait_turn(parent)
        store.wait(parent, title=TITLE)
        rows = panel.call("x.ai/sessions/list", {})["result"]["sessions"]
    moved = store.cards()[plain].moved
    with store.panel() as panel:
        panel.load_session(plain)
        panel.load_session(silent)
    cards = store.cards()
    assert cards[plain].moved == moved, "opening a session has moved it"
    assert cards[silent].barred == "no message yet"
    children = cards.keys() - {plain, named, parent, silent}
    assert {cards[child].barred for child in children} == {"a sub-agent's session"}
    offered = {session: card.name or card.title for session, card in cards.items() if session not in children}
    assert offered == store.listing()
    assert offered == {row["sessionId"]: row["title"] or "" for row in rows}
    assert {cards[row["sessionId"]].cwd for row in rows} == {row["cwd"] for row in rows} == {work}
    store.run("--single=more [[say more]]", "--resume", plain)
    assert store.cards()[plain].moved > moved
    store.run("sessions", "delete", named)
    assert cards.keys() - store.cards().keys() == {named}


@pytest.mark.requirement("SE-03")
@versions
def test_sessions_of_the_command_line(tmp_path: Path, model: XaiModel, version: str) -> None:
    """Also where the directory's path is odd, was reached by a link, or is too long for the name of a directory."""
    store = Store(tmp_path, model, version)
    odd, long, link = tmp_path / "od d_.ü🙂", tmp_path / ("x" * 120) / ("y" * 120), tmp_path / "link"
    for directory in (odd, long):
        directory.mkdir(parents=True)
    link.symlink_to(odd)
    for directory in (odd, long, link):
        store.run("-p", "hello [[say hello]]", cwd=directory)
    assert sorted(card.cwd for card in store.cards().values()) == sorted(map(str, (odd, odd, long)))
    for session in store.cards():
        store.wait(session, name="", title=TITLE, barred="")


@pytest.mark.requirement("SE-09")
@versions
def test_a_registered_process_holds_its_session_until_it_ends(tmp_path: Path, model: XaiModel, version: str) -> None:
    store = Store(tmp_path, model, version)
    gate = Gate(tmp_path)
    environment = {**store.home.environment(), "GROK_TRACK_HEADLESS": "1"}
    words = f"hello [[slow {gate} abcdef]]"
    with subprocess.Popen(
        [str(store.program), "-p", words],
        env=environment,
        cwd=store.home.cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    ) as process:
        try:
            gate.reached()
            (hold,), holding = store.holding()
            ((holder,),) = holding.values()
            assert holding.keys() == {hold.session} == store.cards().keys()
            assert holder.pid == hold.pid == process.pid
        finally:
            process.kill()
    assert store.holding() == ([hold], {})
    assert process.returncode == -9
    store.run("--single=more [[say more]]", "--resume", hold.session)
    assert store.wait(hold.session, barred="").moved > 0
