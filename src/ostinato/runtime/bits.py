"""Steps of a program that are run bit by bit, by one form of it or another."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

from ostinato.runtime.arguments import After, barriers_of, conditions
from ostinato.runtime.trace import trace_of

if TYPE_CHECKING:
    from ostinato import _core
    from ostinato.runtime.forms import Form, Forms
    from ostinato.view.trace import Trace

__all__ = ["Bits"]


class Bits:
    """Steps of a program that are run bit by bit, as one run would run them; what others submit may come between.

    Parameters
    ----------
    forms
        The forms of the program.
    steps, after, params
        As for `Program.replay`.
    clock
        Returns ns.
    """

    def __init__(
        self,
        forms: Forms,
        steps: int,
        after: After,
        params: Mapping[str, Any],
        clock: Callable[[], int] = time.perf_counter_ns,
    ) -> None:
        program = forms.program
        self._forms = forms
        self._program = program
        self._values = program._values(params)
        self._barriers = barriers_of(program._lowered, params)
        self._start = conditions(program._executable.preconditions, after)  # of the next run
        self._last: _core.Run | None = None
        self._clock = clock
        self.entrants: tuple[Form, ...] = (forms.present,)
        """What can be entered, by number."""
        self.left = steps
        """Steps that are left to run: none where `until` ended the run."""
        self.done = 0
        """Steps that were run."""

    def enter(self, program: int) -> bool:
        """Let one of the entrants run from now on; False if it cannot, since runs are in flight."""
        return self._forms.enter(self.entrants[program])

    def enter_present(self) -> None:
        """Let the form that is to stay run, if that can be: otherwise it will be later."""
        self._forms.enter(self._forms.present)

    def run(self, steps: int) -> float | None:
        """Run steps, and return the seconds that it took; None if fewer were to be run, or left."""
        if steps > self.left:
            return None
        run, seconds = self._one_run(steps, False)
        return seconds if run.steps == steps else None

    def trace(self, steps: int) -> Trace | None:
        """Run steps, and return their trace; None where the run ended with them."""
        run, _ = self._one_run(steps, True)
        return trace_of(self._program, run) if self.left else None

    def _one_run(self, steps: int, traced: bool) -> tuple[_core.Run, float]:
        program = self._program
        process_trace = program._process_trace
        run: _core.Run | None = None
        while run is None:
            begin = self._clock()
            run = self._try(steps, traced or process_trace is not None)
            seconds = (self._clock() - begin) * 1e-9
            if run is None:
                program._catch_up()
        if process_trace is not None:
            process_trace.watch(program, run)
        done = program._end(run)
        self._start = None, (None,) * len(self._start[1])
        self._last = run
        self.done += done
        self.left = 0 if run.met or done < steps else self.left - done
        return run, seconds

    def _try(self, steps: int, traced: bool) -> _core.Run | None:
        given = None
        if self._barriers or self._start != _NOTHING:
            given = (*self._start, self._barriers, -1, self._last)
        core = self._program._core
        return cast("_core.Run | None", core.replay_as_run(steps, 0, True, *self._values, given, traced))


_NOTHING = (None, ())
