"""What a simulated device does to commands that really run; `worker/simulated.py` does it to callables."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from ostinato.tune.lease.device import Simulation
from ostinato.tune.outcome import Outcome
from ostinato.tune.status import Status

__all__ = ["SimulatedCommands"]


class SimulatedCommands:
    """What a simulated device does to commands.

    Parameters
    ----------
    device
        Its name: part of every seed.
    declared
        What it is declared to do.
    begin
        The moment from which it drifts.

    Examples
    --------
    >>> from ostinato.tune.lease.device import Simulation
    >>> from ostinato.tune.outcome import OpOutcome
    >>> device = SimulatedCommands("sim:a", Simulation(latency=1e-9), 0.0)
    >>> ran = Outcome(Status.OK, (OpOutcome("sum", Status.OK, (10.0,)),))
    >>> device.crashes("some candidate"), device.slowed("some candidate", ran, 3.0).ops[0].samples
    (False, (11.0,))
    """

    def __init__(self, device: str, declared: Simulation, begin: float) -> None:
        self.latency = declared.latency
        self._device = device
        self._declared = declared
        self._begin = begin
        self._runs = 0

    def crashes(self, candidate: str) -> bool:
        """Whether the candidate dies on this device: each time or never."""
        return self._random("crash", candidate).random() < self._declared.crash

    def hangs(self, candidate: str) -> bool:
        """Whether the candidate never ends on this device: each time or never."""
        return self._random("hang", candidate).random() < self._declared.hang

    def slowed(self, candidate: str, outcome: Outcome, now: float) -> Outcome:
        """Return an outcome with the times that it has on this device."""
        self._runs += 1
        random = self._random(str(self._runs), candidate)
        drift = 1 + self._declared.drift * (now - self._begin)

        def sample(own: float) -> float:
            return (own + self.latency * 1e9) * drift * max(1 + self._declared.noise * random.gauss(0, 1), 1e-3)

        ops = tuple(
            replace(op, samples=tuple(map(sample, op.samples))) if op.status is Status.OK else op for op in outcome.ops
        )
        return replace(outcome, ops=ops)

    def _random(self, what: str, candidate: str) -> Random:
        return Random(f"{self._device}/{candidate}/{what}")
