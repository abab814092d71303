"""What the store, and this process, know of signatures and are told of them."""

from __future__ import annotations

import dataclasses
import json
import logging
import os
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from types import MappingProxyType, MethodType
from typing import Any, NamedTuple, TypeAlias

from ostinato.devices.device import Device as UsableDevice
from ostinato.environment import default_store
from ostinato.graph.variant import CPU, Variant
from ostinato.tune.candidate import Candidate, canonical, digest, plain
from ostinato.tune.graphs.call_context import CallContexts, Checked
from ostinato.tune.graphs.identity import source_of
from ostinato.tune.graphs.names import operation_of
from ostinato.tune.graphs.record import Record, Snapshot, Stored, snapshot_of
from ostinato.tune.graphs.signature import Signature
from ostinato.tune.leases.cpu import cpu_device
from ostinato.tune.leases.device import Device
from ostinato.tune.outcome import OpOutcome, Outcome, Status
from ostinato.tune.policy import Policy
from ostinato.tune.report.report import Report
from ostinato.tune.result import outcome_of, result_of
from ostinato.tune.searching.results import Known
from ostinato.tune.store.database import Context, StoreError
from ostinato.tune.store.key import Sources, contexts, differing, environment
from ostinato.tune.store.store import Search, Store
from ostinato.tune.trial import Trial

_Digests = tuple[str, ...]


class _Remembered(NamedTuple):
    record: Record
    stored: bool  # in the file, too
    kept: tuple[object, ...]  # which must not go before it


_records: dict[Path, dict[str, dict[_Digests, _Remembered]]] = {}
"""By the store that they are of, the key of the signature, and the digests of its variants."""


def remember(path: Path, key: Mapping[str, Any], variants: Sequence[Variant], record: Record, stored: bool) -> None:
    """Remember the record of a signature, of the store in the file `path`, for as long as its variants live."""
    digests = _digests(variants)
    if digests is None:
        return
    alike = _records.setdefault(path, {}).setdefault(canonical(key), {})
    kept = []  # digests may be of identities, which other objects can get once these are freed
    for variant in variants:
        function = getattr(variant.task, "function", variant.task)
        for part in (function.__func__, function.__self__) if isinstance(function, MethodType) else (function,):
            try:
                weakref.finalize(part, alike.pop, digests, None).atexit = False
            except TypeError:  # Python cannot tell when it is freed
                kept.append(part)
    alike[digests] = _Remembered(record, stored, tuple(kept))


def knows(path: str) -> bool:
    """Whether anything is remembered that is not in the file."""
    return any(not each.stored for alike in _records.get(Path(path), {}).values() for each in alike.values())


def _digests(variants: Sequence[Variant]) -> _Digests | None:
    found = [source_of(variant, here=True) for variant in variants]
    known = tuple(digest for digest in found if digest is not None)
    return known if len(known) == len(found) else None


POLICY = Policy()
"""How variants are measured."""

_FIELDS = ("source", "device", "driver", "versions", "policy")
"""What may keep a record of the same signature from answering; the first of several that differ is named."""


def tuner_device(device: UsableDevice) -> Device:
    """Return a device of this process as the tuner knows it, with everything that results on it hold for."""
    name, kind, model, driver = device.name, device.kind, device.model, device.driver
    return Device(name=name, kind=kind, identities=(device.identity,), model=model, driver=driver)


