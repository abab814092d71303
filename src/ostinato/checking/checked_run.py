"""A sequential run that is looked at after every op: whether tasks write what they declare, and no more."""

from __future__ import annotations

import inspect
import math
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from ostinato.checking.closures import ClosedOver
from ostinato.checking.comparison import array_difference, first_index
from ostinato.checking.copies import Allocation, MemoryCopy, Replacements, restore
from ostinato.checking.left_out import LeftOut
from ostinato.compiler.variants import restore_recorded
from ostinato.errors import ContractError, TaskError
from ostinato.graph.arrays import READ, WRITE, Array, Operand
from ostinato.graph.body import Copy, NativeCall, PythonCall
from ostinato.graph.eager import note_writes
from ostinato.graph.op import Op, format_op
from ostinato.runtime.memory import assign, at_address, contents, extent_of, raw_bytes, value_bytes
from ostinato.runtime.sequential import (
    AsCaptured,
    operand_array,
    plain_value,
    run_op,
    run_sequentially,
    task_value,
)
from ostinato.text import brief

if TYPE_CHECKING:
    from ostinato.compiler.lower.tables import Substitution
    from ostinato.graph.kernel import Kernel

_MOST_WRITERS = 4

Place: TypeAlias = tuple[int, int, int]
"""A step, an op's index, and the place of one of its operands."""


class Subject(NamedTuple):
    """A program that is verified: its ops, the memory that these use, and what that memory held before."""

    ops: Sequence[Op]
    binding: Substitution
    originals: Sequence[Allocation]
    saved: MemoryCopy
    omitted: LeftOut
    closed: Sequence[ClosedOver]


def run_checked(
    subject: Subject, pattern: int, steps: int, params: Mapping[str, Any], before: CheckedRun | None = None
) -> tuple[CheckedRun, TaskError | None]:
    """Run steps sequentially on copies; return the run, and the failure of a task, if any.

    All memory is compared once a step: after every op would take quadratic time. If something has changed that no op
    was to write, all is run again, and only that memory is compared, after every op.

    Raises
    ------
    ContractError
        A task does not keep what it declares.
    """
    run = CheckedRun(subject, pattern, before)
    failure = run.run(steps, params)
    changed = run.find_changed()
    if changed is not None:
        error = run.undeclared(changed)
        restore(subject.originals, subject.saved)
        failure = CheckedRun(subject, pattern, before, [changed]).run(steps, params) or error
    if isinstance(failure, ContractError):
        raise failure
    return run, failure


