"""Closes its stdin, says so, and lives until it is ended."""

import os
import signal

os.close(0)
os.write(1, b"deaf\n")
signal.pause()
