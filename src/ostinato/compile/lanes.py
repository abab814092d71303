"""Which lanes must be several, so that nothing stands behind a wait for something outside that it does not need."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ostinato.compile.edges import Edges, IntArray
from ostinato.compile.lags import lags_of
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
    src, dst, _ = (column[edges.distance == 0] for column in edges)
    begin = np.searchsorted(dst, np.arange(len(order) + 1)).tolist()
    for tell in np.flatnonzero(tells).tolist():
        before = src[begin[tell] : begin[tell + 1]]
        if len(before):  # else it tells of a step before
            last = before[np.argmax(place[before])]
            place[tell] = np.nextafter(place[last], len(order))
            lane[tell] = lane[last]
    by_source = np.argsort(src, kind="stable")
    src, dst = src[by_source], dst[by_source]
    begin = np.searchsorted(src, np.arange(len(order) + 1)).tolist()
    for wait in sorted(waits.tolist(), key=lambda op: -place[op]):  # the last first: one may come after another
        after = dst[begin[wait] : begin[wait + 1]]
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
    if not outside.any():
        return placement
    lags = lags_of(len(outside), edges, outside)
    lags.held_up_as_what_follows(edges, idle)
    kinds = lags.kinds()
    before = placement.lane.tolist()
    old: list[int] = []
    groups: dict[tuple[int, bytes], _Group] = {}
    lane = np.empty(len(outside), np.int32)
    for op in order.tolist():
        waits, lag = lags.rows[op]
        key = before[op], waits.tobytes()
        if key not in groups:
            groups[key] = _Group(len(waits))
        group = groups[key]
        place = group.place_for(kinds[op], lag)
        if place == len(group.lanes):
            group.lanes.append(len(old))
            old.append(before[op])
        group.put(place, lag)
        lane[op] = group.lanes[place]
    return placement._replace(lane=lane, home=placement.home[old], pinned=placement.pinned[old])


_NEVER = 2**31 - 2


class _Group:
    """Lanes that grow out of one lane, of ops that depend on the same waits: those that do not never share a lane."""

    def __init__(self, waits: int) -> None:
        self.lanes: list[int] = []
        self._least = np.full((waits, 1), _NEVER, np.int32)  # by wait and lane, the least lag of the lane's ops
        self._greatest = np.zeros((waits, 1), np.int32)
        self._first: dict[int, int] = {}  # by kind of op, the first lane that may take it: a lane takes ever less

    def place_for(self, kind: int, lag: IntArray) -> int:
        """Return the first lane at whose end an op may be put; if none, how many lanes there are."""
        first, count = self._first.get(kind, 0), len(self.lanes)
        if len(lag):
            near, far = int(lag.argmin()), int(lag.argmax())  # the lags that most lanes differ in
            likely = self._greatest[near, first:count] <= lag[near] + 1
            likely &= self._least[far, first:count] >= lag[far]
            places = (first + np.flatnonzero(likely)).tolist()
            first = next((place for place in places if self._takes(place, lag)), count)
        self._first[kind] = first
        return first

    def put(self, place: int, lag: IntArray) -> None:
        """Put an op at the end of a lane."""
        if place == self._least.shape[1]:
            self._least = np.hstack([self._least, np.full(self._least.shape, _NEVER, np.int32)])
            self._greatest = np.hstack([self._greatest, np.zeros(self._greatest.shape, np.int32)])
        self._least[:, place] = np.minimum(self._least[:, place], lag)
        self._greatest[:, place] = np.maximum(self._greatest[:, place], lag)

    def _takes(self, place: int, lag: IntArray) -> bool:
        return bool((lag <= self._least[:, place]).all() and (self._greatest[:, place] <= lag + 1).all())
