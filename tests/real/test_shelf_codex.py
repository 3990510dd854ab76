"""What the index learns of a store that the real Codex wrote, against what Codex itself says of it."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING, Any, Final

import pytest

from broker.processes import identify
from shims.codex.shelf import SHELF
from shims.names import apart, cut
from shims.shelf import Card, Told
from tests.real.binaries import CODEX_VERSIONS, binary
from tests.real.homes import CodexHome
from tests.real.models import OpenAIModel
from tests.real.panels import CodexPanel
from tests.real.panels.record import WAIT

if TYPE_CHECKING:
    from pathlib import Path

Json = dict[str, Any]

PICTURE: Final = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
KINDS: Final = ["cli", "vscode", "exec", "appServer", "unknown"]
"""Every source of a thread except those of sub-agents."""


class Index:
    """Reads the store as the index does: each file from where it was read last."""

    def __init__(self, store: Path) -> None:
        self.store = str(store)
        self.told: dict[str, Told] = {}
        self._inodes: dict[str, int] = {}

    def look(self) -> None:
        files = {file.path: file for file in SHELF.files(self.store)}
        told = {}
        for path, file in files.items():
            before = self.told.get(path) if self._inodes.get(path) == file.inode else None
            told[path] = SHELF.read(self.store, file, before)
        self.told, self._inodes = told, {path: file.inode for path, file in files.items()}

    def cards(self) -> dict[str, Card]:
        ranked = sorted((card for told in self.told.values() for card in told.cards), key=lambda card: card.rank)
        return {card.id: card for card in ranked}

    def names(self) -> dict[str, str]:
        return {thread: name for told in self.told.values() for thread, name in told.names}

    def holders(self) -> dict[str, set[int]]:
        holds = [hold for told in self.told.values() for hold in told.holds]
        return {thread: {process.pid for process in found} for thread, found in SHELF.holding(self.store, holds).items()}


class Person:
    """Somebody who works with one panel and the command line of one Codex."""

    def __init__(self, home: CodexHome, version: str, model: OpenAIModel) -> None:
        self.home, self.version, self.model = home, version, model
        self.panel = self.open()

    def open(self) -> CodexPanel:
        executable = binary(f"codex-{self.version}")
        return CodexPanel(executable, executable, self.home)

    def thread(self, *parts: str | Json, name: str = "", **params: Any) -> str:
        thread = self.panel.start_thread(**params)
        if parts:
            self.say(thread, *parts)
        if name:
            self.rename(thread, name)
        return thread

    def say(self, thread: str, *parts: str | Json) -> None:
        content = [{"type": "text", "text": part} if isinstance(part, str) else part for part in parts]
        after = len(self.panel.messages)
        self.panel.call("turn/start", {"threadId": thread, "input": content})
        self.panel.wait_turn(thread, after=after)

    def rename(self, thread: str, name: str) -> None:
        self.panel.call("thread/name/set", {"threadId": thread, "name": name})

    def archive(self, thread: str) -> None:
        self.panel.call("thread/archive", {"threadId": thread})

    def fork(self, thread: str) -> str:
        return str(self.panel.call("thread/fork", {"threadId": thread})["thread"]["id"])

    def spawn(self, parent: str) -> str:
        """The thread of a sub-agent that has answered."""
        tool = next(tool for tool in self.model.requests[-1].tools if tool.endswith("spawn_agent"))
        after = len(self.panel.messages)
        task = {"message": "look there [[say I looked]]", "task_name": "helper"}
        self.panel.call(
            "turn/start",
            {"threadId": parent, "input": [{"type": "text", "text": f"[[tool {tool} {json.dumps(task)} ;; say it looks]]"}]},
        )

        def of_the_child(message: Json) -> bool:
            return message.get("method") == "turn/completed" and message["params"]["threadId"] != parent

        child = self.panel.wait(of_the_child, after=after)["params"]["threadId"]
        self.panel.wait_turn(parent, after=after)
        return str(child)

    def listed(self, *, archived: bool = False) -> dict[str, Json]:
        """What the product lists."""
        answer = self.panel.call("thread/list", {"sourceKinds": KINDS, "limit": 100, "archived": archived})
        return {thread["id"]: thread for thread in answer["data"]}

    def run(self, *arguments: str, cwd: Path | None = None) -> str:
        """The output of a command."""
        done = subprocess.run(
            [str(binary(f"codex-{self.version}")), *arguments],
            env=self.home.environment(),
            cwd=cwd or self.home.cwd,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=WAIT,
            check=True,
        )
        return done.stdout

    def execute(self, *arguments: str, cwd: Path | None = None) -> str:
        """The thread of a turn without a panel."""
        output = self.run("exec", "--json", "--skip-git-repo-check", *arguments, cwd=cwd)
        started = next(json.loads(line) for line in output.splitlines() if "thread.started" in line)
        return str(started["thread_id"])


@pytest.mark.requirement("SE-02", "SE-09", "SE-14")
@pytest.mark.parametrize(
    "version", [pytest.param(version, marks=[pytest.mark.full] * (version == "0.154.0")) for version in CODEX_VERSIONS]
)
def test_the_shelf_says_what_codex_says(tmp_path: Path, version: str) -> None:
    store = tmp_path / "home" / "store"
    odd, link = tmp_path / "o_d.d é 🧵", tmp_path / "link"
    odd.mkdir()
    link.symlink_to(odd)
    with OpenAIModel() as model:
        home = CodexHome(tmp_path / "home", model.url, extra_env={"CODEX_HOME": str(store)})
        store.symlink_to(home.config)  # the data directory through a link
        person, index = Person(home, version, model), Index(store)
        try:
            panel_work(person, index, odd, link)
        finally:
            person.panel.close()


def panel_work(person: Person, index: Index, odd: Path, link: Path) -> None:
    plain = person.thread("  hello  there\n\n", "second part [[say hi]] \n")
    renamed = person.thread("in an odd place [[say hi]]", cwd=str(odd), name="first é 🧵\n\u202eend")
    index.look()
    assert index.names() == {renamed: "first é 🧵\n\u202eend"}
    person.rename(renamed, "  second  ")
    linked = person.thread("by a link [[say hi]]", cwd=str(link), name="x" * 500)
    picture = person.thread({"type": "image", "url": PICTURE})
    person.thread("# Context from my IDE setup:\n\n## Open tabs:\n- a\n\n## My request for Codex:\nfix it [[say hi]]\n")
    long = person.thread("y" * 200_000 + " [[say hi]]")
    blank = person.thread("   ")
    person.say(blank, "after a blank one [[say hi]]")
    unused = person.thread(name="named before its first turn")
    archived, back, deleted = (person.thread(f"{word} [[say hi]]", name=word) for word in ("archived", "back", "deleted"))
    person.archive(archived)
    person.archive(back)
    person.panel.call("thread/unarchive", {"threadId": back})
    ephemeral = person.thread("leaves nothing [[say hi]]", ephemeral=True)
    fork = person.fork(plain)
    person.say(fork, "in the fork [[say hi]]")
    child = person.spawn(plain)
    index.look()
    assert index.holders().keys() >= {plain, renamed, linked, picture, long, unused, child}
    assert set().union(*index.holders().values()) == {person.panel.shim_pid}
    assert identify(person.panel.shim_pid) is not None

    person.panel.close()
    index.look()
    assert index.holders() == {}
    headless = person.execute("headless [[say hi]]", cwd=link)
    source = () if person.version == "0.147.0" else ("--thread-source", "machine")
    machine = person.execute(*source, "for a machine [[say hi]]")
    assert person.execute("resume", plain, "resumed elsewhere [[say hi]]", cwd=odd) == plain
    person.run("delete", "--force", deleted)
    person.run("archive", linked)
    index.look()
    assert index.cards()[linked].barred == "archived"
    person.run("unarchive", linked)

    person.panel = person.open()
    index.look()
    fresh = Index(person.home.config)  # read at once, and not through the link
    fresh.look()
    assert (fresh.cards(), fresh.names()) == (index.cards(), index.names())
    cards, names = index.cards(), index.names()
    listed = person.listed()
    assert {headless, machine, back, linked} <= listed.keys()
    unprompted = set() if person.version == "0.154.0" else {unused}  # 0.154 writes no rollout for a name alone
    open_to_all = {thread for thread, card in cards.items() if not card.barred}
    assert open_to_all == (listed.keys() | unprompted) - ({machine} if source else set())
    assert {thread for thread, card in cards.items() if card.barred == "archived"} == person.listed(archived=True).keys()
    assert cards[child].barred == "a sub-agent's thread"
    assert cards[machine].barred == ("not a person's thread" if source else "")
    assert not {ephemeral, deleted} & cards.keys()
    assert names[unused] == "named before its first turn"
    for thread, said in {**listed, **person.listed(archived=True)}.items():
        assert cards[thread].cwd == said["cwd"]
        if thread != fork or person.version != "0.171.0":  # describes it by what was said before it was forked off
            assert apart(cards[thread].title)[0] == cut(said["preview"])
        if thread in names or person.version != "0.147.0":  # 0.147 takes a second message for a name after a picture
            assert names.get(thread) == said["name"]
        if thread not in (back, linked):  # to take one out of the archive moves it in the eyes of Codex
            assert abs(cards[thread].moved - said["updatedAt"]) < 2
