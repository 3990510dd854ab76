"""The broker's end of the index: the process that reads the stores, and when the catalogue may be believed.

Owns that process: it is started once, told which stores there are, and started again, ever later, when it dies. What it said
stays known meanwhile. Nothing here waits for a disk.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import time
from collections.abc import Coroutine
from typing import Any, Protocol

from broker.index.catalogue import Catalogue, Store
from broker.index.feed import Frame, Frames, Look, Open, Ready, ToldBatch, packed

log = logging.getLogger("broker.index")

_PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "program.py")
_READ = 1 << 16
_AHEAD = 1 << 20
"""Bytes that may wait to be decoded, and as many again: what thousands of sessions tell, so that its process goes on looking."""
_LONGEST_WORDS, _LONGEST_LINE = 1 << 14, 300
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0
"""Seconds until a process that died is started again; doubled each time, until one has lived for a while."""


class Spawner(Protocol):
    def spawn(self, work: Coroutine[Any, Any, None]) -> object: ...


class Indexer:
    """Keeps the catalogue.

    Args:
        database: the index's own file.
    """

    def __init__(self, database: str, catalogue: Catalogue, tasks: Spawner) -> None:
        self._database = database
        self._catalogue = catalogue
        self._tasks = tasks
        self._numbers: dict[int, Store] = {}
        self._turn = 0
        self._answered: dict[int, int] = {}
        """The last look at each store of which this process has told all."""
        self._process: asyncio.subprocess.Process | None = None
        self._running = False
        self._news = asyncio.Event()

    def begin(self) -> None:
        """Starts to read the stores that are open, in the background."""
        if not self._running:
            self._running = True
            self._tasks.spawn(self._keep())

    def open(self, agent: str, path: str) -> Store:
        """The store at ``path``, which is read from now on."""
        store = self._catalogue.store(agent, path)
        if store not in self._numbers.values():
            number = len(self._numbers)
            self._numbers[number] = store
            self._say(Open(number, agent, path))
        return store

    async def ready(self, stores: list[Store], patience: float) -> bool:
        """Waits until all of these are known as they are now; False when that takes longer than ``patience`` seconds."""
        self.begin()
        deadline = asyncio.get_running_loop().time() + patience
        turns = [(number, store, self._look(number, store)) for number, store in self._numbers.items() if store in stores]
        while late := [store for number, store, turn in turns if not store.ready or self._answered.get(number, 0) < turn]:
            left = deadline - asyncio.get_running_loop().time()
            try:
                await asyncio.wait_for(self._news.wait(), max(0.0, left))
            except asyncio.TimeoutError:
                for store in late:
                    store.ready = False
                return False
        return True

    def _look(self, number: int, store: Store) -> int:
        """Asks for a look at a store of which nothing is told by itself; the turn that it is, 0 where none is needed."""
        if store.watched or number not in self._answered:
            return 0
        self._turn += 1
        self._say(Look(number, self._turn))
        return self._turn

    @property
    def pid(self) -> int:
        """Of the index process; 0 while there is none."""
        return self._process.pid if self._process is not None else 0

    async def news(self) -> None:
        """Waits until anything has been told, or nothing will be for a while."""
        await self._news.wait()

    def close(self) -> None:
        """Nothing is told any more; the process ends with its input."""
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()

    # the process

    async def _keep(self) -> None:
        pause = _FIRST_PAUSE
        while True:
            begun = time.monotonic()
            await self._live()
            if time.monotonic() - begun > _LONGEST_PAUSE:
                pause = _FIRST_PAUSE
            log.warning("the index process ended; it is started again in %.0f s", pause)
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    async def _live(self) -> None:
        """One process, from its start to its end."""
        try:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-I", _PROGRAM, self._database),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                limit=_AHEAD,
            )
        except OSError as error:
            log.warning("no index process: %s", error.strerror)
            return
        self._process = process
        assert process.stdout is not None and process.stderr is not None
        self._tasks.spawn(_log_lines(process.stderr))
        try:
            for number, store in self._numbers.items():
                self._say(Open(number, store.agent, store.path))
            begun = self._turn
            fresh = {number: Store(store.agent, store.path) for number, store in self._numbers.items() if len(store)}
            frames = Frames()
            while data := await process.stdout.read(_READ):
                for frame in frames.feed(data):
                    self._take(frame, fresh, begun)
                    await asyncio.sleep(0)  # decoding takes a moment: others get theirs
        except ValueError as error:
            log.error("%s", error)
        finally:
            self._process = None
            self._answered.clear()
            for store in self._numbers.values():
                store.watched = False
            self._tell_news()
            if process.stdin is not None:
                process.stdin.close()
            if process.returncode is None:
                try:
                    process.terminate()
                except ProcessLookupError:
                    pass
                await process.wait()

    def _take(self, frame: Frame, fresh: dict[int, Store], begun: int) -> None:
        """A frame of the process.

        Args:
            fresh: what it has said of stores that were known already, until it has said all of it.
            begun: the last look that was asked for before it looked at anything.
        """
        store = self._numbers.get(frame.number)
        if store is None:
            raise ValueError("the index tells of a store that it was not asked for")
        if isinstance(frame, ToldBatch):
            if frame.number in fresh:
                fresh[frame.number].apply(frame.changes)
            else:
                self._catalogue.apply(store, frame.changes)
        elif isinstance(frame, Ready):
            if frame.number in fresh:
                self._catalogue.replace(store, fresh.pop(frame.number))
            store.ready, store.watched = True, frame.watched
            self._answered[frame.number] = max(begun, frame.turn)
        self._tell_news()

    def _tell_news(self) -> None:
        self._news.set()
        self._news = asyncio.Event()

    def _say(self, frame: Frame) -> None:
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.write(packed(frame))


async def _log_lines(words: asyncio.StreamReader) -> None:
    """What the index process has to say belongs into the broker's log (SE-05)."""
    while data := await words.read(_LONGEST_WORDS):
        for line in data.decode(errors="backslashreplace").splitlines():
            log.warning("index: %s", line[:_LONGEST_LINE])
