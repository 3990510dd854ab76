"""What a file is: a program that can be started here as the agent, or something that would only come back to us (SH-04).

Owns the look at a file's first bytes. Runs before the agent does: imports `os` and C modules only.
"""

from __future__ import annotations

import os

UNREADABLE = b"?"
"""Stands for the beginning of a program that may be run and not be read."""


def is_real(path: str) -> bool:
    """Whether ``path`` is an executable file that is not one of our launchers, by whatever way it would be reached."""
    try:
        head = beginning(path)
        return head != b"" and not is_shim(path, head)
    except (OSError, ValueError):
        return False


_SHIMS = (b"claude-shim", b"codex-shim", b"grok-shim")


def beginning(path: str) -> bytes:
    """The beginning of an executable file. Raises OSError if there is none."""
    if os.stat(path).st_mode & 0o170000 != 0o100000 or not os.access(path, os.X_OK):
        raise FileNotFoundError(path)
    try:
        fd = os.open(path, os.O_RDONLY)
    except PermissionError:
        return UNREADABLE
    try:
        return os.read(fd, 4096)
    finally:
        os.close(fd)


def is_executable(path: str) -> bool:
    return os.path.isfile(path) and os.access(path, os.X_OK)


def is_script(head: bytes) -> bool:
    return head.startswith(b"#!")


def interpreter(head: bytes) -> str:
    """What a script is run by: a path, or a name to be found on the PATH (``#!/usr/bin/env node``); empty if it does not say."""
    words = head[2:].split(b"\n", 1)[0].split()
    if words and os.path.basename(words[0]) == b"env":
        words = [word for word in words[1:] if not word.startswith(b"-") and b"=" not in word]
    return os.fsdecode(words[0]) if words else ""


def is_shim(path: str, head: bytes) -> bool:
    """Whether this is a launcher, a copy of one, or a script that says it calls one; what does not say so, `loops` notices.

    A launcher is known by its second line, not by its name: a copy called `claude` would recurse just as well.
    """
    if head is UNREADABLE:
        return os.fsencode(os.path.basename(os.path.realpath(path))) in _SHIMS
    return is_script(head) and (b"cross-agent launcher" in head[:200] or any(name in head for name in _SHIMS))


_ELF = {3: "i386", 40: "arm", 62: "x86_64", 183: "aarch64"}
_MACH_O = {7: "i386", 0x01000007: "x86_64", 0x0100000C: "aarch64"}
_UNIVERSAL = {b"\xca\xfe\xba\xbe": 20, b"\xca\xfe\xba\xbf": 32}
"""Files that hold a program for several processors, and how long an entry of their table is."""


def is_native(head: bytes, system: str, machine: str) -> bool:
    """Whether a program is for this system and processor, by its first bytes."""
    if head is UNREADABLE:
        return True
    if head.startswith(b"\x7fELF"):
        field = head[18:20]
        code = int.from_bytes(field, "big") if head[5:6] == b"\x02" else int.from_bytes(field, "little")
        return system != "Darwin" and _ELF.get(code, machine) == machine
    if system != "Darwin":
        return False
    if head.startswith((b"\xcf\xfa\xed\xfe", b"\xce\xfa\xed\xfe")):
        return _MACH_O.get(int.from_bytes(head[4:8], "little")) == machine
    length = _UNIVERSAL.get(head[:4])
    if length is None:
        return False
    entries = [8 + length * place for place in range(min(int.from_bytes(head[4:8], "big"), 16))]
    return any(_MACH_O.get(int.from_bytes(head[at : at + 4], "big")) == machine for at in entries)


def this_host() -> tuple[str, str]:
    """System and machine, the machine by the one name that is used here for it."""
    found = os.uname()
    machine = {"arm64": "aarch64", "amd64": "x86_64", "i686": "i386"}.get(found.machine, found.machine)
    return found.sysname, "arm" if machine.startswith("arm") else machine