class CheckedRun:
    """A sequential run on copies, its `replacements`, that is looked at after every op.

    In a run that comes after another one, the program's own arrays follow the copies. `unwritten` are the elements that
    still held the pattern after a task that was to write them. If the task wrote just that pattern, a run with another
    one tells.
    """

    def __init__(
        self, subject: Subject, pattern: int, before: CheckedRun | None = None, watched: Sequence[int] = ()
    ) -> None:
        """Prepare a run; the memory `watched`, by its places in `find_changed`, is compared after every op."""
        self.replacements = Replacements(subject.ops, subject.binding, subject.originals)
        self.steps = 0
        self.unwritten: dict[Place, npt.NDArray[np.bool_]] = {}
        self._subject = subject
        self._pattern = pattern
        self._before = before
        self._watched = watched
        self._digests: dict[Place, int] = {}
        self._expected = MemoryCopy(subject.originals)  # what memory is to hold after each op
        self._plain = [original for original in subject.originals if not original.objects]
        self._memory = [*self.replacements.memory.plain, *(original.bytes for original in self._plain)]
        self._wanted = [*self._expected.plain, *(subject.saved if before is None else self._expected).plain]

    def run(self, steps: int, params: Mapping[str, Any]) -> TaskError | ContractError | None:
        """Run steps, as far as that makes sense; return what ended the run, if anything did."""
        try:
            self.steps = run_sequentially(self._subject.ops, steps, 0, self.replacements, params, self._run_op)
        except (TaskError, ContractError) as error:
            return error
        return None

    def find_changed(self, places: Iterable[int] | None = None) -> int | None:
        """Return the place of memory that has changed though no op was to write it: of a copy, or of an original."""
        places = range(len(self._memory)) if places is None else places
        return next((at for at in places if not np.array_equal(contents(self._memory[at]), self._wanted[at])), None)

    def undeclared(self, changed: int, op: Op | None = None) -> ContractError:
        """Return the error of memory that changed, in an op that is known or not."""
        original = self._plain[changed % len(self._plain)]
        unlike = contents(self._memory[changed]) != self._wanted[changed]
        name = _name_at(op, self._subject, original.low + int(np.flatnonzero(unlike)[0]))
        how = ": it did so to the array itself, not through an argument" if changed >= len(self._plain) else ""
        return _undeclared(op, name, how)

    def _run_op(self, op: Op, step: int, replacements: Substitution, params: Mapping[str, Any]) -> bool:
        if op is self._subject.ops[0] and (changed := self.find_changed()) is not None:
            raise self.undeclared(changed)
        if self._subject.omitted.has(op):
            return False
        captured = {
            place: operand_array(operand, step, AsCaptured())
            for place, operand in enumerate(op.operands)
            if operand.arrays and operand.arrays[0].nbytes and not operand.arrays[0].dtype.hasobject
        }
        arrays = {place: replacements.substitute(array) for place, array in captured.items()}
        modes = {place: op.operands[place].mode for place in arrays}
        written = {place: array for place, array in captured.items() if modes[place] & WRITE}
        self._check_old(op, written)
        read = [array for place, array in arrays.items() if modes[place] & READ]
        filled = {place: self._fill(arrays[place], read) for place in written if modes[place] == WRITE}
        self._check_kernel(op, step, params, written)
        wanted = {}
        has_tokens = not all(each.arrays and not each.arrays[0].dtype.hasobject for each in op.operands)
        if self._before is None and not has_tokens and op.variant is not None and math.isfinite(op.rtol):
            wanted = self._run_recorded(op, step, params, written)
        try:
            with note_writes() as noted:
                last = run_op(op, step, replacements, params)
        finally:
            self._expect(written)
        for place, chosen in filled.items():
            self._check_written(op, (step, op.index, place), arrays[place], chosen)
        for place, array in arrays.items():
            if any(array is other or np.shares_memory(array, other) for other in noted):
                raise _undeclared(op, argument(op, place))
        self._check_watched(op)
        for place, array in wanted.items():
            check_as_recorded(op, (step, op.index, place), array, contents(arrays[place]))
        for place in written:
            self._check_repeated(op, (step, op.index, place), arrays[place])
        return last

    def _check_old(self, op: Op, written: Mapping[int, Array]) -> None:
        """Before an op overwrites memory: nobody else has changed that."""
        for place, array in written.items():
            expected = value_bytes(self._expected.at(self._subject.binding.substitute(array)))
            if not np.array_equal(value_bytes(contents(self.replacements.substitute(array))), expected):
                raise _undeclared(None, argument(op, place))

    def _expect(self, written: Mapping[int, Array]) -> None:
        """Expect memory to hold what it holds now."""
        for array in written.values():
            original, found = self._subject.binding.substitute(array), self.replacements.substitute(array)
            _assign(self._expected.at(original), found)
            if self._before is not None:
                _assign(original, found)

    def _check_watched(self, op: Op) -> None:
        if (changed := self.find_changed(self._watched)) is not None:
            raise self.undeclared(changed, op)

    def _check_kernel(self, op: Op, step: int, params: Mapping[str, Any], written: Mapping[int, Array]) -> None:
        """Check what compiled code does not: that indices are in bounds, and that its constants still hold."""
        body = op.body
        if self._before is not None or not isinstance(body, NativeCall) or body.task.kernel is None:
            return
        kernel: Kernel = body.task.kernel
        for each in body.task.constants:
            if each.changed:
                raise ContractError(
                    f"{format_op(op)} was compiled when {each.name} was {brief(each.value)}, and it is "
                    f"{brief(each.now())} now. A kernel has the values of globals and of enclosing functions in it: "
                    f"pass {each.name} as an argument. Called at {op.call_site}"
                )
        values = [
            task_value(arg, step, self.replacements) if isinstance(arg, Operand) else plain_value(arg, step, params)
            for arg in body.args
        ]
        with _put_back(self.replacements.substitute(array) for array in written.values()):
            outside = kernel.out_of_bounds(values)
        if outside:
            raise ContractError(
                f"{format_op(op)} uses an index that is out of bounds for its array, in step {step}. Compiled code "
                f"does not check indices: it reads or overwrites other memory. Called at {op.call_site}"
            )

    def _run_recorded(
        self, op: Op, step: int, params: Mapping[str, Any], written: Mapping[int, Array]
    ) -> dict[int, Array]:
        """Run the task that was recorded, too; return what it wrote, which is put back."""
        arrays = {place: self.replacements.substitute(array) for place, array in written.items()}
        with _put_back(arrays.values()):
            run_op(restore_recorded(op), step, self.replacements, params)
            found = {place: _copy_of(array) for place, array in arrays.items()}
        self._expect(written)
        self._check_watched(restore_recorded(op))
        return found

    def _fill(self, array: Array, read: Sequence[Array]) -> npt.NDArray[np.bool_]:
        """Fill those elements with the pattern that the op does not read too; return which."""
        chosen = np.ones(array.shape, np.bool_)
        for other in read:
            if np.may_share_memory(array, other):
                chosen &= ~_shared(array, other)
        memory = raw_bytes(array)
        found = contents(memory)
        found[chosen] = self._pattern
        if found is not memory:
            assign(memory, found)
        return chosen

    def _check_written(self, op: Op, place: Place, array: Array, filled: npt.NDArray[np.bool_]) -> None:
        unwritten = filled & (value_bytes(contents(array)) == self._pattern).all(-1)
        if not unwritten.any():
            return
        if self._before is not None:
            unwritten &= self._before.unwritten.get(place, False)
            if unwritten.any():
                raise _left_unwritten(op, place, unwritten)
        self.unwritten[place] = unwritten

    def _check_repeated(self, op: Op, place: Place, array: Array) -> None:
        """The second run gives what the first one gave."""
        digest = self._digests[place] = zlib.crc32(value_bytes(contents(array)).tobytes())
        if self._before is not None and self._before._digests.get(place, digest) != digest:
            raise ContractError(
                f"{format_op(op)} wrote other values to {argument(op, place[2])} when it ran again with the same "
                f"arguments, in step {place[0]}: it reads an array that it did not declare, or the old values of one "
                f"declared ost.Write, or something else that changes. Called at {op.call_site}"
            )


