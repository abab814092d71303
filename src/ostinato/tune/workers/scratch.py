"""Directories of the candidates' own, which do not outlive the search."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

from ostinato.errors import TuningError

_FULL = (errno.ENOSPC, errno.EDQUOT)
_MARKER = "ostinato-scratch"
_WORK = "work"
_TRIES = 9  # before the last


class NoRoomError(TuningError):
    """The disk is full."""


class Scratch:
    """Makes directories for candidates, below one in ``TMPDIR`` that is made when the first is asked for.

    Each search has a directory in ``TMPDIR/ostinato-UID``. A marker file in it names the directory and its inode, and
    is locked as long as the search lives. The next search removes a directory only if its marker is ours, names it,
    and is not locked: then the search that made it was killed. Nothing else is ever removed.

    Examples
    --------
    >>> scratch = Scratch()
    >>> directory = scratch.directory("a candidate")
    >>> os.path.isdir(directory)
    True
    >>> scratch.remove()
    >>> os.path.isdir(directory)
    False
    """

    def __init__(self) -> None:
        self._top: Path | None = None
        self._lock = -1

    def directory(self, name: str) -> str:
        """Make a directory of this name and return its path; `NoRoomError` if the disk is full."""
        try:
            if self._top is None:
                self._top, self._lock = _begun()
            path = self._top / _WORK / name
            path.mkdir()
        except OSError as error:
            if error.errno in _FULL:
                raise NoRoomError(f"the disk of TMPDIR has no room for candidates: {error}") from error
            raise TuningError(f"candidates have nowhere to build; does TMPDIR name a directory? {error}") from error
        return os.fspath(path)

    @property
    def full(self) -> bool:
        """Whether the disk has no room left."""
        try:
            room = os.statvfs(self._top or tempfile.gettempdir())
        except OSError:
            return False
        return room.f_bavail == 0 or (room.f_files > 0 and room.f_favail == 0)

    def empty(self, path: str) -> None:
        """Remove a directory that `directory` made."""
        _remove_tree(Path(path))

    def remove(self) -> None:
        """Remove everything that was made."""
        if self._top is not None:
            try:
                _remove(self._top, self._lock)
            finally:  # what an interrupt leaves is removed by the next search
                top, self._top = self._top, None
                os.close(self._lock)
                with suppress(OSError):  # others may have theirs there
                    top.parent.rmdir()


def says_full(text: str) -> bool:
    """Return whether a message tells of a full disk.

    Examples
    --------
    >>> says_full("OSError: [Errno 28] No space left on device: 'x'"), says_full("exit status 1")
    (True, False)
    """
    return any(os.strerror(code) in text for code in _FULL)


def _begun() -> tuple[Path, int]:
    for _ in range(_TRIES):
        with suppress(FileNotFoundError):  # another search has ended, and has removed the parent since
            return _made(_parent())
    return _made(_parent())


def _parent() -> Path:
    path = Path(tempfile.gettempdir(), f"ostinato-{os.geteuid()}")
    with suppress(FileExistsError):
        path.mkdir()
        path.chmod(0o700)  # whatever the umask
    about = path.lstat()
    if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.geteuid() or about.st_mode & 0o022:
        raise TuningError(
            f"{path} must be a directory of yours that nobody else may write to, since candidates build there: remove "
            "it, or set TMPDIR to another directory"
        )
    return path


def _made(parent: Path) -> tuple[Path, int]:
    _remove_those_of_the_dead(parent)
    top = Path(tempfile.mkdtemp(prefix="tune-", dir=parent))
    marker = top / _MARKER
    try:
        lock = os.open(marker, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            # Another search may lock it for a moment, to see whether it is of a dead one; an empty one is not.
            fcntl.flock(lock, fcntl.LOCK_EX)
            (top / _WORK).mkdir()
            os.write(lock, _identity(top))
        except BaseException:
            os.close(lock)
            raise
    except BaseException:
        shutil.rmtree(top, ignore_errors=True)
        raise
    return top, lock


def _identity(top: Path) -> bytes:
    """Return what the marker of a directory says: a copy of the directory, or one that was renamed, is another."""
    return f"{top.name} {top.lstat().st_ino}\nOstinato removes this directory when the search has ended.\n".encode()


def _remove_those_of_the_dead(parent: Path) -> None:
    for top in parent.iterdir():
        lock = _locked(top / _MARKER)
        if lock is not None:
            try:
                _remove(top, lock)
            finally:
                os.close(lock)


def _locked(marker: Path) -> int | None:
    """Lock a marker file of this user's; None if somebody else has, or it is no such file."""
    try:
        lock = os.open(marker, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        if os.fstat(lock).st_uid == os.geteuid():
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return lock
    except OSError:
        pass
    os.close(lock)
    return None


def _remove(top: Path, lock: int) -> None:
    """Remove a directory of a search, if the locked marker says that it is one. The marker goes last."""
    with suppress(OSError):
        if os.pread(lock, 4096, 0) == _identity(top) and not top.is_symlink():
            _remove_tree(top / _WORK)
            if not (top / _WORK).exists():
                os.unlink(top / _MARKER)
                top.rmdir()  # not what is none of ours


def _remove_tree(path: Path) -> None:
    shutil.rmtree(path, ignore_errors=True)
    if path.exists():  # a directory in it may not be written to, as some compilers' caches are
        for directory, names, _ in os.walk(path):
            for name in names:
                inner = os.path.join(directory, name)
                if not os.path.islink(inner):
                    with suppress(OSError):
                        os.chmod(inner, 0o700)
        shutil.rmtree(path, ignore_errors=True)
