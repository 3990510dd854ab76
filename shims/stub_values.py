"""Values that the stub agents write: ids of two kinds, and a time as their files have it."""

from __future__ import annotations

import os
import time


def uuid4() -> str:
    """A random uuid."""
    raw = bytearray(os.urandom(16))
    raw[6] = raw[6] & 0x0F | 0x40
    return _written(raw)


def uuid7() -> str:
    """A time-ordered uuid, as Codex and Grok make them."""
    raw = bytearray(int(time.time() * 1000).to_bytes(6, "big") + os.urandom(10))
    raw[6] = raw[6] & 0x0F | 0x70
    return _written(raw)


def _written(raw: bytearray) -> str:
    raw[8] = raw[8] & 0x3F | 0x80
    text = raw.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def iso_now() -> str:
    now = time.time()
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) + f".{int(now * 1000) % 1000:03d}Z"
