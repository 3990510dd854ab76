"""Text that acts on arrival, made harmless where a person can see it. No I/O.

Owns the changes that more than one agent needs (DE-14); which agent needs which, and the version that showed it, is in the
agent's folder.
"""

from __future__ import annotations

import re

WORD_JOINER = "\u2060"
"""Invisible, and enough: an ``@`` followed by it names no file (measured with Claude Code 2.1.197 and Grok 1.0.41)."""

_MENTION = re.compile(r"(?<![\w@])@(?=\S)")


def break_mentions(text: str) -> tuple[str, bool]:
    """``@path`` no longer reads that file into the context; an address like ``a@b`` stays as it is."""
    changed = _MENTION.sub("@" + WORD_JOINER, text)
    return changed, changed != text
