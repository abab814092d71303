"""How many steps back ops depend on waits for something outside."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from ostinato import _core
from ostinato.compiler.ir import Edges, IntArray

__all__ = ["Lags", "lags_of"]

Row: TypeAlias = tuple[IntArray, IntArray]


class Lags(NamedTuple):
    """By op, which waits it depends on, and how many steps back at least: most ops depend on few of many waits."""

    rows: list[Row]
    """The waits, ascending; and as many lags."""

    def kinds(self) -> list[int]:
        """Return a number for each op: the same for those with the same lags."""
        numbers: dict[tuple[bytes, bytes], int] = {}
        of_row: dict[int, int] = {}  # ops share long rows
        for row in self.rows:
            if id(row) not in of_row:
                waits, lag = row
                of_row[id(row)] = numbers.setdefault((waits.tobytes(), lag.tobytes()), len(numbers))
        return [of_row[id(row)] for row in self.rows]

    def held_up_as_what_follows(self, edges: Edges, waits: npt.NDArray[np.bool_]) -> None:
        """Give each of the ops that only wait what all that directly comes after it has: the greatest lags."""
        among = np.flatnonzero(waits[edges.src])
        among = among[np.argsort(edges.src[among], kind="stable")]
        source, after, distance = (column[among] for column in edges)
        chosen = np.flatnonzero(waits)
        begins, ends = np.searchsorted(source, chosen), np.searchsorted(source, chosen, "right")
        for wait, begin, end in zip(chosen.tolist(), begins.tolist(), ends.tolist(), strict=True):
            if begin == end:
                continue
            if end - begin == 1 and distance[begin] == 0:  # what follows waits for this at once
                self.rows[wait] = self.rows[after[begin]]
                continue
            rows = [self.rows[op] for op in after[begin:end].tolist()]
            back = np.repeat(distance[begin:end], [len(row[0]) for row in rows])
            known, place, count = np.unique(
                np.concatenate([row[0] for row in rows]), return_inverse=True, return_counts=True
            )
            lag = np.zeros(len(known), np.int32)
            np.maximum.at(lag, place.reshape(-1), np.concatenate([row[1] for row in rows]) - back)
            lag[known == wait] = 0
            common = count == end - begin
            self.rows[wait] = known[common], lag[common]


def lags_of(ops: int, edges: Edges, waits: npt.NDArray[np.bool_]) -> Lags:
    """Return how many steps back, at least, each op depends on each wait along the edges."""
    sources = np.flatnonzero(waits).astype(np.int32)
    start, op, lag = _core.passes.lags(ops, *edges, sources)
    by_op = np.argsort(op, kind="stable")
    ends = np.searchsorted(op[by_op], np.arange(ops), "right").tolist()
    wait, lag = np.repeat(sources, np.diff(start))[by_op], lag[by_op]
    return Lags([(wait[a:b], lag[a:b]) for a, b in zip([0, *ends[:-1]], ends, strict=True)])
