"""Units: the parts of allocations of which each is valid as a whole in one memory, or in several, or in none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ostinato import _core
from ostinato.compile.edges import IntArray
from ostinato.devices.shadow import bytes_at
from ostinato.graph.arrays import Array

__all__ = ["Box", "Unit", "Units", "units"]

MOST_CELLS = 4096
"""An allocation that falls into more parts is one unit."""

MOST_PAIRS = 2048
"""So many boxes are compared each with each."""

Box = tuple[tuple[int, ...], tuple[int, ...]]
"""The least index along each axis of a frame, and what is behind the largest."""

_Longs = npt.NDArray[np.int64]


class Unit(NamedTuple):
    """Part of an allocation that is touched by the same views throughout."""

    allocation: int
    boxes: tuple[Box, ...]
    """What it is, in the allocation's frame."""


class Units(NamedTuple):
    """The units that views touch."""

    all: tuple[Unit, ...]
    touched: tuple[tuple[int, ...], ...]
    """By view, the units that it touches."""
    covered: npt.NDArray[np.bool_]
    """By view, whether it touches all bytes of these."""
    allocation: IntArray
    """By view; -1 for one without elements."""
    low: tuple[int, ...]
    """By allocation, the address from which its frame counts."""
    strides: tuple[tuple[int, ...], ...]
    """By allocation, bytes from one index of its frame to the next."""

    def arrays(self, boxes: Sequence[Box], allocation: int) -> list[Array]:
        """Return boxes of an allocation as arrays of bytes, as few as can be seen to do."""
        low, strides = self.low[allocation], self.strides[allocation]
        return [_bytes(low, strides, box) for box in _joined(boxes)]

    def extent(self, unit: Unit) -> tuple[int, int]:
        """Return the address of a unit's first byte, and the one behind its last."""
        strides = self.strides[unit.allocation]
        ends = [
            (_offset(strides, first), _offset(strides, [each - 1 for each in last]) + 1) for first, last in unit.boxes
        ]
        low = self.low[unit.allocation]
        return low + min(first for first, _ in ends), low + max(last for _, last in ends)


def units(views: Sequence[Array], shared: npt.NDArray[np.bool_] | None = None) -> Units:
    """Return the units of views.

    Views that are the same box, or that have nothing in common, are a unit each. Where they overlap in part, the edges
    of their boxes cut the allocation into cells; cells that are touched by the same views are one unit.

    Parameters
    ----------
    views
        The arrays.
    shared
        By view, whether it is looked at at all. An allocation none of whose views are has no units.
    """
    found = _core.passes.boxes(views, np.ndarray)
    allocation: IntArray = found["allocation"]
    lo, hi, low, stride = found["lo"], found["hi"], found["low"], found["stride"]
    looked_at = np.zeros(len(low), np.bool_)
    chosen = allocation >= 0 if shared is None else (allocation >= 0) & shared
    looked_at[allocation[chosen]] = True
    touched: list[tuple[int, ...]] = [()] * len(views)
    covered = np.zeros(len(views), np.bool_)
    every: list[Unit] = []
    in_order = np.argsort(allocation, kind="stable")
    box_end = low[allocation] + ((hi - 1) * stride[allocation]).sum(axis=1) + 1 if len(low) else low
    begin = np.searchsorted(allocation[in_order], np.arange(len(low) + 1))
    for number in np.flatnonzero(looked_at).tolist():
        members = in_order[begin[number] : begin[number + 1]]
        boxes, of = np.unique(np.hstack([lo[members], hi[members]]), axis=0, return_inverse=True)
        of = of.reshape(-1)
        first, last = boxes[:, : lo.shape[1]], boxes[:, lo.shape[1] :]
        parts, of_box, exact = _parts(first, last)
        end = max(_core.passes.extent(views[view])[1] for view in members.tolist())
        if box_end[members].max() > end:
            parts, of_box = _before(parts, of_box, stride[number].tolist(), end - int(low[number]))
        volume = (last - first).prod(axis=1)
        numbers = [tuple(len(every) + part for part in box) for box in of_box]
        every += [Unit(number, part) for part in parts]
        for view, box in zip(members.tolist(), of.tolist(), strict=True):
            touched[view] = numbers[box]
            covered[view] = exact[box] and views[view].nbytes == volume[box]
    return Units(
        tuple(every),
        tuple(touched),
        covered,
        allocation,
        tuple(low.tolist()),
        tuple(map(tuple, stride.tolist())),
    )


