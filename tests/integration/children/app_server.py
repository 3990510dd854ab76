"""As much of a Codex app-server as makes a shim ask it something: answers every request, says on stderr what it read.

``APP_SERVER_PIECES``: each answer to the shim is written in pieces of that many bytes, noise before and after it.
``APP_SERVER_PADDING``: bytes added to those answers.
"""

import json
import os
import sys

PIECES = int(os.environ.get("APP_SERVER_PIECES", "1000000"))
PADDING = int(os.environ.get("APP_SERVER_PADDING", "0"))


def write(data: bytes) -> None:
    while data:
        data = data[os.write(1, data[:PIECES]) :]


for line in sys.stdin.buffer:
    os.write(2, line)
    message = json.loads(line)
    identifier = message.get("id")
    if identifier is None:
        continue
    thread = {"id": message["params"].get("threadId"), "padding": "p" * PADDING}
    result = {"userAgent": "x/0.171.0 (y)", "thread": thread}
    answer = json.dumps({"id": identifier, "result": result}, separators=(",", ":")).encode() + b"\n"
    if str(identifier).startswith("xagent-"):
        write(b"before " + b"\n" + answer + b"after\n")
    else:
        write(answer)
