"""Looking cases up: what a store says of them, and if it does not answer, why."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from ostinato.graph.variant import Variant
from ostinato.tune.canonical import digest
from ostinato.tune.graphs.cases.identity import source_of
from ostinato.tune.graphs.records.memory import recall
from ostinato.tune.graphs.records.record import Record, operation_of
from ostinato.tune.graphs.records.shelf import Shelf, Stored, shelf_of
from ostinato.tune.lease.cpu import cpu_device
from ostinato.tune.lease.device import Device
from ostinato.tune.policy import Policy
from ostinato.tune.store.key import Context, contexts, differing, environment

__all__ = ["DEVICE", "POLICY", "Known", "Lookup"]

POLICY = Policy()
"""How variants are measured."""

DEVICE = "cpu:0"

_FIELDS = ("source", "device", "driver", "versions", "policy")
"""What may keep a record of the same case from answering; the first of several that differ is named."""


class Known(NamedTuple):
    """What the store says of a case."""

    records: tuple[Record, ...] = ()
    """Those that hold for this code on this machine, the one that counts first."""
    differs: str | None = None
    """If there are none: which field of the key differs from the most similar record."""
    why: str = ""
    """The same in words."""
    here: bool = False
    """Whether only this process knows."""

    @property
    def record(self) -> Record | None:
        """The one that counts: the latest one, of those for which no time ran out if there are any."""
        return self.records[0] if self.records else None


class Lookup:
    """Looks cases up in a store, for one tuning or one compilation.

    What code is, is found out once, and the store is read as it was at first, until `refresh`.

    Parameters
    ----------
    path
        The store's file, which need not exist.
    device
        What records are to hold for; None: this host's processor.
    """

    def __init__(self, path: Path, device: Device | None = None) -> None:
        self.path = path
        self._device = device
        self._sources: dict[Variant, str | None] = {}
        self._shelf: Shelf | None = None

    def refresh(self) -> None:
        """See what was written since."""
        self._shelf = None

    def source(self, variants: Sequence[Variant]) -> str | None:
        """Return the digest of what all variants of a case were when first asked; None if that of one is not known."""
        found = self._sources
        for variant in variants:
            if variant not in found:
                found[variant] = source_of(variant)
        sources = [found[variant] for variant in variants]
        return None if None in sources else digest(sources)

    def known(self, key: Mapping[str, Any], variants: Sequence[Variant]) -> Known:
        """Return what the store says of a case, or if it says nothing, what this process remembers.

        Parameters
        ----------
        key
            The case's key.
        variants
            Its variants.

        Raises
        ------
        StoreError
            If the file cannot be read, or is no store.
        """
        found = self._stored(key, variants)
        return found if found.records else self.remembered(key, variants, found)

    def remembered(self, key: Mapping[str, Any], variants: Sequence[Variant], found: Known | None = None) -> Known:
        """Return what this process remembers of a case; if it does not, what the store was `found` to say."""
        found = found or Known()
        record = recall(self.path, key, variants, found.differs == "source")
        return found if record is None else Known((record,), here=True)

    def _stored(self, key: Mapping[str, Any], variants: Sequence[Variant]) -> Known:
        if self._shelf is None:
            self._shelf = shelf_of(self.path)
        alike = [] if self._shelf is None else self._shelf.of(key)
        source = self.source(variants) if alike else None
        if source is None:
            return Known()
        asked = self.context(key)
        held = [each for each in alike if each.source == source and not differing(each.context, asked)]
        # A place is one of the variants' that the record is of, or the record is damaged.
        count = max(len(variants), 1)
        records = [
            each.record for each in held if each.record is not None and max(each.record.places, default=0) < count
        ]
        if records:
            return Known(tuple(sorted(records, key=lambda record: (record.complete, record.time), reverse=True)))
        return _refused(alike, asked, source)

    def context(self, key: Mapping[str, Any]) -> Context:
        """Return what a record of a case must be of to hold here."""
        return contexts(operation_of(key["task"]), key, self.environment, dataclasses.asdict(POLICY))[self.device.name]

    @cached_property
    def device(self) -> Device:
        """The device that records are of."""
        return self._device or cpu_device(DEVICE)

    @cached_property
    def environment(self) -> dict[str, Any]:
        """The device and the versions that records are of."""
        return environment([self.device])


def _refused(alike: list[Stored], asked: Context, source: str) -> Known:
    """Say what keeps the most similar record from answering."""

    def difference(each: Stored) -> list[str]:
        fields = differing(each.context, asked) | ({"source"} if each.source != source else set())
        return [name for name in _FIELDS if name in fields]

    several = [pair for pair in ((difference(each), each) for each in alike) if pair[0]]
    if not several:
        return Known()
    fields, nearest = min(
        several, key=lambda pair: (len(pair[0]), [_FIELDS.index(name) for name in pair[0]], -pair[1].time)
    )
    return Known((), fields[0], _words(fields[0], nearest.context, asked))


def _words(field: str, stored: Context, asked: Context) -> str:
    if field == "source":
        return "the store's results are for another source: the task or a variant of it has changed since, or was added"
    before, now = json.loads(getattr(stored, field)), json.loads(getattr(asked, field))
    if field in ("versions", "policy"):
        names = [name for name in {**before, **now} if before.get(name) != now.get(name)]
        changes = [f"{name} {before.get(name, 'missing')} instead of {now.get(name, 'missing')}" for name in names]
        what = "other versions" if field == "versions" else "another policy"
        return f"the store's results are for {what} ({', '.join(changes)})"
    return f"the store's results are for another {field} ({before or 'none'} instead of {now or 'none'})"
