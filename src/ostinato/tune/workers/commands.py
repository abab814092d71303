"""Tasks that are command lines, one at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from random import Random

from ostinato.tune.candidate import Command
from ostinato.tune.leases.device import Simulation
from ostinato.tune.outcome import Outcome, Status
from ostinato.tune.trial import Task
from ostinato.tune.workers.command import CommandRun
from ostinato.tune.workers.loop import Loop, Timer
from ostinato.tune.workers.protocol import Reading
from ostinato.tune.workers.reaper import Exited, Lost, Reaper, Stuck


@dataclass(eq=False)
class SimulatedCommands:
    """What a simulated device does to commands.

    `device` is its name, a part of every seed; `declared` is what it is declared to do; it drifts from `begin`.

    Examples
    --------
    >>> from ostinato.tune.leases.device import Simulation
    >>> from ostinato.tune.outcome import OpOutcome
    >>> device = SimulatedCommands("sim:a", Simulation(latency=1e-9), 0.0)
    >>> ran = Outcome(Status.OK, (OpOutcome("sum", Status.OK, (10.0,)),))
    >>> device.crashes("some candidate"), device.slowed("some candidate", ran, 3.0).ops[0].samples
    (False, (11.0,))
    """

    device: str
    declared: Simulation
    begin: float

    def __post_init__(self) -> None:
        self.latency = self.declared.latency
        self._runs = 0

    def crashes(self, candidate: str) -> bool:
        """Whether the candidate dies on this device: each time or never."""
        return self._random("crash", candidate).random() < self.declared.crash

    def hangs(self, candidate: str) -> bool:
        """Whether the candidate never ends on this device: each time or never."""
        return self._random("hang", candidate).random() < self.declared.hang

    def slowed(self, candidate: str, outcome: Outcome, now: float) -> Outcome:
        """Return an outcome with the times that it has on this device."""
        self._runs += 1
        random = self._random(str(self._runs), candidate)
        drift = 1 + self.declared.drift * (now - self.begin)

        def sample(own: float) -> float:
            return (own + self.latency * 1e9) * drift * max(1 + self.declared.noise * random.gauss(0, 1), 1e-3)

        ops = tuple(
            replace(op, samples=tuple(map(sample, op.samples))) if op.status is Status.OK else op for op in outcome.ops
        )
        return replace(outcome, ops=ops)

    def _random(self, what: str, candidate: str) -> Random:
        return Random(f"{self.device}/{candidate}/{what}")


_CRASH = (Status.CRASH, "the simulated device crashed")


@dataclass(eq=False)
class Commands:
    """Runs tasks as command lines under a reaper; the parameters are those of `ostinato.tune.workers.calls.Calls`."""

    loop: Loop
    reaper: Reaper
    memory: int | None
    simulated: SimulatedCommands | None
    finished: Callable[[Task, Outcome, float], None]
    lost: Callable[[Stuck | Lost], None]

    def __post_init__(self) -> None:
        self._task: Task | None = None
        self._moment = 0.0
        self._run: CommandRun | None = None
        self._rest: Timer | None = None  # of what a simulated device takes longer

    @property
    def busy(self) -> bool:
        return self._task is not None

    def start(self, task: Task, candidate: Command, environment: Mapping[str, str]) -> None:
        """Run `task`: its candidate's command, or what builds it."""
        assert self._task is None
        build = task.what == "build"
        scratch = task.trial.scratch or ""
        values = candidate.filled(tuple(candidate.env.values()), scratch)
        self._task = task
        self._moment = self.loop.now()
        self._run = CommandRun(
            self.loop,
            self.reaper,
            candidate.filled((candidate.build or ()) if build else candidate.argv, scratch),
            env={**environment, "OSTINATO_SCRATCH": scratch, **dict(zip(candidate.env, values, strict=True))},
            cwd=candidate.cwd,
            seconds=task.seconds,
            memory=self.memory,
            reading=None if build else Reading(task.op, iterations=candidate.iterations),
            ended=self._ended,
        )
        if self.simulated is not None and self.simulated.crashes(candidate.id):
            self._run.kill(*_CRASH)

    def cancel(self) -> None:
        """Kill what runs; it ends as cancelled."""
        if self._run is not None:
            self._run.kill(Status.CANCELLED)
        elif self._rest is not None:
            self._rest.cancel()
            self._finish(Outcome(Status.CANCELLED, ()))

    def close(self) -> None:
        """Forget what runs; closing the reaper ends it."""
        if self._run is not None:
            self._run.close()
        if self._rest is not None:
            self._rest.cancel()
        self._run = self._task = self._rest = None

    def _ended(self, outcome: Outcome) -> None:
        task, run, self._run = self._task, self._run, None
        assert task is not None
        if run is not None and isinstance(run.event, Stuck | Lost):
            self._finish(outcome)
            self.lost(run.event)
            return
        if self.simulated is None or outcome.status is not Status.OK:
            self._finish(outcome)
            return
        candidate, end = task.trial.candidate.id, self.loop.now() + self.simulated.latency
        # What it took is the reaper's to say: this process may have been stopped meanwhile.
        left = task.seconds - (run.event.seconds if run is not None and isinstance(run.event, Exited) else 0.0)
        if self.simulated.crashes(candidate):  # it ended before it was killed
            self._finish(Outcome(_CRASH[0], (), _CRASH[1]))
            return
        if self.simulated.hangs(candidate) or self.simulated.latency > left:
            end = self.loop.now() + left
            outcome = Outcome(Status.HANG_KILLED, (), f"still running after {task.seconds:g} s, killed")
        else:
            outcome = self.simulated.slowed(candidate, outcome, end)
        self._rest = self.loop.at(end, lambda: self._finish(outcome))

    def _finish(self, outcome: Outcome) -> None:
        task, self._task, self._rest = self._task, None, None
        assert task is not None
        self.finished(task, outcome, self._moment)
