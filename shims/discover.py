"""Where the real binaries lie: in editors' extensions, with the agents' own installers, on the PATH, and outside it (SH-04).

Owns the places and their order; what a file is, `executable` says. Looks only where it is told, and walks no tree. Runs
before the agent does: imports `os` and C modules only.
"""

from __future__ import annotations

import os

from shims.executable import beginning, interpreter, is_native, is_real, is_script, is_shim, this_host
from shims.loops import Loop

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from shims.launch import Product

EXTENSIONS = (
    ".vscode/extensions",
    ".vscode-insiders/extensions",
    ".vscode-oss/extensions",  # VSCodium
    ".vscodium/extensions",
    ".cursor/extensions",
    ".windsurf/extensions",
    ".antigravity/extensions",
    ".kiro/extensions",
    ".trae/extensions",
    ".positron/extensions",
    ".vscode-server/extensions",
    ".vscode-server-insiders/extensions",
    ".vscode-remote/extensions",  # Codespaces
    ".vscodium-server/extensions",
    ".cursor-server/extensions",
    ".windsurf-server/extensions",
    ".openvscode-server/extensions",
    ".local/share/code-server/extensions",
    ".var/app/com.visualstudio.code/data/vscode/extensions",  # Flatpak
    ".var/app/com.vscodium.codium/data/codium/extensions",
)
"""Where editors and their remote servers keep extensions, below the home directory."""

EXTENSION_VARIABLES = (("VSCODE_EXTENSIONS", ""), ("VSCODE_PORTABLE", "extensions"), ("VSCODE_AGENT_FOLDER", "extensions"))
"""Variables that move them, which an editor hands down to what it starts, and where below their value they are."""

IN_AN_EDITOR = ("VSCODE_PID", "VSCODE_IPC_HOOK", "VSCODE_ESM_ENTRYPOINT", "VSCODE_NLS_CONFIG", "VSCODE_CWD")
"""One of these is set in an extension host: only then can an editor above us have been started with ``--extensions-dir``."""

OUTSIDE_PATH = (
    "/opt/homebrew/bin",
    "/usr/local/bin",
    "/home/linuxbrew/.linuxbrew/bin",
    "~/.npm-global/bin",
    "~/.volta/bin",
    "~/.bun/bin",
    "~/.local/share/pnpm",
    "~/Library/pnpm",
    "~/.local/share/mise/shims",
    "~/.asdf/shims",
    "~/.nvm/versions/node/*/bin",
    "~/.local/share/fnm/node-versions/*/installation/bin",
    "~/Library/Application Support/fnm/node-versions/*/installation/bin",
)
"""Where package managers put programs. A GUI editor's PATH, on macOS above all, has few of them."""

HOMEBREW = ("/opt/homebrew", "/usr/local", "/home/linuxbrew/.linuxbrew")

_GENERATIONS = 12
"""Ancestors that are looked at: an extension host is the child or grandchild of its editor's main process."""


