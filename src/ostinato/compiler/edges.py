"""Dependences between ops, as flat arrays."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from ostinato import _core

__all__ = ["Edges", "FloatArray", "IntArray", "edges_of"]

IntArray: TypeAlias = npt.NDArray[np.int32]
FloatArray: TypeAlias = npt.NDArray[np.float64]


class Edges(NamedTuple):
    """Edges sorted by (dst, distance, src), each once: ``dst`` in step s comes after ``src`` in step s - distance."""

    src: IntArray
    dst: IntArray
    distance: IntArray

    @property
    def longest(self) -> int:
        """The largest distance; 0 without edges."""
        return int(self.distance.max(initial=0))

    def within_a_step(self) -> Edges:
        """Return those of distance 0."""
        inside = self.distance == 0
        return Edges(*(column[inside] for column in self))


def edges_of(ops: int, src: npt.ArrayLike, dst: npt.ArrayLike, distance: npt.ArrayLike) -> Edges:
    """Return the edges between `ops` ops, sorted and without duplicates."""
    arrays = [np.ascontiguousarray(values, np.int32) for values in (src, dst, distance)]
    return Edges(*_core.passes.sorted_unique(ops, *arrays))
