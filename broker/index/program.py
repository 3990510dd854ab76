"""The index process: reads the stores that the broker names, and tells of every change, until the broker is gone.

Owns its one loop: frames from the broker, events of the file system, and the clock of files that were touched a moment ago.
Between events it sleeps; once in a long while it looks at everything, whatever the events said (SE-06). Started by
`broker.index.indexer` with the path of its database; frames come on stdin and go to stdout.
"""

from __future__ import annotations

import fcntl
import os
import select
import sys
import time
from collections.abc import Iterable

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

from broker.index.feed import Change, Close, Frames, Look, Open, Ping, Pong, Ready, batches, packed
from broker.index.kept import Kept
from broker.index.leaves import Leaves
from shims.shelf import Shelf, shelf

TYPE_CHECKING = False
if TYPE_CHECKING:
    from broker.index.watching import Watching

_AGAIN = 0.4
"""Seconds from one look at a file to the next: transcripts are written many times a second."""

_RELIST = 0.4
"""Seconds from one look at all files of a store to the next, however many directories come and go."""

_RESCAN = 15 * 60.0
"""Seconds after which everything is looked at, if no event asked for it before."""

_SOON, _LATE = 0.25, 30.0
"""Seconds until what could not be looked at is tried again, doubled each time: no event tells that it can be."""

_READ = 1 << 16
_PIPE = 1 << 20
"""Bytes of the pipe to the broker where the system lets one ask: what is told waits there while the next is looked at."""


class _Store:
    """One store, by the broker's number."""

    def __init__(self, number: int, shelf: Shelf, path: str, leaves: Leaves) -> None:
        self.number = number
        self.shelf = shelf
        self.path = path
        self.leaves = leaves
        self.watching: Watching | None = None
        self.touched: set[str] = set()
        self.relist = False
        self.asked, self.answered = 0, 0
        """The turns of the last look that was asked for, and of the last that was made."""
        self.surveyed = 0.0
        """When all files were looked at."""
        self.looked: dict[str, float] = {}
        """When files were looked at that may be touched again at once."""
        self.unread: frozenset[str] = frozenset()
        """What could not be looked at; ``again`` is when that is tried, ``pause`` after how long."""
        self.again = 0.0
        self.pause = _SOON


