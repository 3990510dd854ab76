"""Writes ``POUR`` bytes of numbered lines and copies its stdin into the FIFO or file ``POUR_INPUT``, if it is named.

With ``POUR_FIRST`` it begins to read when all is written. Ends at end-of-file, when all is written. Dies of a broken pipe.
"""

import os
import signal
import threading

signal.signal(signal.SIGPIPE, signal.SIG_DFL)


def pour() -> None:
    left = int(os.environ["POUR"])
    number = 0
    while left > 0:
        block = b"".join(b"%015d\n" % n for n in range(number, number + 4096))[:left]
        number += 4096
        while block:
            count = os.write(1, block)
            left -= count
            block = block[count:]


def copy() -> None:
    sink = os.open(os.environ.get("POUR_INPUT") or os.devnull, os.O_WRONLY | os.O_CREAT, 0o600)
    while chunk := os.read(0, 65536):
        while chunk:
            chunk = chunk[os.write(sink, chunk) :]


pouring = threading.Thread(target=pour)
pouring.start()
if os.environ.get("POUR_FIRST"):
    pouring.join()
copy()
pouring.join()
