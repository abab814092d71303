"""Tasks that other processes can import, and a graph of them."""

from __future__ import annotations

import numpy as np

import ostinato as ost


@ost.task
def relax(src: ost.Read, dst: ost.Write, omega: float = 1.0) -> None:
    for i in range(len(src)):
        dst[i] = src[i] * omega


@relax.variant
def at_once(src: ost.Read, dst: ost.Write, omega: float = 1.0) -> None:
    np.multiply(src, omega, out=dst)


@relax.variant(config={"block": 8})
@relax.variant(config={"block": 16})
def blocked(src: ost.Read, dst: ost.Write, omega: float = 1.0, *, block: int) -> None:
    for i in range(0, len(src), block):
        dst[i : i + block] = src[i : i + block] * omega


@ost.task
def add(src: ost.Read, dst: ost.ReadWrite) -> None:
    dst += src


def graph_of(*scalars: float, size: int = 8) -> ost.Graph:
    """Return a graph with a call of `relax` for each scalar."""
    graph = ost.Graph()
    for scalar in scalars or (1.0,):
        graph.task(relax, np.zeros(size), np.zeros(size), scalar)
    return graph
