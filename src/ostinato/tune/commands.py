"""Tasks that are command lines, one at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from ostinato.tune.candidate import Command
from ostinato.tune.command import CommandRun
from ostinato.tune.loop import Loop
from ostinato.tune.outcome import Outcome
from ostinato.tune.protocol import Reading
from ostinato.tune.reaper import Reaper
from ostinato.tune.status import Status
from ostinato.tune.trial import Task

__all__ = ["Commands"]

_OF_BUILDS = {
    Status.HANG_KILLED: Status.COMPILE_TIMEOUT,
    Status.CRASH: Status.COMPILE_ERROR,
    Status.INVALID: Status.COMPILE_ERROR,
    Status.BAD_OUTPUT: Status.COMPILE_ERROR,
}


class Commands:
    """Runs tasks as command lines under a reaper; the parameters are those of `ostinato.tune.calls.Calls`."""

    def __init__(
        self,
        loop: Loop,
        reaper: Reaper,
        memory: int | None,
        *,
        finished: Callable[[Task, Outcome, float], None],
        lost: Callable[[str], None],
    ) -> None:
        self._loop = loop
        self._reaper = reaper
        self._memory = memory
        self._finished = finished
        self._lost = lost
        self._run: CommandRun | None = None

    @property
    def busy(self) -> bool:
        return self._run is not None

    def start(self, task: Task, candidate: Command, environment: Mapping[str, str]) -> None:
        """Run `task`: its candidate's command, or what builds it."""
        assert self._run is None
        build = task.what == "build"
        scratch = task.trial.scratch or ""
        values = candidate.filled(tuple(candidate.env.values()), scratch)
        began = self._loop.now()
        self._run = CommandRun(
            self._loop,
            self._reaper,
            candidate.filled((candidate.build or ()) if build else candidate.argv, scratch),
            env={**environment, "OSTINATO_SCRATCH": scratch, **dict(zip(candidate.env, values, strict=True))},
            cwd=candidate.cwd,
            seconds=task.seconds,
            memory=self._memory,
            reading=None if build else Reading(task.op, iterations=candidate.iterations),
            ended=lambda outcome: self._ended(task, outcome, began),
        )

    def cancel(self) -> None:
        """Kill what runs; it ends as cancelled."""
        if self._run is not None:
            self._run.kill(Status.CANCELLED)

    def _ended(self, task: Task, outcome: Outcome, began: float) -> None:
        self._run = None
        if outcome.status is Status.DEVICE_LOST:
            self._lost(outcome.message)
        if task.what == "build":
            outcome = replace(outcome, status=_OF_BUILDS.get(outcome.status, outcome.status))
        self._finished(task, outcome, began)
