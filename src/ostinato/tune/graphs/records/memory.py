"""What this process has tuned, besides what is in files: for tasks that no other process could tell from others."""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MethodType
from typing import TYPE_CHECKING, Any, NamedTuple

from ostinato.tune.canonical import canonical
from ostinato.tune.graphs.cases.identity import source_of

if TYPE_CHECKING:
    from ostinato.graph.variant import Variant
    from ostinato.tune.graphs.records.record import Record

__all__ = ["knows", "recall", "remember"]

_Digests = tuple[str, ...]


class _Remembered(NamedTuple):
    record: Record
    stored: bool  # in the file, too
    kept: tuple[object, ...]  # what it is of, and must not go before it


_records: dict[Path, dict[str, dict[_Digests, _Remembered]]] = {}
"""By the store that they are of, the key of the case, and the digests of its variants."""


def remember(path: Path, key: Mapping[str, Any], variants: Sequence[Variant], record: Record, stored: bool) -> None:
    """Remember the record of a case for as long as its variants live.

    Parameters
    ----------
    path
        The file of the store that it is of.
    key
        The case's key.
    variants
        Its variants.
    record
        The record.
    stored
        Whether it was written to the file.
    """
    digests = _digests(variants)
    if digests is None:
        return
    alike = _records.setdefault(path, {}).setdefault(canonical(key), {})
    # Digests may be of identities, which other objects have once these are gone.
    kept = [each for variant in variants for each in _parts(variant) if not _forgets(each, alike, digests)]
    alike[digests] = _Remembered(record, stored, tuple(kept))


def _parts(variant: Variant) -> tuple[object, ...]:
    """Return what holds all that a variant is made of."""
    function = getattr(variant.task, "function", variant.task)
    return (function.__func__, function.__self__) if isinstance(function, MethodType) else (function,)


def _forgets(value: object, alike: dict[_Digests, _Remembered], digests: _Digests) -> bool:
    """Have a record forgotten with a value; false if nobody can tell when that is gone."""
    try:
        weakref.finalize(value, alike.pop, digests, None).atexit = False
    except TypeError:
        return False
    return True


def recall(path: Path, key: Mapping[str, Any], variants: Sequence[Variant], changed: bool) -> Record | None:
    """Return the record of a case; None if there is none.

    Parameters
    ----------
    path, key, variants
        As for `remember`.
    changed
        Whether the store has the case, but of variants that are not told to be these: then what was stored counts, too,
        since the contents of a list that a function closes over may have changed.
    """
    alike = _records.get(path, {}).get(canonical(key))
    digests = _digests(variants) if alike else None
    if not alike or digests is None or digests not in alike:
        return None
    found = alike[digests]
    return found.record if changed or not found.stored else None


def knows(path: Path) -> bool:
    """Whether anything is remembered that is not in the file."""
    return any(not each.stored for alike in _records.get(path, {}).values() for each in alike.values())


def _digests(variants: Sequence[Variant]) -> _Digests | None:
    found = [source_of(variant, here=True) for variant in variants]
    known = tuple(digest for digest in found if digest is not None)
    return known if len(known) == len(found) else None
