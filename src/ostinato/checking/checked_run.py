"""A sequential run that is looked at after every op: whether tasks write what they declare, and no more."""

from __future__ import annotations

import inspect
import math
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from ostinato.checking.closures import ClosedOver
from ostinato.checking.comparison import array_difference, first_index
from ostinato.checking.copies import Allocation, MemoryCopy, Replacements
from ostinato.checking.left_out import LeftOut
from ostinato.compiler.variants import as_recorded
from ostinato.errors import ContractError, TaskError
from ostinato.graph.arrays import READ, WRITE, Array, Operand
from ostinato.graph.body import Copy, NativeCall, PythonCall
from ostinato.graph.eager import note_writes
from ostinato.graph.op import Op, format_op
from ostinato.runtime.memory import Bytes, assign, at_address, contents, extent_of, raw_bytes, value_bytes
from ostinato.runtime.sequential import AsCaptured, operand_array, run_op, run_sequentially

if TYPE_CHECKING:
    from ostinato.compiler.lower.tables import Substitution

_MOST_WRITERS = 4

Place: TypeAlias = tuple[int, int, int]
"""A step, an op's index, and the place of one of its operands."""


class _Checked:
    """A sequential run that is looked at after every op.

    Attributes
    ----------
    replacements
        What it runs on.
    steps
        How many steps it had.
    unwritten
        Elements that still held the pattern after a task that was to write them. Where the task wrote just that
        pattern, a run with another one tells.
    """

    def __init__(
        self,
        ops: Sequence[Op],
        binding: Substitution,
        originals: Sequence[Allocation],
        pattern: int,
        omitted: LeftOut,
    ) -> None:
        self.replacements = Replacements(ops, binding, originals)
        self.steps = 0
        self.unwritten: dict[Place, npt.NDArray[np.bool_]] = {}
        self._ops = ops
        self._binding = binding
        self._originals = [original for original in originals if not original.objects]
        self._pattern = pattern
        self._omitted = omitted

    def run(self, steps: int, params: Mapping[str, Any]) -> TaskError | None:
        """Run steps; return the failure of a task, if any."""
        try:
            self.steps = run_sequentially(self._ops, steps, 0, self.replacements, params, self._run_op)
        except TaskError as error:
            return error
        return None

    def _run_op(self, op: Op, step: int, replacements: Substitution, params: Mapping[str, Any]) -> bool:
        raise NotImplementedError


class CheckedRun(_Checked):
    """A sequential run of a program on the host: all memory that it uses is compared after every op."""

    def __init__(
        self,
        ops: Sequence[Op],
        binding: Substitution,
        originals: Sequence[Allocation],
        saved: MemoryCopy,
        pattern: int,
        omitted: LeftOut,
        closed: Sequence[ClosedOver],
        before: CheckedRun | None = None,
    ) -> None:
        super().__init__(ops, binding, originals, pattern, omitted)
        self._closed = closed
        self._memory_of_originals = [original.bytes for original in self._originals]
        self._before = before
        self._digests: dict[Place, int] = {}
        self._expected = MemoryCopy(originals)  # what memory is to hold after each op
        self._expected_of_originals = (saved if before is None else self._expected).plain

    def _run_op(self, op: Op, step: int, replacements: Substitution, params: Mapping[str, Any]) -> bool:
        if self._omitted.has(op):
            return False
        captured = {
            place: operand_array(operand, step, AsCaptured())
            for place, operand in enumerate(op.operands)
            if operand.arrays and not operand.arrays[0].dtype.hasobject
        }
        arrays = {place: replacements.substitute(array) for place, array in captured.items()}
        written = [place for place in arrays if op.operands[place].mode & WRITE]
        read = [array for place, array in arrays.items() if op.operands[place].mode & READ]
        filled = {place: self._fill(arrays[place], read) for place in written if op.operands[place].mode == WRITE}
        wanted = {}
        if self._before is None and len(captured) == len(op.operands) and _is_to_be_as_recorded(op):
            wanted = self._run_recorded(op, step, replacements, params, {place: captured[place] for place in written})
        last = run_op(op, step, replacements, params)
        for place in written:
            if place in filled:
                self._check_written(op, (step, op.index, place), arrays[place], filled[place])
            original = self._binding.substitute(captured[place])
            _assign(self._expected.at(original), arrays[place])
            if self._before is not None:
                _assign(original, arrays[place])
        self._check_rest(op)
        for place, array in wanted.items():
            check_as_recorded(op, (step, op.index, place), array, arrays[place])
        for place in written:
            self._check_repeated(op, (step, op.index, place), arrays[place])
        return last

    def _run_recorded(
        self, op: Op, step: int, replacements: Substitution, params: Mapping[str, Any], captured: Mapping[int, Array]
    ) -> dict[int, Array]:
        """Run the task that was recorded, too; return what it wrote, which is put back."""
        task = as_recorded(op)
        memory = {
            place: raw_bytes(replacements.substitute(array)) for place, array in captured.items() if array.itemsize
        }
        before = {place: block.copy() for place, block in memory.items()}
        for array in captured.values():
            _assign(self._expected.at(self._binding.substitute(array)), replacements.substitute(array))
        run_op(task, step, replacements, params)
        found = {place: block.copy().view(captured[place].dtype)[..., 0] for place, block in memory.items()}
        for place, block in memory.items():
            block[...] = before[place]
        self._check_rest(task)
        return found

    def _fill(self, array: Array, read: Sequence[Array]) -> npt.NDArray[np.bool_]:
        """Fill those elements with the pattern that the op does not read too; return which."""
        chosen = np.ones(array.shape, np.bool_)
        for other in read:
            if np.may_share_memory(array, other):
                chosen &= ~_shared(array, other)
        raw_bytes(array)[chosen] = self._pattern
        return chosen

    def _check_written(self, op: Op, place: Place, array: Array, filled: npt.NDArray[np.bool_]) -> None:
        unwritten = filled & (value_bytes(array) == self._pattern).all(-1)
        if not unwritten.any():
            return
        if self._before is not None:
            unwritten &= self._before.unwritten.get(place, False)
            if unwritten.any():
                raise _left_unwritten(op, place, unwritten)
        self.unwritten[place] = unwritten

    def _check_rest(self, op: Op) -> None:
        """Nothing but what the op was to write has changed."""
        self._check_same(op, self.replacements.memory.plain, self._expected.plain, "")
        how = ": it did so to the array itself, not through an argument"
        self._check_same(op, self._memory_of_originals, self._expected_of_originals, how)

    def _check_same(self, op: Op, memory: Sequence[Bytes], expected: Sequence[Bytes], how: str) -> None:
        if not memory or np.array_equal(_joined(memory), _joined(expected)):
            return
        index = next(index for index, block in enumerate(memory) if not np.array_equal(block, expected[index]))
        address = self._originals[index].low + int(np.flatnonzero(memory[index] != expected[index])[0])
        name = _name_at(op, self._ops, self._binding, address, self._closed)
        raise _undeclared(op, name, how)

    def _check_repeated(self, op: Op, place: Place, array: Array) -> None:
        """The second run gives what the first one gave."""
        digest = self._digests[place] = zlib.crc32(value_bytes(array).tobytes())
        if self._before is not None and self._before._digests.get(place, digest) != digest:
            raise ContractError(
                f"{format_op(op)} wrote other values to {argument(op, place[2])} when it ran again with the same "
                f"arguments, in step {place[0]}: it reads an array that it did not declare, or the old values of one "
                f"declared ost.Write, or something else that changes. Called at {op.call_site}"
            )


