"""A shelf of nobody's: one file is one session, each line renames it. It counts what is read, and refuses what a test says.

Owns the simplest store there can be: ``<store>/<session>.log``.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from broker.processes import ProcessId
from shims.shelf import Card, Folder, Hold, Listed, Told, listed

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
        self.whole = False
        """Files are written as a whole, and read as one."""

    def folders(self, store: str) -> Iterable[Folder]:
        yield Folder(store)

    def files(self, store: str) -> Iterator[Listed]:
        for path in sorted(Path(store).glob(f"*{END}")):
            file = listed(str(path))
            if file is not None:
                yield file

    def concerns(self, store: str, path: str) -> bool:
        return os.path.dirname(path) == store and path.endswith(END)

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

    def holding(self, store: str, holds: Iterable[Hold]) -> Mapping[str, tuple[ProcessId, ...]]:  # noqa: ARG002
        return {}
