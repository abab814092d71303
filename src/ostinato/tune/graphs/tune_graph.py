"""Tuning a graph: each signature measured once, unless the store knows it; and what was found."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from numbers import Real
from typing import TYPE_CHECKING, Any

from ostinato.compiler.flatten import flatten
from ostinato.devices.device import usable
from ostinato.environment import usable_cores
from ostinato.errors import ContractError, DeviceError
from ostinato.graph.variant import CPU
from ostinato.runtime.results import InStore
from ostinato.text import brief, duration, one_line
from ostinato.tune import worker
from ostinato.tune.graphs.cost_store import (
    POLICY,
    CostStore,
    candidate_of,
    checked_of,
    make_record,
    tuner_device,
)
from ostinato.tune.graphs.signature import Signature, kinds_for, signatures_of
from ostinato.tune.outcome import Status
from ostinato.tune.policy import Budget, positive
from ostinato.tune.progress import Progress, listener
from ostinato.tune.report.report import Report
from ostinato.tune.result import Result

if TYPE_CHECKING:
    from ostinato.devices.device import Device
    from ostinato.graph.graph import Graph
    from ostinato.runtime.machine import Machine
    from ostinato.tune.graphs.executor import Executor
    from ostinato.tune.searching.tuner import Searcher


_LONGEST = 60

OF_EACH_HOST = "cpu:0"
"""The device of a fleet's hosts that measures."""


class Reports(dict[str, Report], InStore):
    """What `Graph.tune` found: a `Report` for each signature, by its label.

    Examples
    --------
    >>> print(Reports().table())
    case  time  default  gain  variants
    """

    def table(self) -> str:
        """Return a table with a line for each signature: what won, how fast it is, and how much that gains."""
        rows: list[tuple[str, ...]] = [("case", "winner", "time", "default", "gain", "variants", "message")]
        rows += [_row(label, report) for label, report in self.items()]
        optional = ("winner", "message")
        columns = [column for column in zip(*rows, strict=True) if any(column[1:]) or column[0] not in optional]
        lines = [""] * len(rows)
        for column in columns:
            adjust = str.rjust if column[0] in ("time", "default", "gain") else str.ljust
            width = max(map(len, column))
            lines = [f"{line}{adjust(cell, width)}  " for line, cell in zip(lines, column, strict=True)]
        return "\n".join(line.rstrip() for line in lines)

    def __repr__(self) -> str:
        return self.table()

    def __missing__(self, label: str) -> Report:
        raise KeyError(
            f"the label must be that of a case, got {label!r}; there are {', '.join(map(repr, self)) or 'none'}"
        )

    def plot(self, path: str | os.PathLike[str]) -> None:
        """Write a picture of what was found: the variants of each signature by what they take.

        Needs Matplotlib: ``pip install 'ostinato[plot]'``.

        Parameters
        ----------
        path
            Where; the suffix says what, such as ``.svg`` or ``.png``.
        """
        from ostinato.tune.graphs.landscape import plot

        plot(self, path)


def _row(label: str, report: Report) -> tuple[str, ...]:
    best, default = report.best, report.default
    if default is not None and default in report.ties:
        best = default
    wrong = [result for result in report.results if result.status not in (Status.OK, Status.RACED)]
    cached = bool(report.results) and all(result.cached for result in report.results)
    gain = ""
    if best is not None and default is not None and best.time_ns and default.time_ns:
        gain = f"{default.time_ns / best.time_ns:.2f}"
    failures = "; ".join(f"{_winner(result.candidate.config)}: {result.status}" for result in wrong)
    message = one_line(report.results[0].message if best is None and report.results else failures)
    return (
        one_line(label),
        "" if best is None else _winner(best.candidate.config),
        "" if best is None or best.time_ns is None else duration(best.time_ns),
        "" if default is None or default.time_ns is None else duration(default.time_ns),
        gain,
        f"{len(report.results) - len(wrong)} of {len(report.results)} ok" + (", from the store" if cached else ""),
        message if len(message) <= _LONGEST else f"{message[: _LONGEST - 3]}...",
    )


def _winner(config: Mapping[str, object]) -> str:
    rest = ", ".join(f"{name}={value}" for name, value in config.items() if name != "variant")
    return one_line(f"{config.get('variant', '')}({rest})" if rest else str(config.get("variant", "")))


