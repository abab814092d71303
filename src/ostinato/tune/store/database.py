"""The file of the store: its tables, how it is opened and brought up to date, and what its failures mean.

It is an SQLite database in WAL mode. Every text that a user chose is in it as JSON, so that any `str` survives: one
with a null character or a lone surrogate, too. Only SQLite ever opens the file: to close a descriptor of it
otherwise would drop the locks that this process holds on it.
"""

from __future__ import annotations

import logging
import math
import os
import sqlite3
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from functools import cache
from itertools import product
from typing import Any, NamedTuple, TypeAlias, TypeVar, get_args, get_type_hints

from ostinato.errors import TuningError

_MANY = 10  # runs of a store that are named one by one

_LATEST = 1e11  # seconds since 1970; a later row would stand before all that are ever written

Path: TypeAlias = "str | os.PathLike[str]"
"""An absolute path. Compile reads stores, and does without `pathlib`, which takes long to import."""

_named: dict[str, set[str]] = {}


class Damaged(ValueError):
    """A row is none of ours, or has changed since it was written."""


def fault(row: Row) -> str:
    """Say what is wrong with a row, as far as can be told without reading its texts; nothing if all is well."""
    if tuple(map(type, row[2:])) not in _types_of_rows() or {str} != {*map(type, row.context), *map(type, row.code)}:
        return "a value is of another type, or larger, than any that is written"
    if len(row.samples) % 8 or not 0 <= row.time < _LATEST or min(row.run, row.workspace, row.contended) < 0:
        return "a value is outside its range"
    if not (math.isfinite(row.overhead) and math.isfinite(row.allowed or 0.0)):
        return "a value is not finite"
    return "" if row.status in _statuses() else "nobody knows its status"


@cache
def _statuses() -> frozenset[str]:
    from ostinato.tune.outcome import Status  # imported here: whoever reads calibrations needs no more than SQLite

    return frozenset(status.value for status in Status)


def name_damaged(path: Path, what: str, why: str) -> None:
    """Warn that a part of a store is skipped, once in this process."""
    named = _named.setdefault(os.fspath(path), set())
    if what in named or len(named) > _MANY:
        return
    named.add(what)
    said = "and more" if len(named) > _MANY else f"{what:.80}: {why:.200}"
    logging.getLogger("ostinato").warning("the store %s is damaged, and partly passed over: %s", path, said)


APPLICATION = 0x4F73746E
"""What marks an SQLite file as a store (its `application_id`)."""

STEPS: tuple[tuple[str, ...], ...] = (
    (
        """CREATE TABLE context (
            id INTEGER PRIMARY KEY,
            operation TEXT NOT NULL, key TEXT NOT NULL, device TEXT NOT NULL, driver TEXT NOT NULL,
            versions TEXT NOT NULL, policy TEXT NOT NULL,
            UNIQUE (operation, key, device, driver, versions, policy)
        )""",
        """CREATE TABLE candidate (
            id INTEGER PRIMARY KEY,
            candidate TEXT NOT NULL, source TEXT NOT NULL, config TEXT NOT NULL, description TEXT NOT NULL
        )""",
        """CREATE TABLE attempt (
            id INTEGER PRIMARY KEY,
            context INTEGER NOT NULL REFERENCES context, candidate INTEGER NOT NULL REFERENCES candidate,
            run INTEGER NOT NULL, phase TEXT NOT NULL, device TEXT, host TEXT NOT NULL, time REAL NOT NULL,
            op TEXT NOT NULL, status TEXT NOT NULL, samples BLOB NOT NULL, workspace INTEGER NOT NULL,
            message TEXT NOT NULL, contended INTEGER NOT NULL, overhead REAL NOT NULL, allowed REAL
        )""",
        "CREATE INDEX attempt_of_context ON attempt (context)",
        "CREATE TABLE verdict (runs TEXT PRIMARY KEY, verdict TEXT NOT NULL, time REAL NOT NULL) WITHOUT ROWID",
    ),
)
"""What leads from each version of the tables to the next; version 0 is an empty file.

Rows are only ever appended, which is what makes them cheap; only contexts, which are few, are kept unique. A candidate
is there once for each search that measured it first with some source.
"""

PATIENCE = 60.0
"""Seconds to wait for another process that writes, where nothing else could be done meanwhile."""

_T = TypeVar("_T")


