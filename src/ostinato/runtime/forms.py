"""Compiled forms of one program, of which one at a time takes runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from ostinato import _core
from ostinato.choices import Runs
from ostinato.compiler.lower.lower import lower_scheduled
from ostinato.runtime.results import ProgramStatistics, counted

if TYPE_CHECKING:
    from ostinato.compiler.costs import Costs
    from ostinato.compiler.ir import Executable
    from ostinato.compiler.lower.tables import Lowered
    from ostinato.runtime.machine import Machine
    from ostinato.runtime.program import Program
    from ostinato.runtime.rebind import Rebinding

__all__ = ["Form", "Forms"]


class Form:
    """What became of a graph: a schedule, the plan for it, and the program in the core.

    Parameters
    ----------
    machine
        What it is for.
    executable
        The schedule.
    binding
        Which arrays stand for those captured.
    runs
        How runs relate.
    other
        Another form of the same program, which may have run.
    """

    __slots__ = ("_last", "_processors", "core", "executable", "lowered")

    def __init__(
        self, machine: Machine, executable: Executable, binding: Rebinding | None, runs: Runs, other: Form | None
    ) -> None:
        outside = None if other is None else other.lowered.outside
        self.executable: Executable = executable
        machine._check_usable(executable)
        self._last: dict[str, Any] | None = None
        self._processors = len(machine._cpus)
        self.lowered: Lowered = lower_scheduled(executable, self._processors, binding, outside)
        kind = "serial" if runs == "serial" else "pipelined"
        self.core: _core.Program = _core.Program(machine._core, executable.core, self.lowered.plan, kind)
        if other is not None:
            self.core.stand_by()

    def rebind(self, detached: Executable, binding: Rebinding) -> None:
        """Run on other arrays from the next run on; the nodes of `detached` need not hold the old arrays."""
        self.executable = self.executable.on_nodes_of(detached)
        lowered = self.lowered
        self.lowered = lower_scheduled(self.executable, self._processors, binding, lowered.outside, lowered.streams)
        self.core.rebind(self.lowered.plan)

    def statistics(self) -> dict[str, Any]:
        """Return its counters."""
        return counted(self.core, self.lowered) if self._last is None else self._last

    def let_go(self, *, counted: bool) -> None:
        """Forget the plan, and with it the arrays; unless `counted`, as in a forked child, the counters too."""
        if counted:
            self._last = self.statistics()
        self.lowered = cast("Lowered", None)


class Forms:
    """The forms that a program has while it is retuned.

    Which of them takes runs is the core's knowledge; the program follows it. A form takes the place of another one
    where neither has runs in flight, at once: whoever submits meanwhile is sent on to it.

    Parameters
    ----------
    program
        The program.
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        with program._lock:
            earlier, program._unsettled = program._unsettled, None
            present = program._serving_form() if earlier is None else earlier.present
        self.present: Form = present
        """The one that is to stay."""

    def add(self, executable: Executable) -> Form:
        """Add a form of the same ops with another schedule."""
        program = self.program
        with program._lock:
            program._check_open()
            present = self.present.executable
            form = program._form(executable.on_nodes_of(present))
            program._forms.append(form)
            return form

    def learn(self, costs: Costs, step_seconds: float) -> None:
        """Let the form that is to stay know what its ops take, and what by that its step takes."""
        program = self.program
        with program._lock:
            program._check_open()
            executable = self.present.executable
            self.present.executable = executable.with_costs(costs, step_seconds)
            if self.present.core is program._core:
                program._use(self.present)

    def enter(self, form: Form) -> bool:
        """Let a form take runs from now on; False if it cannot, since another one has runs in flight."""
        with self.program._lock:
            self.program._check_open()
            return self._enter(form)

    def finish(self) -> None:
        """Drop all forms but the one that is to stay, now, or else as soon as that can take the place of the others."""
        with self.program._lock:
            self._finish()

    def settle(self) -> None:
        """Do what was left to do, unless that has been done, or another retuning has begun."""
        with self.program._lock:
            if self.program._unsettled is self:
                self._finish()

    def _enter(self, form: Form) -> bool:
        program = self.program
        serving = program._serving_form()
        if serving is not form and not form.core.take_over(serving.core):
            return False
        program._use(form)
        return True

    def _finish(self) -> None:
        program = self.program
        if program._closed:
            return
        if not self._enter(self.present):
            program._wait_to_settle(self)
            return
        for form in [form for form in program._forms if form is not self.present]:
            program._forms.remove(form)
            program._former.append({**form.statistics(), "core_bytes": 0})
            form.core.close()
        if len(program._former) > 1:  # as many as ever were
            program._former = [ProgramStatistics.sum(program._former)._asdict()]
        program._wait_to_settle(None)
