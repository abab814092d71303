"""One application: what its contestants start from, what they compute, and how equal their results must be."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from benchmarks.applications.peers import SCHEDULERS, Advance, Here, Stages

OURS, PLAIN = "ostinato", "NumPy"
#: Prepares a contestant on data of its own, and gives what runs steps.
Start = Callable[[Here], Advance]


class Application(ABC):
    """An application of one size."""

    case: str  # in tables
    unit = "us/step"
    multiple = 1  # all run a multiple of so many steps
    tolerance: float = 0.0  # relative to the largest number of the result; 0 means bit for bit
    loose: ClassVar[Mapping[str, float]] = {}  # contestants that take sums in another order, and their tolerances
    blas: ClassVar[Mapping[str, int]] = {}  # threads in one call of BLAS, where it is not one

    @abstractmethod
    def contestants(self) -> Mapping[str, Start]:
        """Return what is compared; the first one is the reference of all results."""

    @abstractmethod
    def stages(self) -> tuple[Any, Stages]:
        """Return the array that holds the result, and the calls of `multiple` steps."""

    def schedulers(self, names: tuple[str, ...] = tuple(SCHEDULERS)) -> dict[str, Start]:
        """Return the contestants that run the stages."""
        return {name: self.by(SCHEDULERS[name]) for name in names}

    def by(self, scheduler: Callable[[Here, Stages], Callable[[], None]]) -> Start:
        """Return the contestant that runs the stages with a scheduler."""

        def start(here: Here) -> Advance:
            result, stages = self.stages()
            run = scheduler(here, stages)

            def advance(steps: int) -> Any:
                for _ in range(steps // self.multiple):
                    run()
                return result

            return advance

        return start
