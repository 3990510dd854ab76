"""A Claude-like agent that answers the handshake and says when a message arrived. ``sink.py … <session> <report fifo>``.

It shows each user line as taken and answered at once, as an instant agent would.
"""

import json
import os
import sys
import time

session, report = sys.argv[-2:]
out = os.open(report, os.O_WRONLY) if report != "-" else -1


def say(message: dict) -> None:  # type: ignore[type-arg]
    os.write(1, json.dumps(message, separators=(",", ":")).encode() + b"\n")


rest = b""
while chunk := os.read(0, 1 << 20):
    at = time.monotonic_ns()
    *lines, rest = (rest + chunk).split(b"\n")
    for line in lines:
        message = json.loads(line)
        if message["type"] == "control_request":
            request = message["request_id"]
            say({"type": "control_response", "response": {"subtype": "success", "request_id": request, "response": {}}})
            say({"type": "system", "subtype": "session_title_changed", "title": "sink", "session_id": session})
        elif message["type"] == "user":
            if out >= 0 and message.get("priority"):
                os.write(out, b"%d\n" % at)
            say({"type": "system", "subtype": "init", "session_id": session, "cwd": os.getcwd(), "model": "none"})
            say({**message, "isReplay": True, "session_id": session})
            text = {"type": "result", "subtype": "success", "is_error": False, "result": "ok", "session_id": session}
            say({**text, "uuid": "0", "user_message_uuids": [message.get("uuid")]})
