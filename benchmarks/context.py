"""What every benchmark is given, and what it hands back."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import ostinato as ost
from benchmarks.measure import Contestant, Row, measure
from benchmarks.peers import Absent, Kernels, Peer


@dataclass
class Context:
    """The machine, the peers, and how long to measure; rows and absences are collected here."""

    machine: ost.Machine
    peers: dict[str, Peer]
    kernels: Kernels
    quick: bool
    absent: list[Absent]
    before: Path | None = None  # the interpreter of an environment with another version of Ostinato
    cases: tuple[str, ...] = ()  # only those whose names contain one of these; all if empty
    versions: dict[str, str] = field(default_factory=dict)  # of what is found out only when it is measured
    rows: list[Row] = field(default_factory=list)

    @property
    def rounds(self) -> int:
        """Samples per contestant."""
        return 3 if self.quick else 11

    @property
    def seconds(self) -> float:
        """Length of a sample."""
        return 0.004 if self.quick else 0.012

    def wants(self, case: str) -> bool:
        """Return whether a case is to be measured."""
        return not self.cases or any(part in case for part in self.cases)

    def measure(self, contestants: list[Contestant]) -> None:
        """Measure contestants in turn."""
        measure(contestants, rounds=self.rounds, seconds=self.seconds)

    def compare(
        self, benchmark: str, case: str, contestants: list[Contestant], reference: str, unit: str = "ns/task"
    ) -> None:
        """Measure contestants in turn and keep their rows."""
        self.measure(contestants)
        self.rows += [Row(benchmark, case, c.name, unit, tuple(c.samples), reference) for c in contestants]