class StoreError(TuningError):
    """The store cannot be used: it cannot be opened or written, or is no store of ours.

    What could not be written is still there to be written later, so a search can go on without the store.

    Attributes
    ----------
    busy
        Whether the reason is only that another process was writing.
    """

    busy = False


class Context(NamedTuple):
    """The part of a key that all candidates of a search share on devices of one model, each field as JSON."""

    operation: str
    key: str
    device: str
    driver: str
    versions: str
    policy: str


class Code(NamedTuple):
    """What ran, as a row of the table of candidates: a candidate's id, and the digest of the code it stands for."""

    candidate: str
    source: str


class Row(NamedTuple):
    """What one op of a candidate came to, as a row of the table of attempts; texts of users are JSON.

    A run is one measurement of a candidate: its number is random, so that it is the same in every store. `allowed` is
    the limit (seconds or bytes) at which the candidate was stopped.
    """

    context: Context
    code: Code
    run: int
    phase: str
    device: str | None
    host: str
    time: float
    op: str
    status: str
    samples: bytes
    workspace: int
    message: str
    contended: int
    overhead: float
    allowed: float | None


def _types(hint: object) -> tuple[type, ...]:
    """Return the types of values that a hint allows; an integer is a float, too."""
    kinds = get_args(hint) or (hint,)
    return (*kinds, int) if float in kinds else kinds


@cache
def _types_of_rows() -> frozenset[tuple[type, ...]]:
    """Return what the values of a row may be: SQLite keeps what it is given, whatever the column was declared as."""
    return frozenset(product(*map(_types, list(get_type_hints(Row).values())[2:])))


LARGEST_TEXT = 16 << 20
LARGEST_SAMPLES = 8 << 20
"""Bytes that a text, or samples, may have: larger ones are damage, and would cost minutes to read."""


def _guarded(column: str, most: int = LARGEST_TEXT) -> str:
    """Return SQL for a column that is an empty blob, or NULL in place of a blob, where the value is too large."""
    return f"iif(length({column}) <= {most}, {column}, iif(typeof({column}) = 'text', x'', NULL))"


_CONTEXT = [f"c.{name}" for name in Context._fields]

ATTEMPT = ", ".join(
    (
        "a.id, a.run",
        _guarded("a.phase"),
        _guarded("a.device"),
        _guarded("a.host"),
        "a.time",
        _guarded("a.op"),
        _guarded("a.status"),
        _guarded("a.samples", LARGEST_SAMPLES),
        "a.workspace",
        _guarded("a.message"),
        "a.contended, a.overhead, a.allowed",
    )
)
"""SQL for the number of an attempt, and for the fields of a `Row` from `run` on."""


def _text(data: bytes) -> str:
    """Return a text that may be none: what is written is ASCII."""
    return data.decode("utf-8", "surrogateescape")


def connect(path: Path) -> sqlite3.Connection:
    """Open a store, and make or migrate it where necessary; its directory too."""
    if os.path.isdir(path):
        raise StoreError(f"the store {path} is a directory; name a file in it, such as {os.path.join(path, 'tune.db')}")
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
    except OSError as error:
        raise StoreError(
            f"the store {path} cannot be opened: its directory cannot be made ({error.strerror}); name another with "
            "store= or OSTINATO_CACHE_DIR"
        ) from error
    with naming(path):
        connection = sqlite3.connect(path, timeout=PATIENCE, isolation_level=None, check_same_thread=False)
        connection.text_factory = _text
        try:
            _prepare(connection, path)
        except BaseException:
            connection.close()
            raise
    return connection


def reader(path: Path) -> sqlite3.Connection:
    """Open a store that this process has open another time, to read it without standing in anybody's way."""
    return _reading(path, "mode=ro")


def reader_of_store(path: Path) -> sqlite3.Connection:
    """Open a file to read it, also where it cannot be written, if it is a store."""
    connection = reader(path)
    try:
        (application,) = connection.execute("PRAGMA application_id").fetchone()
    except sqlite3.OperationalError:
        connection.close()
        if os.access(os.path.dirname(path), os.W_OK) or os.path.exists(f"{path}-wal"):
            raise
        # Nobody can be writing to it, and SQLite cannot make the file that it would keep its locks in.
        connection = _reading(path, "immutable=1")
        (application,) = connection.execute("PRAGMA application_id").fetchone()
    except BaseException:
        connection.close()
        raise
    if application != APPLICATION:
        connection.close()
        raise StoreError(f"{path} is no store of Ostinato")
    return connection