class Index:
    """All stores."""

    def __init__(self, kept: Kept, output: int) -> None:
        self._kept = kept
        self._output = output
        self._stores: dict[int, _Store] = {}
        self._wake_end, self._wake = os.pipe()
        os.set_blocking(self._wake, False)
        os.set_blocking(self._wake_end, False)
        self._rescan = time.monotonic() + _RESCAN
        self._attending = False
        self._opened: list[_Store] = []
        """Of which nothing has been told yet."""
        self._ping = 0
        """The last one that is not answered; 0: none."""

    def run(self, commands: int) -> None:
        """Until ``commands`` ends."""
        frames = Frames()
        waiting = select.poll()
        for descriptor in (commands, self._wake_end):
            waiting.register(descriptor, select.POLLIN)
        while True:
            for descriptor, _ in waiting.poll(self._patience()):
                data = os.read(descriptor, _READ)
                if descriptor == commands:
                    if not data:
                        return
                    for frame in frames.feed(data):
                        self._obey(frame)
            self._begin()
            self._look_at_what_was_touched()
            self._answer()

    def close(self) -> None:
        for store in self._stores.values():
            self._close(store)

    # commands

    def _obey(self, frame: object) -> None:
        if isinstance(frame, Open) and frame.number not in self._stores:
            of_agent = shelf(frame.agent)
            store = _Store(frame.number, of_agent, frame.store, Leaves(self._kept, of_agent, frame.agent, frame.store))
            self._stores[frame.number] = store
            self._opened.append(store)
        elif isinstance(frame, Look):
            self._stores[frame.number].asked = frame.turn
        elif isinstance(frame, Close):
            self._close(self._stores.pop(frame.number))
        elif isinstance(frame, Ping):
            self._ping = frame.number

    def _close(self, store: _Store) -> None:
        if store in self._opened:
            self._opened.remove(store)
        if store.watching is not None:
            store.watching.close()

    def _answer(self) -> None:
        """Last of all that is to be done: whoever asks wants to know that what is known is not old (SE-25)."""
        if self._ping:
            number, self._ping = self._ping, 0
            self._say(packed(Pong(number)))

    def _begin(self) -> None:
        """All stores at once: while the broker takes in what was known of them, they are looked at, and watched after that."""
        opened, self._opened = self._opened, []
        for store in opened:
            self._tell(store, store.leaves.load())
        for store in opened:
            self._tell(store, store.leaves.survey())
            self._say(packed(Ready(store.number, watched=False, turn=0)))
        for store in opened:
            self._watch(store)

    def _watch(self, store: _Store) -> None:
        """From here on the system tells; what was changed before it did is looked for once more."""
        from broker.index.watching import Watching, attend

        if not self._attending:
            self._attending = True
            attend(self._lost)
        store.watching = Watching(
            lambda: store.shelf.folders(store.path), lambda path: self._touched(store, path), lambda: self._relisted(store)
        )
        store.watching.begin()
        self._survey(store)

    def _survey(self, store: _Store) -> None:
        turn = store.asked
        self._tell(store, store.leaves.survey())
        self._tell(store, store.leaves.relocated())
        store.answered, store.surveyed = turn, time.monotonic()
        self._mind_the_rest(store)
        self._say(packed(Ready(store.number, store.watching is not None and store.watching.complete, turn)))

    # events, from the threads of the watches

    def _touched(self, store: _Store, path: str) -> None:
        concerned = store.shelf.concerns(store.path, path)
        if concerned and concerned not in store.touched:
            store.touched.add(concerned)
            self._wake_up()

    def _relisted(self, store: _Store) -> None:
        if not store.relist:
            store.relist = True
            self._wake_up()

    def _lost(self) -> None:
        for store in tuple(self._stores.values()):
            if store.watching is not None:
                store.watching.lost()

    def _wake_up(self) -> None:
        try:
            os.write(self._wake, b".")
        except BlockingIOError:
            pass  # it is awake

    # looking

    def _patience(self) -> float:
        """Milliseconds until something is due."""
        now = time.monotonic()
        due = [self._rescan]
        for store in self._stores.values():
            if store.relist:
                due.append(store.surveyed + _RELIST)
            if store.unread:
                due.append(store.again)
            due += [store.looked.get(path, 0.0) + _AGAIN for path in tuple(store.touched)]
        return max(0.0, min(due) - now) * 1000

    def _look_at_what_was_touched(self) -> None:
        now = time.monotonic()
        overdue = now >= self._rescan
        if overdue:
            self._rescan = now + _RESCAN
        for store in self._stores.values():
            if overdue or (store.relist and now >= store.surveyed + _RELIST):
                store.relist = False
                if store.watching is not None:
                    store.watching.begin()
                self._survey(store)
            elif store.asked != store.answered:
                self._survey(store)
            elif store.unread and now >= store.again:
                self._try_again(store)
            store.looked = {path: at for path, at in store.looked.items() if now - at < _AGAIN}
            due = {path for path in tuple(store.touched) if path not in store.looked}
            if due:
                store.touched -= due
                store.looked.update(dict.fromkeys(due, now))
                self._tell(store, store.leaves.touched(due))
                self._mind_the_rest(store)

    def _try_again(self, store: _Store) -> None:
        directory, files = store.leaves.readable_again()
        store.pause = min(2 * store.pause, _LATE)
        store.again = time.monotonic() + store.pause
        if directory:
            if store.watching is not None:
                store.watching.begin(anew=True)  # what cannot be read cannot be watched
            self._survey(store)
        elif files:
            self._tell(store, store.leaves.touched(files))
            self._mind_the_rest(store)

    def _mind_the_rest(self, store: _Store) -> None:
        """After a look at ``store``: what has to be looked at again, though nothing may tell."""
        now = time.monotonic()
        unread = frozenset(store.leaves.unread)
        if not unread <= store.unread:
            store.pause = _SOON
            store.again = now + store.pause
        store.unread = unread
        # A database writes its log, which is told, before the index of the log, which is shared memory and is not.
        unsettled = set(store.leaves.unsettled)
        store.leaves.unsettled.clear()
        for path in unsettled:
            store.looked.setdefault(path, now)
        store.touched |= unsettled

    # telling

    def _tell(self, store: _Store, changes: Iterable[Change]) -> None:
        for batch in batches(store.number, changes):
            self._say(packed(batch))

    def _say(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(self._output, view) :]


def main() -> None:
    os.nice(5)
    output = sys.stdout.fileno()
    if sys.platform == "linux":
        try:
            fcntl.fcntl(output, fcntl.F_SETPIPE_SZ, _PIPE)
        except OSError:
            pass  # a little slower, then
    index = Index(Kept(sys.argv[1]), output)
    try:
        index.run(sys.stdin.fileno())
    except BrokenPipeError:
        pass  # the broker is gone
    finally:
        index.close()


if __name__ == "__main__":
    main()
