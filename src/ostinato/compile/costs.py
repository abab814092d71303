"""How long ops take: as measured, or by a rule of thumb."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from ostinato import _core
from ostinato.compile.edges import FloatArray
from ostinato.graph.body import Body, NativeCall, PythonCall
from ostinato.graph.kernel import Kernel
from ostinato.graph.op import Op

if TYPE_CHECKING:
    from ostinato.compile.flatten import Flat
    from ostinato.graph.graph import Graph

__all__ = ["Costs", "estimate"]

PYTHON_CALL = 0.3e-6
NATIVE_CALL = 5e-9
BYTE = 1 / 10e9
"""Seconds; the last for each byte of an op's arrays."""

VARIED = 2.0
"""How many times longer than the median the longest op must take for costs to count as varied."""


class Costs(NamedTuple):
    """Seconds per op, and whether they were given rather than estimated."""

    seconds: FloatArray
    measured: npt.NDArray[np.bool_]

    @property
    def varied(self) -> bool:
        """Whether measured costs differ much among each other."""
        known = self.seconds[self.measured]
        return len(known) > 1 and bool(known.max() > VARIED * np.median(known))


def estimate(graph: Graph | Flat, costs: Mapping[object, float] | None = None) -> Costs:
    """Return the cost of every op of a graph.

    Parameters
    ----------
    graph
        The graph, without nested ones.
    costs
        Seconds by op, task or name of an op; the first of these that is there counts.

    Raises
    ------
    ValueError
        A key stands for no op of the graph, or a cost is negative or not finite.
    """
    ops = graph.ops
    call = np.fromiter((_CALL.get(type(op.body), NATIVE_CALL) for op in ops), np.float64, len(ops))
    seconds = call + BYTE * _core.passes.touched_bytes(ops)
    measured = np.zeros(len(ops), np.bool_)
    if costs:
        _fill_in(ops, costs, seconds, measured)
    return Costs(seconds, measured)


_CALL: dict[type[Body], float] = {PythonCall: PYTHON_CALL}


def _fill_in(
    ops: tuple[Op, ...], costs: Mapping[object, float], seconds: FloatArray, measured: npt.NDArray[np.bool_]
) -> None:
    given: dict[object, tuple[object, float]] = {}
    for key, value in costs.items():
        cost = float(value)
        if not (np.isfinite(cost) and cost >= 0):
            raise ValueError(f"costs[{key!r}] is {value!r}; a cost is a number of seconds, finite and not negative")
        for identity in _identities(key):
            given[identity] = key, cost
    known: set[int] = set()
    for op in ops:
        found = [given[i] for i in (id(op.original), _called(op.body), op.name) if i in given]
        if found:
            seconds[op.index] = found[0][1]
            measured[op.index] = True
            known |= {id(key) for key, _ in found}
    unknown = [key for key in costs if id(key) not in known]
    if unknown:
        names = ", ".join(map(repr, unknown))
        raise ValueError(f"costs= names what is no op, task or op's name of this graph: {names}")


def _identities(key: object) -> list[object]:
    """What ops know a key by: names by value, tasks by what is called in the end, ops by themselves."""
    if isinstance(key, str):
        return [key]
    if isinstance(key, Kernel):
        return [id(task) for task in key.compiled]
    return [id(getattr(key, "function", key))]


def _called(body: Body) -> object:
    if isinstance(body, PythonCall):
        return id(body.function)
    return id(body.task) if isinstance(body, NativeCall) else None
