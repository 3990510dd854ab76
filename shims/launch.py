"""What launching knows of an agent, and handing a call over to the real binary (SH-03).

Owns `Product`, which each agent's ``command`` module fills, and the exec. Where the binary is, `discover` finds; which calls
are panels, the agent's own table says. Runs before the agent does: imports `os` and C modules only, and never fails closed.
"""

from __future__ import annotations

import os
from errno import ENOEXEC

from shims.discover import find_real as find_real
from shims.executable import beginning
from shims.executable import is_real as is_real
from shims.loops import Loop

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal as _signal
    from collections.abc import Callable, Sequence
    from typing import NoReturn
else:
    import _signal  # `signal` itself imports enum


class Product:
    """What launching needs to know of one agent.

    Args:
        name: `claude`, `codex`, `grok`.
        program: name of the binary on the PATH.
        data: the variable that moves the agent's data directory, and where it is else, below the home directory.
        bundled: (extension folder prefix, path patterns inside it); a part that ends in ``*`` fits any name that begins so.
        installed: places of the agent's own installers, best first: ``~/`` is the home, ``@/`` the data directory.
        packaged: where an npm package has the native binary, seen from the folder of its script.
        casks: Homebrew casks, and where in them the binary is.
        is_panel: whether an argument list (without the program) is one to intercept.
    """

    __slots__ = ("bundled", "casks", "data", "installed", "is_panel", "name", "packaged", "program")

    def __init__(
        self,
        name: str,
        *,
        program: str,
        data: tuple[str, str],
        bundled: tuple[tuple[str, tuple[str, ...]], ...] = (),
        installed: tuple[str, ...] = (),
        packaged: tuple[str, ...] = (),
        casks: tuple[str, ...] = (),
        is_panel: Callable[[Sequence[str]], bool],
    ) -> None:
        self.name = name
        self.program = program
        self.data = data
        self.bundled = bundled
        self.installed = installed
        self.packaged = packaged
        self.casks = casks
        self.is_panel = is_panel

    @property
    def variable(self) -> str:
        return f"CROSS_AGENT_REAL_{self.name.upper()}"


def become(loop: Loop, real: str, arguments: Sequence[str]) -> NoReturn:
    """Execs the real binary: same pid, nothing of the shim left (SH-03)."""
    restore_signals()
    loop.mark(real)
    try:
        execute([real, *arguments])
    except OSError as error:
        _give_up(f"{real}: {error.strerror}", 126)


def execute(argv: list[str]) -> NoReturn:
    """Execs as editors do, with whom a script without a first line is one of sh. Raises OSError."""
    try:
        os.execv(argv[0], argv)
    except OSError as error:
        if error.errno != ENOEXEC or b"\0" in beginning(argv[0]):
            raise
    os.execv("/bin/sh", ["/bin/sh", *argv])


def restore_signals() -> None:
    """Python ignores SIGPIPE and SIGXFSZ in itself; the agent must not inherit that."""
    for number in (_signal.SIGPIPE, getattr(_signal, "SIGXFSZ", None)):
        if number is not None:
            _signal.signal(number, _signal.SIG_DFL)


def no_binary(product: Product, loop: Loop) -> NoReturn:
    """Nothing to start: the one end that a shim reports by itself."""
    which = f" that does not lead back here (as {', '.join(loop.left_out)} does)" if loop.left_out else ""
    _give_up(f"no {product.program} binary found{which}. Set {product.variable} to its path.", 127)


def _give_up(problem: str, status: int) -> NoReturn:
    try:
        os.write(2, f"cross-agent: {problem}\n".encode(errors="surrogateescape"))
    finally:
        os._exit(status)
