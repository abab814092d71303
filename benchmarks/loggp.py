"""Predict the time of a step on many ranks with LogGP (Alexandrov, Ionescu, Schauser, Scheiman, SPAA 1995).

The processor's time for each byte is that of LogGOPS (Hoefler, Schneider, Lumsdaine, HPDC 2010): where memory carries
messages, processors copy them.

The planner plans for ranks that are not there. Of a grid of ranks it plans for one rank of each kind, such as a corner,
an edge, the interior: all others of a kind do the same with their own neighbours. Then all ranks are simulated, step by
step: each sends, runs what needs no message, receives, and runs the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import ostinato as ost
from ostinato.compiler.dependences import infer_dependences
from ostinato.compiler.flatten import flatten
from ostinato.compiler.ir import Step
from ostinato.compiler.ranks.distribute import distribute
from ostinato.graph.messages import Message


@dataclass(frozen=True)
class LogGP:
    """The costs of messages, in seconds.

    `L`: on their way. `o`: of the processor, on each side. `g`: between the begins of two messages at a network
    interface. `G`: for each byte on its way. `O`: of the processor, for each byte, on each side.
    """

    L: float
    o: float
    g: float
    G: float
    O: float = 0.0  # noqa: E741


class PlannedRanks(ost.Ranks):
    """A rank that can record and plan, but not send."""

    def __init__(self, rank: int, size: int) -> None:
        self._rank, self._size = rank, size
        self.messenger = self.agreement = None  # type: ignore[assignment]


Record = Callable[[ost.Ranks], Any]
"""Records a step on a rank."""


def record_on(rank: int, size: int, record: Record) -> ost.Graph:
    """Return the graph that a rank records."""
    ranks = PlannedRanks(rank, size)
    with ost.capture() as graph:
        graph.join(ranks)
        record(ranks)
    return graph


class Part(NamedTuple):
    """The work and the messages of a rank in a step."""

    sends: tuple[tuple[int, int], ...]
    """The other rank, and how many bytes."""
    receives: tuple[tuple[int, int], ...]
    before: float
    """Seconds of the work that needs no message of the step."""
    after: float
    """Seconds of the rest."""


def part_of(rank: int, size: int, record: Record, seconds: Mapping[str, float]) -> Part:
    """Plan a rank's part, given the seconds of ops by name."""
    graph = record_on(rank, size, record)
    step: Step = infer_dependences(distribute(flatten(graph), graph.group))
    needs = [isinstance(op.body, Message) and not op.body.sends for op in step.nodes]
    edges = step.edges
    for src, dst, distance in zip(*(column.tolist() for column in edges), strict=True):  # by dst, which come in order
        needs[dst] = needs[dst] or (distance == 0 and src < dst and needs[src])
    found: tuple[list[tuple[int, int]], list[tuple[int, int]]] = ([], [])
    taken = [0.0, 0.0]
    for op, late in zip(step.nodes, needs, strict=True):
        if isinstance(op.body, Message):
            found[not op.body.sends].append((op.body.peer, op.body.operand.arrays[0].nbytes))
        else:
            taken[late] += seconds[op.name]
    return Part(tuple(found[0]), tuple(found[1]), *taken)


def parts_of_grid(grid: Sequence[int], record: Record, seconds: Mapping[str, float]) -> list[Part]:
    """Return the parts of all ranks of a grid, planned for one rank of each kind."""
    size, shape = int(np.prod(grid)), tuple(grid)
    planned: dict[tuple[int, ...], tuple[Part, tuple[int, ...]]] = {}
    parts = []
    for place in product(*map(range, shape)):
        # Ranks at a border, or beside one, are of kinds of their own.
        kind = tuple([i if i < 2 else max(2, i - length + 5) for i, length in zip(place, shape, strict=True)])
        if kind not in planned:
            rank = int(np.ravel_multi_index(place, shape))
            planned[kind] = part_of(rank, size, record, seconds), place
        part, like = planned[kind]
        sides = []
        for messages in (part.sends, part.receives):
            peers = [np.unravel_index(peer, shape) for peer, _ in messages]
            moved = [[int(p) + i - j for p, i, j in zip(peer, place, like, strict=True)] for peer in peers]
            numbers = [int(np.ravel_multi_index(peer, shape)) for peer in moved]
            sides.append(tuple(zip(numbers, [nbytes for _, nbytes in messages], strict=True)))
        parts.append(Part(sides[0], sides[1], part.before, part.after))
    return parts


def step_seconds(parts: Sequence[Part], model: LogGP, steps: int = 64) -> float:
    """Return the seconds of a step, after the first steps."""
    before, after = np.array([part.before for part in parts]), np.array([part.after for part in parts])
    out, into, total = _message_tables(parts)
    nbytes = np.array([size for part in parts for _, size in part.sends] + [0], float)  # the last one stands for none
    busy = model.o + nbytes * model.O
    arrival = np.zeros(total + 1)
    now, free = np.zeros(len(parts)), np.zeros(len(parts))
    ends = []
    for _ in range(steps):
        for column in out.T:
            own = column >= 0
            begin = np.maximum(now[own], free[own])
            length = nbytes[column[own]] * model.G
            now[own] = begin + busy[column[own]]
            free[own] = begin + np.maximum(model.g, length)
            arrival[column[own]] = now[own] + model.L + length
        now += before
        came = np.where(into >= 0, arrival[into], np.inf)
        taken = np.full(len(parts), -np.inf)
        for column in np.take_along_axis(into, np.argsort(came, axis=1), axis=1).T:
            own = column >= 0
            taken[own] = np.maximum(arrival[column[own]], taken[own] + model.g)
            now[own] = np.maximum(now[own], taken[own]) + busy[column[own]]
        now += after
        ends.append(now.max())
    half = steps // 2
    return float((ends[-1] - ends[half - 1]) / (steps - half))


def _message_tables(parts: Sequence[Part]) -> tuple[NDArray[np.int64], NDArray[np.int64], int]:
    """Return by rank the numbers of the messages that it sends, and that it receives; -1: no more. And how many."""
    numbers: dict[tuple[int, int], list[int]] = {}
    out: list[list[int]] = []
    total = 0
    for rank, part in enumerate(parts):
        out.append([])
        for peer, _ in part.sends:
            numbers.setdefault((rank, peer), []).append(total)
            out[-1].append(total)
            total += 1
    into = []
    for rank, part in enumerate(parts):
        left = {peer: iter(numbers[peer, rank]) for peer, _ in part.receives}
        into.append([next(left[peer]) for peer, _ in part.receives])
    return _table(out), _table(into), total


def _table(rows: Sequence[Sequence[int]]) -> NDArray[np.int64]:
    found = np.full((len(rows), max(map(len, rows))), -1, np.int64)
    for row, values in zip(found, rows, strict=True):
        row[: len(values)] = values
    return found