def holds(path: Path, operations: Collection[str]) -> bool:
    """Whether a store has attempts of any of these operations, which are texts as it has them: JSON."""
    with naming(path), closing(reader_of_store(path)) as connection:
        for operation in operations:
            found = connection.execute("SELECT 1 FROM context WHERE operation = ? LIMIT 1", (operation,))
            if found.fetchone() is not None:
                return True
    return False


_ESCAPES = str.maketrans({"%": "%25", "?": "%3f", "#": "%23"})
"""Characters with a meaning in addresses of SQLite: https://sqlite.org/uri.html."""


def _reading(path: Path, how: str) -> sqlite3.Connection:
    address = f"file:{os.fspath(path).translate(_ESCAPES)}?{how}"
    connection = sqlite3.connect(address, uri=True, timeout=PATIENCE, isolation_level=None)
    connection.text_factory = _text
    return connection


def _prepare(connection: sqlite3.Connection, path: Path) -> None:
    if _version(connection, path) < len(STEPS):
        _migrate(connection, path)
    # Where the file system cannot do WAL, SQLite stays in its older mode: slower, and as safe. While another process
    # opens the file it says at once that it is busy, whatever the timeout.
    _patiently(lambda: connection.execute("PRAGMA journal_mode = WAL").fetchone())
    connection.execute("PRAGMA synchronous = NORMAL")  # kill -9 loses nothing; a power cut may lose the last commits
    # A checkpoint waits for the disk, sometimes for a second, and devices would wait with it: most searches leave it to
    # the closing of the store.
    connection.execute("PRAGMA wal_autocheckpoint = 10000")
    with Transaction(connection, PATIENCE):
        pass  # whether it can be written is known now, not when there is something to lose


def _version(connection: sqlite3.Connection, path: Path) -> int:
    """Return the version of the tables, 0 for an empty file; refuse what is not ours before anything is changed."""
    application, version, tables = _patiently(
        lambda: connection.execute(
            "SELECT application_id, user_version, (SELECT count(*) FROM sqlite_schema)"
            " FROM pragma_application_id, pragma_user_version"
        ).fetchone()
    )
    if (application, version, tables) == (0, 0, 0):
        return 0
    if application != APPLICATION:
        raise StoreError(f"{path} is an SQLite database, but no store of Ostinato; it was left as it is")
    if version > len(STEPS):
        raise StoreError(
            f"{path} is a store of version {version}, and this Ostinato reads versions up to {len(STEPS)}: "
            "update Ostinato, or name another file"
        )
    if version < 1:
        raise StoreError(
            f"{path} is a store of version {version}, which no Ostinato wrote (this one reads versions 1 to "
            f"{len(STEPS)}); move it away, or name another file"
        )
    return int(version)


def _migrate(connection: sqlite3.Connection, path: Path) -> None:
    with Transaction(connection, PATIENCE):
        for step in STEPS[_version(connection, path) :]:  # asked again: another process may have been faster
            for statement in step:
                connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {APPLICATION}")
        connection.execute(f"PRAGMA user_version = {len(STEPS)}")


def _patiently(attempt: Callable[[], _T]) -> _T:
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return attempt()
        except sqlite3.OperationalError as error:
            if not _is_busy(error) or time.monotonic() > deadline:
                raise
        time.sleep(0.005)


