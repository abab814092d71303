"""Directories of the candidates' own, which do not outlive the search."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from pathlib import Path

from ostinato.errors import TuningError

__all__ = ["Scratch"]

_PREFIX = "ostinato-tune-"


class Scratch:
    """Makes directories for candidates, below one in ``TMPDIR`` that is made when the first is asked for.

    Whoever makes one holds a lock on it, and removes those of searches that are dead: their locks are gone.

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
        """Make a directory of this name and return its path.

        Raises
        ------
        TuningError
            If none can be made.
        """
        try:
            if self._top is None:
                _remove_those_of_the_dead()
                self._top, self._lock = _made()
            path = self._top / name
            path.mkdir()
        except OSError as error:
            raise TuningError(f"candidates have nowhere to build; does TMPDIR name a directory? {error}") from error
        return os.fspath(path)

    def remove(self) -> None:
        """Remove everything that was made."""
        if self._top is not None:
            try:
                shutil.rmtree(self._top, ignore_errors=True)
            finally:  # what an interrupt leaves is removed by the next search
                self._top = None
                os.close(self._lock)


def _made() -> tuple[Path, int]:
    while True:
        path = Path(tempfile.mkdtemp(prefix=_PREFIX))
        lock = _locked(path)
        # Another search may have taken it for that of a dead one before it was locked.
        if lock is not None and path.is_dir():
            return path, lock
        if lock is not None:
            os.close(lock)


def _remove_those_of_the_dead() -> None:
    for path in Path(tempfile.gettempdir()).glob(_PREFIX + "*"):
        lock = _locked(path)
        if lock is not None:
            shutil.rmtree(path, ignore_errors=True)
            os.close(lock)


def _locked(path: Path) -> int | None:
    """Lock a directory of this user's; None if somebody else has, or it is no such directory."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        if os.fstat(descriptor).st_uid == os.getuid():
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return descriptor
    except OSError:
        pass
    os.close(descriptor)
    return None
