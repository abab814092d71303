"""The records of a store, read: once for as long as the file stays the same."""

from __future__ import annotations

import functools
import os
import sqlite3
import time
from collections import defaultdict
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from ostinato.tune.canonical import canonical
from ostinato.tune.graphs.records.record import Record, operation_of
from ostinato.tune.store import database
from ostinato.tune.store.attempt import is_sound, text
from ostinato.tune.store.damage import Damaged, name_damaged
from ostinato.tune.store.database import Row, StoreError
from ostinato.tune.store.key import Context

__all__ = ["Shelf", "Stored", "shelf_of"]


class _Signature(NamedTuple):
    device: int
    file: int
    size: int
    changed: int  # ns since 1970
    log_size: int
    logged: int


@dataclass(frozen=True, eq=False)
class Stored:
    """A run that is in a store."""

    path: Path
    context: Context
    source: str
    rows: list[Row]
    config: str
    description: str

    @property
    def time(self) -> float:
        """When it was stored, in seconds since 1970."""
        return self.rows[0].time

    @cached_property
    def record(self) -> Record | None:
        """The record that it is; None if it is none."""
        try:
            return Record.read(self.rows, self.config, self.description)
        except Damaged as error:
            name_damaged(self.path, self.rows[0].run, str(error))
            return None


class Shelf:
    """The records of a store as it was at one moment.

    Parameters
    ----------
    path
        The file. It is neither made nor changed.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._by_task: dict[str, dict[str, list[Stored]]] = {}

    def of(self, key: Mapping[str, Any]) -> list[Stored]:
        """Return the records of a case, those for other processors, versions and code included, oldest first.

        Raises
        ------
        StoreError
            If the file cannot be read, or is no store.
        """
        task = key["task"]
        found = self._by_task.get(task)
        if found is None:
            found = self._by_task[task] = self._read(text(operation_of(task)))
        return found.get(canonical(key), [])

    def _read(self, operation: str) -> dict[str, list[Stored]]:
        runs: defaultdict[int, list[Row]] = defaultdict(list)
        codes: dict[int, tuple[str, str]] = {}
        with database.naming(self._path), closing(_reader(self._path)) as connection:
            for each in database.rows(connection, self._path, operation):
                runs[each.row.run].append(each.row)
                codes[each.row.run] = each.config, each.description
        found: defaultdict[str, list[Stored]] = defaultdict(list)
        sound = functools.cache(is_sound)
        for run, rows in runs.items():
            context = rows[0].context
            if len({(row.context, row.code) for row in rows}) > 1 or not sound(context):
                name_damaged(self._path, run, "it is of several cases, or of none")
                continue
            found[context.key].append(Stored(self._path, context, rows[0].code.source, rows, *codes[run]))
        return found


def _reader(path: Path) -> sqlite3.Connection:
    connection = database.reader(path)
    try:
        (application,) = connection.execute("PRAGMA application_id").fetchone()
    except sqlite3.OperationalError:
        connection.close()
        if os.access(path.parent, os.W_OK) or os.path.exists(f"{path}-wal"):
            raise
        # Nobody can be writing to it, and SQLite cannot make the file that it would keep its locks in.
        connection = database.reader_of_unchanging(path)
        (application,) = connection.execute("PRAGMA application_id").fetchone()
    except BaseException:
        connection.close()
        raise
    if application != database.APPLICATION:
        connection.close()
        raise StoreError(f"{path} is no store of Ostinato")
    return connection


_SETTLED = 100_000_000  # ns: a file changed less than this ago may change again without its times telling

_shelves: dict[Path, tuple[_Signature, Shelf]] = {}


def shelf_of(path: Path) -> Shelf | None:
    """Return the records of a store; None if there is no file, or nothing was ever written to it."""
    signature = _signature(path)
    if signature is None:
        _shelves.pop(path, None)
        return None
    known = _shelves.get(path)
    if known is not None and known[0] == signature:
        return known[1]
    shelf = Shelf(path)
    if time.time_ns() - max(signature.changed, signature.logged) > _SETTLED:
        _shelves[path] = signature, shelf
    return shelf


def _signature(path: Path) -> _Signature | None:
    """What changes when the store does: the file, or the log that it is written to first."""
    try:
        file = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise StoreError(f"the store {path} cannot be read: {error.strerror}") from error
    try:
        log = os.stat(f"{path}-wal")
        size, logged = log.st_size, log.st_mtime_ns
    except OSError:
        size, logged = 0, 0
    if not size:
        logged = 0  # who only reads makes an empty one
        if not file.st_size:
            return None
    return _Signature(file.st_dev, file.st_ino, file.st_size, file.st_mtime_ns, size, logged)
