"""Leaves a process behind that holds its stdio, and ends with 4 once a line came.

``LINGERING=silent``: that process waits for end-of-file. ``LINGERING=loud``: it writes until nobody reads.
"""

import os

silent = os.environ["LINGERING"] == "silent"
os.read(0, 65536)
begun, begin = os.pipe()
if os.fork() == 0:
    os.write(1, b"still here\n")
    os.write(begin, b"\n")
    if silent:
        while os.read(0, 65536):
            pass
    else:
        try:
            while True:
                os.write(1, b"still here\n" * 100)
        except BrokenPipeError:
            pass
    os._exit(0)
os.read(begun, 1)
os._exit(4)
