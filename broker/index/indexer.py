"""The broker's end of the index: the process that reads the stores, and when the catalogue may be believed.

Owns that process: it is started once, told which stores there are, and started again, ever later, when it dies or does not
answer. What it said stays known meanwhile, but counts as what was: nobody tells of changes (SE-25). Nothing here waits for a
disk.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import time
from collections.abc import Callable, Collection, Coroutine
from itertools import count
from typing import Any, NamedTuple, Protocol

from broker.index.catalogue import Catalogue, Store
from broker.index.feed import Close, Frame, Frames, Look, Open, Ping, Pong, Ready, ToldBatch, packed

log = logging.getLogger("broker.index")

_PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "program.py")
_READ = 1 << 16
_AHEAD = 1 << 20
"""Bytes that may wait to be decoded, and as many again: what thousands of sessions tell, so that its process goes on looking."""
_LONGEST_WORDS, _LONGEST_LINE = 1 << 14, 300
_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 60.0
"""Seconds until a process that died is started again; doubled each time, until one has lived for a while."""

_SILENT, _LONGEST_SILENT = 8.0, 600.0
"""Seconds without a word after which a process that owes an answer is taken for hung; doubled each time, until one answers: it
may be a disk that does."""

_AFTER_SILENCE = 0.2
"""Seconds that a call waits while nothing has been heard since another one gave up."""

_FRESH = 0.25
"""Seconds for which a sign of life counts."""

_MOST_STORES = 24
"""Stores that are kept at once: each has its watches, and the system has a number of these (128 per user, often)."""


class Spawner(Protocol):
    def spawn(self, work: Coroutine[Any, Any, None]) -> object: ...


class _Question(NamedTuple):
    """What was asked for a call: a look at one store, or a sign of life."""

    number: int
    store: Store
    turn: int
    look: bool


class Indexer:
    """Keeps the catalogue.

    Args:
        database: the index's own file.
        in_use: stores, by agent and path, that are not let go of.
    """

    def __init__(
        self,
        database: str,
        catalogue: Catalogue,
        tasks: Spawner,
        in_use: Callable[[], Collection[tuple[str, str]]] = tuple,
    ) -> None:
        self._database = database
        self._catalogue = catalogue
        self._tasks = tasks
        self._in_use = in_use
        self._next = count()
        self._numbers: dict[int, Store] = {}
        """The stores, the one that was asked for least recently first."""
        self._turn = 0
        self._answered: dict[int, int] = {}
        """The last look at each store of which this process has told all."""
        self._alive = 0
        """The last question that was answered by a sign of life."""
        self._pinged = 0
        """The last question of that kind."""
        self._heard = 0.0
        """When the process last said anything."""
        self._silent = False
        """A call has given up waiting, and nothing was heard since."""
        self._patience = _SILENT
        self._watchdog: asyncio.TimerHandle | None = None
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
        number = next((number for number, known in self._numbers.items() if known is store), None)
        if number is not None:
            self._numbers[number] = self._numbers.pop(number)
            return store
        number = next(self._next)
        self._numbers[number] = store
        self._say(Open(number, agent, path))
        self._let_go()
        return store

    def _let_go(self) -> None:
        """Of the stores beyond the bound, those that were asked for least recently; whoever asks again opens them again."""
        if len(self._numbers) <= _MOST_STORES:
            return
        in_use = set(self._in_use())
        idle = [number for number, store in self._numbers.items() if (store.agent, store.path) not in in_use]
        for number in idle[: len(self._numbers) - _MOST_STORES]:
            if number == next(reversed(self._numbers)):
                return  # the one that is asked for now
            store = self._numbers.pop(number)
            store.ready = store.watched = False
            self._answered.pop(number, None)
            self._catalogue.forget(store)
            self._say(Close(number))
            log.info(
                "the sessions of %s in %s are let go of: %d other stores were used since", store.agent, store.path, _MOST_STORES
            )

    async def ready(self, stores: list[Store], patience: float) -> bool:
        """Waits until all of these are known as they are now; False when that takes longer than ``patience`` seconds.

        A store of which that cannot be said is not `ready` any more: the process is dead, or does not answer.
        """
        self.begin()
        if self._silent:
            patience = min(patience, _AFTER_SILENCE)
        deadline = asyncio.get_running_loop().time() + patience
        asked = [self._asked(number, store) for number, store in self._numbers.items() if store in stores]
        self._mind()
        while late := [question.store for question in asked if self._is_late(question)]:
            left = deadline - asyncio.get_running_loop().time()
            try:
                await asyncio.wait_for(self._news.wait(), max(0.0, left))
            except asyncio.TimeoutError:
                self._silent = True
                for store in late:
                    store.ready = False
                return False
        return True

    async def known(self, store: Store, session: str, patience: float) -> bool:
        """Waits until a session, which may have begun a moment ago, is known to be one; False after ``patience`` seconds."""
        deadline = asyncio.get_running_loop().time() + patience
        while (found := store.session(session)) is None or found.barred:
            try:
                await asyncio.wait_for(self._news.wait(), max(0.0, deadline - asyncio.get_running_loop().time()))
            except asyncio.TimeoutError:
                return False
        return True

    def _asked(self, number: int, store: Store) -> _Question:
        """Asks for a look at a store of which nothing is told by itself, else whether there is somebody to tell."""
        if not store.watched and number not in self._answered:
            return _Question(number, store, 0, look=True)  # all of it is being read
        if store.watched and (self._fresh() or self._alive < self._pinged):
            return _Question(number, store, self._pinged, look=False)
        self._turn += 1
        look = not store.watched
        if not look:
            self._pinged = self._turn
        self._say(Look(number, self._turn) if look else Ping(self._turn))
        return _Question(number, store, self._turn, look)

    def _fresh(self) -> bool:
        """Whether the process has answered so lately that it need not be asked again: a change gets longer to be told (SE-14)."""
        return self._alive == self._pinged > 0 and asyncio.get_running_loop().time() - self._heard < _FRESH

    def _is_late(self, question: _Question) -> bool:
        answered = self._answered.get(question.number, 0)
        return not question.store.ready or (answered if question.look else max(answered, self._alive)) < question.turn

    def _mind(self) -> None:
        """From here on the process has to say something, or it is ended."""
        if self._watchdog is None and self._process is not None:
            now = asyncio.get_running_loop().time()
            self._watchdog = asyncio.get_running_loop().call_at(now + self._patience, self._look_after, self._process, now)

    def _calm(self) -> None:
        """It has said something; nobody needs to wake up for it."""
        if self._watchdog is not None:
            self._watchdog.cancel()
            self._watchdog = None

    def _look_after(self, process: asyncio.subprocess.Process, asked: float) -> None:
        self._watchdog = None
        if process is not self._process or self._heard >= asked:
            return
        log.warning("the index process has not answered for %.0f s; it is ended", self._patience)
        self._patience = min(2 * self._patience, _LONGEST_SILENT)
        _kill(process)

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
            log.warning("the index process ended; it is started again in %.1f s", pause)
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
                self._heard = asyncio.get_running_loop().time()
                self._silent = False
                self._calm()
                for frame in frames.feed(data):
                    self._take(frame, fresh, begun)
                    await asyncio.sleep(0)  # decoding takes a moment: others get theirs
        except ValueError as error:
            log.error("%s", error)
        finally:
            self._process = None
            self._pinged = self._alive  # nobody answers that any more
            self._answered.clear()
            for store in self._numbers.values():
                store.ready = store.watched = False  # nobody tells of changes
            self._tell_news()
            if process.stdin is not None:
                process.stdin.close()
            if process.returncode is None:
                _kill(process)
                await process.wait()

    def _take(self, frame: Frame, fresh: dict[int, Store], begun: int) -> None:
        """A frame of the process.

        Args:
            fresh: what it has said of stores that were known already, until it has said all of it.
            begun: the last look that was asked for before it looked at anything.
        """
        if isinstance(frame, Pong):
            self._alive, self._patience = frame.number, _SILENT
            for known in self._numbers.values():
                known.ready = known.ready or known.watched
            self._tell_news()
            return
        store = self._numbers.get(frame.number)
        if store is None:
            return  # it was let go of
        if isinstance(frame, ToldBatch):
            if frame.number in fresh:
                fresh[frame.number].apply(frame.changes)
            else:
                self._catalogue.apply(store, frame.changes)
        elif isinstance(frame, Ready):
            if frame.number in fresh:
                self._catalogue.replace(store, fresh.pop(frame.number))
            store.ready, store.watched = True, frame.watched
            self._patience = _SILENT
            self._answered[frame.number] = max(begun, frame.turn)
        self._tell_news()

    def _tell_news(self) -> None:
        self._news.set()
        self._news = asyncio.Event()

    def _say(self, frame: Frame) -> None:
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.write(packed(frame))


def _kill(process: asyncio.subprocess.Process) -> None:
    """It holds nothing that is not in the files; one that is stopped would not hear anything else."""
    try:
        process.kill()
    except ProcessLookupError:
        pass


async def _log_lines(words: asyncio.StreamReader) -> None:
    """What the index process has to say belongs into the broker's log (SE-05)."""
    while data := await words.read(_LONGEST_WORDS):
        for line in data.decode(errors="backslashreplace").splitlines():
            log.warning("index: %s", line[:_LONGEST_LINE])
