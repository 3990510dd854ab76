"""Says in JSON how it was started, and ends with 0."""

import json
import os
import signal
import sys


def _open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


with open("/proc/self/status") as file:
    status = dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)
report = {
    "pid": os.getpid(),
    "parent": os.getppid(),
    "argv": sys.argv,
    "environment": dict(os.environ),
    "descriptors": [fd for fd in range(64) if _open(fd)],
    "blocked": status["SigBlk"],
    "ignored": [number for number in range(1, 32) if signal.getsignal(number) == signal.SIG_IGN],
    "cwd": os.getcwd(),
}
data = json.dumps(report).encode()
os.write(1 if _open(1) else 2, data + b"\n")
