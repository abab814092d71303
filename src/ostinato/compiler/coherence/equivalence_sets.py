"""Units: the parts of allocations of which each is valid as a whole in one memory, or in several, or in none."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod
from operator import sub
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ostinato import _core
from ostinato.compiler.ir import IntArray
from ostinato.devices.registry import address_of
from ostinato.devices.shadow import bytes_at, view_of
from ostinato.graph.arrays import Array

__all__ = ["Box", "Unit", "Units", "elements", "elements_within", "units"]

MOST_CELLS = 4096
"""Where the boxes of views fall into more parts, their bytes from first to last count; where these do, too, the
allocation is one unit."""

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
    low: list[int] = found["low"].tolist()
    strides: list[tuple[int, ...]] = list(map(tuple, found["stride"].tolist()))
    looked_at = np.zeros(len(low), np.bool_)
    chosen = allocation >= 0 if shared is None else (allocation >= 0) & shared
    looked_at[allocation[chosen]] = True
    touched: list[tuple[int, ...]] = [()] * len(views)
    covered = np.zeros(len(views), np.bool_)
    every: list[Unit] = []
    in_order = np.argsort(allocation, kind="stable")
    begin = np.searchsorted(allocation[in_order], np.arange(len(low) + 1))
    whole = _of_one_box(views, found, looked_at)
    boxes_lo, boxes_hi = found["lo"].tolist(), found["hi"].tolist()
    for number in np.flatnonzero(looked_at).tolist():
        members = in_order[begin[number] : begin[number + 1]]
        if whole[number]:
            box = tuple(boxes_lo[members[0]]), tuple(boxes_hi[members[0]])
            for view in members.tolist():
                touched[view] = (len(every),)
                covered[view] = views[view].nbytes == _volume(box)
            every.append(Unit(number, (box,)))
            continue
        framed = _Framed(low[number], strides[number], found["lo"][members], found["hi"][members])
        for each in _frames([views[view] for view in members.tolist()], framed):
            low[number], strides[number] = each.low, each.strides
            boxes, of = np.unique(np.hstack([each.lo, each.hi]), axis=0, return_inverse=True)
            of = of.reshape(-1)
            first, last = np.hsplit(boxes, 2)
            parts, of_box, exact = _parts(first, last)
            if all(exact):
                break
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
        tuple(low),
        tuple(strides),
    )


def _volume(box: Box) -> int:
    return prod(map(sub, box[1], box[0]))


def _of_one_box(
    views: Sequence[Array], found: Mapping[str, Any], looked_at: npt.NDArray[np.bool_]
) -> npt.NDArray[np.bool_]:
    """By allocation that is looked at, whether all of its views are one box, which reaches no further than they do."""
    allocation, lo, hi, stride = found["allocation"], found["lo"], found["hi"], found["stride"]
    some = np.flatnonzero(allocation >= 0)
    some = some[looked_at[allocation[some]]]
    of = allocation[some]
    ends = np.array([_core.passes.extent(views[view]) for view in some.tolist()], np.int64).reshape(-1, 2)
    begins = found["low"][of] + (lo[some] * stride[of]).sum(axis=1)
    behind = found["low"][of] + ((hi[some] - 1) * stride[of]).sum(axis=1) + 1
    any_of = np.zeros(len(looked_at), np.int64)
    any_of[of] = some
    alike = (lo[some] == lo[any_of[of]]).all(axis=1) & (hi[some] == hi[any_of[of]]).all(axis=1)
    whole = looked_at.copy()
    whole[of[~(alike & (begins >= ends[:, 0]) & (behind <= ends[:, 1]))]] = False
    return whole


class _Framed(NamedTuple):
    """The boxes of an allocation's views, in a frame."""

    low: int
    strides: tuple[int, ...]
    lo: _Longs
    hi: _Longs

    def ends(self) -> tuple[_Longs, _Longs]:
        """Return the address of each box's first byte, and the one behind its last."""
        strides = np.array(self.strides, np.int64)
        return self.low + self.lo @ strides, self.low + (self.hi - 1) @ strides + 1


