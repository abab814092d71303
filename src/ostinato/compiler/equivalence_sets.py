"""Equivalence sets: parts of allocations whose bytes are all used by the same views, and so are valid together.

The coherence protocol keeps one state for each set, as in Bauer et al., "Visibility Algorithms for Dynamic Dependence
Analysis and Distributed Coherence", PPoPP 2023. Here all views are known when the graph is compiled, so the sets are
computed once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod
from operator import sub
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ostinato import _core
from ostinato.compiler.ir import IntArray
from ostinato.devices.registry import address_of, bytes_at, view_of
from ostinato.graph.arrays import Array

MOST_CELLS = 4096
"""If the boxes of views cut an allocation into more cells, each view counts as all bytes from its first to its last. If
there are still more cells, the allocation is one equivalence set."""

MOST_PAIRS = 2048  # Up to so many boxes are compared in pairs.
Box = tuple[tuple[int, ...], tuple[int, ...]]
"""The least index along each axis of an index space, and one more than the largest."""

_Longs = npt.NDArray[np.int64]


class EquivalenceSet(NamedTuple):
    """Part of an allocation: each view touches all of it or nothing of it."""

    allocation: int
    boxes: tuple[Box, ...]  # The part, in the allocation's index space.


class EquivalenceSets(NamedTuple):
    """The equivalence sets that views touch."""

    all: tuple[EquivalenceSet, ...]
    touched: tuple[tuple[int, ...], ...]  # By view, the sets that it touches.
    covered: npt.NDArray[np.bool_]  # By view, whether it touches all bytes of these.
    allocation: IntArray  # By view; -1 for one without elements.
    low: tuple[int, ...]  # By allocation, the address of index 0 of its index space.
    strides: tuple[tuple[int, ...], ...]  # By allocation, bytes from one index of its index space to the next.

    def arrays(self, boxes: Sequence[Box], allocation: int) -> list[Array]:
        """Return boxes of an allocation as arrays of bytes; adjacent boxes become one array."""
        low, strides = self.low[allocation], self.strides[allocation]
        return [_bytes(low, strides, box) for box in _joined(boxes)]

    def extent(self, number: int) -> tuple[int, int]:
        """Return the address of the first byte of a set, and the one behind its last."""
        allocation, boxes = self.all[number]
        low, strides = self.low[allocation], self.strides[allocation]
        ends = [(_offset(strides, first), _offset(strides, [each - 1 for each in last]) + 1) for first, last in boxes]
        return low + min(first for first, _ in ends), low + max(last for _, last in ends)


def find_equivalence_sets(views: Sequence[Array], shared: npt.NDArray[np.bool_] | None = None) -> EquivalenceSets:
    """Return the equivalence sets of views.

    Views that are the same box, or that have nothing in common, have a set each. Where they overlap in part, the edges
    of their boxes cut the allocation into cells; the cells that the same views touch are one set.

    `shared`: by view, whether its allocation needs sets. An allocation without such a view has none.
    """
    found = _core.passes.boxes(views)
    allocation: IntArray = found["allocation"]
    low: list[int] = found["low"].tolist()
    strides: list[tuple[int, ...]] = list(map(tuple, found["stride"].tolist()))
    needed = np.zeros(len(low), np.bool_)
    needed[allocation[allocation >= 0 if shared is None else (allocation >= 0) & shared]] = True
    touched: list[tuple[int, ...]] = [()] * len(views)
    covered = np.zeros(len(views), np.bool_)
    every: list[EquivalenceSet] = []
    in_order = np.argsort(allocation, kind="stable")
    begin = np.searchsorted(allocation[in_order], np.arange(len(low) + 1))
    whole = _of_one_box(views, found, needed)
    boxes_lo, boxes_hi = found["lo"].tolist(), found["hi"].tolist()
    for number in np.flatnonzero(needed).tolist():
        members = in_order[begin[number] : begin[number + 1]]
        if whole[number]:
            box = tuple(boxes_lo[members[0]]), tuple(boxes_hi[members[0]])
            for view in members.tolist():
                touched[view] = (len(every),)
                covered[view] = views[view].nbytes == _volume(box)
            every.append(EquivalenceSet(number, (box,)))
            continue
        space = _IndexSpace(low[number], strides[number], found["lo"][members], found["hi"][members])
        for each in _index_spaces([views[view] for view in members.tolist()], space):
            low[number], strides[number] = each.low, each.strides
            boxes, of = np.unique(np.hstack([each.lo, each.hi]), axis=0, return_inverse=True)
            first, last = np.hsplit(boxes, 2)
            parts, of_box, exact = _parts(first, last)
            if all(exact):
                break
        volume = (last - first).prod(axis=1)
        numbers = [tuple(len(every) + part for part in box) for box in of_box]
        every += [EquivalenceSet(number, part) for part in parts]
        for view, box_of_view in zip(members.tolist(), of.reshape(-1).tolist(), strict=True):
            touched[view] = numbers[box_of_view]
            covered[view] = exact[box_of_view] and views[view].nbytes == volume[box_of_view]
    return EquivalenceSets(tuple(every), tuple(touched), covered, allocation, tuple(low), tuple(strides))


def _volume(box: Box) -> int:
    return prod(map(sub, box[1], box[0]))


def _of_one_box(
    views: Sequence[Array], found: Mapping[str, Any], needed: npt.NDArray[np.bool_]
) -> npt.NDArray[np.bool_]:
    """By allocation that needs sets, whether all its views are one box, which reaches no further than they do."""
    allocation, lo, hi, stride = found["allocation"], found["lo"], found["hi"], found["stride"]
    some = np.flatnonzero(allocation >= 0)
    some = some[needed[allocation[some]]]
    of = allocation[some]
    ends = np.array([_core.passes.extent(views[view]) for view in some.tolist()], np.int64).reshape(-1, 2)
    begins = found["low"][of] + (lo[some] * stride[of]).sum(axis=1)
    behind = found["low"][of] + ((hi[some] - 1) * stride[of]).sum(axis=1) + 1
    any_of = np.zeros(len(needed), np.int64)
    any_of[of] = some
    alike = (lo[some] == lo[any_of[of]]).all(axis=1) & (hi[some] == hi[any_of[of]]).all(axis=1)
    whole = needed.copy()
    whole[of[~(alike & (begins >= ends[:, 0]) & (behind <= ends[:, 1]))]] = False
    return whole


class _IndexSpace(NamedTuple):
    """An index space of an allocation, with the boxes of its views."""

    low: int
    strides: tuple[int, ...]
    lo: _Longs
    hi: _Longs

    def ends(self) -> tuple[_Longs, _Longs]:
        """Return the address of each box's first byte, and the one behind its last."""
        strides = np.array(self.strides, np.int64)
        return self.low + self.lo @ strides, self.low + (self.hi - 1) @ strides + 1


