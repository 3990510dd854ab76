"""Which files of the stores have been touched, told by the system. Runs in the index process.

Owns the watches, and what an event means: a file to look at again, or that the listing itself has changed. Directories that
do not exist yet are waited for by watching the nearest one above them. Where the system tells nothing (a network file system,
no watches left), that is said, and the files' times must be looked at instead (SE-06).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable

from watchdog.events import (
    EVENT_TYPE_CLOSED_NO_WRITE,
    EVENT_TYPE_CREATED,
    EVENT_TYPE_DELETED,
    EVENT_TYPE_MOVED,
    EVENT_TYPE_OPENED,
    FileSystemEvent,
    FileSystemEventHandler,
)
from watchdog.observers import Observer

from broker.filesystems import is_network
from shims.shelf import Folder

_READING = (EVENT_TYPE_OPENED, EVENT_TYPE_CLOSED_NO_WRITE)
_RELISTING = (EVENT_TYPE_CREATED, EVENT_TYPE_DELETED, EVENT_TYPE_MOVED)


class Watching(FileSystemEventHandler):
    """The watched directories of one store.

    Args:
        touched: called from another thread with the path of a file that may tell something else now.
        relisted: called from another thread when directories have come, gone or moved.
    """

    def __init__(self, folders: Iterable[Folder], touched: Callable[[str], None], relisted: Callable[[], None]) -> None:
        self._folders = tuple(folders)
        self._touched = touched
        self._relisted = relisted
        self._awaited: frozenset[str] = frozenset()
        self._observer = Observer()
        self._watched: set[Folder] = set()
        self.complete = False
        """Whether every change will be told."""

    def begin(self) -> None:
        """Watches what there is; again after `relisted`, for what has come since."""
        try:
            wanted = self._wanted()
            if {folder for folder in wanted if folder in self._watched} != self._watched or not self._watched:
                self._begin_anew()
            for folder in wanted - self._watched:
                self._observer.schedule(self, folder.path, recursive=folder.deep)
                self._watched.add(folder)
            self.complete = not any(is_network(folder.path) for folder in wanted)
        except OSError:  # out of watches or of descriptors
            self.complete = False

    def close(self) -> None:
        self._observer.unschedule_all()
        if self._observer.is_alive():
            self._observer.stop()
            self._observer.join()

    def _begin_anew(self) -> None:
        self.close()
        self._watched = set()
        self._observer = Observer()
        self._observer.daemon = True
        self._observer.start()

    def _wanted(self) -> set[Folder]:
        """The folders that exist, and the nearest directory above each one that does not."""
        there, awaited = set(), set()
        for folder in self._folders:
            if os.path.isdir(folder.path):
                there.add(folder)
                continue
            awaited.add(folder.path)
            above = os.path.dirname(folder.path)
            while not os.path.isdir(above):
                above = os.path.dirname(above)
            there.add(Folder(above))
        self._awaited = frozenset(awaited)
        return there

    def dispatch(self, event: FileSystemEvent) -> None:
        if event.event_type in _READING:
            return
        for path in (event.src_path, event.dest_path):
            if not path:
                continue
            name = os.fsdecode(path)
            if event.event_type in _RELISTING and (event.is_directory or name in self._awaited or self._leads_to_awaited(name)):
                self._relisted()
            if not event.is_directory:
                self._touched(name)

    def _leads_to_awaited(self, path: str) -> bool:
        return any(awaited.startswith(f"{path}/") for awaited in self._awaited)
