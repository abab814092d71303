"""The process of a reaper: its program, and how it is started."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
from pathlib import Path

import ostinato
from ostinato.errors import TuningError

__all__ = ["above_standard", "program", "start_process"]


def start_process(control: int) -> tuple[int, int]:
    """Start a reaper; return its process number and a descriptor of its process."""
    path = program()
    if not os.path.exists(f"/proc/self/task/{os.getpid()}/children"):
        raise TuningError("this kernel does not list the children of processes (CONFIG_PROC_CHILDREN)")
    us = above_standard(_process_descriptor(os.getpid()))
    try:
        # An environment of its own: LD_PRELOAD and the like are meant for commands. A session of its own: so is Ctrl-C.
        actions = [(os.POSIX_SPAWN_DUP2, control, 0), (os.POSIX_SPAWN_DUP2, us, 1)]
        pid = os.posix_spawn(path, [path], {}, file_actions=actions, setsid=True)
    finally:
        os.close(us)
    try:
        return pid, above_standard(_process_descriptor(pid))
    except BaseException:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        raise


def _process_descriptor(pid: int) -> int:
    try:
        return os.pidfd_open(pid)
    except OSError as error:
        if error.errno == errno.ENOSYS:
            raise TuningError("this kernel has no descriptors of processes; Linux 5.3 and newer do") from error
        raise


def above_standard(fd: int) -> int:
    """Move a descriptor to a number that no program takes for its standard input, output or error."""
    if fd > 2:
        return fd
    try:
        return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 3)
    finally:
        os.close(fd)


def program() -> str:
    """Return the path of the reaper's program."""
    # An editable installation keeps it beside the compiled module, not beside the Python files.
    for directory in ostinato.__path__:
        path = Path(directory, "bin", "ostinato-reaper")
        if path.is_file():
            return str(path)
    raise TuningError("bin/ostinato-reaper is not installed beside the package; install Ostinato again")
