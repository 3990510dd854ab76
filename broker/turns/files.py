"""The files of one started turn: what is to be run, whether it ever was, and what came of it.

Owns their names, their form, and the one decision that must be exclusive: whether the agent is started. The process that
becomes the agent makes `claim`, with its own identity in it, before it does; a broker that finds none makes it as well, and
who is second has lost (crash table, row 11). Every other file is renamed into place, so that it is whole or absent.

    order.json   what is to be run; no text, no value of the environment
    prompt       the text, for us alone; removed as soon as the agent has it
    runner       the runner's identity
    claim        the agent's, which leads its process group; or `never`
    before.json  the message that the session accepted last before this one, by the agent's id, where it has such ids
    begun.json   the agent has begun to work on it: the session's id
    out          what the agent has said
    end.json     what came of it; answer: its final message
    bell         a FIFO by which the runner tells that there is something new
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Mapping
from typing import Any, NamedTuple

from broker.processes import ProcessId, identify, parse_process_id
from shims.headless import Said

NEVER = "never"

FORBIDDEN = "forbidden"
"""The code of a turn that was not started since the broker had decided so."""

INACTIVE, TOLD, DONE = "inactive", "told", "done"
"""Why a runner has ended its turn: no sign of life, an order, an answer that was there and an agent that stayed."""

_OVER = ".over"
"""What the name of a directory ends with that is being removed."""


class Run(NamedTuple):
    """What is to be run.

    Attributes:
        session: the conversation that goes on, empty for a new one; expected: the id that it should have, where that is known.
        argv: the program first; by_file: the prompt is named in it, and stdin stays empty.
        names: the variables that the agent gets, of those that the runner has.
        idle: seconds without a sign of life after which the turn is ended (DE-32).
        token: what a finished answer closes with; empty when nothing is asked for.
        umask: the agent's.
    """

    agent: str
    store: str
    session: str
    expected: str
    argv: tuple[str, ...]
    by_file: bool
    cwd: str
    names: tuple[str, ...]
    idle: float
    token: str = ""
    umask: int = 0o022


class Ended(NamedTuple):
    """What came of a turn.

    Attributes:
        said: what its output said, with the final message.
        status: of the agent's exit, negative for a signal; None: it was not started.
        stopped: why it was ended, empty when it was not: `inactive`, `told`, or why the one who told the runner did so.
    """

    said: Said
    status: int | None
    stopped: str = ""


class TurnFiles:
    """The directory at ``path``."""

    def __init__(self, path: str) -> None:
        self.path = path

    def _file(self, name: str) -> str:
        return os.path.join(self.path, name)

    @property
    def prompt(self) -> str:
        return self._file("prompt")

    @property
    def out(self) -> str:
        return self._file("out")

    @property
    def bell(self) -> str:
        return self._file("bell")

    # the broker's part

    def create(self, run: Run, prompt: bytes) -> None:
        """Everything that the runner needs. Raises OSError."""
        os.mkdir(self.path, 0o700)
        self._write("prompt", prompt)
        os.mkfifo(self.bell, 0o600)
        self._write("order.json", json.dumps(run._asdict()).encode())

    def forbid(self) -> bool:
        """Decides that the agent is never started; False: it has been. Raises OSError when neither can be told."""
        os.makedirs(self.path, 0o700, exist_ok=True)
        return self._claim(NEVER)

    def is_forbidden(self) -> bool:
        """Whether it has been decided that the agent is never started."""
        return self._read("claim") == NEVER.encode()

    def runner(self) -> ProcessId | None:
        """The runner, None while it has not said who it is."""
        return parse_process_id(self._read("runner").decode(errors="replace"))

    def claimed(self) -> ProcessId | None:
        """The agent's process, None when it was never started."""
        return parse_process_id(self._read("claim").decode(errors="replace"))

    def newest_before(self) -> str | None:
        """See `Headless.newest`; None: it cannot be told."""
        found = self._object("before.json")
        newest = found.get("newest") if found is not None else None
        return newest if isinstance(newest, str) else None

    def begun(self) -> str | None:
        """The id of the session that works on it, maybe empty; None: it has not begun."""
        found = self._object("begun.json")
        return str(found.get("session") or "") if found is not None else None

    def ended(self) -> Ended | None:
        """What came of it; None: the runner has not said so. The text is there when this is."""
        found = self._object("end.json")
        if found is None:
            return None
        said = {name: value for name, value in found["said"].items() if name in Said._fields}
        said.update({name: tuple(said.get(name) or ()) for name in ("denied", "later")})
        text = self._read("answer").decode(errors="surrogatepass")
        return Ended(Said(**said)._replace(text=text), found["status"], found["stopped"])

    def remove(self) -> None:
        """All of it at once: whoever would still claim it, or write to it, finds nothing any more."""
        over = f"{self.path}{_OVER}"
        try:
            os.rename(self.path, over)
        except FileNotFoundError:
            return
        for name in os.listdir(over):
            os.unlink(os.path.join(over, name))
        os.rmdir(over)

    # the runner's part

    def order(self) -> Run:
        """Raises OSError, ValueError, TypeError when there is no whole order."""
        found = json.loads(self._read("order.json"))
        found.update(argv=tuple(found["argv"]), names=tuple(found["names"]))
        return Run(**found)

    def announce(self) -> None:
        """Who runs it. Raises OSError."""
        self._write("runner", str(identify(os.getpid())).encode())

    def before(self, newest: str | None) -> None:
        self._write("before.json", json.dumps({"newest": newest}).encode())

    def claim(self) -> bool:
        """In the process that is about to become the agent; False: it must not."""
        return self._claim(str(identify(os.getpid())))

    def taken(self, session: str) -> None:
        """The agent works on it: the text is not needed any more (DE-23)."""
        self._write("begun.json", json.dumps({"session": session}).encode())
        try:
            os.unlink(self.prompt)
        except FileNotFoundError:
            pass
        self._ring()

    def end(self, ended: Ended) -> None:
        said = ended.said
        self._write("answer", said.text.encode(errors="surrogatepass"))
        short = said._replace(text="")._asdict()
        self._write("end.json", json.dumps({"said": short, "status": ended.status, "stopped": ended.stopped}).encode())
        self._ring()

    def _ring(self) -> None:
        try:
            bell = os.open(self.bell, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            if error.errno not in (errno.ENXIO, errno.ENOENT):  # nobody listens: whoever comes next looks at the files
                raise
            return
        try:
            os.write(bell, b"!")
        except BlockingIOError:
            pass  # it rings already
        finally:
            os.close(bell)

    # both

    def _claim(self, words: str) -> bool:
        mine = f"claim.{os.getpid()}"
        self._write(mine, words.encode())
        try:
            os.link(self._file(mine), self._file("claim"))
        except FileExistsError:
            return False
        finally:
            os.unlink(self._file(mine))  # which fails, and the claim with it, where all has been removed meanwhile
        return True

    def _write(self, name: str, data: bytes) -> None:
        path = self._file(name)
        descriptor = os.open(f"{path}.new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(descriptor, view) :]
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.rename(f"{path}.new", path)

    def _read(self, name: str) -> bytes:
        try:
            with open(self._file(name), "rb") as file:
                return file.read()
        except FileNotFoundError:
            return b""

    def _object(self, name: str) -> Mapping[str, Any] | None:
        data = self._read(name)
        return dict(json.loads(data)) if data else None
