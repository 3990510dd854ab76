"""Reading an agent's command line: the words that name commands, and the options around them (SH-12).

Owns the reading, not what an agent's options are: that is a table in each ``command`` module. Runs before the agent does:
imports nothing.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ONE = "one value"
"""The next argument is its value, whatever it looks like."""
MAYBE = "one value or none"
"""The next argument is its value unless it looks like an option."""
MANY = "one value or more"
"""The next argument, whatever it looks like, and all after it up to one that looks like an option."""


class Line:
    """What a command line says.

    Attributes:
        words: arguments that are neither options nor values of options, up to ``--``: what follows that names no command.
        options: names as given (``-c``, ``--config``) with their values, `None` for an option that has none.
    """

    __slots__ = ("options", "words")

    def __init__(self) -> None:
        self.words: list[str] = []
        self.options: list[tuple[str, str | None]] = []

    def values(self, *names: str) -> list[str]:
        return [value for name, value in self.options if name in names and value is not None]

    def has(self, names: frozenset[str]) -> bool:
        return any(name in names for name, _ in self.options)


def read_line(arguments: Sequence[str], takes: Mapping[str, str]) -> Line:
    """Splits an argument list.

    Args:
        takes: what each option that has a value takes: `ONE`, `MAYBE` or `MANY`.
    """
    line = Line()
    position = 0
    while position < len(arguments):
        argument = arguments[position]
        position += 1
        if argument == "--":
            break
        if not _is_option(argument):
            line.words.append(argument)
            continue
        name, value = _split(argument, takes, line)
        if value is None and name in takes:
            end = _end_of_values(arguments, position, takes[name])
            line.options += [(name, each) for each in arguments[position:end]] or [(name, None)]
            position = end
        else:
            line.options.append((name, value))
    return line


def _end_of_values(arguments: Sequence[str], position: int, kind: str) -> int:
    end = position
    if kind is not MAYBE:
        end += 1
    while end < len(arguments) and not _is_option(arguments[end]) and (kind is MANY or end == position):
        end += 1
    return end


def _split(argument: str, takes: Mapping[str, str], line: Line) -> tuple[str, str | None]:
    """The option of an argument, and its value if that is in it too: ``--name=value``, ``-nvalue``, ``-n=value``.

    Of short options in one argument (``-pd x``) those before the last one go to ``line`` at once.
    """
    if argument.startswith("--"):
        name, equals, value = argument.partition("=")
        return name, value if equals else None
    for place in range(1, len(argument)):
        name = f"-{argument[place]}"
        rest = argument[place + 1 :]
        if not rest:
            return name, None
        if name in takes:
            return name, rest.removeprefix("=")
        line.options.append((name, None))
    return argument, None


def _is_option(argument: str) -> bool:
    return argument.startswith("-") and argument != "-"
