"""How many bytes ops pass on to each other: what one writes of what another reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ostinato.compiler.ir import Edges, IntArray
from ostinato.compiler.regions import accesses
from ostinato.graph.operand import READ, WRITE

if TYPE_CHECKING:
    from ostinato.graph.op import Op

__all__ = ["passed_bytes"]


def passed_bytes(ops: Sequence[Op], edges: Edges) -> npt.NDArray[np.float64]:
    """Return for each edge the bytes that its first op writes and its second one reads.

    Edges that only order, such as those from a reader to the next writer, pass nothing; tokens count as a byte.
    """
    found = accesses(ops)
    writes, write_begin = _by_op(found.op, found.mode & WRITE, len(ops))
    reads, read_begin = _by_op(found.op, found.mode & READ, len(ops))
    passed = np.zeros(len(edges.src))
    n_writes = np.diff(write_begin)[edges.src]
    n_reads = np.diff(read_begin)[edges.dst]
    pairs = n_writes * n_reads
    edge = np.repeat(np.arange(len(passed)), pairs)
    number = np.arange(len(edge)) - np.repeat(np.cumsum(pairs) - pairs, pairs)
    first = writes[write_begin[edges.src[edge]] + number // n_reads[edge]]
    second = reads[read_begin[edges.dst[edge]] + number % n_reads[edge]]
    meets = found.group[first] == found.group[second]
    # In a ring they are the same array in some steps only; its stand-in elsewhere is for other arrays.
    turn = found.phase[second] - found.phase[first] + edges.distance[edge]
    meets &= turn % found.period[first] == 0
    meets &= (found.alias[first] < 0) | (found.alias[first] != found.alias[second])
    edge, first, second = edge[meets], found.box[first[meets]], found.box[second[meets]]
    extent = np.minimum(found.hi[first], found.hi[second]) - np.maximum(found.lo[first], found.lo[second])
    np.add.at(passed, edge, np.maximum(extent, 0).prod(axis=1))
    return passed


def _by_op(op: IntArray, kept: npt.NDArray[Any], ops: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Accesses that are kept, in the order of their ops, and where those of each op begin."""
    chosen = np.flatnonzero(kept)
    return chosen, np.searchsorted(op[chosen], np.arange(ops + 1))
