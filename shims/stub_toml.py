"""Configuration files of the stub agents: TOML, read without loading much.

Owns the reading alone; what a table means is each agent's. Python 3.10 has no TOML parser: there a reader of the subset that
such files use stands in (tables, strings, numbers, booleans, arrays and inline tables, each on one line).
"""

from __future__ import annotations

import json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class ConfigError(Exception):
    """The file isn't TOML."""


def read(path: str) -> dict[str, Any]:
    """The file's values; empty without a file."""
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except FileNotFoundError:
        return {}
    try:
        toml: Any = __import__("tomllib")
    except ImportError:
        return parse_subset(text)
    try:
        values: dict[str, Any] = toml.loads(text)
    except ValueError as error:
        raise ConfigError(f"{path}: {error}") from error
    return values


def parse_subset(text: str) -> dict[str, Any]:
    """TOML as configuration files of agents use it."""
    root: dict[str, Any] = {}
    table = root
    for line in text.splitlines():
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        if line.startswith("["):
            table = root
            for key in split_key(line.strip("[]")):
                table = table.setdefault(key, {})
            continue
        key_text, equals, value = line.partition("=")
        if not equals:
            raise ConfigError(f"not a key and a value: {line}")
        *path, key = split_key(key_text.strip())
        target = table
        for part in path:
            target = target.setdefault(part, {})
        target[key] = Value(value).parse()
    return root


def split_key(text: str) -> list[str]:
    """A dotted key; parts may be quoted and hold dots then."""
    parts: list[str] = []
    part, quote = "", ""
    for letter in text:
        if quote:
            if letter == quote:
                quote = ""
            else:
                part += letter
        elif letter in "\"'":
            quote = letter
        elif letter == ".":
            parts.append(part.strip())
            part = ""
        else:
            part += letter
    return [*parts, part.strip()]


class Value:
    """A reader of one value."""

    __slots__ = ("_at", "_text")

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def parse(self) -> Any:
        self._skip()
        letter = self._text[self._at : self._at + 1]
        if letter == '"':
            value, length = json.JSONDecoder(strict=False).raw_decode(self._text[self._at :])
            self._at += length
            return value
        if letter == "'":
            end = self._text.index("'", self._at + 1)
            value, self._at = self._text[self._at + 1 : end], end + 1
            return value
        if letter == "[":
            return self._array()
        if letter == "{":
            return self._inline_table()
        return self._word()

    def _skip(self) -> None:
        while self._at < len(self._text) and self._text[self._at] in " \t,":
            self._at += 1

    def _array(self) -> list[Any]:
        self._at += 1
        values: list[Any] = []
        while True:
            self._skip()
            if self._text[self._at : self._at + 1] in ("]", ""):
                self._at += 1
                return values
            values.append(self.parse())

    def _inline_table(self) -> dict[str, Any]:
        self._at += 1
        table: dict[str, Any] = {}
        while True:
            self._skip()
            if self._text[self._at : self._at + 1] in ("}", ""):
                self._at += 1
                return table
            end = self._text.index("=", self._at)
            key = split_key(self._text[self._at : end].strip())[-1]
            self._at = end + 1
            table[key] = self.parse()

    def _word(self) -> Any:
        start = self._at
        while self._at < len(self._text) and self._text[self._at] not in ",]}# \t":
            self._at += 1
        word = self._text[start : self._at]
        if word in ("true", "false"):
            return word == "true"
        try:
            return int(word.replace("_", ""))
        except ValueError:
            return float(word)
