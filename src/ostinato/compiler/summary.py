"""What passes ask of every node of a step, read in one go."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from ostinato import _core
from ostinato.devices.registry import any_allocations
from ostinato.graph.arrays import HOST, Operand, memory_of
from ostinato.graph.body import NativeCall, PythonCall
from ostinato.graph.containers import PLAIN

if TYPE_CHECKING:
    from ostinato.graph.native import NativeTask
    from ostinato.graph.op import Op
    from ostinato.graph.task import PythonTask

_Ints: TypeAlias = "npt.NDArray[np.int32]"


class Summary(NamedTuple):
    """Columns by node of `ops`, and lists of the nodes that are out of the ordinary.

    Calls of one task are alike, so that what passes want to know of a call, they ask of the first one of its task.
    """

    ops: tuple[Op, ...]
    task: _Ints
    """By node, the task that it calls: an index into `tasks`; -1 for what is no call."""
    tasks: list[NativeTask | PythonTask]
    first: _Ints  # By task, the first node that calls it.
    others: _Ints  # Nodes that are no calls.
    varied: _Ints  # Calls with arguments that are neither operands nor plain values: parameters, the step, objects.
    bound: _Ints  # Nodes that are bound to a processor or to a kind.
    priority: _Ints
    period: _Ints  # By node, after how many steps its rings are at the same arrays again.
    bytes: npt.NDArray[np.int64]  # By node, those of all the arrays that it accesses.
    operands: _Ints  # Numbers of the operands of all nodes in turn; the same operand has the same number.
    first_operand: _Ints  # By node, where in `operands` its own begin; last, the number of them.
    simple: npt.NDArray[np.uint8]  # By node, whether it is a native call whose arguments are all operands.

    def by_call(self, ask: Callable[[Op], Any], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """Return what `ask` says of each node, where it says the same of all calls of one task."""
        ops = self.ops
        found = np.empty(len(ops), dtype)
        answers = np.array([ask(ops[index]) for index in self.first.tolist()], dtype)
        calls = self.task >= 0
        found[calls] = answers[self.task[calls]]
        for index in self.others.tolist():
            found[index] = ask(ops[index])
        return found


def summarize(ops: tuple[Op, ...]) -> Summary:
    """Return the summary of nodes, whose indices are their positions."""
    return Summary(ops, *_core.passes.summarize(ops, (NativeCall, PythonCall), Operand, tuple(PLAIN)))


def uses_devices(summary: Summary) -> bool:
    """Whether any op takes a stream, is bound to what is no CPU, or uses an array of a device."""
    ops = summary.ops
    bound = (ops[index].on for index in summary.bound.tolist())
    if any(not str(getattr(on, "name", on)).startswith("cpu") for on in bound):
        return True
    if any(task.stream is not None for task in summary.tasks):
        return True
    return any_allocations() and any(
        memory_of(array) != HOST for op in ops for each in op.operands for array in each.arrays
    )