def tune_graph(
    graph: Graph,
    machine: Machine | None = None,
    *,
    store: str | os.PathLike[str] | None = None,
    budget: float | Budget | None = None,
    rtol: float = 0.0,
    everything: bool = False,
    progress: Progress | bool | None = None,
    fleet: str | None = None,
    before_measuring: Callable[[], None] = lambda: None,
    measuring: Callable[..., AbstractContextManager[Executor]] | None = None,
) -> Reports:
    """Measure the variants of a graph's ops; see `Graph.tune`.

    `before_measuring` is called if the store does not know all. `measuring` stands for `_session` in tests.
    """
    if fleet is not None and machine is not None:
        raise ValueError("machine must be None with fleet: the hosts of a fleet measure on their own processors")
    if not isinstance(everything, bool):
        raise TypeError(f"everything must be True or False, got {everything!r}")
    processors = _processors(machine)
    if store is not None and not isinstance(store, str | os.PathLike):
        raise TypeError(f"store must be the path of a file, got {store!r}")
    limit = _Limit(_budget(budget))
    rtol = _rtol(rtol)
    told = listener(progress)
    ops = flatten(graph).ops
    devices = _devices(machine, kinds_for(ops)) if fleet is None else {}
    signatures = signatures_of(ops, [CPU, *devices])
    found: dict[str, Report] = {}
    with ExitStack() as opened:
        hold_for = {kind: tuner_device(device) for kind, device in devices.items()}
        searcher = None
        if fleet is not None:
            searcher = opened.enter_context(_fleet(fleet, told))
            if searcher.follows:
                reports: Reports = searcher.receive()
                return reports
            hold_for[CPU] = searcher.devices[0]
            measuring = partial(_session_of, searcher)
        costs = CostStore(store, told.note, hold_for)
        opened.callback(costs.close)
        tuning = _Tuning(costs, rtol, limit, told)
        unknown = []
        for signature in signatures:
            refusal, report = signature.refusal, None
            if not refusal:
                report = tuning.known(signature)
                refusal = _ON_REQUEST if signature.is_on_request and not everything else ""
            if report is None and (refusal := refusal or signature.unfit):
                report = _unmeasured(signature, Status.INVALID, refusal)
            if report is None:
                unknown.append(signature)
            else:
                found[signature.label] = report
        found |= {signature.label: _cancelled(signature) for signature in unknown}
        if unknown and not limit.spent():
            before_measuring()
            _check_process()
            costs.open()
            init = None if machine is None else machine.workers.prepare_caller
            executor = opened.enter_context((measuring or _session)(processors, told, init, devices))
            for signature in unknown:
                found[signature.label] = tuning.measured(signature, executor)
        reports = Reports({signature.label: found[signature.label] for signature in signatures})
        if searcher is not None:
            searcher.publish(reports)
    return reports


def _check_process() -> None:
    """Raise in a worker: it imports the module of what it measures, and would wait for the device that it is on."""
    main = getattr(sys.modules.get("__main__"), "__file__", None)
    if main is not None and os.path.dirname(os.path.abspath(main)) == os.path.dirname(worker.__file__):
        raise ContractError(
            "a module that a tuner's worker imports calls graph.tune: put what is to run only where the module is the "
            'program below `if __name__ == "__main__":`'
        )


class _Tuning:
    def __init__(self, costs: CostStore, rtol: float, limit: _Limit, told: Progress) -> None:
        self._costs = costs
        self._told = told
        self._rtol = rtol
        self._limit = limit

    def known(self, signature: Signature) -> Report | None:
        """Return the report of a signature that the store knows; None if it must be measured."""
        records = self._costs.find(signature).records
        checked = checked_of(signature) if records else None
        record = next((each for each in records if checked is not None and each.answers(self._rtol, checked)), None)
        if record is None:
            return None
        if record is not records[0]:  # compile goes by the latest record, which is of another tolerance
            self._costs.add(signature, dataclasses.replace(record, time=time.time()))
        self._limit.count(len(record.places))
        return self._costs.report(signature, record)

    def measured(self, signature: Signature, executor: Executor) -> Report:
        """Measure a signature, unless somebody else did meanwhile, and write down what was found."""
        from ostinato.tune.graphs.executor import Request
        from ostinato.tune.graphs.payload import Unsendable

        self._costs.refresh()
        report = self.known(signature)
        if report is not None:
            return report
        if self._limit.spent():
            return _cancelled(signature)
        known = self._costs.find(signature)
        source = self._costs.source(signature)  # before anything is called, which may change what it closes over
        keeping = self._costs.keeping(signature, self._rtol)
        try:
            report = executor.measure(Request(signature, self._rtol, self._limit.left(), keeping))
        except Unsendable as why:  # to the hosts of a fleet
            return _unmeasured(signature, Status.INVALID, f"no other host can measure it: {why}")
        self._limit.count(len(report.results))
        for result in report.results:
            result.miss = None if result.cached else known.differs
        record = make_record(signature, report, self._rtol)
        if record is not None:
            if source is None:
                self._told.note(
                    f"{signature.label}: only this process remembers it, since others cannot tell what the task is"
                )
            before = known.record
            if before is not None and before.rtol <= record.rtol and record.right <= before.right:
                record = dataclasses.replace(
                    record, checked=record.checked | before.checked
                )  # it vouches for these too
            self._costs.add(signature, record)
        return report


