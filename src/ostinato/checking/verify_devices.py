"""Whether a replay that uses devices gives what sequential execution gives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ostinato.checking.checked_run import argument, check_as_recorded, is_to_be_as_recorded, left_unwritten, name_at
from ostinato.checking.closures import closed_over_by_tasks
from ostinato.checking.copies import Allocation, StandIns, allocations
from ostinato.checking.left_out import LeftOut
from ostinato.checking.verify import compare, replayed, verified
from ostinato.compiler.variants import as_recorded
from ostinato.errors import ContractError
from ostinato.graph.arrays import READ, WRITE, Array
from ostinato.graph.eager import noted_writes
from ostinato.graph.op import Op, shown
from ostinato.runtime.memory import Bytes, assign, contents, raw_bytes, value_bytes
from ostinato.runtime.results import Verified
from ostinato.runtime.sequential import AsCaptured, operand_array, run_op, run_sequentially

if TYPE_CHECKING:
    from ostinato.compiler.lower.tables import Substitution
    from ostinato.graph.capture import StepFunction
    from ostinato.runtime.engine import Engine

__all__ = ["verify_on_devices"]


def verify_on_devices(
    engine: Engine,
    step_function: StepFunction | None,
    steps: int,
    params: Mapping[str, Any],
    values: list[float] | None,
    objects: list[object] | None,
    omitted: LeftOut,
) -> Verified:
    """Run steps sequentially, twice, then as a replay, all on copies, and compare; see `verify.verify`."""
    ops, binding = engine.executable.step.recorded.nodes, engine.binding or AsCaptured()
    closed = closed_over_by_tasks(ops)
    originals = allocations(ops, binding, besides=[each.array for each in closed])
    plain = [original for original in originals if not original.objects]
    before = [contents(original.bytes).copy() for original in plain]
    try:
        first = _CheckedRun(ops, binding, originals, before, 0xA5, omitted)
        first.run(steps, params)
        if first.unwritten:
            _CheckedRun(ops, binding, originals, before, 0x5A, omitted, first).run(steps, params)
        stand_ins = StandIns(ops, binding, originals)
        ended = replayed(engine, stand_ins, steps, values, objects, omitted)
        _check_untouched(plain, before)
        compare(ops, first.stand_ins.substitute, first.steps, stand_ins, ended, omitted)
    finally:
        for original, block in zip(plain, before, strict=True):
            if not np.array_equal(contents(original.bytes), block):
                assign(original.bytes, block)
    return verified(engine, step_function, ops, steps, params, ended, omitted, closed)


def _check_untouched(originals: Sequence[Allocation], before: Sequence[Bytes]) -> None:
    for original, block in zip(originals, before, strict=True):
        if not np.array_equal(contents(original.bytes), block):
            raise ContractError(
                f"a task wrote to the array of {original.high - original.low} bytes that it was captured with itself, "
                "not through an argument"
            )


class _CheckedRun:
    """A sequential run, memory of devices and of the host looked at after each op.

    Attributes
    ----------
    stand_ins
        What it runs on.
    steps
        How many steps it had.
    unwritten
        By step, op and operand: elements that still held the pattern after a task that was to write them. Where the
        task wrote just that pattern, a run with another one tells.
    """

    def __init__(
        self,
        ops: Sequence[Op],
        binding: Substitution,
        originals: Sequence[Allocation],
        saved: Sequence[Bytes],
        pattern: int,
        omitted: LeftOut,
        before: _CheckedRun | None = None,
    ) -> None:
        self._omitted = omitted
        self.stand_ins = StandIns(ops, binding, originals)
        self.steps = 0
        self.unwritten: dict[tuple[int, int, int], npt.NDArray[np.bool_]] = {}
        self._ops = ops
        self._binding = binding
        self._originals = [original for original in originals if not original.objects]
        self._saved = saved
        self._pattern = pattern
        self._before = before

    def run(self, steps: int, params: Mapping[str, Any]) -> None:
        """Run steps."""
        self.steps = run_sequentially(self._ops, steps, 0, self.stand_ins, params, self._run_op)

    def _run_op(self, op: Op, step: int, stand_ins: Substitution, params: Mapping[str, Any]) -> bool:
        if self._omitted.has(op):
            return False
        arrays = {
            place: stand_ins.substitute(operand_array(operand, step, AsCaptured()))
            for place, operand in enumerate(op.operands)
            if operand.arrays and not operand.arrays[0].dtype.hasobject
        }
        written = [array for place, array in arrays.items() if op.operands[place].mode & WRITE]
        read = [array for place, array in arrays.items() if op.operands[place].mode & READ]
        filled = {
            place: array
            for place, array in arrays.items()
            if op.operands[place].mode == WRITE
            and array.nbytes
            and not any(np.may_share_memory(array, other) for other in read)
        }
        for array in filled.values():
            size = (*array.shape, array.itemsize)
            assign(array, np.full(size, self._pattern, np.uint8).view(array.dtype)[..., 0])
        memory = self.stand_ins.memory.plain
        before = [contents(block).copy() for block in memory]
        wanted = {}
        if self._before is None and len(arrays) == len(op.operands) and is_to_be_as_recorded(op):
            places = [place for place in arrays if op.operands[place].mode & WRITE]
            wanted = _of_task_itself(op, step, stand_ins, params, {place: arrays[place] for place in places})
        with noted_writes() as noted:
            last = run_op(op, step, stand_ins, params)
        for place, array in arrays.items():
            if any(array is other or np.shares_memory(array, other) for other in noted):
                raise _undeclared(op, argument(op, place))
        for number, (block, was) in enumerate(zip(memory, before, strict=True)):
            self._check_rest(op, number, block, was, written)
        for original, was in zip(self._originals, self._saved, strict=True):
            changed = contents(original.bytes) != was
            if changed.any():
                self._refuse(op, original, changed, ": it did so to the array itself, not through an argument")
        for place, array in filled.items():
            self._check_written(op, (step, op.index, place), contents(array))
        for place, array in wanted.items():
            check_as_recorded(op, (step, op.index, place), array, contents(arrays[place]))
        return last

    def _check_rest(self, op: Op, number: int, block: Bytes, was: Bytes, written: Sequence[Array]) -> None:
        """Nothing but what the op was to write has changed."""
        changed = contents(block) != was
        if not changed.any():
            return
        low = block.ctypes.data
        for array in written:
            if np.may_share_memory(array, block):
                raw = raw_bytes(array)
                begin = changed[array.ctypes.data - low :]
                np.lib.stride_tricks.as_strided(begin, raw.shape, raw.strides)[...] = False
        if changed.any():
            self._refuse(op, self._originals[number], changed)

    def _refuse(self, op: Op, original: Allocation, changed: npt.NDArray[np.bool_], how: str = "") -> None:
        address = original.low + int(np.flatnonzero(changed)[0])
        raise _undeclared(op, name_at(op, self._ops, self._binding, address), how)

    def _check_written(self, op: Op, place: tuple[int, int, int], values: Array) -> None:
        unwritten = (value_bytes(values) == self._pattern).all(-1)
        if self._before is not None:
            unwritten &= self._before.unwritten.get(place, False)
            if unwritten.any():
                raise left_unwritten(op, place, unwritten)
        elif unwritten.any():
            self.unwritten[place] = unwritten


def _of_task_itself(
    op: Op, step: int, stand_ins: Substitution, params: Mapping[str, Any], written: Mapping[int, Array]
) -> dict[int, Array]:
    """Return what the task that was recorded writes, and put back what was there."""
    before = {place: contents(array).copy() for place, array in written.items()}
    run_op(as_recorded(op), step, stand_ins, params)
    found = {place: contents(array).copy() for place, array in written.items()}
    for place, array in written.items():
        assign(array, before[place])
    return found


def _undeclared(op: Op, name: str, how: str = "") -> ContractError:
    return ContractError(
        f"{shown(op)} wrote to {name}, which it did not declare as written{how}. Pass what a task writes as an "
        f"argument that is declared ost.Write or ost.ReadWrite. Called at {op.call_site}"
    )
