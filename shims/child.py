"""The agent's process: how it is started and how a shim ends as it ended.

Owns fork, exec, the parent-death signal and exit statuses (SH-06, SH-11). Imports only `os` and C modules.
"""

from __future__ import annotations

import os
from errno import ENOMEM

from shims.launch import execute, restore_signals

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal as _signal
    from collections.abc import Callable
    from typing import NoReturn
else:
    import _signal  # `signal` itself imports enum

_PR_SET_PDEATHSIG = 1


def end_like(status: int) -> NoReturn:
    """Ends this process as the agent ended: the same exit code, or the same signal (SH-06)."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        try:
            import resource

            resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
            if number not in (_signal.SIGKILL, getattr(_signal, "SIGSTOP", 0)):
                _signal.signal(number, _signal.SIG_DFL)
            _signal.pthread_sigmask(_signal.SIG_UNBLOCK, [number])
        except (ImportError, OSError, ValueError):
            pass  # only the core dump limit or an odd signal: the kill below still tells the truth
        os.kill(os.getpid(), number)
        os._exit(128 + number)
    os._exit(os.WEXITSTATUS(status))


def standard_streams_open() -> bool:
    """Whether descriptors 0, 1 and 2 are open; without them there is no editor to stand between."""
    for fd in (0, 1, 2):
        try:
            os.fstat(fd)
        except OSError:
            return False
    return True


def spawn(argv: list[str], stdin: int, stdout: int, as_they_were: Callable[[], None], entering: Callable[[], None]) -> int:
    """Forks and execs. The agent gets a process group of its own: a signal to ours then reaches it once, through us.

    Args:
        as_they_were: makes this process's signals what they were when it was started; called in the child.
        entering: called in the child, too.

    Raises:
        OSError: exec failed.
    """
    report_read, report_write = os.pipe()
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        try:
            restore_signals()
            as_they_were()
            entering()
            os.setpgid(0, 0)
            os.dup2(stdin, 0)
            os.dup2(stdout, 1)
            _die_with_parent(parent)
            execute(argv)
        except OSError as error:
            os.write(report_write, str(error.errno).encode())
        except BaseException:
            os.write(report_write, str(ENOMEM).encode())  # hardly anything else: what was called cannot fail
        finally:
            os._exit(127)
    os.close(report_write)
    failure = os.read(report_read, 16)
    os.close(report_read)
    if failure:
        os.waitpid(pid, 0)
        number = int(failure)
        raise OSError(number, os.strerror(number), argv[0])
    return pid


def _die_with_parent(parent: int) -> None:
    """Linux: the kernel sends TERM when the shim is gone, however it went (SH-11). Elsewhere end-of-file has to do."""
    try:
        import _ctypes

        itself = _ctypes.dlopen(None, 2)  # type: ignore[arg-type]
        prctl = _ctypes.dlsym(itself, "prctl")
        _ctypes.call_function(prctl, (_PR_SET_PDEATHSIG, int(_signal.SIGTERM), 0, 0, 0))
    except (ImportError, AttributeError, OSError):
        return
    if os.getppid() != parent:
        os._exit(128 + int(_signal.SIGTERM))
