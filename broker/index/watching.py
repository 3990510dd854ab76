"""Which files of the stores have been touched, told by the system. Runs in the index process.

Owns the watches, and what an event means: a file to look at again, or that the listing itself has changed. Directories that
do not exist yet are waited for by watching the nearest one above them; those that do are watched by their real path, and the
directory above tells when another one takes their place. Of a link both are minded: the link, and what it leads to. Where the
system tells nothing (a network file system, no watches left), that is said, and the files' times must be looked at instead
(SE-06).
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterable
from typing import NamedTuple

from watchdog.events import (
    DirCreatedEvent,
    DirDeletedEvent,
    DirMovedEvent,
    FileCreatedEvent,
    FileDeletedEvent,
    FileModifiedEvent,
    FileMovedEvent,
    FileSystemEvent,
    FileSystemEventHandler,
)
from watchdog.observers import Observer
from watchdog.observers.api import BaseObserver
from watchdog.version import VERSION_MAJOR, VERSION_MINOR

from broker.filesystems import is_network
from shims.shelf import Folder

_COMING = (DirCreatedEvent, FileCreatedEvent)
_RELISTING = (*_COMING, DirDeletedEvent, DirMovedEvent, FileDeletedEvent, FileMovedEvent)
_TOLD: list[type[FileSystemEvent]] = [*_RELISTING, FileModifiedEvent]
"""Not that files are opened and read: the index does that itself. One list for all, for the last one of a directory counts."""

_LEAVES_OUT_WHAT_MOVES_IN = (VERSION_MAJOR, VERSION_MINOR) < (7, 1)
"""A directory that comes from elsewhere into a watched one is told like a new one, and not watched (6.0)."""

_QUIET = os.path.dirname(os.path.abspath(__file__))
"""A directory of no store in which nothing happens."""


class _Place(NamedTuple):
    """One directory that is watched, as it is at this moment."""

    path: str
    real: str
    deep: bool
    inode: tuple[int, int]


class Watching:
    """The watched directories of one store.

    Args:
        folders: what is to be watched at this moment.
        touched: called from another thread with the path of a file that may tell something else now.
        relisted: called from another thread when directories have come, gone or moved.
    """

    def __init__(
        self, folders: Callable[[], Iterable[Folder]], touched: Callable[[str], None], relisted: Callable[[], None]
    ) -> None:
        self._folders = folders
        self._touched = touched
        self._relisted = relisted
        self._leading: frozenset[str] = frozenset()
        """Paths of the folders, and of what is above them: whatever comes, goes or moves there changes what is to be watched."""
        self._observer: BaseObserver | None = None
        self._watched: set[_Place] = set()
        self._lost = False
        self.complete = False
        """Whether every change will be told."""

    def begin(self, *, anew: bool = False) -> None:
        """Watches what there is; again after `relisted`, for what has come since. ``anew``: none of the watches is trusted."""
        try:
            wanted = self._wanted()
            if anew or self._lost or not self._watched <= wanted:
                self._lost = False
                self.close()
            observer = self._observing()
            while missing := wanted - self._watched:
                for place in missing:
                    observer.schedule(_Ear(self, place), place.real, recursive=place.deep, event_filter=_TOLD)
                    self._watched.add(place)
                wanted = self._wanted()  # what came before it was watched was told to nobody
            _ask_for_one_more(observer)
            self.complete = not any(is_network(place.path) for place in wanted)
        except (OSError, RuntimeError):  # out of watches, of descriptors, of threads; or a directory went meanwhile
            self.complete = False

    def lost(self) -> None:
        """Events were lost: all of it is watched anew at the next `begin`."""
        self._lost = True
        self._relisted()

    def close(self) -> None:
        self._watched = set()
        observer, self._observer = self._observer, None
        if observer is not None:
            observer.stop()
            observer.join()

    def told(self, event: FileSystemEvent, place: _Place) -> None:
        for path in (event.src_path, event.dest_path):
            if not path:
                continue
            name = os.fsdecode(path)
            if name == place.real or name.startswith(f"{place.real.rstrip('/')}/"):
                name = place.path + name[len(place.real) :]
            if isinstance(event, _RELISTING):
                leading = name in self._leading or name == place.path
                if leading and not isinstance(event, _COMING):
                    self._lost = True  # its watch went with it, and the next one may have its very inode
                if _LEAVES_OUT_WHAT_MOVES_IN and place.deep and isinstance(event, DirCreatedEvent):
                    self._lost = True
                if leading or (place.deep and (event.is_directory or os.path.islink(name))):
                    self._relisted()
            if not event.is_directory:
                self._touched(name)

    def _observing(self) -> BaseObserver:
        if self._observer is None:
            observer = Observer()
            observer.daemon = True
            observer.start()
            self._observer = observer
        return self._observer

    def _wanted(self) -> set[_Place]:
        """The folders that exist with the directory of each, and the nearest one above each that does not."""
        wanted: set[_Place] = set()
        leading: set[str] = set()
        folders = [folder._replace(path=folder.path.rstrip("/") or "/") for folder in self._folders()]
        own = {folder.path for folder in folders}
        for folder in folders:
            there = _place(folder.path, deep=folder.deep)
            if there is not None:
                wanted.add(there)
            for path in {folder.path, os.path.realpath(folder.path)}:
                leading.add(path)
                above = os.path.dirname(path)
                while (place := _place(above, deep=False)) is None:
                    leading.add(above)
                    above = os.path.dirname(above)
                if above not in own:
                    wanted.add(place)
        self._leading = frozenset(leading)
        return wanted


class _Ear(FileSystemEventHandler):
    """Hears what happens in one place."""

    def __init__(self, watching: Watching, place: _Place) -> None:
        self._watching = watching
        self._place = place

    def dispatch(self, event: FileSystemEvent) -> None:
        self._watching.told(event, self._place)


class _Overflow(logging.Handler):
    """The library says in its log alone that the system had more to tell than it could keep (7.1)."""

    def __init__(self, lost: Callable[[], None]) -> None:
        super().__init__(logging.WARNING)
        self._lost = lost

    def emit(self, record: logging.LogRecord) -> None:
        if "overflow" in record.getMessage():
            self._lost()


def attend(lost: Callable[[], None]) -> None:
    """Calls ``lost`` from another thread when events were lost, as when a thread that told of them has died (6.0)."""
    logging.getLogger("watchdog").addHandler(_Overflow(lost))
    threading.excepthook = lambda _: lost()


def _ask_for_one_more(observer: BaseObserver) -> None:
    """Directories below a watched one are left out silently when no watches are left (7.1). Raises OSError then."""
    observer.unschedule(observer.schedule(FileSystemEventHandler(), _QUIET, event_filter=_TOLD))


def _place(path: str, *, deep: bool) -> _Place | None:
    real = os.path.realpath(path)
    try:
        status = os.stat(real)
    except OSError:
        return None
    return _Place(path, real, deep, (status.st_dev, status.st_ino)) if os.path.isdir(real) else None
