"""Variants that no other process can be given, measured in this one by the rules of a search."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from time import perf_counter
from typing import TYPE_CHECKING

from ostinato.runtime.machine import Machine
from ostinato.tune.graphs.benchmark import Benchmark, Comparison, Failure, Incomparable, benchmark_of, variants_in
from ostinato.tune.graphs.workload import Unmeasurable, Workload
from ostinato.tune.leases.lease import Lease
from ostinato.tune.outcome import OpOutcome, Outcome, Status
from ostinato.tune.racing.race import Race
from ostinato.tune.report.report import Report
from ostinato.tune.result import Span
from ostinato.tune.searching.results import Results
from ostinato.tune.stopping import Stopping
from ostinato.tune.store.key import environment
from ostinato.tune.trial import Trial
from ostinato.tune.worker.channel import measure_here
from ostinato.tune.worker.sampling import sampled
from ostinato.tune.worker.timers import CpuTimer, Flusher, Preemption, before_sample, calls_per_sample

if TYPE_CHECKING:
    from ostinato.devices.device import Device as UsableDevice
    from ostinato.graph.variant import Variant
    from ostinato.tune.graphs.cost_store import Kept
    from ostinato.tune.graphs.executor import Request
    from ostinato.tune.leases.device import Device
    from ostinato.tune.policy import Policy
    from ostinato.tune.progress import Progress

__all__ = ["InProcess"]

_REPEATS = 3  # of turns of the final that say nothing, one after the other


class InProcess:
    """Measures on the calling thread, which leases the device meanwhile: an `Executor`.

    A variant that raises has failed, like one that computes something else. But nothing protects this process from a
    variant that never returns, ends the process or writes where it should not. The thread is bound to the device's core
    while samples are taken. `on` is the device of this process that variants for its kind run on; None for CPUs.
    """

    def __init__(self, device: Device, policy: Policy, progress: Progress, on: UsableDevice | None = None) -> None:
        self.device = device
        self.policy = policy
        self.progress = progress
        self.on = on

    def measure(self, request: Request) -> Report:
        """Measure the variants of a signature."""
        signature, kept = request.signature, None
        if request.keeping is not None:
            default = request.candidates[0].id if signature.has_default else None
            kept = request.keeping(default=default, seconds=math.inf)
        search = _Search(self, request, kept)
        report = None
        self.progress.begin(signature.label, len(request.candidates))
        try:
            search.run()
            report = search.report()
            return report
        finally:
            if kept is not None:
                kept.commit(last=True)
            self.progress.end(report)


class _Search:
    def __init__(self, executor: InProcess, request: Request, kept: Kept | None) -> None:
        signature, candidates, budget = request.signature, request.candidates, request.budget
        self._signature = signature
        self._kept = kept
        self._on = executor.on
        self._trials = [Trial(candidate) for candidate in candidates]
        self._variants: dict[str, Variant] = {
            candidate.id: variant for candidate, variant in zip(candidates, variants_in(signature), strict=True)
        }
        self._device = executor.device
        self._policy = executor.policy
        self._rtol = request.rtol
        self._progress = executor.progress
        self._begin = perf_counter()
        self._end = float("inf") if budget.seconds is None else self._begin + budget.seconds
        self._most = len(candidates) if budget.candidates is None else budget.candidates
        self._race = Race(default=None, policy=self._policy)
        default = candidates[0].id if signature.has_default else None
        self._results = Results(signature.label, default, True, self._race, self._progress)
        self._spans: list[Span] = []
        self._benchmarks: dict[str, Benchmark] = {}

    def run(self) -> None:
        """Measure every variant, and then those that may have won in turns."""
        try:
            with self._device_alone(), Machine(cpus=1) as self._machine, closing(Preemption()) as self._preemption:
                self._timer = CpuTimer()
                self._flush = Flusher() if self._policy.cache == "cold" else None
                self._screen()
                self._confirm()
        finally:
            for benchmark in self._benchmarks.values():
                benchmark.close()
        self._cancel(Status.CANCELLED, "the budget of time was spent" if self._spent else "the budget was spent")

    def report(self) -> Report:
        """Return what was found."""
        ties = tuple(self._results.result(*entry) for entry in self._race.verdict().ties)
        return Report(
            op=self._signature.label,
            key=dict(self._signature.key),
            policy=self._policy,
            best=ties[0] if ties else None,
            ties=ties,
            results=self._results.in_order([trial.candidate.id for trial in self._trials]),
            default=self._results.default(),
            seconds=perf_counter() - self._begin,
            spans=tuple(self._spans),
            environment=environment([self._device]),
        )

    @property
    def _spent(self) -> bool:
        return perf_counter() >= self._end

    def _screen(self) -> None:
        try:
            self._workload = Workload(self._signature.op)
            others = self._signature.checked[1:]
            default = self._signature.reference or self._variants[self._trials[0].candidate.id]
            self._comparison = Comparison(self._workload, others, default, self._rtol, self._machine, self._on)
            if not self._signature.has_default:
                self._comparison.difference(default)
        except (Failure, Incomparable) as error:
            self._cancel(Status.INVALID, f"there is nothing to compare with: the task itself failed: {error}")
            return
        except (Unmeasurable, MemoryError) as error:
            self._cancel(Status.OOM if isinstance(error, MemoryError) else Status.INVALID, str(error))
            return
        contended = []
        for trial in self._trials[: self._most]:
            if self._spent:
                return
            outcome = self._known(trial) or self._screened(trial)
            wrong = outcome.status not in (Status.OK, Status.CONTENDED)
            if wrong and self._signature.has_default and trial is self._trials[0]:
                self._cancel(Status.INVALID, "there is nothing to compare with: the default failed")
                return
            if outcome.status is Status.CONTENDED:
                contended.append(trial)
        for trial in (*contended, *self._results.revived()):
            if not self._spent:
                self._screened(trial)

    def _known(self, trial: Trial) -> Outcome | None:
        """Return what a variant came to when the signature was begun before; None if it must be measured."""
        found = None if self._kept is None else self._kept.find(trial)
        if found is None:
            return None
        device, outcome = found
        self._results.record(trial, outcome, device, cached=True)
        return outcome

    def _screened(self, trial: Trial) -> Outcome:
        """Measure a variant, and keep what it came to unless the budget cut it short."""
        outcome = self._measure(trial, self._policy, "measure")
        self._results.record(trial, outcome, self._device.name)
        if self._kept is not None and not self._spent:
            self._kept.add(trial, outcome, self._device.name)
            self._kept.commit()
        return outcome

    def _confirm(self) -> None:
        """Measure the finalists in turns; as in a search, no longer than all before, once it can be told who won."""
        device, failures = self._device.name, 0
        end = perf_counter() + max(perf_counter() - self._begin, self._policy.max_seconds)
        while failures < _REPEATS and not self._spent and (due := self._race.finalists()):
            if perf_counter() > end and self._race.decided:
                break
            trial = self._results.trial(due[0][0])
            outcome = self._measure(trial, self._race.turn, "final")
            if outcome.status is Status.OK:
                self._results.turned(trial.candidate.id, outcome.ops[0], device)
            elif outcome.status is not Status.CONTENDED:
                self._results.record(trial, outcome, device)
            failures = failures + 1 if self._race.finalists()[:1] == due[:1] else 0
        for _ in self._results.confirmed():  # adds the turns to the results
            pass

    def _measure(self, trial: Trial, policy: Policy, what: str) -> Outcome:
        candidate, device = trial.candidate, self._device.name
        self._progress.running(device, candidate, what)
        begin = perf_counter() - self._begin
        bound = None if what == "final" else self._race.bound(device)
        try:
            outcome = self._sampled(trial, policy, bound)
        except (Failure, MemoryError) as error:
            outcome = Outcome(Status.OOM if isinstance(error, MemoryError) else Status.CRASH, (), str(error))
        except (Incomparable, Unmeasurable) as why:
            outcome = Outcome(Status.INVALID, (), str(why))
        self._spans.append(Span(device, what, candidate, begin, perf_counter() - self._begin, outcome.status))
        self._progress.idle(device)
        return outcome

    def _sampled(self, trial: Trial, policy: Policy, bound: float | None) -> Outcome:
        """Measure a variant as a worker does."""
        benchmark = self._benchmarks.get(trial.candidate.id)
        if benchmark is None:
            variant = self._variants[trial.candidate.id]
            benchmark = benchmark_of(self._workload, variant, self._machine, self._on)
            self._benchmarks[trial.candidate.id] = benchmark
        before = before_sample(benchmark)
        if before is not None:
            before()
        benchmark()
        variant = self._variants[trial.candidate.id]
        difference = self._difference(variant)
        if difference:
            return Outcome(Status.WRONG_RESULT, (), difference)
        timer, calls, before = self._timer, calls_per_sample(benchmark), before_sample(benchmark, self._flush)
        timer.begin(benchmark, before is not None)
        stopping = Stopping(policy.rel_ci, policy.min_samples, bound, timer.resolution / calls)
        seconds = max(0.0, min(policy.max_seconds, self._end - perf_counter()))
        # While a device computes this thread waits; that others run meanwhile takes nothing from it.
        waited = self._preemption.waited if self._on is None else lambda: 0
        with self._bound():
            samples = sampled(timer, stopping, seconds, waited, before, calls)
        status = Status.CONTENDED if samples.contended else Status.RACED if samples.verdict == "raced" else Status.OK
        if status is Status.OK:
            difference = self._difference(variant)
        if difference:
            return Outcome(Status.WRONG_RESULT, (), difference)
        found = OpOutcome(
            op=self._signature.label,
            status=status,
            samples=tuple(samples.ns),
            contended=samples.flagged,
            overhead_ns=timer.overhead / calls,
        )
        return Outcome(status, (found,))

    def _difference(self, variant: Variant) -> str:
        return self._comparison.difference(variant) if len(self._signature.compared) > 1 else ""

    def _cancel(self, status: Status, message: str) -> None:
        """Say what became of those that have no result."""
        for trial in self._trials:
            if not self._results.knows(trial):
                self._results.record(trial, Outcome(status, (), message), None)

    @contextmanager
    def _device_alone(self) -> Iterator[None]:
        """Lease the device."""
        measure_here()
        with ExitStack() as stack:
            stack.callback(os.sched_setaffinity, 0, os.sched_getaffinity(0))  # variants may change it, too
            lease = Lease(self._device)
            stack.callback(lease.release)
            try:
                timeout = None if self._end == float("inf") else max(0.0, self._end - perf_counter())
                lease.acquire(timeout, lambda holder: self._progress.waiting(self._device.name, str(holder)))
            except TimeoutError:
                self._end = self._begin  # nothing will be measured
            yield

    @contextmanager
    def _bound(self) -> Iterator[None]:
        """Bind the thread to the device.

        Only while samples are taken: threads that a library starts in the first call of a task, and keeps, would be
        bound for ever.
        """
        cores = os.sched_getaffinity(0)
        try:
            os.sched_setaffinity(0, self._device.cores or cores)
            yield
        finally:
            os.sched_setaffinity(0, cores)
