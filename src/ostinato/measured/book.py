"""What the store knows of cases, and is told of them."""

from __future__ import annotations

import dataclasses
import json
import logging
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from ostinato.cache_directory import cache_directory
from ostinato.graph.variant import Variant
from ostinato.measured.case import Case
from ostinato.measured.circumstance import Checked, Circumstances
from ostinato.measured.identity import source_of
from ostinato.measured.memory import recall, remember
from ostinato.measured.record import Record, operation_of
from ostinato.measured.shelf import Stored, shelf_of
from ostinato.tune.candidate import Candidate
from ostinato.tune.canonical import digest, plain
from ostinato.tune.lease.cpu import cpu_device
from ostinato.tune.outcome import OpOutcome
from ostinato.tune.policy import Policy
from ostinato.tune.race.stopping import interval, median
from ostinato.tune.report.report import Report
from ostinato.tune.result import Result
from ostinato.tune.status import Status
from ostinato.tune.store.key import Context, contexts, differing, environment
from ostinato.tune.store.store import Store, StoreError

__all__ = [
    "POLICY",
    "Book",
    "Known",
    "VariantCandidate",
    "candidate_of",
    "checked_of",
    "find",
    "look_up",
    "recorded",
    "remembered",
    "source_of_variants",
]

POLICY = Policy()
"""How variants are measured."""

_DEVICE = "cpu:0"
_FIELDS = ("source", "device", "driver", "versions", "policy")
"""What may keep a record of the same case from answering; the first of several that differ is named."""


@dataclass(frozen=True, eq=False)
class VariantCandidate(Candidate):
    """A variant of a task, as what was measured."""

    task: str

    def shared(self) -> dict[str, Any]:
        return {"kind": "variant", "task": self.task}


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


def find(path: Path, key: Mapping[str, Any], source: Callable[[], str | None]) -> Known:
    """Return what a store says of a case.

    Parameters
    ----------
    path
        The store's file, which need not exist.
    key
        The case's key.
    source
        Returns the digest of its variants, None if it cannot be told; asked only where there are records.

    Raises
    ------
    StoreError
        If the file cannot be read, or is no store.
    """
    shelf = shelf_of(path)
    alike = [] if shelf is None else shelf.of(key)
    code = source() if alike else None
    if code is None:
        return Known()
    asked = _asked(key)
    held = [each for each in alike if each.source == code and not differing(each.context, asked)]
    records = [record for record in (each.record() for each in held) if record is not None]
    if records:
        return Known(tuple(sorted(records, key=lambda record: (record.complete, record.time), reverse=True)))
    return _refused(alike, asked, code)


def look_up(path: Path, key: Mapping[str, Any], variants: Sequence[Variant]) -> Known:
    """Return what a store says of a case, or if it says nothing, what this process remembers."""
    known = find(path, key, lambda: source_of_variants(variants))
    return known if known.records else _remembered_here(path, key, variants, known)


def _remembered_here(path: Path, key: Mapping[str, Any], variants: Sequence[Variant], known: Known) -> Known:
    record = recall(path, key, variants, known.differs == "source")
    return known if record is None else Known((record,), here=True)


def _asked(key: Mapping[str, Any]) -> Context:
    there = environment([cpu_device(_DEVICE)])
    return contexts(operation_of(key["task"]), key, there, dataclasses.asdict(POLICY))[_DEVICE]


def _refused(alike: list[Stored], asked: Context, source: str) -> Known:
    """Say what keeps the most similar record from answering."""

    def difference(each: Stored) -> list[str]:
        fields = differing(each.context, asked) | ({"source"} if each.source != source else set())
        return [name for name in _FIELDS if name in fields]

    several = [(difference(each), each) for each in alike]
    several = [pair for pair in several if pair[0]]
    if not several:
        return Known()
    fields, nearest = min(
        several, key=lambda pair: (len(pair[0]), [_FIELDS.index(name) for name in pair[0]], -pair[1].time)
    )
    return Known((), fields[0], _words(fields[0], nearest.context, asked))


def _words(field: str, stored: Context, asked: Context) -> str:
    if field == "source":
        return "the store's results are for another source: the task or a variant of it has changed since, or was added"
    if field == "policy":
        return "the store's results were measured in another way"
    before, now = json.loads(getattr(stored, field)), json.loads(getattr(asked, field))
    if field == "versions":
        names = [name for name in {**before, **now} if before.get(name) != now.get(name)]
        changes = [f"{name} {before.get(name, 'missing')} instead of {now.get(name, 'missing')}" for name in names]
        return f"the store's results are for other versions ({', '.join(changes)})"
    return f"the store's results are for another {field} ({before or 'none'} instead of {now or 'none'})"


def source_of_variants(variants: Iterable[Variant]) -> str | None:
    """Return the digest of what all variants of a case are; None if that of one cannot be told."""
    sources = [source_of(variant) for variant in variants]
    return None if None in sources else digest(sources)


