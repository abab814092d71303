"""Dependences with the steps written out, and all that follows from them: what the passes are compared with."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

Reach = npt.NDArray[np.bool_]
"""Reach[s * ops + a, t * ops + b]: op b of step t comes after op a of step s."""


def closure(nodes: int, pairs: Iterable[tuple[int, int]]) -> Reach:
    """Everything that follows from pairs of nodes that come after each other."""
    reach = np.zeros((nodes, nodes), np.bool_)
    for before, after in pairs:
        reach[before, after] = True
    for middle in range(nodes):
        reach |= np.outer(reach[:, middle], reach[middle])
    return reach


def unroll(ops: int, steps: int, triples: Iterable[tuple[int, int, int]]) -> list[tuple[int, int]]:
    """The pairs of nodes that edges (src, dst, distance) stand for."""
    return [
        ((step - distance) * ops + src, step * ops + dst)
        for src, dst, distance in triples
        for step in range(distance, steps)
    ]