class Search:
    """One search for a real binary.

    Args:
        host: system and machine as `os.uname` names them.
        root: what absolute places lie below; the PATH and the home directory are taken as they are.
        processes: where the kernel shows processes.

    Attributes:
        looked_in: directories and files whose change could change what was found.
        missing: places that could have changed it by being there.
        certain: whether these two say everything: nothing that is there had to be passed over.
    """

    __slots__ = ("certain", "environment", "home", "host", "looked_in", "missing", "processes", "root")

    def __init__(
        self,
        environment: Mapping[str, str],
        home: str,
        *,
        host: tuple[str, str] | None = None,
        root: str = "",
        processes: str = "/proc",
    ) -> None:
        self.environment = environment
        self.home = home
        self.host = host or this_host()
        self.root = root
        self.processes = processes
        self.looked_in: list[str] = []
        self.missing: list[str] = []
        self.certain = True

    def named(self, product: Product) -> str | None:
        """What the variable names, unless it is nothing to start. A relative name would mean whatever the workspace holds."""
        name = self.environment.get(product.variable, "").strip()
        if name.startswith("~/"):
            name = self.home + name[1:]
        return name if name.startswith("/") and is_real(name) and name not in self._left_out(product) else None

    def find(self, product: Product) -> str | None:
        """The best one that lies anywhere. What cannot run here is taken only if there is nothing else."""
        last_resort = None
        left_out = self._left_out(product)
        for candidate in self._candidates(product):
            if candidate in left_out:
                self.certain = False
                continue
            try:
                head = beginning(candidate)
            except (OSError, ValueError):
                self._not_there(candidate)
                continue
            if self._runs(head) and not is_shim(candidate, head):
                self.looked_in += [os.path.dirname(candidate), candidate]
                self.certain &= not is_script(head)  # whether its interpreter is there may change anywhere
                return candidate
            self.certain = False
            packaged = self._packaged(product, candidate)
            if packaged is not None:
                return packaged
            if last_resort is None and head and not is_shim(candidate, head):
                last_resort = candidate
        return last_resort

    def _runs(self, head: bytes) -> bool:
        """Whether a program that begins so can run here: its platform is this one, its interpreter is installed."""
        if not is_script(head):
            return is_native(head, *self.host)
        name = interpreter(head)
        return os.access(name, os.X_OK) if "/" in name else self._is_on_path(name)

    def _is_on_path(self, name: str) -> bool:
        return bool(name) and any(os.access(f"{directory}/{name}", os.X_OK) for directory in path_of(self.environment))

    def _left_out(self, product: Product) -> tuple[str, ...]:
        return Loop(product.name, self.environment).left_out

    # where

    def _candidates(self, product: Product) -> Iterator[str]:
        """Best first. Lazy: nothing is looked at after what is found."""
        yield from self._bundled(product)
        for pattern in product.installed:
            yield from self._expand(self._place(pattern, product))
        for directory in path_of(self.environment):
            yield os.path.join(directory, product.program)
        for directory in OUTSIDE_PATH:
            yield from self._expand(f"{self._place(directory, product)}/{product.program}")
        for prefix in HOMEBREW:
            for cask in product.casks:
                yield from self._expand(f"{self.root}{prefix}/Caskroom/{cask}")

    def _place(self, pattern: str, product: Product) -> str:
        """``~/`` is the home directory, ``@/`` the agent's own data directory."""
        if pattern.startswith("~/"):
            return self.home + pattern[1:]
        if pattern.startswith("@/"):
            variable, default = product.data
            return (self.environment.get(variable, "") or f"{self.home}/{default}") + pattern[1:]
        return self.root + pattern

    def _bundled(self, product: Product) -> list[str]:
        """Candidates inside editor extensions, newest version first over all editors; uninstalled ones last."""
        found: list[tuple[tuple[object, ...], str]] = []
        words = _host_words(self.host)
        for extensions in self._extension_directories() if product.bundled else ():
            names = self._list(extensions)
            uninstalled = self._uninstalled(extensions) if names else ""
            for prefix, patterns in product.bundled:
                for name in names:
                    version = name[len(prefix) :]
                    if not name.startswith(prefix) or not version[:1].isdecimal():
                        continue  # openai.chatgpt-helper-1.0.0 is another extension
                    installed = f'"{name}":true' not in uninstalled
                    for pattern in patterns:
                        for path in self._expand(f"{extensions}/{name}/{pattern}"):
                            # An extension may carry binaries of several platforms side by side.
                            fits = sum(word in path.rsplit("/", 2)[-2] for word in words)
                            found.append(((installed, version_order(version), fits), path))
        found.sort(key=lambda item: item[0], reverse=True)
        return [path for _, path in found]

    def _extension_directories(self) -> list[str]:
        directories = [f"{self.home}/{place}" for place in EXTENSIONS]
        for variable, below in EXTENSION_VARIABLES:
            value = self.environment.get(variable)
            if value:
                directories.append(os.path.join(value, below) if below else value)
        if any(variable in self.environment for variable in IN_AN_EDITOR):
            directories += _given_to_ancestors(self.processes)
        return list(dict.fromkeys(directories))

    def _uninstalled(self, extensions: str) -> str:
        """The list of extensions that an editor has uninstalled or replaced, and removes when it is started next."""
        record = f"{extensions}/.obsolete"
        try:
            with open(record, encoding="utf-8", errors="replace") as file:
                self.looked_in.append(record)
                return file.read()
        except OSError:
            self._not_there(record)
            return ""

    def _packaged(self, product: Product, script: str) -> str | None:
        """The native binary that a package carries, when its script cannot run: no Node.js on a GUI editor's PATH."""
        folder = os.path.dirname(os.path.realpath(script))
        for pattern in product.packaged:
            for path in self._expand(os.path.normpath(f"{folder}/{pattern}")):
                try:
                    if self._runs(beginning(path)):
                        return path
                except OSError:
                    continue
        return None

    def _expand(self, pattern: str) -> list[str]:
        """Paths that fit; a part that ends in ``*`` stands for one name that begins so, the newest version first."""
        places, fixed = [""], ""
        for part in pattern.split("/")[1:] if pattern.startswith("/") else ():
            if part.endswith("*"):
                places = [f"{place}{fixed}/{name}" for place in places for name in self._fitting(place + fixed, part[:-1])]
                fixed = ""
            else:
                fixed += f"/{part}"
        return [place + fixed for place in places] if places != [""] or fixed else []

    def _fitting(self, directory: str, prefix: str) -> list[str]:
        names = [name for name in self._list(directory) if name.startswith(prefix)]
        return sorted(names, key=lambda name: version_order(name[len(prefix) :]), reverse=True)

    def _list(self, directory: str) -> list[str]:
        try:
            names = sorted(os.listdir(directory))
        except OSError:
            self._not_there(directory)
            return []
        self.looked_in.append(directory)
        return names

    def _not_there(self, place: str) -> None:
        if os.path.lexists(place):
            self.certain = False
        else:
            self.missing.append(place)


