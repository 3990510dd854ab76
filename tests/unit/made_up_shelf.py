"""A shelf of nobody's: one file is one session, each line renames it. It counts what is read, and refuses what a test says.

Owns the simplest store there can be: ``<store>/<session>.log``.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from broker.processes import ProcessId
from shims.shelf import Card, Folder, Hold, Listed, Told, listed, listed_or, unheeded

END = ".log"


class MadeUpShelf:
    """See `shims.shelf.Shelf`."""

    def __init__(self) -> None:
        self.reads: list[tuple[str, int]] = []
        """(session, byte from which it was read)."""
        self.refused: set[str] = set()
        """Sessions whose files cannot be opened now."""
        self.broken: set[str] = set()
        """Sessions whose files make this shelf fail in a way that it must not."""
        self.hidden: set[str] = set()
        """Paths that cannot be looked at now: files, or the store itself."""
        self.whole = False
        """Files are written as a whole, and read as one."""

    def folders(self, store: str) -> Iterable[Folder]:
        yield Folder(store)

    def files(self, store: str, unread: Callable[[str], None] = unheeded) -> Iterator[Listed]:
        if store in self.hidden:
            unread(store)
            return
        for path in sorted(Path(store).glob(f"*{END}")):
            yield from listed_or(unread, self._look, str(path))

    def concerns(self, store: str, path: str) -> str:
        return path if os.path.dirname(path) == store and path.endswith(END) else ""

    def listed(self, store: str, path: str) -> Listed | None:
        if store in self.hidden:
            raise OSError(errno.EACCES, "hidden")
        return self._look(path)

    def read(self, store: str, file: Listed, before: Told | None) -> Told:  # noqa: ARG002
        session = os.path.basename(file.path).removesuffix(END)
        start = before.read if before is not None and not self.whole else 0
        self.reads.append((session, start))
        if session in self.refused:
            raise OSError(errno.EACCES, "refused")
        if session in self.broken:
            raise ZeroDivisionError
        with open(file.path, encoding="utf-8") as content:
            content.seek(start)
            lines = content.read().splitlines()
        name = lines[-1] if lines else (before.cards[0].name if before is not None and before.cards else "")
        return Told(file.size, (Card(session, "/w", name),))

    def _look(self, path: str) -> Listed | None:
        if path in self.hidden:
            raise OSError(errno.EIO, "hidden")
        return listed(path)

    def holding(self, store: str, holds: Iterable[Hold]) -> Mapping[str, tuple[ProcessId, ...]]:  # noqa: ARG002
        return {}
