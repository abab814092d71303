"""Whether a program does what its step function does when that is called eagerly."""

from __future__ import annotations

import copy
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import FrameType
from typing import TYPE_CHECKING, Any

import numpy as np

from ostinato.checking.checked_run import argument, operands_of, writers
from ostinato.checking.closures import ClosedOver, closed_over, is_comparable, parts_within
from ostinato.checking.comparison import first_difference
from ostinato.checking.copies import MemoryCopy, allocations, put_back
from ostinato.checking.left_out import LeftOut
from ostinato.compiler.flatten import flatten
from ostinato.errors import ContractError, TaskError
from ostinato.graph.arrays import Operand, as_ndarray
from ostinato.graph.body import Body, Nested
from ostinato.graph.capture import StepFunction
from ostinato.graph.context import Recording, recording
from ostinato.graph.graph import Graph
from ostinato.graph.op import Op, Source, format_op
from ostinato.graph.param import Param
from ostinato.graph.ring import Ring, RingElement
from ostinato.graph.task import name_of
from ostinato.graph.tracer import path_name, rebuild
from ostinato.runtime.sequential import AsCaptured, run_op, run_sequentially
from ostinato.text import counted

if TYPE_CHECKING:
    from ostinato.compiler.lower.tables import Substitution


def call_step_function(
    step_function: StepFunction,
    steps: int,
    params: Mapping[str, Any],
    substitution: Substitution,
    skips: Callable[[Op], bool],
) -> int:
    """Call a step function once a step, on its arrays as they were given, and return how many steps it had.

    `substitution` says what stands for arrays and tokens that tasks are given, `skips` which operations are left out.
    """
    for step in range(steps):
        graph = _EagerGraph(step, params, substitution, skips)
        token = recording.set(Recording(graph, None))
        try:
            step_function.function(
                *[_real(value, step) for value in step_function.args],
                **{key: _real(value, step) for key, value in step_function.kwargs.items()},
            )
        finally:
            recording.reset(token)
        if graph.is_last:
            return step + 1
    return steps


class _EagerGraph(Graph):
    """A graph that does each operation when it is added; `is_last`: `until` has ended the run with this step."""

    sees_all_tiles = True

    def __init__(
        self, step: int, params: Mapping[str, Any], substitution: Substitution, skips: Callable[[Op], bool]
    ) -> None:
        super().__init__()
        self.is_last = False
        self._step = step
        self._values = params
        self._substitution = substitution
        self._skips = skips

    def _add(
        self,
        body: Body,
        operands: tuple[Operand, ...],
        frame: FrameType,
        name: str,
        sources: Sequence[Source] = (),
        on: Any = None,
        priority: int = 0,
    ) -> Op:
        op = super()._add(body, operands, frame, name, sources, on, priority)
        for each in _flat(op, self._values):
            if not self._skips(op):
                self.is_last |= run_op(each, self._step, self._substitution, self._values)
        return op


def _flat(op: Op, values: Mapping[str, Any]) -> Sequence[Op]:
    """Return the operations that one of a nested graph stands for; of any other, itself."""
    if not isinstance(op.body, Nested):
        return (op,)
    given = {key: each.value_in(values) if isinstance(each, Param) else each for key, each in op.body.params.items()}
    graph = Graph()
    graph.subgraph(op.body.graph, given, dict.fromkeys(op.body.preconditions, ()))
    return flatten(graph).ops


def _real(value: Any, step: int) -> Any:
    """Return an argument as the function gets it in a step: arrays in place of rings."""

    def leaf(part: Any, _: tuple[object, ...]) -> Any:
        if isinstance(part, Ring):
            return _Turned([_in_step(element, step) for element in part])
        if isinstance(part, RingElement):
            return _in_step(part, step)
        return part.view(_Array) if isinstance(part, np.ndarray) else part

    return rebuild(value, (), leaf, {})


def _in_step(element: RingElement, step: int) -> Any:
    views = element.views
    return views[(step + element.offset) % len(views)].view(_Array)


class _Turned:
    """The arrays of a ring as they stand in one step."""

    def __init__(self, arrays: list[Any]) -> None:
        self._arrays = arrays

    def __len__(self) -> int:
        return len(self._arrays)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._arrays)

    def __getitem__(self, offset: int) -> Any:
        return self._arrays[operator.index(offset) % len(self._arrays)]


class _Array(np.ndarray):
    """An array whose elements are arrays without dimensions, as those of a tracer are: tasks can be given them."""

    def __getitem__(self, index: Any) -> Any:
        found = super().__getitem__(index)
        if isinstance(found, np.ndarray):
            return found
        return super().__getitem__((*index, ...) if isinstance(index, tuple) else (index, ...))

    def __iter__(self) -> Any:
        return (self[place] for place in range(len(self)))