def _index_spaces(views: Sequence[Array], space: _IndexSpace) -> Iterator[_IndexSpace]:
    """Yield index spaces in which boxes end where their views do; plain bytes last.

    If rows of a view begin in the middle of rows of its base, its box has whole rows of the base and reaches further
    than the view. Dependences may use such a box. Copies must not: they would overwrite bytes outside of all views.
    """
    ends = np.array([_core.passes.extent(view) for view in views], np.int64)
    low, high = int(ends[:, 0].min()), int(ends[:, 1].max())
    if _fits(ends, space):
        yield space
    else:
        raw = bytes_at(low, high - low, None)
        alone = [
            view_of(raw, address_of(view) - low, view.shape, np.dtype((np.void, view.itemsize)), view.strides)
            for view in views
        ]
        found = _core.passes.boxes(alone)  # in an index space that begins with the first of them
        space = _IndexSpace(int(found["low"][0]), tuple(found["stride"][0].tolist()), found["lo"], found["hi"])
        if _fits(ends, space):
            yield space
    yield _IndexSpace(low, (1,), ends[:, :1] - low, ends[:, 1:] - low)


def _fits(ends: _Longs, space: _IndexSpace) -> bool:
    """Whether no box reaches beyond its view."""
    begins, behind = space.ends()
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
    """Return the elements of a view in boxes of an index space as bytes; None if it does not follow the axes."""
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
    if n == 1 or _are_disjoint(lo, hi):
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
    flat = within.reshape(n, -1)
    signs = np.ascontiguousarray(np.packbits(flat, axis=0).T)
    _, of_cell = np.unique(signs.view(np.dtype((np.void, signs.shape[1]))).reshape(-1), return_inverse=True)
    of_cell = of_cell.reshape(-1)
    taken = flat.any(axis=0)
    cells_at = np.unravel_index(np.flatnonzero(taken), shape)
    corners = [(each[at].tolist(), each[at + 1].tolist()) for each, at in zip(edges, cells_at, strict=True)]
    members: dict[int, list[Box]] = {}
    for k, part in enumerate(of_cell[taken].tolist()):
        members.setdefault(part, []).append((tuple(c[0][k] for c in corners), tuple(c[1][k] for c in corners)))
    number = {part: i for i, part in enumerate(members)}
    of_box = [tuple(sorted({number[part] for part in of_cell[flat[i]].tolist()})) for i in range(n)]
    return [tuple(_joined(part)) for part in members.values()], of_box, [True] * n


def _are_disjoint(lo: _Longs, hi: _Longs) -> bool:
    if len(lo) > MOST_PAIRS:
        return False
    order = np.lexsort(lo.T[::-1])
    lo, hi = lo[order], hi[order]
    if ((lo[1:] < hi[:-1]) & (lo[:-1] < hi[1:])).all(axis=1).any():  # neighbours meet: no need to look at all pairs
        return False
    if (hi[:-1, 0] <= lo[1:, 0]).all():
        return True
    meet = np.ones((len(lo), len(lo)), np.bool_)
    for d in range(lo.shape[1]):
        meet &= (lo[:, None, d] < hi[None, :, d]) & (lo[None, :, d] < hi[:, None, d])
    return int(meet.sum()) == len(lo)


def _joined(boxes: Sequence[Box]) -> list[Box]:
    """Return disjoint boxes with adjacent ones merged."""
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
