"""Boxes of array indices: what of an array a view covers, and what of that lies where."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from typing import TYPE_CHECKING, TypeAlias

from ostinato.devices.registry import address_of

if TYPE_CHECKING:
    from ostinato.graph.arrays import Array

Box: TypeAlias = tuple[tuple[int, int], ...]
"""By axis, the first index, and the one behind the last."""


def slices_of(box: Box) -> tuple[slice, ...]:
    """Return the index that takes a box out of an array."""
    return tuple([slice(low, high) for low, high in box])


def size_of(box: Box) -> int:
    """Return how many elements a box has."""
    return prod(high - low for low, high in box)


def intersect(a: Box, b: Box) -> Box | None:
    """Return what two boxes share; None if nothing.

    Examples
    --------
    >>> intersect(((0, 4), (0, 4)), ((2, 6), (1, 2)))
    ((2, 4), (1, 2))
    """
    found = []
    for (low, high), (other_low, other_high) in zip(a, b, strict=True):
        low, high = max(low, other_low), min(high, other_high)
        if low >= high:
            return None
        found.append((low, high))
    return tuple(found)


def subtract(box: Box, other: Box) -> list[Box]:
    """Return what of a box is not in another one, as boxes that share nothing.

    Examples
    --------
    >>> subtract(((0, 4),), ((1, 2),))
    [((0, 1),), ((2, 4),)]
    """
    shared = intersect(box, other)
    if shared is None:
        return [box]
    parts, rest = [], list(box)
    for axis, ((low, high), (inner_low, inner_high)) in enumerate(zip(box, shared, strict=True)):
        for begin, end in ((low, inner_low), (inner_high, high)):
            if begin < end:
                parts.append((*rest[:axis], (begin, end), *rest[axis + 1 :]))
        rest[axis] = (inner_low, inner_high)
    return parts


def subtract_all(box: Box, others: Iterable[Box]) -> list[Box]:
    """Return what of a box is in none of the others."""
    parts = [box]
    for other in others:
        parts = [rest for part in parts for rest in subtract(part, other)]
        if not parts:
            break
    return parts


def merge(boxes: Iterable[Box]) -> list[Box]:
    """Return the same elements as fewer boxes, in order: neighbours with a common face are one box.

    Examples
    --------
    >>> merge([((0, 1), (2, 3)), ((0, 1), (0, 2)), ((4, 5), (0, 1))])
    [((0, 1), (0, 3)), ((4, 5), (0, 1))]
    """
    found = sorted(set(boxes))
    if not found:
        return []
    axes, count = len(found[0]), -1
    while len(found) != count:
        count = len(found)
        for axis in reversed(range(axes)):
            found.sort(key=lambda box: (box[:axis], box[axis + 1 :], box[axis]))
            joined = [found[0]]
            for box in found[1:]:
                last = joined[-1]
                if last[:axis] == box[:axis] and last[axis + 1 :] == box[axis + 1 :] and last[axis][1] == box[axis][0]:
                    joined[-1] = (*last[:axis], (last[axis][0], box[axis][1]), *last[axis + 1 :])
                else:
                    joined.append(box)
            found = joined
    return sorted(found)


def box_of(view: Array, whole: Array) -> Box | None:
    """Return the smallest box of a C-contiguous array that a view of it lies in; None if the view is empty.

    Where the axes of the view do not follow those of the array, that is all of the array.

    Examples
    --------
    >>> import numpy as np
    >>> a = np.zeros((4, 6))
    >>> box_of(a[1:3, ::2], a), box_of(a.T[5], a), box_of(a.reshape(24), a)
    (((1, 3), (0, 5)), ((0, 4), (5, 6)), ((0, 4), (0, 6)))
    """
    if view.size == 0:
        return None
    everything = tuple([(0, length) for length in whole.shape])
    offset = address_of(view) - address_of(whole)
    offset += sum(min(0, stride * (length - 1)) for stride, length in zip(view.strides, view.shape, strict=True))
    low = []
    for stride in whole.strides:
        index, offset = divmod(offset, stride) if stride else (0, offset)
        low.append(index)
    high = [index + 1 for index in low]
    if offset + view.itemsize > whole.itemsize:
        return everything
    taken = set()
    for stride, length in zip(view.strides, view.shape, strict=True):
        stride = abs(stride)
        if length == 1 or stride == 0:
            continue
        axis = next((d for d, step in enumerate(whole.strides) if step and stride % step == 0 and d not in taken), None)
        if axis is None:
            return everything
        taken.add(axis)
        high[axis] = low[axis] + stride // whole.strides[axis] * (length - 1) + 1
        if high[axis] > whole.shape[axis]:
            return everything
    return tuple(zip(low, high, strict=True))
