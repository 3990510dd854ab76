"""What kind of file system a path lies on: some keep no events and no locks (EN-26, SE-06).

Owns the list of those that reach other machines. The table of mounts is the system's. Loaded by every client: nothing heavy.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

NETWORK = frozenset(
    (
        *("9p", "afpfs", "afs", "beegfs", "ceph", "cifs", "davfs", "glusterfs", "gpfs", "lustre", "ncpfs", "nfs", "nfs4"),
        *("ocfs2", "orangefs", "pvfs2", "smb3", "smbfs", "webdav"),
        *("fuse.glusterfs", "fuse.rclone", "fuse.s3fs", "fuse.sshfs"),
    )
)

_TABLE = "/proc/self/mounts"
_ESCAPES = {"\\040": " ", "\\011": "\t", "\\012": "\n", "\\134": "\\"}


def kind_of(path: str) -> str:
    """The name of the file system that ``path``, which need not exist yet, lies or will lie on; empty when unknown."""
    real = os.path.realpath(path)
    best, kind = "", ""
    for point, name in _mounts():
        point = point.rstrip("/")
        if (real == point or real.startswith(f"{point}/")) and len(point) >= len(best):
            best, kind = point, name
    return kind


def is_network(path: str) -> bool:
    return kind_of(path).lower() in NETWORK


def _mounts() -> Iterator[tuple[str, str]]:
    """Mount points and kinds, in the order in which they were mounted."""
    if sys.platform != "linux":
        import psutil

        yield from ((mount.mountpoint, mount.fstype) for mount in psutil.disk_partitions(all=True))
        return
    try:
        with open(_TABLE, encoding="utf-8", errors="surrogateescape") as table:
            rows = [line.split(" ") for line in table]
    except OSError:
        return
    for row in rows:
        if len(row) > 2:
            point = row[1]
            for escape, character in _ESCAPES.items():
                point = point.replace(escape, character)
            yield point, row[2]
