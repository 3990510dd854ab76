"""When two names are the same, and what is kept of a long title (SE-24). No I/O.

Owns the form in which names are compared, and the mark by which a title that was too long to be kept is known again: by all of
it, and not by its beginning.
"""

from __future__ import annotations

LONGEST_TITLE = 200
"""Characters of a title that are kept. Names are kept whole: they are matched as they were given."""

CUT = "…"
"""At the end of what goes on."""

_SEAL = "\0"


def folded(name: str) -> str:
    """Two names that fold to the same are the same name."""
    if name.isascii():
        return name.strip().lower()  # the same, and most names are
    import unicodedata  # a megabyte, which the index process does not need for most stores

    # What has no case of its own may be taken apart by the folding: ΐ of its capitals.
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name.strip()).casefold())


def cut(text: str) -> str:
    """``text``, or its beginning, and it shows that it is no more."""
    return text if len(text) <= LONGEST_TITLE else text[: LONGEST_TITLE - 1].rstrip() + CUT


def kept(text: str, *, whole: bool = True) -> str:
    """A title as files tell it to the index: ``text``, or its beginning and the mark of all of it.

    Args:
        whole: it is all of the title; of a part no mark is made.
    """
    text = text.replace(_SEAL, "")
    if len(text) <= LONGEST_TITLE:
        return text.rstrip()
    return cut(text) + (mark(text) if whole else "")


def apart(title: str) -> tuple[str, str]:
    """What `kept` gave: the title as it may be shown, and its mark, empty where it was kept whole."""
    shown, seal, rest = title.partition(_SEAL)
    return shown, seal + rest


def mark(text: str) -> str:
    """Of a complete title, however its lines are broken; no name is one."""
    from hashlib import sha256  # a tenth of the index process's memory, and few titles are that long

    return _SEAL + sha256(folded(" ".join(text.split())).encode(errors="surrogatepass")).hexdigest()[:32]


def is_mark(text: str) -> bool:
    return text.startswith(_SEAL)
