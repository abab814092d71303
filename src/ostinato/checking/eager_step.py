"""A step function called eagerly: what it records is done at once."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping
from types import FrameType
from typing import TYPE_CHECKING, Any

import numpy as np

from ostinato.compiler.flatten import flatten
from ostinato.graph.body import Body, Nested
from ostinato.graph.context import Recording, recording
from ostinato.graph.graph import Graph
from ostinato.graph.op import Op
from ostinato.graph.operand import Operand
from ostinato.graph.param import Param
from ostinato.graph.ring import Ring, RingElement
from ostinato.graph.sources import Source
from ostinato.graph.step_function import StepFunction
from ostinato.graph.tracing import rebuilt
from ostinato.runtime.sequential import run_op

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ostinato.compiler.lower import Substitution

__all__ = ["call_step_function"]


def call_step_function(
    step_function: StepFunction,
    steps: int,
    params: Mapping[str, Any],
    substitution: Substitution,
    skips: Callable[[Op], bool],
) -> int:
    """Call a step function once a step, on its arrays as they were given, and return how many steps it had.

    Parameters
    ----------
    steps
        How many, at most.
    params
        Values of parameters by name.
    substitution
        What stands for arrays and tokens that tasks are given.
    skips
        Says which operations are left out.
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
    """A graph that does each operation when it is added.

    Attributes
    ----------
    is_last
        Whether `until` has ended the run with this step.
    """

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

    return rebuilt(value, (), leaf, {})


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
