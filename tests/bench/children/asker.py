"""A Claude-like agent that sends when its person speaks, and says when the answer is there. ``asker.py … <session> <fifo>``.

A word of its person's is the id of the session that it writes to, by the tool ``ASKER_TOOL`` of the MCP server that
``ASKER_SERVER`` names (JSON). Its message is ``ASKER_MESSAGE``.
"""

import json
import os
import subprocess
import sys
import time

session, report = sys.argv[-2:]
out = os.open(report, os.O_WRONLY)
mcp = subprocess.Popen(json.loads(os.environ["ASKER_SERVER"]), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
calls = 0
began = 0


def say(message: dict) -> None:  # type: ignore[type-arg]
    os.write(1, json.dumps(message, separators=(",", ":")).encode() + b"\n")


def call(method: str, **parameters: object) -> None:
    global calls
    calls += 1
    assert mcp.stdin is not None and mcp.stdout is not None
    mcp.stdin.write(json.dumps({"jsonrpc": "2.0", "id": calls, "method": method, "params": parameters}).encode() + b"\n")
    mcp.stdin.flush()
    while json.loads(mcp.stdout.readline()).get("id") != calls:
        pass


call("initialize", protocolVersion="2025-11-25", capabilities={}, clientInfo={"name": "asker", "version": "0"})
rest = b""
while chunk := os.read(0, 1 << 20):
    at = time.monotonic_ns()
    *lines, rest = (rest + chunk).split(b"\n")
    for line in lines:
        message = json.loads(line)
        if message["type"] == "control_request":
            request = message["request_id"]
            say({"type": "control_response", "response": {"subtype": "success", "request_id": request, "response": {}}})
            say({"type": "system", "subtype": "session_title_changed", "title": "asker", "session_id": session})
        elif message["type"] == "user":
            say({"type": "system", "subtype": "init", "session_id": session, "cwd": os.getcwd(), "model": "none"})
            say({**message, "isReplay": True, "session_id": session})
            if message.get("priority"):  # not its person's: the answer
                os.write(out, b"%d\n" % (at - began))
            else:
                began = time.monotonic_ns()
                target = message["message"]["content"]
                arguments = {"message": os.environ["ASKER_MESSAGE"], "session_id": target}
                call("tools/call", name=os.environ["ASKER_TOOL"], arguments=arguments)
            text = {"type": "result", "subtype": "success", "is_error": False, "result": "ok", "session_id": session}
            say({**text, "uuid": "0", "user_message_uuids": [message.get("uuid")]})