def _is_busy(error: sqlite3.Error) -> bool:
    """Whether the error only says that another process is using the file."""
    return _code(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def _code(error: sqlite3.Error) -> int:
    """The primary code of an error; its upper bits hold the extended one."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


_MEANING = {
    sqlite3.SQLITE_NOTADB: "is no store: it holds something else, and was left as it is; name another file",
    sqlite3.SQLITE_CORRUPT: "is damaged; it was left as it is: move it away (`sqlite3 FILE .recover` may save some)",
    sqlite3.SQLITE_FULL: "cannot grow: the disk is full",
    sqlite3.SQLITE_READONLY: "may not be written; name a file that may",
    sqlite3.SQLITE_CANTOPEN: "cannot be opened: may this user read and write the file and its directory?",
    sqlite3.SQLITE_PERM: "may not be opened by this user",
    sqlite3.SQLITE_IOERR: "cannot be read or written: the disk is full or broken, or its file system knows no locks",
    sqlite3.SQLITE_PROTOCOL: "cannot be locked; put it on a local disk",
    sqlite3.SQLITE_BUSY: f"was in use by another process for {PATIENCE:.0f} s",
}


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Raise what SQLite raises in the block as a `StoreError` that names the file."""
    try:
        yield
    except sqlite3.Error as error:
        said = f"{error} ({getattr(error, 'sqlite_errorname', type(error).__name__)})"
        failure = StoreError(f"the store {path} {_MEANING.get(_code(error), 'failed')}: {said}")
        failure.busy = _is_busy(error)
        raise failure from error


class Transaction:
    """All that is written in the block, or nothing, waiting at most `wait` seconds for another process that writes."""

    def __init__(self, connection: sqlite3.Connection, wait: float) -> None:
        self._connection = connection
        self._wait = wait
        self.begun = self.committed = False

    def __enter__(self) -> None:
        self._roll_back()  # what an interrupt left open at a moment when nobody could know
        self._connection.execute(f"PRAGMA busy_timeout = {int(self._wait * 1000)}")
        try:
            self._connection.execute("BEGIN IMMEDIATE")
        except BaseException:  # an interrupt that came while it waited is raised when it has begun
            self._roll_back()
            raise
        self.begun = True

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        try:
            if kind is None:
                self._connection.execute("COMMIT")
                self.committed = True
        except sqlite3.Error:
            raise
        except BaseException:  # an interrupt, or what a signal's handler raises: before the COMMIT, or after
            self.committed = not self._connection.in_transaction
            raise
        finally:
            self._roll_back()

    def _roll_back(self) -> None:
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")


def put(
    connection: sqlite3.Connection,
    candidates: Mapping[tuple[str, str], tuple[str, str]],
    known: Mapping[tuple[str, str], int],
    attempts: Collection[tuple[Any, ...]],
    verdicts: Iterable[tuple[str, str, float]] = (),
) -> dict[tuple[str, str], int]:
    """Write rows, inside a transaction. Candidates are named by the fields of `Code`, attempts have those of `Row`."""
    contexts: dict[Context, int | None] = {}
    for context in {row[0] for row in attempts}:
        connection.execute(
            "INSERT OR IGNORE INTO context (operation, key, device, driver, versions, policy)"
            " VALUES (?, ?, ?, ?, ?, ?)",
            context,
        )
        contexts[context] = identify(connection, context)
    (last,) = connection.execute("SELECT coalesce(max(id), 0) FROM candidate").fetchone()
    new = {code: number for number, code in enumerate(candidates, last + 1)}
    connection.executemany(
        "INSERT INTO candidate VALUES (?, ?, ?, ?, ?)",
        ((new[code], *code, *texts) for code, texts in candidates.items()),
    )
    connection.executemany(
        "INSERT INTO attempt VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        ((contexts[row[0]], new.get(row[1]) or known[row[1]], *row[2:]) for row in attempts),
    )
    connection.executemany("INSERT OR REPLACE INTO verdict VALUES (?, ?, ?)", verdicts)
    return new


def identify(connection: sqlite3.Connection, context: Context) -> int | None:
    """Return the number of a context; None if nothing was ever stored for it."""
    found = connection.execute(
        "SELECT id FROM context WHERE (operation, key, device, driver, versions, policy) = (?, ?, ?, ?, ?, ?)", context
    ).fetchone()
    return None if found is None else int(found[0])


def rows(connection: sqlite3.Connection, path: Path, operation: str | None = None) -> Iterator[tuple[Row, str, str]]:
    """Yield all attempts with their candidates' configs and descriptions, oldest first; damaged ones are named."""
    found = connection.execute(
        f"SELECT {ATTEMPT}, {_guarded('k.config')}, {_guarded('k.description')},"
        f" {_guarded('k.candidate')}, {_guarded('k.source')}, {', '.join(map(_guarded, _CONTEXT))}"
        " FROM attempt a JOIN context c ON c.id = a.context JOIN candidate k ON k.id = a.candidate"
        + ("" if operation is None else " WHERE c.operation = ?")
        + " ORDER BY a.id",
        () if operation is None else (operation,),
    )
    for _, *values in found:
        row = Row(Context(*values[17:]), Code(*values[15:17]), *values[:13])
        config, description = values[13:15]
        why = fault(row) or ("" if type(config) is type(description) is str else "its candidate is no text")
        if why:
            name_damaged(path, f"run {row.run!r}", why)
        else:
            yield row, config, description
