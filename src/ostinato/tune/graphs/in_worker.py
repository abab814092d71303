"""Variants that other processes can import, measured in the worker process of a tuner: both ends of it."""

from __future__ import annotations

import dataclasses
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ostinato.graph.variant import Variant
from ostinato.runtime.machine import Machine
from ostinato.tune.candidate import Candidate
from ostinato.tune.graphs.benchmark import Benchmark, Comparison, Failure, Incomparable, MemoryFailure
from ostinato.tune.graphs.payload import Payload, Received, Stale, Unsendable, receive
from ostinato.tune.graphs.workload import Unmeasurable, Workload
from ostinato.tune.outcome import Status
from ostinato.tune.trial import Trial
from ostinato.tune.workers.scratch import Scratch

if TYPE_CHECKING:
    from collections.abc import Callable

    from ostinato.tune.graphs.executor import Request
    from ostinato.tune.report.report import Report
    from ostinato.tune.searching.tuner import Searcher

_WORKER = "ostinato.tune.graphs.in_worker"
_SAID = {
    AssertionError.__name__: Status.WRONG_RESULT,
    Incomparable.__name__: Status.INVALID,
    Unmeasurable.__name__: Status.INVALID,
    Failure.__name__: Status.CRASH,
    MemoryFailure.__name__: Status.OOM,
}
"""What becomes of variants by what is raised for them."""


def measure_in_worker(request: Request, make_searcher: Callable[[], Searcher]) -> Report:
    """Measure the variants in a worker process of a searcher, where a crash costs no more than the result.

    Raise `Unsendable` if another process could not make the same of the signature; else the searcher is made.
    """
    signature = request.signature
    try:
        calls = [
            Candidate.call(f"{_WORKER}:benchmark", candidate.config, setup=f"{_WORKER}:setup")
            for candidate in request.candidates
        ]
    except ValueError as error:
        raise Unsendable(str(error)) from None
    payload = Payload(signature, request.rtol)
    scratch = Scratch()
    try:
        directory = scratch.directory("signature")
        payload.write(directory)
        default, verify = calls[0], f"{_WORKER}:check" if len(calls) > 1 else None
        searcher = make_searcher()
        kept = None
        if request.keeping is not None:
            seconds, memory = searcher.limits
            kept = request.keeping(default=default.id, said=_SAID, verify=verify, seconds=seconds, memory=memory)
            if kept.find(Trial(default)) is not None:
                write_passed(directory)
        search = partial(
            searcher.tune, signature.label, key=signature.key, default=default, verify=verify, data=directory
        )
        if searcher.hosts and verify is not None and not Path(directory, _PASSED).exists():
            # Each host gets these files as they are now, and on each the default must be known to work.
            first = search(calls[:1], budget=dataclasses.replace(request.budget, candidates=None))
            if first.best is not None:
                write_passed(directory)
        report = search(calls, budget=request.budget, known=kept)
    finally:
        scratch.remove()
    _translate(report)
    return report


def _translate(report: Report) -> None:
    """Replace the statuses that the tuner has for exceptions by those that they stand for."""
    for result in report.results:
        kind, _, message = result.message.partition(": ")
        if kind in _SAID:
            result.message, result.status = message, _SAID[kind]
        elif result is report.default and result.status is Status.INVALID:
            why = message if kind == Stale.__name__ else f"no worker process can make the call: {result.message}"
            raise Unsendable(why)


_PASSED = "default-passed"

_FREED = 31 << 20
"""Just less than glibc never keeps."""

_machine: Machine | None = None


class Inputs:
    """A signature, and what its variants share in this process."""

    def __init__(self, signature: Received, directory: str, machine: Machine) -> None:
        self.signature = signature
        self.directory = directory
        self.machine = machine
        self.workload = Workload(signature.ops[0])
        self.comparison = Comparison(self.workload, signature.ops[1:], signature.variants[0], signature.rtol, machine)


class _Compared(Benchmark):
    """A variant that knows what it is compared with."""

    __slots__ = ("_inputs", "_variant")

    def __init__(self, inputs: Inputs, variant: Variant) -> None:
        super().__init__(inputs.workload, variant, inputs.machine)
        self._inputs = inputs
        self._variant = variant

    def compare(self) -> str:
        """Say in what it differs from the default; raise `Incomparable` if there is nothing to compare with."""
        inputs = self._inputs
        is_default = self._variant is inputs.signature.variants[0]
        if not is_default and not Path(inputs.directory, _PASSED).exists():
            raise Incomparable("there is nothing to compare with: the default failed")
        found = inputs.comparison.difference(self._variant)
        if is_default:
            write_passed(inputs.directory)
        return found


def write_passed(directory: str) -> None:
    """Say, in the directory of a signature, that its default works, so that variants can be compared with it."""
    Path(directory, _PASSED).touch()


def setup(key: dict[str, Any], directory: str) -> Inputs:
    """Read the signature whose files are in a directory."""
    global _machine
    if _machine is None:
        _machine = Machine(cpus=1)
        # What glibc keeps of freed memory grows with what was freed; in a process that is new, every large temporary
        # would be memory that the kernel has to clear, as it is not where programs run.
        np.empty(_FREED, np.uint8)
    return Inputs(receive(directory), directory, _machine)


def benchmark(inputs: Inputs, variant: str = "", **config: Any) -> Benchmark:
    """Return what is timed of the variant of this name and configuration."""
    for each in inputs.signature.variants:
        if each.name == variant and dict(each.config) == config:
            return _Compared(inputs, each)
    raise LookupError(f"there is no variant {variant!r} of this configuration")


def check(outputs: _Compared, key: dict[str, Any]) -> None:
    """Raise if a variant does not do what the default does."""
    difference = outputs.compare()
    if difference:
        raise AssertionError(difference)
