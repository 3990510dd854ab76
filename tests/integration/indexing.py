"""An index process as the broker has one, and what it has told so far.

Owns its start, its end and its pipe; what is asserted of it is the tests' own.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from broker.index import program
from broker.index.catalogue import Store
from broker.index.feed import Frames, Look, Open, Ready, ToldBatch, packed
from tests.integration.made_up_stores import ClaudeStore, CodexStore, GrokStore

PROGRAM = Path(program.__file__)
PATIENCE = 15.0
"""Seconds on a loaded machine; a change that is not told by the system would take a quarter of an hour."""


class Process:
    """An index process, and what it has told."""

    def __init__(self, database: Path, *stores: tuple[str, Path], before: Sequence[str] = ()) -> None:
        self.stores = [Store(agent, str(path)) for agent, path in stores]
        self.ready = [0] * len(stores)
        self.turn = [0] * len(stores)
        self.watched = [False] * len(stores)
        self.batches = 0
        self._news = threading.Condition()
        self.process = subprocess.Popen(
            [*(before or (sys.executable, "-I", str(PROGRAM))), str(database)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        for number, (agent, path) in enumerate(stores):
            self.say(packed(Open(number, agent, str(path))))

    def say(self, data: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def look(self, number: int = 0) -> None:
        """Asks for a look, and waits for its end."""
        turn = self.turn[number] + 1
        self.say(packed(Look(number, turn)))
        self.until(lambda: self.turn[number] >= turn)

    def until(self, condition: Callable[[], object]) -> None:
        with self._news:
            assert self._news.wait_for(condition, PATIENCE), [store.recent() for store in self.stores]

    def until_watched(self) -> None:
        self.until(lambda: all(self.watched))

    def names(self, number: int = 0) -> set[str]:
        return {known.name for known in self.stores[number].recent()}

    def until_named(self, *names: str, number: int = 0) -> None:
        self.until(lambda: self.names(number) == set(names))

    def close(self) -> int:
        assert self.process.stdin is not None
        self.process.stdin.close()
        status = self.process.wait(PATIENCE)
        self._reader.join(PATIENCE)
        return status

    def _read(self) -> None:
        frames = Frames()
        assert self.process.stdout is not None
        while data := os.read(self.process.stdout.fileno(), 1 << 16):
            for frame in frames.feed(data):
                with self._news:
                    if isinstance(frame, ToldBatch):
                        self.batches += 1
                        self.stores[frame.number].apply(frame.changes)
                    elif isinstance(frame, Ready):
                        self.ready[frame.number] += 1
                        self.watched[frame.number] = frame.watched
                        self.turn[frame.number] = frame.turn
                    self._news.notify_all()


@contextmanager
def indexing(database: Path, *stores: tuple[str, Path], before: Sequence[str] = ()) -> Iterator[Process]:
    index = Process(database, *stores, before=before)
    try:
        yield index
    finally:
        index.process.kill()
        index.close()


def made(agent: str, path: Path) -> ClaudeStore | CodexStore | GrokStore:
    return ClaudeStore(path) if agent == "claude" else CodexStore(path) if agent == "codex" else GrokStore(path)