def checked_of(case: Case) -> Checked:
    """Return the circumstances in which the variants of a case are compared."""
    circumstances = Circumstances()
    return Checked(circumstances.of(op) for op in case.checked) if len(case.declared) > 1 else Checked(())


def recorded(case: Case, report: Report, rtol: float) -> Record | None:
    """Return the record of what was measured; None where nothing was that could be remembered."""
    places = [case.declared.index(variant) for variant in case.variants] or [0]
    pairs = list(zip(places, report.results, strict=True))
    final = [(place, result) for place, result in pairs if result.status.final]
    right = {place for place, result in final if result.status in (Status.OK, Status.RACED) and result.samples}
    by_identity = {id(result): place for place, result in pairs}
    best = None if report.best is None else by_identity.get(id(report.best))
    if best not in right or 0 not in right:
        return None
    ties = tuple(place for place in (by_identity.get(id(result)) for result in report.ties) if place in right)
    return Record(
        places=tuple(place for place, _ in final),
        outcomes=tuple(
            OpOutcome(
                _label(case, place),
                result.status,
                result.samples if place in right else (),
                result.workspace,
                result.message,
                result.contended,
                result.overhead_ns,
            )
            for place, result in final
        ),
        winner=0 if 0 in ties else best,
        ties=ties,
        rtol=rtol,
        complete=len(final) == len(pairs),
        checked=checked_of(case),
        time=time.time(),
    )


def remembered(case: Case, record: Record) -> Report:
    """Return the report that a record was made from."""
    results = {
        place: _result(case, place, outcome) for place, outcome in zip(record.places, record.outcomes, strict=True)
    }
    return Report(
        op=case.label,
        key=case.key,
        policy=POLICY,
        best=results[record.winner],
        ties=tuple(
            sorted((results[place] for place in record.ties), key=lambda each: each is not results[record.winner])
        ),
        results=tuple(results.values()),
        default=results.get(0),
        environment=environment([cpu_device(_DEVICE)]),
    )


def _result(case: Case, place: int, outcome: OpOutcome) -> Result:
    ordered = sorted(outcome.samples)
    return Result(
        candidate=candidate_of(case, place),
        op=case.label,
        status=outcome.status,
        time_ns=median(ordered) if ordered else None,
        interval_ns=interval(ordered) if ordered else None,
        samples=outcome.samples,
        workspace=outcome.workspace,
        device=_DEVICE,
        message=outcome.message,
        cached=True,
        contended=outcome.contended,
        overhead_ns=outcome.overhead_ns,
    )


def candidate_of(case: Case, place: int) -> VariantCandidate:
    """Return what was measured: a declared variant of a case by its place; of a copy or a fill itself."""
    task = case.key["task"]
    if not case.declared:
        return VariantCandidate({}, task)
    variant = case.declared[place]
    return VariantCandidate({"variant": variant.name, **plain(dict(variant.config), "config")}, task)


def _label(case: Case, place: int) -> str:
    return case.declared[place].label if case.declared else case.label


class Book:
    """The store that tuning reads and writes.

    One that cannot be written any more is left alone from then on: what was measured is in the reports.

    Parameters
    ----------
    path
        The file; None for the default one.
    note
        Is told what the user should know.
    """

    def __init__(self, path: str | os.PathLike[str] | None, note: Callable[[str], None]) -> None:
        self._asked_for = path is not None
        self.path = Path(os.path.abspath(path) if path is not None else os.path.join(cache_directory(), "tune.db"))
        self._note = note
        self._store: Store | None = None
        self._given_up = False

    def find(self, case: Case) -> Known:
        """Return what is known of a case."""
        if not self._given_up:
            try:
                return look_up(self.path, case.key, case.declared)
            except StoreError as error:
                self._fail(error, self._asked_for)
        return _remembered_here(self.path, case.key, case.declared, Known())

    def open(self) -> None:
        """Open the store to be written, and make it where there is none.

        Raises
        ------
        StoreError
            If the store was asked for by name and cannot be written.
        """
        if self._store is None and not self._given_up:
            try:
                self._store = Store(self.path if self._asked_for else None)
            except StoreError as error:
                self._fail(error, self._asked_for)

    def add(self, case: Case, source: str | None, record: Record) -> None:
        """Write down what was found of a case, under the digest of its variants; None if it cannot be told."""
        remember(self.path, case.key, case.declared, record, self._write(case, source, record))

    def _write(self, case: Case, source: str | None, record: Record) -> bool:
        self.open()
        if self._store is None or source is None:
            return False
        there = environment([cpu_device(_DEVICE)])
        key, policy = case.key, dataclasses.asdict(POLICY)
        try:
            with self._store.search(operation_of(key["task"]), key, there, policy) as search:
                search.add(record.entry(), source, _DEVICE, record.outcomes)
        except StoreError as error:
            self._fail(error, False)
            return False
        return True

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