def _frames(views: Sequence[Array], framed: _Framed) -> Iterator[_Framed]:
    """Yield frames in which boxes end where their views do, plain bytes last.

    Rows of a view that begin in the midst of the base's rows are in boxes of whole rows, which reach further. That does
    for dependences; but what is copied in front of an array, and back, is somebody else's.
    """
    ends = np.array([_core.passes.extent(view) for view in views], np.int64)
    low, high = int(ends[:, 0].min()), int(ends[:, 1].max())
    if _holds(ends, framed):
        yield framed
    else:
        raw = bytes_at(low, high - low, None)
        alone = [
            view_of(raw, address_of(view) - low, view.shape, np.dtype((np.void, view.itemsize)), view.strides)
            for view in views
        ]
        found = _core.passes.boxes(alone, np.ndarray)  # in a frame that begins with the first of them
        framed = _Framed(int(found["low"][0]), tuple(found["stride"][0].tolist()), found["lo"], found["hi"])
        if _holds(ends, framed):
            yield framed
    yield _Framed(low, (1,), ends[:, :1] - low, ends[:, 1:] - low)


def _holds(ends: _Longs, framed: _Framed) -> bool:
    """Whether no box reaches beyond its view."""
    begins, behind = framed.ends()
    return bool((begins >= ends[:, 0]).all() and (behind <= ends[:, 1]).all())


def elements(view: Array) -> Array | None:
    """Return the elements of a view as an array of bytes; None where they overlap each other."""
    low, high = _core.passes.extent(view)
    axes = sorted(((abs(s), n) for s, n in zip(view.strides, view.shape, strict=True) if n > 1), reverse=True)
    axes.append((1, view.itemsize))
    joined = axes[-1:]
    for stride, n in reversed(axes[:-1]):
        inner, count = joined[0]
        if stride < inner * count:
            return None
        if stride == inner * count:
            joined[0] = (inner, count * n)
        else:
            joined.insert(0, (stride, n))
    raw = bytes_at(low, high - low, None)
    return np.ndarray([n for _, n in joined], np.uint8, raw, 0, [stride for stride, _ in joined])


def elements_within(view: Array, low: int, strides: Sequence[int], boxes: Sequence[Box]) -> list[Array] | None:
    """Return the elements of a view in boxes of a frame, as arrays of bytes; None where it does not follow the axes."""
    begin, end = _core.passes.extent(view)
    first, last = _digits(begin - low, strides), _digits(end - 1 - low, strides)
    steps = [1] * len(strides)
    for stride, n in zip(view.strides, view.shape, strict=True):
        if n == 1:
            continue
        d = next((d for d, each in enumerate(strides) if each and abs(stride) % each == 0), None)
        if d is None or steps[d] != 1 or (n - 1) * (abs(stride) // strides[d]) != last[d] - first[d]:
            return None
        steps[d] = abs(stride) // strides[d]
    counts = [(to - at) // step + 1 for at, to, step in zip(first, last, steps, strict=True)]
    if int(np.prod(counts)) != view.nbytes:
        return None
    found = []
    for lo, hi in boxes:
        begins = [max(0, -(-(a - at) // step)) for a, at, step in zip(lo, first, steps, strict=True)]
        ends = [min(n, -(-(b - at) // step)) for b, at, step, n in zip(hi, first, steps, counts, strict=True)]
        sizes = [b - a for a, b in zip(begins, ends, strict=True)]
        if min(sizes) <= 0:
            continue
        address = low + _offset(strides, [at + k * step for at, k, step in zip(first, begins, steps, strict=True)])
        pitches = [stride * step for stride, step in zip(strides, steps, strict=True)]
        raw = bytes_at(address, _offset(pitches, [n - 1 for n in sizes]) + 1, None)
        found.append(np.ndarray(sizes, np.uint8, raw, 0, pitches))
    return found


def _digits(offset: int, strides: Sequence[int]) -> list[int]:
    found = []
    for stride in strides:
        found.append(offset // stride if stride else 0)
        offset -= found[-1] * stride
    return found


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
