"""The first steps of every shim: nothing that fails in them may cost the editor its agent (SH-07).

Owns the way back: when the shim's own files don't load (half an update, a foreign Python), the launcher is called again and
told to do without them. Imports nothing but C modules.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal as _signal
    from collections.abc import Callable
    from typing import Any, NoReturn
else:
    import _signal  # `signal` itself imports enum

if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
    _signal.signal(_signal.SIGINT, _signal.SIG_DFL)  # until there is an agent to pass it to: an end, not a traceback


def start(agent: str, root: str, prepare: Callable[[], tuple[Callable[..., NoReturn], tuple[Any, ...]]]) -> NoReturn:
    """Does what ``prepare`` decides on.

    Args:
        root: the directory that holds the rooms.
        prepare: loads what it needs and returns a function that never comes back, with its arguments.
    """
    try:
        action, arguments = prepare()
    except Exception:  # whatever it is, the agent can be had without us
        _call_launcher(agent, root)
        raise
    action(*arguments)


def _call_launcher(agent: str, root: str) -> None:
    """Returns only where there is no launcher."""
    import os
    import sys

    name = f"{agent}-shim"
    for directory in (os.path.join(root, "bin"), os.path.dirname(sys.executable)):
        launcher = os.path.join(directory, name)
        if os.access(launcher, os.X_OK):
            os.environ["CROSS_AGENT_SHIM_BROKEN"] = "1"
            os.execv(launcher, [launcher, *sys.argv[1:]])