def verify_function(
    step_function: StepFunction, ops: Sequence[Op], steps: int, params: Mapping[str, Any], omitted: LeftOut
) -> list[ClosedOver]:
    """Call the function eagerly, then run what was recorded of it sequentially, and compare all memory.

    Both use the arrays themselves, since the function and its tasks may use arrays that no argument names. What the
    arrays held is put back afterwards. Return the arrays that were compared although the function does not receive
    them.
    """
    title = name_of(step_function.function)
    outside = closed_over([step_function.function])
    watched = watched_arrays(step_function)
    originals = allocations(ops, AsCaptured(), besides=[each.array for each in watched])
    before = MemoryCopy(originals)
    with put_back(originals, before):
        called = _call(step_function, title, steps, params, omitted)
        after_function = MemoryCopy(originals)
    with put_back(originals, before):
        done = run_sequentially(ops, steps, 0, _Tokens(), params, _but(omitted))
        after_ops = MemoryCopy(originals)
    _compare(title, ops, after_function, after_ops, omitted)
    for each in watched:
        _check_kept(title, each, before, after_function, after_ops)
    if called != done:
        raise ContractError(
            f"the program ends after {counted(done, 'step')}, but {title}() called eagerly after {called}: "
            "until() depends on something that was recorded once"
        )
    return outside


def watched_arrays(step_function: StepFunction) -> list[ClosedOver]:
    """Return the host arrays that a function closes over, then those that it is given."""
    return closed_over([step_function.function]) + _arguments(step_function)


def _call(step_function: StepFunction, title: str, steps: int, params: Mapping[str, Any], omitted: LeftOut) -> int:
    count = len(step_function.graph)

    def skips(op: Op) -> bool:
        return op.index < count and omitted.has(step_function.graph.ops[op.index])

    try:
        return call_step_function(step_function, steps, params, _Tokens(), skips)
    except TaskError:
        raise
    except Exception as error:
        raise ContractError(
            f"{title}() can be recorded, but called eagerly, with the values that arrays have in each step, it raises "
            f"{type(error).__name__}: {error}"
        ) from error


def _but(omitted: LeftOut) -> Any:
    def run(op: Op, step: int, substitution: Any, params: Mapping[str, Any]) -> bool:
        return False if omitted.has(op) else run_op(op, step, substitution, params)

    return run


def _compare(title: str, ops: Sequence[Op], wanted_in: MemoryCopy, got_in: MemoryCopy, omitted: LeftOut) -> None:
    """Raise if an array that an operation names differs."""
    for op, operand, captured in operands_of(ops):
        if captured.dtype.hasobject or omitted.writes(captured):
            continue
        wanted, got = wanted_in.at(captured), got_in.at(captured)
        index = first_difference(wanted, got)
        if index is not None:
            raise ContractError(
                f"the program does not do what {title}() does when it is called in every step: they differ in "
                f"{argument(op, operand)} of {format_op(op)}: at index {index} the function gives {wanted[index]!r}, "
                f"the program {got[index]!r}. {writers(ops, captured)}. {CAUSES}"
            )


def _check_kept(title: str, each: ClosedOver, before: MemoryCopy, by_function: MemoryCopy, by_ops: MemoryCopy) -> None:
    """Raise if the function changes an array otherwise than the operations do."""
    was, wanted, got = (memory.at(each.array) for memory in (before, by_function, by_ops))
    index = first_difference(wanted, got)
    if index is not None:
        raise ContractError(
            f"{title}() changes {each.label}, otherwise than the program: at index {index}, from {was[index]!r}, the "
            f"function gives {wanted[index]!r}, the program {got[index]!r}. {CAUSES}"
        )


CAUSES = (
    "Only tasks, copies and fills are done in every step. A statement beside them, a function without @ostinato.task, "
    "or a value that was read while recording, counts once only: make it a task, or a parameter (ostinato.param)"
)


def _arguments(step_function: StepFunction) -> list[ClosedOver]:
    """Return the host arrays among the arguments of a function."""
    found: dict[int, ClosedOver] = {}

    def note(value: Any, path: tuple[object, ...]) -> Any:
        ring = value.ring if isinstance(value, RingElement) else value
        for each in ring.values if isinstance(ring, Ring) else (value,):
            array = as_ndarray(each) if isinstance(each, np.ndarray) else None
            if array is not None and array.size and not array.dtype.hasobject:
                found.setdefault(id(each), ClosedOver(array, f"argument {path_name(path)!r}"))
        for attributes, part in parts_within(value):
            if is_comparable(part):
                label = f"argument {path_name(path) + attributes!r}"
                found.setdefault(id(part), ClosedOver(part.view(np.ndarray), label))
        return value

    for name, value in (*zip(step_function.names, step_function.args, strict=True), *step_function.kwargs.items()):
        rebuild(value, (name,), note, {})
    return list(found.values())


class _Tokens(AsCaptured):
    """Copies of tokens: what a task does to them must not last."""

    def __init__(self) -> None:
        self._copies: dict[int, tuple[object, object]] = {}
        self._memo: dict[int, Any] = {}

    def value(self, value: object) -> object:
        """Return the copy of a token; an array of another library itself."""
        if id(value) not in self._copies:
            self._copies[id(value)] = value, self._copied(value)
        return self._copies[id(value)][1]

    def _copied(self, value: object) -> object:
        try:
            return value if as_ndarray(value) is not None else copy.deepcopy(value, self._memo)
        except Exception:
            return value
