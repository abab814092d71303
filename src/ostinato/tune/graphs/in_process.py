"""Variants that no other process can be given, measured in this one: a worker of the search that is this thread."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from typing import TYPE_CHECKING, Any

from ostinato.runtime.machine import Machine
from ostinato.tune.graphs.benchmark import Benchmark, Comparison, Failure, Incomparable, benchmark_of, variants_in
from ostinato.tune.graphs.workload import Unmeasurable, Workload
from ostinato.tune.outcome import OpOutcome, Outcome, Status
from ostinato.tune.racing.race import Race
from ostinato.tune.searching.queue import Queue, offers
from ostinato.tune.searching.results import Known
from ostinato.tune.searching.tuner import run_search
from ostinato.tune.stopping import Stopping
from ostinato.tune.store.key import Sources
from ostinato.tune.worker.channel import measure_here
from ostinato.tune.worker.sampling import sampled
from ostinato.tune.worker.timers import CpuTimer, Flusher, Preemption, before_sample, calls_per_sample
from ostinato.tune.workers.loop import Loop
from ostinato.tune.workers.slot import LeasedWorker
from ostinato.tune.workers.tasks import Tasks

if TYPE_CHECKING:
    from ostinato.devices.device import Device as UsableDevice
    from ostinato.graph.variant import Variant
    from ostinato.tune.graphs.executor import Request
    from ostinato.tune.leases.device import Device
    from ostinato.tune.policy import Policy
    from ostinato.tune.progress import Progress
    from ostinato.tune.report.report import Report
    from ostinato.tune.trial import Task


def measure_in_process(
    request: Request, device: Device, policy: Policy, progress: Progress, on: UsableDevice | None
) -> Report:
    """Measure the variants of a signature on the calling thread, which leases the device meanwhile.

    A variant that raises has failed, like one that computes something else. But nothing protects this process from a
    variant that never returns, ends the process or writes where it should not. `on` is the device of this process that
    variants for its kind run on; None for CPUs.
    """
    signature, candidates, budget = request.signature, request.candidates, request.budget
    default = candidates[0] if signature.has_default else None
    if request.keeping is None:
        label, sources = signature.label, Sources(None)
        known = Known(label, None, sources, answers=True, seconds=math.inf, memory=None, note=progress.note)
    else:
        known = request.keeping(default=None if default is None else default.id, seconds=math.inf)
    key, race = dict(signature.key), Race(default=None, policy=policy)
    with closing(Loop()) as loop:
        worker = _ThisThread(loop, request, device, on, policy.cache == "cold")
        return run_search(
            signature.label,
            key,
            Queue(offers(candidates, default), default, budget.candidates),
            race=race,
            loop=loop,
            workers=[worker],
            builders=[],
            tasks=Tasks(signature.label, key, None, policy, race.turn, seconds=math.inf, memory=None),
            known=known,
            checked=False,
            seconds=budget.seconds,
            progress=progress,
            clear=worker.close,
        )


class _ThisThread(LeasedWorker):
    """Measures when the loop calls it. The thread is bound to the device's core while samples are taken."""

    def __init__(self, loop: Loop, request: Request, device: Device, on: UsableDevice | None, cold: bool) -> None:
        super().__init__(loop, device, memory=None)
        self._signature = request.signature
        self._rtol = request.rtol
        self._on = on
        self._cold = cold
        self._end = math.inf if request.budget.seconds is None else loop.now() + request.budget.seconds
        self._names = [candidate.id for candidate in request.candidates]
        self._variants = dict(zip(self._names, variants_in(self._signature), strict=True))
        self._benchmarks: dict[str, Benchmark] = {}
        self._comparison: Comparison | None = None
        self._task: Task | None = None
        self._held = ExitStack()

    @property
    def busy(self) -> bool:
        return self._task is not None

    def room(self, call: bool, most: int = 1) -> bool:
        return not self.busy and super().room(call, most)

    def take_lease(self) -> str:
        holder = super().take_lease()
        if self.leased:
            measure_here()
            self._held.callback(os.sched_setaffinity, 0, os.sched_getaffinity(0))  # variants may change it, too
        return holder

    def start(self, task: Task) -> None:
        self._task = task
        self._timer = self._loop.at(self._loop.now(), self._run)

    def cancel(self) -> None:
        if self._task is not None:
            self._timer.cancel()
            task, self._task = self._task, None
            self._returned(self, [task], False)

    def release(self) -> None:
        self.close()

    def close(self) -> None:
        self._task = None
        self._held.close()
        super().close()

    def _run(self) -> None:
        task, began = self._task, self._loop.now()
        assert task is not None
        try:
            if self._comparison is None:
                self._open()
        except (Failure, Incomparable) as error:
            self._stop(f"there is nothing to compare with: the task itself failed: {error}", Status.INVALID)
            return
        except (Unmeasurable, MemoryError) as error:
            self._stop(str(error), Status.OOM if isinstance(error, MemoryError) else Status.INVALID)
            return
        try:
            outcome = self._measure(task.trial.candidate.id, json.loads(task.request))
        except (Failure, MemoryError) as error:
            outcome = Outcome(Status.OOM if isinstance(error, MemoryError) else Status.CRASH, (), str(error))
        except (Incomparable, Unmeasurable) as why:
            outcome = Outcome(Status.INVALID, (), str(why))
        self._task = None
        self._finished(self, task, outcome, began, self._loop.now())
        is_default = self._signature.has_default and task.trial.candidate.id == self._names[0]
        if is_default and task.what == "measure" and outcome.status not in (Status.OK, Status.CONTENDED):
            self._stop("there is nothing to compare with: the default failed", Status.INVALID)

    def _open(self) -> None:
        """Make what all measurements share; raise if there is nothing to compare with."""
        self._machine = self._held.enter_context(Machine(cpus=1))
        self._preemption = self._held.enter_context(closing(Preemption()))
        self._clock = CpuTimer()
        self._flush = Flusher() if self._cold else None
        signature = self._signature
        self._workload = Workload(signature.op)
        others, default = signature.checked[1:], signature.reference or self._variants[self._names[0]]
        comparison = Comparison(self._workload, others, default, self._rtol, self._machine, self._on)
        if not signature.has_default:
            comparison.difference(default)
        self._comparison = comparison

    def _measure(self, name: str, request: dict[str, Any]) -> Outcome:
        """Measure a variant as a worker does, for the same request."""
        variant, policy = self._variants[name], request["policy"]
        benchmark = self._benchmarks.get(name)
        if benchmark is None:
            benchmark = self._benchmarks[name] = benchmark_of(self._workload, variant, self._machine, self._on)
            self._held.callback(benchmark.close)
        before = before_sample(benchmark)
        if before is not None:
            before()
        benchmark()
        difference = self._difference(variant)
        if difference:
            return Outcome(Status.WRONG_RESULT, (), difference)
        timer, calls, before = self._clock, calls_per_sample(benchmark), before_sample(benchmark, self._flush)
        timer.begin(benchmark, before is not None)
        stopping = Stopping(policy["rel_ci"], policy["min_samples"], request["bound"], timer.resolution / calls)
        seconds = max(0.0, min(policy["max_seconds"], self._end - self._loop.now()))
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
        return Outcome(status, (found,), whole=self._loop.now() < self._end)

    def _difference(self, variant: Variant) -> str:
        assert self._comparison is not None
        return self._comparison.difference(variant) if len(self._signature.compared) > 1 else ""

    @contextmanager
    def _bound(self) -> Iterator[None]:
        """Bind the thread to the device.

        Only while samples are taken: threads that a library starts in the first call of a task, and keeps, would be
        bound for ever.
        """
        cores = os.sched_getaffinity(0)
        try:
            os.sched_setaffinity(0, self.device.cores or cores)
            yield
        finally:
            os.sched_setaffinity(0, cores)
