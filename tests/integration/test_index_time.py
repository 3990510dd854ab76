"""How soon the broker knows what is written into a store: within a second, whichever way the agent writes it."""

from __future__ import annotations

import asyncio
import json
import logging
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from broker.index.catalogue import Catalogue, Store
from broker.index.indexer import Indexer
from broker.tasks import Tasks
from shims.grok import tabs
from tests.integration.indexing import PATIENCE
from tests.integration.made_up_stores import Stores

pytestmark = [pytest.mark.alone, pytest.mark.requirement("SE-06")]

SOON = 1.0
"""Seconds within which a new or a renamed session is to be known."""

OTHERS = 200
"""Sessions that are there already."""


class Timed:
    """The broker's index of one store; each step is something that a person does, and says how long it was not known."""

    def __init__(self, indexer: Indexer, store: Store) -> None:
        self._indexer = indexer
        self._store = store
        self.took: list[float] = []

    async def known_as(self, name: str, act: Callable[[], object]) -> None:
        begin = time.perf_counter()
        act()

        async def known() -> None:
            while not self._store.called(name):
                await self._indexer.news()

        await asyncio.wait_for(known(), PATIENCE)
        self.took.append(time.perf_counter() - begin)


async def timed(database: Path, agent: str, path: Path) -> tuple[Timed, Tasks]:
    tasks = Tasks(logging.getLogger("test"))
    indexer = Indexer(str(database), Catalogue(), tasks)
    store = indexer.open(agent, str(path))
    assert await indexer.ready([store], PATIENCE)
    while not store.watched:
        await asyncio.wait_for(indexer.news(), PATIENCE)
    return Timed(indexer, store), tasks


async def claude(stores: Stores, index: Timed) -> None:
    made: list[str] = []
    await index.known_as("new", lambda: made.append(stores.claude.add(name="new")))
    await index.known_as("in a new directory", lambda: stores.claude.add("/new", name="in a new directory"))
    for number in range(3):
        await index.known_as(f"renamed {number}", lambda number=number: stores.claude.rename(made[0], f"renamed {number}"))  # type: ignore[misc]


async def codex(stores: Stores, index: Timed) -> None:
    made: list[str] = []
    await index.known_as("new", lambda: made.append(stores.codex.add(name="new")))
    names = stores.codex.path / "session_index.jsonl"

    def rename(name: str) -> None:
        with names.open("a") as file:
            file.write(json.dumps({"id": made[0], "thread_name": name, "updated_at": "2026-11-30T10:00:00Z"}) + "\n")

    def replace(name: str) -> None:
        names.with_suffix(".new").write_text(names.read_text().replace("renamed 2", name))
        names.with_suffix(".new").replace(names)

    for number in range(3):
        await index.known_as(f"renamed {number}", lambda number=number: rename(f"renamed {number}"))  # type: ignore[misc]
    await index.known_as("replaced", lambda: replace("replaced"))


INSERT = "INSERT INTO ItemTable VALUES ('sahilrakhaiya.grok-build-gui', ?)"


async def grok(stores: Stores, index: Timed) -> None:
    made: list[str] = []
    await index.known_as("new", lambda: made.append(stores.grok.add(name="new")))
    (summary,) = stores.grok.path.glob(f"sessions/*/{made[0]}/summary.json")

    def rename(before: str, name: str) -> None:
        summary.with_suffix(".tmp").write_text(summary.read_text().replace(before, name))
        summary.with_suffix(".tmp").replace(summary)

    await index.known_as("renamed", lambda: rename("new", "renamed"))
    await index.known_as("again", lambda: rename("renamed", "again"))
    with closing(sqlite3.connect(stores.path / "state.vscdb", isolation_level=None)) as editor:
        for mode in ("WAL", "DELETE"):
            editor.execute(f"PRAGMA journal_mode = {mode}")
            editor.execute("CREATE TABLE IF NOT EXISTS ItemTable (key TEXT UNIQUE ON CONFLICT REPLACE, value BLOB)")
            for name in (f"tab {mode}", f"tab {mode} again"):
                meta = json.dumps({"grok.sessionMeta": {made[0]: {"customName": name}}})
                await index.known_as(name, lambda meta=meta: editor.execute(INSERT, (meta,)))  # type: ignore[misc]


@pytest.mark.requirement("SE-14")
@pytest.mark.parametrize("agent", ["claude", "codex", "grok"])
def test_a_new_or_renamed_session_is_known_within_a_second(tmp_path: Path, agent: str, monkeypatch: pytest.MonkeyPatch) -> None:
    stores = Stores(tmp_path)
    monkeypatch.setenv(tabs.VARIABLE, str(stores.path / "state.vscdb"))
    for number in range(OTHERS):
        getattr(stores, agent).add(f"/w{number % 10}", name=f"other {number}")

    async def story() -> list[float]:
        index, tasks = await timed(tmp_path / "index.sqlite", agent, getattr(stores, agent).path)
        await {"claude": claude, "codex": codex, "grok": grok}[agent](stores, index)
        tasks.cancel()
        await asyncio.wait(asyncio.all_tasks() - {asyncio.current_task()}, timeout=PATIENCE)
        return index.took

    took = asyncio.run(story())
    assert max(took) <= SOON, [f"{seconds:.3f}" for seconds in took]
