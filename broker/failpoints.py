"""Named places where a crash test may kill the process that passes them.

Owns the names' effect, not the names. Costs one comparison when off: only a process started with
``CROSS_AGENT_FAIL_POINTS`` set looks, and only a file of the point's name in ``run/fail`` arms it. The file is consumed, so
the process that is started next passes the same place unharmed.
"""

from __future__ import annotations

import os

_ARMED = bool(os.environ.get("CROSS_AGENT_FAIL_POINTS"))
_KILL = 9


def fail_point(name: str) -> None:
    """Dies of SIGKILL here when a test has armed ``name``."""
    if _ARMED and _consume(name):
        os.kill(os.getpid(), _KILL)


def _consume(name: str) -> bool:
    from broker.paths import find_home

    try:
        os.unlink(os.path.join(find_home().fail_points, name))
    except OSError:
        return False
    return True
