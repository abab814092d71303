"""Lock files: one per identity, in a directory that all users of the host share.

The lock is the kernel's (`flock`), so it ends with its holder however that ends. What the holder writes into the file
only tells others whom they wait for: nothing depends on it, and it may be missing, old or garbage. Files are never
removed, because two processes could then each lock a file of the same name.

Who owns the directory can remove a file that is locked, and so two could hold one device: a directory of anybody but
root and this user is refused. Any user may put a file there, or link one, and so only what is empty or was written by
a holder is ever written to.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import shlex
import stat
import sys
import time
from typing import NamedTuple
from urllib.parse import quote, unquote

from ostinato.errors import DeviceError
from ostinato.text import shorten
from ostinato.tune.leases.processes import fields

VARIABLE = "OSTINATO_LEASE_DIR"
DEFAULT_DIRECTORY = "/tmp/ostinato-leases"

_SUFFIX = ".lock"
_MOST_BYTES = 4096
_RECORD = b'{"pid": '  # what every record begins with
_LATEST = 1e11  # seconds since 1970 that every calendar can show
# Whoever made the directory or a file makes it accessible in his next system call; others try again until then.
_TRIES = 20
_PAUSE = 0.005


class Holder(NamedTuple):
    """Who holds a device, as far as the lock file says.

    Attributes
    ----------
    identity
        What is held.
    pid
        The process that took it; None if it left no name.
    command
        Its command line.
    since
        When it took it, in seconds since 1970.
    running
        Whether that process still runs here. If not, what it started is still being killed, or it is in another
        container.
    """

    identity: str
    pid: int | None = None
    command: str = ""
    since: float | None = None
    running: bool = False

    def __str__(self) -> str:
        if self.pid is None:
            return "a process that left no name"
        who = (
            "this process"
            if self.running and self.pid == os.getpid()
            else f"pid {self.pid} ({shorten(self.command, 100)})"
        )
        if self.since is not None:
            who += time.strftime(" since %Y-%m-%d %H:%M:%S", time.localtime(self.since))
        return who if self.running else f"{who}, which has ended or runs in another container"


def try_lock(identity: str) -> int | Holder:
    """Lock a file without waiting; return its descriptor, or the holder.

    Raises `DeviceError` if it cannot be locked at all, and `OSError` if this process may open no more files.
    """
    name = quote(identity, safe="") + _SUFFIX
    path = os.path.join(lease_directory(), name)
    try:
        directory = _open_directory()
        try:
            return _try_lock(identity, name, directory)
        finally:
            os.close(directory)
    except OSError as error:
        if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM):  # neither the device's fault nor the directory's
            raise
        raise DeviceError(
            f"{identity} cannot be leased: {path}: {error.strerror}. All who use the devices of this host must be able "
            f"to write there: let its owner make it so (chmod 1777 for the directory, 666 for the file), or set "
            f"{VARIABLE} to another directory, the same for all of them"
        ) from error


def unlock(file: int) -> None:
    """Take the holder's name out and unlock, for every duplicate of the descriptor."""
    with contextlib.suppress(OSError):  # a file of another user that may only be read
        if _is_for_names(file):
            os.ftruncate(file, 0)
    fcntl.flock(file, fcntl.LOCK_UN)


def write_holder(file: int) -> None:
    """Tell others that this process holds the locked file."""
    command = shlex.join(sys.orig_argv)[:1000]
    record = {"pid": os.getpid(), "started": _started(os.getpid()), "command": command, "since": time.time()}
    with contextlib.suppress(OSError):  # a full disk, or a file that may only be read: the lock holds all the same
        if _is_for_names(file):
            os.ftruncate(file, 0)
            os.pwrite(file, json.dumps(record).encode() + b"\n", 0)


