"""Whether tasks keep what they declare, and a replay gives what sequential execution gives."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from ostinato import _core
from ostinato.checking.checked_run import Subject, argument, operands_of, run_checked, writers
from ostinato.checking.closures import closed_over_by_tasks
from ostinato.checking.comparison import first_difference
from ostinato.checking.copies import MemoryCopy, Replacements, allocations, put_back, restore
from ostinato.checking.left_out import LeftOut, left_out
from ostinato.compiler.lower.lower import lower
from ostinato.errors import ContractError
from ostinato.graph.arrays import Array
from ostinato.graph.op import Op, format_op
from ostinato.graph.task import name_of
from ostinato.runtime.memory import contents, root_of
from ostinato.runtime.outcome import deliver, outcome, wait_for_all
from ostinato.runtime.results import Verified
from ostinato.runtime.sequential import AsCaptured
from ostinato.text import counted

if TYPE_CHECKING:
    from ostinato.graph.capture import StepFunction
    from ostinato.runtime.engine import Engine


def verify(engine: Engine, step_function: StepFunction | None, steps: int, params: Mapping[str, Any]) -> Verified:
    """Run steps sequentially, twice, then as a replay, all on copies; see `Program.verify`.

    The sequential runs first fill what a task must write, with different patterns. In the second, the program's own
    arrays follow the copies, so that a task which reads those rather than its arguments gives itself away.
    """
    if _core.serving():
        raise ContractError("a task cannot verify a program: it would have to wait for its own end")
    values, objects = engine.values(params)
    if engine.group is not None and engine.group.size > 1:
        from ostinato.checking.verify_on_ranks import verify_on_ranks

        return verify_on_ranks(engine, engine.group, step_function, steps, params)
    if engine.workers.prepare_caller is not None:
        engine.workers.prepare_caller()
    wait_for_all(engine.in_flight(), False)
    omitted = left_out(engine.executable)
    ops, binding = engine.executable.step.recorded.nodes, engine.binding or AsCaptured()
    closed = closed_over_by_tasks(ops)
    originals = allocations(ops, binding, besides=[each.array for each in closed])
    subject = Subject(ops, binding, originals, MemoryCopy(originals), omitted, closed)
    with put_back(originals, subject.saved):
        sequential, failure = run_checked(subject, 0xA5, steps, params)
        if failure is None or sequential.unwritten:
            sequential, again = run_checked(subject, 0x5A, steps, params, sequential)
            failure = again or failure
        if failure is not None:
            raise failure
        restore(originals, subject.saved)
        replacements = Replacements(ops, binding, originals)
        ended = _replay(engine, replacements, steps, values, objects, omitted)
        _compare(ops, sequential.replacements.substitute, sequential.steps, replacements, ended, omitted)
    function = None
    if step_function is not None:
        from ostinato.checking.verify_function import verify_function

        function = name_of(step_function.function)
        closed = [*closed, *verify_function(step_function, ops, steps, params, omitted)]
    named = {id(root_of(array)) for op in ops for operand in op.operands for array in operand.arrays}
    labels = tuple(dict.fromkeys(each.label for each in closed if id(root_of(each.array)) not in named))
    compared = sum(not omitted.has(op) for op in ops)
    return Verified(ended, compared, omitted.impure, omitted.dependent, function, labels)


def _replay(
    engine: Engine,
    replacements: Replacements,
    steps: int,
    values: list[float] | None,
    objects: list[object] | None,
    omitted: LeftOut,
) -> int:
    """Replay a program on copies of its arrays, and return how many steps it had."""
    executable = omitted.without(engine.executable)
    tasks = [entry for entry in engine.lowered.outside if entry[1] == "blocking"]  # the rest acts on stand-ins
    lowered = lower(executable, len(engine.workers.cpus), replacements, tasks)
    core = _core.Program(engine.workers.core, executable.core, lowered.plan, "pipelined")
    try:
        ended = core.replay(steps, 0, True, values, objects, None, False)
        if type(ended) is int:
            return ended
        run = cast("_core.Run", ended)
        return deliver(run, outcome(run, executable.step.nodes))
    finally:
        core.close()


def _compare(
    ops: Sequence[Op],
    wanted_of: Callable[[Array], Array],
    wanted_steps: int,
    replacements: Replacements,
    steps: int,
    omitted: LeftOut,
) -> None:
    """Raise if a replay did not give what sequential execution gave."""
    for op, operand, captured in operands_of(ops):
        if captured.dtype.hasobject or omitted.writes(captured):
            continue
        wanted, got = contents(wanted_of(captured)), contents(replacements.substitute(captured))
        index = first_difference(wanted, got)
        if index is not None:
            raise ContractError(
                f"the replay differs from sequential execution in {argument(op, operand)} of {format_op(op)}: at index "
                f"{index} it gives {got[index]!r} instead of {wanted[index]!r}. {writers(ops, captured)}. Something "
                "that these use, or that what they depend on uses, is not declared, or changes from run to run"
            )
    if steps != wanted_steps:
        raise ContractError(
            f"the replay ended after {counted(steps, 'step')}, sequential execution after {wanted_steps}"
        )