class Found(NamedTuple):
    """What the store says of a signature."""

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
    """Looks up signatures in a store, which need not exist, as it was at first or at the last `refresh`.

    Records must hold for `device`, by default this host's processor.
    """

    def __init__(self, path: Path, device: Device | None = None) -> None:
        self.path = path
        self._device = device
        self._sources: dict[Variant, str | None] = {}
        self._snapshot: Snapshot | None = None

    def refresh(self) -> None:
        """See what was written since."""
        self._snapshot = None

    def source(self, variants: Sequence[Variant]) -> str | None:
        """Return the digest of all variants of a signature as first seen; None if one of them has none."""
        for variant in variants:
            if variant not in self._sources:
                self._sources[variant] = source_of(variant)
        sources = [self._sources[variant] for variant in variants]
        return None if None in sources else digest(sources)

    def known(self, key: Mapping[str, Any], variants: Sequence[Variant]) -> Found:
        """Return what the store says of a signature, or else what this process remembers; may raise `StoreError`."""
        found = self._stored(key, variants)
        return found if found.records else self.recall(key, variants, found)

    def recall(self, key: Mapping[str, Any], variants: Sequence[Variant], found: Found | None = None) -> Found:
        """Return what this process remembers of a signature; if it does not, what the store was `found` to say.

        Where the store has other sources of the variants, what is stored of these counts too: the contents of a list
        that a function closes over may have changed.
        """
        found = found or Found()
        alike = _records.get(self.path, {}).get(canonical(key))
        digests = _digests(variants) if alike else None
        if not alike or digests is None or digests not in alike:
            return found
        remembered = alike[digests]
        here = found.differs == "source" or not remembered.stored
        return Found((remembered.record,), here=True) if here else found

    def _stored(self, key: Mapping[str, Any], variants: Sequence[Variant]) -> Found:
        if self._snapshot is None:
            self._snapshot = snapshot_of(self.path)
        alike = [] if self._snapshot is None else self._snapshot.of(key)
        source = self.source(variants) if alike else None
        if source is None:
            return Found()
        operation, policy = operation_of(key["task"]), dataclasses.asdict(POLICY)
        asked = contexts(operation, key, self.environment, policy)[self.device.name]
        held = [each for each in alike if each.source == source and not differing(each.context, asked)]
        # A place is one of the variants' that the record is of, or the record is damaged.
        count = max(len(variants), 1)
        records = [
            each.record for each in held if each.record is not None and max(each.record.places, default=0) < count
        ]
        if records:
            return Found(tuple(sorted(records, key=lambda record: (record.complete, record.time), reverse=True)))
        return _refused(alike, asked, source)

    @cached_property
    def device(self) -> Device:
        """The device that records are of."""
        return self._device or cpu_device("cpu:0")

    @cached_property
    def environment(self) -> dict[str, Any]:
        """The device and the versions that records are of."""
        return environment([self.device])


def _refused(alike: list[Stored], asked: Context, source: str) -> Found:
    """Say what keeps the most similar record from answering."""

    def difference(each: Stored) -> list[str]:
        fields = differing(each.context, asked) | ({"source"} if each.source != source else set())
        return [name for name in _FIELDS if name in fields]

    def distance(each: Stored) -> tuple[int, list[int], float]:
        fields = difference(each)
        return len(fields), list(map(_FIELDS.index, fields)), -each.time

    nearest = min(filter(difference, alike), key=distance, default=None)
    if nearest is None:
        return Found()
    field = difference(nearest)[0]
    return Found((), field, _words(field, nearest.context, asked))


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


_GOOD = frozenset({Status.OK, Status.RACED})
_KEPT = _GOOD | {Status.WRONG_RESULT, Status.CRASH, Status.HANG_KILLED}


