"""How a client finds the broker, waits for one without polling, and starts one.

Owns ``run/broker.json`` (written by the broker, read here), the wake FIFOs and the start lock. A record counts only while
the very process it names is alive. One client starts a broker at a time: it hands its lock on to the broker, which lets go
of it when it has published itself, so that ten clients at once start one (EN-10).
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import select
import sys
import time
from typing import NamedTuple

from broker.errors import BrokerUnreachable
from broker.paths import Home
from broker.processes import ProcessId, identify, open_death_watch, parse_process_id

START_LOCK_FD = 3
"""Where a broker that was started by a client finds the start lock."""

_CRASH_WINDOW = 60.0
_CRASHES_ALLOWED = 3
"""More starts than this within the window without a clean end: something is broken, stop trying (MC-32)."""

_PASSED_ON = ("HOME", "LANG", "LOGNAME", "PATH", "SHELL", "TMPDIR", "USER")
_PASSED_ON_PREFIXES = ("CROSS_AGENT_", "LC_", "XDG_")


class BrokerRecord(NamedTuple):
    """What ``run/broker.json`` says of the living broker."""

    endpoint: str
    events: str
    pid: int
    start: int
    generation: int
    protocol: int
    version: str

    @property
    def process(self) -> ProcessId:
        return ProcessId(self.pid, self.start)


def read_record(home: Home) -> BrokerRecord | None:
    """The living broker, None if there is none (or only the record of one that died)."""
    try:
        with open(home.broker_record, "rb") as file:
            written = json.load(file)
        # A field that a later version added is not ours to know: its protocol says whether we understand each other.
        record = BrokerRecord(**{name: written[name] for name in BrokerRecord._fields})
    except (OSError, ValueError, TypeError, KeyError):
        return None
    return record if record.process.alive() else None


def publish_record(home: Home, record: BrokerRecord) -> None:
    """Renames the record into place and wakes everybody who waits for a broker."""
    draft = f"{home.broker_record}.{record.pid}"
    with open(draft, "w", encoding="utf-8", opener=_private) as file:
        json.dump(record._asdict(), file)
    os.replace(draft, home.broker_record)
    for entry in os.scandir(home.wake):
        _ring(entry.path)


def withdraw_record(home: Home, record: BrokerRecord) -> None:
    """Removes the record if it is still ours."""
    if read_record(home) == record:
        os.unlink(home.broker_record)


def clean_end(home: Home) -> None:
    """A broker that ends as it should is no crash: the count begins anew."""
    try:
        os.unlink(home.starts)
    except FileNotFoundError:
        pass


class WakeUp:
    """A FIFO of this process in ``run/wake``: readable when a broker has published itself."""

    def __init__(self, home: Home) -> None:
        """Raises OSError where the run directory takes no FIFO."""
        me = identify(os.getpid())
        self.path = os.path.join(home.wake, str(me))
        try:
            os.mkfifo(self.path, 0o600)
        except FileExistsError:
            pass
        # Opened for both: a reader alone would see end-of-file for ever once the first writer has closed.
        self.fd = os.open(self.path, os.O_RDWR | os.O_NONBLOCK)

    def drain(self) -> None:
        try:
            while os.read(self.fd, 4096):
                pass
        except BlockingIOError:
            pass

    def close(self) -> None:
        os.close(self.fd)
        self.remove()

    def remove(self) -> None:
        try:
            os.unlink(self.path)
        except FileNotFoundError:
            pass


def start_broker(home: Home, *, by_hand: bool = False) -> ProcessId | None:
    """Starts a broker unless one lives or somebody is starting one. Returns the one that this call started.

    Args:
        by_hand: a person asked: the crash guard does not apply, and is reset.

    Raises:
        HomeError: the state directory cannot be used.
        BrokerUnreachable: brokers keep dying, or none can be spawned here.
    """
    home.prepare()
    lock = os.open(home.start_lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return None
        if read_record(home) is not None:
            return None
        if by_hand:
            clean_end(home)
        _count_start(home)
        pid = _spawn(home, lock)
        return identify(pid) or ProcessId(pid, 0)  # it has ended already: no process is that one
    finally:
        os.close(lock)


def bury(started: ProcessId) -> int | None:
    """How the broker that this process has started ended: its exit status, or the signal as a negative number.

    Never blocks: None while it runs, or when this process is told of no child's end (SIGCHLD ignored).
    """
    try:
        pid, status = os.waitpid(started.pid, os.WNOHANG)
    except ChildProcessError:
        return None
    return os.waitstatus_to_exitcode(status) if pid else None


def living_or_starting(home: Home, deadline: float) -> BrokerRecord | None:
    """The living broker, or the one that somebody is starting at this moment, awaited until ``deadline`` (monotonic)."""
    try:
        lock = os.open(home.start_lock, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return read_record(home)
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return wait_for_broker(home, deadline)
    finally:
        os.close(lock)
    return read_record(home)


def wait_for_broker(home: Home, deadline: float, started: ProcessId | None = None) -> BrokerRecord | None:
    """Blocks until a broker lives or ``deadline`` (monotonic seconds) has passed; no longer than ``started`` lives."""
    bell = WakeUp(home)
    death = open_death_watch(started) if started is not None else None
    try:
        while (record := read_record(home)) is None:
            left = deadline - time.monotonic()
            if left <= 0 or (started is not None and not started.alive()):
                return None
            select.select([fd for fd in (bell.fd, death) if fd is not None], [], [], left)
            bell.drain()
        return record
    finally:
        bell.close()
        if death is not None:
            os.close(death)


def _count_start(home: Home) -> None:
    now = time.time()
    try:
        with open(home.starts, "rb") as file:
            starts = [moment for moment in json.load(file) if now - _CRASH_WINDOW < moment <= now]
    except (OSError, ValueError, TypeError):
        starts = []
    if len(starts) > _CRASHES_ALLOWED:
        raise BrokerUnreachable(
            f"the broker died {len(starts)} times within {_CRASH_WINDOW:.0f} s and is not started again by itself",
            code="broker_keeps_dying",
            next_step=f"Read {home.logs}/broker.log, then run `cross-agent broker start`.",
        )
    with open(home.starts, "w", encoding="utf-8", opener=_private) as file:
        json.dump([*starts, now], file)


def _spawn(home: Home, lock: int) -> int:
    program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "__main__.py")
    log = os.path.join(home.logs, "broker.log")
    environment = {
        name: value for name, value in os.environ.items() if name in _PASSED_ON or name.startswith(_PASSED_ON_PREFIXES)
    }
    environment["CROSS_AGENT_HOME"] = home.root
    append = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    try:
        return os.posix_spawn(
            sys.executable,
            [sys.executable, "-I", program, "run", "--detached"],
            environment,
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, log, append, 0o600),
                (os.POSIX_SPAWN_DUP2, 1, 2),
                (os.POSIX_SPAWN_DUP2, lock, START_LOCK_FD),
            ],
            setsid=True,
        )
    except OSError as error:
        raise BrokerUnreachable(f"no broker could be started: {error.strerror}") from error


def _ring(path: str) -> None:
    try:
        fd = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
    except OSError as error:
        if error.errno == errno.ENXIO:  # nobody reads it: its process died without removing it, or is about to open it
            _remove_bell_of_the_dead(path)
        return
    try:
        os.write(fd, b"\n")
    except (BlockingIOError, BrokenPipeError):
        pass  # full of bells that were not heard yet: one more changes nothing; or closed at this moment
    finally:
        os.close(fd)


def _remove_bell_of_the_dead(path: str) -> None:
    process = parse_process_id(os.path.basename(path))
    if process is not None and process.alive():
        return
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
