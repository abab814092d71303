"""Tasks that are command lines, one at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ostinato.tune.candidate import Command
from ostinato.tune.outcome import Outcome
from ostinato.tune.process.command import CommandRun
from ostinato.tune.process.loop import Loop, Timer
from ostinato.tune.process.protocol import Reading
from ostinato.tune.process.reaper import Exited, Lost, Reaper, Stuck
from ostinato.tune.slots.simulated_command import SimulatedCommands
from ostinato.tune.status import Status
from ostinato.tune.trial import Task

__all__ = ["Commands"]

_CRASH = (Status.CRASH, "the simulated device crashed")


class Commands:
    """Runs tasks as command lines under a reaper; the parameters are those of `ostinato.tune.slots.calls.Calls`."""

    def __init__(
        self,
        loop: Loop,
        reaper: Reaper,
        memory: int | None,
        simulated: SimulatedCommands | None = None,
        *,
        finished: Callable[[Task, Outcome, float], None],
        lost: Callable[[Stuck | Lost], None],
    ) -> None:
        self._loop = loop
        self._reaper = reaper
        self._memory = memory
        self._simulated = simulated
        self._finished = finished
        self._lost = lost
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
        self._moment = self._loop.now()
        self._run = CommandRun(
            self._loop,
            self._reaper,
            candidate.filled((candidate.build or ()) if build else candidate.argv, scratch),
            env={**environment, "OSTINATO_SCRATCH": scratch, **dict(zip(candidate.env, values, strict=True))},
            cwd=candidate.cwd,
            seconds=task.seconds,
            memory=self._memory,
            reading=None if build else Reading(task.op, iterations=candidate.iterations),
            ended=self._ended,
        )
        if self._simulated is not None and self._simulated.crashes(candidate.id):
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
            self._lost(run.event)
            return
        if self._simulated is None or outcome.status is not Status.OK:
            self._finish(outcome)
            return
        candidate, end = task.trial.candidate.id, self._loop.now() + self._simulated.latency
        # What it took is the reaper's to say: this process may have been stopped meanwhile.
        left = task.seconds - (run.event.seconds if run is not None and isinstance(run.event, Exited) else 0.0)
        if self._simulated.crashes(candidate):  # it ended before it was killed
            self._finish(Outcome(_CRASH[0], (), _CRASH[1]))
            return
        if self._simulated.hangs(candidate) or self._simulated.latency > left:
            end = self._loop.now() + left
            outcome = Outcome(Status.HANG_KILLED, (), f"still running after {task.seconds:g} s, killed")
        else:
            outcome = self._simulated.slowed(candidate, outcome, end)
        self._rest = self._loop.at(end, lambda: self._finish(outcome))

    def _finish(self, outcome: Outcome) -> None:
        task, self._task, self._rest = self._task, None, None
        assert task is not None
        self._finished(task, outcome, self._moment)
