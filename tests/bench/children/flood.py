"""An agent in full flow. ``flood.py <agent> <MiB> …``: at the first line it gets, it says that much in lines of 200 bytes.

The lines are what each agent says most of, so that they take the way through the observer that counts.
"""

import os
import sys

STARTS = {
    "claude": b'{"type":"stream_event","event":{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"',
    "codex": b'{"method":"item/agentMessage/delta","params":{"threadId":"t","turnId":"u","itemId":"i","delta":"',
    "grok": b'{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":'
    b'{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"',
}
ENDS = {"claude": b'"}}}\n', "codex": b'"}}\n', "grok": b'"}}}}\n'}

agent, amount = sys.argv[1], int(sys.argv[2])
line = STARTS[agent] + b"x" * (200 - len(STARTS[agent]) - len(ENDS[agent])) + ENDS[agent]
block = line * ((1 << 16) // len(line))

while b"\n" not in os.read(0, 1 << 16):
    pass
left = amount << 20
while left > 0:
    view = memoryview(block)
    while view:
        view = view[os.write(1, view) :]
    left -= len(block)
os.read(0, 1)  # stays to be measured