class CheckedDeviceRun(_Checked):
    """A sequential run of a program that uses devices: memory of the host and of devices is compared after every op."""

    def __init__(
        self,
        ops: Sequence[Op],
        binding: Substitution,
        originals: Sequence[Allocation],
        saved: Sequence[Bytes],
        pattern: int,
        omitted: LeftOut,
        before: CheckedDeviceRun | None = None,
    ) -> None:
        super().__init__(ops, binding, originals, pattern, omitted)
        self._saved = saved
        self._before = before

    def _run_op(self, op: Op, step: int, replacements: Substitution, params: Mapping[str, Any]) -> bool:
        if self._omitted.has(op):
            return False
        arrays = {
            place: replacements.substitute(operand_array(operand, step, AsCaptured()))
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
        memory = self.replacements.memory.plain
        before = [contents(block).copy() for block in memory]
        wanted = {}
        if self._before is None and len(arrays) == len(op.operands) and _is_to_be_as_recorded(op):
            places = [place for place in arrays if op.operands[place].mode & WRITE]
            wanted = _of_task_itself(op, step, replacements, params, {place: arrays[place] for place in places})
        with note_writes() as noted:
            last = run_op(op, step, replacements, params)
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
        raise _undeclared(op, _name_at(op, self._ops, self._binding, address), how)

    def _check_written(self, op: Op, place: Place, values: Array) -> None:
        unwritten = (value_bytes(values) == self._pattern).all(-1)
        if self._before is not None:
            unwritten &= self._before.unwritten.get(place, False)
            if unwritten.any():
                raise _left_unwritten(op, place, unwritten)
        elif unwritten.any():
            self.unwritten[place] = unwritten


def _of_task_itself(
    op: Op, step: int, replacements: Substitution, params: Mapping[str, Any], written: Mapping[int, Array]
) -> dict[int, Array]:
    """Return what the task that was recorded writes, and put back what was there."""
    before = {place: contents(array).copy() for place, array in written.items()}
    run_op(as_recorded(op), step, replacements, params)
    found = {place: contents(array).copy() for place, array in written.items()}
    for place, array in written.items():
        assign(array, before[place])
    return found


def _undeclared(op: Op, name: str, how: str = "") -> ContractError:
    return ContractError(
        f"{format_op(op)} wrote to {name}, which it did not declare as written{how}. Pass what a task writes as an "
        f"argument that is declared ost.Write or ost.ReadWrite. Called at {op.call_site}"
    )


def _is_to_be_as_recorded(op: Op) -> bool:
    """Whether an op runs a variant that was found to give what the task itself gives."""
    return op.variant is not None and math.isfinite(op.rtol)


def check_as_recorded(op: Op, place: Place, wanted: Array, got: Array) -> None:
    """A variant gives what the task itself gives."""
    difference = array_difference(wanted, got, op.rtol)
    if difference:
        within = f" within rtol={op.rtol:g}" if op.rtol else ""
        raise ContractError(
            f"{format_op(op)} does not give what the task itself gives{within}, in {argument(op, place[2])}, in step "
            f"{place[0]}: {difference}. It was right for the arrays that it was measured with; correct it, or leave it "
            f"out. Called at {op.call_site}"
        )


def _joined(blocks: Sequence[Bytes]) -> Bytes:
    return blocks[0] if len(blocks) == 1 else np.concatenate(blocks)  # far fewer calls than one for each


def argument(op: Op, place: int) -> str:
    """Name an operand of an op."""
    body, operand = op.body, op.operands[place]
    array = operand.arrays[0]
    kind = f"(shape {array.shape}, {array.dtype}{', of a ring' * (operand.ring is not None)})"
    if isinstance(body, Copy):
        names = ["src", "dst", *["indices"] * (body.indices is not None), *["scatter"] * (body.scatter is not None)]
        return f"{names[place]} {kind}"
    if not isinstance(body, PythonCall | NativeCall):
        return f"the array {kind}"
    position = [at for at, value in enumerate(body.args) if isinstance(value, Operand)][place]
    if not isinstance(body, PythonCall):
        return f"argument {position + 1} {kind}"
    path = ""
    if body.packing is not None:
        position, path = body.packing.where(position)
    return f"argument {position + 1}{_parameter(body, position)}{path and f', at {path},'} {kind}"


def operands_of(ops: Sequence[Op]) -> Iterator[tuple[Op, int, Array]]:
    """Yield each array that an op names: the first op that does, the operand's index, and the array as captured."""
    operands = {id(operand): (op, index) for op in reversed(ops) for index, operand in enumerate(op.operands)}
    for op, index in reversed(operands.values()):
        for captured in op.operands[index].arrays:
            yield op, index, captured


def writers(ops: Sequence[Op], array: Array) -> str:
    """Say which ops write memory of an array."""
    found = [
        f"{op.name!r} at {op.call_site}"
        for op in ops
        if any(
            operand.mode & WRITE and any(np.may_share_memory(array, other) for other in operand.arrays)
            for operand in op.operands
        )
    ]
    if not found:
        return "No op writes it"
    more = f" and {len(found) - _MOST_WRITERS} more" if len(found) > _MOST_WRITERS else ""
    return f"It is written by {', '.join(found[:_MOST_WRITERS])}{more}"


def _parameter(body: PythonCall, position: int) -> str:
    """The name of the parameter that gets the argument at a position, if it can be known."""
    values, keywords = body.arguments()
    positional = len(values) - len(keywords)
    if position >= positional:
        return f" {keywords[position - positional]!r}"
    try:
        names = list(inspect.signature(body.task.function).parameters)
    except (TypeError, ValueError):
        return ""
    return f" {names[position]!r}" if position < len(names) else ""


def _name_at(op: Op, ops: Sequence[Op], binding: Substitution, address: int, closed: Sequence[ClosedOver] = ()) -> str:
    """Name the array at an address: as an argument of the op, or else of another one, or as what tasks close over."""
    byte = at_address(address, np.empty(1, np.uint8), None)
    for each in (op, *ops):
        for place, operand in enumerate(each.operands):
            if any(np.shares_memory(binding.substitute(array), byte) for array in operand.arrays):
                return argument(each, place) + ("" if each is op else f" of {each.name!r}")
    for outer in closed:
        if np.shares_memory(outer.array, byte):
            return outer.label
    return "memory beside its arguments"


def _assign(to: Array, source: Array) -> None:
    """Copy the elements of an array, padding and all, to one of the same dtype and shape."""
    raw_bytes(to)[...] = raw_bytes(source)


def _shared(array: Array, other: Array) -> npt.NDArray[np.bool_]:
    """Which elements of an array lie in another one too."""
    low = min(extent_of(array)[0], extent_of(other)[0])
    high = max(extent_of(array)[1], extent_of(other)[1])
    marks = np.zeros(high - low, np.uint8)

    def at(view: Array) -> Array:
        raw = raw_bytes(view)
        return np.lib.stride_tricks.as_strided(marks[view.ctypes.data - low :], raw.shape, raw.strides)

    at(other)[...] = 1
    shared: npt.NDArray[np.bool_] = np.any(at(array), axis=-1, keepdims=True)[..., 0]
    return shared


def _left_unwritten(op: Op, place: Place, unwritten: npt.NDArray[np.bool_]) -> ContractError:
    """Return the error of an op that left elements of an array unwritten which it declared `Write`."""
    return ContractError(
        f"{format_op(op)} left part of {argument(op, place[2])} unwritten, in step {place[0]}: "
        f"{np.count_nonzero(unwritten)} of {unwritten.size} elements, the first at index "
        f"{first_index(unwritten)}. ost.Write promises to overwrite all of an array; declare it "
        f"ost.ReadWrite, or pass the part that is written. Called at {op.call_site}"
    )
