"""Telling which lines of somebody else's text could pass for the frame, however they are disguised. No I/O.

Owns what a hurried reader, a terminal or a bidirectional display makes of a line, and the visible quoting of those that read
like ours (DE-12); and whether a text begins as a command (DE-14). What the frame says is `envelope`'s.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

QUOTE = "> "

_FIELDS = r"(?:request|queued|reply\W?to|your message|transport failure|late answer to)\s*:|conversation\s*:\s*conv_|\[bridge\]"

_LOOKS_LIKE_OURS = re.compile(rf"\s*(?:(?:=|[^\w\s]{{2,}})\s*cross\W?agent\s+bridge\b|{_FIELDS}|from\s*:.*\bpeer\b)")
"""The beginnings of the lines that are ours, in a line as `_folded` gives it."""

_HOLDS_OURS = re.compile(rf"cross\W?agent\s+bridge\b|{_FIELDS}")
_FROM, _PEER = re.compile(r"from\s*:"), re.compile(r"\bpeer\b")
"""The same anywhere in a line; nothing here looks at a character more than a few times, whatever the line."""

_COLOUR = re.compile(r"(?:\x1b\[|\x9b)[0-9:;]*m")

_SEQUENCE = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"
    r"|(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x90\x98\x9c-\x9f]*(?:\x07|\x1b\\|\x9c)"
    r"|\x1b[ -/]*[0-~]"
)
"""What a terminal obeys and does not show (ECMA-48): cursor and colours; titles and links, with their text; the rest."""

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")

_OVERRIDE = re.compile("\u202e([^\u202c]*)\u202c?")
"""A run that a display shows from right to left, letters of any script."""

_MIRRORED = str.maketrans("()[]{}<>", ")(][}{><")

_UNSEEN = "\u115f\u1160\u2800"
"""Fillers that show nothing and are letters or symbols by their category."""

_LOOK_ALIKE = {
    ord(look): letter
    for letter, looks in {
        "a": "аАαΑᴀɑ", "b": "вВβΒᴃʙ", "c": "сСᴄ", "d": "ԁᴅ", "e": "еЕεΕᴇ", "f": "ꜰ", "g": "ɡɢց", "h": "нНһΗʜհ",
        "i": "іІιΙıɪ", "j": "јЈᴊ", "k": "кКκΚᴋ", "l": "ӏӀʟ", "m": "мМΜᴍ", "n": "пΝɴո", "o": "оОοΟσօᴏ", "p": "рРρΡᴘ",
        "q": "ԛզ", "r": "гʀ", "s": "ѕЅꜱ", "t": "тТτΤᴛ", "u": "υսᴜ", "v": "ѵνᴠ", "w": "ԝѡωᴡ", "x": "хХχΧ", "y": "уУүΥγʏ",
        ":": "꞉∶ː։׃", "=": "⹀꞊",
    }.items()
    for look in looks
}  # fmt: skip
"""Letters of other scripts that are read as Latin ones and that no normal form maps."""


def neutralised(body: str) -> str:
    """``body`` with every line that could pass for the frame quoted."""
    lines = body.splitlines(keepends=True)  # at every character that some reader shows as a line's end
    return "".join(_quoted(line) if _passes_for_ours(line) else line for line in lines)


def begins_as_command(text: str) -> bool:
    """Whether the first thing that is to be seen of ``text`` is a slash; agents cut off more than `str.lstrip` does."""
    first = next((shown for letter in text if (shown := _folded(letter).strip())), "")
    return first.startswith("/")


class _Reading(dict[int, "str | None"]):
    """What a reader makes of a character, for `str.translate`: nothing of what is invisible, a letter of what looks like it."""

    def __missing__(self, code: int) -> str | None:
        letter = chr(code)
        seen = letter in "\t\n" or (unicodedata.category(letter)[0] not in "CM" and letter not in _UNSEEN)
        self[code] = _LOOK_ALIKE.get(code, letter) if seen else None
        return self[code]


_READING = _Reading()


def _folded(line: str) -> str:
    """A line as a hurried reader sees it: compatibility forms and look-alikes folded, marks and invisible characters gone."""
    if not line.isascii():
        line = unicodedata.normalize("NFKD", line)
    return line.translate(_READING).casefold()


def _passes_for_ours(line: str) -> bool:
    line = line.strip()
    if not line:
        return False
    controls = _CONTROL.search(line) is not None
    anywhere = controls and _moves_the_cursor(line)  # or has the line erased: what is shown may begin at any place
    return any(_reads_like_ours(_folded(reading), anywhere=anywhere) for reading in _readings(line, controls=controls))


def _reads_like_ours(folded: str, *, anywhere: bool) -> bool:
    if not anywhere:
        return _LOOKS_LIKE_OURS.match(folded) is not None
    sender = _FROM.search(folded)
    return _HOLDS_OURS.search(folded) is not None or (sender is not None and _PEER.search(folded, sender.end()) is not None)


def _readings(line: str, *, controls: bool) -> Iterator[str]:
    """The line as it stands, as a terminal shows it, and as a display of both directions does."""
    yield line
    if controls:
        line = _SEQUENCE.sub("", _rubbed_out(line))
        yield line
    if "\u202e" in line:
        yield _OVERRIDE.sub(lambda run: run[1][::-1].translate(_MIRRORED), line)


def _moves_the_cursor(line: str) -> bool:
    return any(not _COLOUR.fullmatch(sequence[0]) for sequence in _SEQUENCE.finditer(line))


def _rubbed_out(line: str) -> str:
    """Without what its backspaces take away."""
    if "\b" not in line:
        return line
    shown: list[str] = []
    for letter in line:
        if letter != "\b":
            shown.append(letter)
        elif shown:
            shown.pop()
    return "".join(shown)


def _quoted(line: str) -> str:
    """Nothing in the line that a terminal obeys may take the quoting away again."""
    text = line.splitlines()[0]
    return QUOTE + _CONTROL.sub("", _SEQUENCE.sub("", text)) + line[len(text) :]
