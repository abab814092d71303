"""What `verify` leaves out: tasks that only replays may call, and what depends on them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ostinato import _core
from ostinato.compiler.ir import Node
from ostinato.graph.arrays import WRITE
from ostinato.graph.body import Body, NativeCall, PythonCall
from ostinato.graph.native import NativeTask
from ostinato.graph.op import Op
from ostinato.graph.task import PythonTask
from ostinato.runtime.memory import Extent, extent_of

if TYPE_CHECKING:
    from ostinato.compiler.ir import Edges, Executable
    from ostinato.graph.arrays import Array


class LeftOut:
    """Ops that are neither run sequentially nor replayed: `impure` ones, and `dependent` calls that come after these.

    Copies and fills that depend on a task that is left out are done all the same: that does no harm.
    """

    def __init__(self, ops: Sequence[Op] = (), impure: frozenset[Op] = frozenset()) -> None:
        unique = dict.fromkeys(op.original for op in ops)
        self.impure = tuple(op for op in unique if op in impure)
        self.dependent = tuple(op for op in unique if op not in impure and isinstance(op.body, _CALLS))
        self._originals = frozenset(unique)
        written = (view for op in ops for each in op.operands if each.mode & WRITE for view in each.arrays)
        self._written: list[Extent] = []  # by their addresses; those that overlap are one
        for low, high in sorted(extent_of(view) for view in written if view.size):
            if self._written and low < self._written[-1].high:
                low, high = self._written[-1].low, max(high, self._written.pop().high)
            self._written.append(Extent(low, high))

    def __bool__(self) -> bool:
        return bool(self.impure)

    def has(self, op: Op) -> bool:
        """Whether an op is not to be called."""
        return isinstance(op.body, _CALLS) and (op.original in self._originals or _is_impure(op))

    def writes(self, array: Array) -> bool:
        """Whether what is left out, or depends on that, writes memory of a captured array."""
        extent = extent_of(array)
        place = bisect_left(self._written, extent.high, key=lambda written: written.low) - 1
        return bool(array.size) and place >= 0 and self._written[place].meets(extent)

    def without(self, executable: Executable) -> Executable:
        """Return a schedule in which these ops do nothing."""
        if not self:
            return executable
        ops = tuple(Node(op, body=_doing_nothing(op.body)) if self.has(op) else op for op in executable.step.nodes)
        return replace(executable, step=replace(executable.step, nodes=ops))


_CALLS = (PythonCall, NativeCall)


def left_out(executable: Executable) -> LeftOut:
    """Return what of a program is left out."""
    ops = executable.step.recorded.nodes
    impure = frozenset(op.original for op in ops if _is_impure(op))
    if not impure:
        return LeftOut()
    known = impure  # a nested graph may have an op in several places: what holds for one holds for all
    while True:
        reached = _reached(executable.step.recorded.edges, [op.index for op in ops if op.original in known])
        found = known | {ops[index].original for index in reached}
        if len(found) == len(known):
            return LeftOut([op for op in ops if op.original in found], impure)
        known = found


def _is_impure(op: Op) -> bool:
    return any(isinstance(body, PythonCall) and not body.task.pure for body in (op.body, op.recorded))


def _reached(edges: Edges, sources: Sequence[int]) -> set[int]:
    """Return the ops that come after some, these included."""
    after: dict[int, list[int]] = {}
    for src, dst in zip(edges.src.tolist(), edges.dst.tolist(), strict=True):
        after.setdefault(src, []).append(dst)
    found, waiting = set(sources), list(sources)
    while waiting:
        new = [op for op in after.get(waiting.pop(), ()) if op not in found]
        found.update(new)
        waiting += new
    return found


def _doing_nothing(body: Body) -> Body:
    if isinstance(body, NativeCall):
        return NativeCall(NativeTask(_core.nothing_address(), body.task.access, body.task.name), body.args)
    assert isinstance(body, PythonCall)
    task = body.task
    nothing = PythonTask(
        _nothing, task.modes, task.name, task.releases_gil, task.blocking, task.launch_only, task.stream
    )
    return PythonCall(nothing, body.args, body.keywords)


def _nothing(*args: object, **kwargs: object) -> None: ...
