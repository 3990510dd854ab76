"""What kind of file system a path lies on: some keep no events and no locks (EN-26, SE-06).

Owns the list of those that reach other machines. The table of mounts is the system's.
"""

from __future__ import annotations

import os

NETWORK = frozenset(
    (
        *("9p", "afpfs", "afs", "beegfs", "ceph", "cifs", "davfs", "glusterfs", "gpfs", "lustre", "ncpfs", "nfs", "nfs4"),
        *("ocfs2", "orangefs", "pvfs2", "smb3", "smbfs", "webdav"),
        *("fuse.glusterfs", "fuse.rclone", "fuse.s3fs", "fuse.sshfs"),
    )
)


def kind_of(path: str) -> str:
    """The name of the file system that ``path``, which need not exist yet, lies or will lie on; empty when unknown."""
    import psutil

    real = os.path.realpath(path)
    best, kind = "", ""
    try:
        mounts = psutil.disk_partitions(all=True)
    except OSError:
        return ""
    for mount in mounts:
        point = mount.mountpoint.rstrip("/")
        if (real == point or real.startswith(f"{point}/")) and len(point) >= len(best):
            best, kind = point, mount.fstype
    return kind


def is_network(path: str) -> bool:
    return kind_of(path).lower() in NETWORK
