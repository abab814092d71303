"""Orders for caches: what ops use of memory, and the order in which they find most of it in a cache."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ostinato import _core
from ostinato.compiler.ir import COMMON, Edges, FloatArray, IntArray, Placement
from ostinato.compiler.schedule.place import SHORTEST, list_costs
from ostinato.compiler.target import MachineModel
from ostinato.graph.arrays import Array
from ostinato.graph.op import Op


class Footprints(NamedTuple):
    """What ops use: op i so many bytes of each of its cells, from ``start[i]`` to ``start[i + 1]``.

    Cells are parts of allocations that do not overlap.
    """

    start: npt.NDArray[np.int64]
    cell: IntArray
    bytes: npt.NDArray[np.int64]
    cells: int


def find_footprints(ops: Sequence[Op]) -> Footprints:
    """Return what ops that use no rings use.

    The ends of what ops write cut an allocation into cells, along each axis; where none writes, the ends of all that
    they use do.
    """
    operands = [(op.index, operand) for op in ops for operand in op.operands if operand.array is not None]
    number: dict[int, int] = {}
    views: list[Array] = []
    for _, operand in operands:
        if id(operand.array) not in number:
            number[id(operand.array)] = len(views)
            views.append(operand.arrays[0])
    of_view = np.array([number[id(operand.array)] for _, operand in operands], np.int64)
    op_of = np.array([op for op, _ in operands], np.int64)
    written = np.zeros(len(views), np.bool_)
    written[[view for view, (_, operand) in zip(of_view.tolist(), operands, strict=True) if operand.mode & 2]] = True
    found = _core.passes.boxes(views)
    cells: list[tuple[IntArray, npt.NDArray[np.int64]]] = [(np.zeros(0, np.int32), np.zeros(0, np.int64))] * len(views)
    count = 0
    for allocation in range(int(found["allocation"].max(initial=-1)) + 1):
        members = np.flatnonzero(found["allocation"] == allocation)
        lo, hi = found["lo"][members], found["hi"][members]
        cutting = written[members] if written[members].any() else np.ones(len(members), np.bool_)
        cuts = [
            np.union1d(np.append(lo[cutting, axis], lo[:, axis].min()), np.append(hi[cutting, axis], hi[:, axis].max()))
            for axis in range(lo.shape[1])
        ]
        for member, first, last in zip(members.tolist(), lo, hi, strict=True):
            cells[member] = _cells_of(cuts, first, last, count)
        count += int(np.prod([len(each) - 1 for each in cuts]))
    per_operand = np.array([len(cells[view][0]) for view in of_view.tolist()], np.int64)
    by_op = np.bincount(op_of, per_operand, len(ops)).astype(np.int64)
    parts = [cells[view] for view in of_view.tolist()]
    return Footprints(
        np.append(0, np.cumsum(by_op)),
        np.concatenate([cell for cell, _ in parts] or [np.zeros(0)]).astype(np.int32),
        np.concatenate([size for _, size in parts] or [np.zeros(0)]).astype(np.int64),
        count,
    )


def _cells_of(
    cuts: Sequence[npt.NDArray[np.int64]], lo: npt.NDArray[np.int64], hi: npt.NDArray[np.int64], first: int
) -> tuple[IntArray, npt.NDArray[np.int64]]:
    """Return the cells that a box touches, numbered from `first` on, and how many bytes of each."""
    cell, size = np.full(1, first, np.int64), np.ones(1, np.int64)
    stride = int(np.prod([len(each) - 1 for each in cuts]))
    for axis, edges in enumerate(cuts):
        stride //= len(edges) - 1
        begin, end = int(np.searchsorted(edges, lo[axis], "right")) - 1, int(np.searchsorted(edges, hi[axis], "left"))
        length = np.minimum(edges[begin + 1 : end + 1], hi[axis]) - np.maximum(edges[begin:end], lo[axis])
        cell = (cell[:, None] + np.arange(begin, end) * stride).reshape(-1)
        size = (size[:, None] * length).reshape(-1)
    return cell.astype(np.int32), size


def find_order_for_caches(
    edges: Edges,
    seconds: FloatArray,
    placement: Placement,
    footprints: Footprints,
    cache_bytes: int,
    model: MachineModel = COMMON,
) -> IntArray:
    """Return the ops in one order for the whole step, which keeps all edges and finds much in caches.

    It is found by list scheduling, like `find_order`, but among the ops of a lane that are ready the one comes first of
    whose data the largest share is in the lane's cache. So tiles stay there for as many steps as dependences allow:
    what time skewing (Wolf 1989; Wonnacott 2000) does with loops.
    """
    return _core.passes.order_for_caches(
        edges,
        np.maximum(seconds, SHORTEST),
        placement.lane,
        placement.affinity,
        placement.pinned.view(np.uint8),
        list_costs(model),
        footprints,
        cache_bytes,
    )


def count_fetched_bytes(placement: Placement, order: IntArray, footprints: Footprints, cache_bytes: int) -> int:
    """Return how many bytes the lanes' caches fetch in a step, one of many."""
    return _core.passes.fetched_bytes(placement.lane, order, footprints, cache_bytes)