class Kept(Known):
    """The variants of one signature, as they are measured, in the store.

    Only a comparison with a default that works says anything about a variant. So nothing is kept of a default that
    failed, nor of variants that could not be compared with it. Where the default is not measured, `default` is None,
    and variants that failed are measured again: there may be no other.

    `source` is the digest of all that an outcome depends on: the code of the variants, and how and where they are
    compared. A message that begins with a name in `said` and a colon has that status, whatever its own says.
    """

    def __init__(
        self,
        label: str,
        stored: Search,
        source: str,
        device: str,
        *,
        default: str | None,
        said: Mapping[str, Status] = MappingProxyType({}),
        verify: str | None = None,
        seconds: float,
        memory: int | None = None,
        note: Callable[[str], None],
    ) -> None:
        sources = _SignatureSources(source, verify)
        super().__init__(label, stored, sources, answers=True, seconds=seconds, memory=memory, note=note)
        self._code_of_worker = Sources(verify)
        self._label = label
        self._device = device
        self._default = default
        self._said = said

    def find(self, trial: Trial) -> tuple[str | None, Outcome] | None:
        found = super().find(trial)
        if found is None:
            return None
        device, outcome = found
        # Another graph may have called the signature something else.
        return device, replace(outcome, ops=tuple(replace(op, op=self._label) for op in outcome.ops))

    def source(self, trial: Trial) -> str:
        return self._code_of_worker.of(trial.candidate)

    def add(self, trial: Trial, outcome: Outcome, device: str | None, *, first: str | None = None) -> None:
        ops = outcome.ops or (OpOutcome(self._label, outcome.status, message=outcome.message),)
        statuses = {self._said.get(op.message.partition(": ")[0], op.status) for op in ops}
        allowed = _KEPT if self._default is not None else _GOOD
        if device is not None and statuses <= ({Status.OK} if trial.candidate.id == self._default else allowed):
            super().add(trial, outcome, self._device, first=first or device)


class _SignatureSources(Sources):
    """What a worker imports is found as for any candidate, but what an outcome depends on is the signature's."""

    def __init__(self, source: str, verify: str | None) -> None:
        super().__init__(verify)
        self._source = source

    def of(self, candidate: Candidate) -> str:
        return self._source


Keeping: TypeAlias = Callable[..., Kept]
"""Makes what keeps the variants of a signature, given the arguments of `Kept` from `default` on, but for `note`."""


@dataclass(frozen=True, eq=False)
class VariantCandidate(Candidate):
    """A variant of a task, as what was measured."""

    task: str

    def shared(self) -> dict[str, Any]:
        return {"kind": "variant", "task": self.task}


def checked_of(signature: Signature) -> Checked:
    """Return the call contexts in which the variants of a signature are compared."""
    call_contexts = CallContexts()
    return Checked(call_contexts.of(op) for op in signature.checked) if len(signature.compared) > 1 else Checked(())


def make_record(signature: Signature, report: Report, rtol: float) -> Record | None:
    """Return the record of what was measured; None where nothing was that could be remembered."""
    places = [signature.declared.index(variant) for variant in signature.variants] or [0]
    pairs = list(zip(places, report.results, strict=True))
    final = [(place, result) for place, result in pairs if result.status.final]
    right = {place for place, result in final if result.status in _GOOD and result.samples}
    by_identity = {id(result): place for place, result in pairs}
    best = None if report.best is None else by_identity.get(id(report.best))
    # The default's outputs were there to compare with.
    compared = not signature.has_default or 0 in right or report.results[0].status is Status.CONTENDED
    if (best is not None and best not in right) or not compared or not final:
        return None
    if best is None and (signature.has_default or right or all(result.status is Status.INVALID for _, result in final)):
        return None
    ties = tuple(place for place in (by_identity.get(id(result)) for result in report.ties) if place in right)
    return Record(
        places=tuple(place for place, _ in final),
        outcomes=tuple(
            replace(
                outcome_of(result),
                op=signature.declared[place].label if signature.declared else signature.label,
                samples=result.samples if place in right else (),
            )
            for place, result in final
        ),
        winner=0 if signature.has_default and 0 in ties else best,
        ties=ties,
        rtol=rtol,
        complete=len(final) == len(pairs),
        checked=checked_of(signature),
        time=time.time(),
    )


def report_of(signature: Signature, record: Record, device: Device) -> Report:
    """Return the report that a record was made from, on a device."""
    results = {
        place: result_of(candidate_of(signature, place), replace(outcome, op=signature.label), device.name, cached=True)
        for place, outcome in zip(record.places, record.outcomes, strict=True)
    }
    best = None if record.winner is None else results[record.winner]
    return Report(
        op=signature.label,
        key=signature.key,
        policy=POLICY,
        best=best,
        ties=tuple(sorted((results[place] for place in record.ties), key=lambda each: each is not best)),
        results=tuple(results.values()),
        default=results.get(0) if signature.has_default else None,
        environment=environment([device]),
    )


