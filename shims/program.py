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
from shims.launch import become
from shims.observe import Observer
from shims.relay import Relay

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn

    from shims.link import Link

    Attend = Callable[[Relay, Observer, str, list[str]], Link]


_HEAD_START = 0.05
"""Seconds in which nothing is loaded beside the starting agent: it needs the processor more, and several times as long."""


def intercept(real: str, arguments: list[str], attend: Attend) -> NoReturn:
    """Runs ``real`` as a panel.

    Args:
        attend: makes the link once the agent runs; called in a thread, may import what it likes.
    """
    if not standard_streams_open():
        become(real, arguments)
    observer = Observer(_note_failure)
    relay = Relay(
        [real, *arguments],
        editor_tap=observer.editor_side,
        agent_tap=observer.agent_side,
        sieve=observer.sieve,
        broken=observer.switch_off,
    )
    attended: list[Link] = []

    def closing() -> None:
        for link in attended:
            link.panel.closing()

    try:
        relay.start(closing)
    except OSError:
        become(real, arguments)  # says on stderr what is wrong with the binary, as it would have without us
    # Loading must not keep the byte path waiting for the interpreter longer than a line takes.
    sys.setswitchinterval(0.0005)
    try:
        _thread.start_new_thread(_attend, (relay, observer, real, arguments, attend, attended))
    except RuntimeError as error:  # no more threads for this user
        observer.switch_off(str(error))
    status = relay.wait()
    for link in attended:
        link.end()
    end_like(status)


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
    except RuntimeError:
        pass  # no thread for a line in a log


def _write_failure(reason: str) -> None:
    """One line in the log, with nothing but built-ins: what failed may be anything."""
    logs = os.path.join(os.environ.get("CROSS_AGENT_HOME") or os.path.expanduser("~/.cross-agent"), "logs")
    try:
        os.makedirs(logs, mode=0o700, exist_ok=True)
        fd = os.open(os.path.join(logs, "shim-failures.log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    except OSError:
        return
    try:
        os.write(fd, f"{os.getpid()} unobserved: {reason}\n".encode(errors="backslashreplace"))
    except OSError:
        pass  # disk full
    finally:
        os.close(fd)
