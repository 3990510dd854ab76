"""One running agent host in a throw-away home on the loopback.

Owns the host's process and everything that it starts: they are one session of the kernel's, by which they are found at the end
even if the host itself was killed. Owns the directory of its socket too, which has to have a short path. Two hosts may be given
one directory, one after the other or both at once.
"""

from __future__ import annotations

import json
import os
import queue
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import psutil
from watchdog.events import FileSystemEvent, FileSystemEventHandler
from watchdog.observers import Observer

from tests.real.homes import MARK, SERVER_NAME
from tests.real.host.installation import HOW, HostMissingError, installed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType

    from typing_extensions import Self

START: Final = 30.0
"""Bound for the host to publish its endpoint: it takes half a second, a loaded machine twenty times that."""

END: Final = 10.0
"""Bound for the host to end after SIGTERM; then it is killed, as its children are at once."""

PRELOAD: Final = Path(__file__).with_name("window.cjs")
CONFIGURATION: Final = {"byokModelsEnabled": True, "allowSignedOutWhenUsable": True}
"""Without a login the host answers only by models that the window brings along, and only if it may."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """What an entry file says, and which file that is."""

    file: Path
    pid: int
    instance: str
    socket: Path
    token: str
    protocol: str

    @classmethod
    def read(cls, file: Path) -> Endpoint:
        """
        Raises:
            OSError, ValueError, KeyError: the file is gone or not an entry.
        """
        entry = json.loads(file.read_text(encoding="utf-8"))
        socket = Path(entry["endpoint"]["path"])
        return cls(file, entry["pid"], entry["instanceId"], socket, entry["connectionToken"], entry["protocolVersion"])

    def __repr__(self) -> str:
        return f"Endpoint(pid={self.pid}, protocol={self.protocol!r})"  # without the token


class AgentHost:
    """A context manager: running inside, gone outside.

    Args:
        directory: holds the home, the user data and the work tree; kept, so that another host can go on with it.
        model_url: ``url`` of a ``HostModel``.
        mcp_command: argv of the MCP server that the host registers as ``cross-agent`` and starts for each session.
        environment: added to that of the host.
    """

    def __init__(
        self,
        directory: Path,
        model_url: str,
        *,
        mcp_command: Sequence[str] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        found = installed()
        if found is None:
            raise HostMissingError(HOW)
        self._installation = found
        self._model_url = model_url
        self._mcp_command = mcp_command
        self._extra = dict(environment or {})
        self.home = directory.resolve() / "home"
        self.user_data = directory.resolve() / "user-data"
        self.cwd = directory.resolve() / "work"
        self._logs = directory.resolve() / "logs"
        self._process: subprocess.Popen[bytes] | None = None
        self._endpoint: Endpoint | None = None
        self._short: Path | None = None
        self._watch = Observer()

    # What a test is told

    @property
    def entries(self) -> Path:
        """Where hosts publish their endpoints."""
        return self.user_data / "agent-host" / "local-endpoint" / "entries"

    @property
    def endpoint(self) -> Endpoint:
        assert self._endpoint is not None, "the host was never started"
        return self._endpoint

    @property
    def process(self) -> subprocess.Popen[bytes]:
        assert self._process is not None, "the host was never started"
        return self._process

    @property
    def entry_file(self) -> Path:
        return self.endpoint.file

    @property
    def token(self) -> str:
        return self.endpoint.token

    @property
    def output(self) -> Path:
        """What the host printed, the newest one of this directory."""
        return self._logs / "output"

    def processes(self) -> list[psutil.Process]:
        """Everything alive that this host has caused, itself included."""
        found = []
        for process in psutil.process_iter():
            try:
                if os.getsid(process.pid) == self.process.pid and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
            except (ProcessLookupError, PermissionError, psutil.Error):
                continue  # gone, or somebody else's
        return found

    # Its life

    def start(self) -> None:
        """Returns as soon as the endpoint is published.

        Raises:
            RuntimeError: the host ended before; the text holds what it has printed.
            TimeoutError: it did not come in time.
        """
        self._write()
        self._short = Path(tempfile.mkdtemp(prefix="xa-host-", dir="/tmp"))
        news: queue.SimpleQueue[object] = queue.SimpleQueue()
        self._watch.schedule(_Listener(news), str(self.entries))
        self._watch.start()
        with self.output.open("wb") as output:
            self._process = subprocess.Popen(
                self._command(),
                env=self._environment(self._short),
                cwd=self.cwd,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        threading.Thread(target=_tell_end, args=(self._process, news), name="host", daemon=True).start()
        self._endpoint = self._published(news)

    def kill(self) -> None:
        """End the host as a crash does; its children find out by themselves."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(END)

    def terminate(self) -> None:
        """End the host as the editor does when it quits."""
        self.process.terminate()
        self.process.wait(END)

    def close(self) -> None:
        """End the host and everything that it has started."""
        if self._process is not None:
            if self._process.poll() is None:
                self._process.terminate()
            self._end()
        # Not before: it logs a complaint about each event that comes while it stops, and an entry is written by several.
        if self._watch.is_alive():
            self._watch.stop()
            self._watch.join()
        if self._short is not None:
            shutil.rmtree(self._short, ignore_errors=True)

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    # Private

    def _write(self) -> None:
        for directory in (self.home, self.cwd, self._logs):
            directory.mkdir(parents=True, exist_ok=True)
        # The host makes these itself, but then nobody could wait for what comes into them.
        for directory in (self.entries.parent.parent, self.entries.parent, self.entries):
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not (self.cwd / ".git").exists():
            subprocess.run(["git", "init", "-q", str(self.cwd)], check=True, env=self._base(), stdin=subprocess.DEVNULL)
        configuration = self.user_data / "User" / "globalStorage" / "agent-host-config.json"
        if configuration.exists():
            return  # the host keeps state of its own in this file
        configuration.parent.mkdir(parents=True)
        settings: dict[str, object] = dict(CONFIGURATION)
        if self._mcp_command is not None:
            command, *arguments = self._mcp_command
            settings["mcpServers"] = {SERVER_NAME: {"type": "stdio", "command": command, "args": arguments}}
        configuration.write_text(json.dumps(settings), encoding="utf-8")

    def _command(self) -> list[str]:
        main = self._installation.root / "out" / "bootstrap-fork.js"
        options = ["--logsPath", str(self._logs), "--user-data-dir", str(self.user_data), "--telemetry-level", "off"]
        return [str(self._installation.node), "--require", str(PRELOAD), str(main), "--type=agentHost", *options]

    def _base(self) -> dict[str, str]:
        return {"HOME": str(self.home), "PATH": os.environ.get("PATH", os.defpath), "LANG": "C.UTF-8", "SHELL": "/bin/sh"}

    def _environment(self, short: Path) -> dict[str, str]:
        language = {"userLocale": "en", "osLocale": "en", "locale": "en", "resolvedLanguage": "en", "availableLanguages": {}}
        language["defaultMessagesFile"] = str(self._installation.root / "out" / "nls.messages.json")
        mark = os.environ.get(MARK)
        return {
            **self._base(),
            **({} if mark is None else {MARK: mark}),
            "TMPDIR": str(short),
            "NO_PROXY": "127.0.0.1,localhost",
            "VSCODE_ESM_ENTRYPOINT": "vs/platform/agentHost/node/agentHostMain",
            "VSCODE_AGENT_HOST_LAUNCH_KIND": "vscode_app",
            "VSCODE_AGENT_HOST_TELEMETRY_LEVEL": "off",
            "VSCODE_NLS_CONFIG": json.dumps(language),
            "CROSS_AGENT_TEST_MODEL_URL": self._model_url,
            **self._extra,
        }

    def _published(self, news: queue.SimpleQueue[object]) -> Endpoint:
        """This host's entry: others may lie beside it, also stale ones."""
        deadline = time.monotonic() + START
        while True:
            for file in self.entries.glob("*.json"):
                try:
                    endpoint = Endpoint.read(file)
                except (OSError, ValueError, KeyError):
                    continue  # not whole yet
                if endpoint.pid == self.process.pid:
                    return endpoint
            if self.process.poll() is not None:
                raise RuntimeError(f"the agent host ended with {self.process.returncode}:\n{self._printed()}")
            try:
                news.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                raise TimeoutError(f"the agent host published no endpoint within {START} s:\n{self._printed()}") from None

    def _printed(self) -> str:
        return self.output.read_text(encoding="utf-8", errors="replace")[-4000:]

    def _end(self) -> None:
        try:
            self.process.wait(END)
        except subprocess.TimeoutExpired:
            self.process.kill()
        # Copilot's runtime and its servers would end by themselves some six seconds after the host.
        left = self.processes()
        for process in left:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        _wait_ended(left, END)
        self.process.wait(END)


def _wait_ended(processes: list[psutil.Process], timeout: float) -> None:
    """Ended is not gone: whoever is init here may let their remains lie for seconds, for which psutil would wait."""
    if sys.platform != "linux":
        psutil.wait_procs(processes, timeout=timeout)
        return
    deadline = time.monotonic() + timeout
    for process in processes:
        with suppress(ProcessLookupError):
            watch = os.pidfd_open(process.pid)
            try:
                select.select([watch], [], [], max(0.0, deadline - time.monotonic()))
            finally:
                os.close(watch)


class _Listener(FileSystemEventHandler):
    def __init__(self, news: queue.SimpleQueue[object]) -> None:
        self._news = news

    def on_any_event(self, event: FileSystemEvent) -> None:
        self._news.put(event)


def _tell_end(process: subprocess.Popen[bytes], news: queue.SimpleQueue[object]) -> None:
    process.wait()
    news.put(None)