def _undeclared(op: Op | None, name: str, how: str = "") -> ContractError:
    called = "" if op is None else f". Called at {op.call_site}"
    return ContractError(
        f"{'a task' if op is None else format_op(op)} wrote to {name}, which it did not declare as written{how}. Pass "
        f"what a task writes as an argument that is declared ost.Write or ost.ReadWrite{called}"
    )


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


def _name_at(op: Op | None, subject: Subject, address: int) -> str:
    """Name the array at an address: as an argument of the op, or else of another one, or as what tasks close over."""
    byte = at_address(address, np.empty(1, np.uint8), None)
    for each in subject.ops if op is None else (op, *subject.ops):
        for place, operand in enumerate(each.operands):
            if any(np.shares_memory(subject.binding.substitute(array), byte) for array in operand.arrays):
                return argument(each, place) + ("" if each is op else f" of {each.name!r}")
    labels = (outer.label for outer in subject.closed if np.shares_memory(outer.array, byte))
    return next(labels, "memory beside its arguments")


def _assign(to: Array, source: Array) -> None:
    """Copy the elements of an array, padding and all, to one of the same dtype and shape."""
    assign(raw_bytes(to), contents(raw_bytes(source)))


@contextmanager
def _put_back(arrays: Iterable[Array]) -> Iterator[None]:
    """Give arrays back the values that they have now."""
    held = [(array, _copy_of(array)) for array in arrays]
    try:
        yield
    finally:
        for array, copied in held:
            _assign(array, copied)


def _copy_of(array: Array) -> Array:
    """Return a copy of the elements of an array, padding and all, on the host."""
    return contents(raw_bytes(array)).copy().view(array.dtype)[..., 0]


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
