"""Attempts of a store as a file of JSON Lines, and back: to keep, to read elsewhere, to bring to another host."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ostinato.errors import TuningError
from ostinato.tune.store.attempt import restored
from ostinato.tune.store.database import Row
from ostinato.tune.store.store import Store

_HEADER = {"format": "ostinato attempts", "v": 1}


def export(store_path: str | os.PathLike[str], jsonl_path: str | os.PathLike[str]) -> int:
    """Write all attempts of a store to a file: a header, then an attempt a line, as `Store.attempts` yields them.

    The file is complete or it is not there: an earlier one is replaced when all is written.

    Returns
    -------
    int
        How many there are.

    Raises
    ------
    TuningError
        If there is no such store, or it cannot be read.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     path = f"{directory}/tune.jsonl"
    ...     Store(f"{directory}/tune.db").close()
    ...     export(f"{directory}/tune.db", path), load(path, f"{directory}/other.db")
    (0, 0)
    """
    if not os.path.exists(store_path):
        raise TuningError(f"there is no store {os.fspath(store_path)}")
    path = Path(jsonl_path)
    partial = path.with_name(f"{path.name}.{os.urandom(8).hex()}.partial")
    count = 0
    try:
        with Store(store_path) as store, open(partial, "w", encoding="ascii") as file:
            file.write(json.dumps(_HEADER) + "\n")
            for attempt in store.attempts():
                file.write(json.dumps(attempt) + "\n")
                count += 1
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)
    return count


def load(jsonl_path: str | os.PathLike[str], store_path: str | os.PathLike[str]) -> int:
    """Add the attempts of a file that `export` wrote to a store, which is made if it does not exist.

    Runs that the store holds already are passed over, so the same file may be loaded twice. All or nothing is added.

    Returns
    -------
    int
        How many attempts were added.

    Raises
    ------
    TuningError
        If a line is not what it should be, named by its number, or the store cannot be written.
    """
    attempts = list(_read(Path(jsonl_path)))
    with Store(store_path) as store:
        return store.take(attempts)


def _read(path: Path) -> Iterator[tuple[Row, str, str]]:
    with open(path, encoding="utf-8") as file:
        number = 0
        try:
            for number, line in enumerate(file, 1):
                value = json.loads(line)
                if number > 1:
                    yield restored(value)
                elif value != _HEADER:
                    raise ValueError(f"it must begin with {json.dumps(_HEADER)}, got {_start(value)}")
        except (ValueError, OverflowError, RecursionError) as error:
            raise TuningError(f"{path}, line {max(number, 1)}: {error}") from error
        if number == 0:
            raise TuningError(f"{path} is empty; a file of attempts begins with {json.dumps(_HEADER)}")


def _start(value: Any) -> str:
    return repr(value) if len(repr(value)) <= 80 else repr(value)[:77] + "..."
