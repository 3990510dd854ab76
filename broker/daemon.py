"""The broker as a process: detached from whoever started it, one at a time, with its log.

Owns the broker lock, the descriptors and the loop's start; what the loop does is `app`'s.
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import sys

from broker.app import Broker
from broker.logs import begin_logging
from broker.paths import Home
from broker.rendezvous import START_LOCK_FD

log = logging.getLogger("broker.daemon")


def run(home: Home, *, detached: bool) -> int:
    """Runs a broker until it ends. Returns the exit status: 0 also when another broker is there already."""
    if detached:
        _let_go()
    home.prepare()
    begin_logging(home)
    lock = os.open(home.broker_lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        log.info("another broker is running")
        if not detached:
            print("another broker is running", file=sys.stderr)
        return 0
    sys.setswitchinterval(0.001)  # loading the SDK in a thread must not hold the loop up (EN-25)
    _watch_children_by_descriptor()
    asyncio.run(_serve(home, detached))
    return 0


async def _serve(home: Home, detached: bool) -> None:
    broker = Broker(home)
    await broker.run(published=_release_start_lock if detached else lambda: None)


def _watch_children_by_descriptor() -> None:
    """As newer versions do by themselves: a thread for each child is one more that the loop waits for."""
    if sys.version_info < (3, 12) and hasattr(os, "pidfd_open"):
        asyncio.set_child_watcher(asyncio.PidfdChildWatcher())


def _let_go() -> None:
    """Nothing of whoever started us stays: its descriptors, its directory, its umask."""
    os.closerange(START_LOCK_FD + 1, 4096)
    os.chdir("/")
    os.umask(0o077)


def _release_start_lock() -> None:
    """We are published: the next client finds us instead of starting another broker."""
    try:
        os.close(START_LOCK_FD)
    except OSError:
        pass  # started by hand, without one
