"""The main program of every shim: start the agent, pass bytes, attend the panel, end as the agent ended.

Owns the order of things at start and at exit (SH-07, SH-09). Imports nothing heavy; the link and its libraries are loaded
in a thread of their own after the agent runs.
"""

from __future__ import annotations

import _thread
import os
import sys
import time

from shims.child import end_like, standard_streams_open
from shims.found import state_directory
from shims.launch import become
from shims.observe import Observer
from shims.relay import Relay

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn

    from shims.link import Link
    from shims.loops import Loop

    Attend = Callable[[Relay, Observer, str, list[str]], Link]


_HEAD_START = 0.05
"""Seconds in which nothing is loaded beside the starting agent: it needs the processor more, and several times as long."""


def intercept(loop: Loop, real: str, arguments: list[str], attend: Attend) -> NoReturn:
    """Runs ``real`` as a panel.

    Args:
        attend: makes the link once the agent runs; called in a thread, may import what it likes.
    """
    attended: list[Link] = []
    try:
        observer, relay = _started(loop, real, arguments, attended)
    except BaseException:  # whatever it was: the agent does not run yet, and can be had without us
        become(loop, real, arguments)  # says on stderr what is wrong with the binary, as it would have without us
    # From here on nothing may raise: the agent runs, and there must not be a second one.
    # Loading must not keep the byte path waiting for the interpreter longer than a line takes.
    sys.setswitchinterval(0.0005)
    try:
        _thread.start_new_thread(_attend, (relay, observer, real, arguments, attend, attended))
    except (RuntimeError, MemoryError):
        observer.switch_off("no more threads for this user")
    status = relay.wait()
    try:
        for link in attended:
            link.end()
    except Exception as error:  # the status is the agent's, whatever a link has to say at its end
        _write_failure(type(error).__name__)
    end_like(status)


def _started(loop: Loop, real: str, arguments: list[str], attended: list[Link]) -> tuple[Observer, Relay]:
    """The agent, running behind a relay. Raises whatever prevents that."""
    if not standard_streams_open():
        raise OSError("there is no editor to stand between")
    observer = Observer(_note_failure)
    relay = Relay(
        [real, *arguments],
        editor_tap=observer.editor_side,
        agent_tap=observer.agent_side,
        sieve=observer.sieve,
        broken=observer.switch_off,
        entering=lambda: loop.mark(real),
    )

    def closing() -> None:
        for link in attended:
            link.panel.closing()

    relay.start(closing)
    return observer, relay


def _attend(relay: Relay, observer: Observer, real: str, arguments: list[str], attend: Attend, attended: list[Link]) -> None:
    time.sleep(_HEAD_START)
    sys.path.append(site_packages())
    try:
        link = attend(relay, observer, real, arguments)
    except Exception as error:  # missing packages, an unreadable home: the agent goes on, unobserved (SH-07)
        observer.switch_off(f"{type(error).__name__}: {error}")
        return
    attended.append(link)
    link.run()


def site_packages() -> str:
    """Where this interpreter's packages are. It runs without `site`, so that `sys.prefix` is not the environment's."""
    prefix = os.path.dirname(os.path.dirname(sys.executable))
    if not os.path.exists(os.path.join(prefix, "pyvenv.cfg")):
        prefix = sys.prefix
    return os.path.join(prefix, "lib", f"python{sys.version_info[0]}.{sys.version_info[1]}", "site-packages")


def _note_failure(reason: str) -> None:
    """Logs ``reason``, away from the byte path: the home may hang as well."""
    try:
        _thread.start_new_thread(_write_failure, (reason,))
    except (RuntimeError, MemoryError):
        pass  # no thread for a line in a log


def _write_failure(reason: str) -> None:
    """One line in the log, with nothing but built-ins: what failed may be anything."""
    try:
        logs = os.path.join(state_directory(os.environ), "logs")
        os.makedirs(logs, mode=0o700, exist_ok=True)
        fd = os.open(os.path.join(logs, "shim-failures.log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    except (OSError, KeyError):
        return
    try:
        os.write(fd, f"{os.getpid()} unobserved: {reason}\n".encode(errors="backslashreplace"))
    except OSError:
        pass  # disk full
    finally:
        os.close(fd)
