"""A second editor window: a process of its own between a client and the wrapper that it starts.

Run as a plain script in front of the wrapper's command line. Owns nothing but its child: descriptors are inherited, signals
that end a panel are passed on, the end of the child is its own.
"""

from __future__ import annotations

import signal
import subprocess
import sys


def main(command: list[str]) -> int:
    with subprocess.Popen(command) as child:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda number, _: child.send_signal(number))
        return child.wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
