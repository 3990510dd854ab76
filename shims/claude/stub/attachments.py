"""The ``@path`` hazard: a message that names a readable file makes Claude read it into the conversation.

Owns the finding of such names and the record of what was read.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Final

CLOSING: Final = ".,;:!?)]}\"'"  # punctuation after a name is not part of it, unless the file says so
READ_LIMIT: Final = 256 * 1024  # what Claude reads of one file at most


def file_attachments(text: str, cwd: str) -> list[dict[str, Any]]:
    """One attachment per ``@path`` at a line start or after white space that names a readable file."""
    found = []
    for word in text.split():
        if word.startswith("@") and len(word) > 1:
            path = named_file(word[1:], cwd)
            if path is not None:
                found.append(read(path, cwd))
    return found


def named_file(name: str, cwd: str) -> str | None:
    for candidate in (name, name.rstrip(CLOSING)):
        path = os.path.join(cwd, os.path.expanduser(candidate))
        if os.path.isfile(path) and os.access(path, os.R_OK):
            return path
    return None


def read(path: str, cwd: str) -> dict[str, Any]:
    with open(path, "rb") as file:
        content = file.read(READ_LIMIT).decode(errors="replace")
    lines = content.count("\n") + 1
    return {
        "type": "file",
        "filename": path,
        "content": {
            "type": "text",
            "file": {
                "filePath": path,
                "content": content,
                "numLines": lines,
                "startLine": 1,
                "totalLines": lines,
            },
        },
        "displayPath": os.path.relpath(path, cwd),
    }
