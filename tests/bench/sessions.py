"""What the index of sessions costs, over stores of the size that a year leaves behind."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from broker.callers import Caller
from broker.index.catalogue import Catalogue, Store
from broker.index.indexer import Indexer
from broker.panels import Panels
from broker.status import View, list_sessions
from broker.tasks import Tasks
from shims.agent import agents
from tests.bench import stores
from tests.bench.page import Figure
from tests.bench.processes import cpu_ms, rss_mib
from tests.bench.stage import stage

_PATIENCE = 120.0
_STARTS = 5
_QUERIES = 20


def figures() -> Iterator[Figure]:
    with stage() as here:
        stores.make(here.path, str(here.path))
        yield from asyncio.run(_figures(here.path))


async def _figures(home: Path) -> list[Figure]:
    before = rss_mib(os.getpid())
    life = await _Life.begin(home)
    built = life.helper_ms
    await life.watched()
    memory = rss_mib(os.getpid()) - before + rss_mib(life.pid)
    queries = _queries(life.stores, home)
    seen = await _rename(life, home)
    await life.end()
    starts = []
    for _ in range(_STARTS):
        life = await _Life.begin(home)
        starts.append(life.wall)
        await life.end()
    return [
        Figure("index: CPU of the first build, 11,000 sessions", built / 1000, "s", 3),
        Figure("index: second start until all is known", median(starts), "s", 0.3),
        Figure("index: memory, its process and what the broker keeps", memory, "MiB", 40),
        *queries,
        Figure("index: a rename is known after", seen * 1000, "ms", 1000),
    ]


class _Life:
    """An index process, from its start until everything is known, and on."""

    def __init__(self, home: Path) -> None:
        self._tasks = Tasks(logging.getLogger(__name__))
        self._indexer = Indexer(str(home / "index.sqlite"), Catalogue(), self._tasks)
        self.stores = [self._indexer.open(agent.name, str(home / agent.default_store)) for agent in agents().values()]
        self.wall = self.helper_ms = 0.0
        self.pid = 0

    @classmethod
    async def begin(cls, home: Path) -> _Life:
        life = cls(home)
        begin = time.perf_counter()
        assert await life._indexer.ready(life.stores, _PATIENCE)
        life.wall = time.perf_counter() - begin
        life.pid = life._indexer.pid
        life.helper_ms = cpu_ms(life.pid)
        return life

    async def watched(self) -> None:
        """The watches stand: what it costs from here on, it costs for good."""
        while not all(store.watched for store in self.stores):
            await self._indexer.news()

    async def end(self) -> None:
        self._indexer.close()
        self._tasks.cancel()
        await asyncio.sleep(0)


def _queries(known: list[Store], home: Path) -> Iterator[Figure]:
    view = View(Panels(lambda _: None), Caller(), str(home), "any", {store.agent: store for store in known}, {}, 1)
    claude = next(store for store in known if store.agent == "claude")

    def held() -> None:
        for agent in agents().values():
            store = view.stores[agent.name]
            agent.shelf.holding(store.path, store.holds())

    for name, query in (
        ("a list of all directories", lambda: list_sessions(view, limit=10)),
        ("a name", lambda: claude.called("claude name 100")),
        ("who holds what, 500 dead entries", held),
    ):
        times = []
        for _ in range(_QUERIES):
            begin = time.perf_counter()
            query()
            times.append((time.perf_counter() - begin) * 1000)
        yield Figure(f"index: {name}", median(times), "ms", 10)


async def _rename(life: _Life, home: Path) -> float:
    claude = next(store for store in life.stores if store.agent == "claude")
    session = claude.called("claude name 100")[0]
    (path,) = (home / ".claude" / "projects").glob(f"*/{session.id}.jsonl")
    begin = time.perf_counter()
    with path.open("a", encoding="utf-8") as file:
        file.write(f'{{"type":"custom-title","customTitle":"renamed","sessionId":"{session.id}"}}\n')
    while not claude.called("renamed"):
        await life._indexer.news()
    return time.perf_counter() - begin
