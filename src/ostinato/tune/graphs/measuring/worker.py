"""What the tuner's workers import to measure the variants of a case that was sent to them."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from ostinato.graph.variant import Variant
from ostinato.runtime.machine import Machine
from ostinato.tune.graphs.measuring.comparison import Comparison, Incomparable
from ostinato.tune.graphs.measuring.problem import Problem
from ostinato.tune.graphs.measuring.shipment import Received, receive
from ostinato.tune.graphs.measuring.subject import Subject

__all__ = ["Inputs", "check", "setup", "subject", "write_passed"]

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
