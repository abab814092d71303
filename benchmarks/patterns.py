"""Dependence patterns in the manner of Task Bench, as plain data that every contestant is given alike.

A pattern is one step: some rows of points. A point depends on points of the row before it, those of the first row on
points of the last row of the step before. The fft, nearest and stencil rules are
Task Bench's; widths are powers of two.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import accumulate

import numpy as np
import numpy.typing as npt

Row = tuple[tuple[int, ...], ...]
Int32s = npt.NDArray[np.int32]


@dataclass(frozen=True)
class Pattern:
    """One step of a repeated pattern: ``rows[r][p]`` names the points of the row before that point p of row r needs."""

    name: str
    rows: tuple[Row, ...]

    @property
    def tasks(self) -> int:
        """Tasks in one step."""
        return sum(len(row) for row in self.rows)


@dataclass(frozen=True)
class Flat:
    """A pattern as arrays: ops are numbered row by row.

    An edge has distance 0 in the step, 1 from the step before, 2 from the one before that.
    """

    n_ops: int
    source: Int32s
    target: Int32s
    distance: Int32s
    half: Int32s  # which of two threads owns the op, where the owner is chosen by hand: contiguous halves of each row
    order: Int32s  # a linear extension of the step
    reads: tuple[tuple[tuple[int, int], ...], ...] = ()  # per op, what it reads: an op, and from how many steps before


def _window(width: int, *reaches: int) -> Row:
    return tuple(
        tuple(p + d for d in sorted({-r for r in reaches} | set(reaches)) if 0 <= p + d < width) for p in range(width)
    )


def chain() -> Pattern:
    """One point after another."""
    return Pattern("chain", (((0,),),))


def no_comm(width: int = 16) -> Pattern:
    """Each point needs itself only."""
    return Pattern("no_comm", (_window(width, 0),))


def stencil(width: int) -> Pattern:
    """Each point needs itself and its neighbours, without wrap-around."""
    return Pattern(f"stencil_1d {width}", (_window(width, 0, 1),))


def nearest(width: int = 16, radius: int = 2) -> Pattern:
    """Each point needs the points within a radius."""
    return Pattern("nearest", (_window(width, *range(radius + 1)),))


def all_to_all(width: int = 8) -> Pattern:
    """Each point needs all points."""
    return Pattern(f"all_to_all {width}", (tuple(tuple(range(width)) for _ in range(width)),))


def fft(width: int = 8) -> Pattern:
    """Row r needs itself and the points 2**r to both sides."""
    return Pattern(f"fft {width}", tuple(_window(width, 0, 1 << r) for r in range(width.bit_length() - 1)))


def tree(width: int = 8) -> Pattern:
    """A binary reduction from all points to one, then a broadcast back to all."""
    widths = [width]
    rows: list[Row] = []
    while widths[-1] > 1:
        widths.append(widths[-1] // 2)
        rows.append(tuple((2 * p, 2 * p + 1) for p in range(widths[-1])))
    for wide in reversed(widths[:-1]):
        rows.append(tuple((p // 2,) for p in range(wide)))
    return Pattern("tree", tuple(rows))


def scattered(width: int = 16, rows: int = 8, seed: int = 1) -> Pattern:
    """Each point needs itself and two others, drawn once."""
    draw = random.Random(seed)
    return Pattern(
        "random",
        tuple(tuple(tuple(sorted({p, *draw.sample(range(width), 2)})) for p in range(width)) for _ in range(rows)),
    )


def random_nearest(width: int = 16, radius: int = 2, rows: int = 8, seed: int = 1) -> Pattern:
    """Each point needs itself and about half of the points within a radius, drawn once."""
    draw = random.Random(seed)
    whole = _window(width, *range(radius + 1))
    drawn = [
        tuple(tuple(q for q in near if q == p or draw.random() < 0.5) for p, near in enumerate(whole))
        for _ in range(rows)
    ]
    return Pattern("random_nearest", tuple(drawn))


#: The patterns that are timed at every one of the widths.
BY_WIDTH: dict[str, Callable[[int], Pattern]] = {
    "stencil_1d": stencil,
    "fft": fft,
    "tree": tree,
    "all_to_all": all_to_all,
    "nearest": nearest,
    "random_nearest": random_nearest,
    "no_comm": no_comm,
}
WIDTHS = (2, 4, 8, 16, 64)


def at_width(kind: str, width: int) -> Pattern:
    """One of `BY_WIDTH`, its width in its name."""
    return replace(BY_WIDTH[kind](width), name=f"{kind} {width}")


def all_patterns() -> list[Pattern]:
    """The patterns of the tables, in their order."""
    return [chain(), no_comm(), *map(stencil, (2, 4, 16, 64)), fft(), all_to_all(), nearest(), tree(), scattered()]


def _order(n_ops: int, edges: list[tuple[int, int, int]], half: list[int]) -> list[int]:
    """Order the ops by when they could start, once many steps are under way, if only transfers took time.

    What waits for the other half then comes after what need not, and what the other half waits for comes early.
    """
    into: list[list[tuple[int, int, float]]] = [[] for _ in range(n_ops)]
    for source, target, distance in edges:
        into[target].append((source, distance, _TASK + (_TRANSFER if half[source] != half[target] else 0.0)))
    start = [0.0] * n_ops
    for _ in range(_STEPS):
        before, start = start, [0.0] * n_ops
        for op in range(n_ops):  # ops are numbered so that edges within the step point forward
            start[op] = max((before[a] if d else start[a]) + lag for a, d, lag in into[op])
    return sorted(range(n_ops), key=lambda op: start[op])


_TASK, _TRANSFER, _STEPS = 1.0, 50.0, 64


def flatten(pattern: Pattern, *, buffers: bool = False) -> Flat:
    """Number the ops of a pattern, list its edges, and order the ops as is best for two halves.

    `buffers`: each op writes two buffers in turn and reads those of the ops that it needs. So it also comes after the
    ops that read what it overwrites.
    """
    first = [0, *accumulate(len(row) for row in pattern.rows)]
    edges = [
        (first[r - 1] + q if r else first[-2] + q, first[r] + p, 0 if r else 1)
        for r, row in enumerate(pattern.rows)
        for p, needs in enumerate(row)
        for q in needs
    ]
    reads: list[list[tuple[int, int]]] = [[] for _ in range(pattern.tasks)]
    for source, target, distance in edges:
        reads[target].append((source, distance))
    if buffers:
        edges += [(target, source, 2 - distance) for source, target, distance in edges if source != target]
    half = [int(2 * p >= max(len(row), 2)) for row in pattern.rows for p in range(len(row))]
    order = _order(pattern.tasks, edges, half)
    arrays = (np.array(column, np.int32) for column in (*zip(*edges, strict=True), half, order))
    return Flat(pattern.tasks, *arrays, tuple(map(tuple, reads)))
