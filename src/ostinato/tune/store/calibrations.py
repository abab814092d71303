"""What was measured of this host and of the ways to its devices, in the store's file: a table of its own."""

from __future__ import annotations

import os
import time
from contextlib import closing

from ostinato.tune.store import database

_LONGEST = 1 << 16  # characters; a longer content is damage
_TABLE = """CREATE TABLE IF NOT EXISTS calibration (
    identity TEXT PRIMARY KEY, content TEXT NOT NULL, time REAL NOT NULL
) WITHOUT ROWID"""


class Calibrations:
    """Texts by the identity of what they are about.

    The table is made when the first text is written, and is no part of the version of the store: every version reads
    the stores of every other one. What cannot be read counts as absent, and what cannot be written is left alone.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     calibrations = Calibrations(f"{directory}/tune.db")
    ...     calibrations.read("this host")
    ...     calibrations.write("this host", "5 ns")
    ...     calibrations.read("this host")
    '5 ns'
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = os.path.abspath(path)

    def read(self, identity: str) -> str | None:
        """Return what was last written about an identity; None if nothing was."""
        if not os.path.isfile(self._path):
            return None
        try:
            with database.naming(self._path), closing(database.reader_of_store(self._path)) as connection:
                found = connection.execute(
                    "SELECT content FROM calibration WHERE identity = ? AND length(content) <= ?", (identity, _LONGEST)
                ).fetchone()
        except database.StoreError:
            return None
        return found[0] if found and isinstance(found[0], str) else None

    def write(self, identity: str, content: str) -> None:
        """Replace what was written about an identity."""
        try:
            with (
                closing(database.connect(self._path)) as connection,
                database.naming(self._path),
                database.Transaction(connection, database.PATIENCE),
            ):
                connection.execute(_TABLE)
                row = identity, content, time.time()
                connection.execute("INSERT OR REPLACE INTO calibration VALUES (?, ?, ?)", row)
        except database.StoreError:
            pass
