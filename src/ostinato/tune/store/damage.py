"""Rows that no Ostinato wrote, or that changed since: they are passed over, and named once."""

from __future__ import annotations

import logging
import math
from itertools import product
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING

from ostinato.tune.status import Status

if TYPE_CHECKING:
    from ostinato.tune.store.database import Row

__all__ = ["Damaged", "fault", "name_damaged"]

_MANY = 10  # runs of a store that are named one by one

_REAL = (int, float)
_TYPES = frozenset(
    product(
        (int,),  # run
        (str,),  # phase
        (str, NoneType),  # device
        (str,),  # host
        _REAL,  # time
        (str,),  # op
        (str,),  # status
        (bytes,),  # samples
        (int,),  # workspace
        (str,),  # message
        (int,),  # contended
        _REAL,  # overhead
        (*_REAL, NoneType),  # allowed
    )
)
"""What the values of a row may be: SQLite keeps what it is given, whatever the column was declared as."""

_LATEST = 1e11  # seconds since 1970; a later row would stand before all that are ever written

_STATUSES = frozenset(status.value for status in Status)

_named: dict[Path, set[str]] = {}


class Damaged(ValueError):
    """A row is none of ours, or has changed since it was written."""


def fault(row: Row) -> str:
    """Say what is wrong with a row, as far as can be told without reading its texts; nothing if all is well."""
    if tuple(map(type, row[2:])) not in _TYPES or {str} != {*map(type, row.context), *map(type, row.code)}:
        return "a value is of another type, or larger, than any that is written"
    if len(row.samples) % 8 or not 0 <= row.time < _LATEST or min(row.run, row.workspace, row.contended) < 0:
        return "a value is outside its range"
    if not (math.isfinite(row.overhead) and math.isfinite(row.allowed or 0.0)):
        return "a value is not finite"
    return "" if row.status in _STATUSES else "nobody knows its status"


def name_damaged(path: Path, run: object, why: str) -> None:
    """Warn of a run in a store that is passed over, once in this process.

    Parameters
    ----------
    path
        The store's file.
    run
        The number of the run, or whatever stands in its place; a text for what is none.
    why
        What is wrong with it.
    """
    what = run if isinstance(run, str) else f"run {run!r:.80}"
    named = _named.setdefault(path, set())
    if what in named or len(named) > _MANY:
        return
    named.add(what)
    said = "and more" if len(named) > _MANY else f"{what:.80}: {why:.200}"
    logging.getLogger("ostinato").warning("the store %s is damaged, and partly passed over: %s", path, said)
