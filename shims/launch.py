"""Which real binary, is it a panel call, and handing over to the binary when it is not.

Owns the way from an editor's command line to either `exec` of the real binary or a panel to intercept (SH-02 to SH-04,
SH-12). Runs before the agent does: imports `os`, `sys` and C modules only, and never fails closed; whatever goes wrong
here ends in an exec of the real binary.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal as _signal
    from collections.abc import Callable, Iterable, Sequence
    from typing import NoReturn
else:
    import _signal  # `signal` itself imports enum

EDITOR_DIRECTORIES = (
    ".vscode",
    ".vscode-insiders",
    ".vscode-oss",
    ".cursor",
    ".windsurf",
    ".vscode-server",
    ".vscode-server-insiders",
    ".cursor-server",
    ".windsurf-server",
    ".vscodium-server",
)
"""Where editors keep ``extensions/``: VS Code, Insiders, VSCodium, Cursor, Windsurf, and their remote servers."""


class Product:
    """What launching needs to know of one agent.

    Args:
        name: `claude`, `codex`, `grok`.
        program: name of the binary on the PATH.
        bundled: (extension folder prefix, path patterns inside it); ``*`` stands for one path part.
        installed: places outside the PATH, relative to the home directory.
        is_panel: whether an argument list (without the program) is one to intercept.
    """

    __slots__ = ("bundled", "installed", "is_panel", "name", "program")

    def __init__(
        self,
        name: str,
        *,
        program: str,
        bundled: tuple[tuple[str, tuple[str, ...]], ...],
        installed: tuple[str, ...],
        is_panel: Callable[[Sequence[str]], bool],
    ) -> None:
        self.name = name
        self.program = program
        self.bundled = bundled
        self.installed = installed
        self.is_panel = is_panel

    @property
    def variable(self) -> str:
        return f"CROSS_AGENT_REAL_{self.name.upper()}"


def find_real(product: Product, environment: dict[str, str] | os._Environ[str], home: str) -> str | None:
    """The agent's own binary: the variable, else the newest one an editor extension carries, else an installed one, else PATH.

    Never a shim: a candidate that resolves to one of the launchers is passed over, wherever it stands.
    """
    named = environment.get(product.variable, "").strip()
    if named and is_real(named):
        return named
    for candidate in _bundled(product, home):
        if is_real(candidate):
            return candidate
    for place in product.installed:
        candidate = os.path.join(home, place)
        if is_real(candidate):
            return candidate
    for directory in environment.get("PATH", "").split(":"):
        candidate = os.path.join(directory or ".", product.program)
        if is_real(candidate):
            return candidate
    return None


def is_real(path: str) -> bool:
    """Whether ``path`` is an executable file that is not one of our launchers, by whatever links it is reached."""
    try:
        if os.path.isdir(path) or not os.access(path, os.X_OK):
            return False
        return not _is_launcher(os.path.realpath(path))
    except (OSError, ValueError):
        return False


def _is_launcher(resolved: str) -> bool:
    # A launcher is known by its second line, not by its name: a copy called `claude` would recurse just as well.
    try:
        with open(resolved, "rb") as file:
            return b"cross-agent launcher" in file.read(200)
    except OSError:
        return os.path.basename(resolved) in ("claude-shim", "codex-shim", "grok-shim")


def _bundled(product: Product, home: str) -> Iterable[str]:
    """Candidates inside editor extensions, newest version first over all editors."""
    found: list[tuple[tuple[int, ...], str]] = []
    for editor in EDITOR_DIRECTORIES:
        extensions = os.path.join(home, editor, "extensions")
        try:
            names = os.listdir(extensions)
        except OSError:
            continue
        for prefix, patterns in product.bundled:
            for name in names:
                if name.startswith(prefix):
                    folder = os.path.join(extensions, name)
                    version = version_order(name[len(prefix) :])
                    found += [(version, path) for pattern in patterns for path in expand(folder, pattern)]
    host = host_words()
    # An extension may carry binaries of several platforms side by side: this one's first.
    found.sort(key=lambda item: (item[0], sum(word in item[1].rsplit("/", 2)[-2] for word in host)), reverse=True)
    return [path for _, path in found]


def host_words() -> tuple[str, ...]:
    """What a folder for this platform has in its name: ``linux-x86_64``, ``macos-aarch64``."""
    system, machine = os.uname().sysname.lower(), os.uname().machine
    return ("macos" if system == "darwin" else system, "aarch64" if machine == "arm64" else machine)


def version_order(text: str) -> tuple[int, ...]:
    """The numbers of a version in order, up to the first part that is none: ``2.1.10-linux-x64`` → (2, 1, 10)."""
    numbers = []
    for part in text.split("-", 1)[0].split("."):
        if not (part.isascii() and part.isdecimal()):
            break
        numbers.append(int(part))
    return tuple(numbers)


def expand(folder: str, pattern: str) -> list[str]:
    """Paths below ``folder`` that fit ``pattern``; a ``*`` part fits any one name."""
    places = [folder]
    for part in pattern.split("/"):
        if part == "*":
            further = []
            for place in places:
                try:
                    further += [os.path.join(place, name) for name in sorted(os.listdir(place))]
                except OSError:
                    continue
            places = further
        else:
            places = [os.path.join(place, part) for place in places]
    return [place for place in places if os.path.isfile(place)]


def first_words(arguments: Sequence[str], with_value: frozenset[str]) -> list[str]:
    """The arguments that are neither options nor values of options (SH-12), up to ``--``: what follows names no command.

    Args:
        with_value: options that take their value as the next argument.
    """
    words: list[str] = []
    position = 0
    while position < len(arguments):
        argument = arguments[position]
        if argument == "--":
            break
        if argument.startswith("-") and argument != "-":
            position += 2 if argument in with_value else 1
            continue
        words.append(argument)
        position += 1
    return words


def become(real: str, arguments: Sequence[str]) -> NoReturn:
    """Execs the real binary: same pid, nothing of the shim left (SH-03)."""
    restore_signals()
    try:
        os.execv(real, [real, *arguments])
    except OSError as error:
        _give_up(f"{real}: {error.strerror}", 126)


def restore_signals() -> None:
    """Python ignores SIGPIPE and SIGXFSZ in itself; the agent must not inherit that."""
    for number in (_signal.SIGPIPE, getattr(_signal, "SIGXFSZ", None)):
        if number is not None:
            _signal.signal(number, _signal.SIG_DFL)


def no_binary(product: Product) -> NoReturn:
    """Nothing to start: the one end that a shim reports by itself."""
    _give_up(f"no {product.program} binary found. Set {product.variable} to its path.", 127)


def _give_up(problem: str, status: int) -> NoReturn:
    try:
        os.write(2, f"cross-agent: {problem}\n".encode(errors="surrogateescape"))
    finally:
        os._exit(status)
