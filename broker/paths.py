"""Where things are: the state directory, its rooms, and the checks that make it safe to use (EN-01 to EN-04).

Owns every path below ``CROSS_AGENT_HOME``. Never reads what is in the files. The only inputs are ``CROSS_AGENT_HOME`` and
the passwd entry: agents scrub the environment of what they start, and two clients must never find two brokers.
"""

from __future__ import annotations

import os
import pwd
import stat
import sys
from typing import NamedTuple

from broker.errors import HomeError
from broker.filesystems import is_network, kind_of

# sun_path holds 108 bytes on Linux and 104 on macOS, with its closing NUL; room is left for the longest name below.
_SOCKET_LIMIT = (108 if sys.platform.startswith("linux") else 104) - len("/b4294967295.sock") - 1

_AGENT_DIRECTORIES = (("CLAUDE_CONFIG_DIR", ".claude"), ("CODEX_HOME", ".codex"), ("GROK_HOME", ".grok"))


class Home(NamedTuple):
    """The state directory and what is in it; nothing exists before `prepare`."""

    root: str

    @property
    def run(self) -> str:
        """Sockets, locks and presence records: nothing here outlives a reboot with a meaning."""
        return os.path.join(self.root, "run")

    @property
    def logs(self) -> str:
        return os.path.join(self.root, "logs")

    @property
    def database(self) -> str:
        return os.path.join(self.root, "broker.sqlite")

    @property
    def session_index(self) -> str:
        """What is known of the agents' own files; made anew from them when it is lost."""
        return os.path.join(self.root, "index.sqlite")

    @property
    def config(self) -> str:
        return os.path.join(self.root, "config.toml")

    @property
    def broker_record(self) -> str:
        """Names the endpoint of the living broker; renamed into place, so it is whole or absent."""
        return os.path.join(self.run, "broker.json")

    @property
    def broker_lock(self) -> str:
        """Held (flock) by the broker for its whole life."""
        return os.path.join(self.run, "broker.lock")

    @property
    def start_lock(self) -> str:
        """Held by the one client that is starting a broker."""
        return os.path.join(self.run, "start.lock")

    @property
    def starts(self) -> str:
        """When brokers were started by themselves: the guard against one that dies at once (MC-32)."""
        return os.path.join(self.run, "starts.json")

    @property
    def wake(self) -> str:
        """One FIFO for each process that waits for a broker."""
        return os.path.join(self.run, "wake")

    @property
    def shims(self) -> str:
        """One presence record for each shim (SH-22)."""
        return os.path.join(self.run, "shims")

    @property
    def turns(self) -> str:
        """One directory for each turn that is started on a command line, while it runs."""
        return os.path.join(self.root, "turns")

    @property
    def fail_points(self) -> str:
        """A file here arms the fail point of its name (crash tests only)."""
        return os.path.join(self.run, "fail")

    def real_binary_record(self, agent: str) -> str:
        """The last good real binary of ``agent``: what the sh launcher falls back to (SH-16)."""
        return os.path.join(self.run, f"real-{agent}")

    def sockets(self) -> str:
        """The directory of the sockets: ``run``, or a private one in /tmp when that path is too long for a socket."""
        if len(os.fsencode(self.run)) <= _SOCKET_LIMIT:
            return self.run
        root = os.stat(self.root)  # each home its own: a second bind on a live path would steal it
        return os.path.join(_private_tmp(), f"{root.st_dev:x}-{root.st_ino:x}")

    def endpoint(self, generation: int) -> str:
        return f"ipc://{self.sockets()}/b{generation}.sock"

    def events_endpoint(self, generation: int) -> str:
        return f"ipc://{self.sockets()}/e{generation}.sock"

    def sweep_sockets(self) -> None:
        """Removes what brokers that died have left; only for the one that holds the broker lock."""
        for entry in os.scandir(self.sockets()):
            if entry.name.endswith(".sock"):
                os.unlink(entry.path)

    def prepare(self) -> None:
        """Makes the directories, owner-only, and tightens an older installation.

        Raises:
            HomeError: the directory is not one of its own, belongs to somebody else, or can't be made private.
        """
        self.check()
        _private_directory(self.root, may_be_link=True)
        for directory in (self.run, self.logs, self.wake, self.shims, self.turns):
            _private_directory(directory)
        if self.sockets() != self.run:
            _private_directory(_private_tmp())
            _private_directory(self.sockets())
        self._tighten()

    def check(self) -> None:
        """Refuses a home in a directory that belongs to something else (EN-02), or to another machine (EN-26)."""
        real = os.path.realpath(self.root)
        user_home = os.path.realpath(_passwd_home())
        if real in ("/", user_home):
            raise HomeError(f"{self.root} is not a directory of its own: cross-agent would share it with everything else")
        for variable, default in _AGENT_DIRECTORIES:
            for place in {os.environ.get(variable) or "", os.path.join(user_home, default)} - {""}:
                owned = os.path.realpath(place)
                if real == owned or real.startswith(owned.rstrip("/") + "/"):
                    raise HomeError(f"{self.root} lies in {place}, which belongs to an agent")
        if is_network(real):
            raise HomeError(f"{self.root} is on a file system of the network ({kind_of(real)}), where no database is safe")

    def _tighten(self) -> None:
        for directory in (self.root, self.run, self.logs, self.wake, self.shims):
            for entry in os.scandir(directory):
                try:
                    if not entry.is_symlink() and not entry.is_dir() and entry.stat(follow_symlinks=False).st_mode & 0o077:
                        os.chmod(entry.path, 0o600)
                except FileNotFoundError:
                    continue  # processes come and go with their records and pipes


def find_home() -> Home:
    """The user's state directory: ``CROSS_AGENT_HOME``, else ``.cross-agent`` in the home of the passwd entry."""
    configured = os.environ.get("CROSS_AGENT_HOME", "").strip()
    if configured:
        return Home(os.path.abspath(os.path.expanduser(configured)))
    return Home(os.path.join(_passwd_home(), ".cross-agent"))


def _private_tmp() -> str:
    return f"/tmp/cross-agent-{os.getuid()}"


def _passwd_home() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:
        raise HomeError(f"user {os.getuid()} has no passwd entry, so no default state directory") from None


def _private_directory(path: str, *, may_be_link: bool = False) -> None:
    """Makes ``path`` an owner-only directory of ours, or says why it is none (a link in /tmp may be somebody's trap)."""
    try:
        os.makedirs(path, mode=0o700, exist_ok=True)
        found = os.stat(path) if may_be_link else os.lstat(path)
    except FileExistsError:
        raise HomeError(f"{path} exists and is not a directory") from None
    except OSError as error:
        raise HomeError(f"{path} cannot be made: {error.strerror}") from error
    if not stat.S_ISDIR(found.st_mode):
        raise HomeError(f"{path} is not a directory")
    if found.st_uid != os.getuid():
        raise HomeError(f"{path} belongs to user {found.st_uid}, not to you", next_step=f"Remove {path}.")
    if found.st_mode & 0o077:
        try:
            os.chmod(path, 0o700)
        except OSError as error:
            raise HomeError(f"{path} cannot be made private: {error.strerror}") from error
        if os.stat(path).st_mode & 0o077:
            raise HomeError(f"{path} is on a file system that keeps no permissions")