class _Limit:
    """What is left of a budget."""

    def __init__(self, budget: Budget) -> None:
        self._end = None if budget.seconds is None else time.monotonic() + budget.seconds
        self._candidates = budget.candidates

    def count(self, candidates: int) -> None:
        if self._candidates is not None:
            self._candidates -= candidates

    def spent(self) -> bool:
        late = self._end is not None and time.monotonic() >= self._end
        return late or (self._candidates is not None and self._candidates <= 0)

    def left(self) -> Budget:
        """Return what is left: more than nothing, unless it is `spent`."""
        return Budget(None if self._end is None else max(self._end - time.monotonic(), 1e-3), self._candidates)


_ON_REQUEST = (
    "it is not called to be measured, since it is a Python task without variants, which may act on more than its "
    "arguments; graph.tune(everything=True) calls it"
)


def _cancelled(signature: Signature) -> Report:
    return _unmeasured(signature, Status.CANCELLED, "the budget was spent before its turn came")


def _unmeasured(signature: Signature, status: Status, message: str) -> Report:
    """Return the report of a signature whose variants were not called."""
    results = tuple(
        Result(candidate=candidate_of(signature, place), op=signature.label, status=status, message=message)
        for place in range(max(len(signature.declared), 1))
    )
    return Report(
        op=signature.label, key=signature.key, policy=POLICY, best=None, ties=(), results=results, default=results[0]
    )


@contextlib.contextmanager
def _session(
    processors: list[str], progress: Progress, init: Callable[[], object] | None, devices: Mapping[str, Device]
) -> Iterator[Executor]:
    from ostinato.runtime.calibrate import measure_device, measure_host
    from ostinato.tune.graphs.executor import Session

    measure_host(len(processors))  # what compile weighs the times of ops against
    for device in devices.values():
        with contextlib.suppress(DeviceError):  # its variants will tell
            measure_device(device)
    with Session(processors, policy=POLICY, progress=progress, init=init, accelerators=devices) as session:
        yield session


def _fleet(fleet: str, progress: Progress) -> Searcher:
    """Return what measures on one processor of each host: others on the same memory would be in its way."""
    from ostinato.tune.searching.tuner import Searcher

    return Searcher(OF_EACH_HOST, store=False, policy=POLICY, progress=progress, fleet=fleet)


@contextlib.contextmanager
def _session_of(searcher: Searcher, *about: object) -> Iterator[Executor]:
    from ostinato.tune.graphs.executor import Session

    with Session(policy=POLICY, fleet=searcher) as session:
        yield session


def _processors(machine: object) -> list[str]:
    """Return the CPUs on which to measure for a machine."""
    count = len(usable_cores())
    if machine is None:  # the default one, which need not be made for this
        return [f"cpu:{index}" for index in range(count)]
    from ostinato.runtime.machine import Machine

    if not isinstance(machine, Machine):
        raise TypeError(f"machine must be an ostinato.Machine, got {brief(machine)}")
    machine.workers.check_open()
    return [f"cpu:{index}" for index in range(min(len(machine.workers.cpus), count))]


def _devices(machine: Machine | None, kinds: frozenset[str] | None) -> dict[str, Device]:
    """Return the first device of each of these kinds that a machine has; None: of all kinds."""
    if kinds is not None and not kinds:
        return {}
    found = usable() if machine is None else machine.workers.devices()
    return {device.kind: device for device in reversed(found) if kinds is None or device.kind in kinds}


def _budget(budget: Any) -> Budget:
    if budget is None or isinstance(budget, Budget):
        return budget or Budget()
    if isinstance(budget, bool) or not isinstance(budget, Real):
        raise TypeError(f"budget must be a number of seconds or a Budget, got {budget!r}")
    return Budget(seconds=positive("budget", budget))


def _rtol(rtol: Any) -> float:
    if isinstance(rtol, bool) or not isinstance(rtol, Real):
        raise TypeError(f"rtol must be a number, got {rtol!r}")
    if not 0 <= float(rtol) < 1:
        raise ValueError(f"rtol must be at least 0 and less than 1, got {rtol!r}")
    return float(rtol)