def candidate_of(signature: Signature, place: int) -> VariantCandidate:
    """Return what was measured: a declared variant of a signature by its place; of a copy or a fill itself."""
    config = {}
    if signature.declared:
        variant = signature.declared[place]
        config = {"variant": variant.name, **plain(dict(variant.config), "config")}
    return VariantCandidate(config, signature.key["task"])


class CostStore:
    """The store that tuning reads and writes; if it cannot be written any more, it is left alone from then on.

    `devices` are those that records hold for, by their kind; for CPUs it is this host's processor.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None,
        note: Callable[[str], None],
        devices: Mapping[str, Device] = MappingProxyType({}),
    ) -> None:
        self._asked_for = path is not None
        self.path = Path(os.path.abspath(path) if path is not None else default_store())
        self._note = note
        self._lookups = {CPU: Lookup(self.path)}
        self._lookups |= {kind: Lookup(self.path, device) for kind, device in devices.items()}
        self._store: Store | None = None
        self._given_up = False

    def find(self, signature: Signature) -> Found:
        """Return what is known of a signature."""
        if not self._given_up:
            try:
                return self._lookups[signature.kind].known(signature.key, signature.compared)
            except StoreError as error:
                self._fail(error, self._asked_for)
        return self._lookups[signature.kind].recall(signature.key, signature.compared)

    def report(self, signature: Signature, record: Record) -> Report:
        """Return the report that a record of a signature was made from."""
        return report_of(signature, record, self._lookups[signature.kind].device)

    def refresh(self) -> None:
        """See what others wrote since."""
        for lookup in self._lookups.values():
            lookup.refresh()

    def source(self, signature: Signature) -> str | None:
        """Return a digest of the variants of a signature; None if another process cannot tell what they are."""
        return self._lookups[signature.kind].source(signature.compared)

    def keeping(self, signature: Signature, rtol: float) -> Keeping | None:
        """Return what makes a `Kept` for a signature; None where the store cannot know its variants, or is not open."""
        lookup, source = self._lookups[signature.kind], self.source(signature)
        if self._store is None or source is None or len(signature.compared) < 2:
            return None
        operation, policy = f"graph variants: {signature.key['task']}", dataclasses.asdict(POLICY)
        try:
            stored = self._store.search(operation, signature.key, lookup.environment, policy)
        except StoreError as error:
            self._fail(error, False)
            return None
        compared = digest([source, rtol, checked_of(signature).plain()])
        return partial(Kept, signature.label, stored, compared, lookup.device.name, note=self._note)

    def open(self) -> None:
        """Open the store to write it; raise `StoreError` if it was asked for by name and cannot be written."""
        if self._store is None and not self._given_up:
            try:
                self._store = Store(self.path if self._asked_for else None)
            except StoreError as error:
                self._fail(error, self._asked_for)

    def add(self, signature: Signature, record: Record) -> None:
        """Write down what was found of a signature."""
        self.open()
        lookup, source = self._lookups[signature.kind], self.source(signature)
        stored = self._store is not None and source is not None
        if self._store is not None and source is not None:
            operation, policy = operation_of(signature.key["task"]), dataclasses.asdict(POLICY)
            try:
                with self._store.search(operation, signature.key, lookup.environment, policy) as search:
                    search.add(record.entry(), source, lookup.device.name, record.outcomes)
            except StoreError as error:
                self._fail(error, False)
                stored = False
        remember(self.path, signature.key, signature.compared, record, stored)

    def close(self) -> None:
        """Close the store; once more does nothing."""
        if self._store is not None:
            self._store.close()
            self._store = None

    def _fail(self, error: StoreError, raised: bool) -> None:
        if raised:
            raise error
        self._given_up = True
        self.close()
        text = f"{error}; tuning goes on, and what it measures from here on is in its reports only"
        logging.getLogger("ostinato").warning("%s", text)
        self._note(text)
