"""Which lanes must be several, so that nothing stands behind a wait for something outside that it does not need."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ostinato import _core
from ostinato.compile.edges import Edges, IntArray
from ostinato.compile.placement import Placement

__all__ = ["settle", "split"]


def settle(
    edges: Edges,
    placement: Placement,
    order: IntArray,
    idle: npt.NDArray[np.bool_],
    tells: npt.NDArray[np.bool_],
) -> tuple[Placement, IntArray]:
    """Return the placement and the order with ops that only wait, or only tell, next to those that they are for.

    What only waits (for an event, for a phase of a barrier) goes right before the first op that comes after it: there
    it holds up nothing else. What only tells that others are done goes right after the last of these.
    """
    waits = np.flatnonzero(idle)
    if not len(waits) and not tells.any():
        return placement, order
    place = np.empty(len(order))
    place[order] = np.arange(len(order))
    lane = placement.lane.copy()
    for tell in np.flatnonzero(tells).tolist():
        before = edges.src[(edges.dst == tell) & (edges.distance == 0)]
        if len(before):  # else it tells of a step before
            last = before[np.argmax(place[before])]
            place[tell] = np.nextafter(place[last], len(order))
            lane[tell] = lane[last]
    for wait in sorted(waits.tolist(), key=lambda op: -place[op]):  # the last first: one may come after another
        after = edges.dst[(edges.src == wait) & (edges.distance == 0)]
        if len(after):
            first = after[np.argmin(place[after])]
            place[wait] = np.nextafter(place[first], -1)
            lane[wait] = lane[first]
    left, renumbered = np.unique(lane, return_inverse=True)  # a lane that nothing is left on is none
    lanes = placement._replace(
        lane=renumbered.reshape(-1).astype(np.int32), home=placement.home[left], pinned=placement.pinned[left]
    )
    return lanes, np.argsort(place, kind="stable").astype(np.int32)


def split(
    edges: Edges,
    placement: Placement,
    order: IntArray,
    outside: npt.NDArray[np.bool_],
    idle: npt.NDArray[np.bool_],
) -> Placement:
    """Return the placement with lanes split where their order would add dependences on what is outside.

    A lane runs its ops in order, step after step. If one of them waits for something outside (an event, a phase of a
    barrier, a reservation, a task that may block) and another, later on the lane, does not depend on that, then the
    second could not run before the first: two programs that each wait for such a second op of the other would wait
    forever, though neither asked for that.

    So let ``lag(x, e)`` be the least number of steps back that op x depends on wait e along the edges, infinite if it
    does not. Op x of a lane may come before op y of the same lane if, for all e,
    ``lag(y, e) <= lag(x, e) <= lag(y, e) + 1``: then y depends on what x waits for, and x in the next step on what y
    waits for, anyway. Waits for the same thing hold in the order of steps. An idle wait itself may be held up by
    whatever all that directly comes after it is held up by: its lags count as the greatest of theirs, less the
    distance.

    Parameters
    ----------
    edges
        All dependences that order ops.
    placement, order
        Lanes of ops, and the order of the step.
    outside
        The ops that wait for something outside.
    idle
        Those of them that do nothing else.
    """
    sources = np.flatnonzero(outside).astype(np.int32)
    if not len(sources):
        return placement
    found = _core.passes.lags(len(outside), *edges, sources).reshape(len(outside), len(sources)).astype(np.int64)
    found[found < 0] = _NEVER
    for place, wait in enumerate(sources.tolist()):
        after = edges.src == wait
        if idle[wait] and after.any():
            lag = found[edges.dst[after]] - np.where(
                found[edges.dst[after]] < _NEVER, edges.distance[after][:, None], 0
            )
            found[wait] = np.maximum(lag.max(axis=0), 0)
            found[wait, place] = 0
    lags, kind = np.unique(found, axis=0, return_inverse=True)
    kinds = kind.reshape(-1).tolist()
    before = placement.lane.tolist()
    lanes: list[_Lane] = []
    by_old: list[list[int]] = [[] for _ in placement.home]
    lane = np.empty(len(outside), np.int32)
    for op in order.tolist():
        own = by_old[before[op]]
        place = next((index for index in own if lanes[index].takes(kinds[op], lags)), len(lanes))
        if place == len(lanes):
            lanes.append(_Lane(lags.shape[1], before[op]))
            own.append(place)
        lanes[place].add(kinds[op], lags)
        lane[op] = place
    old = [each.old for each in lanes]
    return placement._replace(lane=lane, home=placement.home[old], pinned=placement.pinned[old])


_NEVER = 2**40


class _Lane:
    """A lane that grows: the least and the greatest lag of its ops, for each wait."""

    def __init__(self, waits: int, old: int) -> None:
        self.old = old
        self._least = np.full(waits, _NEVER)
        self._greatest = np.zeros(waits, np.int64)
        self._known: dict[int, bool] = {}  # by kind of op, since the last that changed anything

    def takes(self, kind: int, lags: npt.NDArray[np.int64]) -> bool:
        """Whether an op of a kind may come after all that the lane has."""
        if kind not in self._known:
            lag = lags[kind]
            self._known[kind] = bool(((lag <= self._least) & (self._greatest <= lag + 1)).all())
        return self._known[kind]

    def add(self, kind: int, lags: npt.NDArray[np.int64]) -> None:
        """Put an op at the end."""
        least, greatest = np.minimum(self._least, lags[kind]), np.maximum(self._greatest, lags[kind])
        if not (np.array_equal(least, self._least) and np.array_equal(greatest, self._greatest)):
            self._least, self._greatest = least, greatest
            self._known.clear()
