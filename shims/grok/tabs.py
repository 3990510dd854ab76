"""The names that people gave to Grok's tabs in an editor: where editors keep them, and reading them there.

Owns the look into the editors' own databases, which are outside of Grok's store. They belong to a running program: nothing is
written, no file is made beside them, and no lock is held that outlives one query or that keeps a writer from writing its log.
The extension (1.0.4) keeps a map of sessions in its part of the editor's global state.
"""

from __future__ import annotations

import errno
import fcntl
import os
import sqlite3
import stat
import sys
from collections.abc import Mapping
from contextlib import closing
from urllib.parse import quote

from shims.shelf import Listed, listed

VARIABLE = "CROSS_AGENT_GROK_NAMES_DB"

LOG = "-wal"
"""What SQLite puts behind the name of a database for its log; the log may hold a name for hours before the database does."""

_EDITORS = ("Code", "Code - Insiders", "VSCodium", "Cursor", "Windsurf")
_DATABASE = os.path.join("User", "globalStorage", "state.vscdb")

_EXTENSIONS = ("sahilrakhaiya.grok-build-gui", "SahilRakhaiya.grok-build-gui")
"""The key, by either spelling of the publisher: editors keep the one of the extension's manifest."""

_MAPS = ('$."grok.sessionMeta"', "$.grok.sessionMeta")
"""The state is flat, its keys have dots in them; a nested one means the same."""

_LONGEST = 16 << 20
"""Bytes of an extension's state that are looked at. Decoded inside SQLite: no Python lock is held meanwhile (SE-05)."""

_PATIENCE = 0.2
"""Seconds that a query waits for an editor that is committing."""

_QUERY = """
WITH states AS (
  SELECT CASE WHEN length(value) <= ? AND json_valid(CAST(value AS TEXT)) THEN CAST(value AS TEXT) ELSE '{}' END AS state
  FROM ItemTable WHERE key IN (?, ?)
), sessions AS (
  SELECT session.key AS id, session.value AS meta FROM states, json_each(states.state, ?) AS session WHERE session.type = 'object'
)
SELECT id, json_extract(meta, '$.customName') FROM sessions WHERE json_type(meta, '$.customName') = 'text'
"""

_MAGIC = b"SQLite format 3\0"
_FORM = 18
"""Where a database says whether its changes go to a log of their own (2) or into itself (1)."""

_SHARED = (510, 0x40000002)
"""The bytes that every reader locks; whoever puts the log back into the database and deletes it needs them alone."""


def databases(environment: Mapping[str, str], platform: str = sys.platform) -> list[str]:
    """Where names may be, whether or not anything is there."""
    given = environment.get(VARIABLE)
    if given:
        return list(dict.fromkeys(os.path.expanduser(path) for path in given.split(":") if path))
    home = environment.get("HOME") or os.path.expanduser("~")
    if platform == "darwin":
        roots = [os.path.join(home, "Library", "Application Support")]
    else:
        roots = [environment.get("XDG_CONFIG_HOME") or "", os.path.join(home, ".config")]
    return list(dict.fromkeys(os.path.join(root, editor, _DATABASE) for root in roots if root for editor in _EDITORS))


def listed_with_log(path: str) -> Listed | None:
    """The database as a file of the store: changed when its log has changed. None when it is not there."""
    database = listed(path)
    log = listed(os.path.realpath(path) + LOG) if database is not None else None
    if database is None or log is None:
        return database
    return database._replace(size=database.size + log.size, changed=max(database.changed, log.changed))


def names_in(path: str) -> tuple[tuple[str, str], ...]:
    """(session, name) for each tab that was named; none where this is no such database.

    Raises:
        OSError: it cannot be read now.
    """
    path = os.path.realpath(path)
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        before = os.fstat(descriptor)
        if not stat.S_ISREG(before.st_mode):
            return ()
        head = os.pread(descriptor, _FORM + 2, 0)
        if len(head) < _FORM + 2 or not head.startswith(_MAGIC):
            return ()
        if 2 not in head[_FORM:]:
            return _ask(path, "mode=ro")
        # As long as these bytes are locked a log that is there stays; SQLite would make a new one, even for a reader.
        fcntl.lockf(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB, *_SHARED)
        if listed(path + LOG) is not None:
            if listed(path + "-shm") is None:
                raise OSError(errno.EAGAIN, "the log of a database is there without its index", path)
            return _ask(path, "mode=ro&readonly_shm=1")
        names = _ask(path, "mode=ro&immutable=1")
        after = os.fstat(descriptor)
        if (before.st_mtime_ns, before.st_size) != (after.st_mtime_ns, after.st_size):
            raise OSError(errno.EAGAIN, "a database changed while it was read", path)
        return names
    finally:
        os.close(descriptor)


def _ask(path: str, how: str) -> tuple[tuple[str, str], ...]:
    try:
        with closing(sqlite3.connect(f"file:{quote(os.fsencode(path))}?{how}", uri=True, timeout=_PATIENCE)) as connection:
            connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
            rows = [row for key in _MAPS for row in connection.execute(_QUERY, (_LONGEST, *_EXTENSIONS, key))]
    except sqlite3.OperationalError as error:
        if str(error).startswith("no such"):
            return ()
        raise OSError(errno.EAGAIN, str(error), path) from error
    except sqlite3.Error:
        return ()
    return tuple(dict(row for row in rows if row[1]).items())