def _parts(lo: _Longs, hi: _Longs) -> tuple[list[tuple[Box, ...]], list[tuple[int, ...]], list[bool]]:
    """Return the parts of distinct boxes; by box, those that it is made of, and whether it is all of these."""
    n = len(lo)
    boxes = [(tuple(first), tuple(last)) for first, last in zip(lo.tolist(), hi.tolist(), strict=True)]
    if n == 1 or _disjoint(lo, hi):
        return [(box,) for box in boxes], [(i,) for i in range(n)], [True] * n
    edges = [np.unique(np.concatenate([lo[:, d], hi[:, d]])) for d in range(lo.shape[1])]
    cells = np.prod([float(len(each) - 1) for each in edges])
    if cells > MOST_CELLS:
        hull = (tuple(lo.min(axis=0).tolist()), tuple(hi.max(axis=0).tolist()))
        return [(hull,)], [(0,)] * n, [box == hull for box in boxes]
    shape = tuple(len(each) - 1 for each in edges)
    within = np.zeros((n, *shape), np.bool_)
    begins = [np.searchsorted(each, lo[:, d]) for d, each in enumerate(edges)]
    ends = [np.searchsorted(each, hi[:, d]) for d, each in enumerate(edges)]
    for i in range(n):
        within[i][tuple(slice(b[i], e[i]) for b, e in zip(begins, ends, strict=True))] = True
    signs = np.ascontiguousarray(np.packbits(within.reshape(n, -1), axis=0).T)
    _, of_cell = np.unique(signs.view(np.dtype((np.void, signs.shape[1]))).reshape(-1), return_inverse=True)
    of_cell = of_cell.reshape(-1)
    taken = within.reshape(n, -1).any(axis=0)
    members: dict[int, list[Box]] = {}
    places = np.unravel_index(np.flatnonzero(taken), shape)
    corners = [(each[p].tolist(), each[p + 1].tolist()) for each, p in zip(edges, places, strict=True)]
    for k, part in enumerate(of_cell[taken].tolist()):
        members.setdefault(part, []).append((tuple(c[0][k] for c in corners), tuple(c[1][k] for c in corners)))
    number = {part: i for i, part in enumerate(members)}
    flat = within.reshape(n, -1)
    of_box = [tuple(sorted({number[part] for part in of_cell[flat[i]].tolist()})) for i in range(n)]
    return [tuple(_joined(part)) for part in members.values()], of_box, [True] * n


def _before(
    parts: list[tuple[Box, ...]], of_box: list[tuple[int, ...]], strides: Sequence[int], end: int
) -> tuple[list[tuple[Box, ...]], list[tuple[int, ...]]]:
    """Return what of the parts lies before an offset: boxes of whole rows may reach behind all that views touch."""
    left: list[tuple[Box, ...]] = []
    number: dict[int, int] = {}
    for part, boxes in enumerate(parts):
        kept = tuple(each for first, last in boxes for each in _cut(first, last, strides, end))
        if kept:
            number[part] = len(left)
            left.append(kept)
    return left, [tuple(number[part] for part in box if part in number) for box in of_box]


def _cut(first: tuple[int, ...], last: tuple[int, ...], strides: Sequence[int], end: int) -> list[Box]:
    """Return the part of a box that lies before an offset, as boxes."""
    if not first:
        return [((), ())] if end > 0 else []
    stride = strides[0]
    inner = _offset(strides[1:], [each - 1 for each in last[1:]])
    rows = (end - 1 - inner) // stride + 1 if stride else last[0] if inner < end else 0
    whole = min(last[0], max(first[0], rows))
    found: list[Box] = [((first[0], *first[1:]), (whole, *last[1:]))] if whole > first[0] else []
    if whole < last[0]:
        for lo, hi in _cut(first[1:], last[1:], strides[1:], end - whole * stride):
            found.append(((whole, *lo), (whole + 1, *hi)))
    return found


def _disjoint(lo: _Longs, hi: _Longs) -> bool:
    if len(lo) > MOST_PAIRS:
        return False
    meet = np.ones((len(lo), len(lo)), np.bool_)
    for d in range(lo.shape[1]):
        meet &= (lo[:, None, d] < hi[None, :, d]) & (lo[None, :, d] < hi[:, None, d])
    return int(meet.sum()) == len(lo)


def _joined(boxes: Sequence[Box]) -> list[Box]:
    """Return boxes that have nothing in common, with those that lie side by side as one."""
    found = list(boxes)
    dims = len(found[0][0]) if found else 0
    for d in reversed(range(dims)):
        if len(found) == 1:
            break
        rows: dict[tuple[object, ...], list[Box]] = {}
        for lo, hi in found:
            rows.setdefault((lo[:d], lo[d + 1 :], hi[:d], hi[d + 1 :]), []).append((lo, hi))
        found = []
        for row in rows.values():
            row.sort()
            last: Box | None = None
            for lo, hi in row:
                if last is not None and last[1][d] == lo[d]:
                    last = (last[0], hi)
                    found[-1] = last
                else:
                    last = (lo, hi)
                    found.append(last)
    return found


def _offset(strides: Sequence[int], index: Sequence[int]) -> int:
    return sum(stride * each for stride, each in zip(strides, index, strict=True))


def _bytes(low: int, strides: Sequence[int], box: Box) -> Array:
    """Return a box as an array of bytes, with as few axes as it takes."""
    address = low
    axes: list[tuple[int, int]] = []
    for first, last, stride in zip(*box, strides, strict=True):
        address += first * stride
        if last - first == 1:
            continue
        if axes and axes[-1][1] == (last - first) * stride:
            axes[-1] = (axes[-1][0] * (last - first), stride)
        else:
            axes.append((last - first, stride))
    if not axes or axes[-1][1] != 1:
        axes.append((1, 1))
    reach = sum((size - 1) * stride for size, stride in axes) + 1
    raw = bytes_at(address, reach, None)
    return np.ndarray([size for size, _ in axes], np.uint8, raw, 0, [stride for _, stride in axes])