def holders() -> list[Holder]:
    """Return what is held on this host and by whom, sorted by identity.

    Raises
    ------
    DeviceError
        If the directory cannot be read.
    """
    try:
        directory = os.open(lease_directory(), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise DeviceError(f"leases are in {lease_directory()}, which cannot be read: {error.strerror}") from error
    try:
        names = sorted(name for name in os.listdir(directory) if name.endswith(_SUFFIX))
        return [holder for name in names if (holder := _observe(name, directory)) is not None]
    finally:
        os.close(directory)


def lease_directory() -> str:
    """Return where lock files are; `DeviceError` if ``OSTINATO_LEASE_DIR`` is relative."""
    path = os.environ.get(VARIABLE) or DEFAULT_DIRECTORY
    if not os.path.isabs(path):
        raise DeviceError(f"{VARIABLE} is {path!r}; it must be absolute, to mean the same directory to everybody")
    return path


def _open_directory() -> int:
    """Open the directory, and make it if it is not there."""
    path = lease_directory()
    # Anybody may put a link where the default directory belongs, so it is not followed; who sets the variable may.
    links = 0 if os.environ.get(VARIABLE) else os.O_NOFOLLOW
    with contextlib.suppress(FileExistsError):
        os.mkdir(path)
        os.chmod(path, 0o1777)  # whatever the umask; sticky, so that only its owner can remove a file
    directory = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC | links)
    about = os.fstat(directory)
    owned = about.st_uid in (0, os.geteuid())
    if owned and (not about.st_mode & 0o022 or about.st_mode & stat.S_ISVTX):
        return directory
    os.close(directory)
    wrong = "may be written to by others, who can" if owned else f"belongs to user {about.st_uid}, who can"
    raise DeviceError(
        f"leases are in {path}, which {wrong} remove a lock that is held: let root own it (mkdir {path}; chmod 1777 "
        f"{path}), or set {VARIABLE} to another directory, the same for all who use the devices of this host"
    )


def _is_for_names(file: int) -> bool:
    """Whether a file may be written to: it has no other name, and nothing but a holder's record is in it."""
    if os.fstat(file).st_nlink != 1:
        return False
    return os.pread(file, len(_RECORD), 0).rstrip(b"\0") in (b"", _RECORD)


def _try_lock(identity: str, name: str, directory: int) -> int | Holder:
    for _ in range(_TRIES):
        file = _open(name, directory)
        try:
            if not stat.S_ISREG(os.fstat(file).st_mode):
                raise OSError(errno.EINVAL, "this is no lock file: it is not a plain file")
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_named(file, name, directory):
                return file
        except BlockingIOError:
            holder = _read(file, identity)
            os.close(file)
            return holder
        except BaseException:
            os.close(file)
            raise
        os.close(file)  # somebody removed it in between: a lock that nobody else can find excludes nobody
    raise OSError(errno.ESTALE, "somebody removes it whenever it is made")


def _open(name: str, directory: int) -> int:
    """Open a lock file, and make it if it is not there."""
    # Not a link or a FIFO that somebody put there; and not O_CREAT at once, which a kernel with fs.protected_regular
    # refuses for existing files of other users.
    safely = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    for left in reversed(range(_TRIES)):
        for way in (os.O_RDWR, os.O_RDONLY):  # reading is enough to lock, though not to say who does
            try:
                return os.open(name, way | safely, dir_fd=directory)
            except OSError as error:
                if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOENT):
                    raise
        try:
            file = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL | safely, 0o666, dir_fd=directory)
        except FileExistsError:
            if not left:
                return os.open(name, os.O_RDWR | safely, dir_fd=directory)  # raises what is wrong
        except PermissionError:
            if not left:
                raise
        else:
            os.fchmod(file, 0o666)  # whatever the umask
            return file
        time.sleep(_PAUSE)
    raise AssertionError("the last try returns or raises")


def _is_named(file: int, name: str, directory: int) -> bool:
    try:
        named = os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return os.path.samestat(named, os.fstat(file))


def _observe(name: str, directory: int) -> Holder | None:
    """Return who holds a file; None if nobody does."""
    try:
        file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=directory)
    except OSError:  # nobody's lock file, or not for us to see
        return None
    try:
        holder = _read(file, unquote(name.removesuffix(_SUFFIX)))
        # Locking is the only way to find out. Where it succeeds, it may be in somebody's way for a moment: nobody takes
        # a lock of which no running process is known for the last word (see Lease.try_acquire).
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return None
    except BlockingIOError:
        return holder
    except OSError:  # what cannot be locked is not held
        return None
    finally:
        os.close(file)


def _read(file: int, identity: str) -> Holder:
    """Return what a file says, with nothing in it that others could make a terminal obey."""
    try:
        record = json.loads(os.pread(file, _MOST_BYTES, 0).partition(b"\n")[0])
        pid, started, since = int(record["pid"]), int(record["started"]), float(record["since"])
        if pid <= 0 or not 0 <= since <= _LATEST:
            return Holder(identity)
        command = "".join(c if c.isprintable() else "?" for c in str(record["command"]))
        return Holder(identity, pid, command, since, _started(pid) == started)
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return Holder(identity)


def _started(pid: int) -> int | None:
    """Return when a process began, in ticks since the host did: this tells apart processes of the same number."""
    found = fields(pid)
    return int(found[19]) if found else None