def path_of(environment: Mapping[str, str]) -> list[str]:
    """The directories of the PATH, but for relative ones: there the workspace would decide what is started."""
    return [directory for directory in environment.get("PATH", "").split(":") if directory.startswith("/")]


def find_real(product: Product, environment: Mapping[str, str], home: str, *, remember: bool = False) -> str | None:
    """The agent's own binary: as the variable names it, else found.

    Args:
        remember: leave a note of what was found for the launcher, which then needs no Python for the same call again.
    """
    search = Search(environment, home)
    named = search.named(product)
    if named or not remember:
        return named or search.find(product)
    from shims.found import find_and_note

    return find_and_note(product, search)


def _host_words(host: tuple[str, str]) -> tuple[str, ...]:
    """What a folder for this platform has in its name: ``linux-x86_64``, ``macos-aarch64``."""
    return ("macos" if host[0] == "Darwin" else host[0].lower(), host[1])


def _given_to_ancestors(processes: str) -> list[str]:
    """The directories that processes above this one were given with ``--extensions-dir``; none where nobody can look."""
    directories = []
    pid = os.getppid()
    for _ in range(_GENERATIONS):
        try:
            arguments = _read(f"{processes}/{pid}/cmdline").split(b"\0")
            pid = int(_read(f"{processes}/{pid}/stat").rpartition(b")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            break
        for place, argument in enumerate(arguments):
            option, equals, value = argument.partition(b"=")
            if option == b"--extensions-dir":
                value = value if equals else b"".join(arguments[place + 1 : place + 2])
                directories += [os.fsdecode(value)] if value.startswith(b"/") else []
        if pid <= 1:
            break
    return directories


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


# versions

_PLATFORMS = ("linux", "darwin", "alpine", "win32", "web", "universal", "macos", "windows")
"""What the part of a folder's name that says its platform begins with."""


def version_order(text: str) -> tuple[object, ...]:
    """What versions are sorted by: ``2.1.9`` < ``2.1.10-beta.2-linux-x64`` < ``2.1.10-linux-x64``."""
    core, *suffix = text.removeprefix("v").partition("+")[0].split("-")
    numbers = []
    for part in core.split("."):
        if not (part.isascii() and part.isdecimal()):
            break
        numbers.append(int(part))
    extra = []
    for part in suffix:
        if part in _PLATFORMS:
            break
        extra.append(part)
    marks = tuple((0, int(m), "") if m.isascii() and m.isdecimal() else (1, 0, m) for m in ".".join(extra).split(".") if m)
    return tuple(numbers), not marks, marks
