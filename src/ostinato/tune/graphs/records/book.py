"""What the store knows of cases, and is told of them."""

from __future__ import annotations

import dataclasses
import logging
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ostinato.cache_directory import cache_directory
from ostinato.graph.variant import CPU
from ostinato.tune.candidate import Candidate
from ostinato.tune.canonical import digest, plain
from ostinato.tune.graphs.cases.case import Case
from ostinato.tune.graphs.cases.circumstance import Checked, Circumstances
from ostinato.tune.graphs.records.lookup import POLICY, Known, Lookup
from ostinato.tune.graphs.records.memory import remember
from ostinato.tune.graphs.records.record import Record, operation_of
from ostinato.tune.graphs.records.unfinished import Keeping, Kept, operation_of_variants
from ostinato.tune.lease.device import Device
from ostinato.tune.report.report import Report
from ostinato.tune.result import outcome_of, result_of
from ostinato.tune.status import Status
from ostinato.tune.store.key import environment
from ostinato.tune.store.store import Store, StoreError

__all__ = ["Book", "VariantCandidate", "candidate_of", "checked_of", "recorded", "remembered"]


@dataclass(frozen=True, eq=False)
class VariantCandidate(Candidate):
    """A variant of a task, as what was measured."""

    task: str

    def shared(self) -> dict[str, Any]:
        return {"kind": "variant", "task": self.task}


def checked_of(case: Case) -> Checked:
    """Return the circumstances in which the variants of a case are compared."""
    circumstances = Circumstances()
    return Checked(circumstances.of(op) for op in case.checked) if len(case.compared) > 1 else Checked(())


def recorded(case: Case, report: Report, rtol: float) -> Record | None:
    """Return the record of what was measured; None where nothing was that could be remembered."""
    places = [case.declared.index(variant) for variant in case.variants] or [0]
    pairs = list(zip(places, report.results, strict=True))
    final = [(place, result) for place, result in pairs if result.status.final]
    right = {place for place, result in final if result.status in (Status.OK, Status.RACED) and result.samples}
    by_identity = {id(result): place for place, result in pairs}
    best = None if report.best is None else by_identity.get(id(report.best))
    # The default's outputs were there to compare with.
    compared = not case.has_default or 0 in right or report.results[0].status is Status.CONTENDED
    if (best is not None and best not in right) or not compared or not final:
        return None
    if best is None and (case.has_default or right or all(result.status is Status.INVALID for _, result in final)):
        return None
    ties = tuple(place for place in (by_identity.get(id(result)) for result in report.ties) if place in right)
    return Record(
        places=tuple(place for place, _ in final),
        outcomes=tuple(
            replace(
                outcome_of(result),
                op=_label(case, place),
                samples=result.samples if place in right else (),
            )
            for place, result in final
        ),
        winner=0 if case.has_default and 0 in ties else best,
        ties=ties,
        rtol=rtol,
        complete=len(final) == len(pairs),
        checked=checked_of(case),
        time=time.time(),
    )


def remembered(case: Case, record: Record, device: Device) -> Report:
    """Return the report that a record was made from, on a device."""
    results = {
        place: result_of(candidate_of(case, place), replace(outcome, op=case.label), device.name, cached=True)
        for place, outcome in zip(record.places, record.outcomes, strict=True)
    }
    best = None if record.winner is None else results[record.winner]
    return Report(
        op=case.label,
        key=case.key,
        policy=POLICY,
        best=best,
        ties=tuple(sorted((results[place] for place in record.ties), key=lambda each: each is not best)),
        results=tuple(results.values()),
        default=results.get(0) if case.has_default else None,
        environment=environment([device]),
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
    devices
        What records of each kind of processors but CPUs are of.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None,
        note: Callable[[str], None],
        devices: Mapping[str, Device] = MappingProxyType({}),
    ) -> None:
        self._asked_for = path is not None
        self.path = Path(os.path.abspath(path) if path is not None else os.path.join(cache_directory(), "tune.db"))
        self._note = note
        self._lookups = {CPU: Lookup(self.path)}
        self._lookups |= {kind: Lookup(self.path, device) for kind, device in devices.items()}
        self._store: Store | None = None
        self._given_up = False

    def find(self, case: Case) -> Known:
        """Return what is known of a case."""
        if not self._given_up:
            try:
                return self._lookups[case.kind].known(case.key, case.compared)
            except StoreError as error:
                self._fail(error, self._asked_for)
        return self._lookups[case.kind].remembered(case.key, case.compared)

    def remembered(self, case: Case, record: Record) -> Report:
        """Return the report that a record of a case was made from."""
        return remembered(case, record, self._lookups[case.kind].device)

    def refresh(self) -> None:
        """See what others wrote since."""
        for lookup in self._lookups.values():
            lookup.refresh()

    def tells(self, case: Case) -> bool:
        """Whether another process can tell what the variants of a case are."""
        return self._lookups[case.kind].source(case.compared) is not None

    def keeping(self, case: Case, rtol: float) -> Keeping | None:
        """Return what makes a `Kept` for a case; None where the store cannot know its variants, or is not open."""
        lookup = self._lookups[case.kind]
        source = lookup.source(case.compared)
        if self._store is None or source is None or len(case.compared) < 2:
            return None
        operation, policy = operation_of_variants(case.key["task"]), dataclasses.asdict(POLICY)
        try:
            stored = self._store.search(operation, case.key, lookup.environment, policy)
        except StoreError as error:
            self._fail(error, False)
            return None
        compared = digest([source, rtol, checked_of(case).plain()])
        return partial(Kept, case.label, stored, compared, lookup.device.name, note=self._note)

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

    def add(self, case: Case, record: Record) -> None:
        """Write down what was found of a case."""
        remember(self.path, case.key, case.compared, record, self._write(case, record))

    def _write(self, case: Case, record: Record) -> bool:
        self.open()
        lookup = self._lookups[case.kind]
        source = lookup.source(case.compared)
        if self._store is None or source is None:
            return False
        operation, policy = operation_of(case.key["task"]), dataclasses.asdict(POLICY)
        try:
            with self._store.search(operation, case.key, lookup.environment, policy) as search:
                search.add(record.entry(), source, lookup.device.name, record.outcomes)
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
