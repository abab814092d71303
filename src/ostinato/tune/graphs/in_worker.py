"""Variants that other processes can import, measured in the worker process of a tuner: both ends of it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np

from ostinato.graph.variant import Variant
from ostinato.runtime.machine import Machine
from ostinato.tune.candidate import Candidate
from ostinato.tune.graphs.benchmark import Comparison, Failure, Incomparable, MemoryFailure, Subject
from ostinato.tune.graphs.payload import Received, Shipment, Stale, Unshippable, receive
from ostinato.tune.graphs.workload import Problem, Unmeasurable
from ostinato.tune.process.scratch import Scratch
from ostinato.tune.status import Status
from ostinato.tune.trial import Trial

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ostinato.tune.graphs.cost_store import Keeping
    from ostinato.tune.graphs.signature import Case
    from ostinato.tune.policy import Budget
    from ostinato.tune.report.report import Report
    from ostinato.tune.tuner import Tuner

__all__ = ["Inputs", "check", "measure_isolated", "setup", "subject", "write_passed"]

_WORKER = "ostinato.tune.graphs.in_worker"
_SAID = {
    AssertionError.__name__: Status.WRONG_RESULT,
    Incomparable.__name__: Status.INVALID,
    Unmeasurable.__name__: Status.INVALID,
    Failure.__name__: Status.CRASH,
    MemoryFailure.__name__: Status.OOM,
}
"""What becomes of variants by what is raised for them."""


def measure_isolated(
    case: Case,
    candidates: Sequence[Candidate],
    *,
    tuner: Callable[[], Tuner],
    rtol: float,
    budget: Budget,
    keeping: Keeping | None = None,
) -> Report:
    """Measure the variants of a case in a worker process: whatever they do there costs them no more than their result.

    Parameters
    ----------
    case
        The case.
    candidates
        What stands for its variants in the report, in their order: the default first.
    tuner
        Gives the tuner whose worker it is.
    rtol, budget
        What part outputs may differ by, and what all may take.
    keeping
        As for `measure`.

    Raises
    ------
    Unshippable
        Another process could not make the same of the case.
    """
    try:
        calls = [
            Candidate.call(f"{_WORKER}:subject", candidate.config, setup=f"{_WORKER}:setup") for candidate in candidates
        ]
    except ValueError as error:
        raise Unshippable(str(error)) from None
    shipment = Shipment(case, rtol)
    scratch = Scratch()
    try:
        directory = scratch.directory("case")
        shipment.write(directory)
        default, verify = calls[0], f"{_WORKER}:check" if len(calls) > 1 else None
        measuring = tuner()
        kept = None
        if keeping is not None:
            seconds, memory = measuring.limits
            kept = keeping(default=default.id, said=_SAID, verify=verify, seconds=seconds, memory=memory)
            if kept.find(Trial(default)) is not None:
                write_passed(directory)
        report = measuring.tune(
            case.label,
            calls,
            key=case.key,
            default=default,
            verify=verify,
            budget=budget,
            data=directory,
            known=kept,
        )
    finally:
        scratch.remove()
    for result in report.results:
        kind, _, message = result.message.partition(": ")
        if kind in _SAID:
            result.message, result.status = message, _SAID[kind]
        elif result is report.default and result.status is Status.INVALID:
            why = message if kind == Stale.__name__ else f"no worker process can make the call: {result.message}"
            raise Unshippable(why)
    return report


_PASSED = "default-passed"

_FREED = 31 << 20
"""Just less than glibc never keeps."""

_machine: Machine | None = None


class Inputs:
    """A case, and what its variants share in this process."""

    __slots__ = ("case", "comparison", "directory", "machine", "problem")

    def __init__(self, case: Received, directory: str, machine: Machine) -> None:
        self.case = case
        self.directory = directory
        self.machine = machine
        self.problem = Problem(case.ops[0])
        self.comparison = Comparison(self.problem, case.ops[1:], case.variants[0], case.rtol, machine)


class _Compared(Subject):
    """A variant that knows what it is compared with."""

    __slots__ = ("_inputs", "_variant")

    def __init__(self, inputs: Inputs, variant: Variant) -> None:
        super().__init__(inputs.problem, variant, inputs.machine)
        self._inputs = inputs
        self._variant = variant

    def compare(self) -> str:
        """Say in what it differs from the default.

        Raises
        ------
        Incomparable
            There is nothing to compare with.
        Failure
            It failed.
        """
        inputs = self._inputs
        is_default = self._variant is inputs.case.variants[0]
        if not is_default and not os.path.exists(os.path.join(inputs.directory, _PASSED)):
            raise Incomparable("there is nothing to compare with: the default failed")
        found = inputs.comparison.difference(self._variant)
        if is_default:
            write_passed(inputs.directory)
        return found


def write_passed(directory: str) -> None:
    """Say, in the directory of a case, that its default works, so that variants can be compared with it."""
    with open(os.path.join(directory, _PASSED), "wb"):
        pass


def setup(key: dict[str, Any], directory: str) -> Inputs:
    """Read the case whose files are in a directory."""
    global _machine
    if _machine is None:
        _machine = Machine(cpus=1)
        # What glibc keeps of freed memory grows with what was freed; in a process that is new, every large temporary
        # would be memory that the kernel has to clear, as it is not where programs run.
        np.empty(_FREED, np.uint8)
    return Inputs(receive(directory), directory, _machine)


def subject(inputs: Inputs, variant: str = "", **config: Any) -> Subject:
    """Return what is timed of the variant of this name and configuration."""
    for each in inputs.case.variants:
        if each.name == variant and dict(each.config) == config:
            return _Compared(inputs, each)
    raise LookupError(f"there is no variant {variant!r} of this configuration")


def check(outputs: _Compared, key: dict[str, Any]) -> None:
    """Raise if a variant does not do what the default does."""
    difference = outputs.compare()
    if difference:
        raise AssertionError(difference)
